"""`connect_sync`: a node that runs in another program, used without asyncio.

    with rumormill.connect_sync("chat-home") as node:
        node.publish("news", b"hello")
        for event in node.subscribe("news", name="reader", timeout=5):
            ...

The client lives in a thread of its own (`node.in_thread`). The rule: what it has in common with
`SyncNode` has the same name, and is read or called in the same way.
"""

from pathlib import Path
from typing import Self, Unpack

from rumormill.core.api import PeerView
from rumormill.core.event import Event
from rumormill.core.ids import Topic as TopicName
from rumormill.node.client import Client, connect
from rumormill.node.in_thread import InThread, SyncSubscription, read_from, waited_for
from rumormill.node.subscribing import SubscribeOptions
from rumormill.wire.keys import PeerId


def connect_sync(home: str | Path | None = None) -> "SyncClient":
    """Use the node that runs in a home, without asyncio; as `connect`, but at once."""
    return SyncClient(home)


class SyncClient(InThread):
    """A node that runs elsewhere. Make it with `connect_sync`, and use it as a context manager, or
    `close` it. Its calls are those of `Client`, what `SyncNode` has as properties are properties.
    """

    _inner: Client

    def __init__(self, home: str | Path | None = None) -> None:
        connecting = connect(home)
        self._live(connecting)
        self._inner = connecting.client

    def __enter__(self) -> Self:
        return self

    @property
    def home(self) -> Path:
        """Where the node has its home."""
        return self._inner.home

    @property
    def protocol(self) -> str:
        """How it spreads messages."""
        return self._inner.protocol

    @property
    def id(self) -> PeerId:
        """The node's peer id."""
        return self._inner.id

    @property
    def tickets(self) -> list[str]:
        """What another node needs to join this one."""
        return self._call(self._inner.tickets)

    @property
    def peers(self) -> list[PeerView]:
        """The connected peers."""
        return self._call(self._inner.peers)

    network_ticket = waited_for(Client.network_ticket)
    subscribers = waited_for(Client.subscribers)
    topics = waited_for(Client.topics)
    groups = waited_for(Client.groups)
    completeness = waited_for(Client.completeness)
    metrics = waited_for(Client.metrics)
    health = waited_for(Client.health)
    connect = waited_for(Client.connect)
    wait_until_ready = waited_for(Client.wait_until_ready)
    describe_topic = waited_for(Client.describe_topic)
    topic_tree = waited_for(Client.topic_tree)
    create_topic = waited_for(Client.create_topic)
    publish = waited_for(Client.publish)
    publish_many = waited_for(Client.publish_many)
    request = waited_for(Client.request)
    """Returns the first reply; see `replies`."""
    reply = waited_for(Client.reply)
    unsubscribe = waited_for(Client.unsubscribe)
    forget_group = waited_for(Client.forget_group)
    history = waited_for(Client.history)
    sync = waited_for(Client.sync)
    fetch = waited_for(Client.fetch)
    fetch_history = waited_for(Client.fetch_history)
    retention = waited_for(Client.retention)
    compact = waited_for(Client.compact)
    peer_clocks = waited_for(Client.peer_clocks)
    backup = waited_for(Client.backup)
    repair = waited_for(Client.repair)
    restore = waited_for(Client.restore)
    import_events = waited_for(Client.import_events)
    version_of = read_from(Client.version_of)

    def subscribe(
        self,
        topic: TopicName,
        *,
        timeout: float | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> SyncSubscription:
        """Subscribe to a topic: an iterator of events (`SyncNode.subscribe`)."""
        subscription = self._call(lambda: self._inner.subscribe(topic, **options))
        return SyncSubscription(self, subscription, timeout)

    def replies(self, topic: str, data: bytes | str = b"", *, timeout: float = 5.0) -> list[Event]:
        """Ask whoever subscribes to a topic; return all replies that come in time."""
        return self._call(lambda: self._inner.request(topic, data, timeout=timeout).all())
