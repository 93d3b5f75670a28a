"""When a peer last heard of those with whom nothing is under way: a hundred, in little room.

Numbers of peers in rising order, and a time for each: twelve bytes, where a table takes sixty.
"""

from array import array
from bisect import bisect_left
from math import inf


class Resting:
    """Times by the numbers of peers; no more than so many, the longest past goes first."""

    __slots__ = ("_numbers", "_times")

    def __init__(self) -> None:
        self._numbers = array("I")
        self._times = array("d")

    def __len__(self) -> int:
        return len(self._numbers)

    def _place(self, number: int) -> tuple[int, bool]:
        """Where a peer stands or would stand, and whether it does."""
        place = bisect_left(self._numbers, number)
        return place, place < len(self._numbers) and self._numbers[place] == number

    def since(self, number: int) -> float:
        """When a peer was last heard of; long ago if it is not here."""
        place, found = self._place(number)
        return self._times[place] if found else -inf

    def put(self, number: int, at: float, most: int) -> None:
        """Note when a peer was heard of."""
        place, found = self._place(number)
        if found:
            self._times[place] = at
            return
        if len(self._numbers) >= most:
            oldest = self._times.index(min(self._times))
            del self._numbers[oldest], self._times[oldest]
            place -= oldest < place
        self._numbers.insert(place, number)
        self._times.insert(place, at)

    def remove(self, number: int) -> None:
        """Forget a peer, if it is here."""
        place, found = self._place(number)
        if found:
            del self._numbers[place], self._times[place]

    def clear(self) -> None:
        """Forget all."""
        del self._numbers[:], self._times[:]
