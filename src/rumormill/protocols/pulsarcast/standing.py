"""What peers have done wrong, and what follows from it.

Every refusal that an honest peer cannot cause costs its sender points, which halve with time. At
the limit the peer is disconnected and not listened to for a while. Nobody else notices: a false
event is refused by the first honest peer that sees it, so only the liar's neighbours ever pay.
"""

from typing import Any

from rumormill.core import trace
from rumormill.core.effects import Disconnect, Effects
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import reasons

_MOST_RECORDS = 4096
"""Peers with a record at most; our choice. The oldest record goes first."""


class Standing:
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
        """Lower a peer's standing; at the limit it is shut out."""
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
