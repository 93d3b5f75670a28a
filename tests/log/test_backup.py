"""Backups of a log that is written, and their way back; the space that deleted events leave."""

import os
import shutil
import sqlite3
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from rumormill.log import (
    BackupRefusedError,
    CorruptLogError,
    EventLog,
    NotAStoreError,
    Retention,
    StoreConfig,
    StoreLockedError,
    backup,
    compact,
    repair,
    restore,
)
from rumormill.log.keeping import read_on, set_aside
from small_disk import run_on_small_disk
from store_samples import damage, fill, make_event, read_all


def test_a_backup_of_a_log_that_is_written_is_whole(home: Path, tmp_path: Path) -> None:
    """Whoever writes goes on; the copy is one moment of it, a home of its own, and private."""
    with EventLog(home) as log:
        fill(log, 300)
        (home / "identity.key").write_bytes(b"key")
        done = threading.Event()

        def write() -> None:
            number = 300
            while not done.is_set():
                log.append([make_event(number)]).result()
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            reports = [backup(home, tmp_path / f"copy-{number}") for number in range(3)]
        finally:
            done.set()
            writer.join()
        everything = read_all(log)
    assert 300 <= reports[0].events <= reports[2].events <= len(everything)
    for number, report in enumerate(reports):
        copy = tmp_path / f"copy-{number}"
        assert copy.stat().st_mode & 0o777 == 0o700
        assert {each.stat().st_mode & 0o777 for each in copy.iterdir()} == {0o600}
        assert (copy / "identity.key").read_bytes() == b"key"
        with EventLog(copy) as log:
            assert read_all(log) == everything[: report.events]
            offset = log.append([make_event(9999)]).result()[0].offset
            assert (offset, log.verify().ok) == (report.events, True)


def test_a_backup_is_refused_where_it_would_be_none(home: Path, tmp_path: Path) -> None:
    """Over something, of nothing, or of damage; and leaves nothing behind."""
    with pytest.raises(NotAStoreError):
        backup(home, tmp_path / "copy")
    with EventLog(home) as log:
        fill(log, 10)
    (tmp_path / "there").mkdir()
    with pytest.raises(BackupRefusedError, match="exists already"):
        backup(home, tmp_path / "there")
    for place in ("/proc/copy", tmp_path / ("x" * 300)):
        with pytest.raises(BackupRefusedError, match=r"cannot be made: .*; name a directory where"):
            backup(home, place)
    damage(home, 5)
    with pytest.raises(CorruptLogError, match="offsets 5 to 5"):
        backup(home, tmp_path / "copy")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["there"]


def test_a_restore_makes_a_home_have_what_the_backup_has(home: Path, tmp_path: Path) -> None:
    """What was there stays beside it until it is told to go; its offsets are not used again."""
    copy, new = tmp_path / "copy", tmp_path / "new"
    with EventLog(home) as log:
        fill(log, 100)
        backup(home, copy)
        fill(log, 50, start=100)
        with pytest.raises(StoreLockedError):  # the log itself may be given, not its home
            restore(copy, home, replace=True)
    with pytest.raises(BackupRefusedError, match="has a log already"):
        restore(copy, home)
    with EventLog(home) as log:
        assert len(read_all(log)) == 150  # nothing has happened yet
    for place, behind in ((home, 150), (new, 100)):
        assert restore(copy, place, replace=place == home).events == 100
        with EventLog(place) as log:
            assert len(log.read_since("news", 0.0)) == 100
            assert log.append([make_event(777)]).result()[0].offset == behind
            assert log.verify().ok
    assert {path.stem for path in set_aside(home)} == {"events-1"}
    with EventLog(home) as log:
        assert compact(log, old=True) > 0
        assert len(log.read_since("news", 0.0)) == 101
    assert set_aside(home) == []


