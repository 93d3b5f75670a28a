"""Sealed segments: whole ranges of a topic as columns, kept beside the database for bulk reading.

Reading a range from the database costs a few microseconds for each row, most of them for SQLite's
rows and for the hash of every one. So the first read that goes through a whole range of
`segment_rows` events, proven by its chain as always, leaves the columns in a file. Later reads take
them from there, for one checksum over each column. Where a door is open, a thread makes that first
read before anybody else does (`daemon.flight_door`).

The rule of this file: a segment is only ever a copy. It is served if it is whole and if the log, in
the snapshot of the read, has the segment's hashes at both ends of the range: the last hash covers
every row of the range and all before, so a segment of another history, or of a log that has been
replaced by an older copy, does not match. Whatever does not match, is damaged or is not there is
counted, and the rows are read from the database as if there were no segments.

    magic, length and digest of the head | head (MessagePack) | regions, each at a multiple of 64

The head names the topic, the range, both hashes, and for every field a region of the file with its
digest, or the one value that all rows have. Only the fields that are asked for are read, into
memory of our own: a file that changes under a reader can hurt nobody after its digest was checked.

A segment is written under another name, flushed and renamed. Two readers that write the same one
write the same bytes. Retention deletes every segment that holds a deleted event.
"""

import contextlib
import logging
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Iterable
from functools import partial
from hashlib import sha256
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from rumormill.log import files
from rumormill.log.bulk import Columns, joined, libraries, parents_type
from rumormill.log.reader import Log, hash_at
from rumormill.log.rows import HASH_BYTES, TopicRow

SEGMENT_BYTES: Final = 64 << 20
"""Larger ranges are not sealed: above 4 KiB for each event, rows are not what takes the time."""

FREE_BYTES: Final = 1 << 30
"""Our choice: what segments leave free on the disk, for the log itself."""

_MAGIC: Final = b"RMSEG\x00\x00\x01"
_PREFIX: Final = struct.Struct(f"<8sI{HASH_BYTES}s")
_HEAD_BYTES: Final = 256 << 10
_ALIGNMENT: Final = 64
_ABANDONED_SECONDS: Final = 600.0
"""A draft that old has no writer any more."""

_FIELDS: Final = (
    "received", "created", "id", "author", "data", "parents", "protocol", "proof", "hashes",
)  # fmt: skip
_FLAT: Final = ("received", "created", "hashes")
"""Fields of which every row has the same number of bytes."""

_PREV_AT: Final = "SELECT prev FROM events WHERE key = ?"

_log = logging.getLogger("rumormill.log")


class Field(msgspec.Struct, array_like=True, frozen=True):
    """Where a field is: nowhere (`none`), here (`one`), or in buffers of a region of the file."""

    kind: str
    value: bytes = b""
    place: int = 0
    sizes: tuple[int, ...] = ()
    digest: bytes = b""


class Head(msgspec.Struct, frozen=True):
    """What a segment holds: the events `start` to `start + count - 1` of a topic."""

    topic: str
    start: int
    count: int
    prev: bytes
    last: bytes
    fields: dict[str, Field]

    @property
    def stop(self) -> int:
        """The offset behind the last event."""
        return self.start + self.count


class SegmentDamagedError(Exception):
    """A segment is not what was written; the message says what is wrong with it."""


class SegmentCounters(msgspec.Struct):
    """What became of segments since the log was opened."""

    used: int = 0
    """Segments whose rows were served."""
    sealed: int = 0
    """Segments that were made."""
    stale: int = 0
    """Segments of another history than the log's: not used."""
    damaged: int = 0
    """Segments that were damaged or could not be read: not used."""
    refused: int = 0
    """Segments that could not be made: no space, another user's store, or retention was faster."""


