"""The recorder: what a runtime appends to, and what observers are fed from.

The rule it keeps: recording costs one `list.append`. `record` *is* the buffer's bound `append`, so
a runtime that takes it once pays no call into this module per entry. The price is that the buffer
cannot watch its own length: the runtime's loop calls `maybe_flush` between two steps, and the
buffer never holds more than `FLUSH_AT` entries plus what one step records.
"""

from collections.abc import Callable, Sequence

from rumormill.trace.entries import Batch, Entry, Observer

FLUSH_AT = 4096
"""Our choice: large enough that a batch's fixed costs vanish, small enough to stay in cache."""


class Recorder:
    """Collects entries and hands them to every observer in batches, in order."""

    __slots__ = ("_buffer", "_observers", "record")

    record: Callable[[Entry], None]
    """Append one entry `(now, peer, payload)`; the bound `append` of the buffer."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._buffer: Batch = []
        self._observers = tuple(observers)
        self.record = self._buffer.append

    def maybe_flush(self) -> None:
        """Flush when the buffer is full; cheap enough to be called at every step."""
        if len(self._buffer) >= FLUSH_AT:
            self.flush()

    def flush(self) -> None:
        """Hand what was recorded to each observer and empty the buffer.

        The buffer is emptied first: an observer that fails does not get the same entries twice.
        """
        if not self._buffer:
            return
        batch = self._buffer.copy()
        self._buffer.clear()
        for observer in self._observers:
            observer.observe(batch)

    def close(self) -> None:
        """Flush, then tell every observer that the trace is complete."""
        self.flush()
        for observer in self._observers:
            observer.close()
