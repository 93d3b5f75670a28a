"""How long things take, counted in a few boxes: what a metrics page shows of it.

Bounded by the number of its bounds; a value belongs to the first box whose bound is not below it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Our choice: from the flush of a good disk to what nobody waits for."""


class Histogram:
    """Counts of values by their size, and their sum."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def add_all(self, values: Sequence[float]) -> None:
        """Count values, most of which are alike: those that came together waited together."""
        if not values:
            return
        ordered, bounds, counted = sorted(values), self._bounds, 0
        for box in range(bisect_left(bounds, ordered[0]), bisect_left(bounds, ordered[-1])):
            up_to = bisect_right(ordered, bounds[box])
            self._counts[box] += up_to - counted
            counted = up_to
        self._counts[bisect_left(bounds, ordered[-1])] += len(values) - counted
        self.sum += sum(values)

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self._counts)

    def boxes(self) -> Iterator[tuple[str, int]]:
        """For each bound, as text, how many values were not above it; all of them at last."""
        yield from zip([*map(str, self._bounds), "+Inf"], accumulate(self._counts), strict=True)
