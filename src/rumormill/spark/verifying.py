"""Silver: stored events checked again (`node.verdicts`), and the links between them followed.

Of the links of a topic's events: which parents are not there, which events none follows. What does
not hold is named in `fault` and takes no part in the graph of its topic, so that nobody can hang
something on another's history.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rumormill.core.event import Event
from rumormill.node.identity import SignatureVerifier
from rumormill.node.verdicts import verify_event
from rumormill.spark.tables import ddl

SCHEMA: Final = ddl("events_verified").partition(", `missing_parents`")[0]
"""Of verdicts, before links are followed."""


def verify(events: DataFrame) -> DataFrame:
    """Check every event; rows are independent, so this holds for streams as well."""
    return events.mapInArrow(_verify_batches, SCHEMA)


def _verify_batches(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute as pc  # noqa: PLC0415

    verifier = SignatureVerifier()
    kept = ("run", "protocol", "topic", "offset", "id", "author")
    for batch in batches:
        payloads = pc.coalesce(batch.column("payload"), batch.column("value"))
        names = ("protocol", "topic", "author", "id", "parents", "proof")
        columns = [batch.column(name).to_pylist() for name in names]
        created = pc.cast(batch.column("created"), pa.int64()).to_pylist()
        found = [
            verify_event(
                protocol,
                Event(topic, data, author, name, tuple(parents), _seconds(time), proof),
                verifier,
            )
            for protocol, topic, author, name, parents, proof, data, time in zip(
                *columns, payloads.to_pylist(), created, strict=True
            )
        ]
        arrays = [
            *[batch.column(name) for name in kept],
            pc.binary_length(payloads).cast(pa.int64()),
            *[batch.column(name) for name in ("created", "received", "parents")],
            pa.array([each.id_valid for each in found], pa.bool_()),
            pa.array([each.signature for each in found], pa.string()),
            pa.array([each.fault for each in found], pa.string()),
        ]
        labels = [*kept, "bytes", "created", "received", "parents", "id_valid", "signature"]
        yield pa.RecordBatch.from_arrays(arrays, [*labels, "fault"])


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1_000_000


def link(verified: DataFrame) -> DataFrame:
    """Follow the links inside each topic: parents that are missing, followers, ends."""
    key = ["run", "topic"]
    sound = verified.where("fault IS NULL")
    links = sound.select(*key, "id", f.explode("parents").alias("parent"))
    followers = links.groupBy(*key, "parent").agg(f.count("*").alias("children"))
    there = sound.select(*key, f.col("id").alias("parent"), f.lit(True).alias("there"))
    missing = (
        links.join(there, [*key, "parent"], "left")
        .where("there IS NULL")
        .groupBy(*key, "id")
        .agg(f.sort_array(f.collect_set("parent")).alias("missing_parents"))
    )
    none = f.array().cast("array<binary>")
    holds = f.col("fault").isNull()
    return (
        verified.join(followers.withColumnRenamed("parent", "id"), [*key, "id"], "left")
        .join(missing, [*key, "id"], "left")
        .withColumn("children", f.when(holds, f.coalesce("children", f.lit(0))).otherwise(0))
        .withColumn(
            "missing_parents", f.when(holds, f.coalesce("missing_parents", none)).otherwise(none)
        )
        .withColumn("is_root", holds & (f.size("parents") == 0))
        .withColumn("is_head", holds & (f.col("children") == 0))
    )
