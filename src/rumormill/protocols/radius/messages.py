"""The frames of radius gossip, as values and as bytes, and what signatures cover.

Interests (SUB, UNSUB) and publications are made and signed once by their owner or author and travel
unchanged; how far a copy may still travel stands beside them, outside the signature. Values are
treated as immutable. What is computed from one once (its bytes, its id, its trace metadata) is kept
in it, because one value is passed on to many peers.

Of a repeated single value the last one counts, as protobuf says. What is passed on is encoded anew,
so fields that nobody knows, and that no signature covers, do not travel further.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from rumormill.core.config import Config, require
from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.identity import Identity, Verifier
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.trace import MessageMeta, OperationMeta, RpcMeta
from rumormill.overlay.hyparview.messages import (
    MEMBERSHIP,
    Membership,
    addresses_field,
    peer_id_field,
)
from rumormill.protocols.radius import reasons
from rumormill.wire.fields import Nested, Number, Octets, Text
from rumormill.wire.protobuf import field_size
from rumormill.wire.schema import Layout, Schema

MARK_BYTES: Final = 8
"""Bytes that stand for one served subscriber in a relayed publication."""
INTEREST_PREFIX: Final = b"rumormill-radius-interest:"
"""What an interest's signature covers starts with this, so that it can never be taken for one of
another kind."""
PUBLICATION_PREFIX: Final = b"rumormill-radius-publication:"
"""The same for publications."""

_PART: Final = 64
"""Words that a runtime does at a time, as of pub/sub's messages. The longest RSA signatures take
eight times as long to check as ours do."""
_TIME_BYTES: Final = 8
_UINT32: Final = 2**32 - 1


class FrameLimits(Config, frozen=True, kw_only=True):
    """How much one frame may hold."""

    frame_bytes: int = 1 << 20
    """As pub/sub RPCs: 1 MiB."""
    interests: int = 256
    """Our choice: each has a signature to be checked, and a frame is handled in one go: this many
    take twenty milliseconds."""
    publications: int = 256
    """PUB and DIRECTMSG together. Our choice: a peer sends one at a time."""
    membership: int = 16
    """Our choice: a peer sends one at a time."""
    topic_bytes: int = 1024
    """As in pub/sub RPCs: a name, not a payload."""
    key_bytes: int = 2048
    """As in pub/sub RPCs: RSA keys of up to 8192 bits, encoded."""
    signature_bytes: int = 1024
    """The signature of such a key."""
    served: int = 1024
    """Served subscribers named by one relayed publication."""
    other_fields: int = 100
    """Fields that nobody knows."""

    def validate(self) -> None:
        """Refuse limits under which nothing could be received."""
        for name in self.__struct_fields__:
            require(getattr(self, name) >= 0, name, "must not be negative")
        require(self.frame_bytes > 0, "frame_bytes", "must be positive")
        require(self.topic_bytes > 0, "topic_bytes", "must be positive")


DEFAULT_LIMITS: Final = FrameLimits()


class Interest(msgspec.Struct, gc=False):
    """A subscription (SUB) or its end (UNSUB), in the words of its owner.

    `expires` is a date in microseconds. `sequence` orders the words of one owner.
    """

    owner: PeerId
    topic: Topic
    sequence: int
    expires: int
    withdrawn: bool = False
    addresses: tuple[bytes, ...] = ()
    signature: bytes = b""
    key: bytes = b""
    cached_bytes: bytes = b""
    cached_operation: OperationMeta | None = None

    @property
    def encoded(self) -> bytes:
        """The bytes of the whole interest."""
        return _INTEREST.encode(self)

    @property
    def operation(self) -> OperationMeta:
        """What the trace calls it."""
        operation = self.cached_operation
        if operation is None:
            name = "unsub" if self.withdrawn else "sub"
            operation = self.cached_operation = OperationMeta(name, self.topic)
        return operation


class Spread(msgspec.Struct, frozen=True, gc=False):
    """An interest on its way; the receiver may pass it on `hops` hops.

    `distance` is how many hops away its owner is for the receiver, by this way; 0 says nothing.
    """

    interest: Interest
    hops: int = 0
    distance: int = 0


class Publication(msgspec.Struct, gc=False):
    """A published message; `time` is a date in nanoseconds, and unique for its author."""

    author: PeerId
    topic: Topic
    time: int
    data: bytes = b""
    signature: bytes = b""
    key: bytes = b""
    cached_bytes: bytes = b""
    cached_id: MessageId = b""
    cached_messages: tuple[MessageMeta, ...] = ()

    @property
    def id(self) -> MessageId:
        """The author and the time: the same words twice are two publications."""
        uid = self.cached_id
        if not uid:
            uid = self.cached_id = self.author + self.time.to_bytes(_TIME_BYTES, "big")
        return uid

    @property
    def encoded(self) -> bytes:
        """The bytes of the whole publication."""
        return _PUBLICATION.encode(self)

    def to_event(self) -> Event:
        """The publication as applications and archives know it.

        The proof lets a third party check the author: signature and key, as the wire has them.
        """
        proof, created = _PUBLICATION_PROOF.encode(self), self.time / 1e9
        return Event(self.topic, self.data, self.author, self.id, created=created, proof=proof)

    @property
    def messages(self) -> tuple[MessageMeta, ...]:
        """How the trace names it inside a frame."""
        messages = self.cached_messages
        if not messages:
            messages = self.cached_messages = (MessageMeta(self.id, self.topic),)
        return messages


class Relay(msgspec.Struct, frozen=True, gc=False):
    """A publication on its way (PUB); the receiver may pass it on `hops` hops.

    `served` holds `MARK_BYTES` bytes for each subscriber that was served on this copy's way.
    """

    publication: Publication
    hops: int = 0
    served: bytes = b""


class Frame(msgspec.Struct, gc=False):
    """Everything that one peer tells another at a time."""

    interests: tuple[Spread, ...] = ()
    publications: tuple[Relay, ...] = ()
    direct: tuple[Publication, ...] = ()
    membership: tuple[Membership, ...] = ()
    cached_meta: RpcMeta | None = None

    @classmethod
    def of_membership(cls, message: Membership) -> "Frame":
        """A message of the membership as it travels."""
        return cls(membership=(message,))

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this frame."""
        meta = self.cached_meta
        if meta is None:
            meta = self.cached_meta = _meta_of(self)
        return meta

    @property
    def urgent(self) -> bool:
        """Control overtakes publications."""
        return not (self.publications or self.direct)


