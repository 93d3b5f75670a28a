"""The tables behind a log's histories, and who reads and writes which of their rows.

    histories     how far a topic is indexed, and its window, under a seal
    history_keys  a topic's keys in their order, each with the event's offset, or with minus the
                  number of its refusal where there is only an id
    history_sums  counts and sums over stretches of keys: at level 0 over chunks of keys, at each
                  level above over some nodes of the level below
    refusals      ids that are known and not stored, in the order in which they came, under seals

A node of `history_sums` reaches from its own key to the next node of its level, and every level
has one that begins at `BEGIN`. So each key belongs to one node of each level, whether it is there
or not. A node begins where one of the level below does.

Windows and refusals are the only facts here that the events do not tell again.
"""

import sqlite3
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from rumormill.core.event import Event
from rumormill.core.history import AHEAD_SECONDS, BEGIN, END, Key, Summary, Window, stamp_of
from rumormill.log.errors import RecordDamagedError
from rumormill.log.many import Insert
from rumormill.log.rows import TopicRow, seal_history, seal_refusal

LEVELS: Final = 3
"""A range of 10^8 keys is summed over a few hundred nodes."""

INDEX_TABLES: Final = {
    "histories": """CREATE TABLE histories (
        topic_id INTEGER PRIMARY KEY,
        indexed_to INTEGER NOT NULL,
        keep_from INTEGER NOT NULL,
        undated INTEGER NOT NULL,
        ahead INTEGER NOT NULL,
        seal BLOB NOT NULL
    )""",
    "history_keys": """CREATE TABLE history_keys (
        topic_id INTEGER NOT NULL,
        stamp INTEGER NOT NULL,
        id BLOB NOT NULL,
        place INTEGER NOT NULL,
        PRIMARY KEY (topic_id, stamp, id)
    ) WITHOUT ROWID""",
    "history_sums": """CREATE TABLE history_sums (
        topic_id INTEGER NOT NULL,
        level INTEGER NOT NULL,
        stamp INTEGER NOT NULL,
        id BLOB NOT NULL,
        summary BLOB NOT NULL,
        PRIMARY KEY (topic_id, level, stamp, id)
    ) WITHOUT ROWID""",
    "refusals": """CREATE TABLE refusals (
        topic_id INTEGER NOT NULL,
        number INTEGER NOT NULL,
        stamp INTEGER NOT NULL,
        id BLOB NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (topic_id, number)
    ) WITHOUT ROWID""",
}

_RANGE: Final = "(stamp, id) >= (?, ?) AND (stamp, id) < (?, ?)"
_KEYS: Final = f"FROM history_keys WHERE topic_id = ? AND {_RANGE}"
_PUT_KEYS: Final = Insert("INSERT INTO history_keys", 4)
_PUT_KEY: Final = Insert("INSERT INTO history_keys", 4, "ON CONFLICT DO NOTHING").one
_PUT_REFUSALS: Final = Insert("INSERT INTO refusals", 5)
_NODES: Final = (
    "SELECT stamp, id, summary FROM history_sums"
    f" WHERE topic_id = ? AND level = ? AND {_RANGE} ORDER BY stamp, id"
)
_NODE: Final = (
    "SELECT stamp, id, summary FROM history_sums WHERE topic_id = ? AND level = ?"
    " AND (stamp, id) <= (?, ?) ORDER BY stamp DESC, id DESC LIMIT 1"
)
_FOLLOWING: Final = (
    "SELECT stamp, id FROM history_sums WHERE topic_id = ? AND level = ?"
    " AND (stamp, id) > (?, ?) ORDER BY stamp, id LIMIT 1"
)


class Record(msgspec.Struct, frozen=True):
    """How far a topic is indexed, and what of its history is all there."""

    topic_id: int
    indexed_to: int
    window: Window


class Entry(NamedTuple):
    """A key, and where its event is: its offset, or minus the number of its refusal."""

    key: Key
    place: int


class Node(NamedTuple):
    """Where a stretch of keys begins, and what it holds."""

    first: Key
    summary: Summary


# Records


