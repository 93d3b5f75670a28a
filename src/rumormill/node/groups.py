"""Named subscriptions: a place in a topic that outlives its readers, who share the work.

A group is what all open subscriptions of one name to one topic have in common. It follows the log
by one subscription of its own, and gives each event to one consumer, whoever asks first. An event
is pending from then on until it is acknowledged; when its consumer closes, gives it back, or has
had it for longer than it may (`ack_within`), the next who asks gets it again, read anew from the
log.

The rule: what is written down never claims more than was acknowledged. The position is the offset
of the first event that nobody was given, and the offsets that are pending before it. After a kill
everything from there on is handed out again, except what `ack` had returned for.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from rumormill.core.api import GroupView
from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import AGAIN, Event, Position
from rumormill.core.ids import Topic
from rumormill.log.calls import Ticket
from rumormill.log.errors import OffsetGoneError, StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import behind_loss
from rumormill.log.positions import read_positions
from rumormill.node.arguments import checked
from rumormill.node.subscription import Overflow, Subscription

MOST_PENDING: Final = 1024
"""Our choice: events of a group that may be handed out and not acknowledged. No more are handed out
then; their offsets are what a position writes down, 8 kB at most."""
MOST_GROUPS: Final = 512
"""Our choice: names that a node remembers, as many as one label of its metrics may have."""
_MOST_NAME_BYTES: Final = 128
_AHEAD: Final = 64
"""Events that wait in the group for whoever asks next."""


class Group:
    """The consumers of one name, and what they share."""

    def __init__(self, log: EventLog, feed: Subscription, position: Position, where: str) -> None:
        self.where = where
        """The filter, which all consumers share too."""
        self.consumers: dict[NamedSubscription, None] = {}
        self.gone = 0
        """Pending events that retention has deleted."""
        self.late = 0
        """How often an event was taken from a consumer that did not acknowledge it in time."""
        self.feed = feed
        self._name = position.name
        self._log = log
        self._held: dict[int, NamedSubscription | None] = dict.fromkeys(position.pending)
        """What is handed out, or was, by offset: to whom."""
        self._again: dict[int, None] = dict.fromkeys(position.pending)
        """Those of them that nobody has any more."""
        self._ready: deque[Event] = deque()
        self._news = asyncio.Event()
        self._failure: RumormillError | None = None
        self._ended = self.closed = False
        self._loop = asyncio.get_running_loop()
        self._written = position
        self._writing = False
        self._wanted: asyncio.Future[None] | None = None
        """Resolved when the position as it is now has been written."""
        self._pumping = asyncio.ensure_future(self._pump())

    # Handing out.

    def _try_again(self) -> None:
        """What failed was then."""
        if self._failure is not None and not self.closed:
            self._failure, self._ended = None, False
            self._pumping = asyncio.ensure_future(self._pump())

    async def renew(self, follow: Callable[[int], Awaitable[Subscription]]) -> None:
        """Go on with another feed: the log has failed under ours for good, and was mended."""
        feed, failed = await follow(self.position.next_offset or 0), self.feed
        feed.enter(feed.topic, self.position.next_offset)  # some may have been taken meanwhile
        self.feed, self.gone = feed, self.gone + failed.dropped
        self._ready.clear()
        failed.close()
        if self.closed:  # all consumers have ended meanwhile
            feed.close()
        self._try_again()

    async def take(self, consumer: "NamedSubscription", most: int) -> list[Event]:
        """Wait for events that nobody has, and give a consumer at most so many; none at the end."""
        self._try_again()
        while not consumer.closed:
            if self._again:
                events = await self._read_again(consumer)
            elif self._ready:
                events = [self._ready.popleft() for _ in range(min(most, len(self._ready)))]
                self._held.update(dict.fromkeys([event.offset for event in events], consumer))
                self._wake()
            elif self._failure is not None:
                raise self._failure
            elif self._ended:
                break
            else:
                await self._news.wait()
                continue
            if events:
                return events
        return []

    async def _read_again(self, consumer: "NamedSubscription") -> list[Event]:
        """Give a consumer an event that was handed out before, if the log still has it."""
        offset = next(iter(self._again))
        del self._again[offset]
        topic = self.feed.topic
        try:
            if behind_loss(self._log, topic, offset) != offset:
                raise OffsetGoneError(topic, offset, offset + 1)
            (kept,) = await asyncio.to_thread(self._log.read, topic, offset, 1)
        except OffsetGoneError:
            self.gone += self._held.pop(offset, "") is None
            return []
        except BaseException:
            self._again[offset] = None
            raise
        event = self.feed.opened(kept)
        if event is None or offset not in self._held:  # unreadable, or acknowledged meanwhile
            self._held.pop(offset, None)
            return []
        if consumer.closed:
            self._again[offset] = None
            return []
        self._held[offset] = consumer
        return [replace(event, via=AGAIN)]

    async def _pump(self) -> None:
        """Take from the log what there is room for, as long as the group is open."""
        try:
            while True:
                room = min(MOST_PENDING - len(self._held), _AHEAD) - len(self._ready)
                if room <= 0:
                    await self._news.wait()
                elif events := await self.feed.batch(room):
                    self._ready.extend(events)
                    self._wake()
                else:
                    break
        except RumormillError as error:
            self._failure = error
        finally:
            self._ended = True
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # Acknowledging.

    def settle(self, offsets: Iterable[int]) -> None:
        """Events are done with."""
        for offset in offsets:
            self._held.pop(offset, None)
            self._again.pop(offset, None)
        self._wake()

    def give_back(self, consumer: "NamedSubscription", offsets: Iterable[int]) -> int:
        """Events that a consumer has are for the next who asks; return how many those are."""
        mine = [offset for offset in sorted(offsets) if self._held.get(offset) is consumer]
        self._held.update(dict.fromkeys(mine))
        self._again.update(dict.fromkeys(mine))
        self._wake()
        return len(mine)

    def leave(self, consumer: "NamedSubscription") -> None:
        """A consumer has ended: what it has not acknowledged is for the others."""
        self.consumers.pop(consumer, None)
        self.give_back(consumer, [*self._held])

    @property
    def position(self) -> Position:
        """How far the group has come."""
        start = self._ready[0].offset if self._ready else self.feed.position
        return Position(self.feed.topic, self._name, start, tuple(sorted(self._held)))

    @property
    def dropped(self) -> int:
        """Events that retention has deleted before they were read or acknowledged."""
        return self.feed.dropped + self.gone

    def save(self) -> "asyncio.Future[None]":
        """Have the position written; of what changes during one write, the last state is next."""
        if self._wanted is None:
            self._wanted = self._loop.create_future()
        wanted = self._wanted
        if not self._writing:
            self._write(wanted)
        return wanted

    def _write(self, wanted: "asyncio.Future[None]") -> None:
        self._wanted, self._writing, position = None, True, self.position
        try:
            ticket = self._log.append([], wait=False, notes=[position])
        except StoreError as error:
            self._on_written(position, wanted, error)
            return

        def done(ticket: Ticket) -> None:
            error = ticket.exception()
            self._loop.call_soon_threadsafe(self._on_written, position, wanted, error)

        ticket.add_done_callback(done)

    def _on_written(
        self, position: Position, wanted: "asyncio.Future[None]", error: BaseException | None
    ) -> None:
        """Tell who waits; a position that could not be written is written with the next."""
        self._writing = False
        if error is None:
            self._written = position
            wanted.set_result(None)
        else:
            wanted.set_exception(error)
            wanted.exception()  # nobody need wait for it
        if self._wanted is not None:
            self._write(self._wanted)

    def close(self) -> None:
        """End; what was acknowledged last is on its way to the disk behind what is there."""
        self.closed = True
        self.feed.close()
        self._pumping.cancel()
        if self._wanted is not None or self.position != self._written:
            self._write(self._wanted or self._loop.create_future())


class NamedSubscription(Subscription):
    """A consumer of a group: it is given what no other has. See `Node.subscribe`."""

    def __init__(
        self,
        group: Group,
        name: str,
        auto_ack: bool,
        ack_within: float | None,
        on_close: Callable[[Subscription], None],
        settle_late: Callable[[Topic, str, Sequence[int]], Awaitable[None]],
    ) -> None:
        feed = group.feed
        super().__init__(
            feed.topic,
            feed.log,
            1,
            Overflow.CATCH_UP,
            None,
            on_close,
            lambda *_: None,
            feed.opened,
            reads_log=True,
        )
        self.name = name
        self.group = group
        self._auto_ack, self._ack_within = auto_ack, ack_within
        self._settle_late = settle_late
        self._unacknowledged: dict[int, float] = {}
        """What it has, in that order: until when."""
        self._watching: asyncio.TimerHandle | None = None
        group.consumers[self] = None

    @property
    def topics(self) -> list[Topic]:
        """The topic."""
        return [self.topic]

    @property
    def pending(self) -> int:
        """Events of this name that were handed out and are not acknowledged."""
        return len(self.group.position.pending)

    @property
    def lag(self) -> int:
        """Events of the log that no consumer of this name was given yet."""
        return _lag(self.log, self.group.position)

    async def __anext__(self) -> Event:
        for event in await self.batch(1):
            return event
        raise StopAsyncIteration

    @checked
    async def batch(self, limit: int = _AHEAD) -> list[Event]:
        """Wait for an event; return it with those that follow at once, at most `limit`."""
        if self._auto_ack and self._unacknowledged:
            self.group.settle(self._unacknowledged)
            self._unacknowledged.clear()
            self.group.save()
        events = await self.group.take(self, max(1, limit))
        until = math.inf
        if self._ack_within is not None:
            until = asyncio.get_running_loop().time() + self._ack_within
        for event in events:
            self._unacknowledged.pop(event.offset, None)
            self._unacknowledged[event.offset] = until
        self._watch()
        self.dropped, self.passed_over = self.group.dropped, self.group.feed.passed_over
        return events

    def _watch(self) -> None:
        """Be called when the first of what it has is due."""
        until = next(iter(self._unacknowledged.values()), math.inf)
        if self._watching is None and until < math.inf:
            self._watching = asyncio.get_running_loop().call_at(until, self._take_away)

    def _take_away(self) -> None:
        """What was not acknowledged in time is for the next who asks. It is still acknowledged by
        who asks for the next event, or the same one would come to that consumer for ever."""
        self._watching = None
        now = asyncio.get_running_loop().time()
        late = [offset for offset, until in self._unacknowledged.items() if until <= now]
        for offset in late:
            del self._unacknowledged[offset]
            if self._auto_ack:
                self._unacknowledged[offset] = math.inf
        self.group.late += self.group.give_back(self, late)
        self._watch()

    def close(self) -> None:
        """End; what it has not acknowledged is for the others."""
        if self._watching is not None:
            self._watching.cancel()
        super().close()

    @checked
    async def ack(self, *events: Event | int) -> None:
        """Acknowledge events, or all that this consumer was given; return when that is safe."""
        offsets = [_offset(each) for each in events] or [*self._unacknowledged]
        for offset in offsets:
            self._unacknowledged.pop(offset, None)
        if self.group.closed:
            await self._settle_late(self.topic, self.name, offsets)
        else:
            self.group.settle(offsets)
            await asyncio.shield(self.group.save())

    @checked
    async def nack(self, *events: Event | int) -> None:
        """Give events back, or all that were not acknowledged: the next who asks gets them."""
        offsets = [_offset(each) for each in events] or [*self._unacknowledged]
        for offset in offsets:
            self._unacknowledged.pop(offset, None)
        self.group.give_back(self, offsets)


class Groups:
    """The named subscriptions of a node: those that are open, and the positions of all."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._positions = {(each.topic, each.name): each for each in read_positions(log)}
        self._open: dict[tuple[Topic, str], Group] = {}
        self._turn = asyncio.Lock()

    async def join(
        self,
        topic: Topic,
        name: str,
        auto_ack: bool,
        ack_within: float | None,
        where: str | None,
        start: int,
        follow: Callable[[int], Awaitable[Subscription]],
    ) -> NamedSubscription:
        """Open a subscription of a name; `start` is where a new one begins, `follow` subscribes to
        the topic from an offset of the log."""
        check_consumer(name, ack_within)
        key, filtered = (topic, name), where or ""
        async with self._turn:
            group = self._open.get(key)
            if group is not None and group.feed.closed:  # the topic was left
                _end(group)
                group = None
            if group is not None and group.feed.failed:
                await group.renew(follow)
            if group is None or group.closed:
                position = await self._known(Position(topic, name, start))
                assert position.next_offset is not None
                feed = await follow(position.next_offset)
                group = self._open[key] = Group(self._log, feed, position, filtered)
            elif group.where != filtered:
                raise LocalError(
                    f"the subscription {name!r} to {topic!r} is open with where={group.where!r}:"
                    " its consumers share one filter"
                )
            told = self._leave, self._settle
            return NamedSubscription(group, name, auto_ack, ack_within, *told)

    async def _known(self, new: Position) -> Position:
        """The position of a name; a new one is written down first."""
        key = (new.topic, new.name)
        if key not in self._positions:
            if len(self._positions) >= MOST_GROUPS:
                raise LocalError(
                    f"this node remembers {MOST_GROUPS} named subscriptions already; forget one"
                    " (`forget_group`, or `rumormill groups --forget`)"
                )
            await self._write(new)
            self._positions[key] = new
        return self._positions[key]

    async def _write(self, position: Position) -> None:
        ticket = self._log.append([], wait=False, notes=[position])
        await asyncio.shield(asyncio.wrap_future(ticket))

    def _leave(self, consumer: Subscription) -> None:
        assert isinstance(consumer, NamedSubscription)
        group, key = consumer.group, (consumer.topic, consumer.name)
        group.leave(consumer)
        if not group.consumers and self._open.get(key) is group:
            del self._open[key]
            self._positions[key] = group.position
            group.close()

    async def _settle(self, topic: Topic, name: str, offsets: Sequence[int]) -> None:
        """Acknowledge what a consumer had whose group has ended, in whatever came after it."""
        async with self._turn:
            group, known = self._open.get((topic, name)), self._positions.get((topic, name))
            if known is None:
                raise LocalError(f"there is no subscription {name!r} to {topic!r}")
            if group is not None:
                group.settle(offsets)
                await asyncio.shield(group.save())
            else:
                left = tuple([each for each in known.pending if each not in offsets])
                known = self._positions[topic, name] = replace(known, pending=left)
                await self._write(known)

    def learn(self, positions: Iterable[Position]) -> None:
        """The log has positions that it did not have; those that are known stay."""
        for each in positions:
            self._positions.setdefault((each.topic, each.name), each)

    def close(self) -> None:
        """End all of them; what was acknowledged is given to the log."""
        for group in [*self._open.values()]:
            _end(group)

    async def forget(self, topic: Topic, name: str) -> None:
        """Forget a name that nobody uses; return when that is safe."""
        async with self._turn:
            key = (topic, name)
            if key not in self._positions:
                raise LocalError(f"there is no subscription {name!r} to {topic!r}")
            if key in self._open:
                count = len(self._open[key].consumers)
                raise LocalError(
                    f"the subscription {name!r} to {topic!r} is open: close its consumers ({count})"
                )
            await self._write(Position(topic, name, None))
            del self._positions[key]

    def views(self) -> list[GroupView]:
        """All of them, by topic and name."""
        return [self._view(key) for key in sorted(self._positions)]

    def _view(self, key: tuple[Topic, str]) -> GroupView:
        group = self._open.get(key)
        position = self._positions[key] if group is None else group.position
        lag, pending = _lag(self._log, position), len(position.pending)
        view = GroupView(*key, position.next_offset or 0, pending, lag)
        if group is None:
            return view
        now = {"consumers": len(group.consumers), "dropped": group.dropped, "late": group.late}
        return replace(view, **now)


def _end(group: Group) -> None:
    for consumer in [*group.consumers]:
        consumer.close()


def _lag(log: EventLog, position: Position) -> int:
    row = log.writer().topics.get(position.topic)
    return 0 if row is None else row.next_offset - max(position.next_offset or 0, row.first_offset)


def _offset(event: Event | int) -> int:
    return event if isinstance(event, int) else event.offset


def check_consumer(name: str, ack_within: float | None) -> None:
    """Refuse what no named subscription can have."""
    if not name or not name.isprintable():
        raise LocalError(f"name: {name!r}, but a subscription's name is printable text")
    if len(name.encode(errors="replace")) > _MOST_NAME_BYTES:
        raise LocalError(f"name: a subscription's name has at most {_MOST_NAME_BYTES} bytes")
    if ack_within is not None and not 0 < ack_within < math.inf:
        raise LocalError(f"ack_within: {ack_within!r}, but it is a number of seconds above 0")
