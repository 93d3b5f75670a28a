"""A disk for programs under test: its writes and flushes fail on demand, and its power can be cut.

`disk.c`, preloaded, keeps a journal of what a program does to the files below one directory. Here
is the model that says what of it is on the disk, page by page:

  - a flush that succeeds puts a file's pages and its size there; one that fails puts nothing there
    and marks the pages as clean, so that they stay readable and reach the disk only if they are
    written again;
  - a name (of a new file, a renamed or deleted one) is there when its directory was flushed, and
    not when the file was: some file systems promise more, POSIX does not;
  - what was not flushed may be there all the same. A cut without luck loses all of it. With luck,
    from a seed, each page is as it was after some write since its last flush, or as at that flush,
    each size likewise, and of the names that were not flushed the first few are there, in order.

Shared memory of SQLite (`-shm`) is no data: it is gone after a cut.
"""

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from processes import environment

PAGE = 4096
SOURCE = Path(__file__).with_name("disk.c")
COMPILER = shutil.which("cc") if os.uname().sysname == "Linux" else None
NEEDS_COMPILER = "the disk that forgets is a library for Linux that is built with cc"

KILL = 0
"""In a rule, instead of an error: the process dies before the operation."""

_RECORD = struct.Struct("<c3xIQQQ")  # kind, bytes of the name, inode, place, bytes of content


