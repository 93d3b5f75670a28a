"""What a command can ask of a node: the same operations in this process and over the socket.

`Service` is the interface, `NodeService` carries it out on a node of this process, `ControlClient`
asks a running one. The control server calls the second for its clients, and so does a command that
has no daemon, on a node of its own.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from rumormill.core.api import (
    ALONE,
    FetchedHistory,
    Message,
    PeerClock,
    PeerView,
    Reach,
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
from rumormill.daemon.served_node import ServedNode, ServedSubscription
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import behind_loss
from rumormill.log.model import Retention, TopicExtent
from rumormill.wire.keys import PeerId

_AnswerT = TypeVar("_AnswerT")

MAX_TOPICS = 10_000
"""Topics in one answer."""


class Service(ABC):
    """A node, here or behind a socket."""

    @abstractmethod
    async def answer(self, request: messages.Request) -> messages.Answer:
        """Carry out what is no subscription."""

    @abstractmethod
    def subscribe(
        self,
        topic: Topic,
        *,
        offset: int | None = None,
        since: float | None = None,
        history: Literal["missed", "all", "none"] | None = None,
        where: str | None = None,
        reach: Reach = ALONE,
    ) -> AsyncIterator[messages.Begun | messages.Events]:
        """First `Begun`, then batches of events until the iterator is closed."""

    async def welcome(self) -> messages.Welcome:
        """Who this is."""
        return expected(await self.answer(messages.Hello()), messages.Welcome)

    async def join(self, ticket: str) -> None:
        """Connect to another node."""
        expected(await self.answer(messages.Join(ticket)), messages.Done)

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
        request = messages.Publish(topic, list(data), head, list(parents))
        return expected(await self.answer(request), messages.Receipts).receipts

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
        raise messages.ControlError(answer.sentence, answer.code)
    if not isinstance(answer, kind):
        raise messages.ControlError(
            f"the daemon answered {type(answer).__name__} where {kind.__name__} was expected"
        )
    return answer


class NodeService(Service):
    """Carries out requests on a node of this process."""

    def __init__(
        self, node: ServedNode, protocol: str, reload: upkeep.Reloading | None = None
    ) -> None:
        self._node = node
        self._protocol = protocol
        self._reload = reload

    async def answer(self, request: messages.Request) -> messages.Answer:
        """Carry out what is no subscription; the messages of a batch share a commit of the log."""
        node = self._node
        match request:
            case messages.Hello(version):
                if version != messages.VERSION:
                    raise messages.ControlError(
                        f"the daemon speaks version {messages.VERSION} of the control protocol and"
                        f" the command version {version}; use the same rumormill for both",
                        "version",
                    )
                peer = str(PeerId(node.id))
                return messages.Welcome(peer, node.tickets, self._protocol, node.network_ticket())
            case messages.Join(ticket):
                await node.connect(ticket)
                return messages.Done()
            case (
                messages.Reload()
                | messages.Retain()
                | messages.Compact()
                | messages.CompareClocks()
            ):
                return await upkeep.carry_out(node, request, self._reload)
            case messages.Publish(topic, data, head, parents):
                if not 0 < len(data) <= messages.BATCH_EVENTS:
                    raise messages.ControlError(
                        f"a batch has 1 to {messages.BATCH_EVENTS} messages"
                    )
                items = _items(data, head)
                return messages.Receipts(await node.publish_many(topic, items, parents=parents))
            case messages.Wait() | messages.Sync():
                try:
                    return await self._in_time(request)
                except LocalError as error:
                    raise messages.ControlError(str(error), "timeout") from None
            case messages.Fetch() | messages.FetchHistory():
                return await self._fetch(request)
            case messages.ReadHistory():
                return await self._read_history(request)
            case messages.ListTopics():
                return list_topics(await asyncio.to_thread(node.log.topics), node)
            case messages.CreateTopic(name, options):
                made = await node.create_topic(name, **msgspec.structs.asdict(options))
                return messages.TopicCreated(made.name)
            case messages.ShowTopic() | messages.ShowTree():
                return await self._show(request)
            case _:
                return messages.PeerList(node.peers)

    async def _show(self, request: messages.ShowTopic | messages.ShowTree) -> messages.Answer:
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

    async def subscribe(
        self,
        topic: Topic,
        *,
        offset: int | None = None,
        since: float | None = None,
        history: Literal["missed", "all", "none"] | None = None,
        where: str | None = None,
        reach: Reach = ALONE,
    ) -> AsyncIterator[messages.Begun | messages.Events]:
        """First `Begun`, then batches of events until the iterator is closed.

        A reader who does not keep up costs no memory: the subscription reads what it missed from
        the log. With its last reader the node leaves a topic that it does not follow itself.
        """
        if is_pattern(topic) and (offset or since is not None):
            raise LocalError(f"{topic!r} stands for many topics: begin now, or with all of each")
        start = await asyncio.to_thread(find_offset, self._node.log, topic, offset, since)
        if offset != 0 and not _end_of(self._node.log, topic):
            start = None  # there is nothing to begin with, and all that ever was is not asked for
        subscription = await self._node.subscribe(
            topic, history=history, since_offset=start, follow=False, where=where, **asdict(reach)
        )
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


def _items(data: list[bytes], head: Head | None) -> Sequence[bytes | Message]:
    if head is None:
        return data
    return [Message(each, head.key, head.headers, head.content_type) for each in data]


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
) -> messages.Events:
    """A batch of events; the reader goes on behind the last one until a batch is empty.

    A range that a repair has recorded as lost is passed over, and told.
    """
    found = find_offset(log, topic, offset, since) or 0
    start = behind_loss(log, topic, found)
    limit = max(1, min(limit, messages.BATCH_EVENTS))
    events = log.read(topic, start, limit, messages.BATCH_BYTES)
    return messages.Events(list(events), gap=(found, start) if start > found else None)


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


_READ_AHEAD = 256 * 1024
"""Bytes that wait for a command that is busy printing; more stay with the daemon."""


class NoDaemonError(messages.ControlError):
    """Nobody serves this home."""


class ControlClient(Service):
    """A connection to a daemon. Make it with `connect`, close it with `close`.

    Calls are made one at a time; a subscription has a connection of its own, because it never ends
    by itself.
    """

    def __init__(
        self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Connect to the daemon at a socket; `NoDaemonError` when there is no socket."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(path), limit=_READ_AHEAD)
        except FileNotFoundError:
            raise NoDaemonError(f"no daemon runs in {path.parent}", "no-daemon") from None
        except ConnectionRefusedError:
            raise messages.ControlError(
                f"nobody answers at {path}: the daemon died and left its socket; start it again"
                f" with `rumormill node`, or remove the file",
                "stale",
            ) from None
        except OSError as error:
            if len(str(path)) > 100:
                raise NoDaemonError(f"no daemon runs in {path.parent}", "no-daemon") from None
            raise messages.ControlError(
                f"cannot connect to the daemon at {path}: {error.strerror or error}"
            ) from error
        client = cls(path, reader, writer)
        try:
            await client.welcome()
        except messages.ControlError:
            await client.close()
            raise
        return client

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def answer(self, request: messages.Request) -> messages.Answer:
        """Ask the daemon."""
        with contextlib.suppress(OSError):  # the daemon may have said why before it hung up
            self._writer.write(messages.encode(request))
            await self._writer.drain()
        return await self._next()

    async def _next(self) -> messages.Answer:
        answer = await messages.read_answer(self._reader)
        if answer is None:
            raise messages.ControlError("the daemon has stopped", "gone")
        return answer

    async def subscribe(
        self,
        topic: Topic,
        *,
        offset: int | None = None,
        since: float | None = None,
        history: Literal["missed", "all", "none"] | None = None,
        where: str | None = None,
        reach: Reach = ALONE,
    ) -> AsyncIterator[messages.Begun | messages.Events]:
        """First `Begun`, then batches of events until the iterator is closed."""
        client = await self.connect(self._path)
        try:
            request = messages.Subscribe(topic, offset, since, history, where, reach)
            yield expected(await client.answer(request), messages.Begun)
            while True:
                yield expected(await client._next(), messages.Events)
        finally:
            await client.close()
