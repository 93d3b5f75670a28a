"""Storage faults: whatever happens to the files, damage is reported and never served.

The oracle knows what was appended. After a fault it accepts exactly two behaviours for each offset:
the original event, or an error or finding that names it.
"""

import contextlib
import os
import random
import shutil
import sqlite3

import msgspec
import pytest

from rumormill.log import (
    CorruptLogError,
    DamagedRangeError,
    EventLog,
    FindingKind,
    Retention,
    StoreConfig,
    StoreError,
    repair,
)
from rumormill.log.heads import read_heads
from store_samples import fill, make_event, read_all

EVENTS = 300
SMALL_CHECKPOINTS = StoreConfig(checkpoint_pages=60)


def expected(number, topic="news"):
    return msgspec.structs.replace(make_event(number, topic), offset=number)


def serve_everything(log, topic="news", count=EVENTS):
    """Read offset by offset; return the offsets that were refused. A wrong event fails the test."""
    refused = []
    for offset in range(count):
        try:
            events = log.read(topic, offset, 1)
        except StoreError:
            refused.append(offset)
            continue
        if not events:
            refused.append(offset)
        else:
            assert events == [expected(offset, topic)]
    return refused


def damaged_offsets(findings, topic="news"):
    return [n for f in findings if f.topic == topic for n in range(f.start, f.end)]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A closed store with 300 events in each of two topics."""
    home = tmp_path_factory.mktemp("pristine") / "store"
    with EventLog(home) as log:
        fill(log, EVENTS)
        fill(log, EVENTS, "more")
        with log.histories():
            pass  # they are indexed now
    return home


def check_after_fault(home, *, must_find=True):
    """Opening for writing refuses; reading serves nothing wrong; repair makes it writable."""
    try:
        with EventLog(home) as log:
            assert not must_find
            assert serve_everything(log) == []
            return ()
    except CorruptLogError as error:
        findings = error.findings
    assert findings
    try:
        with EventLog(home, read_only=True) as log:
            refused = serve_everything(log)
            assert set(damaged_offsets(log.findings)) <= set(range(EVENTS))
    except CorruptLogError:
        refused = None  # nothing can be read at all, and nothing was served
    report = repair(home)
    with EventLog(home) as log:
        still = serve_everything(log)
        assert refused is None or set(still) <= set(refused)
        if log.topic("news") is not None:
            assert set(still) <= set(damaged_offsets(report.findings))
        after = log.append([make_event(5000)]).result()[0].offset
        assert after >= (log.topic("news").next_offset - 1 if log.topic("news") else 0)
        assert log.verify().ok
    return findings


@pytest.mark.parametrize("seed", range(25))
def test_flipped_bytes_are_found_and_never_served(store, seed):
    """Random bytes of the database changed: every event is right or refused."""
    rng = random.Random(seed)
    path = store / "events-1.db"
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 4, 40])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    # A flip in unused space changes nothing, so finding none is right if all events are right.
    check_after_fault(store, must_find=False)


def test_a_flip_in_an_events_content_is_reported_with_its_offset(store):
    """The finding names topic and offset; the neighbours are served."""
    path = store / "events-1.db"
    content = path.read_bytes()
    place = content.index(b"payload 123 ")
    path.write_bytes(content[:place] + b"PAYLOAD" + content[place + 7 :])
    findings = check_after_fault(store)
    damage = [f for f in findings if f.kind is FindingKind.DAMAGED]
    assert [(f.start, f.end) for f in damage] == [(123, 124)]
    assert damage[0].topic in {"news", "more"}


@pytest.mark.parametrize("seed", range(1020, 1035))
def test_damaged_page_headers_cost_no_more_than_reads_refuse(store, seed):
    """Flips in the first bytes of pages, where cell pointers are; a repair keeps all that reads."""
    rng = random.Random(seed)
    path = store / "events-1.db"
    content = bytearray(path.read_bytes())
    for _ in range(5):
        page = rng.randrange(len(content) // 8192) * 8192
        content[page + rng.randrange(120)] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    check_after_fault(store, must_find=False)


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_database_is_found(store, keep):
    """Cut anywhere, the file is never taken for a shorter log."""
    path = store / "events-1.db"
    os.truncate(path, int(path.stat().st_size * keep))
    assert check_after_fault(store)


def test_a_deleted_database_is_found(store):
    """The heads file remembers every topic and its range."""
    (store / "events-1.db").unlink()
    findings = check_after_fault(store)
    assert {(f.topic, f.start, f.end) for f in findings} == {
        ("news", 0, EVENTS),
        ("more", 0, EVENTS),
    }


@pytest.mark.parametrize("offset", [0, 1, 150, EVENTS - 1])
def test_a_deleted_row_is_found(store, offset):
    """A row taken out by SQL, with SQLite's own structures intact."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute("DELETE FROM events WHERE key = ?", ((1 << 40) + offset,))
    db.close()
    findings = check_after_fault(store)
    assert [(f.kind, f.topic, f.start, f.end) for f in findings] == [
        (FindingKind.MISSING, "news", offset, offset + 1)
    ]


