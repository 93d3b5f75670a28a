"""Circuit relay v2: what peers and relays say to each other, and the rules of a relay.

A peer that nobody can dial asks a relay for a reservation (hop, RESERVE), and keeps its connection.
Whoever wants to reach it asks the relay for a circuit (hop, CONNECT); the relay tells the peer
(stop, CONNECT), and when it agrees, the two streams become one, in which both make a connection as
over TCP: the relay reads nothing of it (libp2p's specification `relay/circuit-v2.md`).

The rules of a relay (`Reservations`): places are few, one for a peer and some for a group of
addresses; strangers' circuits are bounded in bytes and in time; and nobody reserves, or is reached,
over a connection that is relayed itself. Every refusal has a reason.
"""

from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import msgspec

from rumormill.core.errors import PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p.envelope import MAX_ENVELOPE_BYTES, seal, unseal
from rumormill.wire import keys
from rumormill.wire.fields import Nested, Number, Octets, enumeration
from rumormill.wire.keys import MAX_PEER_ID_BYTES, PrivateKey
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.schema import Schema

HOP: Final = "/libp2p/circuit/relay/0.2.0/hop"
STOP: Final = "/libp2p/circuit/relay/0.2.0/stop"
MAX_MESSAGE_BYTES: Final = 4096
"""go's limit of a message of either protocol."""
VOUCHER_DOMAIN: Final = "libp2p-relay-rsvp"
VOUCHER_TYPE: Final = b"\x03\x02"
_MAX_ADDRESSES: Final = 64
_UINT32: Final = 2**32 - 1
_RENEWED_AT_ONCE: Final = 8
"""Our choice: reservations that one peer asks for in a time that should see one."""


class Status(IntEnum):
    """How a request ended."""

    UNUSED = 0
    OK = 100
    RESERVATION_REFUSED = 200
    RESOURCE_LIMIT_EXCEEDED = 201
    PERMISSION_DENIED = 202
    CONNECTION_FAILED = 203
    NO_RESERVATION = 204
    MALFORMED_MESSAGE = 400
    UNEXPECTED_MESSAGE = 401


class Hop(IntEnum):
    """What a message between a peer and its relay is."""

    RESERVE = 0
    CONNECT = 1
    STATUS = 2


class Stop(IntEnum):
    """What a message between a relay and the peer that is to be reached is."""

    CONNECT = 0
    STATUS = 1


class Named(msgspec.Struct, frozen=True):
    """A peer that is meant."""

    id: bytes
    addresses: tuple[bytes, ...] = ()


class Reservation(msgspec.Struct, frozen=True):
    """A place at a relay: until when (seconds since 1970), the relay's addresses, and its word."""

    expires: int
    addresses: tuple[bytes, ...] = ()
    voucher: bytes | None = None


class Limit(msgspec.Struct, frozen=True):
    """What a circuit may carry: seconds, and bytes in each direction; 0 for as much as you like."""

    seconds: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.seconds or self.bytes)


class HopMessage(msgspec.Struct, frozen=True):
    """A message of the hop protocol."""

    type: Hop
    peer: Named | None = None
    reservation: Reservation | None = None
    limit: Limit | None = None
    status: Status | None = None

    def encode(self) -> bytes:
        """Write it, without a length in front."""
        return _HOP.encode(self)

    @staticmethod
    def decode(data: bytes) -> "HopMessage":
        """Read it."""
        return _HOP.decode(data)


class StopMessage(msgspec.Struct, frozen=True):
    """A message of the stop protocol."""

    type: Stop
    peer: Named | None = None
    limit: Limit | None = None
    status: Status | None = None

    def encode(self) -> bytes:
        """Write it, without a length in front."""
        return _STOP.encode(self)

    @staticmethod
    def decode(data: bytes) -> "StopMessage":
        """Read it."""
        return _STOP.decode(data)


class Voucher(msgspec.Struct, frozen=True):
    """A relay's signed word that a peer has a place there."""

    relay: bytes
    peer: bytes
    expires: int


_ID: Final = MAX_PEER_ID_BYTES
_NAMED: Final = Schema(
    Named,
    {
        "id": Octets(1, _ID, missing="bad-peer-id", read=keys.PeerId.from_bytes),
        "addresses": Octets(2, MAX_ADDRESS_BYTES, max_count=_MAX_ADDRESSES),
    },
)
_RESERVATION: Final = Schema(
    Reservation,
    {
        "expires": Number(1),
        "addresses": Octets(2, MAX_ADDRESS_BYTES, max_count=_MAX_ADDRESSES),
        "voucher": Octets(3, MAX_ENVELOPE_BYTES, optional=True),
    },
)
_LIMIT: Final = Schema(Limit, {"seconds": Number(1, most=_UINT32), "bytes": Number(2)})
_STATUS: Final = enumeration(Status, "bad-status")
_HOP: Final = Schema(
    HopMessage,
    {
        "type": Number(1, read=enumeration(Hop, "bad-type"), always=True),
        "peer": Nested(2, _NAMED, optional=True),
        "reservation": Nested(3, _RESERVATION, optional=True),
        "limit": Nested(4, _LIMIT, optional=True),
        "status": Number(5, read=_STATUS, optional=True),
    },
    max_bytes=MAX_MESSAGE_BYTES,
)
_STOP: Final = Schema(
    StopMessage,
    {
        "type": Number(1, read=enumeration(Stop, "bad-type"), always=True),
        "peer": Nested(2, _NAMED, optional=True),
        "limit": Nested(3, _LIMIT, optional=True),
        "status": Number(4, read=_STATUS, optional=True),
    },
    max_bytes=MAX_MESSAGE_BYTES,
)
_VOUCHER: Final = Schema(
    Voucher,
    {
        "relay": Octets(1, _ID, missing="bad-peer-id", read=keys.PeerId.from_bytes),
        "peer": Octets(2, _ID, missing="bad-peer-id", read=keys.PeerId.from_bytes),
        "expires": Number(3),
    },
)


