"""What all parts of a Pulsarcast peer share: who we are, whom we are connected to, how to send.

The parts of a peer (trees, topics, events, history) are objects of their own that know this one,
and each other only through what the peer hands them.
"""

from typing import Final

from rumormill.core import trace
from rumormill.core.effects import Effects, Mail, Send
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.descriptors import PROTOCOL
from rumormill.protocols.pulsarcast.standing import Standing
from rumormill.protocols.registry import Hooks

OURS: Final = "/rumormill/pulsarcast/1.0.0"
"""The dialect of our own peers: the original's messages and our additions."""

SLIGHT: Final = 1.0
"""Points for what a confused peer may do."""
GRAVE: Final = 10.0
"""Points for what only a liar does."""


class Context:
    """What the parts share."""

    def __init__(
        self,
        identity: Identity,
        randomness: Randomness,
        config: PulsarcastConfig,
        hooks: Hooks,
    ) -> None:
        self.id = identity.peer
        self.identity = identity
        self.randomness = randomness
        self.config = config
        self.hooks = hooks
        self.archive = hooks.archive
        self.standing = Standing(config.ban_score, config.penalty_decay, config.ban_time)
        self.connected: dict[PeerId, str] = {}
        """Peers that can be sent to, and the dialect that they speak."""

    def is_original(self, peer: PeerId) -> bool:
        """Whether a peer speaks only the original's dialect: it acknowledges nothing."""
        return self.connected.get(peer) == PROTOCOL

    def send(self, peer: PeerId, message: WireMessage, effects: Effects) -> None:
        """Send to a peer, which is dialled if need be."""
        effects.append(Send(peer, message) if peer in self.connected else Mail(peer, message))

    def refuse(
        self,
        peer: PeerId,
        reason: str,
        topic: bytes | None,
        points: float,
        now: float,
        effects: Effects,
    ) -> None:
        """Count what is not acted upon, and what it costs its sender."""
        effects.append(trace.Refuse(peer, reason, "" if topic is None else cids.text(topic)))
        if points:
            self.standing.penalise(peer, reason, points, now, effects)

    def backoff(self, failures: int) -> float:
        """How long to wait after so many failures in a row: twice as long each time, jittered."""
        config = self.config
        delay: float = config.retry_delay * 2 ** min(max(failures - 1, 0), 30)
        return min(delay, config.max_retry_delay) * (0.5 + self.randomness.random())