def test_a_row_changed_by_sql_is_found(store):
    """A change that SQLite cannot know of."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute("UPDATE events SET received = received + 1 WHERE key = ?", ((1 << 40) + 7,))
    db.close()
    assert damaged_offsets(check_after_fault(store)) == [7]


def test_swapped_rows_are_found(store):
    """Two rows that change places are both refused."""
    with sqlite3.connect(store / "events-1.db") as db:
        for old, new in ((7, 9999), (8, 7), (9999, 8)):
            keys = ((1 << 40) + new, (1 << 40) + old)
            db.execute("UPDATE events SET key = ? WHERE key = ?", keys)
    db.close()
    assert damaged_offsets(check_after_fault(store)) == [7, 8]


def test_a_changed_topic_record_is_found(store):
    """A topic's record that claims a shorter history is not believed."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute("UPDATE topics SET next_offset = 100 WHERE name = 'news'")
    db.close()
    with pytest.raises(CorruptLogError, match="own record is damaged"):
        EventLog(store)
    check_after_fault(store)


@pytest.mark.parametrize(
    "statement",
    ["PRAGMA application_id = 1", "UPDATE store SET schema_version = 3", "DELETE FROM store"],
)
def test_a_changed_record_of_the_store_itself_costs_no_event(store, statement):
    """Such a store is refused, and a repair brings every event back."""
    with sqlite3.connect(store / "events-1.db") as db:
        db.execute(statement)
    db.close()
    check_after_fault(store)
    with EventLog(store) as log:
        assert serve_everything(log) == []
        assert serve_everything(log, "more") == []


@pytest.mark.parametrize(
    "table",
    ["topics", "losses", "marks", "histories", "history_keys", "history_sums", "refusals"],
)
def test_a_destroyed_page_of_records_costs_no_event(store, table):
    """What cannot be served without its records is reported as unreadable, and not as missing."""
    path = store / "events-1.db"
    with sqlite3.connect(path) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = db.execute(query, (table,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(content)
    with pytest.raises(CorruptLogError) as caught:
        EventLog(store)
    kinds = {finding.kind for finding in caught.value.findings}
    assert kinds <= {FindingKind.UNREADABLE, FindingKind.INDEX}
    assert [finding for finding in repair(store).findings if finding.topic is not None] == []
    with EventLog(store) as log:
        assert serve_everything(log) == []
        assert serve_everything(log, "more") == []


def test_a_schema_that_cannot_even_be_quoted_is_found(store):
    """SQLite's message about it is not valid text; it is a damage report all the same."""
    path = store / "events-1.db"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"CREATE TABLE events", b"\xc7REATE TABLE ev\xffnts", 1))
    check_after_fault(store)


def copy_files(home, target, names):
    target.mkdir()
    for name in names:
        if (home / name).exists():
            shutil.copy2(home / name, target / name)


