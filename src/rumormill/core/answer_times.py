"""How long answers usually take, so that a question is put again as soon as it was probably lost.

As TCP's estimate (RFC 6298): mean and mean deviation move with every answer, and after the mean
and four deviations hardly any answer is still to come. Only answers to questions that were put once
count, since nobody can tell which of several was answered (Karn's rule). So that a network slower
than the estimate is noticed nevertheless, a question that has to be repeated doubles the patience
with the next ones, until one is answered at once.
"""

from typing import Final

import msgspec

_LEAST: Final = 0.25
"""Seconds that are waited at least. Our choice: a peer that is busy for a moment is not lost."""
_MOST_DOUBLINGS: Final = 3


class AnswerTimes(msgspec.Struct):
    """An estimate; it begins with RFC 6298's second."""

    mean: float = 0.5
    deviation: float = 0.125
    doublings: int = 0

    def note(self, seconds: float) -> None:
        """The answer to a question that was put once took so long."""
        self.deviation += (abs(seconds - self.mean) - self.deviation) / 4
        self.mean += (seconds - self.mean) / 8
        self.doublings = 0

    def repeat(self) -> None:
        """A question is put again."""
        self.doublings = min(self.doublings + 1, _MOST_DOUBLINGS)

    @property
    def patience(self) -> float:
        """Seconds after which an answer that has not come is probably lost."""
        return max(_LEAST, self.mean + 4 * self.deviation) * float(2**self.doublings)
