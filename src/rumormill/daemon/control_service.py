"""What a command can ask of a node: the same operations in this process and over the socket.

`Service` is the interface, `NodeService` carries it out on a node. The control server calls it for
its clients, and a command that has no daemon calls it on a node of its own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.ids import Topic
from rumormill.core.topics import TopicOptions
from rumormill.daemon import control_messages as said
from rumormill.log.event_log import EventLog
from rumormill.node.receipt import Receipt
from rumormill.node.subscription import Subscription
from rumormill.wire.keys import PeerId

if TYPE_CHECKING:
    # Commands that use a daemon need this module, but not all of a node.
    from rumormill.node.node import Node
from rumormill.node.peer_view import PeerView

MAX_TOPICS = 10_000
"""Topics in one answer."""


class Service(Protocol):
    """A node, here or behind a socket."""

    async def welcome(self) -> said.Welcome:
        """Who this is."""
        ...

    async def join(self, ticket: str) -> None:
        """Connect to another node."""
        ...

    async def publish(self, topic: Topic, data: Sequence[bytes]) -> list[Receipt]:
        """Publish a batch; return when all of it is safe in the log."""
        ...

    async def wait(self, topic: Topic, peers: int, seconds: float) -> None:
        """Wait for subscribers."""
        ...

    def subscribe(
        self, topic: Topic, *, offset: int | None = None, since: float | None = None
    ) -> AsyncIterator[said.Begun | said.Events]:
        """First `Begun`, then batches of events until the iterator is closed."""
        ...

    async def history(
        self, topic: Topic, *, offset: int = 0, since: float | None = None, limit: int
    ) -> said.Events:
        """Some events of the log."""
        ...

    async def topics(self) -> said.TopicList:
        """Topics of the log and of the network."""
        ...

    async def create_topic(self, name: str, options: TopicOptions) -> Topic:
        """Make a topic, and follow it; return its name on the network."""
        ...

    async def show_topic(self, topic: Topic) -> dict[str, Any]:
        """What is known of a topic that was created."""
        ...

    async def peers(self) -> list[PeerView]:
        """Connected peers."""
        ...


class NodeService:
    """Carries out requests on a node of this process."""

    def __init__(
        self, node: "Node", protocol: str, *, tickets: Sequence[str] | None = None
    ) -> None:
        self._node = node
        self._protocol = protocol
        self._tickets = tickets
        self._followed: dict[Topic, None] = {}
        self._readers: dict[Topic, int] = {}

    async def follow(self, topic: Topic) -> None:
        """Stay subscribed to a topic, whoever comes and goes, so that the log has all of it."""
        (await self._node.subscribe(topic)).close()
        self._followed[topic] = None

    async def welcome(self) -> said.Welcome:
        """Who this is."""
        tickets = self._node.tickets if self._tickets is None else self._tickets
        return said.Welcome(str(PeerId(self._node.id)), list(tickets), self._protocol)

    async def join(self, ticket: str) -> None:
        """Connect to another node."""
        await self._node.connect(ticket)

    async def publish(self, topic: Topic, data: Sequence[bytes]) -> list[Receipt]:
        """Publish a batch in its order; its messages share a commit of the log."""
        return await self._node.publish_many(topic, data)

    async def wait(self, topic: Topic, peers: int, seconds: float) -> None:
        """Wait for subscribers."""
        try:
            await self._node.wait_until_ready(topic, peers=peers, timeout=seconds)
        except LocalError as error:
            raise said.ControlError(str(error), "timeout") from None

    async def subscribe(
        self, topic: Topic, *, offset: int | None = None, since: float | None = None
    ) -> AsyncIterator[said.Begun | said.Events]:
        """First `Begun`, then batches of events until the iterator is closed.

        A reader who does not keep up costs no memory: the subscription reads what it missed from
        the log. When the last reader of a topic leaves, the node leaves the topic.
        """
        start = await asyncio.to_thread(find_offset, self._node.log, topic, offset, since)
        subscription = await self._node.subscribe(topic, since_offset=start)
        self._readers[topic] = self._readers.get(topic, 0) + 1
        try:
            yield said.Begun(_end_of(self._node.log, topic) if start is None else start)
            lost = 0
            while True:
                events = await _batch(subscription)
                if events is None:
                    return
                yield said.Events(events, subscription.dropped - lost)
                lost = subscription.dropped
        finally:
            subscription.close()
            self._readers[topic] -= 1
            if not self._readers[topic]:
                del self._readers[topic]
                if topic not in self._followed:
                    with contextlib.suppress(LocalError):  # the node may have been closed
                        await self._node.unsubscribe(topic)

    async def history(
        self, topic: Topic, *, offset: int = 0, since: float | None = None, limit: int
    ) -> said.Events:
        """Some events of the log."""
        return await asyncio.to_thread(read_history, self._node.log, topic, offset, since, limit)

    async def topics(self) -> said.TopicList:
        """Topics of the log and of the network."""
        metrics = self._node.metrics()
        infos = await asyncio.to_thread(self._node.log.topics)
        return list_topics(
            infos, metrics["topic_subscription_status"], metrics["topic_peers_count"]
        )

    async def create_topic(self, name: str, options: TopicOptions) -> Topic:
        """Make a topic, and follow it; return its name on the network."""
        topic = (await self._node.create_topic(name, **msgspec.structs.asdict(options))).name
        self._followed[topic] = None
        return topic

    async def show_topic(self, topic: Topic) -> dict[str, Any]:
        """What is known of a topic that was created."""
        return await self._node.describe_topic(topic)

    async def peers(self) -> list[PeerView]:
        """Connected peers."""
        return self._node.peers


def find_offset(log: EventLog, topic: Topic, offset: int | None, since: float | None) -> int | None:
    """Where to begin: an offset, -5 for the last five, or the first event since a time."""
    if since is not None:
        found = log.read_since(topic, since, 1)
        return found[0].offset if found else _end_of(log, topic)
    if offset is None:
        return None
    info = log.topic(topic)
    if info is None:
        return max(offset, 0)
    start = info.next_offset + offset if offset < 0 else offset
    return max(start, info.first_offset)


def read_history(
    log: EventLog, topic: Topic, offset: int, since: float | None, limit: int
) -> said.Events:
    """A batch of events; the reader goes on behind the last one until a batch is empty."""
    start = find_offset(log, topic, offset, since) or 0
    limit = max(1, min(limit, said.BATCH_EVENTS))
    events = log.read(topic, start, limit, said.BATCH_BYTES)
    return said.Events(list(events))


def list_topics(
    infos: Sequence[Any], subscribed: dict[str, float], peers: dict[str, float]
) -> said.TopicList:
    """Topics of a log, and those that only the network knows, by name."""
    lines = {
        info.name: said.TopicLine(
            info.name,
            info.first_offset,
            info.next_offset,
            info.size,
            bool(subscribed.get(info.name)),
            int(peers.get(info.name, 0)),
        )
        for info in infos
    }
    for name in {**subscribed, **peers}:
        if name not in lines:
            lines[name] = said.TopicLine(
                name, 0, 0, 0, bool(subscribed.get(name)), int(peers.get(name, 0))
            )
    names = sorted(lines)
    kept = [lines[name] for name in names[:MAX_TOPICS]]
    return said.TopicList(kept, len(names) - len(kept))


def _end_of(log: EventLog, topic: Topic) -> int:
    info = log.topic(topic)
    return 0 if info is None else info.next_offset


async def _batch(subscription: Subscription) -> list[Event] | None:
    """Wait for an event and take what waits with it, within the limits of a batch."""
    try:
        event = await anext(subscription)
    except StopAsyncIteration:
        return None
    events = [event]
    size = len(event.data)
    while subscription.waiting and len(events) < said.BATCH_EVENTS and size < said.BATCH_BYTES:
        event = await anext(subscription)
        events.append(event)
        size += len(event.data)
    return events