def test_a_restore_proves_the_backup_before_it_changes_anything(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with EventLog(home) as log:
        fill(log, 100)
    backup(home, copy)
    damage(copy, 42)
    with pytest.raises(CorruptLogError, match="offsets 42 to 42"):
        restore(copy, home, replace=True)
    (copy / "heads").unlink()
    with pytest.raises(CorruptLogError, match="heads file is missing"):
        restore(copy, home, replace=True)
    assert list(home.glob("events-*.db")) == [home / "events-1.db"]
    with EventLog(home) as log:
        assert len(read_all(log)) == 100


def test_a_restore_brings_the_identity_and_takes_none_away(home: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy", tmp_path / "other"
    with EventLog(home) as log:
        fill(log, 1)
    (home / "identity.key").write_bytes(b"ours")
    (home / "config.toml").write_text("")
    backup(home, copy)
    restore(copy, tmp_path / "new")
    assert (tmp_path / "new" / "identity.key").read_bytes() == b"ours"
    assert (tmp_path / "new" / "config.toml").exists()
    other.mkdir()
    (other / "identity.key").write_bytes(b"theirs")
    with pytest.raises(BackupRefusedError, match="another node"):
        restore(copy, other)
    assert (other / "identity.key").read_bytes() == b"theirs"


def test_what_a_crash_leaves_of_a_restore_is_in_nobodys_way(home: Path, tmp_path: Path) -> None:
    """The heads file comes last: before, the home is as it was."""
    copy = tmp_path / "copy"
    with EventLog(home) as log:
        fill(log, 10)
    backup(home, copy)
    shutil.copy(copy / "events-1.db", home / "events-2.db")
    with EventLog(home) as log:
        assert len(read_all(log)) == 10
    restore(copy, home, replace=True)
    with EventLog(home) as log:
        assert (len(read_all(log)), log.verify().ok) == (10, True)


def test_compacting_gives_space_back_while_others_read_and_append(home: Path) -> None:
    """A snapshot that somebody holds keeps the write-ahead log, and nothing fails for it."""
    with EventLog(home) as log:
        fill(log, 2000)
        log.retain({"news": Retention(max_events=10)}, now=0.0)
        wal = home / "events-1.db-wal"
        with log.snapshot() as db:
            db.execute("SELECT count(*) FROM events").fetchone()
            fill(log, 5, start=2000)
            compact(log)
            assert wal.stat().st_size > 0
        assert compact(log) > 0
        assert wal.stat().st_size == 0
        assert [event.offset for event in read_all(log)] == list(range(1990, 2005))


def test_a_file_that_keeps_its_pages_keeps_nobody_busy(home: Path) -> None:
    """A database that was not made for giving pages back: retention ended never, at full speed."""
    with EventLog(home) as log:
        fill(log, 500)
    path = home / "events-1.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
    db.close()
    with EventLog(home) as log:
        assert log.retain({"news": Retention(max_events=10)}, now=0.0) == {"news": 490}
        (free,) = log.writer().db.execute("PRAGMA freelist_count").fetchone()
        assert free > 0
        assert len(read_all(log)) == 10


FULL = """
import os, sys
from rumormill.log import *
from small_disk import run_on_small_disk
from store_samples import make_event, read_all
home, config = sys.argv[1] + "/home", StoreConfig(reserve_bytes=4 << 20, checkpoint_pages=200)
def free():
    found = os.statvfs(sys.argv[1])
    return found.f_bavail * found.f_frsize
number = 0
with EventLog(home, config) as log:
    while True:
        try:
            log.append([make_event(number, data=os.urandom(3000))]).result()
        except DiskFullError as error:
            assert "store.reserve_bytes" in str(error), error
            break
        number += 1
    assert log.counters.full and free() < 4 << 20, free()
with EventLog(home, config) as log:                 # also with a full disk it can be opened,
    assert log.retain({"news": Retention(max_events=100)}, now=0.0) == {"news": number - 100}
    assert free() > 10 << 20, free()                # the space is back,
    assert log.append([make_event(number)]).result()[0].offset == number   # and used
    assert not log.counters.full and log.verify().ok and len(read_all(log)) == 101
print("told", number)
"""


def test_retention_frees_a_disk_that_the_log_has_filled(tmp_path: Path) -> None:
    """A file system of 16 MiB, really full; it needs the right to mount one in a namespace."""
    assert run_on_small_disk(FULL, tmp_path, "16m").startswith("told ")


def test_retention_frees_a_database_that_is_at_its_limit(home: Path) -> None:
    """Deleting takes some pages before it gives others back, and was refused them."""
    with EventLog(home, StoreConfig(max_database_bytes=512 * 1024)) as log:
        number = 0
        while log.append([make_event(number, data=os.urandom(3000))]).exception() is None:
            number += 1
        assert log.retain({"news": Retention(max_events=10)}, now=0.0) == {"news": number - 10}
        for more in range(50):  # and the limit is what it was
            log.append([make_event(number + more, data=os.urandom(3000))]).result()
        assert log.append([make_event(9999, data=bytes(400_000))]).exception() is not None
        assert log.verify().ok
    assert (home / "events-1.db").stat().st_size <= 512 * 1024


def test_the_reserve_may_be_given_up_by_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk of a GiB with a MiB left; of a small disk, a quarter is kept and not more."""
    disk = SimpleNamespace(f_frsize=4096, f_bavail=256, f_blocks=262_144, f_flag=0)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    with EventLog(home) as log:
        refused = log.append([make_event(0)]).exception()
        assert "store.reserve_bytes" in str(refused)
        assert log.counters.full
        disk.f_blocks = 1000
        fill(log, 1)
        assert not log.counters.full
    disk.f_blocks = 262_144
    with EventLog(home, StoreConfig(reserve_bytes=0)) as log:
        fill(log, 1, start=1)


def test_reading_by_time_goes_on_behind_what_a_repair_gave_up(home: Path) -> None:
    with EventLog(home) as log:
        fill(log, 20)
        times = [event.received for event in read_all(log)]
    damage(home, 7)
    assert not repair(home).ok
    with EventLog(home) as log:
        assert log.losses("news") == [(7, 8)]
        found = log.read_since("news", times[5])
        assert [event.offset for event in found] == [5, 6, *range(8, 20)]
        assert [event.offset for event in log.read_since("news", times[7])] == [*range(8, 20)]


def test_reading_by_time_goes_on_behind_losses_side_by_side(home: Path) -> None:
    """Of two repairs, the second gave up the event behind what the first did."""
    with EventLog(home) as log:
        fill(log, 20)
    damage(home, 7)
    assert not repair(home).ok
    damage(home, 7, epoch=2)  # which is that at offset 8 now
    assert not repair(home).ok
    with EventLog(home) as log:
        assert log.losses("news") == [(7, 8), (8, 9)]
        found = log.read_since("news", 0.0)
        assert [event.offset for event in found] == [*range(7), *range(9, 20)]
        assert read_on(log, "news", 7, 1)[0] == 9


@pytest.mark.parametrize("what", ["restore", "repair"])
def test_who_is_interrupted_leaves_nothing_half_made(
    what: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle: nothing of the other database stays, and the log has what it had."""
    with EventLog(home) as log:
        fill(log, 100)
    backup(home, tmp_path / "copy")
    damage(home, 42)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("backup", "repair"):  # both make the other database, and then copy notes into it
        module = sys.modules[f"rumormill.log.{name}"]
        monkeypatch.setattr(module, "copy_notes", interrupt)
    mend = {
        "restore": lambda: restore(tmp_path / "copy", home, replace=True),
        "repair": lambda: repair(home),
    }
    with pytest.raises(KeyboardInterrupt):
        mend[what]()
    assert not [path.name for path in home.iterdir() if path.name.startswith("events-2")]
    monkeypatch.undo()
    assert repair(home).events == 99
