"""What a command can ask of a node: the same operations in this process and over the socket.

`Service` is the interface, `NodeService` carries it out on a node of this process, `ControlClient`
(`control_client`) asks a running one. The control server calls the second for its clients, and so
does a command that has no daemon, on a node of its own.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from rumormill.core.api import (
    FetchedHistory,
    GroupView,
    Message,
    PeerClock,
    PeerView,
    Receipt,
    TopicOptions,
    TopicTree,
)
from rumormill.core.errors import LocalError
from rumormill.core.event import Event, Head
from rumormill.core.ids import Topic
from rumormill.core.patterns import is_pattern
from rumormill.daemon import control_messages as messages
from rumormill.daemon import upkeep
from rumormill.daemon.control_consumers import (
    Consumer,
    NodeConsumer,
    answer_groups,
)
from rumormill.daemon.control_errors import error_of
from rumormill.daemon.control_messages import Begun, Events
from rumormill.daemon.served_node import ServedNode, ServedSubscription
from rumormill.dashboard.guard import encode_json
from rumormill.dashboard.node_source import NodeSource
from rumormill.dashboard.source import Look, Page
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import behind_loss, read_on
from rumormill.log.model import Report, Retention, TopicExtent
from rumormill.wire.keys import PeerId

_AnswerT = TypeVar("_AnswerT")

Mending = Literal["repair", "restore", "import"]

MAX_TOPICS = 10_000
"""Topics in one answer."""


class Service(ABC):
    """A node, here or behind a socket."""

    @abstractmethod
    async def answer(self, request: messages.Request) -> messages.Answer:
        """Carry out what is no subscription."""

    @abstractmethod
    def subscribe(self, request: messages.Subscribe) -> AsyncIterator[Begun | Events]:
        """First `Begun`, then batches of events until the iterator is closed."""

    @abstractmethod
    async def consume(self, request: messages.Subscribe) -> Consumer:
        """Become a consumer of a named subscription."""

    async def groups(self) -> list[GroupView]:
        """All named subscriptions."""
        return expected(await self.answer(messages.ListGroups()), messages.GroupList).groups

    async def forget_group(self, topic: Topic, name: str) -> None:
        """Forget one that nobody has open."""
        expected(await self.answer(messages.ForgetGroup(topic, name)), messages.Done)

    async def welcome(self) -> messages.Welcome:
        """Who this is."""
        return expected(await self.answer(messages.Hello()), messages.Welcome)

    async def join(self, ticket: str) -> PeerId:
        """Connect to another node; return its peer id."""
        answer = await self.answer(messages.Join(ticket))
        return PeerId(expected(answer, messages.Joined).peer)

    async def reload(self) -> messages.Reloaded:
        """Read the settings, and the files of topics' keys and policies, again."""
        return expected(await self.answer(messages.Reload()), messages.Reloaded)

    async def retention(
        self, topic: Topic | None, rules: dict[Topic, Retention] | None, *, apply: bool
    ) -> messages.Retained:
        """What is kept of topics, by the node's rules or others; with `apply`, the rest goes."""
        request = messages.Retain(topic, rules, apply)
        return expected(await self.answer(request), messages.Retained)

    async def compact(self, *, old: bool) -> int:
        """Give unused space of the log back; return how many bytes."""
        return expected(await self.answer(messages.Compact(old)), messages.Compacted).freed

    async def mend(self, how: Mending, path: str = "", *, replace: bool = False) -> Report:
        """Repair the log, or have it take a backup or an exported file, by an absolute path."""
        request = messages.Mend(how, path, replace)
        return expected(await self.answer(request), messages.Mended).report

    async def reachability(self) -> list[str]:
        """What is known of who reaches the node."""
        return expected(await self.answer(messages.AskReach()), messages.ReachReport).sentences

    async def measure(self) -> messages.Measured:
        """What the node counts, and how it is."""
        return expected(await self.answer(messages.Measure()), messages.Measured)

    async def watch(
        self, *, look: Look | None = None, page: Page | None = None, journey: str = ""
    ) -> dict[str, Any]:
        """What a dashboard shows: sections, a page of history, or an event's journey."""
        answer = await self.answer(messages.Watch(look, page, journey))
        found: dict[str, Any] = msgspec.json.decode(expected(answer, messages.Watched).found)
        return found

    async def clocks(self) -> list[PeerClock]:
        """What time connected nodes have."""
        return expected(await self.answer(messages.CompareClocks()), messages.Clocks).clocks

    async def publish(
        self,
        topic: Topic,
        data: Sequence[bytes],
        head: Head | None = None,
        parents: Sequence[str] = (),
    ) -> list[Receipt]:
        """Publish a batch in its order; return when all of it is safe in the log."""
        items = [messages.Said(each, head) for each in data]
        return await self.publish_items(messages.Publish(topic, items, list(parents)))

    async def publish_items(self, request: messages.Publish) -> list[Receipt]:
        """Publish a batch of which each message has a head of its own."""
        return expected(await self.answer(request), messages.Receipts).receipts

    async def leave(self, topic: Topic, meta: bool | None) -> None:
        """Leave a topic and end its subscriptions."""
        expected(await self.answer(messages.Leave(topic, meta)), messages.Done)

    async def wait(self, topic: Topic, peers: int, seconds: float) -> None:
        """Wait for subscribers."""
        expected(await self.answer(messages.Wait(topic, peers, seconds)), messages.Done)

    async def sync(self, topic: Topic | None, seconds: float | None) -> messages.Synced:
        """Compare histories with every connected node."""
        return expected(await self.answer(messages.Sync(topic, seconds)), messages.Synced)

    async def history(
        self,
        topic: Topic,
        *,
        offset: int = 0,
        since: float | None = None,
        limit: int,
        raw: bool = False,
    ) -> messages.Events:
        """Some events of the log; `raw`, as they are there."""
        request = messages.ReadHistory(topic, offset, since, limit, raw)
        return expected(await self.answer(request), messages.Events)

    async def fetch(self, event: str, seconds: float) -> Event:
        """An event by its name alone."""
        answer = expected(await self.answer(messages.Fetch(event, seconds)), messages.Events)
        return answer.events[0]

    async def fetch_history(
        self,
        topic: Topic,
        seconds: float,
        *,
        start: tuple[str, ...] = (),
        since: float = 0.0,
        most: int = 0,
    ) -> FetchedHistory:
        """Get a topic's history beyond the log into the log."""
        request = messages.FetchHistory(topic, seconds, start, since, most)
        return expected(await self.answer(request), messages.HistoryFetched).fetched

    async def topics(self) -> messages.TopicList:
        """Topics of the log and of the network."""
        return expected(await self.answer(messages.ListTopics()), messages.TopicList)

    async def create_topic(self, name: str, options: TopicOptions) -> Topic:
        """Make a topic, and follow it; return its name on the network."""
        request = messages.CreateTopic(name, options)
        return expected(await self.answer(request), messages.TopicCreated).topic

    async def show_topic(self, topic: Topic) -> dict[str, Any]:
        """What is known of a topic that was created."""
        return expected(await self.answer(messages.ShowTopic(topic)), messages.TopicShown).shown

    async def show_tree(self, topic: Topic) -> TopicTree:
        """All sub-topics of a topic that was created."""
        return expected(await self.answer(messages.ShowTree(topic)), messages.TreeShown).tree

    async def peers(self) -> list[PeerView]:
        """Connected peers."""
        return expected(await self.answer(messages.ListPeers()), messages.PeerList).peers


