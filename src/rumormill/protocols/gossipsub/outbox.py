"""Control messages that wait for the next RPC to their peer.

GRAFT and PRUNE change state on both sides, so one that could not be sent is kept and sent again
with the next RPC, if it is still true then; gossip that could not be sent is not, since the next
heartbeat gossips anew (1.0, "Control message piggybacking").
"""

import msgspec

from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.pubsub.messages import Control, IHave, Prune


class _Waiting(msgspec.Struct):
    """What waits for one peer; one GRAFT or PRUNE per topic, the latest."""

    ihave: list[IHave] = []
    graft: dict[Topic, None] = {}
    prune: dict[Topic, Prune] = {}


class Outbox:
    """Waiting control messages by peer. Bounded by our own topics for each connected peer."""

    def __init__(self, mesh: dict[Topic, dict[PeerId, None]]) -> None:
        self._mesh = mesh
        self.pending: dict[PeerId, _Waiting] = {}

    def _for(self, peer: PeerId) -> _Waiting:
        waiting = self.pending.get(peer)
        if waiting is None:
            waiting = self.pending[peer] = _Waiting()
        return waiting

    def ihave(self, peer: PeerId, ihave: IHave) -> None:
        """Add gossip."""
        self._for(peer).ihave.append(ihave)

    def graft(self, peer: PeerId, topic: Topic) -> None:
        """Add a GRAFT, which undoes a waiting PRUNE of the topic."""
        waiting = self._for(peer)
        waiting.prune.pop(topic, None)
        waiting.graft[topic] = None

    def prune(self, peer: PeerId, prune: Prune) -> None:
        """Add a PRUNE, which undoes a waiting GRAFT of the topic."""
        waiting = self._for(peer)
        waiting.graft.pop(prune.topic, None)
        waiting.prune[prune.topic] = prune

    def retry(self, peer: PeerId, lost: Control) -> None:
        """Keep the GRAFTs and PRUNEs of a control message that could not be sent.

        What was added since then is newer and stays.
        """
        if not lost.graft and not lost.prune:
            return
        waiting = self._for(peer)
        for topic in lost.graft:
            if topic not in waiting.prune:
                waiting.graft[topic] = None
        for prune in lost.prune:
            if prune.topic not in waiting.graft:
                waiting.prune.setdefault(prune.topic, prune)

    def take(self, peer: PeerId) -> Control | None:
        """Remove and return what waits for a peer, without what is no longer true."""
        waiting = self.pending.pop(peer, None)
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
        self.pending.pop(peer, None)
