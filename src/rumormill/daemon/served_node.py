"""What the doors need of the node behind them; `rumormill.Node` has all of it.

A node opens its own doors (`Node.serve`), so this package stands below `node` and names here what
it calls there, besides what is needed to watch one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from rumormill.core.api import (
    FetchedHistory,
    GroupView,
    Linking,
    Message,
    PeerClock,
    Publishers,
    Receipt,
    TopicTree,
)
from rumormill.core.event import Event, Note
from rumormill.core.ids import PeerId, Topic
from rumormill.dashboard.watched import WatchedAccess, WatchedNode
from rumormill.log.keeping import RetentionLine
from rumormill.log.model import Report, Retention
from rumormill.sync.wishes import SyncReport


class ServedSubscription(Protocol):
    """A subscription that is read for somebody outside."""

    @property
    def dropped(self) -> int:
        """Events that retention has deleted before they were read."""

    @property
    def waiting(self) -> int:
        """Events that can be had without waiting."""

    @property
    def pending(self) -> int:
        """Of a named one: events that are not acknowledged."""

    @property
    def lag(self) -> int:
        """Of a named one: events behind them in the log."""

    async def __anext__(self) -> Event: ...

    async def batch(self, limit: int) -> list[Event]:
        """Wait for events, at most so many; none at the end."""

    async def ack(self, *events: Event | int) -> None:
        """Acknowledge events of a named one; return when that is safe."""

    async def nack(self, *events: Event | int) -> None:
        """Give events of a named one back."""

    def close(self) -> None:
        """End it."""


class ServedAccess(WatchedAccess, Protocol):
    """The keys and policies of topics."""

    def reload(self) -> None:
        """Read their files again."""

    def opened(self, event: Event) -> Event | None:
        """An event as it is handed out; None, counted, if it cannot be read."""

    def key_ids(self) -> dict[Topic, tuple[str, ...]]:
        """What the keys of encrypted topics are called, those that encrypt first."""


class ServedTopic(Protocol):
    """A topic that was made for somebody outside."""

    @property
    def name(self) -> Topic:
        """Its name on the network."""


class ServedNode(WatchedNode, Protocol):
    """A running node."""

    def network_ticket(self) -> str:
        """What others need to join its network: it and some of its peers."""

    @property
    def access(self) -> ServedAccess:
        """The keys and policies of its topics."""

    async def retention(
        self, topic: Topic | None, *, rules: Mapping[Topic, Retention] | None, apply: bool
    ) -> list[RetentionLine]:
        """What is kept of topics, and what is beyond; with `apply`, it is deleted."""

    async def compact(self, *, old: bool) -> int:
        """Give unused space back; return how many bytes."""

    async def repair(self) -> Report:
        """Keep what is whole of the log, give up the rest, and go on."""

    async def restore(self, copy: str, *, replace: bool) -> Report:
        """Have the log take a backup, and go on."""

    async def import_events(self, file: str) -> int:
        """Have the log take an exported file; return how many events are new."""

    async def peer_clocks(self) -> list[PeerClock]:
        """What time connected nodes have."""

    async def connect(self, ticket: str) -> PeerId:
        """Connect to another node."""

    async def wait_until_ready(
        self,
        topic: Topic,
        *,
        peers: int,
        timeout: float | None,  # noqa: ASYNC109 (as in `Node`)
    ) -> None:
        """Wait for subscribers."""

    async def create_topic(
        self,
        name: Topic,
        *,
        allowed_publishers: Publishers | None,
        request_to_publish: bool | tuple[PeerId, ...] | None,
        linking: Linking | None,
        sub_topics: Mapping[str, Topic],
        parent: Topic | None,
    ) -> ServedTopic:
        """Make a topic, or join it where it needs no making."""

    async def describe_topic(self, topic: Topic) -> dict[str, Any]:
        """Find out what is known of a topic that was created."""

    async def topic_tree(self, topic: Topic) -> TopicTree:
        """Find all sub-topics of a topic that was created."""

    async def fetch(
        self,
        event: str,
        *,
        timeout: float,  # noqa: ASYNC109 (as in `Node`)
    ) -> Event:
        """Get an event by its name alone."""

    async def fetch_history(
        self,
        topic: Topic,
        *,
        start: Iterable[str],
        since: float,
        most: int,
        timeout: float | None,  # noqa: ASYNC109 (as in `Node`)
    ) -> FetchedHistory:
        """Get a topic's history beyond the log into the log."""

    async def subscribe(
        self,
        topic: Topic,
        *,
        name: str | None,
        auto_ack: bool,
        ack_within: float | None,
        history: Literal["missed", "all", "none"] | None,
        since: float | None,
        since_offset: int | None,
        buffer: int,
        overflow: str,
        follow: bool,
        where: str | None,
        recursive: bool,
        tell_versions: bool,
        follow_versions: bool,
        subscribe_to_meta: bool | None,
        unsubscribe_from_meta: bool | None,
    ) -> ServedSubscription:
        """Subscribe; without `follow`, the topic is left with its last subscription."""

    async def unsubscribe(self, topic: Topic, *, unsubscribe_from_meta: bool | None = None) -> None:
        """Leave a topic and end its subscriptions."""

    async def publish(
        self,
        topic: Topic,
        data: bytes | str,
        *,
        key: bytes | str | None,
        headers: Mapping[str, str] | None,
        content_type: str | None,
        parents: Iterable[str],
        copies: int,
        timeout: float,  # noqa: ASYNC109 (as in `Node`)
    ) -> Receipt:
        """Publish; return when it is safe here, and as many others have it."""

    def groups(self) -> list[GroupView]:
        """All named subscriptions."""

    async def forget_group(self, topic: Topic, name: str) -> None:
        """Forget one of them."""

    async def sync(
        self,
        topic: Topic | None,
        *,
        timeout: float | None,  # noqa: ASYNC109 (as in `Node`)
    ) -> SyncReport:
        """Compare histories with every connected node now."""

    async def publish_noted(self, rows: Sequence[tuple[Topic, Message, Note]]) -> list[Receipt]:
        """Publish rows with their notes, in this order; return when all are safe in the log."""
