"""Several homes or nodes as one table: each event once, and a dead place stops nothing."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from spark_samples import LiveNode, configured, event, publish, run_to_end

from rumormill.core.errors import ConfigError, LocalError
from rumormill.log import EventLog
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


def test_a_place_that_dies_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    """Not even what a batch had planned to read there when it died."""
    homes = [tmp_path / name for name in "ab"]
    append(homes[0], [0, 1])
    append(homes[1], [1, 0])
    reader = StreamReader(options(homes, streaming=True, startingOffsets="earliest"), COLUMNS)
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    assert start == {"news": {"0": 0, "1": 0}}
    end = reader.latestOffset(start, limit)
    assert values(rows_of(reader, reader.partitions(start, end))) == [0, 1]

    append(homes[0], [2, 3])
    planned = reader.latestOffset(end, limit)
    assert planned == {"news": {"0": 4, "1": 2}}
    homes[0].rename(tmp_path / "gone")
    assert reader.partitions(end, planned) == []
    back = reader.latestOffset(planned, limit)
    assert back == end, "nothing was read there"
    append(homes[1], [3, 4])
    on = reader.latestOffset(back, limit)
    assert on == {"news": {"0": 2, "1": 4}}
    assert values(rows_of(reader, reader.partitions(back, on))) == [3, 4]

    (tmp_path / "gone").rename(homes[0])
    last = reader.latestOffset(on, limit)
    assert values(rows_of(reader, reader.partitions(on, last))) == [2]


def test_a_checkpoint_of_one_place_goes_on_with_several(tmp_path: Path) -> None:
    """The place of before is the first; what it gave does not come again from the others."""
    homes = [tmp_path / name for name in "ab"]
    append(homes[0], [0, 1, 2])
    append(homes[1], [2, 5, 0])
    reader = StreamReader(options(homes, streaming=True), COLUMNS)
    start = {"news": 3}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert values(rows_of(reader, reader.partitions(start, end))) == [5]
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
