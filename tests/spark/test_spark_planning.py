"""Which offsets are read, in which pieces: the same answer for the same question, always."""

import datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark_filters

from rumormill.core.errors import LocalError
from rumormill.log.arrow import event_schema
from rumormill.log.model import Range, TopicExtent
from rumormill.spark.access import (
    Condition,
    DataLossError,
    HomeAccess,
    apply,
    condition_of,
    narrowed,
    read_piece,
    wants_topic,
)
from rumormill.spark.options import MAX_RECORDS_PER_PARTITION, ReadOptions, read_options
from rumormill.spark.planning import (
    SEGMENT_ROWS,
    latest,
    limited,
    pieces,
    resolve_end,
    resolve_start,
    subscribed,
)


def options(*, streaming: bool = False, **given: str) -> ReadOptions:
    base = {} if "subscribePattern" in given else {"subscribe": "news"}
    return read_options({"home": "/h", **base, **given}, streaming=streaming)


def nothing_since(topic: str, time: float) -> int | None:
    return None


EXTENT = TopicExtent("t", 10, 50)


@pytest.mark.parametrize(
    ("given", "start"),
    [({}, 10), ({"startingOffsets": '{"news": 30}'}, 30), ({"startingOffsets": '{"news": -2}'}, 10),
     ({"startingOffsets": '{"news": 50}'}, 50)],
)  # fmt: skip
def test_starts(given: dict[str, str], start: int) -> None:
    """Earliest is what is kept; a number is itself."""
    assert resolve_start(options(**given), "news", EXTENT, nothing_since) == start


def test_a_start_that_retention_has_deleted_is_named() -> None:
    """Or, without failOnDataLoss, moved to what is left."""
    with pytest.raises(DataLossError, match=r"'news': offsets 3 to 9 are gone.*failOnDataLoss"):
        resolve_start(options(startingOffsets='{"news": 3}'), "news", EXTENT, nothing_since)
    mild = options(startingOffsets='{"news": 3}', failOnDataLoss="false")
    assert resolve_start(mild, "news", EXTENT, nothing_since) == 10


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_beyond_the_end_are_named(option: str) -> None:
    """With the topic and where it ends."""
    resolve = resolve_start if option.startswith("start") else resolve_end
    with pytest.raises(LocalError, match=f"{option}: offset 51 of topic 'news' is beyond its end"):
        resolve(options(**{option: '{"news": 51}'}), "news", EXTENT, nothing_since)
    mild = options(**{option: '{"news": 51}', "failOnDataLoss": "false"})
    assert resolve(mild, "news", EXTENT, nothing_since) == 50


