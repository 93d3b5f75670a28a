"""The mill: from a source to the tables of a lake, layer by layer.

Bronze is written first and read back from its own Parquet files, so that nothing is decoded twice;
silver and gold are computed from there by the functions of the other modules. The rule: a part of a
lake appears whole or not at all. Whatever is wrong with a source is one sentence that names the
file, the topic and the place.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rumormill.core.errors import LocalError
from rumormill.spark.bronze import (
    EVERYTHING,
    Source,
    TraceFile,
    as_events,
    protocols_of,
    read_events,
    read_traces,
    run_rows,
)
from rumormill.spark.lake import Draft, Lake, part_name
from rumormill.trace.files import SUFFIXES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_WINDOW: Final = 1.0
"""Seconds of a window. Our choice: short enough to see a fault begin and end."""

Tell = Callable[[str], None]

_STREAMS: Final = ".streams"
_ONE_SENTENCE: Final = re.compile(r"^\s*(?:rumormill[\w.]*\.)?\w*Error: (.+)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_PATH_COLUMNS: Final = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"


def _silence(_: str) -> None:
    """Tell nobody."""


def mill(
    spark: "SparkSession",
    source: Source,
    lake: Lake,
    *,
    protocol: str | None = None,
    window: float = DEFAULT_WINDOW,
    tell: Tell = _silence,
) -> None:
    """Turn a source into a part of a lake; it replaces the part of the same name."""
    try:
        with lake.writing(source.name) as draft:
            if source.is_store:
                tell("reading the store")
                draft.write(read_events(spark, source), "events")
            else:
                tell(f"reading {len(source.files)} trace files")
                draft.write(read_traces(spark, source.files), "traces")
            _write_runs(spark, draft, source, protocol)
            build_tables(spark, draft, window, tell)
    except Exception as error:
        raise plain(error) from error


def _write_runs(spark: "SparkSession", draft: Draft, source: Source, protocol: str | None) -> None:
    found: dict[str, str] = {}
    if protocol is None and source.is_store:
        spoken = draft.frame(spark, "events").groupBy("protocol").count().collect()
        most = max(spoken, key=lambda row: row["count"], default=None)
        found = {} if most is None else {source.name: most["protocol"]}
    elif protocol is None:
        found = protocols_of(draft.frame(spark, "traces"))
    draft.write(run_rows(spark, source, found, protocol).coalesce(1), "runs")


def build_tables(spark: "SparkSession", draft: Draft, window: float, tell: Tell) -> None:
    """Make silver and gold of a part whose bronze is there."""
    if (draft.path / "traces").is_dir():
        _from_traces(spark, draft, window, tell)
    if (draft.path / "events").is_dir():
        _from_events(spark, draft, window, tell)


def _from_traces(spark: "SparkSession", draft: Draft, window: float, tell: Tell) -> None:
    from rumormill.spark import deliveries, gold, hops, quality  # noqa: PLC0415

    traces, runs = draft.frame(spark, "traces"), draft.frame(spark, "runs")

    def write(frame: "DataFrame", table: str, *, small: bool = True) -> "DataFrame":
        tell(table)
        named = _named(frame, runs)
        draft.write(named.coalesce(1) if small else named, table)
        return draft.frame(spark, table)

    delivered = write(
        deliveries.deliveries(traces, hops.hops_of(traces)), "deliveries", small=False
    )
    messages = write(deliveries.messages(traces, delivered), "messages", small=False)
    found = write(quality.delivery_quality(delivered, messages, window), "delivery_quality")
    write(quality.latency_cdf(delivered), "latency_cdf")
    write(quality.overhead(traces, found), "overhead")
    write(gold.peer_load(traces), "peer_load")
    write(gold.topic_activity(traces, messages, delivered, window), "topic_activity")
    write(gold.self_stabilisation(traces), "self_stabilisation")


def _from_events(spark: "SparkSession", draft: Draft, window: float, tell: Tell) -> None:
    from rumormill.spark import gold, verifying  # noqa: PLC0415

    events = draft.frame(spark, "events")
    tell("events_verified")
    draft.write(verifying.link(verifying.verify(events)), "events_verified")
    tell("topic_activity")
    draft.write(gold.event_activity(events, window).coalesce(1), "topic_activity")
    tell("dag_health")
    verified = draft.frame(spark, "events_verified")
    draft.write(gold.dag_health(verified).coalesce(1), "dag_health")


def _named(frame: "DataFrame", runs: "DataFrame") -> "DataFrame":
    """Say of which protocol each row's run is."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return frame.drop("protocol").join(f.broadcast(runs.select("run", "protocol")), "run", "left")


