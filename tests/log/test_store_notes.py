"""Notes are committed together with their events, or not at all."""

import sqlite3

import pytest

from rumormill.core.event import Note, Position
from rumormill.log import (
    CorruptLogError,
    EventLog,
    EventRefusedError,
    FindingKind,
    Retention,
    repair,
)
from rumormill.log import notes as notes_module
from rumormill.log.notes import drop_notes, note_keys, read_note
from rumormill.log.positions import read_positions
from store_samples import fill, make_event


def test_a_note_is_read_back_also_after_reopening(home) -> None:
    """The last one under its key counts."""
    with EventLog(home) as log:
        assert read_note(log, "a") is None
        assert note_keys(log, "") == []
        notes = [Note("a", b"1"), Note("b", b"\x00"), Note("a", b"2")]
        log.append([make_event(1)], notes=notes).result()
    with EventLog(home) as log:
        assert read_note(log, "a") == b"2"
        assert read_note(log, "b") == b"\x00"
        assert read_note(log, "c") is None
        assert note_keys(log, "") == ["a", "b"]


def test_an_append_that_fails_leaves_no_note(log: EventLog, monkeypatch) -> None:
    """The events of the call and its notes are one transaction."""
    with pytest.raises(EventRefusedError):
        log.append([make_event(1), make_event(2, id=b"")], notes=[Note("a", b"1")])
    fill(log, 1)

    def fail(*_: object) -> int:
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr("rumormill.log.inserts.put_events", fail)
    with pytest.raises(Exception, match="failed"):
        log.append([make_event(2)], notes=[Note("a", b"1")]).result()
    assert read_note(log, "a") is None


def test_a_note_needs_no_new_event(home) -> None:
    """It is kept alone, and beside an event that is there already."""
    with EventLog(home) as log:
        log.append([], notes=[Note("alone", b"1")]).result()
        log.append([make_event(1)]).result()
        log.append([make_event(1)], notes=[Note("beside", b"2")]).result()
    with EventLog(home) as log:
        assert note_keys(log, "") == ["alone", "beside"]


def test_notes_can_be_dropped(log: EventLog) -> None:
    """By key; those that are not there do no harm."""
    drop_notes(log, ["x"])
    log.append([make_event(1)], notes=[Note(key, b"1") for key in ("a 1", "a 2", "b")]).result()
    drop_notes(log, ["a 1", "x"])
    assert note_keys(log, "a") == ["a 2"]
    assert note_keys(log, "") == ["a 2", "b"]


def test_there_are_never_too_many(log: EventLog, monkeypatch) -> None:
    """The oldest go."""
    monkeypatch.setattr(notes_module, "MAX_NOTES", 3)
    for number in range(6):
        log.append([make_event(number)], notes=[Note(f"{number}", b"1")]).result()
    assert note_keys(log, "") == ["3", "4", "5"]


def test_one_that_is_written_again_and_again_pushes_no_other_out(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes are counted, not how often they were written."""
    monkeypatch.setattr(notes_module, "MAX_NOTES", 3)
    log.append([make_event(0)], notes=[Note("topic", b"1")]).result()
    for number in range(1, 9):
        log.append([make_event(number)], notes=[Note("clock", b"%d" % number)]).result()
    assert note_keys(log, "") == ["topic", "clock"]


def test_what_retention_notes_of_many_topics_pushes_no_other_out(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many topics as notes, or more; what it deleted does not come back either."""
    monkeypatch.setattr(notes_module, "MAX_NOTES", 3)
    topics = [f"t{number}" for number in range(8)]
    for topic in topics:
        fill(log, 10, topic)
    log.append([], notes=[Note("a", b"1"), Note("b", b"1")]).result()
    assert set(log.retain(dict.fromkeys(topics, Retention(max_events=1)), 0.0).values()) == {9}
    assert note_keys(log, "")[:2] == ["a", "b"]
    log.append([], notes=[Note(each, b"1") for each in "cd"]).result()
    assert [each for each in note_keys(log, "") if len(each) == 1] == ["b", "c", "d"]
    (again,) = log.append([make_event(7, topics[0])]).result()
    assert again.gone


def test_a_note_without_a_value_is_kept_no_longer(log: EventLog) -> None:
    """Whoever keeps many for a short while leaves nothing behind."""
    log.append([make_event(1)], notes=[Note("a", b"1"), Note("b", b"1")]).result()
    log.append([make_event(2)], notes=[Note("a", b"")]).result()
    assert note_keys(log, "") == ["b"]
    assert read_note(log, "a") is None


def test_a_damaged_note_is_damage(home) -> None:
    """Believing it would repeat or lose events."""
    with EventLog(home) as log:
        log.append([make_event(1)], notes=[Note("a", b"1")]).result()
    with sqlite3.connect(home / "events-1.db") as db:
        db.execute("UPDATE notes SET value = x'32'")
    db.close()
    with EventLog(home) as log, pytest.raises(CorruptLogError, match="the note 'a' is damaged"):
        read_note(log, "a")


def test_a_repair_takes_notes_along(home) -> None:
    """What is whole of them."""
    with EventLog(home) as log:
        fill(log, 20)
        log.append([make_event(30)], notes=[Note("a", b"1"), Note("b", b"2")]).result()
    with sqlite3.connect(home / "events-1.db") as db:
        db.execute("UPDATE notes SET value = x'33' WHERE key = 'b'")
        db.execute("UPDATE events SET data = x'00' WHERE key & 1023 = 3")
    db.close()
    repair(home)
    with EventLog(home) as log:
        assert read_note(log, "a") == b"1"
        assert note_keys(log, "") == ["a"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE notes SET value = x'33' WHERE key = 'b'",
        "UPDATE notes SET key = CAST(x'ff62' AS TEXT) WHERE key = 'b'",
        "UPDATE positions SET position = x'33' WHERE name = 'b'",
        "UPDATE positions SET name = CAST(x'ff62' AS TEXT) WHERE name = 'b'",
        "UPDATE positions SET topic = CAST(x'ff62' AS TEXT) WHERE name = 'b'",
    ],
)
@pytest.mark.parametrize("events", [0, 20], ids=["without events", "with events"])
def test_damage_beside_whole_events_is_found_and_repaired(home, damage: str, events: int) -> None:
    """Of what is noted only what is damaged is given up; a node that reads it can start again."""
    with EventLog(home) as log:
        fill(log, events)
        kept = [each for name in "abc" for each in (Note(name, b"1"), Position("news", name, 0))]
        log.append([], notes=kept).result()
    with sqlite3.connect(home / "events-1.db") as db:
        db.execute(damage)
    db.close()
    with EventLog(home, read_only=True) as log:
        (finding,) = log.verify().findings
        assert finding.kind is FindingKind.UNREADABLE
        assert "is damaged" in finding.sentence()
        if "positions" in damage:
            with pytest.raises(CorruptLogError, match="`rumormill repair` forgets it"):
                read_positions(log)
    assert repair(home).findings == (finding,)
    assert repair(home).ok
    with EventLog(home) as log:
        assert log.verify().ok
        whole = ["a", "b", "c"]
        damaged = ["a", "c"]
        in_notes = "notes" in damage
        assert note_keys(log, "") == (damaged if in_notes else whole)
        assert [each.name for each in read_positions(log)] == (whole if in_notes else damaged)
        assert len(log.read("news", 0)) == events
        log.append([make_event(30)]).result()
