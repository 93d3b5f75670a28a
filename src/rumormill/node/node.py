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
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

from rumormill.core.api import Completeness, Message, Receipt
from rumormill.core.errors import LocalError, OutOfTimeError
from rumormill.core.event import Event, Note
from rumormill.core.ids import MessageId
from rumormill.core.ids import Topic as TopicName
from rumormill.core.inputs import Unsubscribe
from rumormill.core.where import Filter
from rumormill.daemon.control_messages import TopicLine
from rumormill.daemon.control_service import list_topics
from rumormill.daemon.doors import Doors
from rumormill.daemon.flight_door import PemFiles
from rumormill.daemon.metrics_server import Pages
from rumormill.daemon.upkeep import Reloading
from rumormill.log.event_log import EventLog
from rumormill.node import synced, topics
from rumormill.node.arguments import check_calls
from rumormill.node.callbacks import TopicValidator
from rumormill.node.config import CHECKED_BELOW
from rumormill.node.log_reader import read_history
from rumormill.node.metrics import Values, gather_metrics
from rumormill.node.metrics_page import render_metrics
from rumormill.node.payloads import payload, payloads
from rumormill.node.presence import Presence
from rumormill.node.questions import NodeQuestions
from rumormill.node.requesting import Requesting, reply_topic
from rumormill.node.subscribing import NodeSubscriptions
from rumormill.node.topics import Who
from rumormill.node.upkeep import Upkeep
from rumormill.sync.wishes import SyncReport

_log = logging.getLogger("rumormill.node")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@check_calls(*CHECKED_BELOW)
class Node(Presence, NodeSubscriptions, NodeQuestions, Requesting, Upkeep):
    """A peer. Use it as an async context manager, or call `start` and `close`."""

    _own_doors: Doors | None = None

    async def start(self) -> None:
        """Open identity and log, listen, and take part in the network."""
        await super().start()
        if self._control and self._home is not None:
            try:
                self._own_doors = await self.serve(control=True)
            except LocalError as error:  # the path is too long, for one: the node lives without
                _log.warning("commands cannot use this node: %s", error)
            except BaseException:
                await self.close()
                raise

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
        views = self._groups.views()
        found = gather_metrics(self._counts, self._driver, self._swarm, self._journal, views)
        return found | self._reach.counts()

    def serve(
        self,
        *,
        control: bool = False,
        metrics: bool | str = False,
        flight: bool | str = False,
        dashboard: bool | str = False,
        allow_publish: bool = False,
        tls: PemFiles | None = None,
        home: str | Path | None = None,
        on_reload: Reloading | None = None,
    ) -> Doors:
        """Let other programs in: `async with node.serve(metrics=True) as doors`, or `await` it.

        `control` is a socket for commands of the same user. The others are HOST:PORT, or true for
        the usual one; port 0 lets the system choose. `metrics` is a page for
        Prometheus, `/metrics`, with `/healthz` and `/readyz` beside it. Through `flight`, whoever
        has the token reads and publishes by Arrow Flight. `dashboard` is a page for a browser, at
        the address that `doors.dashboard` has then, token included; with `allow_publish` it may
        publish. `tls`, for both, is a certificate and its key, as files in PEM. Socket and token
        are in `home`, the node's own unless given. `on_reload` is what `rumormill reload` calls;
        unless given, keys and policies are read again. Closing the node closes its doors.

        A node with a home has its control socket open already, unless it was made with
        `control=False`: to ask for it here is to be told where it is, and to set `on_reload`.
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
            self._own_doors,
            control=control,
            metrics=metrics,
            flight=flight,
            dashboard=dashboard,
            allow_publish=allow_publish,
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
            raise OutOfTimeError(
                f"topic {topic!r} has {self.subscribers(topic)} of {peers} wanted subscribers"
                f" after {timeout:g} seconds; {len(self._swarm.connections)} peers are connected"
            ) from None

    # Topics.

    def topics(self) -> list[TopicLine]:
        """The topics of this node's log and of its network, by name: extents, and who is there."""
        self._check_running()
        return list_topics(self._log.topics(), self).topics

    def topic(self, name: TopicName) -> "Topic":
        """The topic of a name, as an object with this node's calls. Nothing is joined."""
        topics.check_name(name, self._store_config)
        return Topic(self, name)

    async def create_topic(
        self,
        name: TopicName,
        *,
        allowed_publishers: Iterable[Who] | Literal["anyone"] | None = None,
        request_to_publish: bool | Iterable[Who] | None = None,
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
        try:
            await synced.remembered(self._driver, topic, followed=True)
        except BaseException:
            if self._running:
                self._take_back(topic)
                given = self._journal.all_subscriptions()
                if topic not in self._followed and not any(topic in each.topics for each in given):
                    self._driver.feed(Unsubscribe(topic))
            raise
        return Topic(self, topic)

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
        if (
            topic != self._checked_topic
            or not self._running
            or asyncio.get_running_loop() is not self._loop
        ):
            self._check_name(topic)
        named = topics.parent_ids(self._spec, parents) if parents else ()
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
        self, rows: Sequence[tuple[TopicName, bytes | Message, Note]]
    ) -> list[Receipt]:
        """Publish for a program that may ask again: `log.notes` says afterwards what was done."""
        for topic, _, _ in rows:
            self._check_name(topic)
        data = payloads([message for _, message, _ in rows])
        noted = [(topic, each, note) for (topic, _, note), each in zip(rows, data, strict=True)]
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

        `since_offset`, -5 for the last five, and `since` (a time of reception, in seconds) say
        where to begin, the later of both; events that retention has deleted, that no key reads, or
        that the filter `where` does not match, are passed over, as is what a repair has recorded as
        lost (`log.losses`). An offset beyond the next one is refused: it is of another history. At
        most `limit` come back. Offsets are this log's own. With `order="links"` (Pulsarcast) each
        event stands behind the one that it links to, and otherwise by date: the same order at all
        nodes that have the same.
        `completeness` says how much of the topic that is, and `sync` completes it.
        """
        self._check_name(topic)
        chosen = None if where is None else Filter(where)
        topics.check_limit(limit)
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

    def _reply_topic(self, topic: TopicName) -> TopicName:
        return reply_topic(self._spec, topic)

    def _is_own(self, event: Event) -> bool:
        return event.author == self.id

    # Validation.

    def set_validator(self, topic: TopicName, validator: TopicValidator | None) -> None:
        """Let a function judge the events of a topic that peers bring; None removes it.

        It is given the event as subscribers get it, but for what only the log says: `offset`,
        `received` and `protocol`. One that raises, or returns no verdict, has rejected the event
        (`callback_failures`).
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

    call.__dict__["__signature__"] = topics.signature_of_handle(method)
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
