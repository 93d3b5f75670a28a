"""The heads file: a second witness of how far every topic had come.

A database cannot tell by itself that it is an older copy of itself. So the writer notes, in a file
of its own, each topic's extent and head hash after every commit, always in this order:

    1. the group is committed to the database (and flushed, in the default mode);
    2. its heads are written to this file;
    3. the tickets resolve.

Step 2 may fail, on a disk that is full or broken. The events are in the database and flushed then,
so their tickets resolve all the same: `Upkeep` counts the failure and tries again, after growing
pauses. A file that is further behind than it may be is recorded in the database (`unwitnessed`),
which is how a crash in that state is told from an old copy of this file.

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

import logging
import os
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from rumormill.log import files
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
_NEVER = float("inf")
_SYNC_SECONDS = 1.0
"""When the log is quiet, the heads file is flushed so long after a commit: our choice, about what a
disk takes to write back by itself, and no burden on one that sleeps."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the next try after an error, doubling: our choice. A full disk is cleared by
people, and each try writes a whole file."""

_log = logging.getLogger("rumormill.log")


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
    half_folded: bool = False


class Witness(msgspec.Struct):
    """What a heads file says."""

    store_id: bytes
    epoch: int
    slack: int
    flushed: bool
    generation: int = 0
    stamp: int = 0
    heads: dict[int, Head] = {}
    half_folded: bool = False
    """Whether the last checkpoint was stopped half-way: what it folded was not flushed."""


class HeadsDamagedError(Exception):
    """The heads file's own header cannot be trusted."""


def read_heads(path: Path) -> Witness | None:
    """Read a heads file; None if there is none.

    Reading ends at the first record that is not whole: a torn last write is normal after a crash,
    and heads are lower bounds, so a shorter file only says less.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > _MAX_FILE_BYTES:
            raise HeadsDamagedError("it is impossibly large")
        content = file.read()
    store_id, epoch, slack, flushed = _read_header(content)
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
        witness.half_folded = record.half_folded
        for head in record.heads:
            witness.heads[head.topic_id] = head
        position = end
    return witness


def read_epoch(path: Path) -> int | None:
    """The epoch that counts, by a heads file's header; None if it cannot be told."""
    try:
        with path.open("rb", buffering=0) as file:
            return _read_header(file.read(_HEADER_BYTES))[1]
    except (OSError, HeadsDamagedError):
        return None


def _read_header(content: bytes) -> tuple[bytes, int, int, int]:
    """Store id, epoch, slack, and whether it is flushed."""
    fixed, check = content[: _HEADER.size], content[_HEADER.size :][:_CHECK_BYTES]
    if len(content) < _HEADER_BYTES or _check(fixed, 0, b"") != check:
        raise HeadsDamagedError("its header is damaged")
    magic, store_id, epoch, slack, flushed = _HEADER.unpack(fixed)
    if magic != _MAGIC:
        raise HeadsDamagedError("it is not a heads file")
    return store_id, epoch, slack, flushed