class BestLuck(random.Random):
    """Everything that could have reached the disk did."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is None
        return start - 1

    def choice(self, seq: Any) -> Any:
        return seq[-1]


class Rule(msgspec.Struct, frozen=True):
    """Which operations fail, and how: those numbered `first` to `last` (0: all after) of a kind."""

    operation: str
    error: int
    pattern: str = "*"
    first: int = 1
    last: int = 0

    def __str__(self) -> str:
        return f"{self.operation} {self.error} {self.first} {self.last} {self.pattern}"


class Content:
    """A file: as a program sees it, and as it is on the disk."""

    def __init__(self, content: bytes = b"") -> None:
        self.cache = bytearray(content)
        self._size = len(content)
        self._sizes: list[int] = []
        self._shortest = len(content)
        self._pages = {at: content[at : at + PAGE] for at in range(0, len(content), PAGE)}
        self._versions: dict[int, list[bytes]] = {}

    def write(self, place: int, data: bytes) -> None:
        """The program writes."""
        end = place + len(data)
        self._resize(max(end, len(self.cache)))
        self.cache[place:end] = data
        for at in range(place - place % PAGE, end, PAGE):
            self._versions.setdefault(at, []).append(bytes(self.cache[at : at + PAGE]))

    def truncate(self, size: int) -> None:
        """The program cuts the file, or makes it longer."""
        self._resize(size)
        self._shortest = min(self._shortest, size)
        for at in [at for at in self._versions if at >= size]:
            del self._versions[at]
        last = size - size % PAGE
        if last in self._pages or last in self._versions:
            self._versions.setdefault(last, []).append(bytes(self.cache[last:]))

    def flush(self) -> None:
        """What is dirty reaches the disk."""
        self._pages = {at: page for at, page in self._pages.items() if at < self._shortest}
        for at in self._versions:
            self._pages[at] = bytes(self.cache[at : at + PAGE])
        self._size = self._shortest = len(self.cache)
        self.forget()
        self._sizes.clear()

    def forget(self) -> None:
        """What is dirty counts as clean without having reached the disk."""
        self._versions.clear()

    def after_cut(self, luck: random.Random | None) -> bytes:
        """What is on the disk when the power is cut now."""
        size, pages = self._size, dict(self._pages)
        if luck is not None:
            size = luck.choice([size, *self._sizes])
            for at, versions in self._versions.items():
                kept = luck.randrange(len(versions) + 1)
                if kept:
                    pages[at] = versions[kept - 1]
        content = bytearray(size)
        for at, page in pages.items():
            part = page[: max(0, size - at)]
            content[at : at + len(part)] = part
        return bytes(content)

    def _resize(self, size: int) -> None:
        if size != len(self.cache):
            self._sizes.append(size)
        del self.cache[size:]
        self.cache.extend(bytes(size - len(self.cache)))


Names = dict[str, Content | None]
"""Files by their paths; None is a directory."""


class Model:
    """What is on the disk, after the operations of a journal."""

    def __init__(self, names: Names, inodes: dict[int, Content]) -> None:
        self.names = names
        self._inodes = inodes
        self._flushed = dict(names)
        self._pending: list[tuple[str, str, Content | None]] = []
        """Changes of names that were not flushed: `+` or `-`, the path, what it names."""

    def apply(self, kind: str, inode: int, place: int, name: str, data: bytes) -> None:
        """One operation of the program."""
        if kind in "CWTSF":
            if kind == "C":
                self._inodes[inode] = Content()
                self._name(name, self._inodes[inode])
            elif kind == "W":
                self._inodes[inode].write(place, data)
            elif kind == "T":
                self._inodes[inode].truncate(place)
            elif kind == "S":
                self._inodes[inode].flush()
            else:
                self._inodes[inode].forget()
        elif kind == "M":
            self._name(name, None)
        elif kind in "RL":
            self._name(data.decode(), self.names[name])
            if kind == "R":
                self._unname(name)
                self._move_inside(name, data.decode())
        elif kind == "U":
            self._unname(name)
        elif kind == "D":
            mine = [each for each in self._pending if _folder(each[1]) == name]
            self._pending = [each for each in self._pending if _folder(each[1]) != name]
            for each in mine:
                _rename(self._flushed, *each)
        else:  # E: a directory's flush failed, its names still wait. X: nobody may do that
            assert kind == "E", f"{name} is mapped into memory to be written"

    def after_cut(self, luck: random.Random | None) -> dict[str, bytes | None]:
        """What is on the disk when the power is cut now."""
        names = dict(self._flushed)
        if luck is not None:
            for each in self._pending[: luck.randrange(len(self._pending) + 1)]:
                _rename(names, *each)
        contents = {id(each): each.after_cut(luck) for each in names.values() if each is not None}
        return {
            path: None if each is None else contents[id(each)]
            for path, each in sorted(names.items())
            if _folder(path) in names or not _folder(path)
        }

    def _name(self, path: str, what: Content | None) -> None:
        self.names[path] = what
        self._pending.append(("+", path, what))

    def _move_inside(self, old: str, new: str) -> None:
        """What is in a directory goes with it, at once: its own names are as they were."""
        for names in (self.names, self._flushed):
            for path in [path for path in names if path.startswith(f"{old}/")]:
                names[new + path.removeprefix(old)] = names.pop(path)
        self._pending = [
            (change, new + path.removeprefix(old) if path.startswith(f"{old}/") else path, what)
            for change, path, what in self._pending
        ]

    def _unname(self, path: str) -> None:
        del self.names[path]
        self._pending.append(("-", path, None))


def _rename(names: Names, change: str, path: str, what: Content | None) -> None:
    if change == "+":
        names[path] = what
    else:
        names.pop(path, None)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


class Disk:
    """A directory on a disk of its own. `root` is where programs find it."""

    def __init__(self, folder: Path, library: Path | None = None) -> None:
        """What is in the directory already is on the disk; `library` is built unless given."""
        self.root = folder / "disk"
        self.root.mkdir(parents=True, exist_ok=True)
        self._library = library or built(folder)
        self._journal = folder / "journal"
        self.faults = folder / "faults"
        self.rules()
        self._remember()

    def environment(self) -> dict[str, str]:
        """What a program must be started with, to have its files on this disk."""
        return environment(
            LD_PRELOAD=str(self._library),
            DISK_ROOT=str(self.root),
            DISK_JOURNAL=str(self._journal),
            DISK_FAULTS=str(self.faults),
        )

    def rules(self, *rules: Rule) -> None:
        """Replace the faults; they hold from the next operation on."""
        draft = self.faults.with_suffix(".draft")
        draft.write_text("".join(f"{rule}\n" for rule in rules))
        draft.replace(self.faults)

    def cut_power(self, luck: random.Random | None = None) -> None:
        """Put what is on the disk in the place of what programs saw. None of them may run."""
        left = self._caught_up().after_cut(luck)
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, content in left.items():
            path = self.root / name
            if content is None:
                path.mkdir(mode=0o700)
            else:
                path.touch(mode=0o600)
                path.write_bytes(content)
        self._journal.unlink(missing_ok=True)
        self._remember()

    def notice(self) -> None:
        """A program was killed: write down what it had done, and had no time to write down."""
        model = self._caught_up()
        there = {
            str(path.relative_to(self.root)): path
            for path in self._paths()
            if not path.name.endswith("-shm")
        }
        for name in [name for name in model.names if name not in there]:
            self._note("U", 0, 0, name)
        for name, path in there.items():
            if path.is_dir():
                if name not in model.names:
                    self._note("M", 0, 0, name)
                continue
            inode, seen = path.stat().st_ino, path.read_bytes()
            if name not in model.names:
                self._note("C", inode, 0, name)
            known = model.names.get(name)
            known_bytes = b"" if known is None else bytes(known.cache)
            if len(seen) < len(known_bytes):
                self._note("T", inode, len(seen), "")
            for at in range(0, len(seen), PAGE):
                if seen[at : at + PAGE] != known_bytes[at : at + PAGE]:
                    self._note("W", inode, at, "", seen[at : at + PAGE])

    def _paths(self) -> list[Path]:
        """What a disk keeps: a socket is a name without content, and its owner makes it anew."""
        return [path for path in sorted(self.root.rglob("*")) if not path.is_socket()]

    def _note(self, kind: str, inode: int, place: int, name: str, data: bytes = b"") -> None:
        head = _RECORD.pack(kind.encode(), len(name.encode()), inode, place, len(data))
        with self._journal.open("ab") as journal:
            journal.write(head + name.encode() + data)

    def _caught_up(self) -> Model:
        """The model after everything that the journal has by now."""
        for record in self._records():
            self._model.apply(*record)
        return self._model

    def _remember(self) -> None:
        """Everything that is there now is on the disk."""
        names: Names = {}
        inodes: dict[int, Content] = {}
        for path in self._paths():
            name = str(path.relative_to(self.root))
            if path.is_dir():
                names[name] = None
            else:
                names[name] = inodes[path.stat().st_ino] = Content(path.read_bytes())
        self._model = Model(names, inodes)
        self._read = 0

    def _records(self) -> Iterator[tuple[str, int, int, str, bytes]]:
        """What the journal has that was not read before."""
        journal = b""
        if self._journal.exists():
            with self._journal.open("rb") as file:
                file.seek(self._read)
                journal = file.read()
        self._read += len(journal)
        at = 0
        while at < len(journal):
            kind, named, inode, place, size = _RECORD.unpack_from(journal, at)
            at += _RECORD.size
            name = journal[at : at + named].decode()
            at += named
            yield kind.decode(), inode, place, name, journal[at : at + size]
            at += size


def built(folder: Path) -> Path:
    """The library, compiled."""
    assert COMPILER is not None, NEEDS_COMPILER
    library = folder / "disk.so"
    command = [COMPILER, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-lpthread"]
    subprocess.run(command, check=True)
    return library
