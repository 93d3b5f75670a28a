"""Trace files: writers and readers, chosen by the suffix of the file's name.

- `.ndjson`, `.jsonl`, `.json`: one event per line, as go's `JSONTracer` writes them.
- `.pb`: events, each behind its length as a varint, as go's `PBTracer` writes them.
- `.pb.gz`: batches of events, each behind its length, compressed, as go's `RemoteTracer` sends.
- `.parquet`: a flat table (`trace.parquet`); needs `rumormill[arrow]`.

The rules: a file appears under its name only when it is complete (until then it is `NAME.part`);
equal traces give equal bytes; a reader holds one record at a time, looks at a length before it
reads that much, and answers damage with one `TraceError` that names file and position.
"""

import gzip
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

import msgspec

from rumormill.trace.entries import Batch, Entry, Observer, TraceError
from rumormill.trace.envelope import decode_line
from rumormill.trace.events import (
    BATCH_TAG,
    MAX_EVENT_BYTES,
    EventError,
    decode_batch,
    decode_event,
    encode_event,
)
from rumormill.trace.hashing import LineEncoder
from rumormill.trace.recorder import Recorder
from rumormill.wire.protobuf import varint

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_BATCH_BYTES = 64 * 1024 * 1024
"""Our choice: a line is an event in base64; go's tracer keeps at most 65,536 events at once."""

_BATCH_BYTES = 1024 * 1024

LINE_SUFFIXES = (".ndjson", ".jsonl", ".json")
SUFFIXES = (*LINE_SUFFIXES, ".pb", ".pb.gz", ".parquet")


class PendingFile:
    """A file that gets its name only when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(path.name + ".part")
        try:
            self.stream: BinaryIO = open(self.part, "wb")  # noqa: SIM115
        except OSError as error:
            raise TraceError(f"cannot write {path}: {error.strerror}") from error

    def write(self, data: bytes) -> None:
        """Append bytes."""
        try:
            self.stream.write(data)
        except OSError as error:
            raise TraceError(f"cannot write {self.path}: {error.strerror}") from error

    def finish(self) -> None:
        """Make the file durable and give it its name; do nothing if that was done before."""
        if self.stream.closed:
            return
        try:
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self.stream.close()
            os.replace(self.part, self.path)
        except OSError as error:
            raise TraceError(f"cannot write {self.path}: {error.strerror}") from error

    def discard(self) -> None:
        """Remove the incomplete file; do nothing if it is complete."""
        if not self.stream.closed:
            self.stream.close()
            with suppress(FileNotFoundError):
                self.part.unlink()


class TraceWriter(ABC):
    """An observer that writes a file; used as a context, it completes the file or removes it."""

    def __init__(self, path: Path) -> None:
        self._file = PendingFile(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @abstractmethod
    def observe(self, batch: Batch) -> None:
        """Write the next entries."""

    def close(self) -> None:
        """Complete the file and give it its name."""
        self._file.finish()

    def abort(self) -> None:
        """Remove the incomplete file."""
        self._file.discard()


class LineWriter(TraceWriter):
    """Writes NDJSON. Given the hash's `LineEncoder`, it shares its work."""

    def __init__(self, path: Path, lines: LineEncoder | None = None) -> None:
        super().__init__(path)
        self._lines = lines or LineEncoder()

    def observe(self, batch: Batch) -> None:
        """Write the next entries."""
        self._file.write(self._lines.encode(batch))


class EventWriter(TraceWriter):
    """Writes delimited protobuf events."""

    def observe(self, batch: Batch) -> None:
        """Write the next entries."""
        records: list[bytes] = []
        for entry in batch:
            record = encode_event(entry)
            records += (varint(len(record)), record)
        self._file.write(b"".join(records))


