"""Several homes or nodes as one table: each event once, and a dead place stops nothing."""

import contextlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from spark_samples import LiveNode, configured, event, publish, run_to_end

from rumormill.core.errors import ConfigError, LocalError
from rumormill.log import EventLog
from rumormill.spark.access import DataLossError
from rumormill.spark.options import read_options, write_options
from rumormill.spark.replicas import as_json, from_json
from rumormill.spark.source import BatchReader, StreamReader

pytestmark = pytest.mark.xdist_group("spark")

COLUMNS = ["topic", "partition", "offset", "value"]


def append(home: Path, numbers: list[int]) -> None:
    """Add events to a store, in this order."""
    with EventLog(home) as log:
        log.append([event("news", number) for number in numbers]).result()


def options(homes: list[Path], *, streaming: bool = False, **given: str) -> Any:
    named = ",".join(map(str, homes))
    return read_options({"home": named, "subscribe": "news", **given}, streaming=streaming)


def rows_of(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    """What the tasks of a read give."""
    return [
        row
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def values(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"].split()[1]) for row in rows)


def test_a_batch_has_every_event_once_from_the_first_place_that_has_it(tmp_path: Path) -> None:
    """Whatever the order in which the places got them."""
    homes = [tmp_path / name for name in "abc"]
    append(homes[0], [1, 0, 5, 7])
    append(homes[1], [7, 2, 0, 8])
    append(homes[2], [9, 8, 3])
    reader = BatchReader(options(homes), COLUMNS)
    rows = rows_of(reader, reader.partitions())
    assert values(rows) == [0, 1, 2, 3, 5, 7, 8, 9]
    places = {int(row["value"].split()[1]): (row["partition"], row["offset"]) for row in rows}
    assert places == {
        1: (0, 0), 0: (0, 1), 5: (0, 2), 7: (0, 3), 2: (1, 1), 8: (1, 3), 9: (2, 0), 3: (2, 2),
    }  # fmt: skip


def test_what_an_earlier_place_leaves_out_is_taken_from_a_later_one(tmp_path: Path) -> None:
    """A batch has what is in the range of any place; offsets are each place's own."""
    homes = [tmp_path / name for name in "ab"]
    append(homes[0], [0, 1, 2, 3])
    append(homes[1], [3, 2, 1, 0])
    given = {"startingOffsets": '{"news": {"0": 2, "1": 1}}', "endingOffsets": '{"news": -1}'}
    reader = BatchReader(options(homes, **given), COLUMNS)
    rows = rows_of(reader, reader.partitions())
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        (0, 2), (0, 3), (1, 2), (1, 3),
    ]  # fmt: skip
    assert values(rows) == [0, 1, 2, 3]


def test_streams_give_each_event_once_however_batches_fall(tmp_path: Path) -> None:
    """Random arrivals at three places, small batches, batches that are run again."""
    chance = random.Random(3)
    homes = [tmp_path / name for name in "abc"]
    waiting = [chance.sample(range(60), 60) for _ in homes]
    for home, own in zip(homes, waiting, strict=True):
        append(home, [own.pop() for _ in range(5)])
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "11"}
    reader = StreamReader(options(homes, streaming=True, **given), COLUMNS)
    limit, place = reader.getDefaultReadLimit(), reader.initialOffset()
    seen: Counter[int] = Counter()
    while True:
        for home, own in zip(homes, waiting, strict=True):
            append(home, [own.pop() for _ in range(min(len(own), chance.randrange(4)))])
        end = reader.latestOffset(place, limit)
        if end == place and not any(waiting):
            break
        first = rows_of(reader, reader.partitions(place, end))
        again = StreamReader(options(homes, streaming=True, **given), COLUMNS)
        assert rows_of(again, again.partitions(place, end)) == first
        seen.update(values(first))
        place = end
    assert seen == Counter(range(60))


class Follower:
    """A stream as Spark runs it: the end of a batch is noted, then the batch runs and is given."""

    def __init__(self, homes: list[Path], **given: str) -> None:
        self.options = options(homes, streaming=True, startingOffsets="earliest", **given)
        self.reader = StreamReader(self.options, COLUMNS)
        self.start = json.loads(json.dumps(self.reader.initialOffset()))
        self.end: dict[str, Any] | None = None
        self.seen: Counter[int] = Counter()

    def plan(self) -> None:
        if self.end is None:
            end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
            self.end = json.loads(json.dumps(end)) if end != self.start else None

    def run(self) -> list[int]:
        """Run the batch; it is given as a whole or not at all."""
        if self.end is None:
            return []
        found = values(rows_of(self.reader, self.reader.partitions(self.start, self.end)))
        self.seen.update(found)
        self.start, self.end = self.end, None
        return found

    def crash(self) -> None:
        """Nothing is left of the driver but what was noted."""
        self.reader = StreamReader(self.options, COLUMNS)


def test_a_place_that_dies_after_the_plan_is_read_elsewhere(tmp_path: Path) -> None:
    """What another place has by then; what none has that answers is an error, until it is back."""
    homes = [tmp_path / name for name in "ab"]
    append(homes[0], [0, 1])
    append(homes[1], [1, 0])
    stream = Follower(homes)
    stream.plan()
    assert stream.run() == [0, 1]

    append(homes[0], [2, 3])
    stream.plan()
    homes[0].rename(tmp_path / "gone")
    append(homes[1], [3])
    with pytest.raises(LocalError, match=r"'news': 1 events, read of the store .*/a when .*/a"):
        stream.run()
    append(homes[1], [4, 2])
    stream.crash()
    assert stream.run() == [2, 3]
    stream.plan()
    assert stream.run() == [4]

    append(homes[1], [5])
    (tmp_path / "gone").rename(homes[0])
    append(homes[0], [6, 4])
    stream.plan()
    assert stream.run() == [5, 6]


def test_a_task_goes_on_elsewhere_when_its_place_dies(tmp_path: Path) -> None:
    """The tasks were cut while it was there; what nobody else has can be passed over."""
    homes = [tmp_path / name for name in "ab"]
    append(homes[0], [0, 1, 2])
    append(homes[1], [2, 0])
    stream = Follower(homes, failOnDataLoss="false")
    stream.plan()
    tasks = stream.reader.partitions(stream.start, stream.end)
    homes[0].rename(tmp_path / "gone")
    rows = rows_of(stream.reader, tasks)
    assert sorted((row["partition"], row["offset"]) for row in rows) == [(1, 0), (1, 1)]


def test_what_was_given_does_not_come_again_when_its_place_is_dead(tmp_path: Path) -> None:
    """The checkpoint knows what a place lacks, also when another has deleted it or is gone."""
    homes = [tmp_path / name for name in "ab"]
    append(homes[0], [0, 1, 2])
    append(homes[1], [])
    stream = Follower(homes)
    stream.plan()
    assert stream.run() == [0, 1, 2]
    assert "given" in stream.start["news"]
    homes[0].rename(tmp_path / "gone")
    stream.crash()
    append(homes[1], [2, 7, 0])
    stream.plan()
    assert stream.run() == [7]
    append(homes[1], [1])
    (tmp_path / "gone").rename(homes[0])
    append(homes[0], [7])
    stream.plan()
    assert stream.run() == []
    assert "given" not in stream.start["news"], "all places have everything"


@pytest.mark.parametrize("seed", range(4))
def test_whatever_dies_each_event_is_given_once(tmp_path: Path, seed: int) -> None:
    """Places and the driver die at any moment and come back; batches are run again. Half of the
    seeds keep so few given events that places fall behind, while those that gave them are up."""
    chance = random.Random(seed)
    few = seed % 2 == 1
    homes = [tmp_path / name for name in "abc"]
    waiting = [chance.sample(range(50), 50) for _ in homes]
    for home, own in zip(homes, waiting, strict=True):
        append(home, [own.pop() for _ in range(3)])
    down: set[int] = set()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rumormill.spark.merging.MAX_GIVEN", 4 if few else 1000)
        stream = Follower(homes, maxOffsetsPerTrigger="9")
        for _ in range(100):
            number = chance.randrange(3)
            if number in down:
                (tmp_path / f"gone-{number}").rename(homes[number])
                down.remove(number)
            elif not few and len(down) < 2 and chance.random() < 0.4:
                homes[number].rename(tmp_path / f"gone-{number}")
                down.add(number)
            for each in {0, 1, 2} - down:
                own = waiting[each]
                append(homes[each], [own.pop() for _ in range(min(len(own), chance.randrange(4)))])
            if chance.random() < 0.3:
                stream.crash()
            if chance.random() < 0.7:
                stream.plan()
            elif stream.end is not None:
                with contextlib.suppress(DataLossError):  # nobody who is up has it
                    stream.run()
        for number in down:
            (tmp_path / f"gone-{number}").rename(homes[number])
        for _ in range(40):
            stream.plan()
            stream.run()
    assert not any(waiting)
    assert stream.seen == Counter(range(50))


def test_an_event_that_may_come_again_is_told_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that lacks more given events than are kept, and the one that gave them is dead."""
    monkeypatch.setattr("rumormill.spark.merging.MAX_GIVEN", 4)
    homes = [tmp_path / name for name in "ab"]
    append(homes[0], list(range(12)))
    append(homes[1], [])
    stream = Follower(homes, maxOffsetsPerTrigger="4")
    for _ in range(3):
        stream.plan()
        stream.run()
    assert stream.start["news"]["behind"] == {"1": {"0": [0, 8]}}
    append(homes[1], [3, 11])
    stream.plan()
    assert stream.run() == [], "asked of the other, and known"
    homes[0].rename(tmp_path / "gone")
    append(homes[1], [5, 20])
    stream.plan()
    assert stream.run() == [5, 20]
    assert "'news': 2 events of the store" in caplog.text
    assert "may come a second time" in caplog.text

    (tmp_path / "gone").rename(homes[0])
    append(homes[1], [0, 1, 2, 4, 6, 7, 8, 9, 10])
    append(homes[0], [20])
    for number in range(40, 46):
        append(homes[0], [number])
        append(homes[1], [number])
        stream.plan()
        stream.run()
    assert "behind" not in stream.start["news"], "it has caught up"


def test_a_checkpoint_of_one_place_goes_on_with_several(tmp_path: Path) -> None:
    """The place of before is the first; what it gave does not come again from the others."""
    homes = [tmp_path / name for name in "ab"]
    append(homes[0], [0, 1, 2])
    append(homes[1], [2, 5, 0])
    reader = StreamReader(options(homes, streaming=True), COLUMNS)
    start = {"news": 3}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert values(rows_of(reader, reader.partitions(start, end))) == [5]
    assert from_json(end) == {("news", 0): 3, ("news", 1): 3}
    assert from_json(as_json({("a", 0): 1, ("a", 1): 2}, 2)) == {("a", 0): 1, ("a", 1): 2}
    assert as_json({("a", 0): 1}, 1) == {"a": 1}


def test_if_no_place_answers_all_are_named(tmp_path: Path) -> None:
    """One sentence."""
    reader = BatchReader(options([tmp_path / "x", tmp_path / "y"]), COLUMNS)
    with pytest.raises(LocalError, match=r"no place can be read: .*/x.*; .*/y"):
        reader.partitions()


def test_options_for_several_places(tmp_path: Path) -> None:
    """One token for all or one for each; offsets for each; writing goes through one."""
    there = {"node": "a:1, b:2", "subscribe": "t"}
    assert [each.token for each in read_options(there | {"token": "x"}, streaming=True).places] == [
        "x", "x",
    ]  # fmt: skip
    found = read_options(there | {"token": "x,y"}, streaming=True).places
    assert [(each.endpoint, each.token) for each in found] == [("a:1", "x"), ("b:2", "y")]
    with pytest.raises(ConfigError, match="give one for all nodes, or 2 in their order"):
        read_options(there | {"token": "x,y,z"}, streaming=True)
    with pytest.raises(ConfigError, match=r'in each place: write them as \{"t": \{"0": 0, "1": 1'):
        read_options(there | {"token": "x", "startingOffsets": '{"t": 7}'}, streaming=True)
    with pytest.raises(ConfigError, match="name one to publish through"):
        write_options({"node": "a:1,b:2", "token": "x", "topic": "t"})


def test_one_dead_node_does_not_stop_a_query(spark: Any, tmp_path: Path) -> None:
    """Two nodes hold a topic; one is killed between queries of a stream and of a table."""
    with LiveNode(tmp_path / "a") as first, LiveNode(tmp_path / "b") as second:
        publish(first.home, "news", [b"one", b"two"])
        publish(second.home, "news", [b"three"])
        place = {
            "node": f"{first.endpoint},{second.endpoint}",
            "token": f"{first.token},{second.token}",
            "subscribe": "news",
        }

        def table() -> list[str]:
            rows = configured(spark.read, **place).load().collect()
            return sorted(row.value.decode() for row in rows)

        assert table() == ["one", "three", "two"]
        stream = configured(spark.readStream, **place, startingOffsets="earliest").load()
        run_to_end(stream, tmp_path)
        first.kill()
        assert table() == ["three"]
        publish(second.home, "news", [b"four"])
        run_to_end(stream, tmp_path)
        first.start()
        publish(first.home, "news", [b"five"])
        run_to_end(stream, tmp_path)
        found = spark.read.parquet(str(tmp_path / "table")).collect()
        assert sorted(row.value.decode() for row in found) == [
            "five", "four", "one", "three", "two",
        ]  # fmt: skip


def test_a_node_is_killed_under_a_running_stream(spark: Any, tmp_path: Path) -> None:
    """Two nodes follow a topic; the stream goes on with the other, and has every event once."""
    with (
        LiveNode(tmp_path / "a", "--topic", "news") as first,
        LiveNode(tmp_path / "b", "--topic", "news", "--join", first.ticket) as second,
    ):
        place = {
            "node": f"{first.endpoint},{second.endpoint}",
            "token": f"{first.token},{second.token}",
            "subscribe": "news",
            "startingOffsets": "earliest",
        }
        writer = configured(spark.readStream, **place).load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start(str(tmp_path / "table"))
        try:
            for number in range(30):
                publish(second.home, "news", [b"%d" % number])
                if number == 10:
                    first.kill()
                if number == 20:
                    first.start()
            query.processAllAvailable()
            assert query.isActive
        finally:
            query.stop()
        assert query.exception() is None
        found = spark.read.parquet(str(tmp_path / "table")).collect()
        assert sorted(int(row.value) for row in found) == list(range(30))
