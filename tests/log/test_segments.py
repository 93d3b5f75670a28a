"""Sealed segments: the same rows as the database's, or they are not used."""

import os
import random
import shutil
import sqlite3
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from processes import Program
from rumormill.core.errors import ConfigError
from rumormill.core.event import Event
from rumormill.daemon.flight_messages import RangeRequest
from rumormill.daemon.flight_service import FlightService
from rumormill.log import (
    DamagedRangeError,
    EventLog,
    OffsetAheadError,
    OffsetGoneError,
    Retention,
    StoreConfig,
    repair,
    segments,
)
from rumormill.log.arrow import COLUMNS, TABLE, event_schema, read_batches
from rumormill.log.schema import get_topic, put_topics
from store_samples import fill, make_event

ROWS = 64
EVENTS = 300
WHOLE = EVENTS // ROWS
SMALL = StoreConfig(segment_rows=ROWS, open_verify_bytes=1)
NONE = StoreConfig(segment_rows=0)
SEALER = Path(__file__).with_name("sealer.py")


def rows_of(
    log: EventLog, start: int = 0, stop: int = EVENTS, columns=COLUMNS, **limits: int
) -> list[dict]:
    """The rows of a range."""
    batches = list(read_batches(log, "news", start, stop, columns, **limits))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, event_schema(columns)).to_pylist()


def files_of(home: Path) -> dict[int, Path]:
    """Segments by the offset they begin at."""
    found = sorted((home / "segments").glob("*/*"))
    return {int(path.name): path for path in found if path.name.isdigit()}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A closed store of 300 events with its four segments."""
    home = tmp_path_factory.mktemp("pristine") / "store"
    with EventLog(home, SMALL) as log:
        fill(log, EVENTS)
        rows_of(log)
        assert log.segments.counters.sealed == WHOLE
    return home


@pytest.fixture(scope="module")
def right(pristine) -> list[dict]:
    """The rows, by a log that knows no segments."""
    with EventLog(pristine, NONE, read_only=True) as log:
        assert log.segments is None
        return rows_of(log)


@pytest.fixture
def reader(store):
    with EventLog(store, SMALL, read_only=True) as log:
        yield log


@pytest.mark.parametrize(
    "limits", [{}, {"batch_rows": 7}, {"batch_bytes": 1}, {"batch_rows": 40, "batch_bytes": 3000}]
)
@pytest.mark.parametrize(("start", "stop"), [(0, EVENTS), (3, 290), (64, 128), (70, 71)])
def test_segments_hold_the_rows_of_the_database(
    reader, right, start: int, stop: int, limits: dict
) -> None:
    """In every column, wherever a range begins and however it is cut."""
    assert rows_of(reader, start, stop, **limits) == right[start:stop]
    counters = reader.segments.counters
    assert counters.used == min(stop - 1, WHOLE * ROWS - 1) // ROWS - start // ROWS + 1
    assert (counters.stale, counters.damaged, counters.sealed) == (0, 0, 0)


def test_batches_keep_their_bounds(reader) -> None:
    """Rows and bytes, as for rows of the database."""
    batches = list(read_batches(reader, "news", 0, EVENTS, batch_rows=20, batch_bytes=3000))
    assert reader.segments.counters.used == WHOLE
    for batch in batches:
        assert batch.num_rows <= 20
        size = sum(map(len, batch.column("value").to_pylist()))
        assert size <= 3000 or batch.num_rows == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"author": b"one", "parents": (), "created": None, "proof": b""},
        {"author": b"one", "parents": (b"p", b"", b"q"), "protocol": "radius"},
        {"data": b"", "created": 1.5},
    ],
)
def test_fields_that_all_rows_share(tmp_path, changes: dict) -> None:
    """Are kept once, and come back in every row; a segment may also have other authors later."""
    with EventLog(tmp_path / "store", SMALL) as log:
        log.append([make_event(n, **changes) for n in range(ROWS)]).result()
        log.append([make_event(n, protocol="pulsarcast") for n in range(ROWS, 96)]).result()
        log.append([make_event(n, **changes) for n in range(96, 128)]).result()
        first = rows_of(log, 0, 128, batch_rows=32)
        assert log.segments.counters.sealed == 2
        assert rows_of(log, 0, 128) == first
        assert log.segments.counters.used == 2


def test_only_whole_ranges_that_a_read_went_through_are_sealed(home) -> None:
    """A read of a part leaves nothing; the rest of a topic waits until it is full."""
    with EventLog(home, SMALL) as log:
        fill(log, 140)
        rows_of(log, 1, 127)
        assert not files_of(home)
        rows_of(log, 1, 128, batch_rows=30)
        assert list(files_of(home)) == [64]
        rows_of(log, 0, 140)
        assert sorted(files_of(home)) == [0, 64]
        fill(log, 60, start=140)
        rows_of(log, 128, 200)
        assert sorted(files_of(home)) == [0, 64, 128]


def test_large_ranges_are_not_sealed(home, monkeypatch) -> None:
    """A segment has a bound in bytes."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4000)
    with EventLog(home, SMALL) as log:
        fill(log, ROWS)
        assert len(rows_of(log, 0, ROWS, batch_rows=8)) == ROWS
        assert not files_of(home)


