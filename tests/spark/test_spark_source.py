"""The data source as a Spark user sees it: one test for each row of docs/spark.md's table."""

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest
from spark_samples import (
    FIRST_TIME,
    configured,
    event,
    fill,
    offsets_by_topic,
    reading,
    run_to_end,
    streaming,
)

from rumormill import SyncNode
from rumormill.log import Durability, EventLog, StoreConfig
from rumormill.log.arrow import COLUMNS, TABLE, event_schema
from rumormill.spark import behind_latest
from rumormill.spark.bronze import INCLUDED
from rumormill.spark.options import read_options
from rumormill.spark.replicas import Piece
from rumormill.spark.source import (
    FULL_SCHEMA,
    BatchReader,
    RangePartition,
    RumormillSource,
    StreamReader,
)

pytestmark = pytest.mark.xdist_group("spark")


def milliseconds(number: int) -> str:
    """The time at which an event was received, as options have it."""
    return str(int((FIRST_TIME + number) * 1000))


def source_of(progress: Any) -> dict[str, Any]:
    """What a query's progress says of its source, with its offsets read."""
    (source,) = progress["sources"]
    return {key: json.loads(source[key]) for key in ("endOffset", "latestOffset")}


def test_batch_read(spark: Any, store: Path) -> None:
    """Every event of the topics, with every column."""
    frame = reading(spark, store, subscribe="news,chat")
    assert frame.columns == list(TABLE)
    rows = {(row.topic, row.offset): row for row in frame.collect()}
    assert len(rows) == 140
    row, sample = rows["news", 7], event("news", 7)
    assert (bytes(row.id), bytes(row.author), bytes(row.value)) == (
        sample.id,
        sample.author,
        sample.data,
    )
    assert (row.key, row.partition, row.timestampType) == (None, 0, 1)
    assert row.timestamp == datetime.datetime.fromtimestamp(sample.received)  # noqa: DTZ006
    assert row.created == datetime.datetime.fromtimestamp(sample.created)  # noqa: DTZ006
    assert [bytes(each) for each in row.parents] == list(sample.parents)
    assert rows["news", 8].created is None


def test_stream_read(spark: Any, store: Path, tmp_path: Path) -> None:
    """From the earliest event to the last one there is, into a table."""
    query = run_to_end(
        streaming(spark, store, subscribe="news,chat", startingOffsets="earliest"), tmp_path
    )
    table = spark.read.parquet(str(tmp_path / "table"))
    assert offsets_by_topic(table) == {"chat": list(range(40)), "news": list(range(100))}
    assert source_of(query.lastProgress)["endOffset"] == {"chat": 40, "news": 100}


def test_topics_by_list_and_pattern(spark: Any, store: Path) -> None:
    """`subscribe` names topics, `subscribePattern` matches them."""
    assert list(offsets_by_topic(reading(spark, store, subscribe="chat"))) == ["chat"]
    pattern = reading(spark, store, subscribePattern="n.*|none")
    assert list(offsets_by_topic(pattern)) == ["news"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": {"news": 90}, "endingOffsets": {"news": 95}}, (90, 95)),
        ({"startingOffsets": {"news": -2}, "endingOffsets": {"news": -1}}, (0, 100)),
        ({"startingTimestamp": milliseconds(97)}, (97, 100)),
        ({"endingTimestamp": milliseconds(3)}, (0, 3)),
    ],
)
def test_starts_and_ends(
    spark: Any, store: Path, options: dict[str, Any], expected: tuple[int, int]
) -> None:
    """Offsets as readable JSON, times in milliseconds; the end is not read."""
    found = offsets_by_topic(reading(spark, store, subscribe="news", **options))
    assert found == {"news": list(range(*expected))}


def test_a_stream_begins_at_the_end_by_default(spark: Any, tmp_path: Path) -> None:
    """What is there is not read; what comes later is, also after a restart."""
    home = tmp_path / "home"
    with EventLog(home) as log:
        fill(log, "news", 5)
        frame = streaming(spark, home, subscribe="news")
        run_to_end(frame, tmp_path)
        fill(log, "news", 3, start=5)
        run_to_end(frame, tmp_path)
    table = spark.read.parquet(str(tmp_path / "table"))
    assert offsets_by_topic(table) == {"news": [5, 6, 7]}


def test_a_replayed_batch_is_the_same_batch(spark: Any, tmp_path: Path) -> None:
    """The commit of the last batch is lost, the topic grows: the batch is cut as it was."""
    home = tmp_path / "home"
    with EventLog(home) as log:
        fill(log, "news", 10)
        frame = streaming(spark, home, subscribe="news", startingOffsets="earliest")
        run_to_end(frame, tmp_path)
        commits = tmp_path / "checkpoint" / "commits"
        for name in ("0", ".0.crc"):
            (commits / name).unlink()
        fill(log, "news", 10, start=10)
        query = run_to_end(frame, tmp_path)
    assert source_of(query.recentProgress[0])["endOffset"] == {"news": 10}
    table = spark.read.parquet(str(tmp_path / "table"))
    assert offsets_by_topic(table) == {"news": list(range(20))}


