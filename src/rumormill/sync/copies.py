"""Counting copies: which connected peers have an event of ours on their disks.

A publisher that wants more than its own disk asks the peers, and asks again those that have not got
it yet: an answer speaks of what is stored at that moment, and nobody remembers a question. Who does
not answer keeps nobody waiting for the others. Nothing of it is signed; it is as good as the peers
are.
"""

from typing import Final

import msgspec

from rumormill.core.effects import Ask, Effects, Outcome, SetTimer
from rumormill.core.history import topic_tag
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.sync.messages import Confirm, Confirmed, SyncMessage

ASKED_AT_ONCE: Final = 16
"""Peers that are asked about one event at a time."""

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two rounds; our choice: a commit at first, then longer each time."""


class CountCopies(msgspec.Struct, frozen=True):
    """A command: wait until so many other peers have stored an event. Its outcome is how many have,
    which is less when so many seconds are over."""

    topic: Topic
    event_id: MessageId
    copies: int
    timeout: float


class Recount(msgspec.Struct, frozen=True):
    """The timer of one command; `last` when its time is over."""

    number: int
    last: bool = False


class _Count(msgspec.Struct):
    command: CountCopies
    holders: dict[PeerId, None] = {}
    asking: dict[PeerId, None] = {}
    """Whose answers are awaited."""
    rests: bool = False
    """Whether its timer is set for another round."""
    pause: float = _FIRST_PAUSE


class Copies:
    """The commands that wait."""

    def __init__(self, randomness: Randomness, timeout: float) -> None:
        self._randomness = randomness
        self._timeout = timeout
        self._counts: dict[int, _Count] = {}
        self._asked: dict[int, int] = {}
        """Which command a question belongs to, by the question's number."""

    def begin(self, number: int, command: CountCopies, now: float, effects: Effects) -> None:
        """Take a command."""
        self._counts[number] = _Count(command)
        effects.append(SetTimer(Recount(number, last=True), now + command.timeout))
        effects.append(SetTimer(Recount(number), now))

    def recount(self, timer: Recount, partners: list[PeerId], first: int, effects: Effects) -> int:
        """Ask those who have not got it, with numbers from `first` on; return how many."""
        count = self._counts.get(timer.number)
        if count is None:
            return 0
        if timer.last:
            self._end(timer.number, effects)
            return 0
        count.rests = False
        left = [each for each in partners if each not in count.holders and each not in count.asking]
        room = ASKED_AT_ONCE - len(count.asking)
        chosen = self._randomness.sample(left, min(len(left), room))
        command = count.command
        for place, peer in enumerate(chosen):
            self._asked[first + place] = timer.number
            message = SyncMessage(Confirm(topic_tag(command.topic), (command.event_id,)))
            effects.append(Ask(peer, first + place, message, self._timeout))
            count.asking[peer] = None
        return len(chosen)

    def on_answer(
        self, peer: PeerId, number: int, body: object, now: float, effects: Effects
    ) -> bool:
        """Take an answer, or that there is none (None); false if the question was another's."""
        asked = self._asked.pop(number, None)
        if asked is None:
            return False
        count = self._counts.get(asked)
        if count is not None:
            count.asking.pop(peer, None)
            if isinstance(body, Confirmed) and body.places:
                count.holders[peer] = None
            if len(count.holders) >= count.command.copies:
                self._end(asked, effects)
            else:
                self._rest(asked, count, now, effects)
        return True

    def wake(self, now: float, effects: Effects) -> None:
        """Somebody has come who may be asked."""
        for number, count in self._counts.items():
            self._rest(number, count, now, effects)

    def _rest(self, number: int, count: _Count, now: float, effects: Effects) -> None:
        """Ask again after a pause."""
        if not count.rests:
            count.rests = True
            effects.append(SetTimer(Recount(number), now + count.pause))
            count.pause = min(2 * count.pause, _LONGEST_PAUSE)

    def _end(self, number: int, effects: Effects) -> None:
        count = self._counts.pop(number)
        effects.append(Outcome(number, len(count.holders)))
