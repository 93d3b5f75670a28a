"""Publications as they come to a peer: which came already, and how far each may still travel.

First copies are not always the ones with most hops left: a copy that took a long way over fast
links arrives before one that took the short way over a slow link. If only the first were passed on,
the flood would end too early behind this peer. So the table keeps the most hops that any copy had
left, and a copy with more extends the flood. By induction along a shortest path, a peer at distance
d from the origin of a flood of r ≥ d hops gets a copy with r − d hops left or more, in whatever
order messages arrive.

An id is remembered for `ttl` to twice `ttl` seconds. When there are too many, the older half is
forgotten before its time, and counted.
"""

from typing import Final

import msgspec

from rumormill.core.ids import MessageId, PeerId
from rumormill.protocols.radius.messages import Publication

DIRECT: Final = -1
"""Stands for hops where a publication came as a letter and not yet as a flood."""


class Copy(msgspec.Struct):
    """One copy of a publication; `hops` is `DIRECT` for a letter."""

    peer: PeerId
    """Who sent it; ourselves, for what we publish."""
    publication: Publication
    hops: int
    served: bytes = b""


class SeenPublications:
    """The most hops that were left, by publication, in two generations."""

    __slots__ = ("_half", "_old", "_ttl", "_turn_at", "_young", "evicted")

    def __init__(self, ttl: float, limit: int) -> None:
        self.evicted = 0
        """Ids forgotten before their time because there were too many."""
        self._ttl = ttl
        self._half = max(1, limit // 2)
        self._young: dict[MessageId, int] = {}
        self._old: dict[MessageId, int] = {}
        self._turn_at = float("-inf")

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, uid: MessageId) -> int | None:
        """Return the most hops that a copy had left, or None when none came."""
        hops = self._young.get(uid)
        return self._old.get(uid) if hops is None else hops

    def put(self, uid: MessageId, hops: int, now: float) -> None:
        """Note the hops of a copy that is the first, or better than those before."""
        if now >= self._turn_at:
            self.turn(now)
        if uid in self._old:
            self._old[uid] = hops
            return
        if len(self._young) >= self._half and uid not in self._young:
            self.evicted += len(self._old)
            self._old, self._young = self._young, {}
        self._young[uid] = hops

    def turn(self, now: float) -> None:
        """Forget what is older than `ttl` when it is time."""
        if now < self._turn_at:
            return
        late = now >= self._turn_at + self._ttl
        self._old = {} if late else self._young
        self._young = {}
        self._turn_at = now + self._ttl
