"""Metrics: the figures of a run, computed from its trace alone.

The rules: the same trace gives the same figures, whatever recorded it; nothing is sampled or
estimated; a ratio without a denominator is `None`, never zero. Percentiles are nearest-rank: the
q-th percentile of n values is the value of rank ceil(q·n/100), so it is always one of them.

What counts as a delivery is the ledger's business (`trace.ledger`). A *remote* delivery is one at
another peer than the publisher. Latency and hops are those of remote deliveries to subscribers
that were expected when the event was published, at their first delivery.

Relative message redundancy is that of J. Leitão, J. Pereira, L. Rodrigues, "Epidemic Broadcast
Trees", SRDS 2007: m / (n − 1) − 1, with m the copies of an event that were sent and n the peers
that have it. Here n − 1 is the number of remote deliveries, and the figure is the mean over the
events that reached anybody.

Hops are counted along first arrivals: the publisher has 0, and a peer has one more than the peer
whose copy reached it first (RECV_RPC, which covers relays that do not subscribe; or, where a trace
lacks it, the DELIVER_MESSAGE's `receivedFrom`). Entries must be in the order of time.

What a peer was asked to publish and did not counts as owed to everybody who would have been owed
it: no ratio is better for a refusal. What was planned for a peer that was down or hostile then is
counted beside, since no protocol could have made it.

What was fetched by sync is delivered, as late as it is, and counts as such everywhere. But where
the copies that a protocol sent are set against deliveries, only those count that they made: sync
sends no copies, and what it sends instead has figures of its own.

Memory: eight bytes per remote delivery, eight per peer and event (`trace.completeness`), and two
per peer and event that is not delivered everywhere yet, besides the ledger's one.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

import msgspec

from rumormill.core import trace
from rumormill.core.ids import MessageId, PeerId
from rumormill.core.trace import DuplicateMessage, RecvRPC, SendRPC
from rumormill.trace.completeness import Completeness
from rumormill.trace.entries import Batch
from rumormill.trace.leaving import Leaving
from rumormill.trace.ledger import EXTRA, NEW, UNSPECIFIED, Ledger

REACH_LEVELS = (50, 90, 99, 100)
"""The percentages of an event's subscribers whose time to be reached is reported."""

_COUNTED: Final[dict[type, str]] = {
    trace.FailPublish: "failed_publications",
    trace.SkipPublish: "skipped_publications",
    trace.DropRPC: "rpcs_dropped",
    trace.RejectMessage: "rejected",
    trace.Refuse: "refused",
    trace.Penalise: "penalties",
}
"""Kinds that are counted by their reason, under these names."""

SYNC: Final = "sync"
"""How a delivery came that was fetched; the operations of sync begin with it and a blank."""

_SYNC_OPERATION: Final = f"{SYNC} "
_CONTROLS: Final = trace.ControlMeta.__struct_fields__
_MAX_HOPS = 65_000
_NOBODY = 1 << 62


def nearest_rank(ordered: Sequence[float], percent: int) -> float | None:
    """Return the percentile of values in ascending order; `None` if there are none."""
    if not ordered:
        return None
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(rank, 1) - 1]


def ratio(numerator: float, denominator: float) -> float | None:
    """Divide; `None` if there is nothing to divide by."""
    return numerator / denominator if denominator else None