class Segments:
    """The segments of one store. Any thread may use it."""

    def __init__(self, home: Path, rows: int) -> None:
        self._folder = home / "segments"
        self.rows = rows
        self._lock = threading.Lock()
        self.counters = SegmentCounters()

    def columns(
        self, log: Log, topic: str, position: int, stop: int, fields: Iterable[str]
    ) -> Columns | None:
        """The events from `position` on, at most to the end of its segment; None without one."""
        start = position - position % self.rows
        path = self._path(topic, start)
        try:
            with path.open("rb", buffering=0) as file:
                head, base = _read_head(file)
                if (head.topic, head.start) != (topic, start):
                    raise SegmentDamagedError("it is the segment of another range")
                until = 0
                if head.count == self.rows:  # otherwise it was made with another setting
                    limit = min(stop, head.stop) - position
                    until = log.within(topic, position, limit, partial(_served, head=head))
                if not until:
                    self._count("stale")
                    return None
                found = _load(file, head, base, fields)
        except FileNotFoundError:
            return None
        except (OSError, SegmentDamagedError) as error:
            self._count("damaged")
            _log.warning("%s is ignored, the rows are read from the database: %s", path, error)
            return None
        self._count("used")
        return part(found, position - start, until - start)

    def has(self, topic: str, start: int) -> bool:
        """Whether there is a file for the range that begins at `start`, whatever it is worth."""
        return self._path(topic, start).exists()

    def seal(self, log: Log, topic: str, pieces: list[Columns]) -> None:
        """Keep a whole range whose pieces, one behind the other, have been proven."""
        found = _whole(pieces)
        if found is None:
            return
        path = self._path(topic, found.start)
        try:
            if self._folder.parent.stat().st_uid != os.geteuid():
                raise OSError("the store is another user's, who could not delete it")
            _write(path, topic, found)
        except OSError as error:
            self._count("refused")
            _log.info("%s is not written: %s", path, error)
            return
        # Retention may have looked for segments before this one had its name.
        info = log.topic(topic)
        if info is None or info.first_offset > found.start:
            path.unlink(missing_ok=True)
            self._count("refused")
        else:
            self._count("sealed")

    def prune(self, topic: str, first_offset: int) -> int:
        """Delete every segment of a topic that holds an event before `first_offset`."""
        deleted = 0
        folder = self._path(topic, 0).parent
        try:
            for path in sorted(folder.iterdir()):
                if path.name.isdigit() and int(path.name) < first_offset:
                    path.unlink(missing_ok=True)
                    deleted += 1
                elif path.name.startswith("."):
                    _drop_abandoned(path)
        except FileNotFoundError:
            return deleted  # nothing was sealed yet
        except OSError as error:
            _log.warning("deleted events are still in segments of %s: %s", folder, error)
        return deleted

    def _path(self, topic: str, start: int) -> Path:
        name = _digest(topic.encode()).hex()
        return self._folder / name / str(start)

    def _count(self, name: str) -> None:
        with self._lock:
            setattr(self.counters, name, getattr(self.counters, name) + 1)


class SegmentBuilder:
    """Collects what one read proves, and seals every range that it has gone through whole."""

    def __init__(self, segments: Segments, log: Log, topic: str, stop: int) -> None:
        self._segments = segments
        self._log = log
        self._topic = topic
        self._stop = stop
        self._pieces: list[Columns] = []
        self._size = 0

    def add(self, piece: Columns) -> None:
        """Take the next piece of the read, which does not go beyond a segment's end."""
        rows = self._segments.rows
        if piece.start % rows == 0 and piece.start + rows <= self._stop:
            self._pieces, self._size = [], 0
        elif not self._pieces:
            return
        self._size += piece.size()
        if self._size > SEGMENT_BYTES:
            self._pieces = []
            return
        self._pieces.append(piece)
        if (piece.start + piece.count) % rows == 0:
            self._segments.seal(self._log, self._topic, self._pieces)
            self._pieces = []


