"""Ranges as Arrow batches: the same events as the reader's, proven in bulk, or an error."""

import datetime
import random
import sqlite3

import pyarrow as pa
import pytest

from rumormill.core.errors import ConfigError
from rumormill.log import (
    DamagedRangeError,
    Durability,
    EventLog,
    OffsetAheadError,
    OffsetGoneError,
    Retention,
    StoreConfig,
    StoreError,
    repair,
)
from rumormill.log.arrow import COLUMNS, event_schema, read_batches
from rumormill.wire import base58
from rumormill.wire.topic_cipher import TopicKeys
from store_samples import fill, make_event

EVENTS = 300


def rows_of(log: EventLog, start: int, stop: int, **limits: int) -> list[dict]:
    """The rows of a range, in all columns."""
    batches = list(read_batches(log, "news", start, stop, COLUMNS, **limits))
    assert all(batch.schema == event_schema(COLUMNS) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, event_schema(COLUMNS)).to_pylist()


def utc(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC)


@pytest.mark.parametrize(
    "limits", [{}, {"batch_rows": 7}, {"batch_bytes": 1}, {"batch_rows": 64, "batch_bytes": 9000}]
)
def test_batches_hold_exactly_the_events_of_the_range(log: EventLog, limits: dict) -> None:
    """Every column of every row is what `read` gives, however the range is cut."""
    fill(log, EVENTS)
    events = [event for chunk in log.chunks("news", 3, 290) for event in chunk]
    hashes = [row[11] for start in range(3, 290, 100) for row in log.rows("news", start, 100)]
    rows = rows_of(log, 3, 290, **limits)
    assert len(rows) == len(events) == 287
    for row, event, digest in zip(rows, events, hashes, strict=False):
        assert row == {
            "key": None,
            "value": event.data,
            "topic": "news",
            "partition": 0,
            "offset": event.offset,
            "timestamp": utc(event.received),
            "timestampType": 1,
            "headers": None,
            "id": event.id,
            "author": event.author,
            "publisher": base58.encode(event.author),
            "created": utc(event.created),
            "parents": list(event.parents),
            "metadata": [
                {"key": "protocol", "value": event.protocol.encode()},
                {"key": "chain", "value": digest},
            ],
            "proof": event.proof,
            "payload": None,
        }


def test_protocols_may_differ_and_clocks_may_be_wild(log: EventLog) -> None:
    """What is not the same in all rows is still right; a clock outside the calendar is null."""
    created = [None, 0.0, 1e300, -1e300, 1.7e9, 5e14]
    log.append(
        [
            make_event(n, protocol=("gossipsub", "radius")[n % 2], created=time, author=b"a" * 99)
            for n, time in enumerate(created)
        ]
    ).result()
    rows = rows_of(log, 0, 6)
    assert [row["created"] for row in rows] == [None, utc(0), None, None, utc(1.7e9), None]
    assert [row["metadata"][0]["value"] for row in rows] == [b"gossipsub", b"radius"] * 3
    assert rows[0]["publisher"] == (b"a" * 99).hex(), "too long for a peer id"


def test_a_log_in_memory_can_be_read(tmp_path) -> None:
    """The writer's own connection serves too."""
    with EventLog(None, StoreConfig(durability=Durability.MEMORY)) as log:
        fill(log, 10)
        assert [row["offset"] for row in rows_of(log, 0, 10)] == list(range(10))


def test_an_unknown_column_is_refused(log: EventLog) -> None:
    """With the names there are."""
    with pytest.raises(ConfigError, match="no column 'data': choose of key, value"):
        event_schema(["topic", "data"])


def test_a_range_never_ends_early(log: EventLog) -> None:
    """What is not there yet, and what retention has deleted, is an error."""
    fill(log, 100)
    with pytest.raises(OffsetAheadError, match="'news'"):
        rows_of(log, 90, 101)
    with pytest.raises(OffsetAheadError, match="'nobody'"):
        list(read_batches(log, "nobody", 0, 1))
    log.retain({"news": Retention(max_events=40)}, 2000.0)
    with pytest.raises(OffsetGoneError, match="the oldest kept offset is 60"):
        rows_of(log, 0, 100)
    assert [row["offset"] for row in rows_of(log, 60, 100)] == list(range(60, 100))


