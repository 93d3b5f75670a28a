"""How many questions a session has under way, and which.

A few at a time, so that a hundred topics do not take a hundred round trips. It begins with one, and
each quick answer allows one more. After an answer that was slow, or long, or did not come, it is
one again: what is too much at once for a line would not arrive in time at all.
"""

from typing import Final

import msgspec

from rumormill.core.ids import Topic
from rumormill.sync.messages import Compare, Fetch, Probe

MAX_ASKED: Final = 6
"""Questions at a time; our choice: a node puts eight to a peer, and two are left for those that do
not belong to a session."""

QUICK: Final = 3.0
"""Seconds after which an answer was slow: twice as many at a time still come within the ten seconds
that an answer may take."""

LONG: Final = 512 << 10
"""Bytes of events from which on an answer was long: it held one that is longer than usual."""

MAX_FAILURES: Final = 2
"""How often a question is asked again that got no answer: it may have been lost."""


class Asked(msgspec.Struct):
    """A question to the partner."""

    topic: Topic
    question: Probe | Compare | Fetch
    at: float = 0.0
    """Since when it is under way."""
    failures: int = 0

    @property
    def is_stretch(self) -> bool:
        """Whether it fetches, in their order, events of a range of which nothing is here."""
        return isinstance(self.question, Fetch) and not self.question.wanted[0].known


class UnderWay:
    """The questions of one session."""

    def __init__(self, most: int) -> None:
        self.asked: dict[int, Asked] = {}
        """Those that wait for an answer, by their numbers."""
        self.again: list[Asked] = []
        """Those to be put before all others, because there was none."""
        self._most = most
        self._abreast = 1
        """How many there may be now."""

    @property
    def has_place(self) -> bool:
        """Whether one more may be put."""
        return len(self.asked) < self._abreast

    def put(self, number: int, asked: Asked, now: float) -> None:
        """Begin to wait for an answer."""
        asked.at = now
        self.asked[number] = asked

    def answered(self, number: int, size: int, now: float) -> Asked:
        """End a question whose answer brought so many bytes of events."""
        asked = self.asked.pop(number)
        easy = now - asked.at <= QUICK and size <= LONG
        self._abreast = min(self._abreast + 1, self._most) if easy else 1
        return asked

    def unanswered(self, number: int) -> bool:
        """Whether a question that got no answer is to be put once more."""
        asked = self.asked.pop(number)
        asked.failures += 1
        self._abreast = 1
        self.again.append(asked)
        return asked.failures <= MAX_FAILURES
