"""What peers are told about links: control messages that wait for an RPC, and peers that we offer.

GRAFT and PRUNE change state on both sides, so one that could not be sent is kept and sent again
with the next RPC, if it is still true then; gossip that could not be sent is not, since the next
heartbeat gossips anew (1.0, "Control message piggybacking").

A PRUNE may name peers of the topic, each with the signed record of its addresses where we know it:
a peer that we cannot keep is offered others in our place (1.1, peer exchange). Whoever is pruned
dials them, if it trusts us enough and the records hold. What a record is made of is the runtime's
business, which checks it.
"""

from collections import defaultdict

import msgspec

from rumormill.core import trace
from rumormill.core.bounded import take_out
from rumormill.core.effects import Connect, Effects
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.peers import PeerTable
from rumormill.protocols.pubsub.messages import Control, IHave, PeerInfo, Prune
from rumormill.protocols.registry import Hooks


class _Waiting(msgspec.Struct):
    """What waits for one peer; one GRAFT or PRUNE per topic, the latest."""

    ihave: list[IHave] = []
    graft: dict[Topic, None] = {}
    prune: dict[Topic, Prune] = {}


class Outbox:
    """Waiting control messages by peer. Bounded by our own topics for each connected peer."""

    __slots__ = ("_mesh", "pending")

    def __init__(self, mesh: dict[Topic, dict[PeerId, None]]) -> None:
        self._mesh = mesh
        self.pending: defaultdict[PeerId, _Waiting] = defaultdict(_Waiting)

    def ihave(self, peer: PeerId, ihave: IHave) -> None:
        """Add gossip."""
        self.pending[peer].ihave.append(ihave)

    def graft(self, peer: PeerId, topic: Topic) -> None:
        """Add a GRAFT, which undoes a waiting PRUNE of the topic."""
        waiting = self.pending[peer]
        waiting.prune.pop(topic, None)
        waiting.graft[topic] = None

    def prune(self, peer: PeerId, prune: Prune) -> None:
        """Add a PRUNE, which undoes a waiting GRAFT of the topic."""
        waiting = self.pending[peer]
        waiting.graft.pop(prune.topic, None)
        waiting.prune[prune.topic] = prune

    def retry(self, peer: PeerId, lost: Control) -> None:
        """Keep the GRAFTs and PRUNEs of a control message that could not be sent.

        What was added since then is newer and stays.
        """
        if not lost.graft and not lost.prune:
            return
        waiting = self.pending[peer]
        for topic in lost.graft:
            if topic not in waiting.prune:
                waiting.graft[topic] = None
        for prune in lost.prune:
            if prune.topic not in waiting.graft:
                waiting.prune.setdefault(prune.topic, prune)

    def take(self, peer: PeerId) -> Control | None:
        """Remove and return what waits for a peer, without what is no longer true."""
        waiting = take_out(self.pending, peer)
        if waiting is None:
            return None
        mesh = self._mesh
        graft = tuple(topic for topic in waiting.graft if peer in mesh.get(topic, ()))
        prune = tuple(p for p in waiting.prune.values() if peer not in mesh.get(p.topic, ()))
        if not waiting.ihave and not graft and not prune:
            return None
        return Control(ihave=tuple(waiting.ihave), graft=graft, prune=prune)

    def forget_peer(self, peer: PeerId) -> None:
        """Drop what waits for a peer that is gone."""
        take_out(self.pending, peer)


class PeerExchange:
    """Offers peers and heeds offers."""

    __slots__ = ("_check", "_limit", "_randomness", "_records", "_table", "_trust")

    def __init__(self, table: PeerTable, hooks: Hooks) -> None:
        self._limit = table.config.prune_peers
        self._table, self._trust, self._randomness = table, table.trust, table.randomness
        self._records = hooks.peer_records
        self._check = hooks.check_record

    def offer(self, topic: Topic, to: PeerId, now: float) -> tuple[PeerInfo, ...]:
        """Choose peers of the topic whose score is not negative."""
        good = [
            peer
            for peer in self._table.topics.get(topic, ())
            if peer != to and self._trust.score(peer, now) >= 0
        ]
        chosen = self._randomness.sample(good, min(self._limit, len(good)))
        return tuple(PeerInfo(peer, self._records.get(peer, b"")) for peer in chosen)

    def accept(
        self, me: PeerId, peer: PeerId, offered: tuple[PeerInfo, ...], now: float, effects: Effects
    ) -> None:
        """Dial the peers that a trusted peer offers, if their records hold."""
        if not self._trust.accepts_px(peer, now):
            effects.append(trace.Refuse(peer, reasons.BELOW_PX_THRESHOLD, count=len(offered)))
            return
        if len(offered) > self._limit:
            refused = len(offered) - self._limit
            effects.append(trace.Refuse(peer, reasons.PX_TOO_MANY_PEERS, count=refused))
            offered = tuple(self._randomness.sample(offered, self._limit))
        for info in offered:
            if info.peer in self._table.peers or info.peer == me:
                continue
            if info.record and (self._check is None or not self._check(info.peer, info.record)):
                effects.append(trace.Refuse(peer, reasons.PX_BAD_RECORD))
                continue
            effects.append(Connect(info.peer, info.record))