@pytest.mark.parametrize("why", ["full", "forbidden", "another user"])
def test_where_nothing_can_be_written_the_rows_still_come(
    home, right, monkeypatch, why: str
) -> None:
    """No space to spare, no directory to write to, or a store whose owner could not delete what
    we write: counted."""
    with EventLog(home, SMALL) as log:
        fill(log, EVENTS)
        if why == "full":
            monkeypatch.setattr(segments, "FREE_BYTES", 1 << 60)
        elif why == "another user":
            monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)
        else:
            (home / "segments").write_bytes(b"")
        assert rows_of(log) == right
        assert log.segments.counters.refused == WHOLE
        assert log.segments.counters.sealed == 0


def test_segments_can_be_switched_off(home) -> None:
    """With 0 rows; a negative number is refused."""
    with EventLog(home, NONE) as log:
        fill(log, EVENTS)
        rows_of(log)
    assert not files_of(home)
    with pytest.raises(ConfigError, match="segment_rows"):
        StoreConfig(segment_rows=-1).validate()


# Damage


@pytest.mark.parametrize("seed", range(24))
def test_a_damaged_segment_is_never_served(store, reader, right, seed: int, caplog) -> None:
    """Bytes flipped, cut off, or overwritten: counted and named, the rows come from the database,
    and the segment is made anew."""
    rng = random.Random(seed)
    path = files_of(store)[64]
    content = path.read_bytes()
    change = rng.choice(["flip", "cut", "zeros"])
    place = rng.randrange(len(content))
    damaged = {
        "flip": content[:place] + bytes([content[place] ^ 1 << seed % 8]) + content[place + 1 :],
        "cut": content[:place],
        "zeros": content[:place] + bytes(len(content) - place),
    }[change]
    path.write_bytes(damaged)
    assert rows_of(reader) == right
    counters = reader.segments.counters
    if counters.damaged:
        assert str(path) in caplog.text
        assert (counters.damaged, counters.sealed, counters.used) == (1, 1, WHOLE - 1)
        assert path.read_bytes() == content
    else:
        # The bytes between the head and the first region mean nothing.
        assert change == "flip" or damaged == content
        assert counters.used == WHOLE
    assert rows_of(reader) == right


