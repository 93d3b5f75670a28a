"""A subscription: an async iterator over the events of a topic, in the order of the log.

New events wait in a bounded buffer. What happens when it is full is the subscriber's choice: by
default nothing is lost, because the log has every event and the subscription catches up from there;
or the oldest or the newest events are dropped, which is counted.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Self

from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import Event
from rumormill.core.ids import Topic
from rumormill.log.errors import OffsetAheadError, OffsetGoneError
from rumormill.log.event_log import EventLog

BUFFER_FULL: Final = "subscriber's buffer full"
BATCH: Final = 256
"""Events read from the log at a time."""


class Overflow(Enum):
    """What a subscription does when its buffer is full."""

    CATCH_UP = "catch-up"
    """Read the events from the log later. Nothing is lost, as long as retention keeps them."""
    DROP_OLDEST = "drop-oldest"
    """Forget the oldest event in the buffer, and count it."""
    DROP_NEWEST = "drop-newest"
    """Forget the new event, and count it."""


class Subscription:
    """An async iterator of events. Close it, or use it as an async context."""

    def __init__(
        self,
        topic: Topic,
        log: EventLog,
        since_offset: int | None,
        buffer: int,
        overflow: Overflow | str,
        on_close: Callable[["Subscription"], None],
        on_lost: Callable[[Event, str], None],
        opened: Callable[[Event], Event | None],
    ) -> None:
        info = log.topic(topic)
        next_offset = 0 if info is None else info.next_offset
        if since_offset is not None and not 0 <= since_offset <= next_offset:
            raise OffsetAheadError(topic, since_offset, next_offset)
        if buffer < 1:
            raise LocalError("a subscription's buffer holds at least one event")
        self.topic = topic
        self.dropped = 0
        """Events lost to a full buffer, or to retention before they were read."""
        self.leaves_meta: bool | None = None
        """Whether the meta topic is left along with the topic; None for what is configured."""
        self.reads_log = since_offset is not None
        """Whether it is given all that the log gets, and not only what is news."""
        self._log = log
        self._behind = self.reads_log
        self._next_offset = next_offset if since_offset is None else since_offset
        """Of the event that the buffer takes next."""
        self._size = buffer
        try:
            self._overflow = Overflow(overflow)
        except ValueError:
            choices = ", ".join(policy.value for policy in Overflow)
            raise LocalError(f"overflow: {overflow!r} is not one of {choices}") from None
        self._on_close = on_close
        self._on_lost = on_lost
        self._opened = opened
        self._buffer: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: RumormillError | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._buffer or await self._wait():
            return self._buffer.popleft()
        raise StopAsyncIteration

    async def batch(self, limit: int = BATCH) -> list[Event]:
        """Wait for an event; return it with those that follow at once, at most `limit`.

        The list is empty when the subscription has ended.
        """
        if not self._buffer and not await self._wait():
            return []
        if len(self._buffer) <= limit:
            events = list(self._buffer)
            self._buffer.clear()
            return events
        return [self._buffer.popleft() for _ in range(max(1, limit))]

    async def _wait(self) -> bool:
        """Wait until there is an event in the buffer; false when none will come."""
        while not self._buffer:
            if self._behind and self._failure is None and not self._closed:
                await self._catch_up()
            elif not await self._pause():
                return False
        return True

    async def _pause(self) -> bool:
        """Wait until something happens; false when nothing will."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            return False
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def waiting(self) -> int:
        """Events in the buffer."""
        return len(self._buffer)

    def offer(self, event: Event) -> None:
        """Take an event that is safe; called in the order of offsets."""
        offset = event.offset
        if self._closed or self._behind or offset < self._next_offset:
            return
        if len(self._buffer) >= self._size:
            if self._overflow is Overflow.CATCH_UP:
                self._behind = True
                return
            self.dropped += 1
            if self._overflow is Overflow.DROP_NEWEST:
                self._on_lost(event, BUFFER_FULL)
                return
            self._on_lost(self._buffer.popleft(), BUFFER_FULL)
        self._buffer.append(event)
        self._next_offset = offset + 1
        self._wake()

    async def _catch_up(self) -> None:
        """Fill the buffer from the log; end when it has no more, without a gap or a repetition."""
        limit = min(BATCH, self._size)
        start = self._next_offset
        try:
            events = await asyncio.to_thread(self._log.read, self.topic, start, limit)
        except OffsetGoneError as gone:
            self.dropped += gone.first_offset - start
            self._next_offset = gone.first_offset
            return
        if events:
            self._buffer.extend(filter(None, map(self._opened, events)))
            self._next_offset = events[-1].offset + 1
            return
        # Nothing was left at `start`. An event committed since then may have been offered while
        # this subscription was still behind: look once more, without giving up the loop.
        info = self._log.topic(self.topic)
        if info is None or info.next_offset <= start:
            self._behind = False

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    def fail(self, error: RumormillError) -> None:
        """End the iteration with an error, behind what is in the buffer."""
        self._failure = error
        self._wake()

    def close(self) -> None:
        """End the subscription; what is in the buffer can still be read."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
