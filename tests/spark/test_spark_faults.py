"""Bad input: errors that name the thing, and nothing half-written."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from spark_samples import (
    LiveNode,
    configured,
    fill,
    offsets_by_topic,
    reading,
    run_to_end,
    streaming,
)

from rumormill.core.errors import LocalError
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.flight_server import open_server
from rumormill.daemon.flight_service import FlightService
from rumormill.log import EventLog, NotAStoreError, Retention
from rumormill.log.model import Range
from rumormill.spark.access import DataLossError, NodeAccess, read_piece
from rumormill.spark.options import read_options
from rumormill.spark.source import BatchReader, RangePartition, StreamReader

pytestmark = pytest.mark.xdist_group("spark")


def reader_of(store: Path, **options: str) -> BatchReader:
    given = {"home": str(store), "subscribe": "news", **options}
    return BatchReader(read_options(given, streaming=False), ["topic", "offset"])


def offsets_of(reader: BatchReader | StreamReader, ranges: Any) -> list[int]:
    return [
        n for each in ranges for batch in reader.read(each) for n in batch["offset"].to_pylist()
    ]


@pytest.fixture
def home(home: Path) -> Path:
    """A store of one's own with 100 events."""
    with EventLog(home) as log:
        fill(log, "news", 100)
    return home


def damage(home: Path) -> None:
    """Change the content of event 50."""
    with sqlite3.connect(home / "events-1.db") as db:
        db.execute("UPDATE events SET data = x'00' WHERE key & 1023 = 50")
    db.close()


def test_fail_on_data_loss_names_the_range(spark: Any, home: Path, tmp_path: Path) -> None:
    """A damaged event fails the stream by name, and leaves nothing in the table."""
    damage(home)
    frame = streaming(spark, home, subscribe="news", startingOffsets="earliest")
    with pytest.raises(Exception, match=r"'news'.*offsets 50 to 50 cannot be read.*its hash"):
        run_to_end(frame, tmp_path)
    assert not list((tmp_path / "table").glob("*.parquet"))
    mild = streaming(
        spark, home, subscribe="news", startingOffsets="earliest", failOnDataLoss="false"
    )
    run_to_end(mild, tmp_path)
    table = spark.read.parquet(str(tmp_path / "table"))
    assert offsets_by_topic(table) == {"news": [*range(50), *range(51, 100)]}


def test_a_corrupted_store_is_named(home: Path) -> None:
    """A batch read of a damaged range fails; without failOnDataLoss the rest is read."""
    damage(home)
    reader = reader_of(home)
    with pytest.raises(DataLossError, match=rf"the store {home}: offsets 50 to 50 cannot be read"):
        offsets_of(reader, reader.partitions())
    mild = reader_of(home, failOnDataLoss="false")
    assert offsets_of(mild, mild.partitions()) == [*range(50), *range(51, 100)]


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    """An empty directory, and one that is not there."""
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(NotAStoreError, match=f"no rumormill store in {place}"):
            reader_of(place).partitions()


def test_a_missing_topic_and_offsets_beyond_the_end(spark: Any, store: Path) -> None:
    """Through Spark, the sentence arrives."""
    with pytest.raises(Exception, match="there is no topic 'nwes'"):
        reading(spark, store, subscribe="nwes").count()
    with pytest.raises(Exception, match="offset 500 of topic 'news' is beyond its end"):
        reading(spark, store, subscribe="news", endingOffsets={"news": 500}).count()


def test_retention_that_ate_the_range(home: Path) -> None:
    """Before the read, between planning and reading, and for a stream that comes back."""
    reader = reader_of(home)
    planned = reader.partitions()
    follower = StreamReader(
        read_options({"home": str(home), "subscribe": "news"}, streaming=True), ["offset"]
    )
    with EventLog(home) as log:
        log.retain({"news": Retention(max_events=40)}, 0.0)
    with pytest.raises(DataLossError, match="offsets 0 to 59 cannot be read: retention"):
        offsets_of(reader, planned)
    with pytest.raises(DataLossError, match="offsets 5 to 59 are gone"):
        reader_of(home, startingOffsets='{"news": 5}').partitions()
    with pytest.raises(DataLossError, match="offsets 20 to 59 are gone"):
        follower.partitions({"news": 20}, {"news": 100})
    mild = reader_of(home, failOnDataLoss="false")
    assert offsets_of(mild, planned) == list(range(60, 100))


def test_a_store_that_is_another_one(home: Path) -> None:
    """A stream has read further than the topic reaches."""
    follower = StreamReader(
        read_options({"home": str(home), "subscribe": "news"}, streaming=True), ["offset"]
    )
    with pytest.raises(DataLossError, match="ends at offset 100, but was read up to 200"):
        follower.latestOffset({"news": 200}, follower.getDefaultReadLimit())


def test_a_wrong_token(spark: Any, home: Path) -> None:
    """The sentence says where the right one is."""
    with EventLog(home, read_only=True) as log:
        server = open_server(FlightService(log), Endpoint("127.0.0.1", 0), "the right token")
        there = {"node": f"127.0.0.1:{server.port}", "subscribe": "news"}
        right = configured(spark.read, **there, token="the right token").load()
        assert right.count() == 100
        with pytest.raises(Exception, match=r"refuses the token.*flight\.token"):
            configured(spark.read, **there, token="a wrong token").load().count()
        server.shutdown()


def test_a_node_that_dies_in_the_middle_of_a_read(tmp_path: Path) -> None:
    """The reader raises, and names the node: a piece is never shorter than it should be."""
    with EventLog(tmp_path / "home") as log:
        for start in range(0, 40_000, 1000):
            fill(log, "news", 1000, start=start)
    with LiveNode(tmp_path / "home") as node:
        access = NodeAccess(node.endpoint, node.token)
        rows = read_piece(access, Range("news", 0, 40_000), ["offset", "value", "id", "proof"])
        assert next(rows).num_rows > 0
        node.kill()
        with pytest.raises(LocalError, match=f"the node at {node.endpoint} cannot be reached"):
            list(rows)


def test_an_empty_partition_reads_nothing(store: Path) -> None:
    """A batch whose filters leave nothing still has a task."""
    assert list(reader_of(store).read(RangePartition(None))) == []
