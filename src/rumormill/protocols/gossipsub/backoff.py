"""Backoff: for how long after a PRUNE a mesh link must not be grafted again.

A time that a remote peer names is clamped to `longest` before it is added to anything, so no
number on the wire can overflow or pin an entry for ever. The table is bounded, per peer and
overall. A peer for which there is no more room is backed off in all topics at once, by one entry:
a peer that fills the table gains nothing by it.
"""

from typing import Final

from rumormill.core.ids import PeerId, Topic

PER_PEER_MAX: Final = 1000
"""Our choice: topics in which one peer is backed off separately."""
SLACK: Final = 1.0
"""Seconds that we wait on top of a back-off, since the peer may count them differently. rust and
js: one heartbeat."""
NEVER: Final = float("-inf")
"""The expiry of a backoff that does not exist."""


class Backoff:
    """Expiry times by topic and peer."""

    __slots__ = (
        "_blanket",
        "_by_topic",
        "_count",
        "_limit",
        "_longest",
        "_per_peer",
        "_per_peer_max",
        "evicted",
        "merged",
    )

    def __init__(self, limit: int, longest: float, per_peer_max: int = PER_PEER_MAX) -> None:
        self.merged = 0
        """Backoffs that became part of their peer's backoff in all topics."""
        self.evicted = 0
        """Backoffs forgotten before their time to make room."""
        self._limit = limit
        self._longest = longest
        self._per_peer_max = per_peer_max
        self._by_topic: dict[Topic, dict[PeerId, float]] = {}
        self._per_peer: dict[PeerId, int] = {}
        self._blanket: dict[PeerId, float] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._blanket)

    def add(self, topic: Topic, peer: PeerId, seconds: float, now: float) -> None:
        """Back off for some time; an expiry that lies further away stays."""
        if not seconds > 0:
            return
        expires = now + float(min(seconds, self._longest))
        peers = self._by_topic.get(topic)
        if peers is not None and peer in peers:
            peers[peer] = max(peers[peer], expires)
            return
        if len(self) >= self._limit:
            self.clear(now)
            peers = self._by_topic.get(topic)
        if len(self) >= self._limit or self._per_peer.get(peer, 0) >= self._per_peer_max:
            self._back_off_everywhere(peer, expires)
            return
        if peers is None:
            peers = self._by_topic[topic] = {}
        peers[peer] = expires
        self._per_peer[peer] = self._per_peer.get(peer, 0) + 1
        self._count += 1

    def _back_off_everywhere(self, peer: PeerId, expires: float) -> None:
        self.merged += 1
        known = self._blanket.get(peer)
        if known is not None:
            self._blanket[peer] = max(known, expires)
            return
        for topic in [topic for topic, peers in self._by_topic.items() if peer in peers]:
            expires = max(expires, self._drop(topic, peer))
        while len(self) >= self._limit:
            self._evict_oldest()
        self._blanket[peer] = expires

    def _evict_oldest(self) -> None:
        self.evicted += 1
        if self._by_topic:
            topic, peers = next(iter(self._by_topic.items()))
            self._drop(topic, next(iter(peers)))
        else:
            del self._blanket[next(iter(self._blanket))]

    def _drop(self, topic: Topic, peer: PeerId) -> float:
        peers = self._by_topic[topic]
        expires = peers.pop(peer)
        if not peers:
            del self._by_topic[topic]
        left = self._per_peer[peer] - 1
        if left:
            self._per_peer[peer] = left
        else:
            del self._per_peer[peer]
        self._count -= 1
        return expires

    def expires(self, topic: Topic, peer: PeerId) -> float:
        """When the peer may ask for the link again; `NEVER` if nothing hinders it."""
        expires = NEVER
        peers = self._by_topic.get(topic)
        if peers is not None:
            expires = peers.get(peer, NEVER)
        if self._blanket:
            expires = max(expires, self._blanket.get(peer, NEVER))
        return expires

    def active(self, topic: Topic, peer: PeerId, now: float) -> bool:
        """Whether we must not graft the peer; a little longer than the peer has to wait for us."""
        if not self._by_topic and not self._blanket:
            return False
        return now < self.expires(topic, peer) + SLACK

    def clear(self, now: float) -> None:
        """Forget what has expired; now and then will do."""
        horizon = now - SLACK
        if self._count:
            over = [
                (topic, peer)
                for topic, peers in self._by_topic.items()
                for peer, expires in peers.items()
                if expires <= horizon
            ]
            for topic, peer in over:
                self._drop(topic, peer)
        for peer in [peer for peer, expires in self._blanket.items() if expires <= horizon]:
            del self._blanket[peer]
