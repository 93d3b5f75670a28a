"""Promises: a peer that advertised a message and was asked for it has to send it in time.

Of each request one message, chosen at random, is watched: that keeps the cost low and still finds
out a peer that makes a habit of empty advertisements. A message that comes, from whomever, ends all
promises of it, because the others can then no longer keep theirs. So does a rejected message,
which is charged elsewhere, unless it was badly signed: that anybody can make up.
"""

from collections.abc import Sequence

from rumormill.core.ids import MessageId, PeerId
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub.reasons import UNSIGNED


class Promises:
    """Which peers owe us which messages, and until when."""

    __slots__ = ("_by_id", "_by_peer", "_count", "_follow_up", "_limit", "_randomness", "unwatched")

    def __init__(self, follow_up: float, limit: int, randomness: Randomness) -> None:
        self.unwatched = 0
        """Requests that were not watched because too many others are."""
        self._follow_up = follow_up
        self._limit = limit
        self._randomness = randomness
        self._by_id: dict[MessageId, dict[PeerId, float]] = {}
        self._by_peer: dict[PeerId, dict[MessageId, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, peer: PeerId, message_ids: Sequence[MessageId], now: float) -> None:
        """A peer was asked for messages that it had advertised."""
        if not message_ids:
            return
        if self._count >= self._limit:
            self.unwatched += 1
            return
        message_id = self._randomness.choice(message_ids)
        owers = self._by_id.setdefault(message_id, {})
        if peer not in owers:
            owers[peer] = now + self._follow_up
            self._by_peer.setdefault(peer, {})[message_id] = None
            self._count += 1

    def fulfil(self, message_id: MessageId) -> None:
        """The message arrived, or entered validation: nobody owes it any more."""
        owers = self._by_id.pop(message_id, None)
        if owers is not None:
            for peer in owers:
                self._strike(peer, message_id)

    def rejected(self, message_id: MessageId, peer: PeerId, reason: str) -> None:
        """`peer` sent the message and it was rejected."""
        if reason not in UNSIGNED:
            self.fulfil(message_id)

    def excuse(self, peer: PeerId) -> None:
        """Void a peer's promises: we turned its messages away ourselves, or it is gone."""
        for message_id in self._by_peer.pop(peer, ()):
            owers = self._by_id[message_id]
            del owers[peer]
            self._count -= 1
            if not owers:
                del self._by_id[message_id]

    forget_peer = excuse

    def broken(self, now: float) -> dict[PeerId, int]:
        """How many promises each peer has broken since the last call."""
        broken: dict[PeerId, int] = {}
        if not self._by_id:
            return broken
        emptied = []
        for message_id, owers in self._by_id.items():
            late = [peer for peer, expires in owers.items() if expires < now]
            for peer in late:
                del owers[peer]
                self._strike(peer, message_id)
                broken[peer] = broken.get(peer, 0) + 1
            if not owers:
                emptied.append(message_id)
        for message_id in emptied:
            del self._by_id[message_id]
        return broken

    def _strike(self, peer: PeerId, message_id: MessageId) -> None:
        owed = self._by_peer[peer]
        del owed[message_id]
        if not owed:
            del self._by_peer[peer]
        self._count -= 1
