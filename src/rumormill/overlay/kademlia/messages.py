"""The messages of libp2p's Kademlia DHT, `/ipfs/kad/1.0.0`, as values and as bytes.

The rule: no object is built that a limit has not allowed; whatever is wrong with the bytes, the
answer is a `DecodeError`. Unknown fields are skipped and bounded. Of a peer's addresses as many
are kept as the limit says, because who sends them did not choose them; `left_out` counts the rest.

Questions and answers share one type. `type` is always written: readers that know no defaults (the
schema is proto2) must not have to guess it.
"""

from enum import IntEnum
from typing import Final

import msgspec

from rumormill.core.config import Config, require
from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.core.trace import OperationMeta, RpcMeta
from rumormill.overlay.kademlia import rfc3339
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.protobuf import (
    LENGTH_DELIMITED,
    bytes_field,
    field_size,
    next_field,
    read_varint,
    string_field,
    varint_field,
)

KAD_PROTOCOL: Final = "/ipfs/kad/1.0.0"

MAX_PEER_ID_BYTES: Final = 64
"""Our choice: an Ed25519 id has 38 bytes, a hash of 32 has 34."""

_MAX_OTHER_FIELDS: Final = 16
"""Unknown fields in one part of a message. Our choice: for extensions."""

_TYPE, _CONNECTION = 0x08, 0x18
_PROOF_NUMBER: Final = 16
_PROOF: Final = _PROOF_NUMBER << 3 | LENGTH_DELIMITED
_FIELD_1, _FIELD_2, _FIELD_3, _FIELD_5, _FIELD_8, _FIELD_9 = 0x0A, 0x12, 0x1A, 0x2A, 0x42, 0x4A


class KadType(IntEnum):
    """What a message asks or answers."""

    PUT_VALUE = 0
    GET_VALUE = 1
    ADD_PROVIDER = 2
    GET_PROVIDERS = 3
    FIND_NODE = 4
    PING = 5


_TYPES: Final = tuple(KadType)
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
        size = self.cached_size
        if not size:
            size = field_size(len(self.peer))
            for address in self.addresses:
                size += field_size(len(address))
            size = self.cached_size = field_size(size + 2 if self.connection else size)
        return size


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
        try:
            return rfc3339.read(self.time_received)
        except DecodeError:
            return None


class KadMessage(msgspec.Struct, gc=False):
    """A question or its answer. Immutable once sent."""

    type: KadType
    key: bytes = b""
    record: Record | None = None
    closer: tuple[KadPeer, ...] = ()
    providers: tuple[KadPeer, ...] = ()
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
    size = 2
    if message.key:
        size += field_size(len(message.key))
    if message.record is not None:
        size += field_size(_record_size(message.record))
    for peer in message.closer:
        size += peer.cached_size or peer.size
    for peer in message.providers:
        size += peer.cached_size or peer.size
    return size


def _record_size(record: Record) -> int:
    size = field_size(len(record.key)) + field_size(len(record.value))
    if record.time_received:
        size += field_size(len(record.time_received.encode()))
    if record.proof:
        size += 1 + field_size(len(record.proof))
    return size


def encode_kad(message: KadMessage) -> bytes:
    """Write a message, without the length that frames it on a stream."""
    parts = [varint_field(1, message.type)]
    if message.key:
        parts.append(bytes_field(2, message.key))
    if message.record is not None:
        parts.append(bytes_field(3, encode_record(message.record)))
    parts.extend(bytes_field(8, _encode_peer(peer)) for peer in message.closer)
    parts.extend(bytes_field(9, _encode_peer(peer)) for peer in message.providers)
    return b"".join(parts)


def encode_record(record: Record) -> bytes:
    """Write a record; key and value are always present, however short."""
    encoded = bytes_field(1, record.key) + bytes_field(2, record.value)
    if record.time_received:
        encoded += string_field(5, record.time_received)
    if record.proof:
        encoded += bytes_field(_PROOF_NUMBER, record.proof)
    return encoded


def _encode_peer(peer: KadPeer) -> bytes:
    parts = [bytes_field(1, peer.peer)]
    parts.extend(bytes_field(2, address) for address in peer.addresses)
    if peer.connection:
        parts.append(varint_field(3, peer.connection))
    return b"".join(parts)