def expected(answer: messages.Answer, kind: type[_AnswerT]) -> _AnswerT:
    """An answer of this kind; a refusal is raised."""
    if isinstance(answer, messages.Refused):
        raise error_of(answer)
    if not isinstance(answer, kind):
        raise messages.ControlError(
            f"the daemon answered {type(answer).__name__} where {kind.__name__} was expected"
        )
    return answer


class NodeService(Service):
    """Carries out requests on a node of this process."""

    def __init__(
        self,
        node: ServedNode,
        protocol: str,
        reload: upkeep.Reloading | None = None,
        watched: NodeSource | None = None,
    ) -> None:
        self._node = node
        self._watched = watched or NodeSource(node, protocol)
        self._protocol = protocol
        self._reload = reload

    def reload_by(self, reload: upkeep.Reloading | None) -> None:
        """Have this called for a `Reload`, or have keys and policies read again."""
        self._reload = reload

    async def answer(self, request: messages.Request) -> messages.Answer:
        """Carry out what is no subscription; the messages of a batch share a commit of the log."""
        node = self._node
        match request:
            case messages.Hello(version):
                return self._greet(version)
            case messages.Join(ticket):
                return messages.Joined(await node.connect(ticket))
            case (
                messages.Reload()
                | messages.Retain()
                | messages.Compact()
                | messages.Mend()
                | messages.CompareClocks()
                | messages.AskReach()
                | messages.Measure()
            ):
                return await upkeep.carry_out(node, request, self._reload)
            case messages.Publish():
                return messages.Receipts(await self._publish(request))
            case messages.Leave(topic, meta):
                await node.unsubscribe(topic, unsubscribe_from_meta=meta)
                return messages.Done()
            case messages.Wait() | messages.Sync():
                return await self._in_time(request)
            case messages.Fetch() | messages.FetchHistory():
                return await self._fetch(request)
            case messages.ReadHistory():
                return await self._read_history(request)
            case messages.ListTopics():
                return list_topics(await asyncio.to_thread(node.log.topics), node)
            case messages.CreateTopic(name, options):
                made = await node.create_topic(name, **msgspec.structs.asdict(options))
                return messages.TopicCreated(made.name)
            case messages.ShowTopic() | messages.ShowTree() | messages.Watch():
                return await self._show(request)
            case messages.ListGroups() | messages.ForgetGroup():
                return await answer_groups(node, request)
            case _:
                return messages.PeerList(node.peers)

    def _greet(self, version: int) -> messages.Welcome:
        """Say who this is, to who speaks the same."""
        if version != messages.VERSION:
            raise messages.ControlError(
                f"the daemon speaks version {messages.VERSION} of the control protocol and"
                f" the command version {version}; use the same rumormill for both",
                "version",
            )
        node = self._node
        peer, ticket = str(PeerId(node.id)), node.network_ticket()
        key_ids = node.access.key_ids()
        return messages.Welcome(peer, node.tickets, self._protocol, ticket, key_ids)

    async def _publish(self, request: messages.Publish) -> list[Receipt]:
        if not 0 < len(request.items) <= (1 if request.copies else messages.BATCH_EVENTS):
            raise messages.ControlError(f"a batch has 1 to {messages.BATCH_EVENTS} messages")
        items = [_message(each) for each in request.items]
        if not request.copies:
            return await self._node.publish_many(request.topic, items, parents=request.parents)
        receipt = await self._node.publish(
            request.topic,
            **asdict(items[0]),
            parents=request.parents,
            copies=request.copies,
            timeout=request.timeout,
        )
        return [receipt]

    async def _watch(self, request: messages.Watch) -> messages.Watched:
        found: dict[str, Any]
        if request.look is not None:
            found = await self._watched.look(request.look)
        elif request.page is not None:
            found = await self._watched.page(request.page)
        else:
            found = await self._watched.journey(request.journey)
        return messages.Watched(encode_json(found))

    async def _show(
        self, request: messages.ShowTopic | messages.ShowTree | messages.Watch
    ) -> messages.Answer:
        if isinstance(request, messages.Watch):
            return await self._watch(request)
        if isinstance(request, messages.ShowTree):
            return messages.TreeShown(await self._node.topic_tree(request.topic))
        return messages.TopicShown(await self._node.describe_topic(request.topic))

    async def _fetch(self, request: messages.Fetch | messages.FetchHistory) -> messages.Answer:
        """Get what others have."""
        if isinstance(request, messages.Fetch):
            event = await self._node.fetch(request.event, timeout=request.timeout)
            return messages.Events([event])
        fetched = await self._node.fetch_history(
            request.topic,
            start=request.start,
            since=request.since,
            most=request.most,
            timeout=request.timeout,
        )
        return messages.HistoryFetched(fetched)

    async def _in_time(self, request: messages.Wait | messages.Sync) -> messages.Answer:
        """Carry out what may take as long as the command says."""
        topic, seconds = request.topic, request.timeout
        if isinstance(request, messages.Sync):
            report = await self._node.sync(topic, timeout=seconds)
            return messages.Synced(report.asked, report.answered, report.events)
        await self._node.wait_until_ready(request.topic, peers=request.peers, timeout=seconds)
        return messages.Done()

    async def _read_history(self, request: messages.ReadHistory) -> messages.Events:
        """A batch of events; it is empty only behind the last one that can be read."""
        node, unreadable, gap = self._node, 0, None
        offset, since = request.offset, request.since
        while True:
            found = await asyncio.to_thread(
                read_history, node.log, request.topic, offset, since, request.limit
            )
            gap = found.gap or gap
            if request.raw or not found.events:
                return replace(found, unreadable=unreadable, gap=gap)
            events = [*filter(None, map(node.access.opened, found.events))]
            # Those behind the last one are read again by whoever goes on there.
            last = (events or found.events)[-1].offset
            unreadable += last + 1 - found.events[0].offset - len(events)
            if events:
                return messages.Events(events, unreadable=unreadable, gap=gap)
            offset, since = last + 1, None

    async def subscribe(self, request: messages.Subscribe) -> AsyncIterator[Begun | Events]:
        """First `Begun`, then batches of events until the iterator is closed.

        A reader who does not keep up costs no memory: the subscription reads what it missed from
        the log. With its last reader the node leaves a topic that it does not follow itself.
        """
        topic, offset = request.topic, request.offset
        if is_pattern(topic) and (offset or request.since is not None):
            raise LocalError(f"{topic!r} stands for many topics: begin now, or with all of each")
        subscription, start = await self._subscribe(request)
        try:
            yield messages.Begun(_end_of(self._node.log, topic) if start is None else start)
            lost = 0
            while True:
                events = await _batch(subscription)
                if events is None:
                    return
                yield messages.Events(events, subscription.dropped - lost)
                lost = subscription.dropped
        finally:
            subscription.close()

    async def consume(self, request: messages.Subscribe) -> Consumer:
        """Become a consumer."""
        subscription, _ = await self._subscribe(request)
        return NodeConsumer(subscription)

    async def _subscribe(
        self, request: messages.Subscribe
    ) -> tuple[ServedSubscription, int | None]:
        """Subscribe for somebody; also where in the log that begins, if not now."""
        log, topic, offset = self._node.log, request.topic, request.offset
        start = await asyncio.to_thread(find_offset, log, topic, offset, request.since)
        if (offset is None or offset < 0) and not _end_of(log, topic):
            start = None  # there is nothing to begin with, and all that ever was is not asked for
        subscription = await self._node.subscribe(
            topic,
            name=request.name or None,
            auto_ack=False,
            ack_within=request.ack_within,
            history=request.history,
            since=request.fetch_since,
            since_offset=start,
            buffer=request.buffer,
            overflow=request.overflow,
            follow=request.follow or bool(request.name),
            where=request.where,
            **asdict(request.reach),
        )
        return subscription, start


