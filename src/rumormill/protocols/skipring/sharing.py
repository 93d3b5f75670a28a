"""Which supervisor a topic belongs to: consistent hashing, as the end of section 1.3 proposes.

Supervisors and topics are hashed to points of a circle, a supervisor to many; a topic belongs to
the supervisor whose point is the next one. So everybody who knows the same supervisors agrees, and
one that joins or leaves changes the supervisor of its own share of the topics and of no other.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from rumormill.core.ids import PeerId, Topic

POINTS: Final = 128
"""Points of one supervisor. Our choice: shares then differ by a tenth or so."""


def _point(kind: bytes, name: bytes) -> int:
    return int.from_bytes(hashlib.sha256(kind + name).digest()[:8], "big")


class Supervisors:
    """The supervisors that share all topics."""

    def __init__(self, peers: Iterable[PeerId]) -> None:
        self.peers: dict[PeerId, None] = dict.fromkeys(peers)
        points = [
            (_point(b"supervisor", number.to_bytes(2, "big") + peer), peer)
            for peer in self.peers
            for number in range(POINTS)
        ]
        points.sort()
        self._points = [point for point, _ in points]
        self._owners = [peer for _, peer in points]

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self.peers

    def of(self, topic: Topic) -> PeerId | None:
        """The supervisor of a topic; None when there is no supervisor at all."""
        if not self._points:
            return None
        place = bisect_left(self._points, _point(b"topic", topic.encode()))
        return self._owners[place % len(self._owners)]
