"""Bronze: trace files and topics as tables, as they were found.

A source is a trace file, a directory of trace files, a node's home, or the Flight door of a running
node. Trace files are read in Spark's tasks, one file each, by the readers of `trace.files`: ours
and go-libp2p's NDJSON and protobuf alike. Each entry gets a place in its run. The rule: inside a
file the order of the file holds, whatever its clock did; between files of one run the clock
decides. So `moment` is the latest time stamp that the file has shown so far, `seq` is the number of
the file and of the entry in it, and a run's entries are in order by (`moment`, `seq`).
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rumormill.core.errors import LocalError
from rumormill.spark.lake import part_name
from rumormill.spark.options import read_options
from rumormill.spark.tables import COLUMNS, ddl
from rumormill.trace.entries import TraceError
from rumormill.trace.files import SUFFIXES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_SHIFT: Final = 40
"""Entries per file: 2^40; files per run: 2^23."""

EVERY_TOPIC: Final = "(?s).*"
"""The pattern of all topics, whatever their names hold."""

INCLUDED: Final = dict.fromkeys(("includeHeaders", "includeMetadata", "includeProof"), "true")
"""Options by which the data source gives all that the table `events` has."""

EVERYTHING: Final = {"subscribePattern": EVERY_TOPIC, **INCLUDED}

_ROWS: Final = 8192
_FILES_AT_A_TIME: Final = 4
"""Tasks per core: few enough to be long, enough that cores end together."""

_HEADS: Final = "heads"
"""The file by which a node's home, or a bare store, is recognised."""


class TraceFile(msgspec.Struct, frozen=True):
    """A trace file, and its place in a run."""

    run: str
    number: int
    path: str


class Source(msgspec.Struct, frozen=True):
    """What is milled: trace files, or a store."""

    name: str
    place: str | Path
    """Where it is: a path, or the address of a door."""
    files: tuple[TraceFile, ...] = ()
    options: dict[str, str] = {}
    """Of a store: where the data source finds it."""
    about: dict[str, dict[str, Any]] = {}
    """What is known of its runs: columns of the table `runs`, by run."""

    @property
    def is_store(self) -> bool:
        """Whether events are read, and not traces."""
        return bool(self.options)


def find_node(
    address: str, *, name: str | None = None, token_file: str | None = None,
    tls_roots: str | None = None,
) -> Source:  # fmt: skip
    """A node by its Flight door; what is wrong with the options is one sentence."""
    options = {"node": address}
    for key, file in (("tokenFile", token_file), ("tlsRoots", tls_roots)):
        if file is not None:
            options[key] = str(Path(file).expanduser().absolute())
    read_options({**options, "subscribePattern": EVERY_TOPIC}, streaming=False)
    return Source(name or part_name(Path(address.replace(":", "-"))), address, options=options)


def is_address(text: str) -> bool:
    """Whether a source is named by HOST:PORT and not by a path."""
    return re.fullmatch(r"[^/\s]+:[0-9]{1,5}", text) is not None and not Path(text).exists()


def find_source(text: str, *, name: str | None = None, merge: bool = False) -> Source:
    """Look at what a path names; one sentence if it is nothing that can be milled.

    With `merge`, the files of a directory are the peers of one network; otherwise each is a run.
    """
    path = Path(text).expanduser().absolute()
    if path.is_dir():
        if (path / _HEADS).is_file():
            return Source(name or part_name(path), str(path), options={"home": str(path)})
        found = sorted(each for each in path.iterdir() if is_trace(each))
        if not found:
            kinds = ", ".join(SUFFIXES)
            raise LocalError(f"{path} holds neither a store nor a trace file ({kinds})")
        name = name or part_name(path)
        runs = [name if merge else f"{name}/{part_name(each, SUFFIXES)}" for each in found]
        if not merge and len(dict.fromkeys(runs)) < len(runs):
            raise LocalError(f"{path} has trace files that differ in their suffix alone")
        numbers = range(len(found)) if merge else [0] * len(found)
        files = zip(runs, numbers, map(str, found), strict=True)
        return Source(name, str(path), tuple([TraceFile(*each) for each in files]))
    if not path.exists():
        raise LocalError(f"there is no {path}")
    if not is_trace(path):
        raise LocalError(f"{path}: a trace file's name ends in one of {', '.join(SUFFIXES)}")
    name = name or part_name(path, SUFFIXES)
    return Source(name, str(path), (TraceFile(name, 0, str(path)),))


def is_trace(path: Path) -> bool:
    """Whether a path names a trace file."""
    return path.is_file() and path.name.endswith(SUFFIXES) and path.name[0] != "."


def read_traces(spark: "SparkSession", files: Sequence[TraceFile]) -> "DataFrame":
    """The entries of trace files; a damaged file fails the query with its name and position."""
    if not files:
        return spark.createDataFrame([], ddl("traces"))
    rows = [(each.run, each.number, each.path) for each in files]
    slices = min(len(rows), _FILES_AT_A_TIME * spark.sparkContext.defaultParallelism)
    listed = spark.createDataFrame(
        spark.sparkContext.parallelize(rows, slices), "run STRING, number INT, path STRING"
    )
    return listed.mapInArrow(_read_files, ddl("traces"))