def decode_kad(data: bytes, limits: KadLimits = DEFAULT_KAD_LIMITS) -> KadMessage:
    """Read a message, without its length prefix."""
    if len(data) > limits.message_bytes:
        raise DecodeError("oversized", f"{len(data)} bytes, allowed are {limits.message_bytes}")
    kind = KadType.PUT_VALUE
    key = b""
    record: Record | None = None
    closer: list[KadPeer] = []
    providers: list[KadPeer] = []
    others = left_out = position = 0
    end = len(data)
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag == _FIELD_8:
            left_out += _read_peer(data, start, position, closer, limits.closer_peers, limits)
            continue
        if tag == _FIELD_9:
            left_out += _read_peer(data, start, position, providers, limits.providers, limits)
            continue
        others += 1
        if others > _MAX_OTHER_FIELDS:
            raise DecodeError("too-many-fields", f"more than {_MAX_OTHER_FIELDS} in one message")
        if tag == _TYPE:
            kind = _kind(read_varint(data, start, position)[0])
        elif tag == _FIELD_2:
            key = _key(data, start, position, limits)
        elif tag == _FIELD_3:
            record = _read_record(data, start, position, limits)
    return KadMessage(kind, key, record, tuple(closer), tuple(providers), left_out)


def _kind(value: int) -> KadType:
    if value >= len(_TYPES):
        raise DecodeError("unknown-type", f"no message has the type {value}")
    return _TYPES[value]


def _key(data: bytes, start: int, stop: int, limits: KadLimits) -> bytes:
    if stop - start > limits.key_bytes:
        raise DecodeError("key-too-long", f"a key of more than {limits.key_bytes} bytes")
    return data[start:stop]


def _read_record(data: bytes, position: int, end: int, limits: KadLimits) -> Record:
    key = value = proof = b""
    received = ""
    count = 0
    while position < end:
        tag, start, position = next_field(data, position, end)
        count += 1
        if count > _MAX_OTHER_FIELDS:
            raise DecodeError("too-many-fields", f"more than {_MAX_OTHER_FIELDS} in a record")
        if tag == _FIELD_1:
            key = _key(data, start, position, limits)
        elif tag == _FIELD_2:
            if position - start > limits.value_bytes:
                raise DecodeError("value-too-long", f"more than {limits.value_bytes} bytes")
            value = data[start:position]
        elif tag == _FIELD_5:
            received = _date_text(data, start, position)
        elif tag == _PROOF:
            if position - start > limits.proof_bytes:
                raise DecodeError("proof-too-long", f"more than {limits.proof_bytes} bytes")
            proof = data[start:position]
    return Record(key, value, received, proof)


def _date_text(data: bytes, start: int, stop: int) -> str:
    if stop - start > rfc3339.MAX_LENGTH:
        raise DecodeError("bad-date", f"a date of more than {rfc3339.MAX_LENGTH} bytes")
    try:
        return data[start:stop].decode()
    except UnicodeDecodeError:
        raise DecodeError("bad-date", "a date that is not UTF-8") from None


def _read_peer(
    data: bytes, position: int, end: int, peers: list[KadPeer], limit: int, limits: KadLimits
) -> int:
    """Read a peer onto the end of `peers`; return how many addresses were left out."""
    if len(peers) == limit:
        raise DecodeError("too-many-peers", f"more than {limit} in one message")
    peer = b""
    addresses: list[bytes] = []
    connection = left_out = others = 0
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag == _FIELD_2:
            if len(addresses) < limits.addresses and 0 < position - start <= MAX_ADDRESS_BYTES:
                addresses.append(data[start:position])
            else:
                left_out += 1
            continue
        others += 1
        if others > _MAX_OTHER_FIELDS:
            raise DecodeError("too-many-fields", f"more than {_MAX_OTHER_FIELDS} in a peer")
        if tag == _FIELD_1:
            if position - start > MAX_PEER_ID_BYTES:
                raise DecodeError("bad-peer", f"an id of more than {MAX_PEER_ID_BYTES} bytes")
            peer = data[start:position]
        elif tag == _CONNECTION:
            value = read_varint(data, start, position)[0]
            connection = value if value <= CANNOT_CONNECT else NOT_CONNECTED
    if not peer:
        raise DecodeError("bad-peer", "a peer without an id")
    peers.append(KadPeer(peer, tuple(addresses), connection))
    return left_out
