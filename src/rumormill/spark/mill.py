"""The mill: from a source to the tables of a lake, layer by layer.

Bronze is written first and read back from its own Parquet files, so that nothing is decoded twice;
silver and gold are computed from there by the functions of the other modules. The rule: a part of a
lake appears whole or not at all. Whatever is wrong with a source is one sentence that names the
file, the topic and the place.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rumormill.core.errors import LocalError
from rumormill.spark.bronze import Source, protocols_of, read_events, read_traces, run_rows
from rumormill.spark.lake import Draft, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_WINDOW: Final = 1.0
"""Seconds of a window. Our choice: short enough to see a fault begin and end."""

_PARTS: Final = "spark.sql.shuffle.partitions"
_PART_BYTES: Final = 16 << 20
"""Of Parquet files; our choice: some three million entries of a trace."""

Tell = Callable[[str], None]

_ONE_SENTENCE: Final = re.compile(r"^\s*(?:rumormill[\w.]*\.)?\w*Error: (.+)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)


def silence(_: str) -> None:
    """Tell nobody."""


def mill(
    spark: "SparkSession",
    source: Source,
    lake: Lake,
    *,
    protocol: str | None = None,
    window: float = DEFAULT_WINDOW,
    tell: Tell = silence,
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
            write_runs(spark, draft, source, protocol)
            build_tables(spark, draft, window, tell)
    except Exception as error:
        raise plain(error) from error


def write_runs(spark: "SparkSession", draft: Draft, source: Source, protocol: str | None) -> None:
    """Say what is known of a part whose bronze is there."""
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
        with _cut_finely(spark, draft.path / "traces"):
            _from_traces(spark, draft, window, tell)
    if (draft.path / "events").is_dir():
        from rumormill.spark.verifying import verify  # noqa: PLC0415

        build_event_tables(spark, draft, verify(draft.frame(spark, "events")), window, tell)


@contextlib.contextmanager
def _cut_finely(spark: "SparkSession", bronze: Path) -> Iterator[None]:
    """Let Spark cut what it sorts into parts that fit into a task's memory, however large a table
    is; it puts those together again that turn out to be small."""
    size = sum(file.stat().st_size for file in bronze.glob("*.parquet"))
    before = str(spark.conf.get(_PARTS))
    spark.conf.set(_PARTS, str(max(int(before), size // _PART_BYTES)))
    try:
        yield
    finally:
        spark.conf.set(_PARTS, before)


def _from_traces(spark: "SparkSession", draft: Draft, window: float, tell: Tell) -> None:
    from pyspark.sql import functions as f  # noqa: PLC0415

    from rumormill.spark import deliveries, gold  # noqa: PLC0415

    traces = draft.frame(spark, "traces")
    protocols = f.broadcast(draft.frame(spark, "runs").select("run", "protocol"))

    def write(frame: "DataFrame", table: str, *, small: bool = True) -> "DataFrame":
        tell(table)
        named = frame.drop("protocol").join(protocols, "run", "left")
        draft.write(named.coalesce(1) if small else named, table)
        return draft.frame(spark, table)

    delivered = write(deliveries.deliveries(traces), "deliveries", small=False)
    messages = write(deliveries.messages(traces, delivered), "messages", small=False)
    found = write(gold.delivery_quality(delivered, messages, window), "delivery_quality")
    write(gold.latency_cdf(delivered), "latency_cdf")
    write(gold.overhead(traces, found), "overhead")
    write(gold.peer_load(traces), "peer_load")
    write(gold.topic_activity(messages, delivered, window), "topic_activity")
    write(gold.self_stabilisation(traces), "self_stabilisation")
    write(gold.sync_sessions(traces), "sync_sessions")


def build_event_tables(
    spark: "SparkSession", draft: Draft, verified: "DataFrame", window: float, tell: Tell
) -> None:
    """Make silver and gold of events, each of which has its verdict."""
    from rumormill.spark import gold, verifying  # noqa: PLC0415

    tell("events_verified")
    draft.write(verifying.link(verified), "events_verified")
    tell("topic_activity")
    activity = gold.event_activity(draft.frame(spark, "events"), window)
    draft.write(activity.coalesce(1), "topic_activity")
    tell("dag_health")
    health = gold.dag_health(draft.frame(spark, "events_verified"))
    draft.write(health.coalesce(1), "dag_health")


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