def _message(said: messages.Said) -> Message:
    if said.head is None:
        return Message(said.data)
    return Message(said.data, said.head.key, said.head.headers, said.head.content_type)


def find_offset(log: EventLog, topic: Topic, offset: int | None, since: float | None) -> int | None:
    """Where to begin: an offset, -5 for the last five, and not before the first event since a
    time."""
    start = offset
    if offset is not None:
        info = log.topic(topic)
        start = max(offset, 0) if info is None else max(info.place(offset), info.first_offset)
    if since is not None:
        found = log.read_since(topic, since, 1)
        start = max(start or 0, found[0].offset if found else _end_of(log, topic))
    return start


def read_history(
    log: EventLog, topic: Topic, offset: int, since: float | None, limit: int
) -> messages.Events:
    """A batch of events; the reader goes on behind the last one until a batch is empty.

    A range that a repair has recorded as lost is passed over, and told.
    """
    found = find_offset(log, topic, offset, since) or 0
    start = behind_loss(log, topic, found)
    limit = max(1, min(limit, messages.BATCH_EVENTS))
    _, events = read_on(log, topic, start, limit, messages.BATCH_BYTES)
    return messages.Events(events, gap=(found, start) if start > found else None)


def list_topics(extents: Sequence[TopicExtent], node: ServedNode | None) -> messages.TopicList:
    """Topics of a log, and those that only the network of a running node knows, by name."""
    lines = {extent.name: messages.TopicLine(**asdict(extent)) for extent in extents}
    metrics = {} if node is None else node.metrics()
    subscribed = metrics.get("topic_subscription_status", {})
    peers = metrics.get("topic_peers_count", {})
    for name in {**subscribed, **peers}:
        line = lines.get(name) or messages.TopicLine(name, 0, 0)
        joined, others = bool(subscribed.get(name)), int(peers.get(name, 0))
        found = node.completeness(name) if joined and node is not None else None
        lines[name] = replace(line, subscribed=joined, peers=others, completeness=found)
    names = sorted(lines)
    kept = [lines[name] for name in names[:MAX_TOPICS]]
    return messages.TopicList(kept, len(names) - len(kept))


def _end_of(log: EventLog, topic: Topic) -> int:
    info = log.topic(topic)
    return 0 if info is None else info.next_offset


async def _batch(subscription: ServedSubscription) -> list[Event] | None:
    """Wait for an event and take what waits with it, within the limits of a batch."""
    try:
        event = await anext(subscription)
    except StopAsyncIteration:
        return None
    events = [event]
    size = len(event.data)
    while (
        subscription.waiting and len(events) < messages.BATCH_EVENTS and size < messages.BATCH_BYTES
    ):
        event = await anext(subscription)
        events.append(event)
        size += len(event.data)
    return events
