"""A log that is open goes over to a repaired or restored store, and nobody has to let go of it."""

import itertools
import os
import sys
import threading
from pathlib import Path

import pytest

from processes import Program, environment
from rumormill.core.event import Note
from rumormill.core.history import BEGIN, END
from rumormill.log import (
    BackupRefusedError,
    DamagedRangeError,
    EventLog,
    NotAStoreError,
    StoreConfig,
    StoreError,
    StoreFailedError,
    backup,
    compact,
    repair,
    restore,
)
from rumormill.log.keeping import set_aside
from rumormill.log.model import Durability
from rumormill.log.notes import read_note
from store_samples import damage, fill, make_event, read_all

REPAIRER = Path(__file__).with_name("repairer.py")
TESTS = os.pathsep.join([str(REPAIRER.parents[1]), *sys.path])


def offsets(log: EventLog, topic: str = "news") -> list[int]:
    """Of all events that can be had."""
    return [event.offset for event in log.read_since(topic, 0.0, 10_000)]


def test_an_open_log_is_repaired_while_others_append_and_read(home: Path) -> None:
    """What was acknowledged keeps its offset, what comes goes behind, and one event is given up."""
    with EventLog(home) as log:
        fill(log, 300)
        beside = EventLog(home, StoreConfig(open_verify_bytes=1), read_only=True)
        damage(home, 42)
        with pytest.raises(DamagedRangeError):
            log.read("news", 42)
        done, receipts = threading.Event(), dict[int, bytes]()

        def write() -> None:
            for number in itertools.count(300):
                event = make_event(number)
                receipts[log.append([event]).result()[0].offset] = event.id
                if done.is_set():
                    return

        def read() -> None:
            while not done.is_set():
                assert log.topic("news").first_offset == 0
                assert log.read("news", 43, 10)[0].offset == 43
                with log.histories() as histories:
                    assert histories.history("news") is not None

        others = [threading.Thread(target=each) for each in (write, read)]
        for each in others:
            each.start()
        try:
            report = repair(log)
        finally:
            done.set()
            for each in others:
                each.join()
        assert [(each.topic, each.start, each.end) for each in report.findings] == [
            ("news", 42, 43)
        ]
        assert log.losses("news") == [(42, 43)]
        end = log.topic("news").next_offset
        assert sorted(receipts) == list(range(300, end))  # dense, none of them twice
        assert {each.offset: each.id for each in log.read("news", 300, 10_000)} == receipts
        assert offsets(log) == [each for each in range(end) if each != 42]
        assert log.verify().ok
        with log.histories() as histories:
            assert histories.history("news").summary(BEGIN, END).count == end - 1
        with beside:  # who reads from another process goes over too
            assert (offsets(beside), beside.losses("news")) == (offsets(log), [(42, 43)])
        assert repair(log).ok  # and there is nothing more to do
        assert {path.stem for path in set_aside(home)} == {"events-1"}
        compact(log, old=True)
        assert [path.name for path in home.glob("events-*.db")] == ["events-2.db"]
    with EventLog(home) as log:
        assert len(offsets(log)) == end - 1


def test_a_log_whose_disk_has_failed_goes_on_after_a_repair(home: Path) -> None:
    """Everything is written anew; what was not acknowledged is there or not, as after a restart."""
    with EventLog(home) as log:
        fill(log, 100)
        log.writer().stop(StoreFailedError("the disk has failed"))
        with pytest.raises(StoreFailedError):
            log.append([make_event(100)]).result()
        assert repair(log).ok
        assert log.append([make_event(100)]).result()[0].offset == 100
        assert (len(read_all(log)), log.verify().ok) == (101, True)


def test_a_repair_that_cannot_be_done_changes_nothing(home: Path) -> None:
    """It fails at its last step: the log goes on in the old store, and so does the next open."""
    with EventLog(home) as log:
        fill(log, 100)
        damage(home, 42)
        (home / "heads.new").mkdir()  # so no other heads file can be made
        with pytest.raises(StoreError):
            repair(log)
        assert log.append([make_event(100)]).result()[0].offset == 100
        assert log.read("news", 43, 100)[-1].offset == 100
        (home / "heads.new").rmdir()
        assert not repair(log).ok
        assert offsets(log) == [each for each in range(101) if each != 42]
        compact(log, old=True)
        assert len([*home.glob("events-*.db")]) == 1


def test_a_log_in_memory_has_no_files_to_repair() -> None:
    with (
        EventLog(None, StoreConfig(durability=Durability.MEMORY)) as log,
        pytest.raises(NotAStoreError, match="in memory"),
    ):
        repair(log)


