"""The messages of libp2p's Kademlia DHT, `/ipfs/kad/1.0.0`, as values and as bytes.

The rule: no object is built that a limit has not allowed; whatever is wrong with the bytes, the
answer is a `DecodeError`. Unknown fields are skipped and bounded. Of a peer's addresses as many
are kept as the limit says, because who sends them did not choose them; `left_out` counts the rest.

Questions and answers share one type. `type` is always written: readers that know no defaults (the
schema is proto2) must not have to guess it.
"""

from enum import IntEnum
from functools import lru_cache
from typing import Final

import msgspec

from rumormill.core.config import Config, require
from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.core.trace import OperationMeta, RpcMeta
from rumormill.overlay.kademlia import rfc3339
from rumormill.wire.fields import LeftOut, Nested, Number, Octets, Text, enumeration
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.protobuf import field_size
from rumormill.wire.schema import Schema

KAD_PROTOCOL: Final = "/ipfs/kad/1.0.0"

MAX_PEER_ID_BYTES: Final = 64
"""Our choice: an Ed25519 id has 38 bytes, a hash of 32 has 34."""


class KadType(IntEnum):
    """What a message asks or answers."""

    PUT_VALUE = 0
    GET_VALUE = 1
    ADD_PROVIDER = 2
    GET_PROVIDERS = 3
    FIND_NODE = 4
    PING = 5


_OPERATIONS: Final = tuple((OperationMeta(each.name),) for each in KadType)

NOT_CONNECTED, CONNECTED, CAN_CONNECT, CANNOT_CONNECT = range(4)


class KadLimits(Config, frozen=True, kw_only=True):
    """How much one message may hold."""

    message_bytes: int = 2 << 20
    """Our choice: the longest value and its peers, with room. go and js read up to 4 MiB."""
    key_bytes: int = 512
    """Our choice: keys are kept in tables; ours have at most 73 bytes, `/ipns/` keys 43."""
    value_bytes: int = 1 << 20
    """Our choice: what one pub/sub message may hold, for events are stored as they are sent."""
    closer_peers: int = 64
    """Our choice: peers answer with k = 20; some add the peer itself."""
    providers: int = 1024
    """Our choice: go and js answer with all that they know of, and popular keys have hundreds."""
    proof_bytes: int = 4400
    """Our choice: two signatures of the largest RSA keys that libp2p knows, and the keys."""
    addresses: int = 16
    """Of one peer; more are left out. Our choice: several times what a node listens on."""

    def validate(self) -> None:
        """Refuse limits under which nothing could be received."""
        for field in msgspec.structs.fields(self):
            require(getattr(self, field.name) > 0, field.name, "must be positive")
        require(
            self.value_bytes < self.message_bytes, "value_bytes", "must be less than message_bytes"
        )


DEFAULT_KAD_LIMITS: Final = KadLimits()


class KadPeer(msgspec.Struct, gc=False):
    """A peer that the sender knows, and where it may be reached (binary multiaddrs).

    Immutable; what it takes in a message is kept, because one contact is named in many answers.
    """

    peer: PeerId
    addresses: tuple[bytes, ...] = ()
    connection: int = NOT_CONNECTED
    cached_size: int = 0

    @property
    def size(self) -> int:
        """Bytes of the encoded peer, with the tag and length that frame it in a message."""
        if not self.cached_size:
            self.cached_size = field_size(_PEER.size(self))
        return self.cached_size


class Record(msgspec.Struct, frozen=True, gc=False):
    """A value under its key; `time_received` is RFC 3339 as the holder wrote it, or empty.

    `proof` is what vouches for the value where its hash alone does not: a field of ours that others
    leave out when they pass a record on.
    """

    key: bytes
    value: bytes
    time_received: str = ""
    proof: bytes = b""

    @property
    def received(self) -> float | None:
        """The holder's date in seconds since 1970, or None where it wrote none that can be read."""
        return rfc3339.read(self.time_received)


class KadMessage(msgspec.Struct, gc=False):
    """A question or its answer. Immutable once sent.

    A `brief` question, a field of ours that others skip, spares its asker what it does not need:
    the value that it wants stored, closer peers beside a value, anybody at all where it only sees
    whether a peer is there. The answer is brief then, too.
    """

    type: KadType
    key: bytes = b""
    record: Record | None = None
    closer: tuple[KadPeer, ...] = ()
    providers: tuple[KadPeer, ...] = ()
    brief: bool = False
    left_out: int = 0
    cached_meta: RpcMeta | None = None

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message."""
        meta = self.cached_meta
        if meta is None:
            meta = RpcMeta(size=_size(self), operations=_OPERATIONS[self.type])
            self.cached_meta = meta
        return meta

    @property
    def urgent(self) -> bool:
        """Questions travel on streams of their own; nothing is overtaken."""
        return False


def _size(message: KadMessage) -> int:
    size = _WITHOUT_PEERS.size(message)
    for peer in (*message.closer, *message.providers):
        size += peer.cached_size or peer.size
    return size


def _address(data: bytes) -> bytes:
    if not data:
        raise DecodeError("bad-address", "an address of no bytes")
    return data


def _peer_schema(limits: KadLimits) -> Schema[KadPeer]:
    return Schema(
        KadPeer,
        {
            "peer": Octets(1, MAX_PEER_ID_BYTES, too_long="bad-peer", missing="bad-peer"),
            "addresses": Octets(
                2,
                MAX_ADDRESS_BYTES,
                read=_address,
                max_count=limits.addresses,
                too_many="",
                leave_out=True,
            ),
            "connection": Number(3, read=lambda number: number if number <= CANNOT_CONNECT else 0),
        },
        last_counts=True,
    )


def _record_schema(limits: KadLimits) -> Schema[Record]:
    return Schema(
        Record,
        {
            "key": Octets(1, limits.key_bytes, too_long="key-too-long", always=True),
            "value": Octets(2, limits.value_bytes, too_long="value-too-long", always=True),
            "time_received": Text(5, rfc3339.MAX_LENGTH, too_long="bad-date", bad="bad-date"),
            "proof": Octets(16, limits.proof_bytes, too_long="proof-too-long"),
        },
        last_counts=True,
    )


@lru_cache(maxsize=16)
def _schema(limits: KadLimits) -> Schema[KadMessage]:
    peer, many = _peer_schema(limits), "too-many-peers"
    return Schema(
        KadMessage,
        {
            "type": Number(1, read=enumeration(KadType, "unknown-type"), always=True),
            "key": Octets(2, limits.key_bytes, too_long="key-too-long"),
            "record": Nested(3, _record_schema(limits), optional=True),
            "closer": Nested(8, peer, max_count=limits.closer_peers, too_many=many),
            "providers": Nested(9, peer, max_count=limits.providers, too_many=many),
            "brief": Number(16, read=bool),
        },
        max_bytes=limits.message_bytes,
        last_counts=True,
    )


_PEER: Final = _peer_schema(DEFAULT_KAD_LIMITS)
_MESSAGE: Final = _schema(DEFAULT_KAD_LIMITS)
_WITHOUT_PEERS: Final = _MESSAGE.only("type", "key", "record", "brief")


def encode_kad(message: KadMessage) -> bytes:
    """Write a message, without the length that frames it on a stream."""
    return _MESSAGE.encode(message)


def decode_kad(data: bytes, limits: KadLimits = DEFAULT_KAD_LIMITS) -> KadMessage:
    """Read a message, without its length prefix."""
    left_out: LeftOut = {}
    message = _schema(limits).decode(data, left_out)
    message.left_out = sum(left_out.values())
    return message
