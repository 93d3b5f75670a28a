"""Which peers are connected, what they speak, how far they are trusted, and who is a direct peer.

A read-only view of the router's tables for the parts that decide about links and gossip.
"""

from collections.abc import Container, Mapping

import msgspec

from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.protocols.floodsub.router import FLOODSUB
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.score import Trust
from rumormill.protocols.pubsub.peer_state import PeerState

GOSSIPSUB_1_0 = "/meshsub/1.0.0"
GOSSIPSUB_1_1 = "/meshsub/1.1.0"
GOSSIPSUB_1_2 = "/meshsub/1.2.0"
GOSSIPSUB_1_3 = "/meshsub/1.3.0"
"""1.2, and a control message by which peers agree on extensions. Who has none sends none, as go
does; of a peer's, only ours is heeded (`trunk`)."""

PROTOCOLS = (GOSSIPSUB_1_3, GOSSIPSUB_1_2, GOSSIPSUB_1_1, GOSSIPSUB_1_0, FLOODSUB)
"""What we speak, best first."""


class PeerTable(msgspec.Struct, frozen=True):
    """The connected peers, as mesh and gossip see them, and what both choose among them by."""

    peers: dict[PeerId, PeerState]
    topics: dict[Topic, dict[PeerId, None]]
    direct: Mapping[PeerId, object]
    config: GossipSubConfig
    trust: Trust
    randomness: Randomness

    def outsiders(self, topic: Topic, inside: Container[PeerId]) -> list[PeerId]:
        """Subscribers that could be in a mesh and are not `inside` already."""
        direct, meshes = self.direct, self.meshes
        return [
            peer
            for peer in self.topics.get(topic, ())
            if peer not in inside and peer not in direct and meshes(peer)
        ]

    def dialled(self, peer: PeerId) -> bool:
        """Whether we opened the connection."""
        state = self.peers.get(peer)
        return state is not None and state.outbound

    def meshes(self, peer: PeerId) -> bool:
        """Whether the peer speaks GossipSub; FloodSub peers are in no mesh and get no gossip."""
        state = self.peers.get(peer)
        return state is not None and state.protocol != FLOODSUB

    def limited(self, peer: PeerId) -> bool:
        """Whether the peer is behind a relay that carries only so much: it is in no mesh, and
        hears of everything."""
        state = self.peers.get(peer)
        return state is not None and state.limited

    def exchanges_peers(self, peer: PeerId) -> bool:
        """Whether the peer understands peer exchange (from 1.1 on)."""
        state = self.peers.get(peer)
        return state is not None and state.protocol not in {FLOODSUB, GOSSIPSUB_1_0}

    def is_told_unknown_topics(self, peer: PeerId) -> bool:
        """Whether a GRAFT for a topic that is not ours is answered with a PRUNE: 1.0 says so, and
        from 1.1 on it is passed over, as spam may be."""
        state = self.peers.get(peer)
        return state is not None and state.protocol == GOSSIPSUB_1_0

    def heeds_idontwant(self, peer: PeerId) -> bool:
        """Whether the peer understands IDONTWANT (from 1.2 on)."""
        state = self.peers.get(peer)
        return state is not None and state.protocol in {GOSSIPSUB_1_3, GOSSIPSUB_1_2}
