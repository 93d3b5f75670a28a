"""How a store is opened: what is on the disk is checked first, and damage has a name.

Opening for writing ends in a state that the database and its heads file agree on; whatever keeps
them from that raises, and changes nothing that is there. Opening for reading takes a damaged store
too, and says what is wrong with it.
"""

import contextlib
import sqlite3
from pathlib import Path

import msgspec

from rumormill.log import check, errors, schema
from rumormill.log.check import State
from rumormill.log.heads import HeadsFile, Witness, head_of
from rumormill.log.model import StoreConfig


class Opened(msgspec.Struct):
    """A store that was opened: the epoch that counts, and what is in it."""

    path: Path
    epoch: int
    state: State


class OpenedToWrite(Opened):
    """The same, with what writes it."""

    db: sqlite3.Connection
    heads: HeadsFile


def open_writing(home: Path, config: StoreConfig) -> OpenedToWrite:
    """Open the store of a home, whose lock the caller holds; one that is not there is made."""
    where = str(home)
    with errors.translated(where):
        witness, complaint = check.find_witness(home)
        if witness is None and complaint is None and schema.latest_epoch(home) == 0:
            witness = check.new_witness(home, config)
        epoch = witness.epoch if witness else schema.latest_epoch(home)
        path = schema.database_path(home, epoch)
        is_new = not path.exists() or path.stat().st_size == 0
        if is_new and witness is not None and witness.generation > 0:
            detail = f"{path.name} is missing or empty"
            raise check.damaged(home, check.all_lost(witness, detail).findings)
        if is_new:
            # Leftovers of a database that is gone must not be played into the new one.
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
        if witness is not None or not is_new:
            half_folded = witness is not None and witness.half_folded
            schema.secure_database(path, half_folded=half_folded)
    with contextlib.ExitStack() as undo:
        state, db = _open_database(home, path, witness, complaint, config, undo)
        if witness is None:
            raise AssertionError("a store without heads has a finding")
        # What the database has, and has flushed, is what the new heads file begins with. Its lag
        # after a power cut must not add to that of the next.
        witness.generation = max(witness.generation, state.generation)
        witness.half_folded = False
        witness.heads = {row.topic_id: head_of(row) for row in state.topics.values()}
        witness.slack = config.heads_sync_commits
        with errors.translated(where):
            heads = HeadsFile(home / check.HEADS_NAME, witness, config.durability)
        undo.pop_all()
    return OpenedToWrite(path, epoch, state, db, heads)


def _open_database(
    home: Path,
    path: Path,
    witness: Witness | None,
    complaint: errors.Finding | None,
    config: StoreConfig,
    undo: contextlib.ExitStack,
) -> tuple[State, sqlite3.Connection]:
    """Check, connect, and raise if anything is wrong.

    The check reads only. A writing connection that is closed again would fold the write-ahead
    log into the database, and with it hide from the next open what this one has found.
    """
    state: State | None = None
    try:
        if path.exists() and path.stat().st_size > 0:
            with contextlib.closing(schema.connect_reader(path)) as db:
                state = _examine(db, home, path, witness, config)
            if state is not None:
                check.refuse_damage(home, complaint, state)
        db = schema.connect_writer(path, config)
        undo.callback(db.close)
        if witness is not None and not schema.has_schema(db):
            schema.create_schema(db, witness.store_id)
        schema.migrate(db, schema.check_version(db, str(home)))
        if state is None:
            state = check.examine(db, path, witness, config.open_verify_bytes)
            check.refuse_damage(home, complaint, state)
    except (sqlite3.Error, OSError, errors.NotAStoreError) as error:
        raise check.opening_error(home, witness, error) from error
    return state, db


def open_reading(home: Path, config: StoreConfig) -> Opened:
    """Open the store of a home beside whoever writes it; `state.findings` say what is wrong."""
    with errors.translated(str(home)):
        # The heads are read first: the database, read later, must not be behind them.
        witness, complaint = check.find_witness(home)
        epoch = witness.epoch if witness else schema.latest_epoch(home)
        path = schema.database_path(home, epoch)
        if witness is None and complaint is None and epoch == 0:
            raise errors.no_store(home)
    try:
        if not path.exists():
            raise check.damaged(home, check.all_lost(witness, f"{path.name} is missing").findings)
        with contextlib.closing(schema.connect_reader(path)) as db:
            state = _examine(db, home, path, witness, config)
            if state is None or schema.get_store(db)[0] != schema.SCHEMA_VERSION:
                raise errors.StoreVersionError(
                    f"the store {home} has an older version: open it for writing once"
                )
    except (sqlite3.Error, OSError, errors.NotAStoreError) as error:
        raise check.opening_error(home, witness, error) from error
    state.findings = ([] if complaint is None else [complaint]) + state.findings
    return Opened(path, epoch, state)


def _examine(
    db: sqlite3.Connection, home: Path, path: Path, witness: Witness | None, config: StoreConfig
) -> State | None:
    """What is in a database; None if it must be created."""
    if not schema.has_schema(db):
        if witness is None or witness.generation > 0:
            raise check.damaged(home, check.all_lost(witness, f"{path.name} is empty").findings)
        return None
    schema.check_version(db, str(home))
    db.execute("BEGIN")
    return check.examine(db, path, witness, config.open_verify_bytes)


def close_unfolded(db: sqlite3.Connection, path: Path) -> None:
    """Close a writing connection so that its write-ahead log stays as it is.

    The last connection folds the write-ahead log into the database and deletes it. After a flush
    that failed, SQLite cannot know what of the database file is on the disk, and into a damaged
    file nothing is written. A connection that only reads lets the log stay.
    """
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(schema.connect_reader(path)) as last,
    ):
        schema.has_schema(last)  # from its first read on it counts
        db.close()
    db.close()