def test_retention_in_the_middle_of_a_read_is_an_error(log: EventLog) -> None:
    """Nothing is skipped in silence."""
    fill(log, 100)
    batches = read_batches(log, "news", 0, 100, batch_rows=10)
    next(batches)
    log.retain({"news": Retention(max_events=40)}, 2000.0)
    with pytest.raises(OffsetGoneError):
        list(batches)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A closed store with 300 events."""
    home = tmp_path_factory.mktemp("pristine") / "store"
    with EventLog(home) as log:
        fill(log, EVENTS)
    return home


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET data = x'00' WHERE key & 1023 = 123",
        "UPDATE events SET data = 'text' WHERE key & 1023 = 123",
        "UPDATE events SET created = created + 1e-6 WHERE key & 1023 = 123",
        "UPDATE events SET received = 'late' WHERE key & 1023 = 123",
        "UPDATE events SET author = 7 WHERE key & 1023 = 123",
        "UPDATE events SET protocol = 'forgery' WHERE key & 1023 > 120",
        "UPDATE events SET proof = x'' WHERE key & 1023 = 123",
        "UPDATE events SET parents = x'01000000ff' WHERE key & 1023 = 123",
        "DELETE FROM events WHERE key & 1023 = 123",
    ],
)
def test_a_changed_row_is_never_served(store, change: str) -> None:
    """The rows before it come, then an error that names its offset."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute(change)
    db.close()
    with EventLog(store, StoreConfig(open_verify_bytes=1), read_only=True) as log:
        served: list[int] = []
        batches = read_batches(log, "news", 0, EVENTS, batch_rows=50)
        with pytest.raises(DamagedRangeError) as caught:
            served.extend(n for batch in batches for n in batch.column("offset").to_pylist())
        first = caught.value.start
        assert served == list(range(first))
        assert first == (121 if "forgery" in change else 123)
        assert caught.value.end == first + 1


def test_a_field_that_need_not_be_read_may_be_damaged(pristine, store) -> None:
    """All rows but one have the same protocol: the chain proves what is served, not the file."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute("UPDATE events SET protocol = 'forgery' WHERE key & 1023 = 123")
    db.close()
    with EventLog(pristine, read_only=True) as log:
        right = rows_of(log, 0, EVENTS)
    with EventLog(store, StoreConfig(open_verify_bytes=1), read_only=True) as log:
        assert rows_of(log, 0, EVENTS) == right


def test_a_whole_row_of_another_history_is_never_served(store) -> None:
    """Two rows swapped: each is whole, their place is wrong."""
    with sqlite3.connect(store / "events-1.db") as db:
        (base,) = db.execute("SELECT min(key) FROM events").fetchone()
        for old, new in ((base + 10, -1), (base + 11, base + 10), (-1, base + 11)):
            db.execute("UPDATE events SET key = ? WHERE key = ?", (new, old))
    db.close()
    with (
        EventLog(store, StoreConfig(open_verify_bytes=1), read_only=True) as log,
        pytest.raises(DamagedRangeError, match="offsets 10 to 10"),
    ):
        rows_of(log, 0, EVENTS)


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_are_never_served(pristine, store, seed: int) -> None:
    """Random bytes of the file changed: every row is right or refused."""
    rng = random.Random(seed)
    path = store / "events-1.db"
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 4, 40])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    with EventLog(pristine, read_only=True) as log:
        right = rows_of(log, 0, EVENTS)
    try:
        with EventLog(store, StoreConfig(open_verify_bytes=1), read_only=True) as log:
            for start in range(0, EVENTS, 50):
                try:
                    rows = rows_of(log, start, start + 50)
                except StoreError:
                    continue
                assert rows == right[start : start + 50]
    except StoreError:
        pass  # it cannot even be opened


def test_a_recorded_loss_is_named(store) -> None:
    """After a repair the range stays empty, and reading it says so."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute("UPDATE events SET data = x'00' WHERE key & 1023 BETWEEN 100 AND 104")
    db.close()
    repair(store)
    with EventLog(store) as log:
        with pytest.raises(DamagedRangeError, match="offsets 100 to 104: repaired"):
            rows_of(log, 0, EVENTS)
        assert len(rows_of(log, 0, 100)) == 100
        assert len(rows_of(log, 105, EVENTS)) == EVENTS - 105


def test_ciphertext_is_not_handed_out_as_data(log: EventLog) -> None:
    """The value of an encrypted event is empty and its metadata names the key; the ciphertext,
    which a proof is over, is what travelled."""
    keys = TopicKeys([bytes(32)])
    hidden = keys.encrypt(b"secret", "news", b"ann", bytes(24))
    for number, data in enumerate((b"clear", hidden, b"", hidden)):
        log.append([make_event(number, data=data)]).result()
    (batch,) = read_batches(log, "news", 0, 4, ("value", "metadata"))
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert [row["value"] for row in rows] == [b"clear", b"", b"", b""]
    named = [
        [each["value"] for each in row["metadata"] if each["key"] == "encrypted"] for row in rows
    ]
    assert named == [[], [keys.ids[0].encode()], [], [keys.ids[0].encode()]]
    assert [len(row["metadata"]) for row in rows] == [2, 3, 2, 3]
    (whole,) = read_batches(log, "news", 0, 4, ("value", "payload"))
    assert whole.column("value").to_pylist() == [b"clear", b"", b"", b""]
    assert whole.column("payload").to_pylist() == [None, hidden, None, hidden]
