"""Randomness as an argument: the few draws that a protocol may make.

`random.Random(seed)` satisfies this interface. Protocols receive an instance and never import a
generator, so one seed decides a whole run.
"""

from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")


class Randomness(Protocol):
    """The part of `random.Random` that protocols use."""

    def random(self) -> float:
        """Return a float in [0, 1)."""

    def randrange(self, stop: int, /) -> int:
        """Return an integer in [0, stop)."""

    def choice(self, items: Sequence[Item], /) -> Item:
        """Return one item of a sequence that is not empty."""

    def sample(self, items: Sequence[Item], count: int, /) -> list[Item]:
        """Return `count` distinct positions' items, in random order."""

    def shuffle(self, items: MutableSequence[Any], /) -> None:
        """Reorder the list in place."""

    def randbytes(self, count: int, /) -> bytes:
        """Return that many random bytes."""