def test_times_become_offsets() -> None:
    """The first event at the time or later begins; the end is before it."""

    def since(topic: str, time: float) -> int | None:
        return 20 if time == 1.5 else None

    assert resolve_start(options(startingTimestamp="1500"), "news", EXTENT, since) == 20
    assert resolve_end(options(endingTimestamp="1500"), "news", EXTENT, since) == 20
    assert resolve_end(options(endingTimestamp="9000"), "news", EXTENT, since) == 50
    with pytest.raises(LocalError, match="no event received at 9000 ms or later"):
        resolve_start(options(startingTimestamp="9000"), "news", EXTENT, since)
    mild = options(startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest")
    assert resolve_start(mild, "news", EXTENT, since) == 50


def test_a_missing_topic_is_named() -> None:
    """With what there is instead."""
    with pytest.raises(LocalError, match="no topic 'news' in the store; it has 'chat'"):
        subscribed(options(), {"chat": EXTENT}, "the store")
    with pytest.raises(LocalError, match=r"no topic in the store matches 'x\.\*'"):
        subscribed(options(subscribePattern="x.*"), {"chat": EXTENT}, "the store")
    assert subscribed(options(subscribePattern=".*"), {"b": EXTENT, "a": EXTENT}, "") == ["a", "b"]


def test_a_stream_discovers_topics_and_notices_losses() -> None:
    """A new topic begins at 0; one that has shrunk is lost data."""
    follow = options(streaming=True, subscribePattern=".*")
    ends = latest(follow, {"b": 5}, {"b": TopicExtent("b", 0, 9), "a": TopicExtent("a", 0, 2)})
    assert list(ends.items()) == [("a", 2), ("b", 9)]
    with pytest.raises(DataLossError, match="'b' ends at offset 3, but was read up to 5"):
        latest(follow, {"b": 5}, {"b": TopicExtent("b", 0, 3)})
    mild = options(streaming=True, subscribePattern=".*", failOnDataLoss="false")
    assert latest(mild, {"b": 5}, {}) == {"b": 5}


topics = st.dictionaries(st.text("abcd", min_size=1, max_size=2), st.integers(0, 1000), max_size=5)


@given(topics, topics, st.integers(1, 500))
def test_a_limit_is_kept_and_shared(begun: dict[str, int], more: dict[str, int], most: int) -> None:
    """Never more than the limit, never less than there is up to it, by how much each topic has."""
    end = {name: begun.get(name, 0) + count for name, count in sorted(more.items())}
    found = limited(begun, end, most)
    taken = {name: stop - begun.get(name, 0) for name, stop in found.items()}
    total = sum(more.values())
    assert list(found) == list(end)
    assert sum(taken.values()) == min(most, total)
    for name, count in more.items():
        assert 0 <= taken[name] <= count
        if total > most:
            assert abs(taken[name] - most * count / total) <= 1


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 300)), max_size=5),
    st.integers(1, 12),
    st.integers(1, 100),
)
def test_pieces_are_the_ranges(spans: list[tuple[int, int]], least: int, longest: int) -> None:
    """Nothing twice, nothing left out, in order, none too long, enough of them."""
    ranges = [Range(f"t{n}", start, start + size) for n, (start, size) in enumerate(spans)]
    cut = pieces(ranges, least, longest)
    whole = [(each.topic, n) for each in ranges for n in range(each.start, each.stop)]
    assert [(each.topic, n) for each in cut for n in range(each.start, each.stop)] == whole
    assert all(0 < each.stop - each.start <= longest for each in cut)
    assert len(cut) >= min(least, len(whole))
    assert pieces(ranges, least, longest) == cut


@given(
    st.integers(0, 5_000_000), st.integers(1, 5_000_000), st.integers(1, 40),
    st.integers(1000, 400_000),
)  # fmt: skip
def test_large_pieces_end_where_segments_do(
    start: int, size: int, least: int, longest: int
) -> None:
    """A segment that two tasks share would be read by both and made by none."""
    cut = pieces([Range("t", start, start + size)], least, longest)
    assert [cut[0].start, *(each.stop for each in cut)] == [
        *(each.start for each in cut), start + size
    ]  # fmt: skip
    assert cut[0].start == start
    assert all(0 < each.stop - each.start <= longest for each in cut)
    assert len(cut) >= min(least, size)
    if least == 1 and longest >= 4 * SEGMENT_ROWS:
        assert all(each.stop % SEGMENT_ROWS == 0 for each in cut[:-1])
        assert len(cut) <= -(-size // (longest // SEGMENT_ROWS * SEGMENT_ROWS)) + 1
    assert pieces([Range("t", start, start + size)], least, longest) == cut


def test_a_million_events_are_eight_tasks() -> None:
    """Of eight segments each, by the default limit."""
    cut = pieces([Range("t", 0, 1_000_000)], 1, MAX_RECORDS_PER_PARTITION)
    assert [each.stop - each.start for each in cut] == [131_072] * 7 + [82_496]


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_parts_that_end_where_segments_do_are_about_equal(parts: int) -> None:
    """So that cores end together: no part differs from its share by more than a segment."""
    cut = pieces([Range("t", 0, 300_000)], parts, MAX_RECORDS_PER_PARTITION * 10)
    assert len(cut) == parts
    assert all(each.stop % SEGMENT_ROWS == 0 for each in cut[:-1])
    share = 300_000 / parts
    assert all(abs(each.stop - each.start - share) <= SEGMENT_ROWS for each in cut)


TIME = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("pushed", "condition"),
    [
        (spark_filters.EqualTo(("topic",), "a"), Condition("topic", "equal", "a")),
        (spark_filters.In(("topic",), ("a", "b")), Condition("topic", "in", ("a", "b"))),
        (spark_filters.StringStartsWith(("topic",), "a"), Condition("topic", "starts_with", "a")),
        (spark_filters.GreaterThan(("offset",), 5), Condition("offset", "greater", 5)),
        (spark_filters.LessThanOrEqual(("timestamp",), TIME),
         Condition("timestamp", "less_equal", TIME)),
        (spark_filters.IsNotNull(("offset",)), Condition("offset", "any", None)),
        (spark_filters.IsNotNull(("created",)), None),
        (spark_filters.EqualTo(("value",), b"a"), None),
        (spark_filters.EqualTo(("offset", "x"), 1), None),
        (spark_filters.EqualTo(("offset",), "5"), None),
        (spark_filters.Not(spark_filters.EqualTo(("topic",), "a")), None),
        (spark_filters.In(("offset",), (1, None)), None),
    ],
)  # fmt: skip
def test_filters_that_are_taken_over(pushed: object, condition: Condition | None) -> None:
    """On topic, offset and time; everything else is left to Spark."""
    assert condition_of(pushed) == condition


