"""The heads file: a second witness of how far every topic had come.

A database cannot tell by itself that it is an older copy of itself. So the writer notes, in a file
of its own, each topic's extent and head hash after every commit, always in this order:

    1. the group is committed to the database (and flushed, in the default mode);
    2. its heads are written to this file;
    3. the tickets resolve.

A crash between 1 and 2 leaves the database ahead of this file, which is fine. The database behind
this file means that committed events are gone, and the file says which.

Step 2 hands the heads to the operating system, so they survive the death of the process. They are
flushed to the disk at least every `slack` commits, and soon after the log goes quiet. After a crash
of the whole machine the file may therefore be at most `slack` commits behind, and so:

  - a database that is ahead by more than slack + 1 commits proves the *file* to be the old copy;
  - what can vanish unseen is at most the last `slack` commits, and only if the machine crashed
    within that window *and* the disk lost what it had already confirmed as flushed.

The file is a header, then checksummed records behind each other, in a preallocated area (so that a
flush changes no metadata). When the area is full the heads of all topics are written to a new file
that replaces the old one in one step. The area is at least four times that snapshot, so this costs
at most a third of a byte more for each byte appended.
"""

import contextlib
import os
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from rumormill.log.model import Durability
from rumormill.log.rows import TopicRow

_MAGIC = b"RMHEADS1"
_HEADER = struct.Struct("<8s16sIIB")  # magic, store id, epoch, slack, flushed
_CHECK_BYTES = 16
_HEADER_BYTES = 64
_FRAME = struct.Struct(f"<I{_CHECK_BYTES}s")  # length of the payload, its check
_MAX_RECORD_BYTES = 8 * 2**20
_MAX_FILE_BYTES = 2**30
_MIN_AREA_BYTES = 256 * 2**10
_HEADS_PER_RECORD = 64


_flush = getattr(os, "fdatasync", os.fsync)
"""Flush a file's content; macOS only has the call that flushes its metadata as well."""