_PUB: Final = (OperationMeta("pub"),)
_DIRECT: Final = (OperationMeta("directmsg"),)


def _interest_schema(limits: FrameLimits) -> Schema[Interest]:
    return Schema(
        Interest,
        {
            "owner": peer_id_field(1),
            "topic": _topic_field(2, limits),
            "sequence": Number(3),
            "expires": Number(4),
            "withdrawn": Number(5, read=bool),
            "addresses": addresses_field(6),
            "signature": Octets(7, limits.signature_bytes, too_long="signature-too-long"),
            "key": Octets(8, limits.key_bytes, too_long="key-too-long"),
        },
        last_counts=True,
        kept_in="cached_bytes",
    )


def _publication_schema(limits: FrameLimits) -> Schema[Publication]:
    return Schema(
        Publication,
        {
            "author": peer_id_field(1),
            "topic": _topic_field(2, limits),
            "time": Number(3),
            "data": Octets(4, limits.frame_bytes),
            "signature": Octets(5, limits.signature_bytes, too_long="signature-too-long"),
            "key": Octets(6, limits.key_bytes, too_long="key-too-long"),
        },
        last_counts=True,
        kept_in="cached_bytes",
    )


def _topic_field(number: int, limits: FrameLimits) -> Text:
    return Text(number, limits.topic_bytes, too_long="topic-too-long", bad="bad-topic")


def _spread_schema(limits: FrameLimits) -> Schema[Spread]:
    interest = Nested(1, _interest_schema(limits), always=True)
    numbers = {"hops": Number(2, _UINT32), "distance": Number(3, _UINT32)}
    return Schema(Spread, {"interest": interest, **numbers}, last_counts=True)


@lru_cache(maxsize=16)
def _frame_schema(limits: FrameLimits) -> Schema[Frame]:
    publication, served = _publication_schema(limits), limits.served * MARK_BYTES
    relay = Schema(
        Relay,
        {
            "publication": Nested(1, publication, always=True),
            "hops": Number(2, _UINT32),
            "served": Octets(3, served, too_long="too-many-served"),
        },
        last_counts=True,
    )
    count, too_many = limits.publications, "too-many-publications"
    return Schema(
        Frame,
        {
            "interests": Nested(
                1,
                _spread_schema(limits),
                max_count=limits.interests,
                too_many="too-many-interests",
            ),
            "publications": Nested(2, relay, max_count=count, too_many=too_many),
            "direct": Nested(
                3, publication, max_count=count, too_many=too_many, counted_with="publications"
            ),
            "membership": Nested(
                4, MEMBERSHIP, max_count=limits.membership, too_many="too-many-membership"
            ),
        },
        max_bytes=limits.frame_bytes,
        too_long="frame-too-long",
        max_others=limits.other_fields,
    )


