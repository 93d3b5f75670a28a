"""Records of a hash table in the log: beside events and notes, sealed, in pieces, repaired."""

import sqlite3
from pathlib import Path

import pytest

from rumormill.core.event import KeptRecord, Note
from rumormill.log.event_log import EventLog
from rumormill.log.notes import read_note
from rumormill.log.records import read_records
from rumormill.log.repair import repair

RECORDS = [
    KeptRecord(b"key %d" % number, b"value" * number, b"proof", 5.5, number == 1, b"peer")
    for number in range(5)
]


def written(home: Path) -> list[KeptRecord]:
    with EventLog(home, read_only=True) as log:
        return read_records(log, b"", 100, 1 << 20)[0]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with records, a note and nothing else."""
    with EventLog(tmp_path / "home") as log:
        log.append([], notes=[*RECORDS, Note("a", b"b")]).result()
    return tmp_path / "home"


def test_records_are_there_after_a_restart(home: Path) -> None:
    assert written(home) == RECORDS
    with EventLog(home) as log:
        assert read_note(log, "a") == b"b"


def test_of_a_key_the_last_counts_and_without_a_value_it_is_gone(home: Path) -> None:
    newer = KeptRecord(b"key 2", b"newer", b"", 7.0, False, b"other")
    with EventLog(home) as log:
        log.append([], notes=[RECORDS[2], newer, KeptRecord(b"key 4"), KeptRecord(b"no")]).result()
    assert written(home) == [RECORDS[0], RECORDS[1], newer, RECORDS[3]]


def test_they_are_read_in_pieces_by_number_and_by_bytes(home: Path) -> None:
    with EventLog(home, read_only=True) as log:
        assert read_records(log, b"", 2, 1 << 20) == (RECORDS[:2], True)
        assert read_records(log, b"key 1", 100, 11) == (RECORDS[2:4], True)
        assert read_records(log, b"key 3", 1, 1 << 20) == (RECORDS[4:], False)
        assert read_records(log, b"key 4", 1, 1 << 20) == ([], False)


def test_a_log_without_records_has_none(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        log.append([], notes=[Note("a", b"b")]).result()
    assert written(tmp_path) == []


def damage(home: Path, change: str) -> None:
    (path,) = home.glob("*.db")
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET value = x'00' WHERE key = CAST('key 3' AS BLOB)",
        "UPDATE records SET own = 1 WHERE key = CAST('key 3' AS BLOB)",
        "UPDATE records SET since = 9e99 WHERE key = CAST('key 3' AS BLOB)",
        "UPDATE records SET source = 'text' WHERE key = CAST('key 3' AS BLOB)",
        "UPDATE records SET key = CAST('key 7' AS BLOB) WHERE key = CAST('key 3' AS BLOB)",
        "UPDATE records SET seal = x'00' WHERE key = CAST('key 3' AS BLOB)",
    ],
)
def test_what_is_not_as_it_was_written_is_not_there(home: Path, change: str) -> None:
    """The rest is; also in a store that was rebuilt."""
    damage(home, change)
    whole = [*RECORDS[:3], RECORDS[4]]
    assert written(home) == whole
    repair(home)
    assert written(home) == whole


@pytest.mark.parametrize("count", [7, 8, 63, 64, 65, 200])
def test_many_are_written_and_forgotten_in_one_batch(tmp_path: Path, count: int) -> None:
    """However many there are: they go in statements of many rows."""
    many = [KeptRecord(b"%04d" % number, b"v%d" % number) for number in range(count)]
    with EventLog(tmp_path) as log:
        log.append([], notes=many).result()
    assert written(tmp_path) == many[:100]
    forgotten = [KeptRecord(each.key) for each in many[1:-1]]
    with EventLog(tmp_path) as log:
        log.append([], notes=[*forgotten, KeptRecord(b"new", b"value")]).result()
    assert written(tmp_path) == [many[0], many[-1], KeptRecord(b"new", b"value")]


def test_many_notes_are_written_and_forgotten_in_one_batch(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        log.append([], notes=[Note(f"{number}", b"1") for number in range(100)]).result()
        log.append([], notes=[Note(f"{number}", b"") for number in range(99)]).result()
        assert [read_note(log, f"{number}") for number in (0, 98, 99)] == [None, None, b"1"]
