"""`connect`: a node that runs in another program, used as if it were one of this.

    async with rumormill.connect("chat-home") as node:
        receipt = await node.publish("news", b"hello")
        async for event in await node.subscribe("news", name="reader"):
            ...

Calls go over the control socket of the node's home, each over a connection that no other call uses
meanwhile, so that one that waits holds up none; a subscription has one to itself. What a `Node`
knows at once (`peers`, `topics`, `groups`, ...) has to be asked for here, and is awaited.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self, Unpack

from msgspec.structs import replace

from rumormill.core.api import (
    Completeness,
    FetchedHistory,
    GroupView,
    Health,
    Message,
    PeerClock,
    PeerView,
    Reach,
    Receipt,
    TopicTree,
    TopicVersion,
)
from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import Event, Head
from rumormill.core.ids import MessageId
from rumormill.core.ids import Topic as TopicName
from rumormill.core.where import Filter
from rumormill.daemon import control_messages as messages
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_consumers import Consumer
from rumormill.daemon.control_messages import TopicLine
from rumormill.daemon.endpoint import default_home
from rumormill.log.backup import backup
from rumormill.log.keeping import RetentionLine, rules_of
from rumormill.log.model import Report, Retention, StoreConfig, check_topic
from rumormill.node.arguments import check_calls, checked
from rumormill.node.client_subscription import ClientSubscription
from rumormill.node.config import CHECKED_BELOW, chosen_protocol, parsed_ticket
from rumormill.node.groups import check_consumer
from rumormill.node.payloads import as_bytes, payloads
from rumormill.node.requesting import Replied, Requesting, reply_topic
from rumormill.node.subscribing import SubscribeOptions
from rumormill.node.subscription import Overflow
from rumormill.node.topics import (
    Who,
    check_limit,
    check_name,
    linked_order,
    topic_options,
    version_of,
)
from rumormill.wire.keys import PeerId

_MOST_IDLE: Final = 4
"""Connections that wait for the next call: our choice; as many calls at a time cost no new one."""
_LIMITS: Final = StoreConfig()
_FOREVER: Final = 1e9
"""Seconds that stand for no limit, where a request to the node must have one."""


class Connecting:
    """What `connect` returns: `async with` it, or `await` it and `close` the client."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __await__(self) -> Generator[Any, None, "Client"]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "Client":
        self.client = await _connected(self._home)
        return self.client

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()


@checked
def connect(home: str | Path | None = None) -> Connecting:
    """Use the node that runs in a home: `rumormill node`, or a program whose node serves control
    (`Node.serve`). Without a home, that of the command line: `RUMORMILL_HOME`, or `~/.rumormill`.
    """
    chosen = default_home() if home is None else Path(home)
    return Connecting(chosen.expanduser())


async def _connected(home: Path) -> "Client":
    """A client; or the sentence that says who has the home, and what to do."""
    first = await ControlClient.connect(messages.socket_path(home))
    return Client(home, first, await first.welcome())