@pytest.mark.parametrize(
    ("comparison", "value", "expected"),
    [("equal", 20, (20, 21)), ("greater", 20, (21, 50)), ("greater_equal", 20, (20, 50)),
     ("less", 20, (10, 20)), ("less_equal", 20, (10, 21)), ("in", (15, 30), (15, 31)),
     ("greater", 60, (61, 61)), ("less", 5, (10, 10)), ("any", None, (10, 50))],
)  # fmt: skip
def test_offset_filters_narrow_the_range(
    comparison: str, value: object, expected: tuple[int, int]
) -> None:
    """Rows that cannot match are not even read."""
    found = narrowed(Range("t", 10, 50), [Condition("offset", comparison, value)], nothing_since)
    assert (found.start, found.stop) == expected


def test_time_filters_move_the_start() -> None:
    """By the store's time marks; the end stays, since a clock may have been set back."""
    asked = []

    def since(topic: str, time: float) -> int | None:
        asked.append(time)
        return 30

    for comparison, start in (("greater", 30), ("equal", 30), ("less", 10)):
        condition = Condition("timestamp", comparison, TIME)
        assert narrowed(Range("t", 10, 50), [condition], since) == Range("t", start, 50)
    assert all(time < TIME.timestamp() for time in asked), "a rounded time must not be missed"
    condition = Condition("timestamp", "greater", TIME)
    assert narrowed(Range("t", 10, 50), [condition], nothing_since) == Range("t", 50, 50)


@pytest.mark.parametrize(
    ("comparison", "value", "wanted"),
    [("equal", "b", "b"), ("in", ("a", "c"), "ac"), ("starts_with", "b", "b"), ("less", "b", "a"),
     ("less_equal", "b", "ab"), ("greater", "b", "c"), ("greater_equal", "b", "bc"),
     ("any", None, "abc")],
)  # fmt: skip
def test_topic_filters_choose_topics(comparison: str, value: object, wanted: str) -> None:
    """Topics that cannot match are not read."""
    condition = Condition("topic", comparison, value)
    assert "".join(name for name in "abc" if wants_topic([condition], name)) == wanted


def test_filters_are_applied_exactly() -> None:
    """To the rows themselves, nulls left out."""
    import pyarrow as pa

    rows = [
        {"offset": n, "created": None if n % 2 else TIME + datetime.timedelta(seconds=n)}
        for n in range(10)
    ]
    batch = pa.RecordBatch.from_pylist(rows, event_schema(["offset", "created"]))
    conditions = [
        Condition("offset", "in", (1, 2, 4, 8)),
        Condition("created", "less", TIME + datetime.timedelta(seconds=8)),
        Condition("topic", "equal", "decided before"),
    ]
    assert apply(batch, conditions).column("offset").to_pylist() == [2, 4]


def test_a_read_that_ends_early_is_lost_data() -> None:
    """Whatever gave too few rows: the missing range is named."""
    import contextlib

    import pyarrow as pa

    batch = pa.RecordBatch.from_pylist([{"offset": 0}], event_schema(["offset"]))
    access = SimpleNamespace(
        where="the test", batches=lambda *_: contextlib.nullcontext(iter([batch]))
    )
    read = read_piece(access, Range("news", 0, 3), ["offset"])
    assert next(read).num_rows == 1
    with pytest.raises(DataLossError, match="offsets 1 to 2 cannot be read: the read ended early"):
        next(read)
    assert HomeAccess("/h").where == "the store /h"
