"""Backup and restore: a home copied at one moment, beside whoever writes it, and put back.

A backup is a home: a database of one epoch, its heads file, and the files that belong to them. The
copy is made out of one snapshot, so that nobody has to stop, and is read and verified as a whole
before it gets its name. A restore builds the next epoch beside what is there and makes it the valid
one in a single step, as a repair does: until then, and after a crash, everything is as it was.
"""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Final

from rumormill.log import files, schema
from rumormill.log.check import HEADS_NAME, damaged, find_witness
from rumormill.log.errors import NotAStoreError, StoreError, translated
from rumormill.log.event_log import DEFAULT_CONFIG, EventLog
from rumormill.log.heads import HeadsFile, Witness
from rumormill.log.model import Report
from rumormill.log.rows import TopicRow

KEY_FILE: Final = "identity.key"
HOME_FILES: Final = (KEY_FILE, "config.toml")
"""What a home has beside its log that is worth keeping, and is a backup's too."""
_FIRST: Final = 1


class BackupRefusedError(StoreError):
    """A backup cannot be made there, or a restore would take something away."""


def backup(home: Path | str, to: Path | str) -> Report:
    """Copy a home, at one moment, to a new directory, and verify the copy; say what is in it.

    Whoever writes the log goes on meanwhile; its write-ahead log cannot be cut until this is done.
    """
    home, to = Path(home), Path(to).absolute()
    if to.exists():
        raise BackupRefusedError(f"{to} exists already: name a directory that does not")
    source = _valid_database(home)
    with translated(str(to)):
        to.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
        try:
            _copy_store(source, draft, _FIRST)
            _copy_files(home, draft)
            report = _verified(draft)
            draft.rename(to)
            files.sync_directory(to.parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    return report


def restore(copy: Path | str, home: Path | str, *, replace: bool = False) -> Report:
    """Make a home have what a backup has; say what that is.

    No node may run there. A log that is there is left alone unless `replace` is said, and also then
    its database stays beside the new one. Identity and configuration come from the backup where
    the home has none; a home of another identity is refused.
    """
    copy, home = Path(copy), Path(home)
    source = _valid_database(copy)
    report = _verified(copy)
    schema.make_home(home)
    with translated(str(home)), schema.store_lock(home):
        _check_key(copy, home)
        epoch = schema.latest_epoch(home)
        if (epoch or (home / HEADS_NAME).exists()) and not replace:
            raise BackupRefusedError(
                f"{home} has a log already: restore into another home, or say that it is to be"
                " replaced (--replace); its database then stays beside the other"
            )
        _copy_files(copy, home)
        _copy_store(source, home, epoch + 1)
    return report


def _valid_database(home: Path) -> Path:
    """The database of a home that counts."""
    with translated(str(home)):
        witness, complaint = find_witness(home)
    if complaint is not None:
        raise damaged(home, [complaint])
    path = schema.database_path(home, witness.epoch if witness else 0)
    if witness is None or not path.exists():
        raise NotAStoreError(f"there is no rumormill store in {home}")
    return path


def _copy_store(source: Path, home: Path, epoch: int) -> None:
    """Put a database as it is now into a home, under an epoch; its heads file comes last."""
    target = schema.database_path(home, epoch)
    for leftover in (target, *(target.with_name(target.name + end) for end in ("-wal", "-shm"))):
        leftover.unlink(missing_ok=True)
    with contextlib.closing(schema.connect_reader(source)) as db:
        db.execute("VACUUM INTO ?", (str(target),))
    files.make_private(target)
    descriptor = files.open_own(target)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    files.sync_directory(home)
    with contextlib.closing(schema.connect_reader(target)) as db:
        witness, rows = _witness_of(db, epoch)
    heads = HeadsFile(home / HEADS_NAME, witness, DEFAULT_CONFIG.durability)
    heads.note(witness.generation, rows)
    heads.close()


def _witness_of(db: sqlite3.Connection, epoch: int) -> tuple[Witness, list[TopicRow]]:
    """What a heads file says of a database that is whole in itself."""
    _, store_id = schema.get_store(db)
    rows = list(schema.get_topics(db)[0].values())
    witness = Witness(store_id, epoch, DEFAULT_CONFIG.heads_sync_commits, True, heads={})
    witness.generation = max((row.generation for row in rows), default=0)
    (witness.stamp,) = db.execute("SELECT stamp FROM store").fetchone()
    return witness, rows


def _verified(home: Path) -> Report:
    """What a home's log has; everything of it is read."""
    with EventLog(home, read_only=True) as log:
        report = log.verify()
    if not report.ok:
        raise damaged(home, report.findings)
    return report


def _check_key(copy: Path, home: Path) -> None:
    ours, theirs = home / KEY_FILE, copy / KEY_FILE
    if ours.exists() and theirs.exists() and ours.read_bytes() != theirs.read_bytes():
        raise BackupRefusedError(
            f"{home} is the home of another node than the one that {copy} is a backup of: restore"
            " into a new home"
        )


def _copy_files(source: Path, target: Path) -> None:
    """Copy what belongs to a home and the other does not have."""
    for name in HOME_FILES:
        if (source / name).is_file() and not (target / name).exists():
            os.close(files.replace(target / name, (source / name).read_bytes()))