@check_calls(*CHECKED_BELOW)
class Client(Requesting):
    """A node that runs elsewhere. Make it with `connect`; its calls are those of `Node`."""

    def __init__(self, home: Path, first: ControlClient, welcome: messages.Welcome) -> None:
        self.home = home
        self.id = PeerId.parse(welcome.peer)
        """The node's peer id."""
        self.protocol = welcome.protocol
        """How it spreads messages."""
        self._spec = chosen_protocol(welcome.protocol, None)
        self._requests, self._replied = 0, Replied()
        self._idle = [first]
        self._subscriptions: dict[ClientSubscription, None] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all subscriptions of this client and hang up; the node goes on."""
        self._closed = True
        for subscription in [*self._subscriptions]:
            await subscription.ended()
        while self._idle:
            await self._idle.pop().close()

    @contextlib.asynccontextmanager
    async def _line(self) -> AsyncIterator[ControlClient]:
        """A connection for one call; one whose answer did not come is of no further use."""
        if self._closed:
            raise LocalError("the client is closed; `connect` again")
        while self._idle and self._idle[-1].ended:
            await self._idle.pop().close()
        path = messages.socket_path(self.home)
        line = self._idle.pop() if self._idle else await ControlClient.connect(path)
        try:
            yield line
        except RumormillError as error:
            if isinstance(error, messages.ControlError) and error.code == "gone":
                await line.close()
            else:
                await self._put_back(line)
            raise
        except BaseException:
            await line.close()
            raise
        await self._put_back(line)

    async def _put_back(self, line: ControlClient) -> None:
        if len(self._idle) < _MOST_IDLE and not self._closed:
            self._idle.append(line)
        else:
            await line.close()

    # The node and its peers.

    async def tickets(self) -> list[str]:
        """What another node needs to join this one."""
        async with self._line() as line:
            return (await line.welcome()).tickets

    async def network_ticket(self) -> str:
        """One ticket that names this node and some of its peers."""
        async with self._line() as line:
            return (await line.welcome()).network_ticket

    async def peers(self) -> list[PeerView]:
        """The connected peers."""
        async with self._line() as line:
            return [replace(peer, id=PeerId(peer.id)) for peer in await line.peers()]

    async def connect(self, ticket: str) -> PeerId:
        """Connect to the node of a ticket; return its peer id (`Node.connect`)."""
        parsed_ticket(ticket)
        async with self._line() as line:
            return await line.join(ticket)

    async def wait_until_ready(
        self,
        topic: TopicName,
        *,
        peers: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
    ) -> None:
        """Wait until so many peers subscribe to a topic."""
        async with self._line() as line:
            await line.wait(topic, peers, _FOREVER if timeout is None else timeout)

    # Topics.

    async def topics(self) -> list[TopicLine]:
        """The topics of the log and of the network, by name."""
        async with self._line() as line:
            return (await line.topics()).topics

    async def subscribers(self, topic: TopicName) -> int:
        """How many peers that are connected to the node subscribe to a topic."""
        check_name(topic, _LIMITS)
        return next((line.peers for line in await self.topics() if line.name == topic), 0)

    async def metrics(self) -> dict[str, dict[str, float]]:
        """Everything that the node counts (`Node.metrics`)."""
        async with self._line() as line:
            return (await line.measure()).metrics

    async def health(self) -> Health:
        """Whether the node lives, and whether it can take events now."""
        async with self._line() as line:
            return (await line.measure()).health

    async def groups(self) -> list[GroupView]:
        """All named subscriptions, open or not."""
        async with self._line() as line:
            return await line.groups()

    async def forget_group(self, topic: TopicName, name: str) -> None:
        """Forget the position of a named subscription that nobody has open."""
        async with self._line() as line:
            await line.forget_group(topic, name)

    async def completeness(self, topic: TopicName) -> Completeness:
        """How complete the node's history of a topic is, as far as it knows."""
        found = [line.completeness for line in await self.topics() if line.name == topic]
        return (found and found[0]) or Completeness()

    async def sync(
        self,
        topic: TopicName | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
    ) -> messages.Synced:
        """Compare a topic, or all that are followed, with every connected node now."""
        async with self._line() as line:
            return await line.sync(topic, timeout)

    async def retention(
        self,
        topic: TopicName | None = None,
        *,
        rules: Retention | Mapping[TopicName, Retention] | None = None,
        apply: bool = False,
    ) -> list[RetentionLine]:
        """What is kept of topics, and what is beyond; with `apply` it goes (`Node.retention`)."""
        chosen = None if rules is None else rules_of(rules)
        async with self._line() as line:
            return (await line.retention(topic, chosen, apply=apply)).lines

    async def compact(self, *, old: bool = False) -> int:
        """Give space that the log does not use back to the file system (`Node.compact`)."""
        async with self._line() as line:
            return await line.compact(old=old)

    async def repair(self) -> Report:
        """Have the node repair its log, and go on (`Node.repair`)."""
        async with self._line() as line:
            return await line.mend("repair")

    async def restore(self, copy: str | Path, *, replace: bool = False) -> Report:
        """Have the node's log take a backup, a directory on its machine (`Node.restore`)."""
        async with self._line() as line:
            return await line.mend("restore", _absolute(copy), replace=replace)

    async def import_events(self, file: str | Path) -> int:
        """Have the node's log take an exported file of its machine (`Node.import_events`)."""
        async with self._line() as line:
            return (await line.mend("import", _absolute(file))).events

    async def backup(self, to: str | Path) -> Report:
        """Copy the node's home, at one moment, to a new directory, verified (`Node.backup`)."""
        return await asyncio.to_thread(backup, self.home, to)

    async def peer_clocks(self) -> list[PeerClock]:
        """What time connected nodes have (`Node.peer_clocks`)."""
        async with self._line() as line:
            return [replace(clock, id=PeerId(clock.id)) for clock in await line.clocks()]

    async def create_topic(
        self,
        name: TopicName,
        *,
        allowed_publishers: Iterable[Who] | Literal["anyone"] | None = None,
        request_to_publish: bool | Iterable[Who] | None = None,
        linking: Literal["last-seen", "custom"] | None = None,
        sub_topics: Mapping[str, TopicName] | None = None,
        parent: TopicName | None = None,
    ) -> TopicName:
        """Make a topic, or join it where it needs no making; return its name on the network."""
        options = topic_options(allowed_publishers, request_to_publish, linking, sub_topics, parent)
        async with self._line() as line:
            return await line.create_topic(name, options)

    async def describe_topic(self, topic: TopicName) -> dict[str, Any]:
        """Find out what is known of a topic that was created (`Node.describe_topic`)."""
        async with self._line() as line:
            return await line.show_topic(topic)

    async def topic_tree(self, topic: TopicName) -> TopicTree:
        """Find all sub-topics of a created topic, theirs, and so on."""
        async with self._line() as line:
            return await line.show_tree(topic)

    def version_of(self, event: Event) -> TopicVersion:
        """Read the version of a topic that an event announces (`Node.version_of`)."""
        return version_of(self._spec, event)

    async def unsubscribe(
        self, topic: TopicName, *, unsubscribe_from_meta: bool | None = None
    ) -> None:
        """Have the node leave a topic, and end everybody's subscriptions to it."""
        async with self._line() as line:
            await line.leave(topic, unsubscribe_from_meta)

    # Events.

    async def publish(
        self,
        topic: TopicName,
        data: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        parents: Iterable[str | MessageId] = (),
        copies: int = 0,
        timeout: float = 30.0,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
    ) -> Receipt:
        """Publish an event; return when it is safe in the node's log (`Node.publish`)."""
        items = [Message(data, key, headers, content_type)]
        (receipt,) = await self._publish(topic, items, parents, copies, timeout)
        return receipt

    async def publish_many(
        self,
        topic: TopicName,
        items: Iterable[bytes | str | Message],
        *,
        parents: Iterable[str | MessageId] = (),
    ) -> list[Receipt]:
        """Publish events in the order given; return when all are safe (`Node.publish_many`)."""
        return await self._publish(topic, items, parents, 0, 0.0)

    async def _publish(
        self,
        topic: TopicName,
        items: Iterable[bytes | str | Message],
        parents: Iterable[str | MessageId],
        copies: int,
        seconds: float,
    ) -> list[Receipt]:
        check_name(topic, _LIMITS)
        given = [*items] if isinstance(items, list | tuple) else items
        payloads(given)  # refuses here what the node would refuse
        waiting = deque(_said(each) for each in given)
        named = [*map(_named, parents)]
        receipts: list[Receipt] = []
        async with self._line() as line:
            while waiting:
                batch: list[messages.Said] = []
                size = 0
                while waiting and len(batch) < messages.BATCH_EVENTS:
                    size += len(waiting[0].data)
                    if batch and size > messages.BATCH_BYTES:
                        break
                    batch.append(waiting.popleft())
                receipts += await line.publish_items(
                    messages.Publish(topic, batch, named, copies, seconds)
                )
        return receipts

    async def history(
        self,
        topic: TopicName,
        *,
        since_offset: int = 0,
        since: float | None = None,
        limit: int | None = None,
        where: str | None = None,
        order: Literal["offset", "links"] = "offset",
    ) -> list[Event]:
        """Read events of a topic from the node's log, each one verified (`Node.history`)."""
        check_name(topic, _LIMITS)
        chosen = None if where is None else Filter(where)
        check_limit(limit)
        linked = linked_order(self._spec, order)
        found: list[Event] = []
        most = limit if linked is None else None
        async with self._line() as line:
            start, moment = since_offset, since
            while most is None or len(found) < most:
                want = messages.BATCH_EVENTS
                if most is not None and chosen is None:
                    want = min(want, most - len(found))
                piece = await line.history(topic, offset=start, since=moment, limit=want)
                if not piece.events:
                    break
                found += piece.events if chosen is None else chosen.matching(piece.events)
                start, moment = piece.events[-1].offset + 1, None
        return (linked(found) if linked else found)[:limit]

    async def fetch(
        self,
        event: str | MessageId,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
    ) -> Event:
        """Get an event by its CID alone (`Node.fetch`)."""
        async with self._line() as line:
            return await line.fetch(_named(event), timeout)

    async def fetch_history(
        self,
        topic: TopicName,
        *,
        start: Iterable[str | MessageId] = (),
        since: float = 0.0,
        most: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
    ) -> FetchedHistory:
        """Get a topic's history beyond the node's log into the log (`Node.fetch_history`)."""
        async with self._line() as line:
            seconds = _FOREVER if timeout is None else timeout
            named = tuple(map(_named, start))
            return await line.fetch_history(topic, seconds, start=named, since=since, most=most)

    def _reply_topic(self, topic: TopicName) -> TopicName:
        return reply_topic(self._spec, topic)

    def _is_own(self, event: Event) -> bool:
        return event.author == self.id

    async def subscribe(
        self, topic: TopicName, **options: Unpack[SubscribeOptions]
    ) -> "ClientSubscription":
        """Subscribe to a topic: an async iterator of events (`Node.subscribe`, and what that
        takes). What it has not acknowledged when this program ends is given to another."""
        check_topic(topic, _LIMITS)
        request = _request(topic, options)
        async with self._line() as line:
            if request.name:
                source: Consumer | AsyncIterator[Any] = await line.consume(request)
            else:
                source = line.subscribe(request)
                await anext(source)
        acks = options.get("auto_ack", True)
        return ClientSubscription(topic, request.name, acks, source, self._subscriptions)


