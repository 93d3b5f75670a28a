"""The trace hash: one short text that two equal runs share.

The rule: it is SHA-256 over exactly the bytes of the NDJSON file, so that `sha256sum` of a written
trace gives the same text as the run that wrote it. The encoding is made once and shared with the
NDJSON writer.
"""

import hashlib

from rumormill.trace.entries import Batch
from rumormill.trace.envelope import encode_lines


class LineEncoder:
    """Encodes a batch as NDJSON once, however many observers ask for it.

    It remembers the last batch by identity, which is why nobody may change a batch.
    """

    __slots__ = ("_batch", "_lines")

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._lines = b""

    def encode(self, batch: Batch) -> bytes:
        """Return the NDJSON lines of a batch."""
        if batch is not self._batch:
            self._lines = encode_lines(batch)
            self._batch = batch
        return self._lines


class TraceHash:
    """An observer that hashes the trace."""

    __slots__ = ("_lines", "_sha256")

    def __init__(self, lines: LineEncoder | None = None) -> None:
        self._lines = lines or LineEncoder()
        self._sha256 = hashlib.sha256()

    def observe(self, batch: Batch) -> None:
        """Add entries."""
        self._sha256.update(self._lines.encode(batch))

    def close(self) -> None:
        """Nothing is held open."""

    def hexdigest(self) -> str:
        """Return the hash of everything observed so far, in hexadecimal."""
        return self._sha256.hexdigest()
