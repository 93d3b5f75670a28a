"""What a node counts: an observer of its trace, and a look at its state when somebody asks.

Names are those of the metrics proposal for GossipSub (libp2p/specs, pull request 695); what it has
no name for is ours and begins with `rumormill_`. Two rules: no label ever names a peer, and every
label has a bounded number of values; what comes after that is counted under `(other)`.
"""

import os
import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

from rumormill.core import trace
from rumormill.core.api import GroupView
from rumormill.core.histogram import Histogram
from rumormill.core.machine import View
from rumormill.core.trace import RecvRPC, SendRPC
from rumormill.libp2p.swarm import Swarm
from rumormill.log.event_log import EventLog
from rumormill.node.driver import Driver
from rumormill.node.journal import Journal
from rumormill.node.process_metrics import process_values
from rumormill.protocols.pubsub import reasons
from rumormill.trace.entries import Batch
from rumormill.version import __version__

Values: TypeAlias = dict[str, float]
"""One metric: value by label; a metric without label has the label `""`."""

MAX_LABELS: Final = 512
"""Our choice: a dashboard of more topics is unreadable, and a page of 20 metrics stays small."""
OTHER: Final = "(other)"
_SYNC: Final = "sync "
"""How the names of sync's messages begin."""

_JUDGED: Final[Mapping[str, str]] = {
    reasons.MISSING_SIGNATURE: "invalid_messages",
    reasons.INVALID_SIGNATURE: "invalid_messages",
    reasons.UNEXPECTED_SIGNATURE: "invalid_messages",
    reasons.UNEXPECTED_AUTH_INFO: "invalid_messages",
    reasons.VALIDATION_FAILED: "rejected_messages",
    reasons.VALIDATION_IGNORED: "ignored_messages",
}
"""Under which metric a rejected message is counted, by the reason, besides `rumormill_rejected`."""


class Description(msgspec.Struct, frozen=True):
    """What a metric is: Prometheus' kind, the name of its label if it has one, and its text."""

    kind: str
    label: str
    text: str


