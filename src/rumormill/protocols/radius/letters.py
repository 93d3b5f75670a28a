"""Letters to subscribers: publications that leave, a bounded number at a time.

A subscriber is known by the word of a neighbour, and where it is by the same word. So the first
letter to each is a trial, and each neighbour has an allowance of trials: one that names thousands
of subscribers that do not exist makes us dial a few of them, and each that is not there costs it
further trials. Whoever was sent a letter and not found missing, or is connected, needs no trial.

A publication with many subscribers leaves in parts, so that nobody waits for the whole of it.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Effects, Learn, Mail, SetTimer
from rumormill.core.ids import PeerId
from rumormill.core.rate_limit import RateLimit
from rumormill.protocols.radius import reasons
from rumormill.protocols.radius.interest_table import Entry, InterestTable
from rumormill.protocols.radius.messages import Frame, Publication

POST: Final = "post"
"""The timer at which letters that wait leave."""

LETTERS_AT_ONCE: Final = 128
"""Letters that leave together. Our choice: one takes 30 microseconds, so some milliseconds."""
MAX_WAITING_LETTERS: Final = 50_000
"""Letters that wait at most. Our choice: one publication for as many as a topic may have."""

_TRIALS: Final = 512.0
_TRIALS_PER_SECOND: Final = 8.0
_ALL_TRIALS: Final = 1024.0
_ALL_TRIALS_PER_SECOND: Final = 64.0
"""First letters to subscribers that one neighbour named, and that all did: at once, and per second.
Our choice: an overlay of a thousand peers is known through five neighbours within a second or two;
a liar has us dial a handful per second."""
_COST_OF_FAILURE: Final = 3.0
"""Further trials that one costs whose subscriber was not there."""
_MAX_NEIGHBOURS: Final = 256
"""Neighbours whose allowance is remembered, gone ones included."""


class Letters:
    """The letters of one peer that are under way to the runtime."""

    def __init__(
        self,
        own: PeerId,
        interests: InterestTable,
        connected: Container[PeerId],
        touch: Callable[[PeerId, float], None],
    ) -> None:
        self._own = own
        self._interests = interests
        self._connected = connected
        self._touch = touch
        self._waiting: deque[tuple[Publication, deque[PeerId]]] = deque()
        self._count = 0
        self._trials: dict[PeerId, RateLimit] = {}
        self._all_trials = RateLimit(_ALL_TRIALS_PER_SECOND, _ALL_TRIALS)

    def send(
        self, publication: Publication, owners: Sequence[PeerId], now: float, effects: Effects
    ) -> int:
        """Send a publication to subscribers, some now and the others soon; return to how many."""
        entries = self._interests.of_topic(publication.topic)
        chosen = deque(owner for owner in owners if self._may_try(owner, entries[owner], now))
        untried = len(owners) - len(chosen)
        if untried:
            effects.append(self._refuse(reasons.NOT_TRIED, untried))
        room = MAX_WAITING_LETTERS - self._count
        if len(chosen) > room:
            effects.append(self._refuse(reasons.TOO_MANY_LETTERS, len(chosen) - room))
            while len(chosen) > room:
                chosen.pop()
        if not chosen:
            return 0
        count = len(chosen)
        self._waiting.append((publication, chosen))
        self._count += count
        if len(self._waiting) == 1:
            self.go_on(now, effects)
        return count

    def go_on(self, now: float, effects: Effects) -> None:
        """Send as many of the letters that wait as may leave together."""
        left = LETTERS_AT_ONCE
        while self._waiting and left:
            publication, owners = self._waiting[0]
            entries = self._interests.of_topic(publication.topic)
            letter = Frame(direct=(publication,))
            while owners and left:
                left -= 1
                self._count -= 1
                owner = owners.popleft()
                entry = entries.get(owner)
                if entry is None or entry.lost:
                    continue
                self._touch(owner, now)
                addresses = entry.interest.addresses
                if addresses:
                    effects.append(Learn(owner, addresses, entry.brought_by or owner))
                effects.append(Mail(owner, letter))
            if not owners:
                self._waiting.popleft()
        if self._waiting:
            effects.append(SetTimer(POST, now))

    def on_missing(self, informants: Iterable[PeerId]) -> None:
        """A subscriber was not there: those who named it have fewer trials left."""
        for informant in informants:
            self._allowance(informant).owe(_COST_OF_FAILURE)

    def _may_try(self, owner: PeerId, entry: Entry, now: float) -> bool:
        if not entry.tried:
            entry.tried = owner in self._connected or (
                self._allowance(entry.brought_by).take(now) and self._all_trials.take(now)
            )
        return entry.tried

    def _allowance(self, informant: PeerId) -> RateLimit:
        limit = self._trials.get(informant)
        if limit is None:
            limit = RateLimit(_TRIALS_PER_SECOND, _TRIALS)
            remember(self._trials, informant, limit, _MAX_NEIGHBOURS)
        return limit

    def _refuse(self, reason: str, count: int) -> trace.Refuse:
        """Nobody who is connected is to blame."""
        return trace.Refuse(self._own, reason, count=count)
