"""Randomness for thousands of machines: generators of which only those in use are held.

The state of Python's generator takes 2.9 kB, and a simulated peer has two, from which it draws now
and then. So a `Draws` is what it was seeded with and how much was drawn since; the generator itself
is made again when it is drawn from, and stays as long as it is among the last that were. The draws
are those of `random.Random(seed)`, one for one.
"""

from random import Random
from typing import Any, Final

from rumormill.core.bounded import remember

_LIVE: Final = 512
"""Generators that are held at a time: 1.5 MB. Our choice; who joins draws again soon."""
_MOST_REPEATED: Final = 4096
"""Words of 32 bits after which a generator is held for good. To draw so many again takes as long as
to seed one, and to draw more would take longer and longer."""


class Generators:
    """The generators of one simulation, by what they are for."""

    def __init__(self, seed: int, most: int = _LIVE) -> None:
        self.live: dict[Draws, Random] = {}
        self.most = most
        self._seed = seed

    def draws(self, purpose: str) -> "Draws":
        """What a generator draws that is seeded for a purpose."""
        return Draws(f"{self._seed}/{purpose}", self)


class Draws:
    """One generator, as a machine sees it."""

    __slots__ = ("_drawn", "_generators", "_held", "_seed")

    def __init__(self, seed: str, generators: Generators) -> None:
        self._seed = seed
        self._generators = generators
        self._drawn = 0
        self._held: Random | None = None

    def _generator(self, words: int) -> Random:
        """The generator as it stands; so many words are about to be drawn from it."""
        drawn = self._drawn
        self._drawn = drawn + words
        generators = self._generators
        found = self._held or generators.live.get(self)
        if found is None:
            found = Random(self._seed)
            if drawn:
                found.getrandbits(32 * drawn)
            if drawn < _MOST_REPEATED:
                remember(generators.live, self, found, generators.most)
            else:
                self._held = found
        return found

    def random(self) -> float:
        """Return a float in [0, 1)."""
        return self._generator(2).random()

    def getrandbits(self, count: int, /) -> int:
        """Return an integer of so many random bits."""
        return self._generator(-(-count // 32)).getrandbits(count)

    # Everything else draws by these two.
    _randbelow: Any = Random._randbelow_with_getrandbits  # type: ignore[attr-defined]
    randrange: Any = Random.randrange
    choice: Any = Random.choice
    sample: Any = Random.sample
    shuffle: Any = Random.shuffle
    randbytes: Any = Random.randbytes

    def getstate(self) -> tuple[str, int]:
        """Return what says what will be drawn."""
        return self._seed, self._drawn

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, self.getstate()


def _restored(seed: str, drawn: int) -> Draws:
    draws = Draws(seed, Generators(0))
    draws._drawn = drawn
    return draws
