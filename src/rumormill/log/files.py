"""What the store asks of the file system: files that are private, and stay.

The rules of this file: what it creates belongs to its owner alone, whatever the umask; it never
follows a symbolic link in the place of a file; and what it says is on the disk was flushed, content
and name, with every error told.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FOLDER: Final = 0o700
_FILE: Final = 0o600
_PIECE: Final = 1 << 20
_OWN: Final = os.O_NOFOLLOW | os.O_CLOEXEC

flush = getattr(os, "fdatasync", os.fsync)
"""Flush a file's content; macOS only has the call that flushes its metadata as well."""


def make_folder(path: Path) -> None:
    """Create a directory, for its owner only; one that is there is left as it is."""
    if path.is_dir():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(_FOLDER)
        path.chmod(_FOLDER)  # the umask may have taken more away
    except FileExistsError:
        if not path.is_dir():
            raise


def keep_name(path: Path) -> None:
    """Make sure that a directory, and those above it, are still found after a power cut.

    Whoever created them may have died before that was certain, so it is not asked who did.
    """
    with contextlib.suppress(PermissionError):  # who may not look into one cannot flush it either
        for above in path.absolute().parents:
            sync_directory(above)


def open_own(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file of ours, created if `flags` say so, and close it to others where we may."""
    descriptor = os.open(path, flags | _OWN, _FILE)
    found = os.fstat(descriptor)
    if stat.S_IMODE(found.st_mode) != _FILE and found.st_uid == os.geteuid():
        os.fchmod(descriptor, _FILE)
    return descriptor


def make_private(path: Path) -> None:
    """Close a file that is there to others, where we may; refuse a link in its place.

    A file that needs nothing is not even opened: to close it again would let go of the locks that
    this process has on it.
    """
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode) or stat.S_IMODE(mode) != _FILE:
        os.close(open_own(path))


def create(path: Path) -> int:
    """Open a file that was not there: no link, and no file that others prepared."""
    return open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def replace(path: Path, content: bytes) -> int:
    """Put a new file, flushed, in the place of what is there, in one step; return it, open."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = create(draft)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
        draft.replace(path)
        sync_directory(path.parent)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return descriptor


def state_of(path: Path) -> tuple[int, int] | None:
    """Which file has a name, and when it was changed; to ask takes no descriptor."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns


def rewrite(path: Path) -> None:
    """Put a file on the disk as it reads now.

    After a flush that failed, the system goes on to show content that is not on the disk, counts
    it as clean, and will not write it: only writing it again does. This is done in place, because
    other processes may read the file meanwhile. To them nothing changes, and a power cut on the
    way finds each part of the file either as it was on the disk or as it reads.
    """
    descriptor = open_own(path)
    try:
        position = 0
        while piece := os.pread(descriptor, _PIECE, position):
            position += os.pwrite(descriptor, piece, position)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Flush a directory, so that created and renamed files in it stay after a crash."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def spare_bytes(path: str | Path, reserve: int) -> int:
    """What is free beside a reserve, which is at most a quarter of the file system."""
    disk = os.statvfs(path)
    return disk.f_frsize * disk.f_bavail - min(reserve, disk.f_frsize * disk.f_blocks // 4)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it, in as many steps as the system needs."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def unfinished(path: Path, mark: Path) -> Iterator[None]:
    """While a database is being made that counts from when `mark` is replaced; who is interrupted
    before leaves nothing of it."""
    before = state_of(mark)
    try:
        yield
    except BaseException:
        if state_of(mark) != before:
            raise
        for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            with contextlib.suppress(OSError):
                each.unlink(missing_ok=True)
        raise