METRICS: Final[Mapping[str, Description]] = {
    name: Description(kind, label, text)
    for name, kind, label, text in (
        ("topic_subscription_status", "gauge", "topic", "1 while this node subscribes"),
        ("topic_peers_count", "gauge", "topic", "connected peers that subscribe"),
        ("mesh_peer_counts", "gauge", "topic", "peers in the mesh"),
        ("peers_per_protocol", "gauge", "protocol", "connected peers by what they speak"),
        ("invalid_messages", "counter", "topic", "messages with a wrong or missing signature"),
        ("accepted_messages", "counter", "topic", "messages of peers that were delivered"),
        ("ignored_messages", "counter", "topic", "messages that a validator ignored"),
        ("rejected_messages", "counter", "topic", "messages that a validator rejected"),
        ("topic_msg_published", "counter", "topic", "messages published here"),
        ("topic_msg_sent_counts", "counter", "topic", "messages sent to peers"),
        ("topic_msg_sent_bytes", "counter", "topic", "bytes of messages sent to peers"),
        (
            "topic_msg_recv_counts_unfiltered",
            "counter",
            "topic",
            "messages received, duplicates included",
        ),
        ("topic_msg_recv_counts", "counter", "topic", "messages received, without duplicates"),
        ("topic_msg_recv_bytes", "counter", "topic", "bytes of messages, duplicates included"),
        ("rumormill_duplicates", "counter", "topic", "messages that were here already"),
        ("rumormill_grafts", "counter", "topic", "peers taken into the mesh"),
        ("rumormill_prunes", "counter", "topic", "peers taken out of the mesh"),
        ("rumormill_rpc_sent", "counter", "", "RPCs sent"),
        ("rumormill_rpc_sent_bytes", "counter", "", "bytes of RPCs sent, control included"),
        ("rumormill_rpc_received", "counter", "", "RPCs received"),
        ("rumormill_rpc_received_bytes", "counter", "", "bytes of RPCs received"),
        ("rumormill_rpc_dropped", "counter", "reason", "RPCs that were not sent"),
        ("rumormill_refused", "counter", "reason", "things asked by peers and not done"),
        ("rumormill_rejected", "counter", "reason", "messages refused, by reason"),
        ("rumormill_penalties", "counter", "reason", "penalties given to peers"),
        (
            "rumormill_undelivered",
            "counter",
            "reason",
            "events that were not handed to a subscriber",
        ),
        ("rumormill_connections_refused", "counter", "reason", "connections and streams refused"),
        (
            "rumormill_evicted",
            "counter",
            "table",
            "entries that full tables gave up or refused",
        ),
        ("rumormill_doors_refused", "counter", "reason", "clients of doors turned away, by door"),
        (
            "rumormill_pattern_topics_left_out",
            "counter",
            "pattern",
            "topics that a subscription to a pattern could not enter",
        ),
        ("rumormill_events_lost", "counter", "", "events of peers that could not be stored"),
        ("rumormill_sync_sessions", "counter", "outcome", "comparisons of histories"),
        ("rumormill_sync_events", "counter", "topic", "events that were missing and fetched"),
        ("rumormill_sync_bytes", "counter", "direction", "bytes of sync, events included"),
        (
            "rumormill_sync_compared_seconds",
            "gauge",
            "topic",
            "since when a topic had all that another node has",
        ),
        (
            "rumormill_sync_lacking_seconds",
            "gauge",
            "topic",
            "since when something is known to be missing",
        ),
        (
            "rumormill_sync_backlog",
            "gauge",
            "topic",
            "events that are known to be missing, at least",
        ),
        ("rumormill_group_consumers", "gauge", "group", "open consumers of named subscriptions"),
        ("rumormill_group_pending", "gauge", "group", "events handed out and not acknowledged"),
        ("rumormill_group_lag", "gauge", "group", "events that no consumer was given yet"),
        ("rumormill_group_dropped", "gauge", "group", "events deleted before they were handled"),
        (
            "rumormill_group_late",
            "gauge",
            "group",
            "events taken from consumers that were too slow",
        ),
        ("rumormill_connections", "gauge", "direction", "open connections, by who dialled"),
        ("rumormill_connections_by_kind", "gauge", "kind", "open connections, by their way"),
        (
            "rumormill_relay",
            "gauge",
            "what",
            "places at relays; if it is one: reservations, circuits",
        ),
        ("rumormill_relay_bytes", "counter", "", "bytes that this relay has carried for others"),
        ("rumormill_reachable", "gauge", "", "1 when peers have dialled this node back"),
        ("rumormill_punches", "counter", "outcome", "ways out of a relay that were tried"),
        ("rumormill_members", "gauge", "kind", "nodes linked, known, remembered on disk, lost"),
        ("rumormill_topics_without_mesh", "gauge", "", "own topics with no peer in the mesh"),
        ("rumormill_queued_messages", "gauge", "", "RPCs that wait for all peers"),
        ("rumormill_queued_bytes", "gauge", "", "bytes that wait for all peers"),
        ("rumormill_log_appended", "counter", "", "events written to the log"),
        ("rumormill_log_duplicates", "counter", "", "events that the log had already"),
        ("rumormill_log_commits", "counter", "", "group commits"),
        ("rumormill_log_failed", "counter", "", "appends that failed"),
        ("rumormill_log_heads_failed", "counter", "", "times that heads could not be written"),
        ("rumormill_records", "gauge", "kind", "records of the hash table: held, own; bytes held"),
        ("rumormill_records_lost", "counter", "", "records that the log could not take"),
        ("rumormill_log_reads_refused", "counter", "", "reads for peers that found too many wait"),
        ("rumormill_log_segments", "counter", "outcome", "what became of sealed segments"),
        ("rumormill_log_bytes", "gauge", "topic", "bytes of events in the log"),
        ("rumormill_log_full", "gauge", "", "1 while the log has no room for events"),
        ("rumormill_disk_free_bytes", "gauge", "", "bytes that are free where the log is"),
        ("rumormill_log_commit_seconds", "histogram", "le", "writing and flushing a group"),
        ("rumormill_publish_seconds", "histogram", "le", "from a call to publish to its receipt"),
        (
            "rumormill_delivery_seconds",
            "histogram",
            "le",
            "from the coming of a peer's event until it is safe and handed out",
        ),
        (
            "rumormill_travel_seconds",
            "histogram",
            "le",
            "from a peer's event's date, where it has one, to its coming",
        ),
        ("rumormill_clock_ahead_seconds", "gauge", "", "how far our dates are ahead of the clock"),
        ("rumormill_build", "info", "version,python,protocol", "what runs"),
        ("process_cpu_seconds", "counter", "", "processor time of the process"),
        ("process_virtual_memory_bytes", "gauge", "", "address space of the process"),
        ("process_resident_memory_bytes", "gauge", "", "memory of the process"),
        ("process_start_time_seconds", "gauge", "", "when the process began, since 1970"),
        ("process_open_fds", "gauge", "", "files and sockets that are open"),
        ("process_max_fds", "gauge", "", "files and sockets that may be open"),
    )
}


