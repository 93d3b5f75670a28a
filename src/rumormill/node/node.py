"""`Node`: a peer of the network, as an application uses it.

    async with Node("chat-home", listen="/ip4/0.0.0.0/tcp/4001") as node:
        await node.connect(ticket)
        async with await node.subscribe("news") as events:
            receipt = await node.publish("news", b"hello")
            async for event in events:
                ...

A node keeps its identity and its log in its home directory. Without a home it has a new identity
each time and a log in memory: a choice that says so, not a default.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

from rumormill.core.api import Completeness, Message, Reach, Receipt
from rumormill.core.errors import LocalError
from rumormill.core.event import Event, Note
from rumormill.core.ids import MessageId
from rumormill.core.ids import Topic as TopicName
from rumormill.core.inputs import Unsubscribe
from rumormill.core.patterns import is_pattern
from rumormill.core.where import Filter
from rumormill.daemon.doors import Doors
from rumormill.daemon.flight_door import PemFiles
from rumormill.daemon.metrics_server import Pages
from rumormill.daemon.upkeep import Reloading
from rumormill.log.event_log import EventLog
from rumormill.log.model import check_topic
from rumormill.node import synced, topics
from rumormill.node.callbacks import TopicValidator
from rumormill.node.kin import Kin, join_kin
from rumormill.node.log_reader import read_history
from rumormill.node.metrics import Values, gather_metrics
from rumormill.node.metrics_page import render_metrics
from rumormill.node.payloads import payload, payloads
from rumormill.node.presence import Presence
from rumormill.node.questions import NodeQuestions
from rumormill.node.subscription import Overflow, Subscription
from rumormill.node.upkeep import Upkeep
from rumormill.sync.wishes import SyncReport

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Node(Presence, NodeQuestions, Upkeep):
    """A peer. Use it as an async context manager, or call `start` and `close`."""

    # What is here, and who else may see it.

    @property
    def log(self) -> EventLog:
        """This node's log, for reading; events get into it by `publish` and from peers."""
        self._check_running()
        return self._log

    def metrics(self) -> dict[str, Values]:
        """Everything this node counts: value by label, by the names of `node.metrics.METRICS`."""
        self._check_running()
        self._recorder.flush()
        return gather_metrics(self._counts, self._driver, self._swarm, self._journal)

    def serve(
        self,
        *,
        control: bool = False,
        metrics: bool | str = False,
        flight: bool | str = False,
        tls: PemFiles | None = None,
        home: str | Path | None = None,
        on_reload: Reloading | None = None,
    ) -> Doors:
        """Let other programs in: `async with node.serve(metrics=True) as doors`, or `await` it.

        `control` is a socket for commands of the same user. `metrics` and `flight` are HOST:PORT,
        or true for the usual one; port 0 lets the system choose. `metrics` is a page for
        Prometheus, `/metrics`, with `/healthz` and `/readyz` beside it. Through `flight`, whoever
        has the token reads and publishes by Arrow Flight; `tls` is a certificate and its key, as
        files in PEM. Socket and token are in `home`, the node's own unless given. `on_reload` is
        what `rumormill reload` calls; unless given, keys and policies are read again. Closing the
        node closes its doors.
        """
        self._check_running()
        return Doors(
            self,
            self._spec.name,
            Pages(
                lambda openmetrics: render_metrics(self.metrics(), openmetrics=openmetrics),
                self.health,
            ),
            lambda door, why: self._counts.add("rumormill_doors_refused", f"{door}-{why}"),
            self._doors,
            control=control,
            metrics=metrics,
            flight=flight,
            tls=tls,
            home=self._home if home is None else Path(home),
            on_reload=on_reload,
        )

    async def wait_until_ready(
        self,
        topic: TopicName,
        *,
        peers: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
    ) -> None:
        """Wait until so many peers that we could publish to subscribe to a topic."""
        self._check_name(topic)
        topics.enter_to_publish(self._spec, self._driver, topic)
        try:
            async with asyncio.timeout(timeout):
                while self.subscribers(topic) < peers:
                    await self._change.wait()
                    self._check_running()
        except TimeoutError:
            raise LocalError(
                f"topic {topic!r} has {self.subscribers(topic)} of {peers} wanted subscribers"
                f" after {timeout:g} seconds; {len(self._swarm.connections)} peers are connected"
            ) from None

    # Topics.

    def topic(self, name: TopicName) -> "Topic":
        """The topic of a name, as an object with this node's calls. Nothing is joined."""
        topics.check_name(name, self._store_config)
        return Topic(self, name)

    async def create_topic(
        self,
        name: TopicName,
        *,
        allowed_publishers: Iterable[topics.Who] | Literal["anyone"] | None = None,
        request_to_publish: bool | Iterable[topics.Who] | None = None,
        linking: Literal["last-seen", "custom"] | None = None,
        sub_topics: Mapping[str, TopicName] | None = None,
        parent: TopicName | None = None,
    ) -> "Topic":
        """Make a topic, or join it where it needs no making: its events come into this log.

        In most protocols a topic exists where nodes have joined it, and takes no options. In
        Pulsarcast it is created here and now, `name` is what people call it, and the handle's
        `name` is its CID, by which everybody subscribes to it. Options: see `TopicOptions`; a peer
        is an id as text or bytes, or "author".
        """
        self._check_name(name)
        options = topics.topic_options(
            allowed_publishers, request_to_publish, linking, sub_topics, parent
        )
        topic = await topics.make_topic(self._spec, self._driver, name, options)
        self._follow(topic)
        await synced.remembered(self._driver, topic)
        return Topic(self, topic)

    async def subscribe(
        self,
        topic: TopicName,
        *,
        history: Literal["missed", "all", "none"] | None = None,
        since: float | None = None,
        since_offset: int | None = None,
        buffer: int = 1024,
        overflow: Overflow | str = Overflow.CATCH_UP,
        follow: bool = True,
        where: str | None = None,
        recursive: bool = False,
        tell_versions: bool = False,
        follow_versions: bool = False,
        subscribe_to_meta: bool | None = None,
        unsubscribe_from_meta: bool | None = None,
    ) -> Subscription:
        """Subscribe to a topic: an async iterator of events, from now on.

        When this returns, a later life of this node, also of one that was killed, knows of it.
        Events that this node has missed since it first subscribed to the topic, because it was
        away or they were lost, are fetched from other nodes and come as well (`Event.via` is
        "sync"). `history="all"` fetches whatever they keep, `"none"` nothing, and `since` what was
        published from a time on (seconds since 1970).

        With `since_offset`, it is given this node's log from there on, what is fetched late
        included; 0 means `history="all"` unless something else is said. `buffer` and `overflow`
        say how many events may wait and what happens when more come. Closing the subscription
        does not leave the topic: `unsubscribe` does, or with `follow=False` the end of the last
        subscription, unless it is followed.

        `where` is a filter on what events say, such as `data.celsius > 30`: others are not handed
        out (see `core.where`). A pattern of names, `news/*` or `news/#`, subscribes to every such
        topic that this node knows, and to others when they become known (see `node.patterns`).

        Where topics are created (Pulsarcast): `recursive` takes in all sub-topics, and
        `follow_versions` the later versions of the topic, as long as the subscription is open. With
        that, or with `tell_versions`, each announcement of a later version comes as an event of the
        meta topic whose `via` is "version" (`version_of` reads it). `subscribe_to_meta` and, with
        `follow=False`, `unsubscribe_from_meta` say whether the meta topic comes and goes along with
        the topic, if that is not as configured.
        """
        self._check_running()
        check_topic(topic, self._store_config)
        if since_offset == 0 and since is None:
            history = history or "all"
        wanted = synced.wanted_since(history, since)
        chosen = None if where is None else Filter(where)
        metas = (subscribe_to_meta, unsubscribe_from_meta)
        reach = Reach(recursive, tell_versions, follow_versions, *metas)
        topics.check_reach(self._spec, reach)
        told = (self._on_closed, self._on_lost, self.access.opened)
        reads = since_offset is not None
        subscription = Subscription(
            topic, self._log, buffer, overflow, chosen, *told, reads_log=reads
        )
        subscription.reach = reach
        await self._begin(subscription, wanted, follow, since_offset)
        return subscription

    async def _begin(
        self,
        subscription: Subscription,
        wanted: float | None,
        follow: bool,
        since_offset: int | None,
    ) -> None:
        """Enter what a subscription is to, and look for what belongs to it."""
        topic, enter = subscription.topic, functools.partial(self._enter, subscription, wanted)
        if is_pattern(topic):
            topics.check_pattern(topic, self._spec, since_offset)
            self._patterns.add(subscription, since_offset, functools.partial(enter, follow))
        else:
            enter(follow, topic, since_offset)
        await synced.remembered_all(self._driver, subscription)
        if subscription.reach.joint:
            start = None if since_offset else since_offset
            kin = Kin(self._spec, self._driver, self._journal, self._on_lost, self.access.opened)
            subscription.grow(join_kin(subscription, kin, lambda each: enter(False, each, start)))

    async def unsubscribe(
        self, topic: TopicName, *, unsubscribe_from_meta: bool | None = None
    ) -> None:
        """Leave a topic and end its subscriptions; of a pattern, leave every topic of theirs that
        has no other subscription. `unsubscribe_from_meta` as in `subscribe`."""
        self._check_running()
        reach = Reach(unsubscribe_from_meta=unsubscribe_from_meta)
        topics.check_reach(self._spec, reach)
        given = self._journal.all_subscriptions()
        ended = [each for each in [*given, *self._patterns] if each.topic == topic]
        for subscription in ended:
            subscription.reach = reach
            subscription.close()
        left = [topic]
        if is_pattern(topic):
            kept = {name for each in self._journal.all_subscriptions() for name in each.topics}
            left = [name for each in ended for name in each.topics if name not in kept]
        for name in left:
            self._forget(name)
            self._driver.feed(Unsubscribe(name, unsubscribe_from_meta))

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
        """Publish an event; return when it is safe in the log. Text is encoded as UTF-8.

        A `key` says what the event is about, `headers` and a `content_type` (as in MIME) more of
        it; whoever gets it has them too, with our time (`Event.key`, `headers`, `content_type`,
        `created`). They travel around the data, signed and encrypted with it (`wire.envelope`).

        `parents` are the events that it follows, by their ids or CIDs, where the topic lets its
        publishers say so (Pulsarcast, `linking="custom"`, one of them): they must exist.

        With `copies`, return when so many other nodes have it in their logs as well; `LocalError`
        when they have not within `timeout` seconds, in which case it is published all the same.

        When peers cannot take as fast as we publish, this waits for them, but not longer than
        for a peer that has stopped reading. Where this node may not publish itself and may ask to
        (Pulsarcast), it asks, and returns when another has published it (`Receipt.requested`).
        """
        self._check_name(topic)
        named = topics.parent_ids(self._spec, parents)
        said = payload(data, key, headers, content_type)
        begun = time.perf_counter()
        receipt = await self._journal.publish(topic, said, named)
        self._counts.publish_seconds.add(time.perf_counter() - begun)
        if copies:
            return await synced.with_copies(self._driver, receipt, copies, timeout)
        return receipt

    async def publish_many(
        self,
        topic: TopicName,
        items: Iterable[bytes | str | Message],
        *,
        parents: Iterable[str | MessageId] = (),
    ) -> list[Receipt]:
        """Publish events in the order given; return their receipts when all are safe in the log.

        Each is data, or a `Message` with a key, headers or a content type (see `publish`); with
        `parents`, each follows those. Their offsets rise in that order, and together they cost less
        than one by one. An event that is impossible, for example too long, raises: nothing behind
        it is published then, and what stands before it may be or not. Waits for peers as `publish`
        does.
        """
        self._check_name(topic)
        named = topics.parent_ids(self._spec, parents)
        wishes = [(topic, said, None) for said in payloads(items)]
        begun = time.perf_counter()
        receipts = await self._journal.publish_many(wishes, named)
        self._counts.publish_seconds.add(time.perf_counter() - begun)
        return receipts

    async def publish_noted(
        self, items: Sequence[tuple[TopicName, bytes | Message, Note]]
    ) -> list[Receipt]:
        """Publish for a program that may ask again: `log.notes` says afterwards what was done."""
        for topic, _, _ in items:
            self._check_name(topic)
        data = payloads([message for _, message, _ in items])
        noted = [(topic, each, note) for (topic, _, note), each in zip(items, data, strict=True)]
        # Who has stopped waiting does not take back what was published.
        return await asyncio.shield(asyncio.ensure_future(self._journal.publish_many(noted)))

    def _check_name(self, topic: TopicName) -> None:
        """Refuse what is no topic's name; the last one is not looked at again."""
        self._check_running()
        if topic != self._checked_topic:
            topics.check_name(topic, self._store_config)
            self._checked_topic = topic

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
        """Read events of a topic from this node's log, each one verified.

        `since_offset` and `since` (a time in seconds, of reception) say where to begin; events that
        retention has deleted, that no key reads, or that the filter `where` does not match, are
        passed over, as is what a repair has recorded as lost (`log.losses`). At most `limit` come
        back. Offsets are this log's own. With `order="links"` (Pulsarcast) each event stands behind
        the one that it links to, and otherwise by date: the same order at all nodes that have the
        same.
        `completeness` says how much of the topic that is, and `sync` completes it.
        """
        self._check_name(topic)
        chosen = None if where is None else Filter(where)
        linked = topics.linked_order(self._spec, order)
        span = (since_offset, since, None if linked else limit)
        found = await read_history(self._log, topic, *span, self.access.opened, chosen)
        return (await asyncio.to_thread(linked, found))[:limit] if linked else found

    def completeness(self, topic: TopicName) -> Completeness:
        """How complete this node's history of a topic is, as far as it knows."""
        self._check_name(topic)
        return synced.completeness_of(self._driver, topic)

    async def sync(
        self,
        topic: TopicName | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
    ) -> SyncReport:
        """Compare a topic, or all that are followed, with every connected node now.

        When this returns, everything that those who answered have is in this node's log, up to
        the moment of the call. It happens by itself all the time; this is for who wants to know.
        """
        self._check_running()
        if topic is not None:
            topics.check_name(topic, self._store_config)
        return await synced.sync_now(self._driver, () if topic is None else (topic,), timeout)

    # Validation.

    def set_validator(self, topic: TopicName, validator: TopicValidator | None) -> None:
        """Let a function judge the events of a topic that peers bring; None removes it.

        One that raises, or returns no verdict, has rejected the event (`callback_failures`).
        """
        topics.check_name(topic, self._store_config)
        self._validators.set(topic, validator)

    @property
    def callback_failures(self) -> int:
        """How often a function of the application failed: a validator, filter, score or id."""
        return self._callbacks.failures


