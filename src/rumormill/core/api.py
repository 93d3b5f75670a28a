"""What an application tells a node, and what it gets back: topic options, receipts, peers."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic

ANYONE: Final = "anyone"
"""Written instead of a list of publishers: everybody may publish."""
AUTHOR: Final[PeerId] = b""
"""Stands among the publishers for whoever creates the topic."""

Publishers: TypeAlias = tuple[PeerId, ...] | Literal["anyone"]
Linking: TypeAlias = Literal["last-seen", "custom"]
LINKINGS: Final[tuple[Linking, ...]] = ("last-seen", "custom")


class TopicOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic shall be. What is left as it is, the protocol decides.

    `allowed_publishers` are exactly those who may publish: the author is one of them only where it
    is named. `request_to_publish` says whether the others may ask an allowed publisher to publish
    for them: all, none, or those that are listed. `linking` says which event an event follows: the
    one that its publisher saw last, or the one that its publisher names, and without a name none.
    `sub_topics` links existing topics under names. `parent` is the topic of which this is a new
    version.
    """

    allowed_publishers: Publishers | None = None
    request_to_publish: bool | tuple[PeerId, ...] | None = None
    linking: Linking | None = None
    sub_topics: Mapping[str, Topic] = {}
    parent: Topic | None = None

    def given(self) -> list[str]:
        """The names of the options that were given."""
        empty = TopicOptions()
        names = self.__struct_fields__
        return [name for name in names if getattr(self, name) != getattr(empty, name)]


NO_OPTIONS: Final = TopicOptions()


class Message(msgspec.Struct, frozen=True):
    """What is published, where it is more than data: see `Node.publish`."""

    data: bytes | str
    key: bytes | str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None


class TopicVersion(msgspec.Struct, frozen=True):
    """One version of a topic that was created, as `Node.versions` lists it.

    `parent` is the version before it. `meta` is the topic in which later ones are announced.
    """

    topic: Topic
    name: str
    author: PeerId
    created: str
    parent: Topic | None
    meta: Topic | None


class TopicBranch(msgspec.Struct, frozen=True):
    """A sub-topic in a topic's tree: how deep, under which label, which topic.

    `name` and `created` are None where its descriptor is not to be found. With `again` the topic
    stands in the tree before this, and what lies below it is listed there.
    """

    depth: int
    label: str
    topic: Topic
    name: str | None
    created: str | None
    again: bool = False


class TopicTree(msgspec.Struct, frozen=True):
    """A topic and all sub-topics below it, in the order in which a tree is drawn.

    With `cut` there are more of them than fit.
    """

    root: TopicVersion
    branches: tuple[TopicBranch, ...]
    cut: bool = False


class Reach(msgspec.Struct, frozen=True):
    """What a subscription takes in besides its topic, where topics are created (Pulsarcast).

    `recursive` takes in all sub-topics, and `follow_versions` the later versions of the topic, as
    long as the subscription is open. With that, or with `tell_versions`, each announcement of a
    later version comes as an event of the meta topic whose `via` is "version" (`Node.version_of`
    reads it). `subscribe_to_meta` and, with `follow=False`, `unsubscribe_from_meta` say whether the
    meta topic comes and goes along with the topic, if that is not as configured.
    """

    recursive: bool = False
    tell_versions: bool = False
    follow_versions: bool = False
    subscribe_to_meta: bool | None = None
    unsubscribe_from_meta: bool | None = None

    def given(self) -> list[str]:
        """The names of the wishes that were given."""
        alone = Reach()
        names = self.__struct_fields__
        return [name for name in names if getattr(self, name) != getattr(alone, name)]

    @property
    def versions(self) -> bool:
        """Whether later versions of the topic are of interest."""
        return self.tell_versions or self.follow_versions

    @property
    def joint(self) -> bool:
        """Whether something besides the topic is looked for."""
        return self.recursive or self.versions

    @property
    def meta(self) -> bool | None:
        """Whether the meta topic is subscribed to, if that is not as configured."""
        return self.versions or self.subscribe_to_meta


ALONE: Final = Reach()


