"""The trace of a process that may be killed: every line is in the file as soon as it is observed.

A `LineWriter` gives its file a name when the trace is complete; the trace of a node that dies never
is. Here the file has its name from the start, each batch goes to the system at once, and a file
that is there is continued by the next life of the node. The rule: whatever stands before the last
newline is whole. What a kill tore off behind it is cut away when the file is opened again.
"""

import logging
import os
from pathlib import Path
from typing import Final

from rumormill.trace.entries import Batch, TraceError
from rumormill.trace.envelope import encode_lines
from rumormill.trace.files import LINE_SUFFIXES

_log = logging.getLogger("rumormill.trace")

_BLOCK: Final = 1 << 16


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
