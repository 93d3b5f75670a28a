"""Notes: small records that are committed together with events, or not at all.

Whoever publishes on behalf of another program, and may be told to publish the same again, notes how
far it has come in the same transaction that keeps the events. After a crash both are there or
neither is. A note carries a seal like every record of the store; one that is not whole counts as
damage, because believing it either way would repeat or lose events.

The table is made when it is first needed. Notes are few: old ones go when there are too many.
"""

import contextlib
import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from rumormill.core.event import Note
from rumormill.log.errors import Finding, FindingKind, forgettable
from rumormill.log.many import Insert, delete
from rumormill.log.reader import Log
from rumormill.log.rows import HASH_BYTES
from rumormill.log.schema import has_table

MAX_NOTES: Final = 100_000
"""Our choice: about 20 MB. A stream that writes leaves as many as it has partitions."""

MAX_KEY_BYTES: Final = 512

LATEST: Final = "moment"
"""The note of how far a node's numbers have come, which nothing pushes out."""

_OWN: Final = ("followed/", "sync/", "deleted/", "access/", "pulsarcast/")


def is_own(key: str) -> bool:
    """Whether a note is a node's or a log's own, and nobody's who publishes through a node."""
    return key in (LATEST, "members") or key.startswith(_OWN)


_CREATE: Final = """CREATE TABLE IF NOT EXISTS notes (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    value BLOB NOT NULL,
    seal BLOB NOT NULL
)"""
DELETED: Final = "deleted/"
"""Under this and a topic's name, a note keeps whose events were deleted, up to which date. There is
one of a topic at most, so these are not counted, and push no other out."""

_KEEP_NEWEST: Final = f"""DELETE FROM notes WHERE key != ?
    AND key NOT GLOB '{DELETED}*' AND number <= (SELECT number FROM notes
    WHERE key NOT GLOB '{DELETED}*' ORDER BY number DESC LIMIT 1 OFFSET ?)"""
"""Counts notes, not numbers: one that is written over and over pushes no other out."""
_SELECT: Final = "SELECT CAST(key AS BLOB), value, seal FROM notes ORDER BY number"
"""Keys as they lie there: one that is no text any more must not keep us from the others."""
_PUT: Final = Insert("INSERT OR REPLACE INTO notes (key, value, seal)", 3)


def put_notes(db: sqlite3.Connection, notes: Sequence[Note]) -> None:
    """Write notes in the open transaction, of each key the last."""
    if not notes:
        return
    latest = {note.key: note.value for note in notes}
    db.execute(_CREATE)
    delete(db, "notes", [key for key, value in latest.items() if not value])
    kept = [(key, value) for key, value in latest.items() if value]
    _PUT.put(db, [(key, value, _seal(key.encode(), value)) for key, value in kept])
    db.execute(_KEEP_NEWEST, (LATEST, MAX_NOTES))


def read_note(log: Log, key: str) -> bytes | None:
    """The value under a key, None if there is none."""
    with log.snapshot() as db:
        return get_note(db, key)


def get_note(db: sqlite3.Connection, key: str) -> bytes | None:
    """The same, where the store is."""
    if not has_table(db, "notes"):
        return None
    found = db.execute("SELECT value, seal FROM notes WHERE key = ?", (key,)).fetchone()
    if found is None:
        return None
    if not _is_whole(key, *found):
        raise forgettable(_damaged(key))
    return bytes(found[0])


def check_notes(db: sqlite3.Connection) -> list[Finding]:
    """The notes that are damaged; a repair forgets them."""
    found = []
    if has_table(db, "notes"):
        for key, value, seal in db.execute(_SELECT):
            if not _is_whole(key, value, seal):
                found.append(_damaged(bytes(key).decode(errors="replace")))
    return found


def read_notes(log: Log, prefix: str, after: str, limit: int) -> list[Note]:
    """The notes whose keys begin with a text, by their keys, behind one key, at most so many."""
    with log.snapshot() as db:
        if not has_table(db, "notes"):
            return []
        query = (
            "SELECT CAST(key AS BLOB), value, seal FROM notes"
            " WHERE key > ? AND substr(key, 1, ?) = ? ORDER BY key LIMIT ?"
        )
        found = db.execute(query, (after, len(prefix), prefix, limit)).fetchall()
    whole = [(key, value) for key, value, seal in found if _is_whole(key, value, seal)]
    return [Note(key.decode(), bytes(value)) for key, value in whole]


def drop_notes(log: Log, keys: Sequence[str]) -> None:
    """Forget notes; returns when they are gone."""

    def body(db: sqlite3.Connection) -> None:
        if has_table(db, "notes"):
            delete(db, "notes", keys)

    log.change(body)


def note_keys(log: Log, prefix: str) -> list[str]:
    """The keys that begin with a text."""
    with log.snapshot() as db:
        if not has_table(db, "notes"):
            return []
        query = "SELECT key FROM notes WHERE substr(key, 1, ?) = ? ORDER BY number"
        return [key for (key,) in db.execute(query, (len(prefix), prefix))]


def copy_notes(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Take over what is whole into a rebuilt store."""
    whole: list[Note] = []
    with contextlib.suppress(sqlite3.Error):
        if has_table(source, "notes"):
            for key, value, seal in source.execute(_SELECT):
                if _is_whole(key, value, seal):
                    whole.append(Note(key.decode(), bytes(value)))
    if whole:
        target.execute("BEGIN IMMEDIATE")
        put_notes(target, whole)
        target.execute("COMMIT")


def _damaged(key: str) -> Finding:
    return Finding(FindingKind.UNREADABLE, detail=f"the note {key!r} is damaged")


def _is_whole(key: str | bytes, value: object, seal: object) -> bool:
    encoded = key.encode() if isinstance(key, str) else key
    return isinstance(value, bytes) and _seal(encoded, value) == seal


def _seal(encoded: bytes, value: bytes) -> bytes:
    content = len(encoded).to_bytes(4, "little") + encoded + value
    return blake2b(content, digest_size=HASH_BYTES).digest()