_INTEREST: Final = _interest_schema(DEFAULT_LIMITS)
_INTEREST_PROOF: Final = _INTEREST.only("signature", "key")
_PUBLICATION: Final = _publication_schema(DEFAULT_LIMITS)
_PUBLICATION_PROOF: Final = _PUBLICATION.only("signature", "key")
_SPREAD: Final = _spread_schema(DEFAULT_LIMITS)
_FRAME: Final = _frame_schema(DEFAULT_LIMITS)
_DATA: Final = _FRAME.only("publications", "direct")
_CONTROL: Final = _FRAME.only("interests", "membership")


def parts_of(frame: Frame) -> Sequence[Frame]:
    """A frame of many words as several of fewer, which mean the same one after the other."""
    kinds = {kind: getattr(frame, kind) for kind in ("interests", "publications", "direct")}
    if sum(map(len, kinds.values())) <= _PART:
        return (frame,)
    parts = [
        Frame(**{kind: words[start : start + _PART]})
        for kind, words in kinds.items()
        for start in range(0, len(words), _PART)
    ]
    parts[-1].membership = frame.membership
    return parts


def encode_frame(frame: Frame) -> bytes:
    """The bytes of a frame, without the length prefix of the stream."""
    return _FRAME.encode(frame)


def decode_frame(data: bytes, limits: FrameLimits = DEFAULT_LIMITS) -> Frame:
    """Read one frame."""
    return _frame_schema(limits).decode(data)


def spread_size(spread: Spread) -> int:
    """Bytes of an interest on its way inside a frame, with its tag and length."""
    return field_size(_SPREAD.size(spread))


def _meta_of(frame: Frame) -> RpcMeta:
    messages: tuple[MessageMeta, ...] = ()
    operations: tuple[OperationMeta, ...] = ()
    data_size = size = 0
    for relay in frame.publications:
        messages += relay.publication.messages
        operations += _PUB
    for publication in frame.direct:
        messages += publication.messages
        operations += _DIRECT
    if messages:
        data_size = _DATA.size(frame)
    if frame.interests or frame.membership:
        operations += tuple([spread.interest.operation for spread in frame.interests])
        operations += tuple([message.operation for message in frame.membership])
        size = _CONTROL.size(frame)
    return RpcMeta(messages, size=size + data_size, data_size=data_size, operations=operations)


_SIGNED: Final[dict[type, tuple[bytes, Layout[Any]]]] = {
    Interest: (INTEREST_PREFIX, _INTEREST_PROOF),
    Publication: (PUBLICATION_PREFIX, _PUBLICATION_PROOF),
}


def signed_bytes(word: Interest | Publication) -> bytes:
    """What a signature covers: the prefix of its kind, and all but the signature and key."""
    prefix, proof = _SIGNED[type(word)]
    encoded = word.encoded
    return prefix + encoded[: len(encoded) - proof.size(word)]


def sign(word: Interest | Publication, identity: Identity) -> None:
    """Sign a new interest or publication of ours."""
    word.signature = word.key = word.cached_bytes = b""
    word.signature, word.key = identity.sign(signed_bytes(word)), identity.public_key
    word.cached_bytes = b""


def is_signed(word: Interest | Publication, verifier: Verifier) -> bool:
    """Whether an interest's owner, or a publication's author, signed it."""
    signer = word.owner if isinstance(word, Interest) else word.author
    return verifier.verify(signer, word.key, signed_bytes(word), word.signature)


def check_kept(event: Event, verifier: Verifier) -> Publication | str:
    """The publication of an event that somebody has kept, or why it is none (`Recovered`)."""
    try:
        publication = from_event(event)
    except DecodeError as error:
        return error.reason
    valid = publication.id == event.id and is_signed(publication, verifier)
    return publication if valid else reasons.INVALID_SIGNATURE


def from_event(event: Event) -> Publication:
    """Turn a kept event into the publication that it was; `DecodeError` when it was none."""
    publication = _PUBLICATION.decode(event.proof)
    publication.author, publication.topic, publication.data = event.author, event.topic, event.data
    publication.time = int.from_bytes(event.id[-_TIME_BYTES:], "big")
    return publication
