"""The index behind histories: made for old stores, found when damaged, made anew."""

import contextlib
import logging
import sqlite3

import pytest

from rumormill.core.history import BEGIN, END, Key, Summary, Window, summary_of
from rumormill.log import (
    CorruptLogError,
    EventLog,
    FindingKind,
    Retention,
    StoreConfig,
    StoreVersionError,
    repair,
)
from rumormill.log.rows import seal_store
from store_samples import fill, make_event, read_all

EVENTS = 700
REFUSED = [Key(10**9 + number, b"refused %d" % number) for number in range(20)]

VERSION_1 = {
    "store": """CREATE TABLE store (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        schema_version INTEGER NOT NULL,
        store_id BLOB NOT NULL,
        seal BLOB NOT NULL,
        stamp INTEGER NOT NULL
    )""",
    "topics": """CREATE TABLE topics (
        topic_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        first_offset INTEGER NOT NULL,
        base_hash BLOB NOT NULL,
        next_offset INTEGER NOT NULL,
        head_hash BLOB NOT NULL,
        bytes INTEGER NOT NULL,
        received_max REAL NOT NULL,
        generation INTEGER NOT NULL,
        seal BLOB NOT NULL
    )""",
    "events": """CREATE TABLE events (
        key INTEGER PRIMARY KEY,
        topic_id INTEGER NOT NULL,
        id BLOB NOT NULL,
        author BLOB NOT NULL,
        data BLOB NOT NULL,
        parents BLOB NOT NULL,
        created REAL,
        received REAL NOT NULL,
        protocol TEXT NOT NULL,
        proof BLOB NOT NULL,
        prev BLOB NOT NULL,
        hash BLOB NOT NULL,
        UNIQUE (topic_id, id)
    )""",
    "marks": """CREATE TABLE marks (
        key INTEGER PRIMARY KEY,
        received_max REAL NOT NULL,
        seal BLOB NOT NULL
    )""",
    "losses": """CREATE TABLE losses (
        topic_id INTEGER NOT NULL,
        start INTEGER NOT NULL,
        end INTEGER NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (topic_id, start)
    ) WITHOUT ROWID""",
}
"""The tables of version 1, as rumormill made them before there were histories."""


def change(home, *statements: str) -> None:
    """Change a closed store behind its back."""
    db = sqlite3.connect(home / "events-1.db")
    with db:
        for statement in statements:
            assert db.execute(statement).rowcount
    db.close()


