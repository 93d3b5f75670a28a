"""Writing publishes through a node: each row once, however often it is sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_samples import LiveNode, configured, fill, streaming

from rumormill.log import EventLog
from rumormill.log.notes import note_keys

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    """A node that publishes."""
    with LiveNode(tmp_path_factory.mktemp("n") / "home") as started:
        yield started


def published(node: LiveNode, topic: str) -> list[str]:
    """The values in a topic of the node's log."""
    with EventLog(node.home, read_only=True) as log:
        return [each.data.decode() for chunk in log.chunks(topic) for each in chunk]


def writing(frame: Any, node: LiveNode, **options: object) -> Any:
    return configured(frame.write, node=node.endpoint, token=node.token, **options).mode("append")


def test_batch_write(spark: Any, node: LiveNode) -> None:
    """A row is an event; string or binary; the topic is a column, or the option, which wins."""
    frame = spark.createDataFrame(
        [("a", "1"), ("b", "2"), ("a", "3")], "topic string, value string"
    )
    writing(frame.coalesce(1), node).save()
    assert published(node, "a") == ["1", "3"]
    assert published(node, "b") == ["2"]
    writing(frame.coalesce(1), node, topic="c").save()
    assert published(node, "c") == ["1", "2", "3"]
    binary = frame.selectExpr("cast(value as binary) as value").coalesce(1)
    configured(binary.write, home=node.home, topic="d").mode("append").save()
    assert published(node, "d") == ["1", "2", "3"]


def test_a_job_that_is_run_again_under_its_name_publishes_once(spark: Any, node: LiveNode) -> None:
    """`writeId` names a job."""
    frame = spark.range(20).selectExpr("cast(id as string) as value").coalesce(2)
    for _ in range(2):
        writing(frame, node, topic="once", writeId="job of the day").save()
    assert sorted(map(int, published(node, "once"))) == list(range(20))


def test_stream_write(spark: Any, node: LiveNode, tmp_path: Path) -> None:
    """Events of one store are published in another topic; old batches are forgotten."""
    with EventLog(tmp_path / "home") as log:
        fill(log, "news", 30)
        frame = streaming(
            spark,
            tmp_path / "home",
            subscribe="news",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=10,
            minPartitions=2,
        ).select("value")
        run(frame, node, tmp_path)
        assert sorted(published(node, "copy")) == sorted(f"news {n}" for n in range(30))
        with EventLog(node.home, read_only=True) as other:
            left = note_keys(other, "stream ")
        assert len(left) == 2, "one for each partition of the last batch"


def with_heads(spark: Any, count: int) -> Any:
    """Rows with keys and headers, the first without either."""
    return spark.range(count).selectExpr(
        "CAST(id AS STRING) AS value",
        "IF(id = 0, NULL, CONCAT('key-', id % 3)) AS key",
        "IF(id = 0, NULL, ARRAY(STRUCT('n' AS key, CAST(STRING(id) AS BINARY) AS value),"
        " STRUCT('content-type' AS key, CAST('text/plain' AS BINARY) AS value))) AS headers",
    )


def test_keys_and_headers_are_published(spark: Any, node: LiveNode) -> None:
    """And come back as they were; rows that are sent again are recognised with them."""
    frame = with_heads(spark, 7).coalesce(1)
    for _ in range(2):
        writing(frame, node, topic="headed", writeId="headed").save()
    place = {"node": node.endpoint, "token": node.token, "subscribe": "headed"}
    back = configured(spark.read, **place, includeHeaders="true").load()
    rows = back.orderBy("offset").collect()
    assert [row.value.decode() for row in rows] == [str(n) for n in range(7)]
    assert [row.key and row.key.decode() for row in rows] == [
        None, "key-1", "key-2", "key-0", "key-1", "key-2", "key-0",
    ]  # fmt: skip
    named = [row.headers and {each.key: each.value.decode() for each in row.headers}
             for row in rows]  # fmt: skip
    assert named == [None] + [{"content-type": "text/plain", "n": str(n)} for n in range(1, 7)]
    other = frame.withColumn("key", frame.value)
    with pytest.raises(Exception, match="the query is not the same on replay"):
        writing(other, node, topic="headed", writeId="headed").save()