def test_an_open_log_takes_a_backup_and_uses_no_offset_again(home: Path, tmp_path: Path) -> None:
    """What it had beyond stays beside it; notes of its own stay too, and the backup's come."""
    copy = tmp_path / "copy"
    with EventLog(home) as log:
        fill(log, 100)
        log.append([], notes=[Note("both", b"old"), Note("backup", b"old")]).result()
        backup(home, copy)
        fill(log, 50, start=100)
        fill(log, 5, topic="later")
        log.append([], notes=[Note("both", b"new"), Note("live", b"new")]).result()
        with pytest.raises(BackupRefusedError, match="--replace"):
            restore(copy, log)
        report = restore(copy, log, replace=True)
        assert report.events == 100
        assert {(each.topic, each.start, each.end) for each in report.findings} == {
            ("news", 100, 150),
            ("later", 0, 5),
        }
        dates = {name: row.received_max for name, row in log.writer().topics.items()}
        assert dates == {"news": 1149.0, "later": 1004.0}  # numbers given out do not come again
        assert log.append([make_event(7, "later")]).result()[0].offset == 5
        assert log.append([make_event(777)]).result()[0].offset == 150
        assert offsets(log) == [*range(100), 150]
        notes = {key: read_note(log, key) for key in ("both", "backup", "live")}
        assert notes == {"both": b"new", "backup": b"old", "live": b"new"}
        assert log.verify().ok
    with EventLog(home) as log:
        assert (offsets(log), offsets(log, "later")) == ([*range(100), 150], [5])
        with log.histories() as histories:
            assert histories.history("news").summary(BEGIN, END).count == 101


def test_an_empty_open_log_takes_a_backup_without_a_word(home: Path, tmp_path: Path) -> None:
    """As that of a node that was just started in a new home."""
    copy, other = tmp_path / "copy", tmp_path / "other"
    with EventLog(home) as log:
        fill(log, 10)
    backup(home, copy)
    with EventLog(other) as log:
        assert restore(copy, log).ok
        assert offsets(log) == [*range(10)]
        with pytest.raises(BackupRefusedError, match="that home itself"):
            restore(other, log, replace=True)


def test_what_a_crash_leaves_is_never_what_compact_keeps(home: Path) -> None:
    """A database that was being built counts for nothing: the older one is the log."""
    with EventLog(home) as log:
        fill(log, 10)
    (home / "events-2.db").write_bytes(b"half of it")
    with EventLog(home) as log:
        compact(log, old=True)
        assert len(read_all(log)) == 10
    assert [path.name for path in home.glob("events-*.db")] == ["events-1.db"]


@pytest.mark.parametrize("repairs", [1, 2, 5])
def test_a_kill_in_a_repair_leaves_the_old_store_or_the_new_one(home: Path, repairs: int) -> None:
    """Each receipt's event is at its offset, but those that were damaged.

    The program damages an event, which it names, and repairs its log, while it appends.
    """
    with Program([sys.executable, REPAIRER, home], env=environment(PYTHONPATH=TESTS)) as child:
        child.wait_for(
            lambda: sum(line.startswith("damage") for line in child.output) >= repairs, "damage"
        )
        child.kill()
    said = [line.split() for line in child.output]
    receipts = {int(offset): id_.encode() for word, offset, id_ in said if word == "receipt"}
    damaged = {int(offset) for word, offset, _ in said if word == "damage"}
    repair(home)  # of what was damaged last, if that was not done yet
    with EventLog(home) as log:
        found = {each.offset: each.id for each in log.read_since("news", 0.0, 1_000_000)}
        assert log.verify().ok
    assert receipts.keys() - found.keys() <= damaged
    assert all(found.get(offset, id_) == id_ for offset, id_ in receipts.items())


def test_a_newer_backup_brings_back_the_very_events(home: Path, tmp_path: Path) -> None:
    """Offsets that an older one had left empty have what they had; what came since stays away."""
    with EventLog(home) as log:
        fill(log, 5)
        backup(home, tmp_path / "older")
        fill(log, 5, start=5)
        backup(home, tmp_path / "newer")
        before = {event.offset: event.id for event in read_all(log)}
        (empty,) = restore(tmp_path / "older", log, replace=True).findings
        assert (empty.start, empty.end) == (5, 10)
        fill(log, 1, start=100)
        (again,) = restore(tmp_path / "newer", log, replace=True).findings
        assert (again.start, again.end) == (10, 11)
        found = log.read_since("news", 0.0, 100)
        assert {event.offset: event.id for event in found} == before
        fill(log, 1, start=200)
        assert offsets(log) == [*range(10), 11]
        assert log.verify().events == 11


@pytest.mark.parametrize(("ours", "theirs"), [(3, 3), (3, 7), (7, 3)])
def test_a_backup_of_another_history_is_refused(
    home: Path, tmp_path: Path, ours: int, theirs: int
) -> None:
    """A home that went on as two has two events at one offset: neither takes the other's place."""
    with EventLog(home) as log:
        fill(log, 5)
        restore(_copied(home, tmp_path / "first"), tmp_path / "other")
        fill(log, ours, start=100)
        before = [event.id for event in read_all(log)]
        with EventLog(tmp_path / "other") as other:
            fill(other, theirs, start=200)
        with pytest.raises(BackupRefusedError, match=r"another history: at offset \d+ of topic"):
            restore(_copied(tmp_path / "other", tmp_path / "second"), log, replace=True)
        assert [event.id for event in read_all(log)] == before
        assert sorted(home.glob("events-*.db")) == [home / "events-1.db"]
        fill(log, 1, start=300)


def _copied(home: Path, to: Path) -> Path:
    backup(home, to)
    return to
