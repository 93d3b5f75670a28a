"""`SyncNode`: a node for scripts and notebooks, without asyncio.

    with SyncNode("home") as node:
        node.connect(ticket)
        print(node.publish("news", b"hello"))
        for event in node.subscribe("news", since_offset=0, timeout=5):
            ...

The node runs in a thread of its own with an event loop of its own (`node.in_thread`). The rule: it
has every call of `Node`, with the same arguments.
"""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from rumormill.core.api import PeerView, TopicVersion
from rumormill.core.event import Event
from rumormill.core.ids import Topic as TopicName
from rumormill.daemon.doors import Doors
from rumormill.log.event_log import EventLog
from rumormill.node.callbacks import TopicValidator
from rumormill.node.in_thread import InThread, SyncSubscription, read_from, turned, waited_for
from rumormill.node.node import Node
from rumormill.node.subscribing import SubscribeOptions
from rumormill.node.topic_access import TopicAccess
from rumormill.node.topics import signature_of_handle
from rumormill.wire.keys import PeerId

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _takes_what(
    init: Callable[Concatenate[Node, _Arguments], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate["SyncNode", _Arguments], None]]:
    return functools.wraps(init)


class SyncDoors:
    """Open doors, with the addresses of `Doors`. Close them, or use them as a context."""

    def __init__(self, node: "SyncNode", doors: Doors) -> None:
        self._node = node
        self._doors = doors
        self.control = doors.control
        self.metrics = doors.metrics
        self.flight = doors.flight
        self.token = doors.token
        self.dashboard = doors.dashboard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close them; return when nobody is inside any more."""
        if self._node.is_running:
            self._node._call(self._doors.close)


class SyncNode(InThread):
    """A node in a thread. Use it as a context manager, or call `start` and `close`.

    What `Node` can be told, and what its calls take and return, is the same here. Interrupted while
    it waits, a call that publishes may have published nothing, some, or all. Any thread may call;
    validators run in the node's own thread and must not.
    """

    _inner: Node

    @_takes_what(Node.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._inner = Node(*args, **kwargs)

    def __enter__(self) -> Self:
        return self.start()

    def start(self) -> Self:
        """Start the thread and the node in it; return when it listens."""
        return self._live(self._inner)

    @property
    def id(self) -> PeerId:
        """This node's peer id (`Node.id`)."""
        return self._read(lambda: self._inner.id)

    @property
    def tickets(self) -> list[str]:
        """What another node needs to join us: our addresses with our id."""
        return self._read(lambda: self._inner.tickets)

    @property
    def peers(self) -> list[PeerView]:
        """The connected peers."""
        return self._read(lambda: self._inner.peers)

    @property
    def reachability(self) -> list[str]:
        """See `Node.reachability`."""
        return self._read(lambda: self._inner.reachability)

    @property
    def links(self) -> list[str]:
        """The networks around this machine in which nodes find each other by mDNS."""
        return self._read(lambda: self._inner.links)

    @property
    def refusals(self) -> dict[str, int]:
        """What peers were refused or cut off for, how often, by reason."""
        return self._read(lambda: self._inner.refusals)

    @property
    def callback_failures(self) -> int:
        """How often a function of the application failed: a validator, filter, score or id."""
        return self._inner.callback_failures

    @property
    def log(self) -> EventLog:
        """This node's log, for reading; any thread may."""
        return self._read(lambda: self._inner.log)

    @property
    def access(self) -> TopicAccess:
        """Keys and policies of topics; any thread may change them."""
        return self._inner.access

    network_ticket = read_from(Node.network_ticket)
    subscribers = read_from(Node.subscribers)
    topics = read_from(Node.topics)
    groups = read_from(Node.groups)
    completeness = read_from(Node.completeness)
    metrics = read_from(Node.metrics)
    view = read_from(Node.view)
    add_observer = read_from(Node.add_observer)
    remove_observer = read_from(Node.remove_observer)
    connect = waited_for(Node.connect)
    wait_until_ready = waited_for(Node.wait_until_ready)
    describe_topic = waited_for(Node.describe_topic)
    versions = waited_for(Node.versions)
    topic_tree = waited_for(Node.topic_tree)
    publish = waited_for(Node.publish)
    publish_many = waited_for(Node.publish_many)
    request = waited_for(Node.request)
    """Returns the first reply; see `replies`."""
    reply = waited_for(Node.reply)
    unsubscribe = waited_for(Node.unsubscribe)
    forget_group = waited_for(Node.forget_group)
    history = waited_for(Node.history)
    sync = waited_for(Node.sync)
    publish_noted = waited_for(Node.publish_noted)
    fetch = waited_for(Node.fetch)
    fetch_history = waited_for(Node.fetch_history)
    command = waited_for(Node.command)
    set_supervisors = waited_for(Node.set_supervisors)
    retention = waited_for(Node.retention)
    compact = waited_for(Node.compact)
    peer_clocks = waited_for(Node.peer_clocks)
    set_retention = read_from(Node.set_retention)
    health = read_from(Node.health)
    backup = waited_for(Node.backup)
    repair = waited_for(Node.repair)
    restore = waited_for(Node.restore)
    import_events = waited_for(Node.import_events)
    serve = turned(Node.serve, SyncDoors)
    create_topic = turned(Node.create_topic, lambda _, topic: topic.name)
    """Returns the topic's name on the network."""

    def subscribe(
        self,
        topic: str,
        *,
        timeout: float | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> "SyncSubscription":
        """Subscribe to a topic: an iterator of events (`Node.subscribe`, and what that takes).

        With `timeout`, the iteration ends when no event has come for so many seconds.
        """
        subscription = self._call(lambda: self._inner.subscribe(topic, **options))
        return SyncSubscription(self, subscription, timeout)

    def replies(self, topic: str, data: bytes | str = b"", *, timeout: float = 5.0) -> list[Event]:
        """Ask whoever subscribes to a topic; return all replies that come in time."""
        return self._call(lambda: self._inner.request(topic, data, timeout=timeout).all())

    def version_of(self, event: Event) -> TopicVersion:
        """Read the version of a topic that an event announces whose `via` is "version"."""
        return self._inner.version_of(event)

    def set_validator(self, topic: str, validator: TopicValidator | None) -> None:
        """Let a function judge the events of a topic; it runs in the node's thread."""
        self._inner.set_validator(topic, validator)

    def topic(self, name: TopicName) -> "SyncTopic":
        """The topic of a name, as an object with this node's calls. Nothing is joined."""
        return SyncTopic(self, self._inner.topic(name).name)


def _of_topic(
    method: Callable[Concatenate[SyncNode, TopicName, _Arguments], _Result],
) -> Callable[Concatenate["SyncTopic", _Arguments], _Result]:
    """Make a call of `SyncNode` one of `SyncTopic`, without the topic's name."""

    @functools.wraps(method)
    def call(topic: "SyncTopic", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return method(topic.node, topic.name, *args, **kwargs)

    call.__dict__["__signature__"] = signature_of_handle(method)
    return call


class SyncTopic:
    """One topic of one `SyncNode`, with the calls of `Topic`. It holds nothing."""

    __slots__ = ("name", "node")

    def __init__(self, node: SyncNode, name: TopicName) -> None:
        self.node = node
        self.name = name

    def __repr__(self) -> str:
        return f"SyncTopic({self.name!r})"

    @property
    def subscribers(self) -> int:
        """How many connected peers subscribe to it."""
        return self.node.subscribers(self.name)

    publish = _of_topic(SyncNode.publish)
    publish_many = _of_topic(SyncNode.publish_many)
    subscribe = _of_topic(SyncNode.subscribe)
    unsubscribe = _of_topic(SyncNode.unsubscribe)
    history = _of_topic(SyncNode.history)
    fetch_history = _of_topic(SyncNode.fetch_history)
    synced = _of_topic(SyncNode.sync)
    wait_until_ready = _of_topic(SyncNode.wait_until_ready)
    set_validator = _of_topic(SyncNode.set_validator)
    versions = _of_topic(SyncNode.versions)
    tree = _of_topic(SyncNode.topic_tree)
