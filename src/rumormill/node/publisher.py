"""Publishing: what the application says, on its way through the protocol to the log.

Whatever is published within one turn of the loop is one batch for the protocol and one append for
the log: its messages share RPCs and a commit, and their offsets are in the order of publishing. A
receipt comes when the log is safe. When peers cannot take as fast as we publish, publishers wait,
first come, first served. An event that a protocol cannot make at once, because somebody must be
asked first, has its receipt when the protocol's command has an outcome.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

from rumormill.core.effects import Effects, Published
from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import Event
from rumormill.core.ids import MessageId, Topic
from rumormill.core.inputs import Publish, PublishBatch
from rumormill.core.receipt import Receipt
from rumormill.log.model import Appended
from rumormill.log.notes import Note
from rumormill.node.config import NodeConfig
from rumormill.node.desk import Desk, NotedFuture
from rumormill.node.driver import CLOSED, Driver

_PART_EVENTS: Final = 256
_PART_BYTES: Final = 1 << 20
"""Our choice: how much is published at a time, and not more than a quarter of a peer's queue: then
a queue that is not half full takes it. Of a long batch two parts are under way at most."""


_ELSEWHERE: Final = Appended(-1, False, None)
"""Where an event is that another peer has published for us."""
_NOT_NOTED: Final = (
    "this node may not publish in the topic itself, and what it requests cannot be kept with notes"
)
_WAITED_IN_VAIN: Final = "the topic was found, but is gone again"


class _Order:
    """One event that somebody wants to publish."""

    __slots__ = ("done", "published", "refused", "request", "waited")

    def __init__(self, request: Publish, done: "asyncio.Future[Appended]") -> None:
        self.request = request
        self.done = done
        self.published: Published | None = None
        self.waited = False
        self.refused: RumormillError | None = None

    def receipt(self, appended: Appended) -> Receipt:
        published = self.published
        assert published is not None
        return Receipt(
            self.request.topic,
            published.event.id,
            appended.offset,
            appended.durable_at,
            published.peers,
            published.note,
        )


class Publisher:
    """The publishers of one node, in one line."""

    def __init__(
        self,
        driver: Driver,
        desk: Desk,
        config: NodeConfig,
        *,
        batches: bool,
        change: Callable[[], Awaitable[None]],
    ) -> None:
        """`batches`: whether the protocol takes batches; `change` waits until peers have moved."""
        self._driver = driver
        self._desk = desk
        self._config = config
        self._batches = batches
        self._change = change
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._part_events = max(1, min(_PART_EVENTS, config.queue_messages // 4))
        self._part_bytes = min(_PART_BYTES, config.queue_bytes // 4)
        self._waiting: list[_Order] = []
        self._waiting_bytes = 0
        self._kept: dict[MessageId, Event] | None = None
        self._asking: dict[asyncio.Future[object], None] = {}
        self._closed = False

    async def publish(self, topic: Topic, data: bytes) -> Receipt:
        """Publish one event."""
        if self._turn.locked() or self._congested():
            await self._wait_for_room()
        if self._closed:
            raise LocalError(CLOSED)
        order = _Order(Publish(topic, data), self._loop.create_future())
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(order)
        self._waiting_bytes += len(data)
        if len(self._waiting) >= self._part_events or self._waiting_bytes >= self._part_bytes:
            self._flush()
        return order.receipt(await order.done)

    async def publish_many(self, topic: Topic, items: Iterable[bytes]) -> list[Receipt]:
        """Publish events in this order, part by part, until one is refused."""
        receipts: list[Receipt] = []
        part: list[_Order] = []
        try:
            for data in self._parts(items):
                if self._turn.locked() or self._congested():
                    await self._wait_for_room()
                if self._closed:
                    raise LocalError(CLOSED)
                self._flush()  # who came before us
                future = self._loop.create_future
                previous, part = part, [_Order(Publish(topic, each), future()) for each in data]
                self._say_together(part)
                receipts += await _receipts(previous)
                if any(order.refused for order in part):
                    break
            receipts += await _receipts(part)
        finally:
            for order in part:
                order.done.cancel()
        return receipts

    async def publish_noted(self, items: Sequence[tuple[Topic, bytes, Note]]) -> list[Receipt]:
        """Publish events in this order, each kept together with its note, before anybody is told.

        So a node that dies has published exactly what its notes say.
        """
        if self._turn.locked() or self._congested():
            await self._wait_for_room()
        if self._closed:
            raise LocalError(CLOSED)
        self._flush()  # who came before us
        orders = [
            _Order(Publish(topic, data), NotedFuture(note, self._loop))
            for topic, data, note in items
        ]
        self._say_together(orders)
        # Who has stopped waiting does not take back what was published.
        return await asyncio.shield(asyncio.ensure_future(_receipts(orders)))

    def _parts(self, items: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Cut a batch into parts of a bounded size."""
        part: list[bytes] = []
        size = 0
        for data in items:
            part.append(data)
            size += len(data)
            if len(part) >= self._part_events or size >= self._part_bytes:
                yield part
                part, size = [], 0
        if part:
            yield part

    def keep(self, event: Event) -> None:
        """Store what a publisher waits for, what we say besides, and what we keep for others."""
        own = self._driver.id
        if self._kept is not None and event.author in (own, b""):
            self._kept[event.id] = event
        elif event.author == own:
            self._desk.take(event)
        else:
            self._desk.keep(event)

    def close(self) -> None:
        """Refuse what comes from now on; what has been taken is published."""
        self._flush()
        self._closed = True

    # One turn of the loop.

    def _flush(self) -> None:
        """Publish what waits, without what was given up meanwhile."""
        if not self._waiting:
            return
        orders = [order for order in self._waiting if not order.done.done()]
        self._waiting = []
        self._waiting_bytes = 0
        self._say_together(orders)
        if len(orders) > 1 and any(order.refused for order in orders):
            # A batch with something impossible in it was refused whole: find out whose it is.
            for order in [order for order in orders if order.published is None]:
                order.refused = None
                self._say_together([order])
        for order in orders:
            if order.refused is not None and not order.done.done():
                order.done.set_exception(order.refused)

    def _say_together(self, orders: list[_Order]) -> None:
        """Publish a batch; if it is refused, note why with each of its orders."""
        try:
            if self._desk.failure is not None:
                raise self._desk.failure
            if self._batches and len(orders) > 1:
                self._say(orders)
            else:
                for order in orders:
                    self._say([order])
        except RumormillError as error:
            for order in orders:
                if order.published is None:
                    order.refused = error

    def _say(self, orders: list[_Order]) -> None:
        """Give orders to the protocol, and what it makes of them to the log."""
        kept = self._kept = {}
        request: Publish | PublishBatch = orders[0].request
        if len(orders) > 1:
            request = PublishBatch(tuple([order.request for order in orders]))
        noted = [order for order in orders if isinstance(order.done, NotedFuture)]
        try:
            if noted:
                outcomes, unsaid = self._driver.publish_silently(request)
                noted[-1].done.add_done_callback(lambda done: self._say_when_safe(done, unsaid))
            else:
                outcomes = self._driver.publish(request)
        finally:
            self._kept = None
        for order, published in zip(orders, outcomes, strict=True):
            order.published = published
            event = kept.pop(published.event.id, None)
            if published.command is not None:
                self._wait_for(order, published.command)
            elif event is None:
                order.done.set_exception(LocalError(published.note))
            else:
                self._desk.take_own(event, order.done)
        for event in kept.values():
            self._desk.take(event)

    def _wait_for(self, order: _Order, command: object) -> None:
        """Let the protocol do what has to be done first; then the order is settled, or renewed."""
        if isinstance(order.done, NotedFuture):
            order.done.set_exception(LocalError(_NOT_NOTED))
            return
        if order.waited:
            order.done.set_exception(LocalError(_WAITED_IN_VAIN))
            return
        order.waited = True
        waiting = asyncio.ensure_future(self._driver.command(command))
        self._asking[waiting] = None
        waiting.add_done_callback(lambda _: self._on_outcome(order, waiting))

    def _on_outcome(self, order: _Order, waiting: "asyncio.Future[object]") -> None:
        del self._asking[waiting]
        if order.done.done():
            if not waiting.cancelled():
                waiting.exception()  # nobody waits for it any more
            return
        try:
            outcome = waiting.result()
            if isinstance(outcome, Published):
                order.published = outcome
                order.done.set_result(_ELSEWHERE)
            else:
                self._say([order])
        except RumormillError as error:
            order.done.set_exception(error)

    def _say_when_safe(self, done: "asyncio.Future[Appended]", unsaid: Effects) -> None:
        """Tell the peers of events that are in the log; of others they never hear."""
        if not done.cancelled() and done.exception() is None:
            self._driver.say(unsaid)

    # Back-pressure.

    async def _wait_for_room(self) -> None:
        """Wait until no peer is congested, in the order of asking: one looks, the others queue."""
        async with self._turn:
            while self._congested() and not self._closed:
                await self._change()

    def _congested(self) -> bool:
        """Whether a peer that still reads has half a queue of work before it."""
        config = self._config
        for channel in self._driver.channels.values():
            if channel.waits_since is None or channel.is_slow(self._driver.now()):
                continue
            if (
                channel.queued_bytes > config.queue_bytes // 2
                or channel.queued_messages > config.queue_messages // 2
            ):
                return True
        return False


async def _receipts(orders: list[_Order]) -> list[Receipt]:
    """The receipts in order; the first failure, once all are settled."""
    receipts: list[Receipt] = []
    failure: RumormillError | None = None
    for order in orders:
        if order.refused is not None:
            failure = failure or order.refused
            continue
        try:
            receipts.append(order.receipt(await order.done))
        except RumormillError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return receipts