def test_a_stream_copies_keys_and_headers_once(spark: Any, node: LiveNode, tmp_path: Path) -> None:
    """From a topic to another; a batch whose commit was lost is recognised."""
    writing(with_heads(spark, 12).coalesce(1), node, topic="origin").save()
    place = {"node": node.endpoint, "token": node.token}
    frame = configured(
        spark.readStream, **place, subscribe="origin", includeHeaders="true",
        startingOffsets="earliest",
    ).load().select("key", "value", "headers")  # fmt: skip
    for _ in range(2):
        run(frame, node, tmp_path, topic="headed copy")
        for name in ("0", ".0.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink()
    columns = ("key", "value", "headers")
    first, second = (
        configured(spark.read, **place, subscribe=topic, includeHeaders="true")
        .load().orderBy("offset").select(*columns).collect()
        for topic in ("origin", "headed copy")
    )  # fmt: skip
    assert second == first
    assert len(second) == 12


def run(frame: Any, node: LiveNode, folder: Path, topic: str = "copy") -> None:
    writer = configured(frame.writeStream, node=node.endpoint, token=node.token, topic=topic)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_replayed_batch_is_not_published_twice(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    """The commit of a batch is lost: Spark runs it again, the node recognises it."""
    before = len(published(node, "copy"))
    with EventLog(tmp_path / "home") as log:
        fill(log, "news", 10)
        frame = streaming(
            spark, tmp_path / "home", subscribe="news", startingOffsets="earliest"
        ).select("value")
        run(frame, node, tmp_path)
        for name in ("0", ".0.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        fill(log, "news", 5, start=10)
        run(frame, node, tmp_path)
    assert published(node, "copy")[before:] == [f"news {n}" for n in range(15)]


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("value string", {}, "topic: set this option"),
        ("topic string", {}, "no column value"),
        ("topic string, value int", {}, "column 'value' cannot be int"),
        ("topic string, value string, more int", {}, "column 'more' is not published"),
        ("value string", {"topci": "a"}, "did you mean topic"),
    ],
)
def test_rows_that_cannot_be_published(
    spark: Any, node: LiveNode, columns: str, options: dict[str, str], complaint: str
) -> None:
    """One sentence says why."""
    with pytest.raises(Exception, match=complaint):
        writing(spark.createDataFrame([], columns), node, **options).save()


def test_insert_into_a_table_publishes(spark: Any, node: LiveNode) -> None:
    """Named columns, and the topic too where the table has one only; what the log fills cannot be
    inserted, and nothing is overwritten."""
    place = f"node '{node.endpoint}', token '{node.token}'"
    for name, topics in (("one", "it\\'s"), ("two", "ink,pen")):
        options = f"OPTIONS ({place}, subscribe '{topics}', includeHeaders 'true')"
        spark.sql(f"CREATE TABLE {name} USING rumormill {options}")
    try:
        spark.sql("INSERT INTO one (key, value) VALUES (BINARY('k'), BINARY('a')), (NULL, X'62')")
        headers = "array(named_struct('key', 'h', 'value', BINARY('v')))"
        spark.sql(
            f"INSERT INTO two (topic, value, headers) SELECT 'ink', value, {headers} FROM one"
        )
        spark.table("one").selectExpr("value", "'pen' AS topic").write.option(
            "node", node.endpoint
        ).option("token", node.token).format("rumormill").mode("append").save()
        rows = spark.sql("SELECT key, value, offset FROM one").collect()
        assert {(row.key, row.value) for row in rows} == {(b"k", b"a"), (None, b"b")}
        assert sorted(row.offset for row in rows) == [0, 1]
        (head,) = spark.sql("SELECT headers FROM two WHERE topic = 'ink' AND offset = 0").collect()
        assert [(each.key, each.value) for each in head.headers] == [("h", b"v")]
        assert sorted(published(node, "pen")) == ["a", "b"]
        for statement, sentence in (
            ("INSERT INTO one SELECT * FROM one", "for the log to fill: say which columns"),
            (
                "INSERT INTO one (value, publisher) VALUES (X'61', 'me')",
                "column 'publisher' is for",
            ),
            ("INSERT INTO two (value) VALUES (X'61')", "CANNOT_FIND_DATA"),
            ("INSERT OVERWRITE one (value) VALUES (X'61')", "(?s)overwrite|append"),
        ):
            with pytest.raises(Exception, match=sentence):
                spark.sql(statement)
        assert spark.table("one").count() == 2, "nothing of them was published"
        with EventLog(node.home, read_only=True) as log:
            assert "it's" in [each.name for each in log.topics()]
    finally:
        spark.sql("DROP TABLE one")
        spark.sql("DROP TABLE two")
