"""The passive view: peers in reserve, never more than `size`, forgotten at random."""

from collections.abc import Iterator, Sequence

from rumormill.core.ids import PeerId
from rumormill.core.randomness import Randomness


class PassiveView:
    """Peers that may become neighbours. Who must not be in it is the membership's business."""

    __slots__ = ("_peers", "_randomness", "_size")

    def __init__(self, randomness: Randomness, size: int) -> None:
        self._randomness = randomness
        self._size = size
        self._peers: dict[PeerId, None] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._peers

    def __iter__(self) -> Iterator[PeerId]:
        return iter(self._peers)

    def add(self, peer: PeerId) -> None:
        """Take a peer in; when there is no room, another one drawn at random leaves."""
        if peer in self._peers:
            return
        if len(self._peers) >= self._size:
            del self._peers[self._randomness.choice(list(self._peers))]
        self._peers[peer] = None

    def discard(self, peer: PeerId) -> None:
        """Forget a peer, if it is there."""
        self._peers.pop(peer, None)

    def make_room(self, leaving: list[PeerId]) -> None:
        """When full, forget one of `leaving`, which shrinks, as long as it names anybody here."""
        while leaving and len(self._peers) >= self._size:
            self.discard(leaving.pop())

    def sample(self, count: int, without: Sequence[PeerId] = ()) -> list[PeerId]:
        """Draw up to `count` peers."""
        peers = [peer for peer in self._peers if peer not in without]
        return self._randomness.sample(peers, min(count, len(peers)))