class Receipt(msgspec.Struct, frozen=True, weakref=True):
    """An event was published.

    It is in this node's log at `offset`, and on disk there since `durable_at`, which is None when
    the node was started with a durability that does not wait for the disk. `peers` says to how
    many peers it was handed at once, without those whose queue was full; when nobody subscribes,
    `note` says so. `dropped` of these peers went, or stopped reading, before it was on its way to
    them: that number may grow as long as the receipt is kept. What they lack, sync brings them
    later. `copies` other nodes have said that it is in their logs, if somebody asked.

    Where this node may not publish itself, it has asked a peer that may, and the receipt says that
    this peer has published the event, under `id`. `requested` is true then, and `offset` -1: the
    event comes back like any other's, and gets its place in this node's log when it does.
    """

    topic: Topic
    id: MessageId
    offset: int
    durable_at: float | None
    peers: int
    note: str = ""
    copies: int = 0
    dropped: int = 0

    @property
    def requested(self) -> bool:
        """Whether another peer has published the event for this node."""
        return self.offset < 0


class Completeness(msgspec.Struct, frozen=True):
    """How complete a topic's history is here, as far as this node knows (see `docs/sync.md`)."""

    compared: float | None = None
    """Seconds since it had all that another node has; None if that was not found since the start,
    or the protocol repairs histories by itself."""
    lacking: float | None = None
    """Seconds since something is known to be missing; None if nothing is."""
    backlog: int = 0
    """How many events that are, at least."""

    def __str__(self) -> str:
        """One sentence for people."""
        if self.lacking is not None:
            events = "1 event is" if self.backlog == 1 else f"{self.backlog} events are"
            return f"at least {events} known to be missing, for {self.lacking:.0f} seconds"
        if self.compared is None:
            return "not compared with another node yet"
        return f"has all that another node had {self.compared:.0f} seconds ago"


class FetchedHistory(msgspec.Struct, frozen=True):
    """What came of fetching a topic's history from other nodes; its events are in the log.

    `events` came that were not there before. `missing` names those that others link to and nobody
    had, or that were beyond a bound, which `bounded` tells. `answered` counts the nodes that gave
    all they have. It is `complete` if nothing is missing and somebody was asked who knows the
    newest events: never if nobody could be asked.
    """

    events: int = 0
    missing: tuple[MessageId, ...] = ()
    answered: int = 0
    complete: bool = False
    bounded: bool = False

    def __str__(self) -> str:
        """One sentence for people."""
        events = "1 event" if self.events == 1 else f"{self.events} events"
        nodes = "1 node has" if self.answered == 1 else f"{self.answered} nodes have"
        told = f"fetched {events}; {nodes} given all"
        if self.complete:
            return f"{told}; nothing is missing, as far as they know"
        if self.bounded:
            return f"{told}; there are more than were asked for"
        if self.missing:
            return f"{told}; {len(self.missing)} events are missing"
        return f"{told}; who knows the newest events could not be asked"


class PeerView(msgspec.Struct, frozen=True):
    """A connected peer, as `Node.peers` shows it; `str(peer.id)` is its id as in tickets."""

    id: PeerId
    address: str
    outbound: bool
    protocol: str = ""
    queued_messages: int = 0
    queued_bytes: int = 0
    score: float | None = None
    """What the protocol thinks of it, where it keeps scores (GossipSub)."""
    round_trip: float | None = None
    """Seconds to it and back, as the kernel has measured them; not known through a relay."""


class GroupView(msgspec.Struct, frozen=True):
    """A named subscription, as `Node.groups` shows it; its consumers are a group.

    `next_offset` is where it goes on, `pending` events are handed out and not acknowledged, `lag`
    events are in the log behind them, `dropped` were deleted by retention before they were read or
    acknowledged, and `late` counts how often one was taken from a consumer that did not acknowledge
    it in time (`ack_within`); both since the first of its consumers came.
    """

    topic: Topic
    name: str
    next_offset: int
    pending: int
    lag: int
    consumers: int = 0
    dropped: int = 0
    late: int = 0


class PeerClock(msgspec.Struct, frozen=True):
    """What time a peer has: by how many seconds it is ahead of ours, give or take so many."""

    id: PeerId
    ahead: float
    within: float


class Health(msgspec.Struct, frozen=True):
    """How a node is: whether a restart would help, and whether it takes events."""

    healthy: bool
    """False when its log has failed: the node must be started again."""
    ready: bool
    """False also while its disk is full."""
    why: str