_TOPIC, _REASON = attrgetter("topic"), attrgetter("reason")
_COUNTED: Final[Mapping[type, tuple[str, Callable[[Any], str]]]] = {
    trace.PublishMessage: ("topic_msg_published", _TOPIC),
    trace.DuplicateMessage: ("rumormill_duplicates", _TOPIC),
    trace.RejectMessage: ("rumormill_rejected", _REASON),
    trace.DropRPC: ("rumormill_rpc_dropped", _REASON),
    trace.Graft: ("rumormill_grafts", _TOPIC),
    trace.Prune: ("rumormill_prunes", _TOPIC),
    trace.Penalise: ("rumormill_penalties", _REASON),
    trace.SyncEnded: ("rumormill_sync_sessions", attrgetter("outcome")),
    trace.UndeliverableMessage: ("rumormill_undelivered", _REASON),
}
"""What is counted one by one of each kind: under which metric, and which label."""


class Counts:
    """Counts what the trace says; an observer of one node's trace."""

    def __init__(self) -> None:
        self.values: dict[str, Values] = {
            name: ({} if about.label else {"": 0.0})
            for name, about in METRICS.items()
            if about.kind == "counter"
        }
        self.publish_seconds = Histogram()
        self._own: dict[str, None] = {}
        """Topics of ours: those of others, which peers may make up, have half of the labels."""
        self._received = _Traffic(self, "rumormill_rpc_received", "topic_msg_recv", "_unfiltered")
        self._sent = _Traffic(self, "rumormill_rpc_sent", "topic_msg_sent", "")

    def observe(self, batch: Batch) -> None:
        """Count the next entries of the trace, which are of one peer, kind by kind."""
        found: defaultdict[type, list[Any]] = defaultdict(list)
        for _, _, payload in batch:
            found[type(payload)].append(payload)
        for own_topic in (*found[trace.Join], *found[trace.PublishMessage]):
            if len(self._own) < MAX_LABELS:
                self._own[own_topic.topic] = None
        self._received.count([each.meta for each in found[RecvRPC]])
        self._sent.count([each.meta for each in found[SendRPC]])
        own = batch[0][1]
        came = [each for each in found[trace.DeliverMessage] if each.received_from != own]
        self._add_all("accepted_messages", [each.topic for each in came])
        self._add_all("rumormill_sync_events", [each.topic for each in came if each.via])
        for kind, (name, label) in _COUNTED.items():
            if kind in found:
                self._add_all(name, map(label, found[kind]))
        for refusal in found[trace.Refuse]:
            self.add("rumormill_refused", refusal.reason, refusal.count)
        for refused in found[trace.RejectMessage]:
            if refused.reason in _JUDGED:
                self.add(_JUDGED[refused.reason], refused.topic)

    def close(self) -> None:
        """Counts stay readable when the trace has ended."""

    def add(self, name: str, label: str, amount: float = 1.0) -> None:
        """Count something under a label, or under `(other)` when there are too many labels."""
        values = self.values[name]
        foreign = METRICS[name].label == "topic" and label not in self._own
        if label in values:
            values[label] += amount
        elif len(values) < (MAX_LABELS // 2 if foreign else MAX_LABELS):
            values[label] = amount
        else:
            values[OTHER] = values.get(OTHER, 0.0) + amount

    def _add_all(self, name: str, labels: Iterable[str]) -> None:
        for label, count in Counter(labels).items():
            self.add(name, label, count)


class _Traffic:
    """Counts RPCs of one direction; on the path of every message, so it is written for speed."""

    def __init__(self, counts: Counts, rpc: str, message: str, suffix: str) -> None:
        self._counts = counts
        self._direction = rpc.rpartition("_")[2]
        self._rpcs = counts.values[rpc]
        self._rpc_bytes = counts.values[f"{rpc}_bytes"]
        self._names = (f"{message}_counts{suffix}", f"{message}_bytes")

    def count(self, rpcs: list[trace.RpcMeta]) -> None:
        """Count RPCs. The trace has the bytes of all messages of one: each gets an equal share."""
        self._rpcs[""] += len(rpcs)
        self._rpc_bytes[""] += sum(map(attrgetter("size"), rpcs))
        add, (counts, sizes) = self._counts.add, self._names
        times = Counter(map(id, rpcs))  # one that goes to many peers is the same for each
        for key, meta in dict(zip(map(id, rpcs), rpcs, strict=True)).items():
            messages, peers = meta.messages, times[key]
            if meta.operations and meta.operations[0].name.startswith(_SYNC):
                add("rumormill_sync_bytes", self._direction, meta.size * peers)
            if len(messages) == 1:
                add(counts, messages[0].topic, peers)
                add(sizes, messages[0].topic, meta.data_size * peers)
            elif messages:
                share = meta.data_size / len(messages) * peers
                for topic, count in Counter([message.topic for message in messages]).items():
                    add(counts, topic, count * peers)
                    add(sizes, topic, share * count)


def gather_metrics(
    counts: Counts, driver: Driver, swarm: Swarm, journal: Journal, groups: Sequence[GroupView]
) -> dict[str, Values]:
    """Every metric of a node: what was counted, and what is so now."""
    found: dict[str, Values] = {name: dict(counts.values.get(name, {})) for name in METRICS}
    duplicates = found["rumormill_duplicates"]
    found["topic_msg_recv_counts"] = {
        topic: max(0.0, count - duplicates.get(topic, 0.0))
        for topic, count in found["topic_msg_recv_counts_unfiltered"].items()
    }
    view = driver.machine.view()
    _add_topics(found, view, driver.now())
    found["rumormill_members"] = {kind: float(count) for kind, count in view.members.items()}
    found["rumormill_records"] = {kind: float(count) for kind, count in view.records.items()}
    found["rumormill_evicted"] = {"addresses": swarm.book.forgotten, **view.evicted}
    for group in groups:
        for name in ("consumers", "pending", "lag", "dropped", "late"):
            label = f"{group.name} {group.topic}"
            found[f"rumormill_group_{name}"][label] = float(getattr(group, name))
    channels, log = driver.channels.values(), journal.log
    found["peers_per_protocol"] = dict(Counter(each.protocol for each in channels if each.open))
    found["rumormill_connections_refused"] = dict(list(swarm.refusals().items())[:MAX_LABELS])
    dialled = sum(each.outbound for each in swarm.connections.values())
    found["rumormill_connections"] = {
        "outbound": float(dialled),
        "inbound": float(len(swarm.connections) - dialled),
    }
    now = {
        "queued_messages": sum(each.queued_messages for each in channels),
        "queued_bytes": sum(each.queued_bytes for each in channels),
        "events_lost": journal.lost,
        "log_appended": log.counters.appended,
        "log_duplicates": log.counters.duplicates,
        "log_commits": log.counters.commits,
        "log_failed": log.counters.failed,
        "log_heads_failed": log.counters.heads_failed,
        "records_lost": journal.notes.lost,
        "log_reads_refused": journal.reader.refused,
    }
    for name, value in now.items():
        found[f"rumormill_{name}"][""] = value
    if log.segments is not None:
        found["rumormill_log_segments"] = msgspec.structs.asdict(log.segments.counters)
    _add_log(found, log)
    found["rumormill_publish_seconds"] = _boxes(counts.publish_seconds)
    found["rumormill_delivery_seconds"] = _boxes(journal.delays.delivery)
    found["rumormill_travel_seconds"] = _boxes(journal.delays.travel)
    found["rumormill_clock_ahead_seconds"][""] = max(0.0, driver.clock.ahead)
    found["rumormill_build"] = {f"{__version__},{platform.python_version()},{driver.name}": 1.0}
    for name, figure in process_values().items():
        found[name][""] = figure
    return found


def _add_log(found: dict[str, Values], log: EventLog) -> None:
    """What the log takes; of many topics, the largest have names."""
    rows = log.writer().topics
    sizes = {name: float(row.size) for name, row in rows.copy().items()}
    largest = nlargest(MAX_LABELS - 1, sizes, key=sizes.__getitem__)
    found["rumormill_log_bytes"] = {name: sizes[name] for name in largest}
    if len(sizes) > len(largest):
        named = sum(found["rumormill_log_bytes"].values())
        found["rumormill_log_bytes"][OTHER] = sum(sizes.values()) - named
    found["rumormill_log_full"][""] = float(log.counters.full)
    found["rumormill_log_commit_seconds"] = _boxes(log.counters.commit_seconds)
    if log.home is not None:
        disk = os.statvfs(log.home)
        found["rumormill_disk_free_bytes"][""] = float(disk.f_bavail * disk.f_frsize)


def _boxes(histogram: Histogram) -> Values:
    """A histogram: by its bounds how many values were not above, and their sum."""
    return {**{bound: float(count) for bound, count in histogram.boxes()}, "sum": histogram.sum}


def _add_topics(found: dict[str, Values], view: View, now: float) -> None:
    """What the protocol knows of topics; a protocol without a mesh has no mesh metrics."""
    for topic in list(dict.fromkeys([*view.subscriptions, *view.peers]))[:MAX_LABELS]:
        found["topic_subscription_status"][topic] = float(topic in view.subscriptions)
        found["topic_peers_count"][topic] = float(len(view.peers.get(topic, ())))
    for name in ("compared", "lacking"):
        since: Mapping[str, float] = getattr(view, name)
        ages = {topic: now - since[topic] for topic in list(since)[:MAX_LABELS]}
        found[f"rumormill_sync_{name}_seconds"] = ages
    found["rumormill_sync_backlog"] = dict(list(view.backlog.items())[:MAX_LABELS])
    mesh = view.links.get("mesh")
    if mesh is not None:
        for topic in list(mesh)[:MAX_LABELS]:
            found["mesh_peer_counts"][topic] = float(len(mesh[topic]))
        found["rumormill_topics_without_mesh"][""] = float(
            sum(1 for topic in mesh if not mesh[topic])
        )