def test_admission_control_and_available_now(spark: Any, store: Path, tmp_path: Path) -> None:
    """Batches of at most `maxOffsetsPerTrigger`, shared by volume, to the end and no further."""
    frame = streaming(
        spark,
        store,
        subscribe="news,chat",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=70,
    )
    query = run_to_end(frame, tmp_path)
    ends = [source_of(each)["endOffset"] for each in query.recentProgress]
    assert ends == [{"chat": 20, "news": 50}, {"chat": 40, "news": 100}]


def test_available_now_stops_at_what_was_there(store: Path) -> None:
    """Events that come later wait for the next run."""
    options = read_options(
        {"home": str(store), "subscribe": "news", "startingOffsets": "earliest"}, streaming=True
    )
    reader = StreamReader(options, ["offset"])
    reader._target = {("news", 0): 60}
    assert reader.latestOffset({"news": 10}, reader.getDefaultReadLimit()) == {"news": 60}
    assert reader.latestOffset({"news": 60}, reader.getDefaultReadLimit()) == {"news": 60}
    assert reader.latestOffset({"news": 80}, reader.getDefaultReadLimit()) == {"news": 80}


def test_lag_in_progress(spark: Any, store: Path, tmp_path: Path) -> None:
    """The query's progress says where the topics end, and so how far behind it is."""
    frame = streaming(
        spark, store, subscribe="news", startingOffsets="earliest", maxOffsetsPerTrigger=60
    )
    query = run_to_end(frame, tmp_path)
    first = source_of(query.recentProgress[0])
    assert (first["endOffset"], first["latestOffset"]) == ({"news": 60}, {"news": 100})
    assert behind_latest(query.recentProgress[0])["maxOffsetsBehindLatest"] == 40
    assert behind_latest(query.lastProgress)["maxOffsetsBehindLatest"] == 0


def test_metadata_and_proof_are_opt_in(spark: Any, store: Path) -> None:
    """Like Kafka's headers; the proof is what lets others check the author."""
    frame = reading(spark, store, subscribe="chat", **INCLUDED)
    assert frame.columns == list(COLUMNS)
    row = frame.where("offset = 3").first()
    found = {each.key: bytes(each.value) for each in row.metadata}
    with EventLog(store, read_only=True) as log:
        ((*_, digest),) = log.rows("chat", 3, 1)
    assert found == {"protocol": b"gossipsub", "chain": digest}
    assert bytes(row.proof) == b"proof 3"


def test_kafkas_columns(spark: Any, tmp_path: Path) -> None:
    """Names and types are Kafka's; keys, headers and content types are what publishers said, and
    the value is their data."""
    with SyncNode(tmp_path / "home") as node:
        node.publish("orders", b"2", key="order-17", headers={"region": "north"},
                     content_type="text/plain")  # fmt: skip
        node.publish("orders", b"plain")
    found = reading(spark, tmp_path / "home", subscribe="orders", includeHeaders="true")
    kinds = [f"{each.name} {each.dataType.simpleString()}" for each in found.schema[:8]]
    assert kinds == [
        "key binary", "value binary", "topic string", "partition int", "offset bigint",
        "timestamp timestamp", "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]  # fmt: skip
    first, second = found.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value)) == (b"order-17", b"2")
    assert [(each.key, bytes(each.value)) for each in first.headers] == [
        ("content-type", b"text/plain"), ("region", b"north"),
    ]  # fmt: skip
    assert first.created is not None, "an envelope has its author's time"
    assert (second.key, second.headers, bytes(second.value)) == (None, None, b"plain")
    assert {first.partition, second.partition} == {0}
    assert "headers" not in reading(spark, tmp_path / "home", subscribe="orders").columns


def test_filters_are_pushed_down(spark: Any, store: Path) -> None:
    """Filters on topic, offset and time reach the source, and Spark does not repeat them."""
    frame = reading(spark, store, subscribe="news,chat").where(
        "topic = 'news' and offset > 90 and timestamp < timestamp_seconds(1700000095)"
    )
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in re.sub(r"RuntimeFilters: \[\]", "", plan)
    assert offsets_by_topic(frame) == {"news": [91, 92, 93, 94]}
    other = reading(spark, store, subscribe="chat").where("length(value) = 6 and offset != 3")
    assert offsets_by_topic(other) == {"chat": [0, 1, 2, 4, 5, 6, 7, 8, 9]}


