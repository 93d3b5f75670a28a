"""What can go wrong with a log: findings name the damage, and errors are what a caller meets.

There is one class of error for each thing that a caller does differently about it, and its message
is one sentence that names the file or the topic and says what to do. A caller that catches
`StoreError` has caught everything the store raises on purpose.
"""

import contextlib
import enum
import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from rumormill.core.errors import LimitError, LocalError, RumormillError


class FindingKind(enum.StrEnum):
    """What kind of damage was found."""

    DAMAGED = "damaged"
    """The row or its page does not have the content that its hash promises."""
    MISSING = "missing"
    """A row between the first and the next offset is not there."""
    LOST_TAIL = "lost-tail"
    """The heads file has seen offsets that the database does not have: its tail was lost, or it
    is an older copy."""
    FORKED = "forked"
    """The row is whole but belongs to another history than its neighbour or the heads file."""
    OLD_COPY = "old-copy"
    """The database file is older than the heads file says it must be."""
    UNREADABLE = "unreadable"
    """The database cannot be opened, or the record of this topic cannot be read."""
    INDEX = "index"
    """SQLite's own check of its trees and indexes fails; served events are still verified."""
    HEADS = "heads"
    """The heads file is missing, damaged, of another store, or an older copy."""
    REPAIRED = "repaired"
    """A repair has recorded this range as lost; its offsets stay empty for ever."""


class Finding(msgspec.Struct, frozen=True, gc=False):
    """One piece of damage. Without a topic it concerns the store as a whole."""

    kind: FindingKind
    topic: str | None = None
    start: int = 0
    end: int = 0
    detail: str = ""

    def sentence(self) -> str:
        """The finding in words."""
        where = "the store"
        if self.topic is not None:
            where = f"topic {self.topic!r} offsets {self.start} to {self.end - 1}"
        return f"{where}: {self.kind}" + (f" ({self.detail})" if self.detail else "")


class StoreError(RumormillError):
    """The root of all errors of the durable log."""


class StoreReadOnlyError(StoreError):
    """The store's directory or one of its files cannot be written."""


class DiskFullError(StoreError):
    """There is no room for the append; it was not acknowledged, and a retry is safe."""


class NoDescriptorsError(StoreError):
    """The process has no file descriptor left; nothing was done, and a retry is safe."""


class StoreLockedError(StoreError, LocalError):
    """Another process, or this one, already has the store open for writing."""

    def __init__(self, held: str, advice: str = "") -> None:
        super().__init__(f"{held}{advice}")
        self.held = held
        """Who holds which store, for those who give advice of their own."""


class StoreVersionError(StoreError):
    """The store was written by a newer rumormill."""


class NotAStoreError(StoreError, LocalError):
    """There is no rumormill store at this path."""


def no_store(home: Path) -> NotAStoreError:
    """Say that a directory is no home, or not yet."""
    return NotAStoreError(
        f"there is no rumormill store in {home}: name the home of a node;"
        " `rumormill node` makes one"
    )


class StoreClosedError(StoreError):
    """The log was closed before or while the call was made."""


class StoreFailedError(StoreError):
    """The disk failed under the writer: whether the last group is kept is known after reopening."""


class ImportRefusedError(StoreError, LocalError):
    """A file to import is damaged or does not continue the history that the log already has."""


class MissingExtraError(StoreError):
    """An optional dependency is not installed; the message names the extra."""


class QueueFullError(StoreError, LimitError):
    """The writer's queue has no room and the caller chose not to wait."""


class EventRefusedError(StoreError, LimitError):
    """An event cannot be stored: too large, or a field of it is not what it should be."""


class OffsetGoneError(StoreError):
    """Retention has deleted the asked offset; `first_offset` is the oldest that is left."""

    def __init__(self, topic: str, offset: int, first_offset: int) -> None:
        super().__init__(
            f"topic {topic!r}: offset {offset} was deleted by retention, "
            f"the oldest kept offset is {first_offset}"
        )
        self.topic, self.offset, self.first_offset = topic, offset, first_offset


class OffsetAheadError(StoreError, LocalError):
    """A reader asks for an offset that the log never gave: one of the two is an old copy."""

    def __init__(self, topic: str, offset: int, next_offset: int) -> None:
        super().__init__(
            f"topic {topic!r}: offset {offset} is ahead of the log, whose next offset is "
            f"{next_offset}: the reader's position or the store comes from another history"
        )
        self.topic, self.offset, self.next_offset = topic, offset, next_offset


class CorruptLogError(StoreError):
    """Damage was found; `findings` say what, in which topic, in which range of offsets."""

    def __init__(self, message: str, findings: Sequence[Finding]) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class DamagedRangeError(CorruptLogError):
    """The asked events are damaged or lost; reading may go on at `end`."""

    def __init__(self, finding: Finding) -> None:
        known = finding.kind is FindingKind.REPAIRED
        advice = "" if known else "; `rumormill repair` gives it up, or restore a backup"
        super().__init__(f"not served: {finding.sentence()}{advice}", (finding,))
        self.topic, self.start, self.end = finding.topic, finding.start, finding.end


def forgettable(finding: Finding) -> CorruptLogError:
    """Damage to what is kept beside events."""
    advice = "; `rumormill repair` forgets it, or restore a backup"
    return CorruptLogError(f"{finding.sentence()}{advice}", (finding,))


class RecordDamagedError(sqlite3.DatabaseError):
    """A record of the store itself is not what was written; inside the store only."""


