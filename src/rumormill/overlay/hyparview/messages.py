"""The messages of HyParView, as values and as bytes: a part of the frames of a protocol above.

One shape serves all kinds, because each of them is a few of the same fields. The rule of the
decoder: counts and lengths are checked before anything is kept, and whatever is wrong with the
bytes, the answer is a `DecodeError`. A kind that nobody knows is read like any other; whoever
handles it counts it as refused. The schema is `proto/radius.proto`.
"""

import struct
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.core.trace import OperationMeta
from rumormill.wire.protobuf import MAX_FIELDS, bytes_field, next_field, read_varint, varint_field

JOIN: Final = 1
FORWARD_JOIN: Final = 2
NEIGHBOR: Final = 3
NEIGHBOR_REPLY: Final = 4
DISCONNECT: Final = 5
SHUFFLE: Final = 6
SHUFFLE_REPLY: Final = 7
BEAT: Final = 8

_OPERATIONS: Final = {
    JOIN: OperationMeta("join"),
    FORWARD_JOIN: OperationMeta("forward join"),
    NEIGHBOR: OperationMeta("neighbor"),
    NEIGHBOR_REPLY: OperationMeta("neighbor reply"),
    DISCONNECT: OperationMeta("disconnect"),
    SHUFFLE: OperationMeta("shuffle"),
    SHUFFLE_REPLY: OperationMeta("shuffle reply"),
    BEAT: OperationMeta("beat"),
}
_UNKNOWN_OPERATION: Final = OperationMeta("unknown")

MAX_PEERS: Final = 32
"""Peers in one message. Our choice: a shuffle of the paper's parameters has eight."""
MAX_ADDRESSES: Final = 8
"""Addresses of one peer. Our choice: a host has a few networks, each with a port or two."""
MAX_ADDRESS_BYTES: Final = 256
"""Bytes of an address. Our choice: a relayed multiaddr with two peer ids has under 150."""
MAX_PEER_BYTES: Final = 64
"""Bytes of a peer id. libp2p's longest in use is a SHA-256 multihash with its prefix."""
MAX_MINIMA: Final = 128
"""Draws of the size estimate in one message."""

# Tags as they appear on the wire.
_KIND, _HOPS, _YES, _NUMBER, _PEERS, _EPOCH, _MINIMA = 0x08, 0x10, 0x18, 0x20, 0x2A, 0x30, 0x3A
_PEER, _ADDRESS = 0x0A, 0x12
_UINT32 = 0xFFFF_FFFF


class PeerInfo(msgspec.Struct, frozen=True, gc=False):
    """A peer that one peer names to another, and where it can be reached."""

    peer: PeerId
    addresses: tuple[bytes, ...] = ()


class Membership(msgspec.Struct, frozen=True, gc=False):
    """One message of HyParView; `proto/radius.proto` says which kinds use which fields."""

    kind: int
    hops: int = 0
    yes: bool = False
    number: int = 0
    peers: tuple[PeerInfo, ...] = ()
    epoch: int = 0
    minima: tuple[float, ...] = ()

    @property
    def operation(self) -> OperationMeta:
        """What the trace calls it."""
        return _OPERATIONS.get(self.kind, _UNKNOWN_OPERATION)


def encode_membership(message: Membership) -> bytes:
    """The bytes of a message, without the tag and length that frame it."""
    parts: list[bytes] = []
    for number, value in ((1, message.kind), (2, message.hops), (3, message.yes)):
        if value:
            parts.append(varint_field(number, value))
    if message.number:
        parts.append(varint_field(4, message.number))
    parts += [bytes_field(5, _encode_peer(info)) for info in message.peers]
    if message.epoch:
        parts.append(varint_field(6, message.epoch))
    if message.minima:
        parts.append(bytes_field(7, struct.pack(f"<{len(message.minima)}f", *message.minima)))
    return b"".join(parts)


def _encode_peer(info: PeerInfo) -> bytes:
    parts = [bytes_field(1, info.peer)] if info.peer else []
    parts += [bytes_field(2, address) for address in info.addresses]
    return b"".join(parts)


def decode_membership(data: bytes, position: int, end: int) -> Membership:
    """Read a message that stands between two positions."""
    kind = hops = number = epoch = others = 0
    yes = False
    peers: list[PeerInfo] = []
    minima: tuple[float, ...] = ()
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag == _PEERS:
            if len(peers) == MAX_PEERS:
                raise DecodeError("too-many-peers", f"more than {MAX_PEERS} in one message")
            peers.append(_read_peer(data, start, position))
            continue
        others += 1
        if others > MAX_FIELDS:
            raise DecodeError("too-many-fields", f"more than {MAX_FIELDS} in one message")
        if tag == _KIND:
            kind = read_varint(data, start, position)[0] & _UINT32
        elif tag == _HOPS:
            hops = read_varint(data, start, position)[0] & _UINT32
        elif tag == _YES:
            yes = read_varint(data, start, position)[0] != 0
        elif tag == _NUMBER:
            number = read_varint(data, start, position)[0]
        elif tag == _EPOCH:
            epoch = read_varint(data, start, position)[0]
        elif tag == _MINIMA:
            minima = _read_minima(data, start, position)
    return Membership(kind, hops, yes, number, tuple(peers), epoch, minima)


def _read_minima(data: bytes, start: int, stop: int) -> tuple[float, ...]:
    count, rest = divmod(stop - start, 4)
    if rest or count > MAX_MINIMA:
        detail = f"{stop - start} bytes are not up to {MAX_MINIMA} numbers"
        raise DecodeError("bad-minima", detail)
    return struct.unpack_from(f"<{count}f", data, start)


def _read_peer(data: bytes, position: int, end: int) -> PeerInfo:
    peer = b""
    addresses: list[bytes] = []
    others = 0
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag == _ADDRESS:
            add_address(addresses, data, start, position)
            continue
        others += 1
        if others > MAX_FIELDS:
            raise DecodeError("too-many-fields", f"more than {MAX_FIELDS} in one peer")
        if tag == _PEER:
            peer = read_peer_id(data, start, position)
    return PeerInfo(peer, tuple(addresses))


def read_peer_id(data: bytes, start: int, stop: int) -> PeerId:
    """Slice a peer id, unless it is too long to be one."""
    if stop - start > MAX_PEER_BYTES:
        raise DecodeError("peer-id-too-long", f"{stop - start} bytes")
    return data[start:stop]


def add_address(addresses: list[bytes], data: bytes, start: int, stop: int) -> None:
    """Slice one more address of a peer, within the limits."""
    if len(addresses) == MAX_ADDRESSES:
        raise DecodeError("too-many-addresses", f"more than {MAX_ADDRESSES} of one peer")
    if stop - start > MAX_ADDRESS_BYTES:
        raise DecodeError("address-too-long", f"{stop - start} bytes")
    addresses.append(data[start:stop])
