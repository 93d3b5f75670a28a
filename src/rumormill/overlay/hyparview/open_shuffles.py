"""Shuffles of ours that may still be answered: a few, the latest.

The number of a shuffle is drawn at random, so that only somebody who saw the shuffle can answer it.
"""

from collections.abc import Sequence
from typing import Final

from rumormill.core.ids import PeerId
from rumormill.core.randomness import Randomness

_MOST: Final = 4
"""Our choice: answers come within seconds, and shuffles are seconds apart."""


class OpenShuffles:
    """What was named in each open shuffle, by its number."""

    __slots__ = ("_named", "_randomness")

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._named: dict[int, tuple[PeerId, ...]] = {}

    def open(self, named: Sequence[PeerId]) -> int:
        """Note a new shuffle; return its number."""
        number = int.from_bytes(self._randomness.randbytes(8), "big")
        self._named[number] = tuple(named)
        if len(self._named) > _MOST:
            del self._named[next(iter(self._named))]
        return number

    def close(self, number: int) -> tuple[PeerId, ...] | None:
        """Return what a shuffle named, once; None when it is not ours or no longer open."""
        return self._named.pop(number, None)
