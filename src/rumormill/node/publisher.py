"""Publishing: what the application says, on its way through the protocol to the log.

Whatever is published within one turn of the loop is one batch for the protocol and one append for
the log: its messages share RPCs and a commit, and their offsets are in the order of publishing. A
receipt comes when the log is safe. When peers cannot take as fast as we publish, publishers wait,
first come, first served.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from rumormill.core.effects import Effects, Published
from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import Event
from rumormill.core.ids import MessageId, Topic
from rumormill.core.inputs import Publish, PublishBatch
from rumormill.node.config import NodeConfig
from rumormill.node.desk import Desk, NotedFuture
from rumormill.node.driver import Driver
from rumormill.node.receipt import Receipt
from rumormill.store.model import Appended
from rumormill.store.notes import Note

_PART_EVENTS: Final = 256
_PART_BYTES: Final = 1 << 20
"""Our choice: how much of a long batch is published at a time. Two parts are under way at most."""


class _Order:
    """One event that somebody wants to publish."""

    __slots__ = ("done", "published", "request")

    def __init__(self, request: Publish, done: "asyncio.Future[Appended]") -> None:
        self.request = request
        self.done = done
        self.published: Published | None = None

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
        self._waiting: list[list[_Order]] = []
        self._kept: dict[MessageId, Event] | None = None
        self._closed = False

    async def publish(self, topic: Topic, data: bytes) -> Receipt:
        """Publish one event."""
        if self._turn.locked() or self._congested():
            await self._wait_for_room()
        order = _Order(Publish(topic, data), self._loop.create_future())
        self._add([order])
        return order.receipt(await order.done)

    async def publish_many(self, topic: Topic, items: Iterable[bytes]) -> list[Receipt]:
        """Publish events in this order, part by part; a part with an impossible one is refused."""
        receipts: list[Receipt] = []
        before: list[_Order] = []
        try:
            for part in _parts(items):
                if self._turn.locked() or self._congested():
                    await self._wait_for_room()
                future = self._loop.create_future
                orders = [_Order(Publish(topic, data), future()) for data in part]
                self._add(orders)
                previous, before = before, orders
                receipts += await _receipts(previous)
            receipts += await _receipts(before)
        finally:
            for order in before:
                order.done.cancel()
        return receipts

    async def publish_noted(self, items: Sequence[tuple[Topic, bytes, Note]]) -> list[Receipt]:
        """Publish events in this order, each kept together with its note, before anybody is told.

        So a node that dies has published exactly what its notes say.
        """
        if self._turn.locked() or self._congested():
            await self._wait_for_room()
        orders = [
            _Order(Publish(topic, data), NotedFuture(note, self._loop))
            for topic, data, note in items
        ]
        self._add(orders)
        # Who has stopped waiting does not take back what was published.
        return await asyncio.shield(asyncio.ensure_future(_receipts(orders)))

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

    def _add(self, orders: list[_Order]) -> None:
        if self._closed:
            raise LocalError("the node is closed")
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(orders)

    def _flush(self) -> None:
        groups, self._waiting = self._waiting, []
        together = [order for group in groups for order in group if not order.done.done()]
        if self._desk.failure is not None:
            _refuse(together, self._desk.failure)
        elif len(together) == 1 or (together and self._batches):
            try:
                self._say(together)
            except RumormillError as error:
                # A batch with something impossible in it was refused whole: find out whose it is.
                if len(groups) == 1:
                    _refuse(together, error)
                else:
                    self._say_apart(groups)
        else:
            self._say_apart([[order] for order in together])

    def _say_apart(self, groups: list[list[_Order]]) -> None:
        for group in groups:
            wanted = [order for order in group if not order.done.done()]
            try:
                if wanted:
                    self._say(wanted)
            except RumormillError as error:
                _refuse(wanted, error)

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
            if event is None:
                order.done.set_exception(LocalError(published.note))
            else:
                self._desk.take_own(event, order.done)
        for event in kept.values():
            self._desk.take(event)

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


def _parts(items: Iterable[bytes]) -> Iterable[list[bytes]]:
    """Cut a batch into parts of a bounded size."""
    part: list[bytes] = []
    size = 0
    for data in items:
        if part and (len(part) == _PART_EVENTS or size + len(data) > _PART_BYTES):
            yield part
            part, size = [], 0
        part.append(data)
        size += len(data)
    if part:
        yield part


async def _receipts(orders: list[_Order]) -> list[Receipt]:
    """The receipts in order; the first failure, once all are settled."""
    receipts: list[Receipt] = []
    failure: RumormillError | None = None
    for order in orders:
        try:
            receipts.append(order.receipt(await order.done))
        except RumormillError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return receipts


def _refuse(orders: list[_Order], error: RumormillError) -> None:
    for order in orders:
        if not order.done.done():
            order.done.set_exception(error)
