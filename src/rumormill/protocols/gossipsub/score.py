"""Peer scoring: what a peer's past behaviour says of it, as one number.

The score is that of GossipSub 1.1. Per topic: time in the mesh (P1) and first deliveries (P2)
count for a peer; too few deliveries while in the mesh (P3), leaving the mesh with such a deficit
(P3b) and invalid messages (P4) count against it. Over all topics: the application's opinion (P5),
peers at the same address (P6) and misbehaviour that the router reports (P7). Counters decay, so
the past fades. A peer that leaves with a score that is not positive is remembered for a while, so
that nobody sheds a bad name by reconnecting.

Penalties count at once. Rewards count from the next `refresh` on, as the time in the mesh does in
the specification: a score is therefore computed once per refresh and otherwise only read.

Where implementations differ: P3 ends when a peer leaves the mesh, as the specification words it
("peers in the mesh who are not delivering") and nim-libp2p does, and P3b remembers the deficit; in
go P3 stays on until the next GRAFT. A message's first sender gets no second P3 credit for a copy.
"""

from collections.abc import Callable
from typing import Final

from rumormill.core import trace
from rumormill.core.bounded import drop
from rumormill.core.effects import Effects
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.gossipsub import score_stats
from rumormill.protocols.gossipsub.reasons import OBVIOUSLY_INVALID
from rumormill.protocols.gossipsub.score_params import (
    PeerScoreParams,
    ScoreThresholds,
    TopicScoreParams,
)
from rumormill.protocols.gossipsub.score_stats import (
    UNKNOWN,
    VALID,
    PeerStats,
    TopicStats,
    count_mesh_delivery,
)
from rumormill.protocols.pubsub.reasons import (
    TOLERATED,
    VALIDATION_IGNORED,
    VALIDATION_THROTTLED,
)

_ROUNDING: Final = 1e-9
"""Times are floats: a whole number of intervals may come out a little below itself."""
_NOT_SHOWN: Final = PeerStats(earned=None)