class HeadsFile:
    """The writer's side of the heads file. Only the log's one writer touches it.

    What is noted is kept here until it is written, so that a write that failed can be made up for.
    """

    def __init__(self, path: Path, witness: Witness, durability: Durability) -> None:
        """Replace the file at `path` by one that says what `witness` says."""
        self._path = path
        self._state = witness
        self._state.flushed = durability is Durability.FSYNC
        self._encoder = msgspec.msgpack.Encoder()
        self._descriptor = -1
        self._position = 0
        self._capacity = 0
        self._unwritten: dict[int, Head] | None = {}
        """Heads that are noted and not written; None if there is nothing to write."""
        self.flushed_generation = 0
        """The last commit that is noted on the disk."""
        self._replace_file()

    @property
    def generation(self) -> int:
        """The last commit that is noted."""
        return self._state.generation

    @property
    def unflushed_commits(self) -> int:
        """How many commits the file on the disk is behind."""
        return self._state.generation - self.flushed_generation

    def note(self, generation: int, rows: Iterable[TopicRow]) -> None:
        """Note the heads after a commit, in memory."""
        heads = {row.topic_id: head_of(row) for row in rows}
        self._state.generation = generation
        self._state.heads.update(heads)
        self._unwritten = (self._unwritten or {}) | heads

    def note_stamp(self, stamp: int | None) -> None:
        """Note that the database file itself, without its write-ahead log, has reached `stamp`;
        None: that it is on its way there."""
        self._state.half_folded = stamp is None
        self._state.stamp = self._state.stamp if stamp is None else stamp
        self._unwritten = self._unwritten or {}

    def write(self) -> None:
        """Hand what is noted to the operating system; after an error, all of it the next time."""
        if self._unwritten is None:
            return
        frames = self._frames(list(self._unwritten.values()), self._position)
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
        self._unwritten = None

    def flush(self) -> None:
        """Force what is noted to the disk."""
        self.write()
        if self.unflushed_commits:
            try:
                files.flush(self._descriptor)
            except OSError:  # what it did not flush, no second try would: a new file does
                self._forget_descriptor()
                raise
            self.flushed_generation = self._state.generation

    def close(self) -> None:
        """Flush and let go of the file."""
        try:
            self.flush()
        finally:
            self._forget_descriptor()

    def let_go(self) -> None:
        """Let go of the file, which another writes from now on; what is not written stays so."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _frames(self, heads: Sequence[Head], position: int) -> bytes:
        state = self._state
        pieces: list[bytes] = []
        for start in range(0, len(heads) or 1, _HEADS_PER_RECORD):
            part = list(heads[start : start + _HEADS_PER_RECORD])
            record = _Record(state.generation, state.stamp, part, state.half_folded)
            payload = self._encoder.encode(record)
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
        self._descriptor = files.replace(self._path, snapshot.ljust(capacity, b"\0"))
        self._position = len(snapshot)
        self._capacity = capacity
        self._unwritten = None
        self.flushed_generation = state.generation

    def _forget_descriptor(self) -> None:
        """Stop using the current file, so that the next write makes a whole new one."""
        if self._descriptor >= 0:
            self.let_go()
            self._unwritten = self._unwritten or {}


class Upkeep:
    """Keeps the heads file up with the commits, and tries again later where it cannot.

    Its trouble is nobody else's: when a commit has ended, its events are safe.
    """

    def __init__(self, heads: HeadsFile, durability: Durability, slack: int) -> None:
        self.heads = heads
        self._flushes = durability is Durability.FSYNC
        self._slack = slack
        self._pause = 0.0
        """How long to leave the file alone after an error; 0 if the last try went well."""
        self._due = _NEVER

    @property
    def behind(self) -> int | None:
        """The last commit on the disk, if the file is as far behind as a sound one may be."""
        lags = self._flushes and self.heads.unflushed_commits >= self._slack
        return self.heads.flushed_generation if lags else None

    def wait(self, now: float) -> float | None:
        """Seconds until `keep` must be called; None if there is nothing to do."""
        return None if self._due == _NEVER else max(0.0, self._due - now)

    def keep(self, now: float) -> bool:
        """Write what is noted, and flush it if it is time to; return whether that went well."""
        is_due = now >= self._due
        if self._pause and not is_due:
            return True
        try:
            self.heads.write()
            if self._flushes and (is_due or self.behind is not None):
                self.heads.flush()
        except OSError as error:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) or _FIRST_PAUSE
            self._due = now + self._pause
            _log.warning(
                "the heads file cannot be written, next try in %d s: %s", self._pause, error
            )
            return False
        self._pause = 0.0
        if not self._flushes or not self.heads.unflushed_commits:
            self._due = _NEVER
        elif self._due == _NEVER:
            self._due = now + _SYNC_SECONDS
        return True


def head_of(row: TopicRow) -> Head:
    """How far a topic has come, by its record."""
    return Head(row.topic_id, row.name, row.first_offset, row.next_offset, row.head_hash)


def _check(payload: bytes, position: int, store_id: bytes) -> bytes:
    """A record's checksum; it covers the place and the store, so that a stray copy is not one."""
    place = position.to_bytes(8, "little")
    return blake2b(place + payload, digest_size=_CHECK_BYTES, key=store_id).digest()