class BatchWriter(TraceWriter):
    """Writes compressed, delimited batches of about a mebibyte."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # No name and no time in the header: equal traces give equal files.
        self._gzip = gzip.GzipFile("", "wb", fileobj=self._file.stream, mtime=0)
        self._records: list[bytes] = []
        self._size = 0

    def observe(self, batch: Batch) -> None:
        """Write the next entries."""
        for entry in batch:
            record = encode_event(entry)
            head = BATCH_TAG + varint(len(record))
            self._records += (head, record)
            self._size += len(head) + len(record)
            if self._size >= _BATCH_BYTES:
                self._write_batch()

    def close(self) -> None:
        """Write what is left and complete the file."""
        if not self._file.stream.closed:
            self._write_batch()
            self._compressed(self._gzip.close)
        super().close()

    def abort(self) -> None:
        """Remove the incomplete file."""
        if not self._file.stream.closed:
            with suppress(OSError):
                self._gzip.close()
        super().abort()

    def _write_batch(self) -> None:
        if self._records:
            batch = b"".join((varint(self._size), *self._records))
            self._records.clear()
            self._size = 0
            self._compressed(lambda: self._gzip.write(batch))

    def _compressed(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            raise TraceError(f"cannot write {self._file.path}: {error.strerror}") from error


def open_writer(path: str | os.PathLike[str], lines: LineEncoder | None = None) -> TraceWriter:
    """Open a trace file for writing in the format that its suffix names."""
    path = Path(path)
    match _suffix(path):
        case ".pb":
            return EventWriter(path)
        case ".pb.gz":
            return BatchWriter(path)
        case ".parquet":
            from rumormill.trace.parquet import ParquetWriter  # noqa: PLC0415 (an extra)

            return ParquetWriter(path)
        case _:
            return LineWriter(path, lines)


def read_trace(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """Read the entries of a trace file in the format that its suffix names, one after another.

    A damaged file gives the entries before the damage and then raises `TraceError`.
    """
    path = Path(path)
    suffix = _suffix(path)
    if suffix == ".parquet":
        from rumormill.trace.parquet import read_parquet  # noqa: PLC0415 (an extra)

        return read_parquet(path)
    if suffix in LINE_SUFFIXES:
        return _read_lines(path)
    return _read_records(path, batches=suffix == ".pb.gz")


def replay(path: str | os.PathLike[str], observers: Sequence[Observer]) -> None:
    """Show a trace file to observers as if it were being recorded, and close them."""
    recorder = Recorder(observers)
    for entry in read_trace(path):
        recorder.record(entry)
        recorder.maybe_flush()
    recorder.close()


def _suffix(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return suffix
    raise TraceError(f"{path}: a trace file's name ends in one of {', '.join(SUFFIXES)}")


def _read_lines(path: Path) -> Iterator[Entry]:
    with _opened(path) as stream:
        number = 0
        while line := _read(stream.readline, MAX_LINE_BYTES, path, f"line {number + 1}"):
            number += 1
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                raise TraceError(f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
            if line.isspace():
                continue
            try:
                entry = decode_line(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise TraceError(f"{path}, line {number}: {error}") from error
            yield entry


def _read_records(path: Path, *, batches: bool) -> Iterator[Entry]:
    limit = MAX_BATCH_BYTES if batches else MAX_EVENT_BYTES
    with _opened(path) as raw:
        stream: BinaryIO = _unpacked(raw) if batches else raw
        position = 0
        while True:
            where = f"byte {position}{' of the unpacked data' if batches else ''}"
            length, prefix = _read_length(stream, path, where)
            if prefix == 0:
                return
            if length > limit:
                raise TraceError(f"{path}, {where}: a record of {length} bytes; {limit} is most")
            record = _read(stream.read, length, path, where)
            if len(record) < length:
                raise TraceError(f"{path}, {where}: the file ends inside a record")
            try:
                if batches:
                    yield from decode_batch(record)
                else:
                    yield decode_event(record)
            except EventError as error:
                raise TraceError(f"{path}, {where}: {error}") from error
            position += prefix + length


def _read_length(stream: BinaryIO, path: Path, where: str) -> tuple[int, int]:
    """Read a varint; return it and how many bytes it took, none at the end of the file."""
    value = 0
    for index in range(10):
        byte = _read(stream.read, 1, path, where)
        if not byte:
            if index == 0:
                return 0, 0
            raise TraceError(f"{path}, {where}: the file ends inside a length")
        value |= (byte[0] & 0x7F) << 7 * index
        if byte[0] < 0x80:
            return value, index + 1
    raise TraceError(f"{path}, {where}: a length of more than 64 bits")


def _read(read: Callable[[int], bytes], size: int, path: Path, where: str) -> bytes:
    try:
        return read(size)
    except EOFError as error:
        raise TraceError(f"{path}, {where}: the compressed data is cut short") from error
    except (OSError, zlib.error) as error:
        raise TraceError(f"{path}, {where}: cannot be read: {error}") from error


def _unpacked(stream: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", gzip.GzipFile(fileobj=stream, mode="rb"))


def _opened(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