class PeerScore:
    """The scores of all peers, connected and remembered.

    The router reports what peers do and asks for scores; topics are those that it takes part in.
    """

    __slots__ = (
        "_active", "_application_score", "_colocation", "_decayed_at", "_deliveries",
        "_earned_is_all", "_params", "_refreshed_at", "_retained", "_topic_params",
        "_tracks_mesh", "forgotten", "records", "tracks_deliveries", "untracked",
    )  # fmt: skip

    def __init__(
        self, params: PeerScoreParams, application_score: Callable[[PeerId], float] | None = None
    ) -> None:
        self.untracked = 0
        """Peers that found the table full of connected ones; they score 0."""
        self.forgotten = 0
        """Peers that left and were forgotten early to make room."""
        self._params = params
        self._application_score = application_score if params.application_weight else None
        self._colocation: score_stats.Colocation | None = None
        if params.ip_colocation_factor_weight:
            self._colocation = score_stats.Colocation(
                params.ip_colocation_factor_threshold, params.ip_colocation_factor_whitelist
            )
        self._earned_is_all = self._application_score is None and self._colocation is None
        self._active: dict[PeerId, PeerStats] = {}
        self._retained: dict[PeerId, PeerStats] = {}
        self._topic_params: dict[Topic, TopicScoreParams] = dict(params.topics)
        self._deliveries = score_stats.DeliveryRecords(
            params.delivery_record_ttl, params.delivery_records_max
        )
        self.records = self._deliveries.records
        """Messages of which a further copy matters to somebody's score."""
        self._decayed_at: float | None = None
        self._refreshed_at = 0.0
        self._note_what_counts()

    def _note_what_counts(self) -> None:
        scored = list(self._topic_params.values())
        if self._params.default_topic is not None:
            scored.append(self._params.default_topic)
        self._tracks_mesh = any(params.counts_mesh_deliveries for params in scored)
        self.tracks_deliveries = self._tracks_mesh or any(p.counts_invalid for p in scored)
        """Whether validations and duplicates need be reported. Deliveries and rejections always."""

    # The score.

    def score(self, peer: PeerId, now: float) -> float:
        """The peer's score; 0 for a peer of which nothing is known."""
        stats = self._active.get(peer)
        if stats is None:
            stats = self._retained.get(peer)
            if stats is None or now > stats.expires:
                return 0.0
        earned = stats.earned
        if earned is None:
            earned = self._compute_earned(stats)
        if self._earned_is_all:
            return earned
        return self._score_with_opinions(peer, stats, earned)

    def standing(self, peer: PeerId) -> PeerStats:
        """What shows a connected peer's score, unless others have a say in it."""
        return self._active.get(peer, _NOT_SHOWN) if self._earned_is_all else _NOT_SHOWN

    def _compute_earned(self, stats: PeerStats) -> float:
        """P1 to P4 under their cap, and P7."""
        earned = 0.0
        if stats.topics:
            for topic_stats in stats.topics.values():
                earned += self._topic_score(topic_stats)
        params = self._params
        cap = params.topic_score_cap
        if 0 < cap < earned:
            earned = cap
        excess = stats.behaviour - params.behaviour_penalty_threshold
        if excess > 0:
            earned += excess * excess * params.behaviour_penalty_weight
        earned = stats.earned = score_stats.saturated(earned)
        return earned

    def _topic_score(self, stats: TopicStats) -> float:
        params = stats.params
        score = 0.0
        if stats.grafted is not None and params.time_in_mesh_weight:
            time_in_mesh = max(0.0, self._refreshed_at - stats.grafted)
            quanta = int(time_in_mesh / params.time_in_mesh_quantum + _ROUNDING)
            score = min(float(quanta), params.time_in_mesh_cap) * params.time_in_mesh_weight
        if stats.first:
            score += stats.first * params.first_message_deliveries_weight
        if params.mesh_message_deliveries_weight:
            score += self._squared_deficit(stats) * params.mesh_message_deliveries_weight
        if stats.failure:
            score += stats.failure * params.mesh_failure_penalty_weight
        if stats.invalid:
            score += stats.invalid * stats.invalid * params.invalid_message_deliveries_weight
        return score * params.topic_weight

    def _squared_deficit(self, stats: TopicStats) -> float:
        """P3: how far a mesh peer that had time enough is below the expected deliveries."""
        params = stats.params
        deficit = params.mesh_message_deliveries_threshold - stats.mesh
        if stats.grafted is None or deficit <= 0:
            return 0.0
        if self._refreshed_at - stats.grafted <= params.mesh_message_deliveries_activation:
            return 0.0
        return deficit * deficit

    def _score_with_opinions(self, peer: PeerId, stats: PeerStats, earned: float) -> float:
        """Add P5 and P6, which change without the peer's doing."""
        params = self._params
        score = earned
        if self._application_score is not None:
            score += self._application_score(peer) * params.application_weight
        if self._colocation is not None:
            score += self._colocation.factor(stats.groups) * params.ip_colocation_factor_weight
        return score_stats.saturated(score)

    def scores(self) -> dict[PeerId, float]:
        """The scores of all connected peers."""
        return {peer: self.score(peer, 0.0) for peer in self._active}

    def evicted(self) -> dict[str, int]:
        """What full tables gave up, or did not take."""
        lost = self.untracked + self.forgotten
        return {"scores": lost, "delivery records": self._deliveries.evicted}

    # Peers come and go.

    def add_peer(self, peer: PeerId, address: str, now: float) -> None:
        """A peer connected; what is remembered of it counts on."""
        if self._decayed_at is None:
            self._decayed_at = self._refreshed_at = now
        stats = self._active.get(peer)
        if stats is None:
            stats = self._retained.pop(peer, None)
            if stats is not None and now > stats.expires:
                self._release(stats)
                stats = None
            if stats is None:
                if not self._make_room():
                    self.untracked += 1
                    return
                stats = PeerStats()
            self._active[peer] = stats
        if self._colocation is not None:
            self._colocation.remove(stats.groups)
            stats.groups = self._colocation.groups(address)
            self._colocation.add(stats.groups)

    def remove_peer(self, peer: PeerId, now: float) -> None:
        """A peer disconnected; it is forgotten only if that does not improve its score."""
        stats = self._active.get(peer)
        if stats is None:
            return
        stats.earned = None
        score = self.score(peer, now)
        drop(self._active, peer)
        if score > 0 or self._params.retain_score <= 0:
            self._release(stats)
            return
        if stats.topics:
            for topic_stats in stats.topics.values():
                topic_stats.first = 0.0
                self._leave_mesh(topic_stats)
            score_stats.drop_idle(stats.topics)
        if score == 0 and not stats.topics and not stats.behaviour and not stats.groups:
            return
        stats.earned = None
        stats.expires = now + self._params.retain_score
        self._retained[peer] = stats

    def _make_room(self) -> bool:
        """Make sure that one more peer fits; the longest gone makes way."""
        if len(self._active) + len(self._retained) < self._params.peers_max:
            return True
        if not self._retained:
            return False
        longest_gone = next(iter(self._retained))
        self._release(self._retained.pop(longest_gone))
        self.forgotten += 1
        return True

    def _release(self, stats: PeerStats) -> None:
        if self._colocation is not None:
            self._colocation.remove(stats.groups)

    # What peers do.

    def graft(self, peer: PeerId, topic: Topic, now: float) -> None:
        """A peer was taken into the mesh of a topic."""
        stats = self._active.get(peer)
        if stats is not None and (topic_stats := self._topic_stats(stats, topic)) is not None:
            before = self._topic_score(topic_stats)
            topic_stats.grafted = now
            if self._topic_score(topic_stats) != before:  # a heartbeat may graft in hundreds
                stats.earned = None

    def prune(self, peer: PeerId, topic: Topic, now: float) -> None:
        """A peer was taken out of the mesh of a topic."""
        stats = self._active.get(peer)
        if stats is not None and stats.topics:
            topic_stats = stats.topics.get(topic)
            if topic_stats is not None:
                self._leave_mesh(topic_stats)
                stats.earned = None

    def _leave_mesh(self, stats: TopicStats) -> None:
        """P3b: remember the deficit with which a peer leaves the mesh."""
        if stats.grafted is not None:
            stats.failure = min(
                stats.failure + self._squared_deficit(stats), score_stats.COUNTER_MAX
            )
            stats.grafted = None

    def add_penalty(self, peer: PeerId, count: float) -> None:
        """P7: a peer misbehaved, `count` times."""
        stats = self._active.get(peer) or self._retained.get(peer)
        if stats is not None and count > 0:
            stats.behaviour = min(stats.behaviour + count, score_stats.COUNTER_MAX)
            stats.earned = None

    def _topic_stats(self, stats: PeerStats, topic: Topic) -> TopicStats | None:
        """A peer's counters in a topic; None if the topic is not scored or there are too many."""
        topics = stats.topics
        if topics is None:
            topics = stats.topics = {}
        found = topics.get(topic)
        if found is None:
            params = self._topic_params.get(topic, self._params.default_topic)
            if params is None or len(topics) >= self._params.topics_per_peer_max:
                return None
            found = topics[topic] = TopicStats(params)
        return found

    # Messages.

    def validate_message(self, message_id: MessageId, now: float) -> None:
        """A new message enters validation."""
        if self.tracks_deliveries and message_id not in self.records:
            self._deliveries.open(message_id, now)

    def deliver_message(
        self, peer: PeerId, topic: Topic, message_id: MessageId, now: float
    ) -> None:
        """A message turned out valid; `peer` was the first to bring it."""
        stats = self._active.get(peer)
        if stats is not None:
            topics = stats.topics
            topic_stats = topics.get(topic) if topics else None
            if topic_stats is None:
                topic_stats = self._topic_stats(stats, topic)
            if topic_stats is not None:
                count, cap = topic_stats.first, topic_stats.params.first_message_deliveries_cap
                if count < cap:
                    topic_stats.first = min(cap, count + 1.0)
                if self._tracks_mesh and topic_stats.grafted is not None:
                    count_mesh_delivery(topic_stats)
        if self._tracks_mesh:
            params = self._topic_params.get(topic, self._params.default_topic)
            if params is not None and params.counts_mesh_deliveries:
                self._record_delivery(peer, topic, message_id, now)
                return
        record = self.records.get(message_id)
        if record is not None and record.status == UNKNOWN:
            del self.records[message_id]

    def _record_delivery(
        self, peer: PeerId, topic: Topic, message_id: MessageId, now: float
    ) -> None:
        record = self._deliveries.open(message_id, now)
        if record.status != UNKNOWN:
            return
        record.status = VALID
        record.sender = peer
        record.validated = now
        if record.peers:
            for other in record.peers:
                topic_stats = self._mesh_stats(other, topic)
                if other != peer and topic_stats is not None:
                    count_mesh_delivery(topic_stats)

    def _mesh_stats(self, peer: PeerId, topic: Topic) -> TopicStats | None:
        stats = self._active.get(peer)
        if stats is None or not stats.topics:
            return None
        topic_stats = stats.topics.get(topic)
        return None if topic_stats is None or topic_stats.grafted is None else topic_stats

    def reject_message(
        self, peer: PeerId, topic: Topic, message_id: MessageId, reason: str, now: float
    ) -> None:
        """A message was rejected; `reason` decides who pays."""
        if reason in OBVIOUSLY_INVALID:
            self.charge(peer, topic)
            record = self.records.get(message_id)
            if record is not None and record.status == UNKNOWN and record.peers is None:
                del self.records[message_id]
            return
        if not self.tracks_deliveries or reason in TOLERATED:
            return
        record = self._deliveries.open(message_id, now)
        if record.status != UNKNOWN:
            return
        others, record.peers = record.peers, None
        if reason == VALIDATION_THROTTLED:
            record.status = score_stats.THROTTLED
        elif reason == VALIDATION_IGNORED:
            record.status = score_stats.IGNORED
        else:
            record.status = score_stats.INVALID
            self.charge(peer, topic)
            for other in others or ():
                self.charge(other, topic)

    def duplicate_message(
        self, peer: PeerId, topic: Topic, message_id: MessageId, now: float
    ) -> None:
        """A peer brought a message that was seen before."""
        record = self.records.get(message_id)
        if record is None:
            return
        status = record.status
        if status == score_stats.INVALID:
            self.charge(peer, topic)
            return
        if status == UNKNOWN:
            if peer in self._active:
                if record.peers is None:
                    record.peers = {}
                record.peers[peer] = None
        elif status == VALID and peer != record.sender:
            topic_stats = self._mesh_stats(peer, topic)
            if topic_stats is None:
                return
            window = topic_stats.params.mesh_message_deliveries_window
            if now - record.validated > window + _ROUNDING:
                return
            if record.peers is None:
                record.peers = {}
            if peer not in record.peers:
                record.peers[peer] = None
                count_mesh_delivery(topic_stats)

    def announced(self, peer: PeerId, topic: Topic, message_id: MessageId, now: float) -> None:
        """P3: a mesh peer that we asked not to send a valid message has told us of it."""
        record = self.records.get(message_id)
        if record is not None and record.status == VALID:
            self.duplicate_message(peer, topic, message_id, now)

    def charge(self, peer: PeerId, topic: Topic) -> None:
        """P4: a peer brought an invalid message."""
        stats = self._active.get(peer) or self._retained.get(peer)
        if stats is None:
            return
        topic_stats = self._topic_stats(stats, topic)
        if topic_stats is not None:
            topic_stats.invalid += 1.0
        elif self._topic_params.get(topic, self._params.default_topic) is not None:
            # No counter is left for the topic; the message must not be free of charge for that.
            stats.behaviour = min(stats.behaviour + 1.0, score_stats.COUNTER_MAX)
        stats.earned = None

    # Time passes.

    def refresh(self, now: float) -> None:
        """Decay counters once per interval passed, and forget what is old. Call it often."""
        if self._decayed_at is None:
            self._decayed_at = self._refreshed_at = now
        intervals = int((now - self._decayed_at) / self._params.decay_interval + _ROUNDING)
        if intervals < 1:
            return
        self._decayed_at += intervals * self._params.decay_interval
        before, self._refreshed_at = self._refreshed_at, now
        self._deliveries.sweep(now)
        self._forget_retained(now)
        floor = self._params.decay_to_zero
        behaviour_decay = score_stats.faded_over(self._params.behaviour_penalty_decay, intervals)
        for stats in self._active.values():
            if stats.topics:
                self._refresh_topics(stats, stats.topics, before, intervals, floor)
            if stats.behaviour:
                faded = stats.behaviour * behaviour_decay
                stats.behaviour = faded if faded >= floor else 0.0
                stats.earned = None

    def _refresh_topics(
        self,
        stats: PeerStats,
        topics: dict[Topic, TopicStats],
        before: float,
        intervals: int,
        floor: float,
    ) -> None:
        """Decay a peer's counters; where nothing can have changed, its score stays computed."""
        idle = False
        for topic_stats in topics.values():
            if topic_stats.first or topic_stats.mesh or topic_stats.failure or topic_stats.invalid:
                score_stats.decay(topic_stats, intervals, floor)
                stats.earned = None
            elif topic_stats.grafted is None:
                idle = True
            elif stats.earned is not None:
                params = topic_stats.params
                longest = params.time_in_mesh_cap * params.time_in_mesh_quantum
                if before - topic_stats.grafted <= longest or params.mesh_message_deliveries_weight:
                    stats.earned = None
        if idle:
            score_stats.drop_idle(topics)

    def _forget_retained(self, now: float) -> None:
        retained = self._retained
        while retained and now > retained[longest_gone := next(iter(retained))].expires:
            self._release(retained.pop(longest_gone))