def keys_of(home, topic="news") -> tuple[list[Key], Summary, Window]:
    with EventLog(home) as log, log.histories() as histories:
        history = histories.history(topic)
        return history.keys(BEGIN, END, 10**6), history.summary(BEGIN, END), history.window


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A store of which a part was deleted, with ids that are known only, all indexed."""
    home = tmp_path_factory.mktemp("pristine") / "store"
    with EventLog(home) as log:
        fill(log, EVENTS)
        log.know("news", REFUSED)
        log.retain({"news": Retention(max_events=600)}, now=0.0)
    keys, summary, window = keys_of(home)
    assert (len(keys), window.keep_from > 1, window.undated) == (620, True, False)
    assert summary == summary_of("news", keys)
    return home


# Old stores


def make_version_1(home, first: int) -> tuple[list[object], list[object]]:
    """A store of the version before histories; returns what is in it."""
    with EventLog(home) as log:
        fill(log, 100)
        fill(log, 50, "more")
        if first:
            log.retain({"news": Retention(max_events=100 - first)}, now=1e10)
    db = sqlite3.connect(home / "events-1.db")
    with db:
        for name in ("histories", "history_keys", "history_sums", "refusals"):
            db.execute(f"DROP TABLE {name}")
        db.execute("DROP TABLE IF EXISTS notes")  # where retention says what it has deleted
        (store_id,) = db.execute("SELECT store_id FROM store").fetchone()
        db.execute("UPDATE store SET schema_version = 1, seal = ?", (seal_store(1, store_id),))
    tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    assert dict(db.execute(tables)) == VERSION_1
    found = contents(db)
    db.close()
    return found


def contents(db: sqlite3.Connection) -> tuple[list[object], list[object]]:
    return (
        db.execute("SELECT * FROM events ORDER BY key").fetchall(),
        db.execute("SELECT * FROM topics ORDER BY topic_id").fetchall(),
    )


@pytest.mark.parametrize("first", [0, 30])
def test_an_old_store_keeps_everything_and_gets_histories(home, first):
    """Events, offsets and hashes are the same; where events were deleted, the window begins where
    none of them can be: a minute behind the oldest event that is left."""
    before = make_version_1(home, first)
    with pytest.raises(StoreVersionError, match="open it for writing once"):
        EventLog(home, read_only=True)
    with EventLog(home) as log:
        with log.snapshot() as db:
            assert contents(db) == before
        assert log.verify().ok
        with log.histories() as histories:
            news, more = histories.history("news"), histories.history("more")
            assert news.summary(BEGIN, END).count == 100 - first
            assert more.summary(BEGIN, END).count == 50
            assert more.window == Window()
            closed = Window((1000 + first + 60) * 10**6 + 1, undated=False, ahead=False)
            assert news.window == (closed if first else Window())
        assert [event.offset for event in read_all(log)] == list(range(first, 100))
        assert log.append([make_event(100)]).result()[0].offset == 100
    with EventLog(home, read_only=True) as log:
        assert log.verify().ok


def test_a_damaged_old_store_is_refused_as_it_is(home):
    """Nothing is added to it before it is repaired."""
    make_version_1(home, 0)
    change(home, "DELETE FROM events WHERE key & 1023 = 7")
    with pytest.raises(CorruptLogError):
        EventLog(home)
    db = sqlite3.connect(home / "events-1.db")
    assert db.execute("SELECT schema_version FROM store").fetchone() == (1,)
    db.close()
    repair(home)
    keys, summary, _ = keys_of(home)
    assert len(keys) == 99
    assert summary == summary_of("news", keys)


# Damage

DAMAGE = {
    "a key is missing": "DELETE FROM history_keys WHERE place = 300",
    "a key is of another time": "UPDATE history_keys SET stamp = stamp + 1 WHERE place = 301",
    "a key is of another event": "UPDATE history_keys SET place = 5 WHERE place = 302",
    "a sum is wrong": "UPDATE history_sums SET summary = zeroblob(520)",
    "a sum above is wrong": "UPDATE history_sums SET summary = zeroblob(520) WHERE level = 1",
    "a sum is no sum": "UPDATE history_sums SET summary = 'text' WHERE level = 0",
    "the sums are gone": "DELETE FROM history_sums",
    "a refusal is gone": "DELETE FROM refusals WHERE number = 3",
    "a refused key is gone": "DELETE FROM history_keys WHERE place = -4",
    "all is indexed twice": "UPDATE history_keys SET place = place - 1 WHERE place > 0",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_found_and_a_repair_makes_the_index_anew(store, statement):
    """Verification names the topic, no event is lost to a reader, and the repaired history is the
    one from before, but for refusals that are gone."""
    keys, _, window = keys_of(store)
    change(store, statement)
    with EventLog(store, read_only=True) as log:
        findings = log.verify().findings
        assert [finding.kind for finding in findings] == [FindingKind.INDEX]
        assert "the history of topic 'news'" in findings[0].detail
        assert len(read_all(log)) == 600
    assert not repair(store).ok
    after, summary, same = keys_of(store)
    gone = {REFUSED[2]} if statement == DAMAGE["a refusal is gone"] else set()
    assert after == [key for key in keys if key not in gone]
    assert summary == summary_of("news", after)
    assert same == window
    with EventLog(store) as log:
        assert log.verify().ok
        assert len(read_all(log)) == 600


@pytest.mark.parametrize("table", ["histories", "refusals"])
def test_a_changed_window_or_refusal_is_not_believed(store, table):
    """Nothing else knows them: they carry seals."""
    _, _, window = keys_of(store)
    column = "keep_from" if table == "histories" else "stamp"
    change(store, f"UPDATE {table} SET {column} = {column} + 1")
    with EventLog(store, read_only=True) as log:
        assert [finding.kind for finding in log.verify().findings] == [FindingKind.INDEX]
    repair(store)
    keys, _, repaired = keys_of(store)
    assert len(keys) == (620 if table == "histories" else 600)
    assert repaired.keep_from >= window.keep_from


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM history_sums",
        "UPDATE histories SET keep_from = 5",
        "UPDATE history_sums SET summary = x'00'",
    ],
)
def test_an_index_that_cannot_be_used_is_made_anew_without_a_word_from_anybody(
    store, caplog, statement
):
    """Whoever appends notices nothing; it is logged and counted."""
    keys, _, window = keys_of(store)
    change(store, statement)
    with caplog.at_level(logging.WARNING), EventLog(store) as log:
        log.append([make_event(9000)]).result()
        with log.histories() as histories:
            history = histories.history("news")
            after = history.keys(BEGIN, END, 10**6)
            assert history.window.keep_from >= window.keep_from
        assert len(after) == len(keys) + 1
        assert log.counters.indexes_rebuilt == 1
        assert log.verify().ok
        log.retain({"news": Retention(max_events=10)}, now=0.0)
        assert log.verify().ok
    assert "the index of histories is damaged and made anew" in caplog.text


def test_damage_that_a_reader_meets_is_mended_behind_it(store):
    """The reader gets the error; the next one gets the history."""
    _, summary, _ = keys_of(store)
    change(store, "UPDATE history_sums SET summary = x'00'")
    with EventLog(store) as log:
        for _ in range(2):
            with contextlib.suppress(CorruptLogError), log.histories() as histories:
                found = histories.history("news").summary(BEGIN, END)
        assert found == summary
        assert log.counters.indexes_rebuilt == 1
        assert log.verify().ok


def test_an_index_that_cannot_be_made_anew_costs_no_event(store):
    """Its pages are destroyed: events are taken and read, only histories are refused."""

    path = store / "events-1.db"
    db = sqlite3.connect(path)
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'histories'"
    (page,) = db.execute(query).fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(content)
    with EventLog(store, StoreConfig(open_verify_bytes=1)) as log:
        log.append([make_event(9000)]).result()
        with pytest.raises(CorruptLogError, match="no histories until a repair"), log.histories():
            pass
        log.append([make_event(9001)]).result()
        assert len(read_all(log)) == 602
    repair(store)
    assert len(keys_of(store)[0]) == 622