def part(found: Columns, begin: int, end: int) -> Columns:
    """The rows `begin` to `end - 1` of columns, without copying them."""
    if begin == 0 and end == found.count:
        return found
    hashes = found.hashes[begin * HASH_BYTES : end * HASH_BYTES]
    sliced = Columns(found.start + begin, end - begin, hashes=hashes)
    for name in _FIELDS[:-1]:
        values = getattr(found, name)
        is_one = values is None or isinstance(values, bytes | str)
        setattr(sliced, name, values if is_one else values[begin:end])
    return sliced


def _served(
    db: sqlite3.Connection,
    topic: TopicRow,
    start: int,  # noqa: ARG001 - given to every reader of a range
    stop: int,
    *,
    prev: bytes | None = None,  # noqa: ARG001
    head: Head,
) -> int:
    """How far a segment may be served: up to `stop`, or 0 if it is not of this log's history."""
    if head.start < topic.first_offset or head.stop > topic.next_offset:
        return 0
    if head.stop == topic.next_offset and head.last != topic.head_hash:
        return 0
    try:
        last = hash_at(db, topic, head.stop - 1)
        first = db.execute(_PREV_AT, (topic.key(head.start),)).fetchone()
    except sqlite3.Error:
        return 0  # the reader of the database will find out what is wrong with it
    return stop if last == head.last and first == (head.prev,) else 0


def _whole(pieces: list[Columns]) -> Columns | None:
    """Pieces as one, if each goes on where the one before it ends."""
    for before, after in pairwise(pieces):
        end = before.start + before.count
        if end != after.start or before.hashes[-HASH_BYTES:] != after.prev:
            return None
    return joined(pieces)


def _write(path: Path, topic: str, found: Columns) -> None:
    """Write a segment under another name, flush it, and give it its own."""
    encoded, regions = _encode(topic, found)
    head = _padded(_PREFIX.pack(_MAGIC, len(encoded), _digest(encoded)) + encoded)
    size = len(head) + sum(map(len, regions))
    files.make_folder(path.parent.parent)
    files.make_folder(path.parent)
    room = os.statvfs(path.parent)
    if room.f_bavail * room.f_frsize < size + FREE_BYTES:
        raise OSError(f"less than {FREE_BYTES >> 20} MiB would be left on the disk")
    for old in path.parent.glob(f".{path.name}.*"):
        _drop_abandoned(old)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with open(files.create(draft), "wb", buffering=0) as file:
            for each in (head, *regions):
                files.write_all(file.fileno(), each)
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _encode(topic: str, found: Columns) -> tuple[bytes, list[bytes]]:
    regions: list[bytes] = []
    fields: dict[str, Field] = {}
    place = 0
    for name in _FIELDS:
        values = getattr(found, name)
        if values is None:
            fields[name] = Field("none")
        elif name != "hashes" and isinstance(values, bytes | str):
            fields[name] = Field("one", values.encode() if isinstance(values, str) else values)
        else:
            buffers = _buffers(name, values, found.count)
            region = b"".join(map(_padded, buffers))
            sizes = tuple(map(len, buffers))
            fields[name] = Field("many", b"", place, sizes, _digest(region))
            regions.append(region)
            place += len(region)
    last = found.hashes[-HASH_BYTES:]
    head = Head(topic, found.start, found.count, found.prev, last, fields)
    encoded = msgspec.msgpack.encode(head)
    if len(encoded) > _HEAD_BYTES:
        raise OSError("its head would be too long")
    return encoded, regions


def _buffers(name: str, values: Any, count: int) -> list[memoryview]:
    """The buffers of a field that has a value for each row."""
    if name in _FLAT:
        return [memoryview(values).cast("B")]
    _, numpy = libraries()
    buffers = []
    if name == "author":
        coded = values.dictionary_encode()
        buffers.append(memoryview(coded.indices.buffers()[1])[: 4 * count])
        count, values = len(coded.dictionary), coded.dictionary
    found = values.buffers()
    if name == "parents":
        buffers.append(memoryview(found[1])[: 4 * (count + 1)])
        count, found = len(values.values), found[2:]
    buffers.append(memoryview(found[1])[: 4 * (count + 1)])
    end = int(numpy.frombuffer(found[1], "<i4", count + 1)[count])
    buffers.append(memoryview(b"" if found[2] is None else found[2])[:end])
    return buffers


