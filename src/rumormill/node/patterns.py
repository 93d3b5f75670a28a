"""Subscriptions to patterns: topics join them as they become known.

A node knows the topics that its peers and itself subscribe to, as far as the protocol tells, and
those of its own log. Nobody has a list of all: membership finds the subscribers of a topic by a
hash of its name, which does not give the name away. So what is known is looked through a few times
a second, while somebody is subscribed to a pattern, and not at all otherwise.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.ids import Topic
from rumormill.core.patterns import Pattern
from rumormill.node.subscription import Subscription

_LOOK_SECONDS: Final = 0.25
_LOOK_LONGER: Final = 1e-5
"""Our choice: soon enough for people; where 10,000 topics are known, some milliseconds of work.
Peers may name half a million: the more there are, the longer nobody looks, by so much for each."""
_LOOKED_AT: Final = 8192
"""Topics that are looked at before others have their turn of the loop; our choice: a millisecond or
two."""
_AT_ONCE: Final = 16
"""Topics that are entered before others have their turn of the loop; our choice: a few
milliseconds, and a peer may announce a thousand at once."""


class _Wish(msgspec.Struct, frozen=True):
    """What a subscription to a pattern wants, and how it enters a topic: from an offset or now."""

    pattern: Pattern
    enter: Callable[[Topic, int | None], None]


class Patterns:
    """The subscriptions to patterns of one node."""

    def __init__(
        self,
        known: Callable[[], list[Topic]],
        failure: Callable[[], RumormillError | None],
        count: Callable[[str], None],
        most: int,
    ) -> None:
        """Take who lists the topics that are known, who tells why nothing can be stored any more,
        and who counts, by pattern, topics that were not entered; `most` is how many one pattern
        enters."""
        self._known, self._failure, self._count, self._most = known, failure, count, most
        self._wishes: dict[Subscription, _Wish] = {}
        self._last: dict[Topic, None] = {}
        """What was known when somebody last looked."""
        self._watching: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    def __iter__(self) -> Iterator[Subscription]:
        return iter([*self._wishes])

    async def add(
        self,
        subscription: Subscription,
        since_offset: int | None,
        enter: Callable[[Topic, int | None], None],
    ) -> None:
        """Enter the topics of a pattern, now and when others become known."""
        wish = _Wish(Pattern(subscription.topic), enter)
        async with self._looking:
            new, others = await self._look(), [*self._wishes.items()]
            known = [*self._last]
            self._wishes[subscription] = wish
            if self._watching is None:
                self._watching = asyncio.ensure_future(self._watch())
            await self._enter([(subscription, wish)], known, since_offset)
            await self._enter(others, new, 0)

    def remove(self, subscription: Subscription) -> None:
        """Enter nothing more for a subscription."""
        self._wishes.pop(subscription, None)
        if not self._wishes and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS + _LOOK_LONGER * len(self._last))
            async with self._looking:
                new = await self._look()
                # Whatever our own log has of it came after the subscription, and is given.
                await self._enter([*self._wishes.items()], new, 0)

    async def _look(self) -> list[Topic]:
        """What has become known."""
        failure = self._failure()
        if failure is not None:
            for subscription in self._wishes:
                subscription.fail(failure)
        names, known, new = self._known(), dict[Topic, None](), list[Topic]()
        for start in range(0, len(names), _LOOKED_AT):
            some = dict.fromkeys(names[start : start + _LOOKED_AT])
            new += [topic for topic in some if topic not in self._last and topic not in known]
            known |= some
            await asyncio.sleep(0)
        self._last = known
        return new

    async def _enter(
        self, wishes: list[tuple[Subscription, _Wish]], topics: list[Topic], start: int | None
    ) -> None:
        """Enter topics for those whose pattern they match and who are still there."""
        for number, topic in enumerate(topics, 1):
            for subscription, wish in wishes:
                if subscription in self._wishes:
                    self._offer(subscription, wish, topic, start)
            if not number % _AT_ONCE:
                await asyncio.sleep(0)

    def _offer(
        self, subscription: Subscription, wish: _Wish, topic: Topic, start: int | None
    ) -> None:
        if not wish.pattern.matches(topic) or topic in (entered := subscription.topics):
            return
        if len(entered) < self._most:
            try:
                wish.enter(topic, start)
            except LocalError:  # the protocol has enough, or a filter of the application refuses
                pass
            else:
                return
        subscription.left_out += 1
        self._count(subscription.topic)
