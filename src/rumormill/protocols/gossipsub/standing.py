"""How a peer stands with us: its score, and what the thresholds make of it.

With scoring off everybody stands at zero, which every threshold accepts.
"""

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.score import ApplicationScore, PeerScore


class Standing:
    """The scores of all peers, as the router asks for them."""

    def __init__(self, config: GossipSubConfig, application_score: ApplicationScore | None) -> None:
        self.thresholds = config.thresholds
        self.keeper = PeerScore(config.score, application_score) if config.scoring else None

    def of(self, peer: PeerId, now: float) -> float:
        """The peer's score."""
        return 0.0 if self.keeper is None else self.keeper.score(peer, now)

    def gossips(self, peer: PeerId, now: float) -> bool:
        """Whether gossip is exchanged with the peer."""
        return self.keeper is None or self.keeper.score(peer, now) >= self.thresholds.gossip

    def publishes(self, peer: PeerId, now: float) -> bool:
        """Whether own messages are sent to the peer outside the mesh."""
        return self.keeper is None or self.keeper.score(peer, now) >= self.thresholds.publish

    def penalise(self, peer: PeerId, reason: str, count: int, effects: Effects) -> None:
        """Count misbehaviour (P7)."""
        if self.keeper is not None:
            self.keeper.add_penalty(peer, count)
            effects.append(trace.Penalise(peer, reason, float(count)))
