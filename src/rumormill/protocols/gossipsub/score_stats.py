"""What a peer's score is made of: counters that fade, who brought which message, who shares an IP.

A counter exists only while there is something to count: a peer without topics costs a few dozen
bytes, and counters of a topic that have faded to nothing are dropped.

A record of a message (P3, P4) opens when it enters validation. Copies that arrive meanwhile are
noted, and share the message's fate when the verdict comes; copies that arrive later are judged by
the verdict. Records live for a fixed time and there are never more than a fixed number of them.

For P6 an address stands for itself; an IPv6 address stands also for its /64 network, which one host
can hold alone. Loopback and whitelisted addresses never count. Text that is neither an IP address
nor a multiaddr that starts with one is compared as it is.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.gossipsub.score_params import TopicScoreParams

COUNTER_MAX: Final = 1e9
SCORE_MAX: Final = 1e15
"""Scores and counters saturate, so that no parameters and no events make a score infinite."""

UNKNOWN: Final = 0
"""Being validated."""
VALID: Final = 1
INVALID: Final = 2
IGNORED: Final = 3
"""The validator wants it neither delivered nor held against anybody."""
THROTTLED: Final = 4
"""This peer was too busy to find out."""

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class TopicStats(msgspec.Struct, gc=False):
    """A peer's counters in one topic: P1 to P4 in this order."""

    params: TopicScoreParams
    grafted: float | None = None
    """When the peer was taken into the mesh; None outside."""
    first: float = 0.0
    mesh: float = 0.0
    failure: float = 0.0
    invalid: float = 0.0


class PeerStats(msgspec.Struct, gc=False):
    """All that is counted of one peer."""

    topics: dict[Topic, TopicStats] | None = None
    behaviour: float = 0.0
    earned: float | None = 0.0
    """The score without P5 and P6; None when it must be computed again."""
    groups: tuple[str, ...] = ()
    expires: float = 0.0
    """When a peer that left is forgotten."""


def saturated(score: float) -> float:
    """The score, or the nearest bound; what is not a number counts against the peer."""
    if -SCORE_MAX <= score <= SCORE_MAX:
        return score
    return SCORE_MAX if score > 0 else -SCORE_MAX


def count_mesh_delivery(stats: TopicStats) -> None:
    """P3: a mesh peer brought a message, first or nearly so."""
    stats.mesh = min(stats.mesh + 1.0, stats.params.mesh_message_deliveries_cap)


def faded_over(decay: float, intervals: int) -> float:
    """What is left after some intervals.

    The decay of a counter that weighs nothing is not checked and may be any number: it must
    neither overflow nor let the counter grow.
    """
    return decay**intervals if 0 <= decay <= 1 else 0.0


def decay(stats: TopicStats, intervals: int, floor: float) -> None:
    """Let a topic's counters fade; below `floor` they are nothing."""
    params = stats.params
    if stats.first:
        faded = stats.first * faded_over(params.first_message_deliveries_decay, intervals)
        stats.first = faded if faded >= floor else 0.0
    if stats.mesh:
        faded = stats.mesh * faded_over(params.mesh_message_deliveries_decay, intervals)
        stats.mesh = faded if faded >= floor else 0.0
    if stats.failure:
        faded = stats.failure * faded_over(params.mesh_failure_penalty_decay, intervals)
        stats.failure = faded if faded >= floor else 0.0
    if stats.invalid:
        faded = stats.invalid * params.invalid_message_deliveries_decay**intervals
        stats.invalid = faded if faded >= floor else 0.0


def is_idle(stats: TopicStats) -> bool:
    """Whether nothing is lost by forgetting these counters."""
    return stats.grafted is None and not (
        stats.first or stats.mesh or stats.failure or stats.invalid
    )


def drop_idle(topics: dict[Topic, TopicStats]) -> None:
    """Forget the counters of topics in which there is nothing to remember."""
    for topic in [topic for topic, stats in topics.items() if is_idle(stats)]:
        del topics[topic]


class DeliveryRecord(msgspec.Struct, gc=False):
    """What is known of one message."""

    created: float
    status: int = UNKNOWN
    sender: PeerId = b""
    """Who was first; filled in on delivery."""
    validated: float = 0.0
    peers: dict[PeerId, None] | None = None
    """Who else brought it, as far as that still matters."""


class DeliveryRecords:
    """Records by message id, oldest first."""

    __slots__ = ("_batch", "_limit", "_ttl", "evicted", "records")

    def __init__(self, ttl: float, limit: int) -> None:
        self.records: dict[MessageId, DeliveryRecord] = {}
        self.evicted = 0
        """Records forgotten before their time because there were too many."""
        self._ttl = ttl
        self._limit = limit
        self._batch = max(1, limit // 64)

    def open(self, message_id: MessageId, now: float) -> DeliveryRecord:
        """The record of a message, a new one if there is none."""
        record = self.records.get(message_id)
        if record is None:
            if len(self.records) >= self._limit:
                self._evict()
            record = self.records[message_id] = DeliveryRecord(now)
        return record

    def _evict(self) -> None:
        # In batches, because finding the oldest entry of a dict costs a walk over deleted ones.
        oldest = [
            message_id for message_id, _ in zip(self.records, range(self._batch), strict=False)
        ]
        for message_id in oldest:
            del self.records[message_id]
        self.evicted += len(oldest)

    def sweep(self, now: float) -> None:
        """Forget records whose time is over."""
        horizon = now - self._ttl
        expired = []
        for message_id, record in self.records.items():
            if record.created >= horizon:
                break
            expired.append(message_id)
        for message_id in expired:
            del self.records[message_id]


class Colocation:
    """Counts peers by address."""

    __slots__ = ("_counts", "_threshold", "_whitelist")

    def __init__(self, threshold: int, whitelist: Sequence[str]) -> None:
        self._threshold = threshold
        self._whitelist: list[_Network] = [ipaddress.ip_network(entry) for entry in whitelist]
        self._counts: dict[str, int] = {}

    def groups(self, address: str) -> tuple[str, ...]:
        """What a peer with this address is counted under."""
        host = address
        if address.startswith(("/ip4/", "/ip6/")):
            host = address.split("/", 3)[2]
        if not host:
            return ()
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            return (host,)
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        if ip.is_loopback or any(ip in network for network in self._whitelist):
            return ()
        if isinstance(ip, ipaddress.IPv4Address):
            return (str(ip),)
        return (str(ip), str(ipaddress.ip_network((ip, 64), strict=False)))

    def add(self, groups: tuple[str, ...]) -> None:
        """Count a peer."""
        for group in groups:
            self._counts[group] = self._counts.get(group, 0) + 1

    def remove(self, groups: tuple[str, ...]) -> None:
        """Count a peer no longer."""
        for group in groups:
            left = self._counts[group] - 1
            if left:
                self._counts[group] = left
            else:
                del self._counts[group]

    def factor(self, groups: tuple[str, ...]) -> float:
        """P6: the squared surplus of peers, over all that the peer is counted under."""
        factor = 0.0
        for group in groups:
            surplus = self._counts[group] - self._threshold
            if surplus > 0:
                factor += surplus * surplus
        return factor
