"""What writes trace files, one class for each format.

A file appears under its name only when the trace is complete; until then it is `NAME.part`. The
trace of a node that may be killed never is complete: `LiveWriter` has the name from the start,
hands each batch to the system at once, and continues a file that is there. Whatever stands before
its last newline is whole; what a kill tore off behind that is cut away when it is opened again.
"""

import gzip
import logging
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from rumormill.trace.entries import Batch, TraceError, writing
from rumormill.trace.ndjson import LineEncoder, encode_lines
from rumormill.trace.protobuf import BATCH_TAG, encode_event
from rumormill.wire.protobuf import varint

LINE_SUFFIXES: Final = (".ndjson", ".jsonl", ".json")

_BATCH_BYTES: Final = 1024 * 1024
_BLOCK: Final = 1 << 16

_log = logging.getLogger("rumormill.trace")


class TraceWriter(ABC):
    """An observer that writes a file, which gets its name only when it is complete.

    Used as a context, it completes the file or removes it.
    """

    _packer: Any = None
    """What packs the bytes on their way into the file, where something does; it can be closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(path.name + ".part")
        with writing(path):
            self._stream: BinaryIO = open(self._part, "wb")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @abstractmethod
    def observe(self, batch: Batch) -> None:
        """Write the next entries."""

    def write(self, data: bytes) -> None:
        """Append bytes."""
        with writing(self.path):
            self._stream.write(data)

    def close(self) -> None:
        """Make the file durable and give it its name; do nothing if that was done before."""
        if self._stream.closed:
            return
        try:
            self._write_rest()
        except BaseException:
            self.abort()
            raise
        with writing(self.path):
            if self._packer is not None:
                self._packer.close()
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            os.replace(self._part, self.path)

    def abort(self) -> None:
        """Remove the incomplete file; do nothing if it is complete."""
        if not self._stream.closed:
            with suppress(OSError):
                if self._packer is not None:
                    self._packer.close()
            self._stream.close()
            self._part.unlink(missing_ok=True)

    def _write_rest(self) -> None:  # noqa: B027 (most formats keep nothing back)
        """Write what still waits to be written."""


class LineWriter(TraceWriter):
    """Writes NDJSON. Given the hash's `LineEncoder`, it shares its work."""

    def __init__(self, path: Path, lines: LineEncoder | None = None) -> None:
        super().__init__(path)
        self._lines = lines or LineEncoder()

    def observe(self, batch: Batch) -> None:
        """Write the next entries."""
        self.write(self._lines.encode(batch))


class EventWriter(TraceWriter):
    """Writes delimited protobuf events."""

    def observe(self, batch: Batch) -> None:
        """Write the next entries."""
        records: list[bytes] = []
        for entry in batch:
            record = encode_event(entry)
            records += (varint(len(record)), record)
        self.write(b"".join(records))


class BatchWriter(TraceWriter):
    """Writes compressed, delimited batches of about a mebibyte."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # No name and no time in the header: equal traces give equal files.
        self._gzip = self._packer = gzip.GzipFile("", "wb", fileobj=self._stream, mtime=0)
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
                self._write_rest()

    def _write_rest(self) -> None:
        if self._records:
            batch = b"".join((varint(self._size), *self._records))
            self._records.clear()
            self._size = 0
            with writing(self.path):
                self._gzip.write(batch)


class LiveWriter:
    """An observer that appends NDJSON; a node goes on when its trace cannot be written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        if not self._path.name.endswith(LINE_SUFFIXES):
            raise TraceError(
                f"{self._path}: the name of a live trace ends in one of {', '.join(LINE_SUFFIXES)}"
            )
        with writing(self._path):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            os.ftruncate(self._file, _end_of_lines(self._file))
        self._open = True

    def observe(self, batch: Batch) -> None:
        """Append the next entries."""
        if not self._open:
            return
        lines = memoryview(encode_lines(batch))
        try:
            while lines:
                lines = lines[os.write(self._file, lines) :]
        except OSError as error:
            _log.error("the trace %s ends here: %s", self._path, error.strerror)
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._open:
            self._open = False
            os.close(self._file)


def _end_of_lines(file: int) -> int:
    end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
