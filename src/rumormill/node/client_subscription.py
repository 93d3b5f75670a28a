"""A subscription of a client: what a node that runs elsewhere sends, as an async iterator.

The rule: events are asked for by a task of its own, so that an interrupted wait, by a timeout
for example, loses none of them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Self

from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import Event
from rumormill.core.ids import Topic as TopicName
from rumormill.daemon import control_messages as messages
from rumormill.daemon.control_consumers import Consumer
from rumormill.daemon.control_errors import error_of
from rumormill.node.arguments import checked
from rumormill.node.groups import MOST_PENDING
from rumormill.node.subscription import NAMELESS

_AHEAD: Final = 64


class ClientSubscription:
    """An async iterator of events from a node that runs elsewhere, with the calls of
    `Subscription`. Close it, or use it as an async context."""

    def __init__(
        self,
        topic: TopicName,
        name: str,
        auto_ack: bool,
        source: Consumer | AsyncIterator[Any],
        siblings: dict["ClientSubscription", None],
    ) -> None:
        self.topic = topic
        """What was subscribed to: a topic or a pattern."""
        self.name = name
        """The name under which its position is remembered, if it has one."""
        self.dropped = 0
        """Events lost to a full buffer, or to retention before they were read."""
        self._auto_ack = auto_ack
        self._source = source
        self._siblings = siblings
        self._ready: deque[Event] = deque()
        self._pulling: asyncio.Future[Any] | None = None
        self._unacknowledged: dict[int, None] = {}
        self._stands = (0, 0)
        self._closing: asyncio.Future[None] | None = None
        siblings[self] = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        for event in await self.batch(1):
            return event
        raise StopAsyncIteration

    @checked
    async def batch(self, limit: int = _AHEAD) -> list[Event]:
        """Wait for an event; return it with those that follow at once, at most `limit`.

        The list is empty when the subscription has ended. An interrupted wait loses nothing.
        """
        if self._auto_ack and self._unacknowledged and not self._ready:
            await self._acknowledge()
        while not self._ready:
            if self._closing is not None or not await self._pull(max(1, limit)):
                return []
        events = [self._ready.popleft() for _ in range(min(max(1, limit), len(self._ready)))]
        if self.name:
            self._unacknowledged.update(dict.fromkeys([event.offset for event in events]))
            while len(self._unacknowledged) > MOST_PENDING:  # others have had the oldest by now
                del self._unacknowledged[next(iter(self._unacknowledged))]
        return events

    async def _acknowledge(self) -> None:
        """Acknowledge what was asked past, unless somebody has closed this meanwhile."""
        try:
            await self.ack()
        except RumormillError:
            if self._closing is None:
                raise

    async def _pull(self, most: int) -> bool:
        """Have the next events come; false at the end."""
        if self._pulling is None:
            self._pulling = asyncio.ensure_future(self._next(most))
        pulling = self._pulling
        try:
            found: bool = await asyncio.shield(pulling)
        except asyncio.CancelledError:
            if self._closing is not None and pulling.cancelled():
                return False  # closed by another, who waits for nothing more
            raise
        finally:
            if pulling.done() and self._pulling is pulling:
                self._pulling = None
        return found

    async def _next(self, most: int) -> bool:
        if isinstance(self._source, Consumer):
            given = await self._source.take(most)
            self.dropped, self._stands = given.lost, (given.pending, given.lag)
            self._ready.extend(given.events)
            return bool(given.events)
        try:
            batch: messages.Events = await anext(self._source)
        except StopAsyncIteration:
            return False
        except messages.ControlError as error:
            if error.code == "ended":
                return False
            raise
        self.dropped += batch.lost
        self._ready.extend(batch.events)
        return True

    # Of a named one.

    @property
    def pending(self) -> int:
        """Events of its name that were not acknowledged, when the node was last heard of."""
        self._consumer()
        return self._stands[0]

    @property
    def lag(self) -> int:
        """Events of the log that no consumer of its name had been given then."""
        self._consumer()
        return self._stands[1]

    @checked
    async def ack(self, *events: Event | int) -> None:
        """Acknowledge events, or all that this consumer was given; return when that is safe."""
        await self._settle(events, back=False)

    @checked
    async def nack(self, *events: Event | int) -> None:
        """Give events back, or all that were not acknowledged: the next who asks gets them."""
        await self._settle(events, back=True)

    async def _settle(self, events: Iterable[Event | int], *, back: bool) -> None:
        consumer = self._consumer()
        offsets = [each if isinstance(each, int) else each.offset for each in events]
        offsets = offsets or [*self._unacknowledged]
        settled = await consumer.settle(offsets, back=back)
        self._stands = (settled.pending, settled.lag)
        if settled.error is not None:
            raise error_of(settled.error)
        for offset in offsets:
            self._unacknowledged.pop(offset, None)

    def _consumer(self) -> Consumer:
        if not isinstance(self._source, Consumer):
            raise LocalError(NAMELESS)
        return self._source

    # The end.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.ended()

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closing is not None

    def close(self) -> None:
        """End it; what has come can still be read."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._end())

    async def ended(self) -> None:
        """End it; return when the node's side has been let go."""
        self.close()
        assert self._closing is not None
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        if self._pulling is not None:
            self._pulling.cancel()
            await asyncio.gather(self._pulling, return_exceptions=True)
        if isinstance(self._source, Consumer):
            await self._source.close()
        else:
            await self._source.aclose()  # type: ignore[attr-defined]
        self._siblings.pop(self, None)
