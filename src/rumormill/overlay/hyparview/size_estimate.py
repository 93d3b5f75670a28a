"""How many peers there are: extrema propagation, in rounds.

In every round each peer draws k numbers from the exponential distribution with mean 1, and
neighbours exchange the smallest that they have heard of, place by place. The smallest of n such
draws is exponential with mean 1/n, so the k minima of a network of n peers sum to about k/n, and
(k − 1) / sum is an unbiased estimate with a standard error of n / √(k − 2) (C. Baquero,
P. Almeida, R. Menezes, P. Jesus, "Extrema propagation", IEEE TPDS 2012). Minima can be merged in
any order and any number of times: lost, repeated and late news do no harm.

Minima never forget a peer that is gone, so each round (`epoch`) begins with new draws. The round is
the date divided by its length, so peers need not agree on it: whoever hears of the next round
goes over to it. The estimate is the larger one of the last round's and of this round's so far: it
follows growth at once, and shrinking after at most two rounds. Too large is the safe side, since it
only makes messages travel farther.
"""

import math
import struct
from typing import Final

from rumormill.core.randomness import Randomness
from rumormill.overlay.hyparview import reasons

LARGEST: Final = 10**9
"""No estimate is larger, whatever a liar's minima say. Our choice."""


class SizeEstimate:
    """The minima of this round and what came of the last one."""

    __slots__ = ("_count", "_last", "_length", "_randomness", "epoch", "minima")

    def __init__(self, randomness: Randomness, count: int, length: float) -> None:
        self._randomness = randomness
        self._count = count
        self._length = length
        self._last = 1.0
        self.epoch = -1
        self.minima: tuple[float, ...] = ()

    @property
    def size(self) -> float:
        """How many peers there are, this one included, as far as is known."""
        return max(self._last, self._estimate())

    def advance(self, now: float) -> bool:
        """Begin the round that the clock says; true when it is a new one."""
        epoch = int(now / self._length)
        if epoch <= self.epoch:
            return False
        self._begin(epoch)
        return True

    def merge(self, epoch: int, minima: tuple[float, ...], now: float) -> str | None:
        """Take a neighbour's minima; return why they are refused, or None.

        Minima of a round that is over are no fault, and change nothing.
        """
        if epoch > int(now / self._length) + 1:
            return reasons.EPOCH_AHEAD
        if len(minima) != self._count or not all(0.0 < value < math.inf for value in minima):
            return reasons.BAD_MINIMA
        if epoch > self.epoch:
            self._begin(epoch)
        if epoch == self.epoch:
            self.minima = tuple(map(min, self.minima, minima))
        return None

    def _begin(self, epoch: int) -> None:
        self._last = self._estimate()
        self.epoch = epoch
        draws = [-math.log(1.0 - self._randomness.random()) for _ in range(self._count)]
        # As the wire carries them, so that what comes back compares equal; never quite zero.
        rounded = struct.unpack(f"<{self._count}f", struct.pack(f"<{self._count}f", *draws))
        self.minima = tuple([max(value, 2.0**-40) for value in rounded])

    def _estimate(self) -> float:
        total = sum(self.minima)
        if not total:
            return 1.0
        return min(max(1.0, (self._count - 1) / total), float(LARGEST))