def _of_topic(
    method: Callable[Concatenate[Node, TopicName, _Arguments], _Result],
) -> Callable[Concatenate["Topic", _Arguments], _Result]:
    """Make a call of `Node` one of `Topic`, without the topic's name."""

    @functools.wraps(method)
    def call(topic: "Topic", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return method(topic.node, topic.name, *args, **kwargs)

    return call


class Topic:
    """One topic of one node. It holds nothing: two handles of one name are the same topic.

    Its calls are those of `Node`, without the topic's name.
    """

    __slots__ = ("name", "node")

    def __init__(self, node: Node, name: TopicName) -> None:
        self.node = node
        self.name = name

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    @property
    def subscribers(self) -> int:
        """How many connected peers subscribe to it."""
        return self.node.subscribers(self.name)

    publish = _of_topic(Node.publish)
    publish_many = _of_topic(Node.publish_many)
    subscribe = _of_topic(Node.subscribe)
    unsubscribe = _of_topic(Node.unsubscribe)
    history = _of_topic(Node.history)
    fetch_history = _of_topic(Node.fetch_history)
    synced = _of_topic(Node.sync)
    wait_until_ready = _of_topic(Node.wait_until_ready)
    set_validator = _of_topic(Node.set_validator)
    versions = _of_topic(Node.versions)
    tree = _of_topic(Node.topic_tree)
