"""Figures of a trace as it goes by: an observer that a dashboard's source attaches while somebody
watches.

`Aggregator` is for the trace of one node, on the path of each of its messages, so it is written for
speed; what its node counts anyway is not counted again. What an event's journey was is looked for
when somebody asks, in the entries that are kept: nothing is computed for it before. Everything is
bounded: entries, topics, peers, events and marks; what has no room is counted.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.trace import DeliverMessage, DuplicateMessage, RecvRPC, SendRPC
from rumormill.dashboard.figures import LATENCIES, cut, peer_text, percentile
from rumormill.dashboard.series import Series, rounded
from rumormill.trace.entries import Batch
from rumormill.trace.ledger import UNSPECIFIED

KEPT_ENTRIES: Final = 200_000
"""Of the trace, of those that journeys are made of: a minute of a busy node."""
MAX_TOPICS: Final = 2048
MAX_PEERS: Final = 4096
MAX_MARKS: Final = 256
RECENT: Final = 64
OTHER: Final = "(other)"
_MOST_STEPS: Final = 3600
"""Steps without an entry that are filled with nothing; a longer gap is left out."""


class TopicFigures(msgspec.Struct):
    """What is counted of a topic."""

    published: int = 0
    delivered: int = 0
    duplicates: int = 0
    rejected: int = 0
    latencies: list[int] = msgspec.field(default_factory=lambda: [0] * (len(LATENCIES) + 1))
    before: int = 0
    """Deliveries when the rate was last looked at."""
    rate: float = 0.0


class PeerFigures(msgspec.Struct):
    """What is counted of a peer: events that were new, and others."""

    delivered: int = 0
    duplicates: int = 0
    up: bool = True
    errors: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=4))


class Recent(msgspec.Struct):
    """An event that was seen lately; `expected` counts its subscribers, where that is known."""

    topic: Topic
    t: float
    author: PeerId | None = None
    deliveries: int = 0
    expected: int | None = None


class Mark(msgspec.Struct):
    """Something that a chart should show beside its figures."""

    t: float
    kind: str
    peer: str | None
    text: str


class Aggregator:
    """What is counted since it was attached, of one node's trace."""

    sample: Callable[[], dict[str, float | None]] | None = None
    """Tells what is so at the end of a step, of what the trace does not say."""

    def __init__(self, step: float = 1.0) -> None:
        self.series = Series(step)
        self.topics: dict[Topic, TopicFigures] = {}
        self.peers: dict[PeerId, PeerFigures] = {}
        self.recent: dict[MessageId, Recent] = {}
        self.marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self.marks_seen = 0
        """Marks so far, those included that had to go."""
        self.peers_left_out = 0
        self.now: float | None = None
        """When the last entry was recorded."""
        self.latencies = [0] * (len(LATENCIES) + 1)
        self.copies: dict[str, int] = {}
        self.messages_sent = self.bytes_sent = self.data_bytes = 0
        self.delivered = self.published = self.duplicates = self.rejected = self.failed = 0
        self.dropped_rpcs: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.rejections: dict[str, int] = {}
        self.sessions: dict[str, int] = {}
        self.partners: dict[PeerId, trace.SyncEnded] = {}
        self.partner_times: dict[PeerId, float] = {}
        self._kept: deque[Batch] = deque()
        self._kept_count = 0
        self._step_ends: float | None = None
        self._at_step = self._sums()
        self._step_latencies = [0] * (len(LATENCIES) + 1)
        self._handlers: dict[type, Callable[[float, PeerId, Any], None]] = {
            trace.PublishMessage: self._publish,
            trace.RejectMessage: self._reject,
            trace.FailPublish: self._fail,
            trace.DropRPC: self._drop,
            trace.Refuse: self._refuse,
            trace.Penalise: self._penalise,
            trace.SyncEnded: self._sync_ended,
            trace.Stabilised: self._stabilised,
        }

    def observe(self, batch: Batch) -> None:
        """Count the next entries."""
        handler_of = self._handlers.get
        sends: list[trace.RpcMeta] = []
        telling: Batch = []
        keep = telling.append
        entries: Any = batch  # the kind is looked at once per entry; below it is known
        for entry in entries:
            now, peer, payload = entry
            kind = type(payload)
            if kind is RecvRPC:  # which says nothing that is counted here, and is a third of all
                continue
            if self._step_ends is None or now >= self._step_ends:
                self._count_sends(sends)
                self.advance(now)
            if kind is SendRPC:
                sends.append(payload.meta)
                if payload.meta.messages:
                    keep(entry)
            elif kind is DeliverMessage:
                keep(entry)
                self._deliver(now, peer, payload)
            elif kind is DuplicateMessage:
                keep(entry)
                self._duplicate(peer, payload)
            elif (handler := handler_of(kind)) is not None:
                keep(entry)
                handler(now, peer, payload)
        self._count_sends(sends)
        self._keep(telling)
        self.now = batch[-1][0]

    def close(self) -> None:
        """What was counted stays readable when the trace has ended."""

    def _keep(self, batch: Batch) -> None:
        if not batch:
            return
        self._kept.append(batch)
        self._kept_count += len(batch)
        while self._kept_count - len(self._kept[0]) > KEPT_ENTRIES:
            self._kept_count -= len(self._kept.popleft())

    @property
    def kept(self) -> list[Batch]:
        """The last entries that speak of events, in batches that nobody changes."""
        return list(self._kept)

    # Steps of the series.

    def _sums(self) -> tuple[int, ...]:
        dropped = sum(self.dropped_rpcs.values())
        sent = self.messages_sent, self.data_bytes, self.bytes_sent - self.data_bytes
        return (self.delivered, *sent, dropped)

    def advance(self, now: float) -> None:
        """Close the steps that ended before a time, those without an entry too."""
        step = self.series.step
        if self._step_ends is None:
            self._step_ends = (now // step + 1) * step
            return
        if (now - self._step_ends) / step > _MOST_STEPS:
            self._close_step()
            self._step_ends = (now // step) * step
        while now >= self._step_ends:
            self._close_step()
            self._step_ends += step

    def _close_step(self) -> None:
        assert self._step_ends is not None
        sums = self._sums()
        new = [after - before for after, before in zip(sums, self._at_step, strict=True)]
        delivered, copies, data, control, dropped = new
        step = self.series.step
        point = {
            "deliveries": rounded(delivered / step),
            "copies": rounded(copies / delivered) if delivered else None,
            "bytes_data": rounded(data / step),
            "bytes_control": rounded(control / step),
            "dropped": rounded(dropped / step),
            "p50": percentile(self._step_latencies, 0.5),
            "p99": percentile(self._step_latencies, 0.99),
        }
        sampled = {} if self.sample is None else self.sample()
        self.series.add(round(self._step_ends, 6), point | sampled)
        self._at_step = sums
        self._step_latencies = [0] * (len(LATENCIES) + 1)
        for topic in self.topics.values():
            topic.rate = (topic.delivered - topic.before) / step
            topic.before = topic.delivered

    # What happened.

    def topic_figures(self, name: Topic) -> TopicFigures:
        """What is counted of a topic; those without room share a place."""
        found = self.topics.get(name)
        if found is None:
            if len(self.topics) >= MAX_TOPICS:
                name = OTHER
            found = self.topics.setdefault(name, TopicFigures())
        return found

    def peer_figures(self, peer: PeerId) -> PeerFigures:
        """What is counted of a peer; of those without room, that they are too many."""
        found = self.peers.get(peer)
        if found is None:
            found = PeerFigures()
            if len(self.peers) < MAX_PEERS:
                self.peers[peer] = found
            else:
                self.peers_left_out += 1
        return found

    def _count_sends(self, metas: list[trace.RpcMeta]) -> None:
        for meta in metas:
            self.bytes_sent += meta.size
            if meta.messages:
                self.data_bytes += meta.data_size
                self.messages_sent += len(meta.messages)
                if meta.cause:
                    self._add(self.copies, meta.cause, len(meta.messages))
        metas.clear()

    def _deliver(self, now: float, peer: PeerId, payload: DeliverMessage) -> None:
        topic = self.topics.get(payload.topic) or self.topic_figures(payload.topic)
        if payload.received_from != peer:
            self.delivered += 1
            topic.delivered += 1
            giver = payload.received_from
            (self.peers.get(giver) or self.peer_figures(giver)).delivered += 1
        self._note_recent(now, payload.message_id, payload.topic).deliveries += 1

    def _note_recent(self, now: float, message_id: MessageId, topic: Topic) -> Recent:
        found = self.recent.get(message_id)
        if found is None:
            found = Recent(topic, now)
            remember(self.recent, message_id, found, RECENT)
        return found

    def _duplicate(self, peer: PeerId, payload: DuplicateMessage) -> None:
        self.duplicates += 1
        (self.topics.get(payload.topic) or self.topic_figures(payload.topic)).duplicates += 1
        giver = payload.received_from
        (self.peers.get(giver) or self.peer_figures(giver)).duplicates += 1
        if payload.cause:
            self._add(self.copies, payload.cause, 1)

    def _publish(self, now: float, peer: PeerId, payload: trace.PublishMessage) -> None:
        self.published += 1
        self.topic_figures(payload.topic).published += 1
        self._note_recent(now, payload.message_id, payload.topic).author = peer

    def _reject(self, now: float, peer: PeerId, payload: trace.RejectMessage) -> None:
        self.rejected += 1
        self._add(self.rejections, payload.reason or UNSPECIFIED, 1)
        self.topic_figures(payload.topic).rejected += 1
        self._complain(payload.received_from, payload.reason)

    def _fail(self, now: float, peer: PeerId, payload: trace.FailPublish) -> None:
        self.failed += 1

    def _drop(self, now: float, peer: PeerId, payload: trace.DropRPC) -> None:
        self._add(self.dropped_rpcs, payload.reason, 1)

    def _refuse(self, now: float, peer: PeerId, payload: trace.Refuse) -> None:
        self._add(self.refused, payload.reason, payload.count)
        self._complain(payload.peer, payload.reason)

    def _penalise(self, now: float, peer: PeerId, payload: trace.Penalise) -> None:
        self._complain(payload.peer, payload.reason)

    def _complain(self, peer: PeerId, reason: str) -> None:
        errors = self.peer_figures(peer).errors
        if not errors or errors[-1] != reason:
            errors.append(cut(reason, 80))

    def _sync_ended(self, now: float, peer: PeerId, payload: trace.SyncEnded) -> None:
        self._add(self.sessions, payload.outcome, 1)
        if payload.peer in self.partners or len(self.partners) < MAX_PEERS:
            self.partners[payload.peer] = payload
            self.partner_times[payload.peer] = now

    def _stabilised(self, now: float, peer: PeerId, payload: trace.Stabilised) -> None:
        is_so = "is legitimate" if payload.legitimate else "is not legitimate"
        self.mark(now, "ring", None, f"the ring of {cut(payload.topic, 40)} {is_so}")

    def mark(self, now: float, kind: str, peer: PeerId | None, text: str) -> None:
        """Note something for the charts."""
        self.marks.append(Mark(now, kind, None if peer is None else peer_text(peer), text))
        self.marks_seen += 1

    def marks_section(self, after: int) -> list[dict[str, Any]]:
        """Marks that are new to a viewer who has so many."""
        fresh = self.marks_seen - after
        return [asdict(mark) for mark in list(self.marks)[-fresh:]] if fresh > 0 else []

    def partner_rows(self, most: int) -> list[dict[str, Any]]:
        """How the last comparison of histories with each partner ended, the latest partners."""
        return [
            {
                "peer": peer_text(peer),
                "last": self.partner_times[peer],
                "outcome": cut(ended.outcome, 80),
                "events": ended.events,
                "unequal": ended.unequal,
            }
            for peer, ended in list(self.partners.items())[-most:]
        ]

    def recent_section(self) -> dict[str, Any]:
        """The events that were seen last, the newest first."""
        rows = []
        for message_id, each in reversed(self.recent.items()):
            row: dict[str, Any] = {
                "id": message_id.hex(),
                "topic": each.topic,
                "t": each.t,
                "author": None if each.author is None else peer_text(each.author),
                "deliveries": each.deliveries,
            }
            if each.expected is not None:
                row["complete"] = each.deliveries >= each.expected
            rows.append(row)
        return {"rows": rows}

    def count_latency(self, latency: float, topic: TopicFigures) -> None:
        """Count how long an event took to a subscriber."""
        box = bisect_left(LATENCIES, latency)
        self.latencies[box] += 1
        self._step_latencies[box] += 1
        topic.latencies[box] += 1

    @staticmethod
    def _add(counts: dict[str, int], name: str, count: int) -> None:
        if name not in counts and len(counts) >= RECENT:
            name = OTHER
        counts[name] = counts.get(name, 0) + count
