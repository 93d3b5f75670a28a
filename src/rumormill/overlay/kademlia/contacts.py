"""Whom this peer knows: the table, the peers that might join it, and those that misbehaved.

A peer enters the table only after it answered a question of ours: that is the proof that it is
there, that it can be reached, and that it is a server. So whoever connects or asks is asked back,
with a FIND_NODE for our own id (the specification forbids the old PING), unless its bucket is
full. When somebody waits for a place, the contact that was silent longest is asked likewise and
keeps its place if it answers.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from rumormill.core import trace
from rumormill.core.bounded import drop, remember, take_out
from rumormill.core.effects import Disconnect, Effects
from rumormill.core.ids import PeerId
from rumormill.overlay.address_groups import network_of, network_of_text
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.messages import KadMessage, KadPeer, KadType
from rumormill.overlay.kademlia.operations import CHECK, Questions
from rumormill.overlay.kademlia.table import FULL, RoutingTable

CLIENT_MEMORY: Final = 600.0
"""Seconds for which a peer that never answered is not asked to join again. Our choice: the refresh
interval."""

OFFENCE_WEIGHT = 1.0
_REMEMBERED_MAX = 1024
"""Peers that did not answer, and contacts that were lost. Our choice."""


@lru_cache(maxsize=1 << 17)
def _described(peer: PeerId, addresses: tuple[bytes, ...]) -> KadPeer:
    """A peer as messages name it: one value for all who name it in this process."""
    return KadPeer(peer, addresses)


class Contacts:
    """The table and its surroundings."""

    __slots__ = (
        "_addresses", "_banned", "_checking", "_config", "_hello", "_lost", "_offences",
        "_questions", "_silent", "connected", "own", "table",
    )  # fmt: skip

    def __init__(
        self,
        own: PeerId,
        config: KademliaConfig,
        questions: Questions,
        addresses: Callable[[PeerId], Sequence[bytes]],
    ) -> None:
        self.own = own
        self.table = RoutingTable(own, config)
        self.connected: dict[PeerId, str] = {}
        self._config = config
        self._questions = questions
        self._addresses = addresses
        self._hello = KadMessage(KadType.FIND_NODE, own, brief=True)
        self._checking: dict[PeerId, None] = {}
        self._silent: dict[PeerId, float] = {}
        self._lost: dict[PeerId, None] = {}
        self._banned: dict[PeerId, float] = {}
        self._offences: dict[PeerId, int] = {}

    # Who comes and goes.

    def connect(self, peer: PeerId, address: str, now: float, effects: Effects) -> None:
        """A peer is connected: it may be a server."""
        self.connected[peer] = address
        self._silent.pop(peer, None)
        self.consider(peer, now, effects)

    def disconnect(self, peer: PeerId) -> None:
        """A peer is no longer connected, which says nothing about whether it can be reached."""
        drop(self.connected, peer)

    def forget_connections(self) -> None:
        """Nobody is connected, and no answer is under way."""
        self.connected.clear()
        self._checking.clear()

    def consider(self, peer: PeerId, now: float, effects: Effects) -> None:
        """Ask a peer that might be a server, if the table has a place for it."""
        if (
            peer not in self.table
            and self._silent.get(peer, now) <= now
            and not self.is_banned(peer, now)
            and self.table.has_room(peer)
        ):
            self.check(peer, now, effects)

    def check(self, peer: PeerId, now: float, effects: Effects) -> None:
        """See whether a peer answers, unless too many are being asked already."""
        if len(self._checking) < self._config.checks and peer not in self._checking:
            self._checking[peer] = None
            self._questions.ask(peer, self._hello, CHECK, now, effects)

    def answered(self, peer: PeerId, now: float, effects: Effects) -> bool:
        """A peer answered a question; return whether it is a new contact."""
        take_out(self._checking, peer)
        self._silent.pop(peer, None)
        if self.is_banned(peer, now):
            return False
        new = peer not in self.table
        refused = self.table.seen(peer, now, self._network(peer) if new else "")
        if refused == FULL:
            before = now - self._config.recheck_after
            silent = self.table.silent_longest(self.table.bucket_of(peer), before)
            if silent is not None:
                self.check(silent.peer, now, effects)
        elif refused:
            effects.append(trace.Refuse(peer, refused))
        elif new:
            self._lost.pop(peer, None)
        return new and not refused

    def _network(self, peer: PeerId) -> str:
        address = self.connected.get(peer)
        return network_of_text(address) if address else network_of(self._addresses(peer))

    def failed(self, peer: PeerId, now: float) -> None:
        """A peer did not answer, or could not be reached.

        One that answered before is no client: when it asks us again it has come back, and is
        asked as soon as this failure can no longer be the reason why it was not reached.
        """
        take_out(self._checking, peer)
        answered_before = peer in self.table or peer in self._lost
        quiet = self._config.ask_timeout if answered_before else CLIENT_MEMORY
        remember(self._silent, peer, now + quiet, _REMEMBERED_MAX)
        if self.table.failed(peer):
            remember(self._lost, peer, None, _REMEMBERED_MAX)

    def upkeep(self, now: float, effects: Effects) -> None:
        """Ask connected peers that are not in the table, and lost ones when it is nearly empty."""
        for peer in self.connected:
            self.consider(peer, now, effects)
        if len(self.table) < self._config.k:
            for peer in list(self._lost)[: self._config.checks]:
                # To the end, so that everybody has a turn.
                del self._lost[peer]
                self._lost[peer] = None
                self.consider(peer, now, effects)
        for peer in [peer for peer, until in self._banned.items() if until <= now]:
            del self._banned[peer]
            del self._offences[peer]

    # Who misbehaves.

    def is_banned(self, peer: PeerId, now: float) -> bool:
        """Whether a peer gave a false value not long ago."""
        return bool(self._banned) and self._banned.get(peer, 0.0) > now

    def without_banned(self, peers: Sequence[KadPeer], now: float) -> Sequence[KadPeer]:
        """Leave out whoever is banned."""
        if not self._banned:
            return peers
        return [each for each in peers if not self.is_banned(each.peer, now)]

    # Who is named to others.

    def describe(self, peer: PeerId, now: float) -> KadPeer:
        """A peer as messages name it, with where it can be reached."""
        contact = self.table.get(peer)
        if contact is None:
            return _described(peer, self._reachable_at(peer))
        if contact.described is None or now - contact.described_at > self._config.recheck_after:
            contact.described = _described(peer, self._reachable_at(peer))
            contact.described_at = now
        return contact.described

    def described(self, peers: Iterable[PeerId], now: float) -> list[KadPeer]:
        """Several peers as messages name them."""
        get, fresh = self.table.get, now - self._config.recheck_after
        return [
            contact.described
            if (contact := get(peer)) is not None
            and contact.described is not None
            and contact.described_at >= fresh
            else self.describe(peer, now)
            for peer in peers
        ]

    def _reachable_at(self, peer: PeerId) -> tuple[bytes, ...]:
        return tuple(self._addresses(peer)[: self._config.limits.addresses])

    def punish(self, peer: PeerId, reason: str, now: float, effects: Effects) -> None:
        """A peer gave a value that cannot be what its key says: forget and avoid it."""
        effects.append(trace.Refuse(peer, reason))
        effects.append(trace.Penalise(peer, reason, OFFENCE_WEIGHT))
        self.table.remove(peer)
        take_out(self._checking, peer)
        config = self._config
        oldest = remember(self._banned, peer, now + config.ban_time, config.bans)
        if oldest is not None:
            del self._offences[oldest]
        offences = self._offences[peer] = self._offences.get(peer, 0) + 1
        if offences >= config.offences_before_disconnect and peer in self.connected:
            effects.append(Disconnect(peer, reason, keep_out=True))