class Stream:
    """A part that grows: new events of a store, or new files of a directory of traces.

    Every micro-batch is kept as a directory of Parquet files that is named after the batch's number
    and renamed into place, so that a batch that is played again after a crash replaces nothing and
    adds nothing. Then the part is made anew from all batches, whose files it shares by hard links.
    """

    def __init__(
        self,
        spark: "SparkSession",
        source: Source,
        lake: Lake,
        *,
        protocol: str | None = None,
        window: float = DEFAULT_WINDOW,
        tell: Tell = _silence,
    ) -> None:
        self._spark, self._source, self._lake = spark, source, lake
        self._protocol, self._window, self._tell = protocol, window, tell
        self._folder = lake.path / _STREAMS / source.name
        self._table = "events" if source.is_store else "traces"

    def start(self, *, once: bool = False, interval: float = 10.0) -> Any:
        """Begin to follow the source; `once` stops when all is read that is there now."""
        writer = (
            self._found()
            .writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .queryName(f"mill {self._source.name}")
        )
        trigger = {"availableNow": True} if once else {"processingTime": f"{interval:g} seconds"}
        return writer.trigger(**trigger).start()

    def _found(self) -> "DataFrame":
        if self._source.is_store:
            reader = self._spark.readStream.format("rumormill")
            return reader.options(
                **self._source.options, **EVERYTHING, startingOffsets="earliest"
            ).load()
        return (
            self._spark.readStream.format("binaryFile")
            .schema(_PATH_COLUMNS)
            .option("pathGlobFilter", "*{" + ",".join(SUFFIXES) + "}")
            .load(str(self._source.place))
            .select("path")
        )

    def take(self, batch: "DataFrame", number: int) -> None:
        """Take one micro-batch into the part."""
        kept = self._folder / self._table / f"batch-{number:08d}"
        if not kept.is_dir():
            self._keep(batch, kept)
        folders = sorted(each for each in kept.parent.iterdir() if each.name[0] != ".")
        with self._lake.writing(self._source.name) as draft:
            for folder in folders:
                _share(folder, draft.path / self._table, folder.name)
            (draft.path / self._table / "_SUCCESS").touch()
            _write_runs(self._spark, draft, self._known(), self._protocol)
            build_tables(self._spark, draft, self._window, self._tell)
        self._tell(f"batch {number} is in the lake")

    def _keep(self, batch: "DataFrame", kept: Path) -> None:
        from rumormill.spark.tables import shaped  # noqa: PLC0415

        draft = kept.with_name(f".{kept.name}")
        shutil.rmtree(draft, ignore_errors=True)
        if self._source.is_store:
            frame = as_events(batch, self._source.name)
        else:
            paths = sorted(_local(row["path"]) for row in batch.collect())
            frame = read_traces(self._spark, [self._file(path) for path in paths])
        shaped(frame, self._table).write.parquet(str(draft))
        draft.rename(kept)

    def _file(self, path: Path) -> TraceFile:
        return TraceFile(f"{self._source.name}/{part_name(path, SUFFIXES)}", 0, str(path))

    def _known(self) -> Source:
        """The source with the files that are in the lake by now."""
        if self._source.is_store:
            return self._source
        traces = [
            row["run"]
            for folder in sorted((self._folder / self._table).glob("batch-*"))
            for row in self._spark.read.parquet(str(folder)).select("run").distinct().collect()
        ]
        files = [TraceFile(run, 0, str(self._source.place)) for run in dict.fromkeys(traces)]
        return Source(self._source.name, self._source.place, tuple(files))


def _share(folder: Path, target: Path, prefix: str) -> None:
    """Give a folder's Parquet files a second name elsewhere."""
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(folder.glob("*.parquet")):
        os.link(file, target / f"{prefix}-{file.name}")


def _local(uri: str) -> Path:
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415

    return Path(unquote(urlsplit(uri).path))


def plain(error: BaseException) -> Exception:
    """What went wrong inside Spark as the one sentence that was raised in a task."""
    if isinstance(error, LocalError):
        return error
    text = str(error)
    found: list[str] = _ONE_SENTENCE.findall(text)
    if found and "rumormill" in text:
        return LocalError(found[-1].strip())
    causes: list[str] = _CAUSE.findall(text)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    reason = causes[-1].strip() if causes else first
    return LocalError(f"Spark failed: {reason or type(error).__name__}")
