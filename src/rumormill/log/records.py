"""Records: what a node holds for the distributed hash table of its network, in a table of its own.

They are written in the transaction of the events and notes that came with them. Whoever has them
written says how many there are and removes what is too much; here every record bears a seal, and
one that is not whole is as if it had never been kept: the table has other holders.

The table is made when it is first needed.
"""

import contextlib
import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from rumormill.core.event import Kept, KeptRecord, Note, Position
from rumormill.log.many import Insert, delete
from rumormill.log.notes import put_notes
from rumormill.log.positions import put_positions
from rumormill.log.reader import Log
from rumormill.log.rows import HASH_BYTES
from rumormill.log.schema import has_table

_CREATE: Final = """CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    value BLOB NOT NULL,
    proof BLOB NOT NULL,
    since REAL NOT NULL,
    own INTEGER NOT NULL,
    source BLOB NOT NULL,
    seal BLOB NOT NULL
)"""
_FIELDS: Final = "key, value, proof, since, own, source, seal"
_PUT: Final = Insert(f"INSERT OR REPLACE INTO records ({_FIELDS})", 7)


def put_kept(db: sqlite3.Connection, kept: Sequence[Kept | Position]) -> None:
    """Write notes, records and positions in the open transaction."""
    put_notes(db, [each for each in kept if isinstance(each, Note)])
    put_records(db, [each for each in kept if isinstance(each, KeptRecord)])
    put_positions(db, [each for each in kept if isinstance(each, Position)])


def put_records(db: sqlite3.Connection, records: Sequence[KeptRecord]) -> None:
    """Write records in the open transaction, of each key the last; without a value, remove it."""
    if not records:
        return
    db.execute(_CREATE)
    latest = {record.key: record for record in records}
    delete(db, "records", [key for key, record in latest.items() if record.value is None])
    rows = [
        (key, record.value, record.proof, record.since, int(record.own), record.source)
        for key, record in latest.items()
        if record.value is not None
    ]
    _PUT.put(db, [(*row, _seal(*row)) for row in rows])


def read_records(
    log: Log, after: bytes, limit: int, most_bytes: int
) -> tuple[list[KeptRecord], bool]:
    """The records behind a key, by their keys, at most so many and so many bytes but for the last;
    and whether more are there."""
    found: list[KeptRecord] = []
    with log.snapshot() as db:
        if not has_table(db, "records"):
            return found, False
        query = f"SELECT {_FIELDS} FROM records WHERE key > ? ORDER BY key"
        for row in db.execute(query, (after,)):
            if len(found) >= limit or most_bytes <= 0:
                return found, True
            record = _record(row)
            if record is not None:
                found.append(record)
                most_bytes -= len(row[1])
    return found, False


def copy_records(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Take over what is whole into a rebuilt store."""
    with contextlib.suppress(sqlite3.Error):
        if has_table(source, "records"):
            target.execute("BEGIN IMMEDIATE")
            with contextlib.suppress(sqlite3.DatabaseError):
                for row in source.execute(f"SELECT {_FIELDS} FROM records ORDER BY number"):
                    record = _record(row)
                    if record is not None:
                        put_records(target, (record,))
            target.execute("COMMIT")


def _record(row: tuple[Any, ...]) -> KeptRecord | None:
    """A record as it was written; None where it is not."""
    key, value, proof, since, own, source, seal = row
    blobs = (key, value, proof, source)
    if not all(isinstance(each, bytes) for each in blobs) or not isinstance(since, float):
        return None
    if own not in (0, 1) or _seal(key, value, proof, since, own, source) != seal:
        return None
    return KeptRecord(key, value, proof, since, bool(own), source)


def _seal(key: bytes, value: bytes, proof: bytes, since: float, own: int, source: bytes) -> bytes:
    """The hash of a record; lengths keep its parts apart."""
    content = blake2b(digest_size=HASH_BYTES)
    for part in (key, value, proof, since.hex().encode(), b"%d" % own, source):
        content.update(len(part).to_bytes(4, "little"))
        content.update(part)
    return content.digest()
