"""The frames of radius gossip, as values (`protocols.radius.codec` turns them into bytes and back).

Interests (SUB, UNSUB) and publications are made and signed once by their owner or author and travel
unchanged; how far a copy may still travel stands beside them, outside the signature. Values are
treated as immutable. What is computed from one once (its bytes, its id, its trace metadata) is kept
in it, because one value is passed on to many peers.
"""

from typing import Final

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.trace import MessageMeta, OperationMeta, RpcMeta
from rumormill.overlay.hyparview.messages import Membership, encode_membership
from rumormill.wire.protobuf import bytes_field, field_size, string_field, varint_field, varint_size

MARK_BYTES: Final = 8
"""Bytes that stand for one served subscriber in a relayed publication."""


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
    def unsigned(self) -> bytes:
        """The bytes that the signature covers, without their prefix."""
        encoded = self.encoded
        return encoded[: len(encoded) - len(_proof(7, self.signature, self.key))]

    def _unsigned(self) -> bytes:
        parts: list[bytes] = []
        if self.owner:
            parts.append(bytes_field(1, self.owner))
        if self.topic:
            parts.append(string_field(2, self.topic))
        if self.sequence:
            parts.append(varint_field(3, self.sequence))
        if self.expires:
            parts.append(varint_field(4, self.expires))
        if self.withdrawn:
            parts.append(varint_field(5, 1))
        parts += [bytes_field(6, address) for address in self.addresses]
        return b"".join(parts)

    @property
    def encoded(self) -> bytes:
        """The bytes of the whole interest."""
        encoded = self.cached_bytes
        if not encoded:
            encoded = self.cached_bytes = self._unsigned() + _proof(7, self.signature, self.key)
        return encoded

    @property
    def operation(self) -> OperationMeta:
        """What the trace calls it."""
        operation = self.cached_operation
        if operation is None:
            name = "unsub" if self.withdrawn else "sub"
            operation = self.cached_operation = OperationMeta(name, self.topic)
        return operation


class Spread(msgspec.Struct, frozen=True, gc=False):
    """An interest on its way; the receiver may pass it on `hops` hops."""

    interest: Interest
    hops: int = 0


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
            uid = self.cached_id = self.author + self.time.to_bytes(8, "big")
        return uid

    @property
    def unsigned(self) -> bytes:
        """The bytes that the signature covers, without their prefix."""
        encoded = self.encoded
        return encoded[: len(encoded) - len(_proof(5, self.signature, self.key))]

    def _unsigned(self) -> bytes:
        parts: list[bytes] = []
        if self.author:
            parts.append(bytes_field(1, self.author))
        if self.topic:
            parts.append(string_field(2, self.topic))
        if self.time:
            parts.append(varint_field(3, self.time))
        if self.data:
            parts.append(bytes_field(4, self.data))
        return b"".join(parts)

    @property
    def encoded(self) -> bytes:
        """The bytes of the whole publication."""
        encoded = self.cached_bytes
        if not encoded:
            encoded = self.cached_bytes = self._unsigned() + _proof(5, self.signature, self.key)
        return encoded

    @property
    def proof(self) -> bytes:
        """What lets a third party check the author: signature and key, as the wire has them."""
        return _proof(5, self.signature, self.key)

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


def _proof(number: int, signature: bytes, key: bytes) -> bytes:
    proof = bytes_field(number, signature) if signature else b""
    return proof + bytes_field(number + 1, key) if key else proof


def spread_size(spread: Spread) -> int:
    """Bytes of an interest on its way inside a frame, with its tag and length."""
    interest, hops = spread.interest, spread.hops
    length = len(interest.cached_bytes or interest.encoded)
    if hops < 128:
        # Nearly every interest: two lengths of one byte each, or of two.
        if length <= 123:
            return length + 6 if hops else length + 4
        if 128 <= length < 16_000:
            return length + 8 if hops else length + 6
    return field_size(field_size(length) + _hops_size(hops))


def relay_size(relay: Relay) -> int:
    """Bytes of a publication on its way inside a frame, with its tag and length."""
    inner = field_size(len(relay.publication.encoded)) + _hops_size(relay.hops)
    if relay.served:
        inner += field_size(len(relay.served))
    return field_size(inner)


def _hops_size(hops: int) -> int:
    return 1 + varint_size(hops) if hops else 0


def _meta_of(frame: Frame) -> RpcMeta:
    messages: tuple[MessageMeta, ...] = ()
    operations: tuple[OperationMeta, ...] = ()
    data_size = size = 0
    for relay in frame.publications:
        data_size += relay_size(relay)
        messages += relay.publication.messages
        operations += _PUB
    for publication in frame.direct:
        data_size += field_size(len(publication.encoded))
        messages += publication.messages
        operations += _DIRECT
    if frame.interests:
        operations += tuple([spread.interest.operation for spread in frame.interests])
        for spread in frame.interests:
            size += spread_size(spread)
    for message in frame.membership:
        size += field_size(len(encode_membership(message)))
        operations += (message.operation,)
    return RpcMeta(messages, size=size + data_size, data_size=data_size, operations=operations)
