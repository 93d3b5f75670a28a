"""Fanout: the peers that we publish through in topics to which we do not subscribe.

Up to D subscribers are chosen at the first publication and kept until none has been made for
`fanout_ttl` seconds; those that leave are replaced. (GossipSub 1.0, "Topic membership".)
"""

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.membership import Membership
from rumormill.protocols.gossipsub.standing import Standing


class Fanout:
    """The fanout peers of all topics. Bounded by the topics published in within the ttl."""

    def __init__(
        self,
        config: GossipSubConfig,
        membership: Membership,
        standing: Standing,
        randomness: Randomness,
    ) -> None:
        self.peers: dict[Topic, dict[PeerId, None]] = {}
        self.last_published: dict[Topic, float] = {}
        self._config = config
        self._membership = membership
        self._standing = standing
        self._randomness = randomness

    def use(self, topic: Topic, now: float) -> dict[PeerId, None]:
        """Return the peers to publish through, chosen now when there are none yet."""
        chosen = self.peers.get(topic)
        if not chosen:
            chosen = {}
            self._fill(topic, chosen, now)
            if not chosen:
                return chosen
            self.peers[topic] = chosen
        self.last_published[topic] = now
        return chosen

    def take(self, topic: Topic) -> list[PeerId]:
        """End the fanout of a topic that is joined; its peers become mesh candidates."""
        self.last_published.pop(topic, None)
        return list(self.peers.pop(topic, ()))

    def maintain(self, now: float) -> None:
        """Expire unused topics, drop peers that stand too low, and refill."""
        ttl = self._config.fanout_ttl
        for topic in [t for t, last in self.last_published.items() if last + ttl < now]:
            del self.last_published[topic]
            del self.peers[topic]
        for topic, chosen in self.peers.items():
            for peer in [p for p in chosen if not self._standing.publishes(p, now)]:
                del chosen[peer]
            self._fill(topic, chosen, now)

    def drop_peer(self, peer: PeerId, topic: Topic | None = None) -> None:
        """Remove a peer from the fanout of one topic, or of all."""
        for chosen in self.peers.values() if topic is None else (self.peers.get(topic, {}),):
            chosen.pop(peer, None)

    def _fill(self, topic: Topic, chosen: dict[PeerId, None], now: float) -> None:
        missing = self._config.D - len(chosen)
        if missing <= 0:
            return
        membership = self._membership
        candidates = [
            peer
            for peer in membership.topics.get(topic, ())
            if peer not in chosen
            and peer not in membership.direct
            and membership.meshes(peer)
            and self._standing.publishes(peer, now)
        ]
        if len(candidates) > missing:
            candidates = self._randomness.sample(candidates, missing)
        chosen.update(dict.fromkeys(candidates))
