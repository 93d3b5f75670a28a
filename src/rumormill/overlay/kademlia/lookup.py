"""One lookup: an iterative search towards a key, on several disjoint paths.

Kademlia asks the closest peers it knows for closer ones, until the closest that it heard of have
all answered. S/Kademlia runs d such searches side by side, none of which ever asks a peer that
another asked: who answers with accomplices only spoils the path on which it was met. The contacts
to start from are dealt out among the paths. Each path goes on until its closest ceil(k / d) peers
have answered, so that the paths together end with about the k closest, as one path would. Where a
path finds nobody alive, the others go on until k have answered in all.

Whoever makes up ids next to a key can crowd out its k closest peers on every path. So a walk may
have a `radius`, the distance within which k peers are expected: it asks everybody inside, however
many there are, up to the limit of its questions, and trusts them all with a record. Without an
attack that is about k peers, and nothing is added.

This is bookkeeping only: `take` says whom to ask next, `answered` and `failed` what came of it.
Every list is bounded, and so is the number of questions.
"""

from bisect import insort
from collections.abc import Sequence

import msgspec

from rumormill.core.ids import PeerId
from rumormill.overlay.kademlia.messages import KadPeer
from rumormill.overlay.kademlia.table import position

_ASKED, _ANSWERED = 1, 2
_NOBODY = -1
"""The path that asks us: none does."""


class _Path(msgspec.Struct):
    """One of the disjoint searches: peers by distance, and what became of those it asked."""

    candidates: list[tuple[int, PeerId]] = []
    known: dict[PeerId, None] = {}
    states: dict[PeerId, int] = {}
    in_flight: int = 0


class Lookup:
    """The state of one search."""

    def __init__(
        self,
        target: int,
        own: PeerId,
        seeds: Sequence[PeerId],
        *,
        k: int,
        alpha: int,
        paths: int,
        width: int,
        limit: int,
        radius: int = 0,
    ) -> None:
        self.target = target
        self.asked = self.failures = 0
        self._k = k
        self._alpha = alpha
        self._width = width
        self._limit = limit
        self._radius = radius
        count = max(1, min(paths, len(seeds)))
        self._share = -(-k // count)
        self._paths = [_Path() for _ in range(count)]
        self._takers: dict[PeerId, int] = {own: _NOBODY}
        self._addresses: dict[PeerId, tuple[bytes, ...]] = {}
        self._answered: list[tuple[int, PeerId]] = []
        for index, seed in enumerate(seeds):
            self._add(self._paths[index % count], seed)

    def _add(self, path: _Path, peer: PeerId) -> bool:
        entry = (position(peer) ^ self.target, peer)
        candidates = path.candidates
        if len(candidates) >= self._width:
            last = candidates[-1]
            if entry >= last or last[1] in path.states:
                return False
            candidates.pop()
            del path.known[last[1]]
        insort(candidates, entry)
        path.known[peer] = None
        return True

    def addresses(self, peer: PeerId) -> tuple[bytes, ...]:
        """Where a peer can be reached, as the one who named it said."""
        return self._addresses.get(peer, ())

    def take(self) -> list[PeerId]:
        """Return the peers to ask now; they count as asked."""
        taken = self._take()
        missing = self._k - len(self._answered)
        if not taken and missing > 0 and not self.in_flight:
            # Some path met nobody but the dead: the others go on in its place.
            self._share += missing
            taken = self._take()
        return taken

    def widen(self, alpha: int = 0) -> None:
        """Have so many questions in flight on each path, or one more."""
        self._alpha = max(self._alpha, alpha) if alpha else self._alpha + 1

    def _take(self) -> list[PeerId]:
        taken: list[PeerId] = []
        progress = True
        while progress:
            progress = False
            for index, path in enumerate(self._paths):
                if path.in_flight < self._alpha and self.asked < self._limit:
                    peer = self._next_of(index, path)
                    if peer is not None:
                        path.states[peer] = _ASKED
                        path.in_flight += 1
                        self._takers[peer] = index
                        self.asked += 1
                        taken.append(peer)
                        progress = True
        return taken

    def _next_of(self, index: int, path: _Path) -> PeerId | None:
        """The closest peer of a path that it has yet to ask, while its share has not answered.

        Within the radius it asks on when it has its share.
        """
        ahead = 0
        states, takers, share, radius = path.states, self._takers, self._share, self._radius
        for distance, peer in path.candidates:
            if ahead >= share and distance > radius:
                return None
            if peer in states:
                ahead += 1
            elif peer not in takers:
                return peer
        return None

    def _asked_by(self, peer: PeerId) -> _Path | None:
        """The path that waits for an answer of a peer."""
        index = self._takers.get(peer, _NOBODY)
        if index == _NOBODY or self._paths[index].states.get(peer) != _ASKED:
            return None
        return self._paths[index]

    def answered(self, peer: PeerId, closer: Sequence[KadPeer]) -> None:
        """Note an answer and the peers that it names."""
        path = self._asked_by(peer)
        if path is None:
            return
        path.in_flight -= 1
        path.states[peer] = _ANSWERED
        self._answered.append((position(peer) ^ self.target, peer))
        known = path.known
        for other in closer:
            if other.peer not in known and self._add(path, other.peer) and other.addresses:
                self._addresses[other.peer] = other.addresses

    def failed(self, peer: PeerId) -> None:
        """Note that a peer did not answer, or answered falsely."""
        path = self._asked_by(peer)
        if path is None:
            return
        path.in_flight -= 1
        self.failures += 1
        del path.states[peer]
        path.candidates.remove((position(peer) ^ self.target, peer))

    @property
    def in_flight(self) -> int:
        """Questions without an answer yet."""
        return sum([path.in_flight for path in self._paths])

    @property
    def answers(self) -> int:
        """Peers that answered."""
        return len(self._answered)

    def closest(self, count: int) -> list[PeerId]:
        """The closest peers that answered, of all paths together."""
        return [peer for _, peer in sorted(self._answered)[:count]]

    def holders(self, count: int) -> list[PeerId]:
        """Whom to trust with a record: each path's closest in turn, up to `count`, and all inside.

        Were they the closest of all paths together, one path of liars close to the key would
        leave no place for an honest holder.
        """
        by_path: list[list[PeerId]] = [[] for _ in self._paths]
        for _, peer in sorted(self._answered):
            by_path[self._takers[peer]].append(peer)
        chosen: list[PeerId] = []
        for rank in range(max(map(len, by_path), default=0)):
            for peers in by_path:
                if rank < len(peers) and len(chosen) < count:
                    chosen.append(peers[rank])
        inside = [peer for distance, peer in sorted(self._answered) if distance <= self._radius]
        return list(dict.fromkeys(chosen + inside))

    def paths(self) -> list[list[PeerId]]:
        """The peers that each path asked, in the order of asking."""
        asked: list[list[PeerId]] = [[] for _ in self._paths]
        for peer, index in self._takers.items():
            if index != _NOBODY:
                asked[index].append(peer)
        return asked