def _said(item: bytes | str | Message) -> messages.Said:
    if not isinstance(item, Message):
        return messages.Said(as_bytes("data", item))
    plain = (item.key, item.headers, item.content_type) == (None, None, None)
    key = None if item.key is None else as_bytes("key", item.key)
    head = Head(key, dict(item.headers or {}), item.content_type or "")
    return messages.Said(as_bytes("data", item.data), None if plain else head)


def _request(topic: TopicName, options: SubscribeOptions) -> messages.Subscribe:
    if options.get("where") is not None:
        Filter(options["where"] or "")
    if (name := options.get("name")) is not None:
        check_consumer(name, options.get("ack_within"))
    return messages.Subscribe(
        topic,
        options.get("since_offset"),
        None,
        options.get("history"),
        options.get("where"),
        Reach(
            options.get("recursive", False),
            options.get("tell_versions", False),
            options.get("follow_versions", False),
            options.get("subscribe_to_meta"),
            options.get("unsubscribe_from_meta"),
        ),
        options.get("follow", True),
        options.get("since"),
        options.get("buffer", 1024),
        Overflow(options.get("overflow", Overflow.CATCH_UP)).value,
        name or "",
        options.get("ack_within"),
    )


def _named(event: str | MessageId) -> str:
    """An event's name as text."""
    return event if isinstance(event, str) else event.hex()


def _absolute(path: str | Path) -> str:
    """A path as a program in another directory has to name it."""
    return str(Path(path).expanduser().absolute())
