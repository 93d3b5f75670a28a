"""Wishes: what an application wants to be compared now, with everybody who is connected."""

from collections.abc import Iterable

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
    left: dict[PeerId, None]
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
        left = dict.fromkeys(partners)
        self._open[number] = _Wish(topics, left, len(left))
        self._grant(effects)

    def topics_of(self, peer: PeerId) -> list[Topic] | None:
        """What is to be compared with a partner; None if nobody waits for that."""
        wanted = [wish.topics for wish in self._open.values() if peer in wish.left]
        return wanted[-1] if wanted else None

    def count(self, events: int) -> None:
        """A session has brought so many events."""
        for wish in self._open.values():
            wish.events += events

    def let_go(self, peer: PeerId, effects: Effects, *, answered: bool = False) -> None:
        """Wait for a partner no longer, because it is compared with, or gone."""
        for wish in self._open.values():
            if peer in wish.left:
                del wish.left[peer]
                wish.answered += answered
        self._grant(effects)

    def _grant(self, effects: Effects) -> None:
        """Answer the wishes that wait for nobody any more."""
        for number, wish in list(self._open.items()):
            if not wish.left:
                del self._open[number]
                report = SyncReport(wish.asked, wish.answered, wish.events)
                effects.append(Outcome(number, report))
