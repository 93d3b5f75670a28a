"""Figures of the trace of a whole network: of a simulation, or of a file.

Here the books of `trace.ledger` are kept besides, so that what is shown as published, delivered,
pending and dropped is what they say; latencies and copies are counted as `trace.metrics` does.
"""

from collections import deque
from collections.abc import Container
from typing import Any, Final

from rumormill.core import trace
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.trace import DeliverMessage, DuplicateMessage
from rumormill.dashboard.aggregate import Aggregator
from rumormill.dashboard.figures import cut
from rumormill.trace.ledger import NEW, Ledger

MAX_LINKS: Final = 50_000
MAX_ROWS: Final = 200
"""Publications of a topic that are kept for its tail."""
SYNC: Final = "sync"
MESH: Final = "mesh"
CONNECTED: Final = "connected"
_PARTITIONED: Final = "partition"
_QUIET: Final = 1.0
"""Seconds without a drop after which the next one is a mark again."""

Link = tuple[str, PeerId, Topic]
"""Its kind, to whom, in which topic."""


class TraceAggregator(Aggregator):
    """What is counted of everybody's trace."""

    def __init__(self, step: float = 1.0) -> None:
        super().__init__(step)
        self.ledger = Ledger()
        self.links: dict[PeerId, dict[Link, None]] = {}
        self.links_left_out = 0
        self.legitimate: dict[Topic, bool] = {}
        self.spread = 0
        """Deliveries to others than the publisher, without what came by sync."""
        self._link_count = 0
        self._published: dict[MessageId, tuple[float, PeerId, int]] = {}
        """Of each event that the ledger follows: when, by whom, and how many were before it."""
        self._rows: dict[Topic, deque[tuple[float, MessageId, PeerId]]] = {}
        self._synced: dict[tuple[MessageId, PeerId], None] = {}
        self._partitioned: float | None = None
        self._handlers |= {
            trace.UndeliverableMessage: self._undeliver,
            trace.Join: self._enter,
            trace.Leave: self._enter,
            trace.NodeUp: self._node_up,
            trace.NodeDown: self._node_down,
            trace.Graft: self._graft,
            trace.Prune: self._prune,
            trace.AddPeer: self._add_peer,
            trace.RemovePeer: self._remove_peer,
        }

    def _enter(self, now: float, peer: PeerId, payload: Any) -> None:
        self.ledger.enter(peer, payload)

    def _publish(self, now: float, peer: PeerId, payload: trace.PublishMessage) -> None:
        message_id, opened = payload.message_id, self.ledger.opened
        expected = self.ledger.publish(peer, payload)
        super()._publish(now, peer, payload)
        recent = self.recent[message_id]
        recent.t, recent.expected = now, expected
        if payload.topic in self.topics:  # and does not share a place with others
            rows = self._rows.setdefault(payload.topic, deque(maxlen=MAX_ROWS))
            rows.append((now, message_id, peer))
        if self.ledger.opened == opened:
            return  # it was published before, or there is no room to follow it
        self.ledger.register(peer)
        self._published[message_id] = (now, peer, opened)
        for early in self.ledger.take_early(message_id):
            self._count_delivery(now, *early)

    def _deliver(self, now: float, peer: PeerId, payload: DeliverMessage) -> None:
        self._note_recent(now, payload.message_id, payload.topic).deliveries += 1
        self._count_delivery(now, peer, payload)

    def _count_delivery(self, now: float, peer: PeerId, payload: DeliverMessage) -> None:
        if self.ledger.deliver(peer, payload) != NEW:
            return
        self.delivered += 1
        topic = self.topics.get(payload.topic) or self.topic_figures(payload.topic)
        topic.delivered += 1
        (self.peers.get(peer) or self.peer_figures(peer)).delivered += 1
        published_at, author, _ = self._published[payload.message_id]
        if peer != author:
            if payload.via == SYNC:
                self._synced[payload.message_id, peer] = None
            else:
                self.spread += 1
            self.count_latency(round(now - published_at, 9), topic)

    def _undeliver(self, now: float, peer: PeerId, payload: trace.UndeliverableMessage) -> None:
        if self.ledger.undeliver(peer, payload):
            self.delivered -= 1
            self.topic_figures(payload.topic).delivered -= 1
            key = (payload.message_id, peer)
            if key in self._synced:
                del self._synced[key]
            elif self._published[payload.message_id][1] != peer:
                self.spread -= 1

    def _duplicate(self, peer: PeerId, payload: DuplicateMessage) -> None:
        self.duplicates += 1
        self.topic_figures(payload.topic).duplicates += 1
        self.peer_figures(peer).duplicates += 1
        if payload.cause:
            self._add(self.copies, payload.cause, 1)

    def _reject(self, now: float, peer: PeerId, payload: trace.RejectMessage) -> None:
        super()._reject(now, peer, payload)
        self.ledger.reject(peer, payload)

    def _fail(self, now: float, peer: PeerId, payload: trace.FailPublish) -> None:
        super()._fail(now, peer, payload)
        self.ledger.fail(peer, payload)

    def _drop(self, now: float, peer: PeerId, payload: trace.DropRPC) -> None:
        super()._drop(now, peer, payload)
        self.ledger.enter(peer, payload)
        if _PARTITIONED in payload.reason:
            if self._partitioned is None or now - self._partitioned > _QUIET:
                self.mark(now, "partition", None, "messages are lost to a partition")
            self._partitioned = now

    def _stabilised(self, now: float, peer: PeerId, payload: trace.Stabilised) -> None:
        if self.legitimate.get(payload.topic) != payload.legitimate:
            super()._stabilised(now, peer, payload)
            self.legitimate[payload.topic] = payload.legitimate

    # Who is there, and linked with whom.

    def _node_up(self, now: float, peer: PeerId, payload: trace.NodeUp) -> None:
        self._enter(now, peer, payload)
        known = peer in self.peers
        figures = self.peer_figures(peer)
        if known and not figures.up:
            self.mark(now, "start", peer, "is back")
        figures.up = True

    def _node_down(self, now: float, peer: PeerId, payload: trace.NodeDown) -> None:
        self._enter(now, peer, payload)
        self.peer_figures(peer).up = False
        self._link_count -= len(self.links.pop(peer, {}))
        self.mark(now, "kill", peer, cut(payload.reason, 80) or "is down")

    def _graft(self, now: float, peer: PeerId, payload: trace.Graft) -> None:
        self._link(peer, (MESH, payload.peer, payload.topic))

    def _prune(self, now: float, peer: PeerId, payload: trace.Prune) -> None:
        self._unlink(peer, (MESH, payload.peer, payload.topic))

    def _add_peer(self, now: float, peer: PeerId, payload: trace.AddPeer) -> None:
        self.peer_figures(peer)
        self._link(peer, (CONNECTED, payload.peer, ""))

    def _remove_peer(self, now: float, peer: PeerId, payload: trace.RemovePeer) -> None:
        self._unlink(peer, (CONNECTED, payload.peer, ""))

    def _link(self, peer: PeerId, link: Link) -> None:
        of_peer = self.links.setdefault(peer, {})
        if link in of_peer:
            return
        if self._link_count >= MAX_LINKS:
            self.links_left_out += 1
            return
        of_peer[link] = None
        self._link_count += 1

    def _unlink(self, peer: PeerId, link: Link) -> None:
        of_peer = self.links.get(peer, {})
        if link in of_peer:
            del of_peer[link]
            self._link_count -= 1

    def expecting(self, message_id: MessageId) -> list[PeerId] | None:
        """Who is up and should have an event by now; None if it is not known here."""
        known = self._published.get(message_id)
        recent = self.recent.get(message_id)
        if known is None or recent is None:
            return None
        peers = list(self.ledger.index)
        found = self.ledger.subscribers().get(recent.topic, [])
        return [peers[number] for before, number in found if before <= known[2]]

    def busiest(self, among: Container[Topic]) -> Topic:
        """The topic with most publications, of some; none if nothing was published there."""
        counts = {name: each.published for name, each in self.topics.items() if name in among}
        return max(counts, key=lambda name: counts[name], default="")

    def published_in(self, topic: Topic) -> tuple[list[tuple[float, MessageId, PeerId]], int]:
        """The last publications in a topic, and how many there were."""
        rows = self._rows.get(topic, ())
        return list(rows), self.topics[topic].published if topic in self.topics else 0