class _Spread(msgspec.Struct):
    """How one event spreads. `hops` holds each peer's hops + 1 by its number, 0 if not there."""

    publisher: PeerId
    published_at: float
    expected: int
    hops: "array[int] | None" = None
    copies: int = 0
    received: int = 0
    reached: int = 0
    level: int = 0
    need: int = 0

    def __post_init__(self) -> None:
        self.need = self.need_at(0)

    def need_at(self, level: int) -> int:
        """Return how many subscribers make up a level of `REACH_LEVELS`."""
        return -(-self.expected * REACH_LEVELS[level] // 100)


class Metrics:
    """An observer that computes the figures of a run; `summary` returns them."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._spreads: dict[MessageId, _Spread] = {}
        self._duplicates = self._own = 0
        self._causes: dict[str, int] = {}
        self._messages_sent = self._rpcs_sent = self._bytes_sent = self._data_bytes = 0
        self._load: Counter[PeerId] = Counter()
        self._latencies = array("d")
        self._reach = tuple(array("d") for _ in REACH_LEVELS)
        self._hops_sum = self._hops_max = self._hops_known = 0
        self._completeness = Completeness(self.ledger)
        self._leaving = Leaving()
        self._synced: dict[tuple[MessageId, PeerId], None] = {}
        """Remote deliveries that came by sync."""
        self._sessions: dict[str, int] = {}
        self._fetched = self._sync_bytes = self._sync_data = 0
        self._control: dict[str, int] = {}
        self._counts: dict[str, dict[str, int]] = {name: {} for name in _COUNTED.values()}
        self._handlers: dict[type, Callable[[float, PeerId, Any], object]] = {
            trace.PublishMessage: self._publish,
            trace.FailPublish: self._fail,
            trace.DeliverMessage: self._deliver,
            trace.UndeliverableMessage: self._undeliver,
            trace.Join: self._join,
            trace.Leave: self._leave,
            trace.NodeUp: self._node_up,
            trace.NodeDown: self._node_down,
            trace.SyncEnded: self._sync_ended,
        }

    def observe(self, batch: Batch) -> None:
        """Add a batch of a trace."""
        handler_of = self._handlers.get
        spread_of = self._spreads.get
        index, gone = self.ledger.index, self._leaving.gone
        senders: list[PeerId] = []
        sent: list[trace.RpcMeta] = []
        duplicates = 0
        entries: Any = batch  # the kind is looked at once per entry; below it is known
        for now, peer, payload in entries:
            kind = type(payload)
            if kind is SendRPC:
                meta = payload.meta
                sent.append(meta)
                for message in meta.messages:
                    senders.append(peer)
                    spread = spread_of(message.message_id)
                    if spread is not None:
                        spread.copies += 1
            elif kind is RecvRPC:
                if peer in gone:
                    self._leaving.receive(peer, payload.meta.messages)
                for message in payload.meta.messages:
                    spread = spread_of(message.message_id)
                    if spread is not None and (hops := spread.hops) is not None:
                        number = index.get(peer, _NOBODY)
                        if number >= len(hops) or not hops[number]:
                            self._arrive(spread, peer, payload.received_from)
            elif kind is DuplicateMessage:
                duplicates += 1
                if payload.cause:
                    _add(self._causes, payload.cause, 1)
            else:
                handler_of(kind, self._enter)(now, peer, payload)
        self._duplicates += duplicates
        self._messages_sent += len(senders)
        self._load.update(senders)
        self._rpcs_sent += len(sent)
        # One meta is sent to many: what does not depend on the order is counted for all at once.
        metas = dict(zip(map(id, sent), sent, strict=True))
        for number, times in Counter(map(id, sent)).items():
            self._count_sent(metas[number], times)

    def close(self) -> None:
        """Settle the ledger: the run is over."""
        self.ledger.close()

    def summary(self) -> dict[str, Any]:
        """Return every figure under its name, always in the same order, ready for JSON.

        Times are seconds; `None` stands where a figure has nothing to be computed from.
        """
        total = self.ledger.total()
        remote = total.delivered - self._own
        spread = remote - len(self._synced)
        latencies = _whole_nanoseconds(self._latencies)
        redundancies = [
            spread.copies / spread.received - 1
            for spread in self._spreads.values()
            if spread.received
        ]
        load = sorted(self._load.get(peer, 0) for peer in self._peers())
        load_mean = ratio(sum(load), len(load)) or 0
        published = total.published + self.ledger.untracked
        unmade = ("failed_publications", "skipped_publications")
        return {
            "planned": published + sum(sum(self._counts[name].values()) for name in unmade),
            "published": published,
            "expected_deliveries": total.expected,
            "delivered": total.delivered,
            "pending": total.pending,
            "delivery_ratio": ratio(total.delivered, total.expected),
            "remote_deliveries": remote,
            "extra_deliveries": total.extra,
            "repeated_deliveries": total.repeated,
            "messages_sent": self._messages_sent,
            "messages_per_delivery": ratio(self._messages_sent, spread),
            "copies_by_cause": self._copies_by_cause(),
            "duplicates": self._duplicates,
            "duplicates_per_delivery": ratio(self._duplicates, spread),
            "rmr": ratio(sum(redundancies), len(redundancies)),
            "latency_p50": nearest_rank(latencies, 50),
            "latency_p90": nearest_rank(latencies, 90),
            "latency_p99": nearest_rank(latencies, 99),
            "latency_max": nearest_rank(latencies, 100),
            "hops_max": self._hops_max if self._hops_known else None,
            "hops_mean": ratio(self._hops_sum, self._hops_known),
            "time_to_reach": self._times_to_reach(),
            **self._completed(),
            "rpcs_sent": self._rpcs_sent,
            "control_bytes": self._bytes_sent - self._data_bytes,
            "data_bytes": self._data_bytes,
            "control_messages": dict(sorted(self._control.items())),
            "load_max_over_mean": ratio(nearest_rank(load, 100) or 0, load_mean),
            "load_p99_over_mean": ratio(nearest_rank(load, 99) or 0, load_mean),
            "sync": {
                "sessions": dict(sorted(self._sessions.items())),
                "events": self._fetched,
                "deliveries": len(self._synced),
                "control_bytes": self._sync_bytes - self._sync_data,
                "data_bytes": self._sync_data,
            },
            "unsubscribed": self._leaving.figures(),
            "dropped": total.dropped,
            **{name: dict(sorted(counts.items())) for name, counts in self._counts.items()},
        }

    def _peers(self) -> Mapping[PeerId, int]:
        """Every peer that started, joined, took part in a spread, or sent a message."""
        for peer in self._load:
            self.ledger.register(peer)
        return self.ledger.index

    def _copies_by_cause(self) -> dict[str, int]:
        """Every copy that was sent under one cause; what nobody named was ordinary spreading."""
        ordinary = self._messages_sent - sum(self._causes.values())
        return {trace.SPREAD: ordinary, **dict(sorted(self._causes.items()))}

    def _times_to_reach(self) -> dict[str, dict[str, float | int | None]]:
        levels = {}
        for percent, times in zip(REACH_LEVELS, self._reach, strict=True):
            ordered = _whole_nanoseconds(times)
            levels[str(percent)] = {
                "events": len(ordered),
                "median": nearest_rank(ordered, 50),
                "max": nearest_rank(ordered, 100),
            }
        return levels

    def _completed(self) -> dict[str, Any]:
        """An event that is not complete takes longer than any: a percentile may fall on one."""
        pairs, missing, times = self._completeness.judge()
        ranks = {"p50": 50, "p99": 99, "max": 100}
        found = {name: nearest_rank(times, percent) for name, percent in ranks.items()}
        return {
            "complete_ratio": ratio(pairs - missing, pairs),
            "time_to_complete": {
                "events": len(times),
                "incomplete": times.count(inf),
                **{name: None if time == inf else time for name, time in found.items()},
            },
        }

    def _publish(self, now: float, peer: PeerId, payload: trace.PublishMessage) -> None:
        message_id = payload.message_id
        expected = self.ledger.publish(peer, payload)
        if message_id in self._spreads or self.ledger.untracked:
            return
        publisher = self.ledger.register(peer)
        self._spreads[message_id] = spread = _Spread(peer, now, expected)
        self._completeness.publish(now, message_id, payload.topic)
        if expected:
            spread.hops = array("H", bytes(2 * len(self.ledger.index)))
            spread.hops[publisher] = 1
        for early in self.ledger.take_early(message_id):
            self._count_delivery(now, *early)

    def _fail(self, now: float, peer: PeerId, payload: trace.FailPublish) -> None:
        if self.ledger.fail(peer, payload):
            self._completeness.fail(now, payload.topic)
        _add(self._counts["failed_publications"], payload.reason, 1)

    def _arrive(self, spread: _Spread, peer: PeerId, sender: PeerId) -> int:
        """Note a peer's hops at its first copy; return them + 1, 0 if nobody knows them."""
        hops = spread.hops
        if hops is None:
            return 0
        register = self.ledger.register
        number, before = register(peer), register(sender)
        known = len(hops)
        if known <= number or known <= before:
            hops.extend([0] * (len(self.ledger.index) - known))
        if not hops[number] and hops[before]:
            hops[number] = min(hops[before] + 1, _MAX_HOPS)
        return hops[number]

    def _deliver(self, now: float, peer: PeerId, payload: trace.DeliverMessage) -> None:
        self._leaving.deliver(peer, payload.topic)
        self._count_delivery(now, peer, payload)

    def _count_delivery(self, now: float, peer: PeerId, payload: trace.DeliverMessage) -> None:
        self._completeness.deliver(now, peer, payload.message_id)
        verdict = self.ledger.deliver(peer, payload)
        if verdict not in (NEW, EXTRA):
            return
        spread = self._spreads.get(payload.message_id)
        if spread is None:
            return
        own, synced = peer == spread.publisher, payload.via == SYNC
        if not own and not synced:
            spread.received += 1
        if verdict != NEW:
            return
        latency = now - spread.published_at
        if own:
            self._own += 1
        else:
            if synced:
                self._synced[payload.message_id, peer] = None
            self._latencies.append(latency)
            self._count_hops(spread, peer, payload.received_from)
        spread.reached += 1
        while spread.reached == spread.need:
            self._reach[spread.level].append(latency)
            spread.level += 1
            if spread.level == len(REACH_LEVELS):
                spread.need = 0
                spread.hops = None
            else:
                spread.need = spread.need_at(spread.level)

    def _count_hops(self, spread: _Spread, peer: PeerId, sender: PeerId) -> None:
        hops = spread.hops
        if hops is None:
            return
        number = self.ledger.index[peer]
        count = (number < len(hops) and hops[number]) or self._arrive(spread, peer, sender)
        if count > 1:
            self._hops_known += 1
            self._hops_sum += count - 1
            self._hops_max = max(self._hops_max, count - 1)

    def _undeliver(self, now: float, peer: PeerId, payload: trace.UndeliverableMessage) -> None:
        message_id = payload.message_id
        self._completeness.undeliver(peer, message_id)
        spread = self._spreads.get(message_id)
        if self.ledger.undeliver(peer, payload) and spread is not None:
            spread.reached -= 1
            if spread.publisher == peer:
                self._own -= 1
            elif (message_id, peer) in self._synced:
                del self._synced[message_id, peer]
            else:
                spread.received -= 1

    def _join(self, now: float, peer: PeerId, payload: trace.Join) -> None:
        self._leaving.join(peer, payload.topic)
        self.ledger.join(peer, payload)

    def _leave(self, now: float, peer: PeerId, payload: trace.Leave) -> None:
        self._leaving.leave(peer, payload.topic)
        self.ledger.leave(peer, payload)

    def _node_up(self, now: float, peer: PeerId, payload: trace.NodeUp) -> None:
        self._completeness.node_up(now, peer)
        self.ledger.node_up(peer, payload)

    def _node_down(self, now: float, peer: PeerId, payload: trace.NodeDown) -> None:
        self._completeness.node_down(now, peer)
        self.ledger.node_down(peer, payload)

    def _sync_ended(self, now: float, peer: PeerId, payload: trace.SyncEnded) -> None:
        _add(self._sessions, payload.outcome, 1)
        self._fetched += payload.events

    def _enter(self, now: float, peer: PeerId, payload: Any) -> None:
        self.ledger.enter(peer, payload)
        name = _COUNTED.get(type(payload))
        if name is not None:
            _add(self._counts[name], payload.reason, getattr(payload, "count", 1))

    def _count_sent(self, meta: trace.RpcMeta, times: int) -> None:
        self._bytes_sent += times * meta.size
        self._data_bytes += times * meta.data_size
        if meta.cause:
            _add(self._causes, meta.cause, times * len(meta.messages))
        counts = self._control
        control = meta.control
        if control is not None:
            for name in _CONTROLS:
                entries = getattr(control, name)
                if entries:
                    _add(counts, name, times * len(entries))
        for subscription in meta.subscription:
            _add(counts, "subscribe" if subscription.subscribe else "unsubscribe", times)
        syncs = False
        for operation in meta.operations:
            _add(counts, operation.name, times)
            syncs = syncs or operation.name.startswith(_SYNC_OPERATION)
        if syncs:
            self._sync_bytes += times * meta.size
            self._sync_data += times * meta.data_size


def _whole_nanoseconds(times: Iterable[float]) -> list[float]:
    """Order durations, without the noise that subtracting two floats leaves behind."""
    return sorted(round(time, 9) for time in times)


def _add(counts: dict[str, int], reason: str, count: int) -> None:
    reason = reason or UNSPECIFIED
    counts[reason] = counts.get(reason, 0) + count