def get_record(db: sqlite3.Connection, topic_id: int) -> Record | None:
    """A topic's record; None if it has none yet."""
    query = "SELECT indexed_to, keep_from, undated, ahead, seal FROM histories WHERE topic_id = ?"
    found = db.execute(query, (topic_id,)).fetchone()
    if found is None:
        return None
    record = unsealed(topic_id, *found)
    if record is None:
        raise RecordDamagedError(f"the record of the history of topic {topic_id} is damaged")
    return record


def unsealed(topic_id: int, *found: object) -> Record | None:
    """A record as it was read, if it is the one that was written."""
    *fields, seal = found
    try:
        indexed_to, keep_from, undated, ahead = msgspec.convert(fields, tuple[int, int, int, int])
    except msgspec.ValidationError:
        return None
    record = Record(topic_id, indexed_to, Window(keep_from, bool(undated), bool(ahead)))
    return record if _sealed(record)[-1] == seal else None


def put_record(db: sqlite3.Connection, record: Record) -> None:
    """Write a topic's record."""
    db.execute("INSERT OR REPLACE INTO histories VALUES (?, ?, ?, ?, ?, ?)", _sealed(record))


def _sealed(record: Record) -> tuple[int | bytes, ...]:
    window = record.window
    fields = (
        record.topic_id,
        record.indexed_to,
        window.keep_from,
        int(window.undated),
        int(window.ahead),
    )
    return (*fields, seal_history(*fields))


def likely_window(db: sqlite3.Connection, topic: TopicRow) -> Window:
    """The window of a topic for which nobody has kept one.

    Of events that are gone the dates are not known. None can be later than the oldest event that
    is left, by more than clocks may differ.
    """
    if not topic.first_offset:
        return Window()
    query = "SELECT received FROM events WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1"
    keys = topic.key(topic.first_offset), topic.key(topic.next_offset)
    (latest,) = db.execute(query, keys).fetchone() or (topic.received_max,)
    keep_from = 1 + int(1e6 * max(latest + AHEAD_SECONDS, 0.0))
    return Window(min(keep_from, END.stamp), undated=False, ahead=False)


# Keys


def stored_key(
    topic: TopicRow, event_id: bytes, author: bytes, created: float | None
) -> Key | None:
    """A stored event's key; None if its row holds no event any more."""
    try:
        return Key(stamp_of(Event(topic.name, b"", author, event_id, created=created)), event_id)
    except (TypeError, AttributeError, ValueError, OverflowError):
        return None  # a flipped type code can give any type here


def get_keys(
    db: sqlite3.Connection, topic_id: int, low: Key, high: Key, limit: int = -1
) -> list[Key]:
    """The first keys of a range, at most so many."""
    query = f"SELECT stamp, id {_KEYS} ORDER BY stamp, id LIMIT ?"
    return [_key(found) for found in db.execute(query, (topic_id, *low, *high, limit))]


def count_keys(db: sqlite3.Connection, topic_id: int, low: Key, high: Key) -> int:
    """How many keys a range has, counted one by one."""
    (count,) = db.execute(f"SELECT count(*) {_KEYS}", (topic_id, *low, *high)).fetchone()
    return int(count)


def put_keys(db: sqlite3.Connection, topic_id: int, entries: Sequence[Entry]) -> list[Key]:
    """Write keys, in order; return those that were not there. A refusal gives way to its event."""
    query = (
        "SELECT stamp, id FROM history_keys WHERE topic_id = ? ORDER BY stamp DESC, id DESC LIMIT 1"
    )
    last = db.execute(query, (topic_id,)).fetchone() or BEGIN
    start = 0
    new = []
    while start < len(entries) and entries[start].key <= last:
        key, place = entries[start]
        if db.execute(_PUT_KEY, (topic_id, *key, place)).rowcount == 1:
            new.append(key)
        else:
            _take_over(db, topic_id, key, place)
        start += 1
    new += [key for key, _ in entries[start:]]
    # A bytearray is bound as it is; for bytes Python first looks for adapters.
    rest = [(topic_id, key[0], bytearray(key[1]), place) for key, place in entries[start:]]
    _PUT_KEYS.put(db, rest)
    return new


def drop_keys(db: sqlite3.Connection, topic_id: int, entries: Sequence[Entry]) -> list[Key]:
    """Delete keys, each if it is the one of this place; return those that were there."""
    statement = "DELETE FROM history_keys WHERE topic_id = ? AND stamp = ? AND id = ? AND place = ?"
    return [
        key for key, place in entries if db.execute(statement, (topic_id, *key, place)).rowcount
    ]


