"""Backup and restore: a home copied at one moment, beside whoever writes it, and put back.

A backup is a home: a database of one epoch, its heads file, and the files that belong to them. The
copy is made out of one snapshot, so that nobody has to stop, and is read and verified as a whole
before it gets its name. A restore builds the next epoch beside what is there and makes it the valid
one in a single step, as a repair does: until then, and after a crash, everything is as it was. A
log that is open goes over to it by itself.
"""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Final

from rumormill.core.errors import LocalError
from rumormill.log import files, schema
from rumormill.log.check import HEADS_NAME, damaged, find_witness
from rumormill.log.errors import (
    Finding,
    FindingKind,
    StoreError,
    no_store,
    translated,
)
from rumormill.log.event_log import DEFAULT_CONFIG, EventLog
from rumormill.log.heads import Head, HeadsFile, Witness, head_of
from rumormill.log.model import Report
from rumormill.log.notes import copy_notes
from rumormill.log.positions import copy_positions
from rumormill.log.reader import hash_at
from rumormill.log.records import copy_records
from rumormill.log.rows import UNKNOWN_HASH, TopicRow

KEY_FILE: Final = "identity.key"
HOME_FILES: Final = (KEY_FILE, "config.toml")
"""What a home has beside its log that is worth keeping, and is a backup's too."""
_FIRST: Final = 1
_NOT_THERE: Final = "the backup does not have them; these offsets stay empty"


class BackupRefusedError(StoreError, LocalError):
    """A backup cannot be made there, or a restore would take something away."""


def backup(home: Path | str, to: Path | str) -> Report:
    """Copy a home, at one moment, to a new directory, and verify the copy; say what is in it.

    Whoever writes the log goes on meanwhile; its write-ahead log cannot be cut until this is done.
    """
    home, to = Path(home), Path(to).absolute()
    source = _valid_database(home)
    try:
        if to.exists():
            raise BackupRefusedError(f"{to} exists already: name a directory that does not")
        to.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
    except OSError as error:
        raise BackupRefusedError(
            f"{to} cannot be made: {error.strerror}; name a directory where you may write"
        ) from error
    with translated(str(to), "the backup"):
        try:
            _copy_store(source, made, _FIRST)
            _copy_files(home, made)
            report = _verified(made)
            made = made.rename(to)
            files.sync_directory(to.parent)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    return report


def restore(copy: Path | str, place: Path | str | EventLog, *, replace: bool = False) -> Report:
    """Make a home have what a backup has; say what that is, and which offsets stay empty.

    The home is one that nobody has open, or that of a log that is open for writing, which goes on
    with what the backup has (`EventLog.renew`). A log with events is left alone unless `replace` is
    said, and also then its database stays beside the new one. No offset is used again: what the log
    had beyond the backup is recorded as lost, and the next event comes behind it. Identity,
    configuration, notes and named subscriptions come from the backup where the home has none; a
    home of another identity is refused.
    """
    copy = Path(copy)
    source, report = _valid_database(copy), _verified(copy)
    home = place.home if isinstance(place, EventLog) else Path(place)
    if home is not None and home.is_dir() and home.samefile(copy):
        raise BackupRefusedError(f"{copy} is that home itself: name the directory of a backup")
    if isinstance(place, EventLog):
        return place.renew(lambda home: _restore(copy, source, home, report, replace))
    schema.make_home(Path(place))
    with schema.store_lock(Path(place)):
        return _restore(copy, source, Path(place), report, replace)


def _restore(copy: Path, source: Path, home: Path, report: Report, replace: bool) -> Report:
    """Build the next epoch from the backup; the caller has the right to write."""
    with translated(str(home)):
        _check_key(copy, home)
        witness, complaint = find_witness(home)
        is_empty = complaint is None and (witness is None or not witness.heads)
        if not is_empty and not replace:
            raise BackupRefusedError(
                f"{home} has a log already: restore into another home, or say that it is to be"
                " replaced (--replace); its database then stays beside the other"
            )
        _copy_files(copy, home)
        epoch = schema.latest_epoch(home)
        if witness is None and epoch:  # what the database says is all that is known
            witness = Witness(b"", epoch, 0, flushed=False)
        empty = _copy_store(source, home, epoch + 1, witness)
    return Report(tuple(empty), report.events, report.size)


