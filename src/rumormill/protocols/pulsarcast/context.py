"""What all parts of a peer share: who we are, whom we are connected to, how to send and to read.

The parts of a peer (trees, topics, events, history) are objects of their own that know this one,
and each other only through what the peer hands them. Here is also what peers have done wrong, and
what follows from it: every refusal that an honest peer cannot cause costs its sender points, which
halve with time. At the limit the peer is disconnected and not listened to for a while. Nobody else
notices: a false event is refused by the first honest peer that sees it, so only the liar's
neighbours ever pay.
"""

from typing import Any, Final

import msgspec

from rumormill.core import trace
from rumormill.core.effects import ById, Disconnect, Effects, FromOffset, Load, Mail, Notes, Send
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Loaded
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.descriptors import PROTOCOL
from rumormill.protocols.pulsarcast.operations import Operations, PeerOperation
from rumormill.protocols.registry import Hooks

OURS: Final = "/rumormill/pulsarcast/1.0.0"
"""The dialect of our own peers: the original's messages and our additions."""

SLIGHT: Final = 1.0
"""Points for what a confused peer may do."""
GRAVE: Final = 10.0
"""Points for what only a liar does."""

_MOST_RECORDS = 4096
"""Peers with a record at most; our choice. The oldest record goes first."""


class PeerPenalties:
    """The records of misbehaving peers."""

    def __init__(self, limit: float, half_life: float, ban_time: float) -> None:
        self._limit = limit
        self._half_life = half_life
        self._ban_time = ban_time
        self._points: dict[PeerId, tuple[float, float]] = {}
        self.banned: dict[PeerId, float] = {}
        """Peers that are not listened to, and until when."""

    def points(self, peer: PeerId, now: float) -> float:
        """What a peer's record weighs now."""
        points, since = self._points.get(peer, (0.0, now))
        faded: float = 0.5 ** ((now - since) / self._half_life)
        return points * faded

    def penalise(
        self, peer: PeerId, reason: str, amount: float, now: float, effects: Effects
    ) -> None:
        """Add to a peer's record; at the limit it is shut out."""
        points = self.points(peer, now) + amount
        effects.append(trace.Penalise(peer, reason, amount))
        if points >= self._limit:
            self._points.pop(peer, None)
            _make_room(self.banned)
            self.banned[peer] = now + self._ban_time
            effects.append(Disconnect(peer, reasons.BANNED))
            return
        self._points.pop(peer, None)
        _make_room(self._points)
        self._points[peer] = (points, now)

    def is_banned(self, peer: PeerId, now: float) -> bool:
        """Whether a peer is shut out."""
        until = self.banned.get(peer)
        if until is None:
            return False
        if until <= now:
            del self.banned[peer]
            return False
        return True


def _make_room(records: dict[PeerId, Any]) -> None:
    if len(records) >= _MOST_RECORDS:
        del records[next(iter(records))]


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
        self.operations = Operations(config.max_waiting)
        self.penalties = PeerPenalties(config.ban_score, config.penalty_decay, config.ban_time)
        self.connected: dict[PeerId, str] = {}
        """Peers that can be sent to, and the dialect that they speak."""
        self._loads = 0

    def is_original(self, peer: PeerId) -> bool:
        """Whether a peer speaks only the original's dialect: it acknowledges nothing."""
        return self.connected.get(peer) == PROTOCOL

    def send(self, peer: PeerId, message: WireMessage, effects: Effects) -> None:
        """Send to a peer, which is dialled if need be."""
        effects.append(Send(peer, message) if peer in self.connected else Mail(peer, message))

    def load(
        self,
        operation: msgspec.Struct,
        topic: Topic,
        query: ById | FromOffset | Notes,
        effects: Effects,
    ) -> bool:
        """Ask the log; the operation goes on with what it has. False when too much is asked."""
        number = self._loads + 1
        if not self.operations.wait(Loaded, number, operation):
            if isinstance(operation, PeerOperation):
                effects.append(trace.Refuse(operation.peer, reasons.WAITING_FULL, topic))
            return False
        self._loads = number
        effects.append(Load(number, topic, query))
        return True

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
            self.penalties.penalise(peer, reason, points, now, effects)

    def backoff(self, failures: int) -> float:
        """How long to wait after so many failures in a row: twice as long each time, jittered."""
        config = self.config
        delay: float = config.retry_delay * 2 ** min(max(failures - 1, 0), 30)
        return min(delay, config.max_retry_delay) * (0.5 + self.randomness.random())