def _take_over(db: sqlite3.Connection, topic_id: int, key: Key, offset: int) -> None:
    where = "WHERE topic_id = ? AND stamp = ? AND id = ?"
    (place,) = db.execute(f"SELECT place FROM history_keys {where}", (topic_id, *key)).fetchone()
    if place < 0:
        db.execute(f"UPDATE history_keys SET place = ? {where}", (offset, topic_id, *key))
        db.execute("DELETE FROM refusals WHERE topic_id = ? AND number = ?", (topic_id, -place))


# Refusals


def get_refusals(db: sqlite3.Connection, topic_id: int, upto: int = 2**62) -> list[Entry]:
    """The refusals up to a number, those that are what was written."""
    query = "SELECT number, stamp, id, seal FROM refusals WHERE topic_id = ? AND number <= ?"
    whole = []
    for number, stamp, event_id, seal in db.execute(query, (topic_id, upto)):
        try:
            if seal_refusal(topic_id, number, stamp, event_id) == seal:
                whole.append(Entry(Key(stamp, event_id), -number))
        except (TypeError, struct.error):
            continue  # a flipped type code can give any type here
    return whole


def put_refusals(db: sqlite3.Connection, topic_id: int, refusals: Sequence[Entry]) -> None:
    """Write refusals, each under minus its place."""
    _PUT_REFUSALS.put(
        db,
        [(topic_id, -place, *key, seal_refusal(topic_id, -place, *key)) for key, place in refusals],
    )


def first_refusal(db: sqlite3.Connection, topic_id: int) -> int | None:
    """The lowest number of a topic's refusals; None if it has none."""
    query = "SELECT min(number) FROM refusals WHERE topic_id = ?"
    found: int | None = db.execute(query, (topic_id,)).fetchone()[0]
    return found


def last_refusal(db: sqlite3.Connection, topic_id: int) -> int:
    """The highest number in use."""
    query = "SELECT max(number) FROM refusals WHERE topic_id = ?"
    return int(db.execute(query, (topic_id,)).fetchone()[0] or 0)


# Sums


def get_nodes(db: sqlite3.Connection, topic_id: int, level: int, low: Key, high: Key) -> list[Node]:
    """The nodes of a level that begin in a range."""
    return [_node(found) for found in db.execute(_NODES, (topic_id, level, *low, *high))]


def node_at(db: sqlite3.Connection, topic_id: int, level: int, key: Key) -> Node:
    """The node of a level that a key belongs to."""
    found = db.execute(_NODE, (topic_id, level, *key)).fetchone()
    if found is None:
        raise RecordDamagedError(f"the history of topic {topic_id} has no beginning")
    return _node(found)


def following(db: sqlite3.Connection, topic_id: int, level: int, first: Key) -> Key:
    """Where the next node of a level begins; `END` behind the last."""
    found = db.execute(_FOLLOWING, (topic_id, level, *first)).fetchone()
    return END if found is None else _key(found)


def put_node(db: sqlite3.Connection, topic_id: int, level: int, node: Node) -> None:
    """Write a node."""
    db.execute(
        "INSERT OR REPLACE INTO history_sums VALUES (?, ?, ?, ?, ?)",
        (topic_id, level, *node.first, node.summary.encoded),
    )


def drop_node(db: sqlite3.Connection, topic_id: int, level: int, first: Key) -> None:
    """Delete a node; what it held belongs to the one before it from now on."""
    db.execute(
        "DELETE FROM history_sums WHERE topic_id = ? AND level = ? AND stamp = ? AND id = ?",
        (topic_id, level, *first),
    )


def _node(found: tuple[int, bytes, bytes]) -> Node:
    try:
        return Node(_key(found[:2]), Summary.decoded(found[2]))
    except (TypeError, ValueError):
        raise RecordDamagedError("a sum of a history is damaged") from None


def _key(found: tuple[int, bytes]) -> Key:
    stamp, event_id = found
    if type(stamp) is not int or type(event_id) is not bytes:
        raise RecordDamagedError("a key of a history is damaged")
    return Key(stamp, event_id)
