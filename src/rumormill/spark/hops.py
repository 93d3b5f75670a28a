"""Hops: along how many peers a message came to each of its subscribers.

A peer has one hop more than the peer whose copy reached it first, and a message's publisher has
none: a walk along the arrivals of one message in their order. Joins would need a round for every
hop. So the arrivals of a message are brought together and in order by Spark, and walked through in
one pass by a task that holds one message's peers at a time.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rumormill.spark.deliveries import DELIVER, PUBLISH, RECV

SCHEMA: Final = "run STRING, message_id BINARY, peer BINARY, hops INT"


def hops_of(traces: DataFrame) -> DataFrame:
    """The hops of every first delivery: run, message_id, peer, hops; where they can be known."""
    columns = ["run", "message_id", "moment", "seq", "kind", "peer", "sender"]
    shared = [f.col(name) for name in ("run", "moment", "seq")]
    shared += [f.col("type").alias("kind"), f.col("peerID").alias("peer")]
    own = traces.where(f.col("type").isin(PUBLISH, DELIVER)).select(
        *shared, f.col("messageID").alias("message_id"), f.col("remotePeer").alias("sender")
    )
    copies = (
        traces.where(f.col("type") == RECV)
        .select(
            *shared, f.explode("messages").alias("carried"), f.col("remotePeer").alias("sender")
        )
        .withColumn("message_id", f.col("carried.messageID"))
    )
    arrivals = own.select(columns).unionByName(copies.select(columns))
    return (
        arrivals.repartition("run", "message_id")
        .sortWithinPartitions("run", "message_id", "moment", "seq")
        .select("run", "message_id", "kind", "peer", "sender")
        .mapInArrow(_walk, SCHEMA)
    )


def _walk(batches: Iterator[Any]) -> Iterator[Any]:
    """In a task: follow each message from its publisher outwards."""
    import pyarrow as pa  # noqa: PLC0415

    schema = pa.schema(
        [("run", pa.string()), ("message_id", pa.binary()), ("peer", pa.binary()),
         ("hops", pa.int32())]
    )  # fmt: skip
    current: tuple[str, bytes] | None = None
    known: dict[bytes, int] = {}
    told: dict[bytes, None] = {}
    for batch in batches:
        found: list[tuple[str, bytes, bytes, int]] = []
        columns = [column.to_pylist() for column in batch.columns]
        for run, message, kind, peer, sender in zip(*columns, strict=True):
            if (run, message) != current:
                current = (run, message)
                known, told = {}, {}
            if kind == PUBLISH:
                if not known:
                    known[peer] = 0
                continue
            if peer not in known and sender in known:
                known[peer] = known[sender] + 1
            if kind == DELIVER and known and peer not in told:
                told[peer] = None
                if peer in known:
                    found.append((run, message, peer, known[peer]))
        arrays = list(zip(*found, strict=True)) if found else [(), (), (), ()]
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, each.type) for values, each in zip(arrays, schema, strict=True)],
            schema=schema,
        )