def _read_files(batches: Iterator[Any]) -> Iterator[Any]:
    """In a task: turn names of files into their entries."""
    for batch in batches:
        for row in batch.to_pylist():
            yield from trace_batches(TraceFile(**row))


def trace_batches(file: TraceFile) -> Iterator[Any]:
    """The entries of one trace file as Arrow batches of the table `traces`."""
    placing = Placing(file.run, file.number)
    return map(placing.place, _entry_batches(Path(file.path)))


class Placing:
    """Gives a file's entries, one batch after another, their places in a run."""

    def __init__(self, run: str, number: int = 0) -> None:
        self._run = run
        self._next = number << FILE_SHIFT
        self._latest = -(1 << 63)

    def place(self, entries: Any) -> Any:
        """A batch with the columns of a trace as a batch of the table `traces`."""
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import compute as pc  # noqa: PLC0415

        times = entries.column("timestamp")
        # The clock of a file may step back; the order of the file may not.
        moments = pc.cumulative_max(times, start=self._latest)
        first, self._next = self._next, self._next + len(times)
        self._latest = moments[-1].as_py()
        arrays = [
            pa.repeat(pa.scalar(self._run), len(times)),
            moments,
            pa.array(range(first, self._next), pa.int64()),
            *[entries.column(name) for name, _ in COLUMNS["traces"][3:]],
        ]
        return pa.RecordBatch.from_arrays(arrays, [name for name, _ in COLUMNS["traces"]])


def _entry_batches(path: Path) -> Iterator[Any]:
    """A file's entries in the columns of `trace.parquet`."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    from rumormill.trace.files import read_trace  # noqa: PLC0415
    from rumormill.trace.parquet import SCHEMA, table_of  # noqa: PLC0415

    if path.suffix == ".parquet":
        number = 0
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_ROWS):
                    yield batch.select(SCHEMA.names).cast(SCHEMA)
                    number += batch.num_rows
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise TraceError(f"{path}, row {number}: {error}") from error
        return
    entries = read_trace(path)
    while some := list(islice(entries, _ROWS)):
        yield from table_of(some).to_batches()


def protocols_of(traces: "DataFrame") -> dict[str, str]:
    """Which protocol each run speaks, by the protocol ids under which its peers met."""
    met = traces.where("type = 4 AND proto IS NOT NULL").groupBy("run", "proto").count().collect()
    known = _protocol_ids()
    found: dict[str, tuple[int, str]] = {}
    for row in met:
        name = known.get(row["proto"]) or _family(row["proto"])
        found[row["run"]] = max(found.get(row["run"], (0, "")), (row["count"], name))
    return {run: name for run, (_, name) in found.items()}


def _protocol_ids() -> dict[str, str]:
    from rumormill.protocols.registry import PROTOCOL_NAMES, protocol  # noqa: PLC0415

    found: dict[str, str] = {}
    for name in PROTOCOL_NAMES:
        for each in protocol(name).protocol_ids:
            # GossipSub speaks FloodSub's protocol as well, which is FloodSub's all the same.
            found.setdefault(each, name)
    return found


def _family(protocol_id: str) -> str:
    """The protocol of an id that is not one of ours, such as a newer version's."""
    if protocol_id.startswith("/meshsub/"):
        return "gossipsub"
    parts = [part for part in protocol_id.split("/") if part]
    return parts[0] if parts else "unknown"


def run_rows(
    spark: "SparkSession", source: Source, protocols: dict[str, str], protocol: str | None
) -> "DataFrame":
    """The table `runs`: what the source says of its runs, or else their protocol alone."""
    names = dict.fromkeys([each.run for each in source.files] or [source.name])
    paths = {each.run: each.path for each in source.files} if len(names) > 1 else {}
    rows = [
        {
            "run": name,
            "protocol": protocol or protocols.get(name, "unknown"),
            "source": paths.get(name, str(source.place)),
            "parameters": json.dumps({}),
            **source.about.get(name, {}),
        }
        for name in names
    ]
    return spark.createDataFrame(
        [tuple(row.get(name) for name, _ in COLUMNS["runs"]) for row in rows], ddl("runs")
    )


def read_events(spark: "SparkSession", source: Source) -> "DataFrame":
    """All events of a store, through the data source."""
    found = spark.read.format("rumormill").options(**source.options, **EVERYTHING).load()
    return as_events(found, source.name)


def as_events(found: "DataFrame", run: str) -> "DataFrame":
    """Rows of the data source, with all that can be asked for, as the table `events`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    protocol = f.expr("string(filter(metadata, each -> each.key = 'protocol')[0].value)")
    own = {"run": f.lit(run), "protocol": protocol, "received": f.col("timestamp")}
    return found.withColumns(own).select([name for name, _ in COLUMNS["events"]])