def import_extra(sentence: str, *names: str) -> tuple[Any, ...]:
    """Modules of an optional dependency, or one sentence about how to get it."""
    try:
        return tuple(map(import_module, names))
    except (ImportError, OSError) as error:  # either, where a file of it cannot be opened
        if lacks_descriptors(error) or not _descriptors_left():
            raise _no_descriptors(f"load {names[0]}") from error
        raise MissingExtraError(sentence) from None


_READ_ONLY_CODES = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_CORRUPT_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNREADABLE_CODES = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)
_READ_ONLY_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_DESCRIPTOR_ERRNOS = (errno.EMFILE, errno.ENFILE)
_CONNECTION_FILES = 4
"""The database, its write-ahead log, the log's index, and the directory."""
STORE: Final = "the store"
"""What a path is, where nothing else is said."""
_LEAST_ROOM = 1 << 20
"""Less than this is no room for a store: its first files take half of it."""


def is_corruption(error: sqlite3.Error) -> bool:
    """Whether SQLite itself says that the file is damaged."""
    return _primary_code(error) in _CORRUPT_CODES


def is_damage(error: sqlite3.Error) -> bool:
    """Whether what is in the file cannot be had, now or later: it is damaged, or not readable."""
    return is_corruption(error) or getattr(error, "sqlite_errorcode", None) in _UNREADABLE_CODES


def from_sqlite(error: sqlite3.Error, where: str, what: str = STORE) -> StoreError:
    """Say in the store's words what SQLite reported about the file `where`."""
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return _no_room(where, what)
    if lacks_descriptors(error):
        return _no_descriptors(f"open {what} {where}")
    if code in _READ_ONLY_CODES:
        return StoreReadOnlyError(f"{what} {where} cannot be opened for writing: {error}")
    if code in _CORRUPT_CODES:
        return CorruptLogError(f"{what} {where} is damaged: {error}", ())
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLockedError(f"{what} {where} is locked by another program: {error}")
    return _failed(where, what, str(error))


def lacks_descriptors(error: Exception) -> bool:
    """Whether something could not be opened for want of a descriptor; ask before others close."""
    if not isinstance(error, sqlite3.Error):
        return getattr(error, "errno", None) in _DESCRIPTOR_ERRNOS
    return _primary_code(error) == sqlite3.SQLITE_CANTOPEN and not _descriptors_left()


def has_no_room(error: sqlite3.Error, home: Path) -> bool:
    """Whether SQLite's "disk I/O error", while a store is opened, means that the disk is full.

    It says so where it cannot make its shared index; elsewhere the file system has to be asked.
    """
    if _primary_code(error) != sqlite3.SQLITE_IOERR:
        return False
    if lacks_index_room(error):
        return True
    room = os.statvfs(home)
    return room.f_bavail * room.f_frsize < _LEAST_ROOM


def lacks_index_room(error: sqlite3.Error) -> bool:
    """Whether a database's shared index could not be made or grow for want of room.

    Who reads or copies files may say that the disk is full. The one who writes may not: events of
    the commit that failed so may be in the write-ahead log.
    """
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE


def from_os(error: OSError, where: str, what: str = STORE) -> StoreError:
    """Say in the store's words what the operating system reported about the file `where`."""
    if error.errno in _READ_ONLY_ERRNOS:
        return StoreReadOnlyError(f"{what} {where} cannot be written: {error.strerror}")
    if error.errno in _FULL_ERRNOS:
        return _no_room(where, what)
    if lacks_descriptors(error):
        return _no_descriptors(f"open {what} {where}")
    if error.errno == errno.ELOOP:
        return StoreFailedError(
            f"in {what} {where} a symbolic link stands for {error.filename}: remove it"
        )
    return _failed(where, what, str(error.strerror or error))


def _no_room(where: str, what: str) -> DiskFullError:
    return DiskFullError(f"no room left for {what} {where}: free some space and try again")


def _failed(where: str, what: str, why: str) -> StoreFailedError:
    if what == STORE:
        advice = "failed and must be reopened (`rumormill repair`, or a restart)"
    else:
        advice = "could not be made, and nothing of it is left"
    return StoreFailedError(f"{what} {where} {advice}: {why}")


def _no_descriptors(what: str) -> NoDescriptorsError:
    return NoDescriptorsError(
        f"no file descriptor is left to {what}: close files or connections, or raise the limit of"
        " open files (`ulimit -n`), and try again"
    )


def _descriptors_left() -> bool:
    """Whether there are as many as a connection needs, of which SQLite does not say a word."""
    with contextlib.ExitStack() as opened:
        try:
            for _ in range(_CONNECTION_FILES):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            return error.errno not in _DESCRIPTOR_ERRNOS
    return True


@contextlib.contextmanager
def translated(where: str, what: str = STORE) -> Iterator[None]:
    """Raise what SQLite and the operating system report in the store's words; not for the writer.

    `what` is made there where it is no store: a backup, a file.
    """
    try:
        yield
    except sqlite3.Error as error:
        full = lacks_index_room(error)
        raise (_no_room(where, what) if full else from_sqlite(error, where, what)) from error
    except OSError as error:
        raise from_os(error, where, what) from error


def _primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without the extended part; -1 where Python gives none."""
    if isinstance(error, RecordDamagedError):
        return sqlite3.SQLITE_CORRUPT
    code = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else int(code) & 0xFF
