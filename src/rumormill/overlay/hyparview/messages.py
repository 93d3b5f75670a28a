"""The messages of HyParView, as values and as bytes: a part of the frames of a protocol above.

One shape serves all kinds, because each of them is a few of the same fields. A kind that nobody
knows is read like any other; whoever handles it counts it as refused. `radius.proto` says what the
fields are for.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.core.trace import OperationMeta
from rumormill.wire.fields import Nested, Number, Octets
from rumormill.wire.schema import Schema

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

_UINT32: Final = 2**32 - 1
_FLOAT_BYTES: Final = 4


class Kind(IntEnum):
    """What a message is for."""

    JOIN = 1
    FORWARD_JOIN = 2
    NEIGHBOR = 3
    NEIGHBOR_REPLY = 4
    DISCONNECT = 5
    SHUFFLE = 6
    SHUFFLE_REPLY = 7
    BEAT = 8


_OPERATIONS: Final[Mapping[int, OperationMeta]] = {
    kind: OperationMeta(kind.name.lower().replace("_", " ")) for kind in Kind
}
_UNKNOWN_OPERATION: Final = OperationMeta("unknown")


class PeerInfo(msgspec.Struct, frozen=True, gc=False):
    """A peer that one peer names to another, and where it can be reached."""

    peer: PeerId
    addresses: tuple[bytes, ...] = ()


class Membership(msgspec.Struct, frozen=True, gc=False):
    """One message of HyParView; `radius.proto` says which kinds use which fields."""

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


def peer_id_field(number: int) -> Octets:
    """A peer id in a message."""
    return Octets(number, MAX_PEER_BYTES, too_long="peer-id-too-long")


def addresses_field(number: int) -> Octets:
    """The addresses of one peer in a message."""
    return Octets(
        number,
        MAX_ADDRESS_BYTES,
        max_count=MAX_ADDRESSES,
        too_many="too-many-addresses",
        too_long="address-too-long",
    )


def _read_minima(data: bytes) -> tuple[float, ...]:
    count, rest = divmod(len(data), _FLOAT_BYTES)
    if rest:
        raise DecodeError("bad-minima", f"{len(data)} bytes are not a number of floats")
    return struct.unpack(f"<{count}f", data)


def _write_minima(minima: tuple[float, ...]) -> bytes:
    return struct.pack(f"<{len(minima)}f", *minima)


_PEER: Final = Schema(
    PeerInfo, {"peer": peer_id_field(1), "addresses": addresses_field(2)}, last_counts=True
)
MEMBERSHIP: Final = Schema(
    Membership,
    {
        "kind": Number(1, _UINT32),
        "hops": Number(2, _UINT32),
        "yes": Number(3, read=bool),
        "number": Number(4),
        "peers": Nested(5, _PEER, max_count=MAX_PEERS, too_many="too-many-peers"),
        "epoch": Number(6),
        "minima": Octets(
            7,
            MAX_MINIMA * _FLOAT_BYTES,
            too_long="bad-minima",
            read=_read_minima,
            write=_write_minima,
        ),
    },
    last_counts=True,
)
"""A message as bytes, without the tag and length that frame it."""