class Trust:
    """How far we trust a peer: its score, and what the thresholds make of it.

    With scoring off everybody has a score of zero, which every threshold accepts.
    """

    __slots__ = ("scores", "thresholds")

    def __init__(self, scores: PeerScore | None, thresholds: ScoreThresholds) -> None:
        self.scores = scores
        self.thresholds = thresholds

    def score(self, peer: PeerId, now: float) -> float:
        """The peer's score."""
        return 0.0 if self.scores is None else self.scores.score(peer, now)

    def gossips(self, peer: PeerId, now: float) -> bool:
        """Whether gossip is exchanged with the peer."""
        return self.scores is None or self.scores.score(peer, now) >= self.thresholds.gossip

    def publishes(self, peer: PeerId, now: float) -> bool:
        """Whether own messages are sent to the peer outside the mesh."""
        return self.scores is None or self.scores.score(peer, now) >= self.thresholds.publish

    def accepts_px(self, peer: PeerId, now: float) -> bool:
        """Whether peers that the peer offers are dialled."""
        return self.scores is None or self.scores.score(peer, now) >= self.thresholds.accept_px

    def penalise(self, peer: PeerId, reason: str, count: int, effects: Effects) -> None:
        """Count misbehaviour (P7)."""
        if self.scores is not None:
            self.scores.add_penalty(peer, count)
            effects.append(trace.Penalise(peer, reason, float(count)))
