"""An event: what a publisher said, as protocols, logs and applications hand it to each other.

Three other things are kept: notes, what a protocol must know again after a restart, records, what
it holds for other peers, and the positions of named subscriptions.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic

UNASSIGNED: Final = -1
"""The offset of an event that no log has taken yet."""


NEW: Final = -2
"""The same of one that was made just now: no log can have had it before, whatever its date says."""


VERSION: Final = "version"
"""`Event.via` of an event of a meta topic that announces a later version to a subscriber."""


AGAIN: Final = "again"
"""`Event.via` of an event that was handed out before and not acknowledged."""


REPLY_TO: Final = "reply-to"
CORRELATION_ID: Final = "correlation-id"
"""Headers of a request: where replies are awaited, and what each of them repeats."""


class Note(msgspec.Struct, frozen=True, gc=False):
    """A small record under a key, kept beside the events; a later note replaces an earlier one, and
    one without a value is kept no longer."""

    key: str
    value: bytes


class KeptRecord(msgspec.Struct, frozen=True):
    """A value under a key of a distributed hash table, which a peer holds for others or published
    itself; without a value, it is kept no longer.

    `proof` vouches for it, `since` is when it was last published, as far as its holder knows, and
    `source` who gave it to us.
    """

    key: bytes
    value: bytes | None = None
    proof: bytes = b""
    since: float = 0.0
    own: bool = False
    source: PeerId = b""


class Position(msgspec.Struct, frozen=True, gc=False):
    """How far a named subscription has come in its topic; without `next_offset` it is forgotten.

    Everything before `next_offset` is done with, except what was handed out and has not been
    acknowledged: `pending`, by offset.
    """

    topic: Topic
    name: str
    next_offset: int | None
    pending: tuple[int, ...] = ()


Kept: TypeAlias = Note | KeptRecord
"""What a protocol keeps beside events."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """What a publisher said about an event besides its data."""

    key: bytes | None = None
    headers: dict[str, str] = {}
    content_type: str = ""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One publication, independent of the protocol that carried it.

    `id` is the protocol's own wire identity (GossipSub: author and sequence number); in a log
    (topic, id) is unique. `parents` are the ids of the events it follows, where the protocol links
    events. `created` is the author's clock in seconds, where the protocol carries it: it may be
    wrong. `proof` is what lets a third party check the author, in the protocol's own format.

    A log adds what it knows, and until then it is not known: `received` is our own clock when the
    event came, `offset` its place in the topic, `protocol` the protocol that brought it. `via` is
    "sync" when a subscriber gets what was fetched because it was missing, "version" when it is
    told of a later version of its topic, and "again" when a named subscription hands out what it
    handed out before.

    In a log `data` is what travelled. As an event is handed out, `data` is what its publisher gave,
    and `head` what it said besides, if anything: `key`, `headers` and `content_type` are its parts.
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
    head: Head | None = None

    @property
    def key(self) -> bytes | None:
        """What the event is about, if its publisher said so."""
        return None if self.head is None else self.head.key

    @property
    def headers(self) -> Mapping[str, str]:
        """What its publisher noted by name."""
        return {} if self.head is None else self.head.headers

    @property
    def content_type(self) -> str:
        """What kind of data it is, as in MIME; empty if nobody said."""
        return "" if self.head is None else self.head.content_type

    @property
    def reply_to(self) -> Topic:
        """The topic in which its publisher awaits replies, if it does (`Node.request`)."""
        return self.headers.get(REPLY_TO, "")


def filled(event: Event, received: float, offset: int, protocol: str) -> Event:
    """The event with what only its receiver knows; by hand, because each event comes here."""
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
