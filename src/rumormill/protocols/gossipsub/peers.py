"""Which peers are connected, what they speak, and who of them is a direct peer.

A read-only view of the router's tables for the parts that decide about links and gossip.
"""

from collections.abc import Mapping

from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.floodsub.router import FLOODSUB
from rumormill.protocols.pubsub.router import PeerState

GOSSIPSUB_1_0 = "/meshsub/1.0.0"
GOSSIPSUB_1_1 = "/meshsub/1.1.0"
GOSSIPSUB_1_2 = "/meshsub/1.2.0"

PROTOCOLS = (GOSSIPSUB_1_2, GOSSIPSUB_1_1, GOSSIPSUB_1_0, FLOODSUB)
"""What we speak, best first."""


class PeerTable:
    """The connected peers, as mesh and gossip see them."""

    def __init__(
        self,
        peers: dict[PeerId, PeerState],
        topics: dict[Topic, dict[PeerId, None]],
        direct: Mapping[PeerId, object],
    ) -> None:
        self.peers = peers
        self.topics = topics
        self.direct = direct

    def dialled(self, peer: PeerId) -> bool:
        """Whether we opened the connection."""
        state = self.peers.get(peer)
        return state is not None and state.outbound

    def meshes(self, peer: PeerId) -> bool:
        """Whether the peer speaks GossipSub; FloodSub peers are in no mesh and get no gossip."""
        state = self.peers.get(peer)
        return state is not None and state.protocol != FLOODSUB

    def exchanges_peers(self, peer: PeerId) -> bool:
        """Whether the peer understands peer exchange (from 1.1 on)."""
        state = self.peers.get(peer)
        return state is not None and state.protocol not in {FLOODSUB, GOSSIPSUB_1_0}

    def heeds_idontwant(self, peer: PeerId) -> bool:
        """Whether the peer understands IDONTWANT (from 1.2 on)."""
        state = self.peers.get(peer)
        return state is not None and state.protocol == GOSSIPSUB_1_2
