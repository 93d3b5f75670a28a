"""Entries, and the recorder that a runtime appends them to and observers are fed from.

An entry is one recorded thing: when, at which peer, what. It is a plain tuple, because a runtime
records millions of them and a tuple is the cheapest thing that Python can make. Whatever reads a
trace takes entries in batches. The rule that the recorder keeps: recording costs one `list.append`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from rumormill.core.errors import LocalError
from rumormill.core.ids import PeerId
from rumormill.core.trace import TracePayload

Entry: TypeAlias = tuple[float, PeerId, TracePayload]
"""Seconds, the peer at which it happened, and what happened."""

Batch: TypeAlias = list[Entry]


class Observer(Protocol):
    """Something that looks at a trace while it is recorded."""

    def observe(self, batch: Batch) -> None:
        """Look at the next entries, in the order in which they were recorded.

        Several observers get the same list: nobody changes it.
        """

    def close(self) -> None:
        """The trace is complete."""


class TraceError(LocalError):
    """A trace cannot be written or read; the message names the file and the position."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says of a file that cannot be written into a sentence about it."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error.strerror or error}") from error


_NANOSECONDS = 1_000_000_000
EXACT_PRODUCT_SECONDS = 1_000_000.0
"""Below this, `now * 1e9` rounded is the nearest nanosecond."""


def to_nanoseconds(now: float) -> int:
    """Return the nearest nanosecond; the time stamps of every format are these.

    Beyond about eleven days `now * 1e9` itself would round, so seconds and fraction go separately:
    what was read from a file is written back as the same number.
    """
    if now < EXACT_PRODUCT_SECONDS:
        return round(now * 1e9)
    seconds = int(now)
    return seconds * _NANOSECONDS + round((now - seconds) * 1e9)


def to_seconds(nanoseconds: int) -> float:
    """Return the time in seconds that is nearest to a time stamp."""
    return nanoseconds / _NANOSECONDS


FLUSH_AT = 4096
"""Our choice: large enough that a batch's fixed costs vanish, small enough to stay in cache."""


class Recorder:
    """Collects entries and hands them to every observer in batches, in order.

    `record` *is* the buffer's bound `append`, so a runtime that takes it once pays no call into
    this module per entry. The price is that the buffer cannot watch its own length: the runtime's
    loop calls `maybe_flush` between two steps, and the buffer never holds more than `FLUSH_AT`
    entries plus what one step records.
    """

    __slots__ = ("_buffer", "_observers", "record")

    record: Callable[[Entry], None]
    """Append one entry `(now, peer, payload)`; the bound `append` of the buffer."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._buffer: Batch = []
        self._observers = tuple(observers)
        self.record = self._buffer.append

    def add(self, observer: Observer) -> None:
        """Have another observer see what is recorded from now on."""
        self.flush()
        self._observers = (*self._observers, observer)

    def remove(self, observer: Observer) -> None:
        """Hand it what was recorded so far, and nothing more."""
        self.flush()
        self._observers = tuple([each for each in self._observers if each is not observer])

    def maybe_flush(self, *, long: bool = False) -> None:
        """Flush when the buffer is full, or its last entries are long; cheap enough to be called at
        every step."""
        if long or len(self._buffer) >= FLUSH_AT:
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
