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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from rumormill.trace.entries import Batch, TraceError
from rumormill.trace.ndjson import LineEncoder, encode_lines
from rumormill.trace.protobuf import BATCH_TAG, encode_event
from rumormill.wire.protobuf import varint

LINE_SUFFIXES: Final = (".ndjson", ".jsonl", ".json")

_BATCH_BYTES: Final = 1024 * 1024
_BLOCK: Final = 1 << 16

_log = logging.getLogger("rumormill.trace")


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


class LiveWriter:
    """An observer that appends NDJSON; a node goes on when its trace cannot be written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        if not self._path.name.endswith(LINE_SUFFIXES):
            raise TraceError(
                f"{self._path}: the name of a live trace ends in one of {', '.join(LINE_SUFFIXES)}"
            )
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            os.ftruncate(self._file, _end_of_lines(self._file))
        except OSError as error:
            raise TraceError(f"cannot write {self._path}: {error.strerror}") from error
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
    """The position behind the last newline."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
