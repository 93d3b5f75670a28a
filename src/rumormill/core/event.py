"""An event: what a publisher said, as every protocol hands it to the application."""

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic


class Event(msgspec.Struct, frozen=True, gc=False):
    """One publication, independent of the protocol that carried it.

    `id` is the protocol's own wire identity (GossipSub: author and sequence number). `parents` are
    the ids of the events it follows, where the protocol links events. `created` is the author's
    clock in seconds, where the protocol carries it. `proof` is what lets a third party check the
    author, in the protocol's own format.
    """

    topic: Topic
    data: bytes
    author: PeerId
    id: MessageId
    parents: tuple[MessageId, ...] = ()
    created: float | None = None
    proof: bytes = b""


class ReceivedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as a subscriber gets it: what was said, by whom, and where it lies in the log."""

    topic: Topic
    data: bytes
    author: PeerId
    id: MessageId
    offset: int
    received: float
    created: float | None = None
    parents: tuple[MessageId, ...] = ()
    proof: bytes = b""
