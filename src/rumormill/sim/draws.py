"""Randomness for thousands of machines: generators of which only those in use are held.

The state of Python's generator takes 2.9 kB, and a simulated peer has two, from which it draws now
and then. So a `Draws` is what it was seeded with, how much was drawn since, and a few words ahead;
the generator itself is made again when those are used up, and stays as long as it is among the last
that were. The draws are those of `random.Random(seed)`, one for one.
"""

from random import Random
from typing import Any, Final

from rumormill.core.bounded import remember

_LIVE: Final = 512
"""Generators that are held at a time: 1.5 MB. Our choice; who joins draws again soon."""
_MOST_REPEATED: Final = 4096
"""Words of 32 bits after which a generator is held for good. To draw so many again takes as long as
to seed one, and to draw more would take longer and longer."""
_AHEAD: Final = 32
"""Words that are drawn at a time: where many more draw in turn than are held, each would be seeded
for every draw, and that takes thirty times as long as the draw. Our choice: 160 bytes at most."""
_WORD: Final = (1 << 32) - 1
_UNIT: Final = 2.0**-53


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

    __slots__ = ("_ahead", "_drawn", "_generators", "_held", "_left", "_seed")

    def __init__(self, seed: str, generators: Generators) -> None:
        self._seed = seed
        self._generators = generators
        self._drawn = 0
        """Words that the generator has given, those ahead included."""
        self._ahead = self._left = 0
        """Words that nobody has drawn yet, the first one lowest, and how many they are."""
        self._held: Random | None = None

    def _draw_ahead(self, words: int) -> None:
        """Have at least so many words ahead."""
        words, drawn = max(words - self._left, _AHEAD), self._drawn
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
        self._ahead |= found.getrandbits(32 * words) << 32 * self._left
        self._left += words
        self._drawn = drawn + words

    def random(self) -> float:
        """Return a float in [0, 1)."""
        if self._left < 2:
            self._draw_ahead(2)
        ahead = self._ahead
        self._ahead = ahead >> 64
        self._left -= 2
        return ((ahead & 0xFFFFFFE0) * 2097152 + (ahead >> 38 & 0x3FFFFFF)) * _UNIT

    def getrandbits(self, count: int, /) -> int:
        """Return an integer of so many random bits."""
        if 0 < count <= 32 and self._left:  # nearly always, and then in few steps
            ahead = self._ahead
            self._ahead = ahead >> 32
            self._left -= 1
            return (ahead & _WORD) >> 32 - count
        words = -(-count // 32)
        if self._left < words:
            self._draw_ahead(words)
        ahead, spare = self._ahead, 32 * words - count
        self._ahead = ahead >> 32 * words
        self._left -= words
        if not spare:
            return ahead & (1 << count) - 1
        # The last word gives its upper bits.
        whole = 32 * (words - 1)
        top = (ahead >> whole & _WORD) >> spare
        return top << whole | ahead & (1 << whole) - 1

    # Everything else draws by these two.
    _randbelow: Any = Random._randbelow_with_getrandbits  # type: ignore[attr-defined]
    randrange: Any = Random.randrange
    choice: Any = Random.choice
    sample: Any = Random.sample
    shuffle: Any = Random.shuffle
    randbytes: Any = Random.randbytes

    def getstate(self) -> tuple[str, int]:
        """Return what says what will be drawn."""
        return self._seed, self._drawn - self._left

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, self.getstate()


def _restored(seed: str, drawn: int) -> Draws:
    draws = Draws(seed, Generators(0))
    draws._drawn = drawn
    return draws