class Head(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How far one topic had come, and the hash of its last row."""

    topic_id: int
    name: str
    first_offset: int
    next_offset: int
    head_hash: bytes


class _Record(msgspec.Struct, frozen=True, array_like=True):
    generation: int
    stamp: int
    heads: list[Head]


class Witness(msgspec.Struct):
    """What a heads file says."""

    store_id: bytes
    epoch: int
    slack: int
    flushed: bool
    generation: int = 0
    stamp: int = 0
    heads: dict[int, Head] = {}


class HeadsDamagedError(Exception):
    """The heads file's own header cannot be trusted."""


def read_heads(path: Path) -> Witness | None:
    """Read a heads file; None if there is none.

    Reading ends at the first record that is not whole: a torn last write is normal after a crash,
    and heads are lower bounds, so a shorter file only says less.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise HeadsDamagedError("it is impossibly large")
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    fixed, check = content[: _HEADER.size], content[_HEADER.size :][:_CHECK_BYTES]
    if len(content) < _HEADER_BYTES or _check(fixed, 0, b"") != check:
        raise HeadsDamagedError("its header is damaged")
    magic, store_id, epoch, slack, flushed = _HEADER.unpack(fixed)
    if magic != _MAGIC:
        raise HeadsDamagedError("it is not a heads file")
    witness = Witness(store_id, epoch, slack, bool(flushed), heads={})
    decoder = msgspec.msgpack.Decoder(_Record)
    position = _HEADER_BYTES
    while position + _FRAME.size <= len(content):
        length, check = _FRAME.unpack_from(content, position)
        end = position + _FRAME.size + length
        if not 0 < length <= _MAX_RECORD_BYTES or end > len(content):
            break
        payload = content[position + _FRAME.size : end]
        if _check(payload, position, store_id) != check:
            break
        try:
            record = decoder.decode(payload)
        except msgspec.MsgspecError:
            break
        witness.generation = max(witness.generation, record.generation)
        witness.stamp = max(witness.stamp, record.stamp)
        for head in record.heads:
            witness.heads[head.topic_id] = head
        position = end
    return witness


class HeadsFile:
    """The writer's side of the heads file. Only the log's one writer touches it."""

    def __init__(self, path: Path, witness: Witness, durability: Durability) -> None:
        """Replace the file at `path` by one that says what `witness` says."""
        self._path = path
        self._state = witness
        self._state.flushed = durability is Durability.FSYNC
        self._encoder = msgspec.msgpack.Encoder()
        self._descriptor = -1
        self._position = 0
        self._capacity = 0
        self.unflushed_commits = 0
        self._replace_file()

    @property
    def generation(self) -> int:
        """The last commit that is noted."""
        return self._state.generation

    def note(self, generation: int, rows: Iterable[TopicRow]) -> None:
        """Note the heads after a commit; they are with the operating system on return."""
        heads = [
            Head(row.topic_id, row.name, row.first_offset, row.next_offset, row.head_hash)
            for row in rows
        ]
        state = self._state
        state.generation = generation
        for head in heads:
            state.heads[head.topic_id] = head
        self.unflushed_commits += 1
        self._append(heads)

    def note_stamp(self, stamp: int) -> None:
        """Note that the database file itself, without its write-ahead log, has reached `stamp`."""
        self._state.stamp = stamp
        self._append(())

    def flush(self) -> None:
        """Force the noted heads to the disk."""
        if self._descriptor >= 0 and self.unflushed_commits:
            _flush(self._descriptor)
            self.unflushed_commits = 0

    def close(self) -> None:
        """Flush and let go of the file."""
        if self._descriptor >= 0:
            self.flush()
            self._forget_descriptor()

    def _append(self, heads: Sequence[Head]) -> None:
        frames = self._frames(heads, self._position)
        if self._descriptor < 0 or self._position + len(frames) > self._capacity:
            self._replace_file()
            return
        try:
            written = os.pwrite(self._descriptor, frames, self._position)
        except OSError:
            self._forget_descriptor()
            raise
        if written != len(frames):
            self._replace_file()
            return
        self._position += len(frames)

    def _frames(self, heads: Sequence[Head], position: int) -> bytes:
        state = self._state
        pieces: list[bytes] = []
        for start in range(0, len(heads) or 1, _HEADS_PER_RECORD):
            part = list(heads[start : start + _HEADS_PER_RECORD])
            payload = self._encoder.encode(_Record(state.generation, state.stamp, part))
            frame = _FRAME.pack(len(payload), _check(payload, position, state.store_id))
            pieces += (frame, payload)
            position += len(frame) + len(payload)
        return b"".join(pieces)

    def _replace_file(self) -> None:
        """Write everything known to a new file and put it in the old one's place in one step."""
        self._forget_descriptor()
        state = self._state
        fixed = _HEADER.pack(_MAGIC, state.store_id, state.epoch, state.slack, state.flushed)
        header = (fixed + _check(fixed, 0, b"")).ljust(_HEADER_BYTES, b"\0")
        snapshot = header + self._frames(list(state.heads.values()), _HEADER_BYTES)
        capacity = len(snapshot) + max(_MIN_AREA_BYTES, 3 * len(snapshot))
        fresh = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, snapshot.ljust(capacity, b"\0"))
            os.fsync(descriptor)
            os.replace(fresh, self._path)
            sync_directory(self._path.parent)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        self._descriptor = descriptor
        self._position = len(snapshot)
        self._capacity = capacity
        self.unflushed_commits = 0

    def _forget_descriptor(self) -> None:
        """Stop using the current file, so that the next note writes a whole new one."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def sync_directory(path: Path) -> None:
    """Flush a directory, so that created and renamed files in it stay after a crash."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it, in as many steps as the system needs."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _check(payload: bytes, position: int, store_id: bytes) -> bytes:
    """A record's checksum; it covers the place and the store, so that a stray copy is not one."""
    place = position.to_bytes(8, "little")
    return blake2b(place + payload, digest_size=_CHECK_BYTES, key=store_id).digest()