def _valid_database(home: Path) -> Path:
    """The database of a home that counts."""
    with translated(str(home)):
        witness, complaint = find_witness(home)
    if complaint is not None:
        raise damaged(home, [complaint])
    path = schema.database_path(home, witness.epoch if witness else 0)
    if witness is None or not path.exists():
        raise no_store(home)
    return path


def _copy_store(
    source: Path, home: Path, epoch: int, before: Witness | None = None
) -> list[Finding]:
    """Put a database as it is now into a home, under an epoch; its heads file comes last.

    Where the home had a log before, that one's offsets are not used again: say which stay empty.
    """
    target = schema.database_path(home, epoch)
    for leftover in (target, *(target.with_name(target.name + end) for end in ("-wal", "-shm"))):
        leftover.unlink(missing_ok=True)
    empty: list[Finding] = []
    with files.unfinished(target, home / HEADS_NAME):
        os.close(files.create(target))  # or SQLite would make it, as the umask has it
        with contextlib.closing(schema.connect_reader(source)) as db:
            with translated(str(source.parent)):
                schema.has_schema(db)  # opens all of its files, which may need room there
            db.execute("VACUUM INTO ?", (str(target),))
        if before is not None:
            old = schema.database_path(home, before.epoch)
            with contextlib.closing(schema.connect_writer(target, DEFAULT_CONFIG)) as db:
                empty = _go_on_behind(db, before, old)
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
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
    return empty


def _go_on_behind(db: sqlite3.Connection, before: Witness, old: Path) -> list[Finding]:
    """Have a copy go on behind everything that a log had, and keep its notes and positions."""
    heads = {head.name: head for head in before.heads.values()}
    dates: dict[str, float] = {}
    copied = {row.name: row for row in schema.get_topics(db)[0].values()}
    with contextlib.suppress(sqlite3.Error), contextlib.closing(schema.connect_reader(old)) as live:
        for each in schema.get_topics(live)[0].values():
            _check_history(live, each, copied.get(each.name))
            dates[each.name] = each.received_max
            if each.name not in heads or heads[each.name].next_offset < each.next_offset:
                heads[each.name] = head_of(each)
        copy_notes(live, db)
        copy_positions(live, db)
        if schema.has_table(live, "records"):
            db.execute("DROP TABLE IF EXISTS records")
            copy_records(live, db)
    empty: list[Finding] = []
    with schema.transaction(db):
        rows = copied
        for head in heads.values():
            _check_history(db, rows.get(head.name), head)
        number = max((row.topic_id for row in rows.values()), default=0)
        for head in heads.values():
            row = rows.get(head.name)
            if row is None:
                number += 1
                first = head.first_offset
                row = TopicRow(number, head.name, first, UNKNOWN_HASH, first, head.head_hash)
            elif head.next_offset <= row.next_offset:
                continue
            if row.next_offset < head.next_offset:
                lost = (row.next_offset, head.next_offset)
                schema.put_loss(db, row.topic_id, *lost)
                empty.append(Finding(FindingKind.MISSING, head.name, *lost, _NOT_THERE))
            row.next_offset, row.head_hash = head.next_offset, head.head_hash
            # Numbers of our own follow the latest date, also that of what is taken back.
            row.received_max = max(row.received_max, dates.get(head.name, row.received_max))
            schema.put_topics(db, [row])
    return empty


def _check_history(
    db: sqlite3.Connection, longer: TopicRow | None, shorter: TopicRow | Head | None
) -> None:
    """Refuse a copy whose events lie where other events of the same topic lay.

    Of two histories the longer one, in `db`, has the last event of the other at the same offset,
    and with its hash all before it; where that is no longer there, nobody can tell.
    """
    if longer is None or shorter is None or not 0 < shorter.next_offset <= longer.next_offset:
        return
    last = shorter.next_offset - 1
    whole = longer.next_offset == shorter.next_offset
    found = longer.head_hash if whole else hash_at(db, longer, last)
    if found not in (None, UNKNOWN_HASH) and shorter.head_hash not in (found, UNKNOWN_HASH):
        raise BackupRefusedError(
            f"the backup is of another history: at offset {last} of topic {longer.name!r} it has"
            " another event than was there, and no offset is used for two; restore it into a new"
            " home"
        )


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
