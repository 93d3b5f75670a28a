"""Where peers can be reached: addresses learnt from tickets, identify and signed records.

Bounded in peers and in addresses of one peer; the peer that was heard of longest ago goes first.
Addresses that a user gave are never pushed out. What one peer says of another is a hint: it is
tried last and pushes out nothing but older hints, and as the handshake proves who is there, a false
one costs a vain attempt and nothing more. Nothing that the network says leads where whoever says it
could not go itself, be it of others or of itself: a peer out there does not have us knock at doors
of our own network, or of our own machine. What a name stands for is known when it is dialled, so
how near to us it may lead is remembered.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeVar

from msgspec.structs import replace

from rumormill.core.errors import PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p.envelope import unseal_peer_record
from rumormill.wire.multiaddr import Endpoint, Multiaddr, known_addresses

T = TypeVar("T")

MAX_PEERS: Final = 4096
MAX_ADDRESSES: Final = 16
MAX_RECORDS: Final = 1024
MAX_HINTED_PEERS: Final = 4096
MAX_HINTS: Final = 4
"""Our choice: a liar's addresses are tried one after another, and each takes its time."""


ANYWHERE, NEAR, HERE = 0, 1, 2
"""How near to us a host is: out there, in a private network, on this machine."""

WILDCARDS: Final = ("0.0.0.0", "::")
"""Where a node listens that listens everywhere; nobody can be reached there."""


class AddressBook:
    """Endpoints by peer, and signed records to pass on."""

    def __init__(self) -> None:
        self._learnt: dict[PeerId, dict[Endpoint, int]] = {}
        """Each with how near to us it may lead."""
        self._given: dict[PeerId, dict[Endpoint, None]] = {}
        self._hinted: dict[PeerId, dict[Endpoint, int]] = {}
        self.agents: dict[PeerId, str] = {}
        """What peers say they are, the programs that they run."""
        self.records: dict[PeerId, bytes] = {}
        """Signed peer records as their owners sealed them, for peer exchange."""
        self.forgotten = 0

    def give(self, peer: PeerId, endpoint: Endpoint) -> None:
        """Remember an endpoint that the user named."""
        self._given.setdefault(peer, {})[endpoint] = None

    def give_all(self, ticket: Iterable[Multiaddr]) -> tuple[PeerId, ...]:
        """Remember the endpoints of a ticket; return the peers that it names."""
        peers: dict[PeerId, None] = {}
        for address in ticket:
            peer, endpoint = address.peer_id, address.endpoint
            if peer is not None and endpoint is not None:
                self.give(bytes(peer), endpoint)
                peers[bytes(peer)] = None
        return tuple(peers)

    def learn(self, peer: PeerId, endpoints: Iterable[Endpoint], near: int = ANYWHERE) -> None:
        """Remember endpoints that a peer named as its own, instead of those learnt before: those
        that are as `near` to us as whoever told us, or farther."""
        self._learnt.pop(peer, None)
        found = _as_near(endpoints, near)
        if not found:
            return
        self._put(self._learnt, peer, dict.fromkeys(found[:MAX_ADDRESSES], near), MAX_PEERS)

    def learn_record(self, peer: PeerId, record: bytes, near: int = ANYWHERE) -> None:
        """Remember what a peer says of itself in a signed record, which somebody has given us;
        PeerError if it did not say that. If it has told us something newer, it is a hint."""
        opened = unseal_peer_record(record)
        if opened.peer_id != peer:
            raise PeerError("wrong-peer", "a record of another peer")
        own = self.records.get(peer)
        is_old = own is not None and unseal_peer_record(own).seq > opened.seq
        (self.hint if is_old else self.learn)(peer, endpoints_among(opened.addresses), near)

    def hint(self, peer: PeerId, endpoints: Iterable[Endpoint], near: int = ANYWHERE) -> None:
        """Remember endpoints that one peer named for another, instead of earlier such hints."""
        found = _as_near(endpoints, near)
        if not found:
            return
        self._put(self._hinted, peer, dict.fromkeys(found[:MAX_HINTS], near), MAX_HINTED_PEERS)

    def keep_agent(self, peer: PeerId, agent: str) -> None:
        """Remember what a peer says it is."""
        self._put(self.agents, peer, agent, MAX_RECORDS)

    def keep_record(self, peer: PeerId, record: bytes) -> None:
        """Remember a peer's signed record."""
        self._put(self.records, peer, record, MAX_RECORDS)

    def _put(self, table: dict[PeerId, T], peer: PeerId, value: T, most: int) -> None:
        table.pop(peer, None)
        if len(table) >= most:
            del table[next(iter(table))]
            self.forgotten += 1
        table[peer] = value

    def endpoints(self, peer: PeerId) -> list[Endpoint]:
        """Where to try a peer: what the user said, what the peer said, what others said; through
        relays after all that."""
        given, learnt = self._given.get(peer, ()), self._learnt.get(peer, ())
        found = dict.fromkeys([*given, *learnt, *self._hinted.get(peer, ())])
        return sorted(found, key=lambda endpoint: bool(endpoint.relay))

    def leads(self, peer: PeerId, endpoint: Endpoint) -> int:
        """How near to us an endpoint of a peer may lead: as near as whoever named it is."""
        if endpoint in self._given.get(peer, ()):
            return HERE
        said = (
            table.get(peer, {}).get(endpoint, ANYWHERE) for table in (self._learnt, self._hinted)
        )
        return max(said)


def endpoints_among(addresses: Iterable[bytes]) -> list[Endpoint]:
    """The endpoints among a peer's addresses, which are binary multiaddrs."""
    endpoints = (address.endpoint for address in known_addresses(addresses)[0])
    return [endpoint for endpoint in endpoints if endpoint is not None]


def placed(endpoints: Iterable[Endpoint], seen_at: str) -> list[Endpoint]:
    """The endpoints of a peer that is seen at a host: who listens everywhere does so there."""
    return [replace(each, host=seen_at) if each.host in WILDCARDS else each for each in endpoints]


def credible(endpoints: Iterable[Endpoint], hosts: Iterable[str] | None) -> list[Endpoint]:
    """The endpoints that somebody at one of these hosts could reach; all, if it is no peer's word.

    Who is on this machine may know of others on it, who is in a private network of others there.
    Of a peer that has gone, only the hosts of those who are still there are known.
    """
    return _as_near(endpoints, HERE if hosts is None else nearest(hosts))


def _as_near(endpoints: Iterable[Endpoint], near: int) -> list[Endpoint]:
    found = dict.fromkeys(endpoints)
    return [each for each in found if each.host not in WILDCARDS and nearness(each.host) <= near]


def nearest(hosts: Iterable[str]) -> int:
    """How near to us the nearest of some hosts is."""
    return max(map(nearness, hosts), default=ANYWHERE)


def is_address(host: str) -> bool:
    """Whether a host is an address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def nearness(host: str) -> int:
    """How near to us a host is; of a name that is not known."""
    if not is_address(host):
        return ANYWHERE
    address = ip_address(host)
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    # What stands for every address leads here.
    return HERE if address.is_loopback or address.is_unspecified else int(not address.is_global)


@lru_cache(4096)
def encoded(endpoint: Endpoint) -> bytes:
    """An endpoint as a binary multiaddr."""
    at = endpoint
    found = Multiaddr.tcp(at.host, at.port, way=at.way, version=at.version, relay=at.relay)
    return found.encode()