def restore_files(source, home, names):
    for name in names:
        (home / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copy2(source / name, home / name)


DB = "events-1.db"
WAL = "events-1.db-wal"
SHM = "events-1.db-shm"


def crashed_store(tmp_path, old_events, *, config):
    """Copies of a store's files while open at `old_events`, and as left by a crash at EVENTS."""
    home = tmp_path / "live"
    with EventLog(home, config) as log:
        fill(log, old_events)
        log.writer().run(int).result()  # the writer is at rest once it has done another job
        copy_files(home, tmp_path / "old", (DB, WAL, "heads"))
        fill(log, EVENTS - old_events, start=old_events)
        log.writer().run(int).result()
        copy_files(home, tmp_path / "now", (DB, WAL, "heads"))
    return tmp_path / "old", tmp_path / "now"


def test_a_crash_leaves_nothing_to_report(tmp_path):
    """The files as a killed process leaves them are a good store."""
    _, now = crashed_store(tmp_path, 100, config=SMALL_CHECKPOINTS)
    with EventLog(now) as log:
        assert serve_everything(log) == []


def reads_alone(path):
    """Whether SQLite can read a database file without its write-ahead log."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as db:
            db.execute("SELECT * FROM store").fetchall()
    except sqlite3.Error:
        return False
    return True


def test_a_kill_in_the_middle_of_a_checkpoint_leaves_nothing_to_report(tmp_path):
    """Pages are folded one by one. After some of them the file by itself is older at its end than
    its first page says, and not always one that SQLite can read: with the write-ahead log, it is
    a good store."""
    with EventLog(tmp_path / "live") as log:
        fill(log, 100)
    with EventLog(tmp_path / "live") as log:
        fill(log, EVENTS - 100, start=100)
        copy_files(tmp_path / "live", tmp_path / "now", (DB, WAL, "heads"))
    now = tmp_path / "now"
    assert read_heads(now / "heads").stamp > 0
    before = (now / DB).read_bytes()
    shutil.copytree(now, tmp_path / "folded")
    with contextlib.closing(sqlite3.connect(tmp_path / "folded" / DB)) as db:
        db.execute("PRAGMA wal_checkpoint(FULL)")
        (page,) = db.execute("PRAGMA page_size").fetchone()
        after = (tmp_path / "folded" / DB).read_bytes()
    assert len(after) > len(before)
    unreadable = 0
    for folded in range(0, len(after) + 1, page):
        home = tmp_path / f"killed-{folded}"
        shutil.copytree(now, home)
        (home / DB).write_bytes(after[:folded] + before[folded:])
        unreadable += not reads_alone(home / DB)
        with EventLog(home) as log:
            assert serve_everything(log) == []
            assert log.verify().findings == ()
    assert unreadable


def test_an_older_file_that_cannot_be_read_alone_is_found_by_its_header(tmp_path):
    """Torn as by a kill in a checkpoint, but before an earlier one than the heads file knows."""
    old, now = crashed_store(tmp_path, 100, config=SMALL_CHECKPOINTS)
    content = bytearray((old / DB).read_bytes())
    content[28:32] = (2**20).to_bytes(4)  # the size in pages: more than there are
    (now / DB).write_bytes(content)
    assert not reads_alone(now / DB)
    with pytest.raises(CorruptLogError) as caught:
        EventLog(now)
    assert any(f.kind is FindingKind.OLD_COPY for f in caught.value.findings)


@pytest.mark.parametrize("old_events", [1, 100, 299])
@pytest.mark.parametrize("names", [(DB, WAL), (DB,), (WAL,)], ids=["db+wal", "db-only", "wal-only"])
@pytest.mark.parametrize("pages", [10, 60, 10_000])
def test_a_restored_older_copy_is_found(tmp_path, names, old_events, pages):
    """Everything but the heads file from an earlier moment: found, with the range, not served."""
    old, now = crashed_store(tmp_path, old_events, config=StoreConfig(checkpoint_pages=pages))
    same = all((old / name).read_bytes() == (now / name).read_bytes() for name in names)
    restore_files(old, now, names)
    findings = check_after_fault(now, must_find=not same)
    if names == (DB, WAL):
        assert (findings[0].topic, findings[0].start, findings[0].end) == (
            "news",
            old_events,
            EVENTS,
        )
        assert findings[0].kind is FindingKind.LOST_TAIL


def test_an_older_database_file_under_a_newer_write_ahead_log_is_found_in_a_large_log(tmp_path):
    """The tail looks right, rows in the middle are gone; the file's stamp tells on open."""
    config = StoreConfig(checkpoint_pages=60, open_verify_bytes=1)
    old, now = crashed_store(tmp_path, 100, config=config)
    restore_files(old, now, (DB,))
    files = {name: (now / name).read_bytes() for name in (DB, WAL, "heads")}
    for _ in range(2):
        with pytest.raises(CorruptLogError) as caught:
            EventLog(now, config)
        assert any(f.kind is FindingKind.OLD_COPY for f in caught.value.findings)
        assert {name: (now / name).read_bytes() for name in files} == files
    check_after_fault(now)


@pytest.mark.parametrize("name", [WAL, DB])
def test_a_lost_file_of_a_crashed_store_is_found(tmp_path, name):
    """Without its write-ahead log, or without its database, the store is not believed."""
    _, now = crashed_store(tmp_path, 100, config=StoreConfig())
    (now / name).unlink()
    findings = check_after_fault(now)
    assert damaged_offsets(findings)[-1] == EVENTS - 1


@pytest.mark.parametrize("seed", range(15))
def test_flips_and_cuts_in_the_write_ahead_log_are_found(tmp_path, seed):
    """SQLite drops everything behind a bad frame in silence; the heads file does not."""
    rng = random.Random(seed)
    _, now = crashed_store(tmp_path, 100, config=StoreConfig())
    path = now / WAL
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    if seed % 3:
        content[place] ^= 1 << rng.randrange(8)
    else:
        del content[place:]
    path.write_bytes(content)
    check_after_fault(now, must_find=False)


def test_an_old_copy_from_before_retention_is_found(home, tmp_path):
    """Deleted events must not come back: the copy is older, though no event is missing."""
    with EventLog(home) as log:
        fill(log, EVENTS)
    copy_files(home, tmp_path / "old", (DB,))
    with EventLog(home) as log:
        log.retain({"news": Retention(max_events=100)}, now=0.0)
    restore_files(tmp_path / "old", home, (DB,))
    with pytest.raises(CorruptLogError) as caught:
        EventLog(home)
    finding = caught.value.findings[0]
    assert (finding.kind, finding.start, finding.end) == (FindingKind.OLD_COPY, 0, 200)
    repair(home)
    with EventLog(home) as log:
        assert log.topic("news").first_offset == 200
        assert [event.offset for event in read_all(log)] == list(range(200, 300))


def test_an_older_or_missing_heads_file_is_found(store, tmp_path):
    """The second witness is watched as well; the events are still there after the repair."""
    (store / "heads").rename(tmp_path / "heads")
    with pytest.raises(CorruptLogError, match="heads file is missing"):
        EventLog(store)
    shutil.move(tmp_path / "heads", store / "heads")
    config = StoreConfig(heads_sync_commits=2)
    with EventLog(store, config) as log:
        shutil.copy2(store / "heads", tmp_path / "heads")
        for number in range(EVENTS, EVENTS + 10):
            log.append([make_event(number)]).result()
    shutil.move(tmp_path / "heads", store / "heads")
    with pytest.raises(CorruptLogError, match="the heads file is an older copy"):
        EventLog(store, config)
    assert repair(store).findings[0].kind is FindingKind.HEADS
    with EventLog(store) as log:
        assert serve_everything(log, count=EVENTS + 10) == []


def test_heads_of_another_store_are_found(store, tmp_path):
    """Two stores' files cannot be mixed."""
    with EventLog(tmp_path / "other") as log:
        fill(log, EVENTS)
    shutil.copy2(tmp_path / "other" / "heads", store / "heads")
    with pytest.raises(CorruptLogError, match="another store"):
        EventLog(store)


@pytest.mark.parametrize("seed", range(10))
def test_flips_in_the_heads_file_lose_no_event(store, seed):
    """Either it is reported, or the log opens with everything in it."""
    rng = random.Random(seed)
    path = store / "heads"
    content = bytearray(path.read_bytes())
    content[rng.randrange(400)] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    try:
        log = EventLog(store)
    except CorruptLogError:
        repair(store)
        log = EventLog(store)
    with log:
        assert serve_everything(log) == []


def test_damage_behind_the_verified_tail_is_found_on_read_and_by_verify(store):
    """A large log opens after a look at its tails; a read still serves nothing wrong."""
    with sqlite3.connect(store / "events-1.db") as db:
        for offset in (20, 21, 22):
            db.execute("UPDATE events SET data = ? WHERE key = ?", (b"wrong", (1 << 40) + offset))
    db.close()
    with EventLog(store, StoreConfig(open_verify_bytes=20_000)) as log:
        assert [event.offset for event in log.read("news", 10)] == list(range(10, 20))
        with pytest.raises(DamagedRangeError, match="offsets 20 to 20: damaged") as caught:
            log.read("news", 20)
        assert (caught.value.topic, caught.value.start, caught.value.end) == ("news", 20, 21)
        assert log.read("news", 23, 1) == [expected(23)]
        assert log.find("news", expected(23).id) == expected(23)
        assert log.find("news", expected(21).id) is None
        report = log.verify()
        assert [(f.kind, f.start, f.end) for f in report.findings] == [
            (FindingKind.DAMAGED, 20, 23)
        ]


def test_after_a_repair_lost_offsets_stay_empty_and_are_named(home, tmp_path):
    """The lost tail's offsets are not given to other events, now or after another restart."""
    with EventLog(home) as log:
        fill(log, 100)
    copy_files(home, tmp_path / "old", (DB,))
    with EventLog(home) as log:
        fill(log, 100, start=100)
    restore_files(tmp_path / "old", home, (DB,))
    report = repair(home)
    assert [(f.topic, f.start, f.end) for f in report.findings if f.topic] == [("news", 100, 200)]
    assert repair(home).ok
    with EventLog(home) as log:
        assert log.append([make_event(150)]).result()[0].offset == 200
    with EventLog(home) as log:
        assert log.losses("news") == [(100, 200)]
        assert len(log.read("news", 0)) == 100
        with pytest.raises(DamagedRangeError) as caught:
            log.read("news", 100)
        assert caught.value.end == 200
        assert log.read("news", 200)[0].id == b"id-150"
        assert log.verify().ok
        log.retain({"news": Retention(max_events=1)}, now=0.0)
        assert log.topic("news").first_offset == 200
        assert log.topics() == [log.topic("news")]
        assert log.losses("news") == []
    with EventLog(home) as log:
        assert log.verify().ok
