"""Peer exchange (GossipSub 1.1): a peer that we cannot keep is offered others in our place.

A PRUNE may name peers of the topic, each with the signed record of its addresses where we know it.
Whoever is pruned dials them, if it trusts us enough and the records hold. What a record is made of
is the runtime's business, which checks it.
"""

from rumormill.core import trace
from rumormill.core.effects import Connect, Effects
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.peers import PeerTable
from rumormill.protocols.pubsub.messages import PeerInfo
from rumormill.protocols.registry import Hooks


class PeerExchange:
    """Offers peers and heeds offers."""

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