def test_only_what_is_served_is_looked_at(store, reader, right) -> None:
    """Damage in a field that is not asked for changes nothing, and is found when it is."""
    path = files_of(store)[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 255  # hashes are the last field
    path.write_bytes(content)
    columns = TABLE
    expected = [{name: row[name] for name in columns} for row in right]
    assert rows_of(reader, columns=columns) == expected
    assert reader.segments.counters.used == WHOLE
    assert rows_of(reader) == right
    assert reader.segments.counters.damaged == 1


@pytest.mark.parametrize("other", ["another", "directory"])
def test_a_foreign_file_is_never_served(store, reader, right, other: str) -> None:
    """The segment of another range, or something that is no file."""
    files = files_of(store)
    if other == "another":
        shutil.copy(files[128], files[64])
    else:
        files[64].unlink()
        files[64].mkdir()
    assert rows_of(reader) == right
    assert reader.segments.counters.damaged == 1


def test_segments_of_another_size_are_replaced(store, right) -> None:
    """The setting has changed: nothing is served by the wrong measure."""
    with EventLog(store, StoreConfig(segment_rows=100), read_only=True) as log:
        assert rows_of(log) == right
        assert log.segments.counters.stale == 1
        assert log.segments.counters.sealed == 3
        assert rows_of(log) == right
        assert log.segments.counters.used == 3


# The log behind a segment


def test_a_segment_of_another_history_is_never_served(store, tmp_path) -> None:
    """A store went back to an older copy and went another way: what was sealed meanwhile stays
    unused, and is replaced."""
    home = tmp_path / "old"
    with EventLog(home, SMALL) as log:
        fill(log, 100)
        shutil.copytree(home, tmp_path / "copy")
        fill(log, 100, start=100)
        rows_of(log, 0, 192)
    shutil.copytree(home / "segments", tmp_path / "copy" / "segments")
    with EventLog(tmp_path / "copy", SMALL) as log:
        with pytest.raises(OffsetAheadError):
            rows_of(log, 64, 128)
        fill(log, 100, start=500)
        rows = rows_of(log, 0, 192)
        assert [row["id"] for row in rows[100:]] == [b"id-%d" % n for n in range(500, 592)]
        counters = log.segments.counters
        assert counters.stale >= 2
        assert (counters.used, counters.sealed) == (1, 2)
        assert rows_of(log, 0, 192) == rows
        assert counters.used == 4


def test_a_segment_at_the_head_must_be_the_topics_head(home) -> None:
    """Its last hash is the row's, but the topic's own record says that the history is another."""
    with EventLog(home, SMALL) as log:
        fill(log, ROWS)
        rows_of(log, 0, ROWS)
    with sqlite3.connect(home / "events-1.db") as db:
        topic = get_topic(db, "news")
        assert topic is not None
        topic.head_hash = bytes(16)
        put_topics(db, [topic])
    db.close()
    with EventLog(home, SMALL, read_only=True) as log:
        with pytest.raises(DamagedRangeError, match="offsets 63 to 63"):
            rows_of(log, 0, ROWS)
        assert log.segments.counters.used == 0


def test_damage_of_the_database_behind_a_segment(store, right) -> None:
    """A damaged row is served right from its segment, and the check of the log still names it;
    a range that the log has found damaged is not served at all."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute("UPDATE events SET data = x'00' WHERE key & 1023 = 70")
    db.close()
    with EventLog(store, SMALL, read_only=True) as log:
        assert rows_of(log) == right
        assert [(each.start, each.end) for each in log.verify().findings] == [(70, 71)]
    with EventLog(store, StoreConfig(segment_rows=ROWS), read_only=True) as log:
        assert rows_of(log, 0, 70) == right[:70]
        with pytest.raises(DamagedRangeError, match="offsets 70 to 70"):
            rows_of(log)
        assert rows_of(log, 71, 300) == right[71:]


def test_damage_at_a_segments_end_is_named(store) -> None:
    """The hash that would vouch for the segment is gone: the database decides."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute("UPDATE events SET hash = x'00' WHERE key & 1023 = 127")
    db.close()
    with EventLog(store, SMALL, read_only=True) as log:
        with pytest.raises(DamagedRangeError, match="offsets 127 to 127"):
            rows_of(log)
        assert log.segments.counters.stale == 1


def test_a_repair_keeps_what_it_gave_up_closed(store, right) -> None:
    """Also where a segment still has the rows."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute("UPDATE events SET data = x'00' WHERE key & 1023 = 70")
    db.close()
    repair(store)
    with EventLog(store, SMALL) as log:
        with pytest.raises(DamagedRangeError, match="offsets 70 to 70: repaired"):
            rows_of(log)
        assert rows_of(log, 71, 300) == right[71:]


# Retention


def test_retention_deletes_segments_too(store, right) -> None:
    """Every segment with a deleted event in it goes; the rest is read as before."""
    with EventLog(store, SMALL) as log:
        log.retain({"news": Retention(max_events=200)}, 2000.0)
        assert sorted(files_of(store)) == [128, 192]
        with pytest.raises(OffsetGoneError):
            rows_of(log)
        assert rows_of(log, 100) == right[100:]
        assert sorted(files_of(store)) == [128, 192], "half a range is no segment"


def test_a_segment_that_outlived_its_events_is_not_served(store, right, monkeypatch) -> None:
    """Killed between the deletion and the segments': the next retention makes up for it."""
    with EventLog(store, SMALL) as log:
        with monkeypatch.context() as patch:
            patch.setattr(segments.Segments, "prune", lambda *_: 0)
            log.retain({"news": Retention(max_events=200)}, 2000.0)
        assert sorted(files_of(store)) == [0, 64, 128, 192]
        with pytest.raises(OffsetGoneError):
            rows_of(log, 64)
        assert rows_of(log, 100) == right[100:]
        log.retain({"news": Retention(max_events=200)}, 2000.0)
        assert sorted(files_of(store)) == [128, 192]


def test_retention_goes_on_where_segments_cannot_be_deleted(store, caplog) -> None:
    """And says that they are still there."""
    folder = next((store / "segments").iterdir())
    shutil.rmtree(folder)
    folder.write_bytes(b"")
    with EventLog(store, SMALL) as log:
        assert log.retain({"news": Retention(max_events=200)}, 2000.0) == {"news": 100}
        assert log.topic("news").first_offset == 100
    assert f"deleted events are still in segments of {folder}" in caplog.text


def test_a_reader_that_seals_beside_retention_leaves_nothing(home, monkeypatch) -> None:
    """The events went while their segment was being written."""
    write = segments._write

    def slow_write(*arguments: object) -> None:
        log.retain({"news": Retention(max_events=10)}, 2000.0)
        write(*arguments)

    with EventLog(home, SMALL) as log:
        fill(log, ROWS)
        monkeypatch.setattr(segments, "_write", slow_write)
        assert len(rows_of(log, 0, ROWS)) == ROWS
        assert not files_of(home)
        assert log.segments.counters.refused == 1


# Company and death


def test_the_door_serves_segments(reader, right) -> None:
    """What Flight clients get comes from the same place."""
    batches = list(FlightService(reader).batches(RangeRequest("news", 0, EVENTS, COLUMNS)))
    assert pa.Table.from_batches(batches).to_pylist() == right
    assert reader.segments.counters.used == WHOLE


def test_readers_beside_a_writer_see_the_log(home) -> None:
    """Appending, sealing and reading at the same time, in logs of their own: every read is the log
    from its beginning to the end that it had."""
    total = 40 * ROWS
    wrong: list[str] = []
    done = threading.Event()

    def read_all_the_time() -> None:
        with EventLog(home, SMALL, read_only=True) as log:
            while True:
                last = done.is_set()
                stop = log.topic("news").next_offset
                rows = rows_of(log, 0, stop, ["offset", "value"], batch_rows=50)
                expected = [{"offset": n, "value": b"%d" % n} for n in range(stop)]
                if rows != expected:
                    wrong.append(f"{stop}")
                if last:
                    return

    with EventLog(home, SMALL) as log:
        log.append([Event("news", b"0", b"a", b"0", received=0.0)]).result()
        threads = [threading.Thread(target=read_all_the_time) for _ in range(2)]
        for thread in threads:
            thread.start()
        for first in range(1, total, 37):
            numbers = range(first, min(first + 37, total))
            events = [Event("news", b"%d" % n, b"a", b"%d" % n, received=float(n)) for n in numbers]
            log.append(events).result()
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert sorted(files_of(home)) == list(range(0, total, ROWS))


def test_kill_9_while_sealing(store, right) -> None:
    """A reader is killed again and again while it writes segments: each is whole or not there,
    and drafts that were left go with the next segment of their name once they are old."""
    rng = random.Random(5)
    for _ in range(6):
        shutil.rmtree(store / "segments", ignore_errors=True)
        with Program([sys.executable, SEALER, store, str(EVENTS), str(ROWS)]) as child:
            child.prints(rng.randrange(1, 60))
            child.kill()
        with EventLog(store, SMALL, read_only=True) as log:
            assert rows_of(log) == right
            counters = log.segments.counters
            assert counters.damaged == counters.stale == 0
            assert counters.used + counters.sealed == WHOLE
    folder = next((store / "segments").iterdir())
    for path in files_of(folder.parent.parent).values():
        if path.name.isdigit():
            path.unlink()
    draft, young = folder / ".64.1-1", folder / ".64.2-2"
    draft.write_bytes(b"half")
    os.utime(draft, (0, 0))
    young.write_bytes(b"half")
    with EventLog(store, SMALL, read_only=True) as log:
        assert rows_of(log) == right
    assert not draft.exists()
    assert young.exists(), "its writer may be at work"
