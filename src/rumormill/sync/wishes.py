"""Wishes: what an application wants to be compared now, with everybody who is connected."""

from collections.abc import Iterable, Mapping

import msgspec

from rumormill.core.effects import Effects, Outcome
from rumormill.core.ids import PeerId, Topic


class SyncNow(msgspec.Struct, frozen=True):
    """A command: compare topics with all connected peers at once. Its outcome is a `SyncReport`."""

    topics: tuple[Topic, ...] = ()
    """Those that are meant; all that are followed, if none is named."""


class SyncReport(msgspec.Struct, frozen=True):
    """What became of it: how many peers were asked and answered, and what they gave."""

    asked: int
    answered: int
    events: int


class _Wish(msgspec.Struct):
    """A `SyncNow` under way."""

    topics: list[Topic]
    left: dict[PeerId, int]
    """Partners that are waited for, and how many of the topics were compared with each."""
    asked: int
    answered: int = 0
    events: int = 0


class Wishes:
    """The wishes of one application, each by the number of its command."""

    def __init__(self) -> None:
        self._open: dict[int, _Wish] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(
        self, number: int, topics: list[Topic], partners: Iterable[PeerId], effects: Effects
    ) -> None:
        """Want topics to be compared with some partners."""
        left = dict.fromkeys(partners, 0)
        self._open[number] = _Wish(topics, left, len(left))
        self._grant(effects)

    def wait_for(self, peer: PeerId) -> bool:
        """Whether anybody waits for a comparison with a partner."""
        return any(peer in wish.left for wish in self._open.values())

    def topics_of(self, peer: PeerId, most: int) -> tuple[list[Topic], dict[int, int]]:
        """What is to be compared with a partner, so many topics at a time; and how far that brings
        each wish."""
        topics: dict[Topic, None] = {}
        reached: dict[int, int] = {}
        for number, wish in self._open.items():
            if peer in wish.left and len(topics) < most:
                first = wish.left[peer]
                chosen = wish.topics[first : first + most - len(topics)]
                topics.update(dict.fromkeys(chosen))
                reached[number] = first + len(chosen)
        return list(topics), reached

    def count(self, events: int) -> None:
        """A session has brought so many events."""
        for wish in self._open.values():
            wish.events += events

    def advance(self, peer: PeerId, reached: Mapping[int, int], effects: Effects) -> None:
        """A partner was compared with, so far as was said when that began."""
        for number, place in reached.items():
            wish = self._open.get(number)
            if wish is not None and peer in wish.left:
                wish.left[peer] = place
                if place >= len(wish.topics):
                    del wish.left[peer]
                    wish.answered += 1
        self._grant(effects)

    def let_go(self, peer: PeerId, effects: Effects) -> None:
        """Wait for a partner no longer, because it is gone or does not answer."""
        for wish in self._open.values():
            wish.left.pop(peer, None)
        self._grant(effects)

    def _grant(self, effects: Effects) -> None:
        """Answer the wishes that wait for nobody any more."""
        for number, wish in list(self._open.items()):
            if not wish.left:
                del self._open[number]
                report = SyncReport(wish.asked, wish.answered, wish.events)
                effects.append(Outcome(number, report))
