"""An event: what a publisher said, as protocols, logs and applications hand it to each other.

A note is the other thing that is kept: what a protocol must know again after a restart.
"""

from typing import Final

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic

UNASSIGNED: Final = -1
"""The offset of an event that no log has taken yet."""


VERSION: Final = "version"
"""`Event.via` of an event of a meta topic that announces a later version to a subscriber."""


class Note(msgspec.Struct, frozen=True, gc=False):
    """A small record under a key, kept beside the events; a later note replaces an earlier one."""

    key: str
    value: bytes


class Event(msgspec.Struct, frozen=True, gc=False):
    """One publication, independent of the protocol that carried it.

    `id` is the protocol's own wire identity (GossipSub: author and sequence number); in a log
    (topic, id) is unique. `parents` are the ids of the events it follows, where the protocol links
    events. `created` is the author's clock in seconds, where the protocol carries it: it may be
    wrong. `proof` is what lets a third party check the author, in the protocol's own format.

    A log adds what it knows, and until then it is not known: `received` is our own clock when the
    event came, `offset` its place in the topic, `protocol` the protocol that brought it. `via` is
    "sync" when a subscriber gets what was fetched because it was missing, and "version" when it is
    told of a later version of its topic.
    """

    topic: Topic
    data: bytes
    author: PeerId
    id: MessageId
    parents: tuple[MessageId, ...] = ()
    created: float | None = None
    proof: bytes = b""
    received: float = 0.0
    offset: int = UNASSIGNED
    protocol: str = ""
    via: str = ""


def filled(event: Event, received: float, offset: int, protocol: str) -> Event:
    """The event with what only its receiver knows; by hand, because each event comes here twice."""
    return Event(
        event.topic,
        event.data,
        event.author,
        event.id,
        event.parents,
        event.created,
        event.proof,
        received,
        offset,
        protocol,
        event.via,
    )
