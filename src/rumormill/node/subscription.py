"""A subscription: an async iterator over the events of a topic, in the order of the log.

New events wait in a buffer that is bounded in events and in bytes. What happens when it is full is
the subscriber's choice: by default nothing is lost, because the log has every event and the
subscription catches up from there; or the oldest or the newest events are dropped, which is
counted. A filter looks at an event before it gets here: one that does not match takes no room and
wakes nobody.

A subscription to a pattern has many topics, which are entered as they become known. Each has a
place of its own in the log; what comes in several of them is in the order in which it came.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Final, Self

from rumormill.core.api import ALONE
from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import Event
from rumormill.core.ids import Topic
from rumormill.core.where import Filter
from rumormill.log.errors import OffsetAheadError
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import read_on

BUFFER_FULL: Final = "subscriber's buffer full"
NAMELESS: Final = (
    "only a subscription with a name remembers what was acknowledged: subscribe(topic, name=...)"
)
_CATCH_UP: Final = 256
"""Events read from the log at a time."""
MOST_BYTES: Final = 8 << 20
"""Bytes of data that wait in a buffer, unless a single event has more; and that are read from the
log at a time. Our choice: as much as a client is sent in eight answers, and twice the largest event
of the log."""


class Overflow(Enum):
    """What a subscription does when its buffer is full."""

    CATCH_UP = "catch-up"
    """Read the events from the log later. Nothing is lost, as long as retention keeps them."""
    DROP_OLDEST = "drop-oldest"
    """Forget the oldest event in the buffer, and count it."""
    DROP_NEWEST = "drop-newest"
    """Forget the new event, and count it."""

    @classmethod
    def _missing_(cls, value: object) -> "Overflow":
        choices = ", ".join(policy.value for policy in cls)
        raise LocalError(f"overflow: {value!r} is not one of {choices}")


class Subscription:
    """An async iterator of events. Close it, or use it as an async context."""

    def __init__(
        self,
        topic: Topic,
        log: EventLog,
        buffer: int,
        overflow: Overflow | str,
        where: Filter | None,
        on_close: Callable[["Subscription"], None],
        on_lost: Callable[[Event, str], None],
        opened: Callable[[Event], Event | None],
        *,
        reads_log: bool,
    ) -> None:
        if type(buffer) is not int or buffer < 1:
            raise LocalError(
                f"buffer: {buffer!r}, but a subscription's buffer holds at least one event"
            )
        self.name = ""
        """The name under which its position is remembered, if it has one."""
        self.topic = topic
        """What was subscribed to: a topic or a pattern."""
        self.dropped = 0
        """Events lost to a full buffer, or to retention before they were read."""
        self.reach = ALONE
        """What it takes in besides its topic."""
        self.unreachable: dict[Topic, str] = {}
        """Topics that belong to this one and could not be entered, and why."""
        self.passed_over = 0
        """Events that the filter did not match."""
        self.left_out = 0
        """How often a topic matched the pattern and could not be entered, because it has too many
        already (`NodeConfig.pattern_topics`) or the protocol refused."""
        self.reads_log = reads_log
        """Whether it is given all that the log gets, and not only what is news."""
        self.log = log
        self._next: dict[Topic, int] = {}
        """The offset of the event that the buffer takes next, by topic."""
        self._behind: dict[Topic, None] = {}
        """The topics that are read from the log, in turns."""
        self._size = buffer
        self._where = where
        self._overflow = Overflow(overflow)
        self._on_close = on_close
        self._on_lost = on_lost
        self.opened = opened
        self._buffer: deque[Event] = deque()
        self._bytes = 0
        """Of the data in the buffer."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        """Those who wait for an event: several tasks may read, and each event comes to one."""
        self._catching_up = asyncio.Lock()
        self._failure: RumormillError | None = None
        self._growing: asyncio.Task[None] | None = None
        self._closed = False

    def enter(self, topic: Topic, since_offset: int | None) -> None:
        """Take the events of a topic, from an offset of the log or from now on."""
        info = self.log.topic(topic)
        next_offset = 0 if info is None else info.next_offset
        if since_offset is not None:
            since_offset = max(0, since_offset) if info is None else info.place(since_offset)
            if not 0 <= since_offset <= next_offset:
                raise OffsetAheadError(topic, since_offset, next_offset)
            self._behind[topic] = None
            self._wake()
        self._next[topic] = next_offset if since_offset is None else since_offset

    def leave(self, topic: Topic) -> None:
        """Take no events of a topic that could not be entered."""
        self._behind.pop(topic, None)
        del self._next[topic]

    @property
    def topics(self) -> list[Topic]:
        """The topics whose events it is given: the one, or those of the pattern so far."""
        return [*self._next]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._buffer or await self._wait():
            return self._taken()
        raise StopAsyncIteration

    async def batch(self, limit: int = _CATCH_UP) -> list[Event]:
        """Wait for an event; return it with those that follow at once, at most `limit`.

        The list is empty when the subscription has ended.
        """
        if not self._buffer and not await self._wait():
            return []
        if len(self._buffer) <= limit:
            events = list(self._buffer)
            self._buffer.clear()
            self._bytes = 0
            return events
        return [self._taken() for _ in range(max(1, limit))]

    @property
    def position(self) -> int:
        """The offset of its next event: all before it are handed out or passed over."""
        return self._buffer[0].offset if self._buffer else self._next[self.topic]

    @property
    def pending(self) -> int:
        """Of a named one: events that were handed out and are not acknowledged."""
        raise LocalError(NAMELESS)

    @property
    def lag(self) -> int:
        """Of a named one: events of the log that no consumer of its name was given yet."""
        raise LocalError(NAMELESS)

    async def ack(self, *events: Event | int) -> None:
        """Acknowledge events of a named one, by themselves or by their offsets, or all that were
        handed out here; when this returns, they do not come again, whatever happens."""
        raise LocalError(NAMELESS)

    async def nack(self, *events: Event | int) -> None:
        """Give events of a named one back, or all that are not acknowledged: whoever asks next for
        an event of that name gets them (`Event.via` is "again")."""
        raise LocalError(NAMELESS)

    async def _wait(self) -> bool:
        """Wait until there is an event in the buffer; false when none will come."""
        while True:
            if self._buffer:
                return True
            if self._failure is not None:
                raise self._failure
            if self._closed:
                return False
            if self._behind:
                async with self._catching_up:
                    if self._behind and not self._buffer:  # as nobody else has meanwhile
                        await self._catch_up(next(iter(self._behind)))
            else:
                waiter = asyncio.get_running_loop().create_future()
                self._waiters[waiter] = None
                try:
                    await waiter
                finally:
                    del self._waiters[waiter]

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
        topic, offset = event.topic, event.offset
        if self._closed or topic in self._behind or offset < self._next[topic]:
            return
        if offset > self._next[topic] and self.reads_log:  # the log has got more than was told
            self._behind[topic] = None
            self._wake()
            return
        if self._where is not None and not self._where.matches(event):
            self.passed_over += 1
            self._next[topic] = offset + 1
            return
        size = len(event.data)
        while self._buffer and self._is_full(size):
            if self._overflow is Overflow.CATCH_UP:
                self._behind[topic] = None
                return
            self.dropped += 1
            if self._overflow is Overflow.DROP_NEWEST:
                self._next[topic] = offset + 1
                self._on_lost(event, BUFFER_FULL)
                return
            self._on_lost(self._taken(), BUFFER_FULL)
        self._buffer.append(event)
        self._bytes += size
        self._next[topic] = offset + 1
        self._wake()

    def _is_full(self, size: int) -> bool:
        """Whether there is no room for an event of so many bytes."""
        return len(self._buffer) >= self._size or self._bytes + size > MOST_BYTES

    def _taken(self) -> Event:
        """The oldest event of the buffer, which is no longer there."""
        event = self._buffer.popleft()
        self._bytes -= len(event.data)
        return event

    def look_again(self) -> None:
        """The log may have events that nobody has offered."""
        if self.reads_log and not self._closed:
            self._behind.update(dict.fromkeys(self._next))
            self._wake()

    def tell(self, event: Event) -> None:
        """Take an event of another topic that says something about this one, if there is room: it
        can be read in the other topic as well."""
        if self._buffer and self._is_full(len(event.data)):
            self.dropped += 1
            self._on_lost(event, BUFFER_FULL)
            return
        self._buffer.append(event)
        self._bytes += len(event.data)
        self._wake()

    def grow(self, growth: Coroutine[Any, Any, None]) -> None:
        """Look for what belongs to the topic, as long as this is open."""
        self._growing = asyncio.ensure_future(growth)

    async def _catch_up(self, topic: Topic) -> None:
        """Fill the buffer from the log; end when it has no more, without a gap or a repetition."""
        limit = min(_CATCH_UP, self._size)
        place = self._next[topic]
        start, events = await asyncio.to_thread(read_on, self.log, topic, place, limit, MOST_BYTES)
        self.dropped += start - place
        self._next[topic] = start
        if events:
            readable = [*filter(None, map(self.opened, events))]
            if self._where is not None:  # in a thread, because many payloads are read
                wanted = await asyncio.to_thread(self._where.matching, readable)
                self.passed_over += len(readable) - len(wanted)
                readable = wanted
            self._buffer.extend(readable)
            self._bytes += sum(len(event.data) for event in readable)
            self._next[topic] = events[-1].offset + 1
            del self._behind[topic]
            self._behind[topic] = None  # it is another's turn
            return
        # Nothing was left at `start`. An event committed since then may have been offered while
        # this subscription was still behind: look once more, without giving up the loop.
        info = self.log.topic(topic)
        if info is None or info.next_offset <= start:
            del self._behind[topic]

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    @property
    def failed(self) -> bool:
        """Whether the log has failed under it."""
        return self._failure is not None

    def fail(self, error: RumormillError) -> None:
        """End the iteration with an error, behind what is in the buffer."""
        self._failure = error
        self._wake()

    def close(self) -> None:
        """End the subscription; what is in the buffer can still be read."""
        if not self._closed:
            self._closed = True
            if self._growing is not None:
                self._growing.cancel()
            self._on_close(self)
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