def test_without_push_down_everything_still_works(spark: Any, store: Path) -> None:
    """Its default in Spark is off; then Spark applies the filters itself."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = reading(spark, store, subscribe="news").where("offset >= 98")
        assert offsets_by_topic(frame) == {"news": [98, 99]}
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_min_partitions(spark: Any, store: Path) -> None:
    """At least so many tasks; none twice, none left out."""
    frame = reading(spark, store, subscribe="news,chat", minPartitions=5)
    assert frame.rdd.getNumPartitions() >= 5
    assert frame.count() == 140


def test_unknown_option_is_an_error_in_spark(spark: Any, store: Path) -> None:
    """With the nearest name."""
    with pytest.raises(Exception, match=r"subscrib3.*did you mean subscribe\?"):
        reading(spark, store, subscrib3="news")


def test_arrow_batches_end_to_end(store: Path) -> None:
    """Readers yield record batches whose schema is Spark's own for the columns."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    assert to_arrow_schema(FULL_SCHEMA, timezone="UTC").equals(event_schema(COLUMNS))
    options = read_options({"home": str(store), "subscribe": "news"}, streaming=False)
    (batch,) = BatchReader(options, list(COLUMNS)).read(RangePartition(Piece("news", 0, 100)))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == 100


def test_a_large_topic_is_read_again_from_its_segments(spark: Any, tmp_path: Path) -> None:
    """The first read leaves them; a damaged one is passed by; the rows are the same each time."""
    home, count = tmp_path / "large", 33_000
    with EventLog(home, StoreConfig(durability=Durability.OS)) as log:
        for start in range(0, count, 1000):
            fill(log, "large", 1000, start)
    whole = ("count(*) AS rows", "bit_xor(xxhash64(*)) AS digest",
             "count(distinct offset) AS offsets")  # fmt: skip
    frame = reading(spark, home, subscribe="large", includeProof="true", includeMetadata="true")
    first = frame.selectExpr(*whole).collect()
    assert (first[0].rows, first[0].offsets) == (count, count)
    sealed = sorted((home / "segments").glob("*/*"))
    assert [path.name for path in sealed] == ["0", "16384"]
    content = sealed[0].read_bytes()
    assert frame.selectExpr(*whole).collect() == first
    sealed[0].write_bytes(content[:-5000] + bytes(5000))
    assert frame.selectExpr(*whole).collect() == first
    assert sealed[0].read_bytes() == content, "it was made anew"


def test_found_by_name_alone_and_by_registration(spark: Any, store: Path) -> None:
    """`format("rumormill")` works without a call; registering the class does too."""
    import pyspark_rumormill

    assert pyspark_rumormill.DefaultSource is RumormillSource
    assert reading(spark, store, subscribe="chat").count() == 40

    class Renamed(RumormillSource):
        @classmethod
        def name(cls) -> str:
            return "rumours"

    spark.dataSource.register(Renamed)
    frame = spark.read.format("rumours").option("subscribe", "chat").load(str(store))
    assert frame.count() == 40


def test_a_schema_may_leave_columns_out(spark: Any, store: Path) -> None:
    """Less is read; another type is refused."""
    reader = configured(spark.read, home=store, subscribe="chat")
    frame = reader.schema("offset bigint not null, value binary not null").load()
    assert frame.columns == ["offset", "value"]
    assert frame.count() == 40
    with pytest.raises(Exception, match="column 'value' must be value:binary, not null"):
        configured(spark.read, home=store, subscribe="chat").schema("value string").load().count()
    with pytest.raises(Exception, match="no column 'valeu'; did you mean value"):
        configured(spark.read, home=store, subscribe="chat").schema("valeu binary").load().count()


def test_the_table_of_the_documentation_names_these_tests() -> None:
    """Each row names a test that exists."""
    folder = Path(__file__).parent
    text = (folder.parent.parent / "docs" / "spark.md").read_text()
    named = re.findall(r"`(test_\w+)`", text)
    known = "\n".join(path.read_text() for path in folder.glob("test_*.py"))
    assert len(named) >= 14
    for name in named:
        assert f"def {name}(" in known, name


def test_the_options_of_the_documentation_are_the_options() -> None:
    """Each option is explained, and nothing else."""
    from rumormill.spark.options import READ_OPTIONS, WRITE_OPTIONS

    text = (Path(__file__).parent.parent.parent / "docs" / "spark.md").read_text()
    tables = text.partition("## Options")[2].partition("\n## ")[0]
    explained = re.findall(r"^\| `(\w+)`", tables, re.MULTILINE)
    assert sorted(set(explained)) == sorted({*READ_OPTIONS, *WRITE_OPTIONS})
    assert json.dumps({"news": 42}) in text
