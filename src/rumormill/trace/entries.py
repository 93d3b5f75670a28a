"""One recorded thing: when, at which peer, what; and who may look at it.

The rule here: an entry is a plain tuple, because a runtime records millions of them and a tuple is
the cheapest thing that Python can make. Whatever reads a trace takes entries in batches.
"""

import contextlib
from collections.abc import Iterator
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