def seal_voucher(key: PrivateKey, peer: PeerId, expires: int) -> bytes:
    """Sign that a peer has a place here."""
    voucher = Voucher(bytes(key.peer_id), peer, expires)
    return seal(key, VOUCHER_DOMAIN, VOUCHER_TYPE, _VOUCHER.encode(voucher))


def unseal_voucher(data: bytes) -> Voucher:
    """Open a voucher; PeerError unless the relay that it names has signed it."""
    envelope = unseal(data, VOUCHER_DOMAIN, VOUCHER_TYPE)
    voucher = _VOUCHER.decode(envelope.payload)
    if voucher.relay != bytes(envelope.signer.peer_id()):
        raise PeerError("wrong-signer", "a voucher signed by another peer than it names")
    return voucher


class Terms(msgspec.Struct, frozen=True):
    """What a relay offers."""

    places: int
    places_per_group: int
    seconds: float
    """For which a reservation holds."""
    circuits_per_peer: int
    limit: Limit
    """Of the circuits of strangers."""


class Refusal(msgspec.Struct, frozen=True):
    """Why something is not done: what the peer is told, and what is counted."""

    status: Status
    reason: str


class _Place(msgspec.Struct):
    group: str
    expires: float
    since: float
    renewals: int = 0


class Reservations:
    """Who has a place at this relay, and who has how many circuits."""

    def __init__(self, terms: Terms, is_friend: Callable[[PeerId], bool]) -> None:
        self._terms = terms
        self._is_friend = is_friend
        self._places: dict[PeerId, _Place] = {}
        self._circuits: dict[PeerId, int] = {}
        """Those that are open, by either end."""
        self._origins: Counter[tuple[PeerId, str]] = Counter()
        """And by the peer that is reached and the group of addresses from where."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._places

    @property
    def circuits(self) -> int:
        """How many circuits are open."""
        return sum(self._circuits.values()) // 2

    def reserve(self, peer: PeerId, group: str, relayed: bool, now: float) -> float | Refusal:
        """Give a peer a place, or renew it; return until when."""
        refused = Status.RESERVATION_REFUSED
        if relayed:
            return Refusal(Status.PERMISSION_DENIED, "relay-reservation-over-relay")
        place = self._places.get(peer)
        if place is None:
            for other in [each for each, held in self._places.items() if held.expires <= now]:
                del self._places[other]
            if len(self._places) >= self._terms.places:
                return Refusal(refused, "relay-places-taken")
            held = sum(each.group == group for each in self._places.values())
            if held >= self._terms.places_per_group:
                return Refusal(refused, "relay-places-taken-by-group")
            place = self._places[peer] = _Place(group, 0.0, now)
        elif now - place.since > self._terms.seconds / 2:
            place.since, place.renewals = now, 0
        elif place.renewals >= _RENEWED_AT_ONCE:
            return Refusal(Status.RESOURCE_LIMIT_EXCEEDED, "relay-reserved-too-often")
        place.renewals += 1
        place.expires = now + self._terms.seconds
        return place.expires

    def release(self, peer: PeerId) -> None:
        """A peer's connection is gone, and its place with it."""
        self._places.pop(peer, None)

    def limit(self, *ends: PeerId) -> Limit:
        """What a circuit between two peers may carry: friends' carry what they like."""
        return Limit() if any(map(self._is_friend, ends)) else self._terms.limit

    def open(
        self, source: PeerId, target: PeerId, relayed: bool, now: float, group: str = ""
    ) -> Refusal | None:
        """Open a circuit from a group of addresses, unless something speaks against it.

        Of the second half of a peer's circuits no group has any that has a quarter of all.
        """
        if relayed or source == target:
            return Refusal(Status.PERMISSION_DENIED, "relay-circuit-over-relay")
        place = self._places.get(target)
        if place is None or place.expires <= now:
            return Refusal(Status.NO_RESERVATION, "relay-no-reservation")
        most = self._terms.circuits_per_peer
        crowded = group and self._circuits.get(target, 0) >= most / 2
        if crowded and self._origins[target, group] >= max(1, most // 4):
            return Refusal(Status.RESOURCE_LIMIT_EXCEEDED, "relay-too-many-circuits-of-group")
        for end in (source, target):
            if self._circuits.get(end, 0) >= most:
                return Refusal(Status.RESOURCE_LIMIT_EXCEEDED, "relay-too-many-circuits")
        for end in (source, target):
            self._circuits[end] = self._circuits.get(end, 0) + 1
        self._origins[target, group] += 1
        return None

    def close(self, source: PeerId, target: PeerId, group: str = "") -> None:
        """A circuit from a group of addresses has ended."""
        self._origins[target, group] -= 1
        if not self._origins[target, group]:
            del self._origins[target, group]
        for end in (source, target):
            self._circuits[end] -= 1
            if not self._circuits[end]:
                del self._circuits[end]
