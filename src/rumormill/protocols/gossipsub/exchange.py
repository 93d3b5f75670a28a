"""Peer exchange (GossipSub 1.1): a peer that we cannot keep is offered others in our place.

A PRUNE may name peers of the topic, each with the signed record of its addresses where we know it.
Whoever is pruned dials them, if it trusts us enough and the records hold. What a record is made of
is the runtime's business: checking it and reading its addresses are given as functions.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from rumormill.core import trace
from rumormill.core.effects import Connect, Effects
from rumormill.core.errors import PeerError
from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.membership import Membership
from rumormill.protocols.gossipsub.standing import Standing
from rumormill.protocols.pubsub.messages import PeerInfo

RecordCheck: TypeAlias = Callable[[PeerId, bytes], bool]
"""Whether a signed peer record is valid and belongs to the peer."""

RecordReducer: TypeAlias = Callable[[bytes], bytes]
"""What of a peer's record we pass on; empty for nothing, and the peer is named without it."""

AddressReader: TypeAlias = Callable[[bytes], Sequence[str]]
"""The IP addresses and DNS names in a record; `PeerError` for one that is malformed."""

_LOCAL_NAMES: Final = ("localhost", "local", "internal", "test", "invalid", "example", "onion")
"""Last labels of names that no public DNS resolves (RFC 6761, 6762, 7686 and ICANN's)."""


def whole_record(record: bytes) -> bytes:
    """Pass records on as they are."""
    return record


def public_records(addresses_of: AddressReader) -> RecordReducer:
    """Pass records on that name a public address; of others, the peer's id alone.

    A bootstrapper on the open Internet should not send others to addresses of private networks.
    """

    def reduce(record: bytes) -> bytes:
        return record if record and names_public_address(record, addresses_of) else b""

    return reduce


def names_public_address(record: bytes, addresses_of: AddressReader) -> bool:
    """Whether a record is well-formed and names an address that everybody can reach."""
    try:
        return any(map(is_public, addresses_of(record)))
    except PeerError:
        return False


def is_public(address: str) -> bool:
    """Whether an IP address or DNS name means the same to everybody."""
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return bool(address) and address.rstrip(".").rpartition(".")[2] not in _LOCAL_NAMES


class PeerExchange:
    """Offers peers and heeds offers."""

    def __init__(
        self,
        config: GossipSubConfig,
        membership: Membership,
        standing: Standing,
        randomness: Randomness,
        *,
        records: Mapping[PeerId, bytes] | None = None,
        reduce_record: RecordReducer = whole_record,
        check_record: RecordCheck | None = None,
    ) -> None:
        self._limit = config.prune_peers
        self._membership = membership
        self._standing = standing
        self._randomness = randomness
        self._records = {} if records is None else records
        self._reduce = reduce_record
        self._check = check_record

    def offer(self, topic: Topic, to: PeerId, now: float) -> tuple[PeerInfo, ...]:
        """Choose peers of the topic that are in good standing."""
        good = [
            peer
            for peer in self._membership.topics.get(topic, ())
            if peer != to and self._standing.of(peer, now) >= 0
        ]
        chosen = self._randomness.sample(good, min(self._limit, len(good)))
        records, reduce = self._records, self._reduce
        return tuple(PeerInfo(peer, reduce(records.get(peer, b""))) for peer in chosen)

    def accept(
        self, me: PeerId, peer: PeerId, offered: tuple[PeerInfo, ...], now: float, effects: Effects
    ) -> None:
        """Dial the peers that a trusted peer offers, if their records hold."""
        if not self._standing.accepts_px(peer, now):
            effects.append(trace.Refuse(peer, reasons.BELOW_PX_THRESHOLD, count=len(offered)))
            return
        if len(offered) > self._limit:
            refused = len(offered) - self._limit
            effects.append(trace.Refuse(peer, reasons.PX_TOO_MANY_PEERS, count=refused))
            offered = tuple(self._randomness.sample(offered, self._limit))
        for info in offered:
            if info.peer in self._membership.peers or info.peer == me:
                continue
            if info.record and (self._check is None or not self._check(info.peer, info.record)):
                effects.append(trace.Refuse(peer, reasons.PX_BAD_RECORD))
                continue
            effects.append(Connect(info.peer, info.record))
