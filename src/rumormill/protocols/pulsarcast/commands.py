"""What only Pulsarcast offers, as bodies of `Command`: each says what its `Outcome` holds.

Topics and events are named by their CIDs in base58btc.
"""

import msgspec

from rumormill.core.errors import DecodeError, LocalError
from rumormill.core.event import Event
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.descriptors import EventLinking, TopicDescriptor


class CreateTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Create a topic, or with `parent` a new version of one. Outcome: its `TopicDescriptor`.

    `allowed_publishers` left out means the configuration's default; None means everybody.
    `request_to_publish` is None for nobody, empty for everybody, or a list.
    """

    name: str
    allowed_publishers: tuple[PeerId, ...] | msgspec.UnsetType | None = msgspec.UNSET
    request_to_publish: tuple[PeerId, ...] | None = ()
    event_linking: EventLinking = EventLinking.LAST_SEEN
    sub_topics: dict[str, Topic] = {}
    parent: Topic | None = None


class TopicCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command about one topic."""

    topic: Topic


class SubscribeTo(TopicCommand, frozen=True, kw_only=True):
    """Subscribe. Outcome, once there is a way to the root: the `TopicDescriptor`."""


class Question(TopicCommand, frozen=True, kw_only=True):
    """One of the next five, which ask about a topic and what hangs together with it."""


class ShowTopic(Question, frozen=True, kw_only=True):
    """Find a topic's descriptor. Outcome: the `TopicDescriptor`."""


class BrowseTopic(Question, frozen=True, kw_only=True):
    """Find a topic's sub-topics. Outcome: a dict from names to descriptors, None where lost."""


class BrowseTree(Question, frozen=True, kw_only=True):
    """Find a topic's sub-topics, theirs, and so on. Outcome: a `TopicTree`."""


class ListVersions(Question, frozen=True, kw_only=True):
    """Find all versions of a topic that are known. Outcome: descriptors, the oldest first."""


class DescribeTopic(Question, frozen=True, kw_only=True):
    """Find everything about a topic. Outcome: a `TopicView`."""


class TopicView(msgspec.Struct, frozen=True):
    """A topic with what hangs together with it.

    `sub_topics` has None where a sub-topic's descriptor is lost; `versions` begins with the oldest.
    """

    topic: TopicDescriptor
    sub_topics: dict[str, TopicDescriptor | None]
    versions: tuple[TopicDescriptor, ...]


class FetchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Get an event by its CID alone: what is at hand, else from the DHT. Outcome: the `Event`.

    It was verified: its CID, its signatures, and where the topic's descriptor is to be had, that
    its publisher may publish there.
    """

    event: str | MessageId


class ReadHistory(TopicCommand, frozen=True, kw_only=True):
    """Get the events of a topic, with everything that neighbours and the DHT can add.

    Outcome: a `History`. `limit` 0 means all; a limited history holds the newest events. Whatever
    was fetched is in the log; with `bare`, the history does not hold the events besides.

    `start` names events by their CIDs, from which links are followed as well: who knows the last
    event gets all before it, though everybody is gone who kept them. Links of events that are
    dated before `since` are not followed. No more than `most` events are fetched, 0 for all.
    """

    backwards: bool = False
    limit: int = 0
    bare: bool = False
    start: tuple[str | MessageId, ...] = ()
    since: float = 0.0
    most: int = 0


class History(msgspec.Struct, frozen=True):
    """A topic's events, parents before their children (or after, when read backwards).

    Every event in it was verified: its CID, its publisher's permission, its signatures where it has
    them. `unsigned` counts those that came from the DHT, which keeps none; `missing` names events
    that others link to and nobody has, or that are beyond a bound; `refused` counts those that
    failed the check. `answered` counts the peers that gave all they have, `fetched` the events that
    were not here before; `bounded` says that there would be more of them.
    """

    events: tuple[Event, ...]
    missing: tuple[bytes, ...] = ()
    unsigned: int = 0
    refused: int = 0
    answered: int = 0
    vouched: bool = False
    """Whether somebody was asked who must know the topic's newest events: its author."""
    fetched: int = 0
    bounded: bool = False

    @property
    def complete(self) -> bool:
        """Whether every link leads to an event, and somebody said that there are no others."""
        return self.vouched and not self.missing and not self.refused


def cid_of(topic: Topic) -> bytes:
    """The CID that a topic's name is; a `LocalError` where it is none."""
    try:
        return cids.parse(topic)
    except DecodeError as error:
        raise LocalError(f"{topic!r} names no topic: {error.detail}") from None


def event_cid_of(event: str | MessageId) -> bytes:
    """The CID that names an event: as text, as an event's id, or as that in hexadecimal digits."""
    try:
        if not isinstance(event, str):
            return cids.check(bytes(event))
        is_hex = event.startswith(cids.PREFIX.hex())
        return cids.check(bytes.fromhex(event)) if is_hex else cids.parse(event)
    except (DecodeError, ValueError) as error:
        detail = error.detail if isinstance(error, DecodeError) else error
        raise LocalError(f"{event!r} names no event: {detail}") from None
