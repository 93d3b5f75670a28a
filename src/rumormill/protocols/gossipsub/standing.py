"""How a peer stands with us: its score, and what the thresholds make of it.

With scoring off everybody stands at zero, which every threshold accepts.
"""

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.errors import LocalError
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.score import ApplicationScore, PeerScore
from rumormill.protocols.gossipsub.score_params import TopicScoreParams
from rumormill.protocols.gossipsub.score_stats import PeerScoreSnapshot


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

    def accepts_px(self, peer: PeerId, now: float) -> bool:
        """Whether peers that the peer offers are dialled."""
        return self.keeper is None or self.keeper.score(peer, now) >= self.thresholds.accept_px

    def penalise(self, peer: PeerId, reason: str, count: int, effects: Effects) -> None:
        """Count misbehaviour (P7)."""
        if self.keeper is not None:
            self.keeper.add_penalty(peer, count)
            effects.append(trace.Penalise(peer, reason, float(count)))

    # What the application may see and say.

    def inspect(self, peer: PeerId, now: float) -> PeerScoreSnapshot | None:
        """What the peer's score is made of; None for a peer that is not known."""
        return None if self.keeper is None else self.keeper.inspect(peer, now)

    def feedback(self, peer: PeerId, topic: Topic, *, useful: bool) -> None:
        """Take the application's word on a message that the router did not judge itself.

        A useful message counts like a first delivery (P2), one that is not like an invalid one
        (P4).
        """
        if self.keeper is not None:
            (self.keeper.credit if useful else self.keeper.charge)(peer, topic)

    def set_topic_params(self, topic: Topic, params: TopicScoreParams) -> None:
        """Score a topic by other parameters from now on."""
        if self.keeper is None:
            raise LocalError("peers are not scored (scoring)")
        self.keeper.set_topic_params(topic, params)
