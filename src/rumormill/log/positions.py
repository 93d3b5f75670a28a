"""Positions: how far the named subscriptions of a node have come, in a table of its own.

They are written in transactions of the log, so after a crash a position stands at a moment that was
committed. Each bears a seal; one that is not whole counts as damage, because believing it would
repeat or lose events. Whoever has them written bounds how many there are.

The table is made when it is first needed.
"""

import contextlib
import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from rumormill.core.event import Position
from rumormill.log.errors import Finding, FindingKind, forgettable
from rumormill.log.many import Insert
from rumormill.log.reader import Log
from rumormill.log.rows import HASH_BYTES
from rumormill.log.schema import has_table

_CREATE: Final = """CREATE TABLE IF NOT EXISTS positions (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    position BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (topic, name)
)"""
_PUT: Final = Insert("INSERT OR REPLACE INTO positions", 4)
_SELECT: Final = """SELECT CAST(topic AS BLOB), CAST(name AS BLOB), position, seal FROM positions
    ORDER BY topic, name"""
"""Names as they lie there: one that is no text any more must not keep us from the others."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Position)


def put_positions(db: sqlite3.Connection, positions: Sequence[Position]) -> None:
    """Write positions in the open transaction, of each name the last."""
    if not positions:
        return
    db.execute(_CREATE)
    rows = []
    for key, each in {(each.topic, each.name): each for each in positions}.items():
        if each.next_offset is None:
            db.execute("DELETE FROM positions WHERE topic = ? AND name = ?", key)
        else:
            written = _encoder.encode(each)
            rows.append((*key, written, _seal(written)))
    _PUT.put(db, rows)


def read_positions(log: Log) -> list[Position]:
    """All positions, by topic and name."""
    with log.snapshot() as db:
        found = db.execute(_SELECT).fetchall() if has_table(db, "positions") else []
    positions = []
    for row in found:
        position = _position(row)
        if position is None:
            raise forgettable(_damaged(row))
        positions.append(position)
    return positions


def check_positions(db: sqlite3.Connection) -> list[Finding]:
    """The positions that are damaged; a repair forgets them."""
    found = db.execute(_SELECT) if has_table(db, "positions") else ()
    return [_damaged(row) for row in found if _position(row) is None]


def _damaged(row: tuple[Any, ...]) -> Finding:
    topic, name = (bytes(each).decode(errors="replace") for each in row[:2])
    detail = f"the position of subscription {name!r} in topic {topic!r} is damaged"
    return Finding(FindingKind.UNREADABLE, detail=detail)


def copy_positions(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Take over what is whole into a rebuilt store."""
    whole: list[Position] = []
    with contextlib.suppress(sqlite3.Error):
        if has_table(source, "positions"):
            whole = [*filter(None, map(_position, source.execute(_SELECT)))]
    if whole:
        target.execute("BEGIN IMMEDIATE")
        put_positions(target, whole)
        target.execute("COMMIT")


def _position(row: tuple[object, ...]) -> Position | None:
    """A position as it was written; None where it is not."""
    topic, name, written, seal = row
    if not isinstance(written, bytes) or _seal(written) != seal:
        return None
    position = _decoder.decode(written)
    return position if (position.topic.encode(), position.name.encode()) == (topic, name) else None


def _seal(written: bytes) -> bytes:
    return blake2b(written, digest_size=HASH_BYTES).digest()