def _load(file: FileIO, head: Head, base: int, fields: Iterable[str]) -> Columns:
    found = Columns(head.start, head.count)
    for name in fields:
        field = head.fields.get(name)
        if field is None:
            raise SegmentDamagedError(f"it has no {name}")
        if field.kind == "many":
            setattr(found, name, _array(name, head.count, _read_region(file, name, base, field)))
        elif field.kind == "one":
            value = field.value.decode() if name == "protocol" else field.value
            setattr(found, name, value)
        else:
            setattr(found, name, None)
    return found


def _read_region(file: FileIO, name: str, base: int, field: Field) -> list[Any]:
    arrow, _ = libraries()
    total = sum(map(_aligned, field.sizes))
    if total > 2 * SEGMENT_BYTES:
        raise SegmentDamagedError(f"its {name} would be too large")
    region = arrow.allocate_buffer(total)
    view = memoryview(region)
    if os.preadv(file.fileno(), [view], base + field.place) != total:
        raise SegmentDamagedError("it is cut short")
    if _digest(view) != field.digest:
        raise SegmentDamagedError(f"its {name} is damaged")
    buffers = []
    place = 0
    for size in field.sizes:
        buffers.append(region.slice(place, size))
        place += _aligned(size)
    return buffers


def _array(name: str, count: int, buffers: list[Any]) -> Any:
    arrow, numpy = libraries()
    if name == "hashes":
        return buffers[0].to_pybytes()
    if name in _FLAT:
        return numpy.frombuffer(buffers[0], "<f8")
    kind = arrow.string() if name == "protocol" else arrow.binary()
    if name not in ("author", "parents"):
        return arrow.Array.from_buffers(kind, count, [None, *buffers])
    values = arrow.Array.from_buffers(kind, len(buffers[1]) // 4 - 1, [None, *buffers[1:]])
    if name == "author":
        indices = arrow.Array.from_buffers(arrow.int32(), count, [None, buffers[0]])
        return arrow.DictionaryArray.from_arrays(indices, values, safe=False)
    return arrow.Array.from_buffers(parents_type(), count, [None, buffers[0]], children=[values])


def _digest(content: bytes | memoryview) -> bytes:
    """SHA-256, cut: processors have instructions for it, and most of a read's time is here."""
    return sha256(content).digest()[:HASH_BYTES]


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT


def _padded(buffer: bytes | memoryview) -> bytes:
    return bytes(buffer) + bytes(-len(buffer) % _ALIGNMENT)


def _read_head(file: FileIO) -> tuple[Head, int]:
    """A segment's head, and where its regions begin."""
    prefix = os.pread(file.fileno(), 4096, 0)
    try:
        magic, length, digest = _PREFIX.unpack_from(prefix)
    except struct.error:
        raise SegmentDamagedError("it is cut short") from None
    if magic != _MAGIC or length > _HEAD_BYTES:
        raise SegmentDamagedError("it is no segment of this version")
    encoded = prefix[_PREFIX.size : _PREFIX.size + length]
    if len(encoded) < length:
        encoded = os.pread(file.fileno(), length, _PREFIX.size)
    if _digest(encoded) != digest:
        raise SegmentDamagedError("its head is damaged")
    try:
        return msgspec.msgpack.decode(encoded, type=Head), _aligned(_PREFIX.size + length)
    except msgspec.MsgspecError as error:
        raise SegmentDamagedError(str(error)) from None


def _drop_abandoned(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
            path.unlink()
