"""The sections of a watched node, made of what was read of it.

Each function makes one, within the bounds of its tables; what is left out is counted.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final

from rumormill.core.api import Completeness, PeerView
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.machine import View
from rumormill.dashboard.aggregate import Aggregator, TopicFigures
from rumormill.dashboard.figures import (
    counted,
    cut,
    listed,
    peer_text,
    percentile_of_boxes,
    ranked,
)
from rumormill.dashboard.series import rounded
from rumormill.dashboard.watched import Reading
from rumormill.log.event_log import EventLog

MOST_TOPICS: Final = 64
MOST_PEERS: Final = 200
MOST_LINKS: Final = 1000
_TRAVEL: Final = "rumormill_travel_seconds"
_DELIVERY: Final = "rumormill_delivery_seconds"
_COMMIT: Final = "rumormill_log_commit_seconds"
_REJECTED: Final = ("invalid_messages", "ignored_messages", "rejected_messages")
_SETTLED: Final = 10.0
"""Seconds for which something must be wrong before the overview says so."""


def clock(began: float, now: float) -> dict[str, Any]:
    """A node's time is that of its machine, in seconds since 1970."""
    return {
        "now": round(now, 3),
        "start": round(began, 3),
        "end": None,
        "playing": True,
        "speed": 1,
        "wall0": 0,
    }


def well(reading: Reading, troubles: dict[str, float]) -> dict[str, Any]:
    """How the node is, in one sentence; `troubles` keeps since when something is not well."""
    if not reading.health.ready:
        return {"ok": False, "sentence": reading.health.why}
    meshless = int(reading.value("rumormill_topics_without_mesh"))
    lacking = reading.metrics.get("rumormill_sync_lacking_seconds", {})
    peers = int(reading.value("rumormill_connections"))
    now = {
        "no peer is connected": not peers,
        f"{_count(meshless, 'topic')} without a mesh": bool(meshless) and bool(peers),
    }
    for sentence in [*troubles]:
        if not now.get(sentence):
            del troubles[sentence]
    for sentence, is_so in now.items():
        if is_so:
            troubles.setdefault(sentence, reading.at)
    for sentence, since in troubles.items():
        if reading.at - since >= _SETTLED:
            return {"ok": False, "sentence": f"{sentence} since {reading.at - since:.0f} s"}
    late = {topic: age for topic, age in lacking.items() if age > 2 * _SETTLED}
    if late:
        oldest = max(late.values())
        sentence = f"{_count(len(late), 'topic')} incomplete, the oldest gap since {oldest:.0f} s"
        return {"ok": False, "sentence": sentence}
    return {"ok": True, "sentence": "well"}


def _count(number: int, noun: str) -> str:
    return f"one {noun}" if number == 1 else f"{number} {noun}s"


def totals(reading: Reading, aggregator: Aggregator) -> dict[str, Any]:
    """What was counted since the node began; copies by cause, since somebody watches."""
    value = reading.value
    sent = value("topic_msg_sent_counts")
    delivered = value("accepted_messages")
    data = value("topic_msg_sent_bytes")
    dropped = dict(reading.metrics.get("rumormill_undelivered", {}))
    if lost := value("rumormill_events_lost"):
        dropped["not stored"] = lost
    ordinary = aggregator.messages_sent - sum(aggregator.copies.values())
    kinds = reading.metrics.get("rumormill_connections_by_kind", {})
    return {
        "published": int(value("topic_msg_published")),
        "delivered": int(delivered),
        "duplicates": int(value("rumormill_duplicates")),
        "rejected": int(value("rumormill_rejected")),
        "rejections": ranked(reading.metrics.get("rumormill_rejected", {})),
        "messages_sent": int(sent),
        "copies_per_delivery": rounded(sent / delivered) if delivered else None,
        "copies": {"spread": ordinary, **ranked(aggregator.copies)},
        "bytes": {
            "data": int(data),
            "control": int(value("rumormill_rpc_sent_bytes") - data),
            "sent": int(value("rumormill_rpc_sent_bytes")),
            "received": int(value("rumormill_rpc_received_bytes")),
        },
        "dropped": ranked(dropped),
        "rpc_dropped": ranked(reading.metrics.get("rumormill_rpc_dropped", {})),
        "refused": ranked(reading.metrics.get("rumormill_refused", {})),
        "peers": {kind: int(count) for kind, count in kinds.items() if count},
    }


def latency(reading: Reading) -> dict[str, Any]:
    """How long events took to come here, where they have dates; otherwise, to be handed out."""
    name = _TRAVEL if reading.metrics.get(_TRAVEL, {}).get("+Inf") else _DELIVERY
    boxes = reading.metrics.get(name, {})
    buckets, before = [], 0.0
    for bound, count in boxes.items():
        if bound != "sum":
            buckets.append([None if bound == "+Inf" else float(bound), int(count - before)])
            before = count
    return {
        "p50": percentile_of_boxes(boxes, 0.5),
        "p99": percentile_of_boxes(boxes, 0.99),
        "buckets": buckets,
        "of": "travel" if name == _TRAVEL else "delivery",
    }


def process(reading: Reading) -> dict[str, Any]:
    """What the process costs."""
    found = {
        "cpu": rounded(reading.speed("process_cpu_seconds")),
        "rss": reading.value("process_resident_memory_bytes") or None,
        "fsync_p99": percentile_of_boxes(reading.metrics.get(_COMMIT, {}), 0.99),
        "log_bytes": int(reading.value("rumormill_log_bytes")),
        "queue_bytes": int(reading.value("rumormill_queued_bytes")),
    }
    return {name: value for name, value in found.items() if value is not None}


def sampled(reading: Reading) -> dict[str, float | None]:
    """What a point of the series has besides what the trace tells."""
    grown = reading.grown(_TRAVEL if reading.metrics.get(_TRAVEL, {}).get("+Inf") else _DELIVERY)
    lag = sum(reading.metrics.get("rumormill_group_lag", {}).values())
    return {
        "p50": percentile_of_boxes(grown, 0.5),
        "p99": percentile_of_boxes(grown, 0.99),
        "queue": rounded(reading.value("rumormill_queued_bytes")),
        "appends": rounded(reading.speed("rumormill_log_appended")),
        "fsync": percentile_of_boxes(reading.grown(_COMMIT), 0.99),
        "backlog": reading.value("rumormill_sync_backlog"),
        "lag": lag,
        "cpu": rounded(reading.speed("process_cpu_seconds")),
        "rss": reading.value("process_resident_memory_bytes") or None,
    }


def degrees(view: View) -> dict[str, Any]:
    """How many peers each topic's mesh has, and how scores are spread."""
    mesh = view.links.get("mesh", {})
    found: dict[str, Any] = {"mesh": counted(len(peers) for peers in mesh.values())}
    if view.scores:
        found["score"] = counted(round(score) for score in view.scores.values())
    return found


def topics(log: EventLog, reading: Reading, aggregator: Aggregator, chosen: str) -> dict[str, Any]:
    """The topics with most going on, and the one that is looked at."""
    metrics, rows = reading.metrics, log.writer().topics
    names = [
        *dict.fromkeys([*rows.copy(), *metrics.get("topic_peers_count", {}), *aggregator.topics])
    ]
    nothing = TopicFigures()

    def weight(name: str) -> tuple[bool, float, float, int]:
        figures = aggregator.topics.get(name, nothing)
        row = rows.get(name)
        size = 0 if row is None else row.next_offset
        here = metrics.get("topic_subscription_status", {}).get(name, 0.0)
        return name == chosen, figures.rate, here, size

    def shown(name: str) -> dict[str, Any]:
        figures, row = aggregator.topics.get(name, nothing), rows.get(name)

        def metric(of: str) -> int:
            return int(metrics.get(of, {}).get(name, 0))

        found: dict[str, Any] = {
            "name": name,
            "title": cut(name, 64),
            "published": metric("topic_msg_published"),
            "delivered": metric("accepted_messages"),
            "duplicates": metric("rumormill_duplicates"),
            "rejected": sum(map(metric, _REJECTED)),
            "rate": rounded(figures.rate),
            "subscribers": metric("topic_peers_count"),
            "subscribed": bool(metric("topic_subscription_status")),
        }
        if row is not None:
            found |= {"first": row.first_offset, "next": row.next_offset, "bytes": row.size}
        mesh = metrics.get("mesh_peer_counts", {}).get(name)
        return found if mesh is None else found | {"mesh": int(mesh)}

    best = nlargest(MOST_TOPICS, names, key=weight)
    return {"rows": [shown(name) for name in best], "left_out": len(names) - len(best)}


def peers(own: PeerId, connected: Sequence[PeerView], aggregator: Aggregator) -> dict[str, Any]:
    """This node, and those that it is connected to."""
    me = {"id": peer_text(own), "name": peer_text(own)[-6:], "up": True, "me": True}
    rows = [me]
    for peer in connected:
        figures = aggregator.peers.get(bytes(peer.id))
        row: dict[str, Any] = {
            "id": str(peer.id),
            "name": str(peer.id)[-6:],
            "up": True,
            "kind": "relayed" if "/p2p-circuit" in peer.address else "direct",
            "direction": "out" if peer.outbound else "in",
            "address": cut(peer.address, 120),
            "queue": peer.queued_bytes,
        }
        if peer.score is not None:
            row["score"] = rounded(peer.score)
        if peer.round_trip is not None:
            row["rtt"] = rounded(peer.round_trip)
        if figures is not None:
            row |= {"delivered": figures.delivered, "duplicates": figures.duplicates}
            if figures.errors:
                row["errors"] = list(figures.errors)
        rows.append(row)
    return listed(rows, MOST_PEERS)


def links(connected: Sequence[PeerView], view: View, topic: str) -> dict[str, Any]:
    """This node's links by kind, of one topic or of all; those who have none are connected."""
    index = {bytes(peer.id): number + 1 for number, peer in enumerate(connected[: MOST_PEERS - 1])}
    rows: list[list[Any]] = []
    linked: dict[int, None] = {}
    for kind, by_topic in view.links.items():
        for name, others in by_topic.items():
            if topic and name not in ("", topic):
                continue
            for peer in others:
                number = index.get(bytes(peer))
                if number is not None:
                    rows.append([0, number, kind, name])
                    linked[number] = None
    rows += [[0, number, "connected", ""] for number in index.values() if number not in linked]
    return listed(rows, MOST_LINKS)


def sync(
    reading: Reading, aggregator: Aggregator, completeness: Callable[[str], Completeness]
) -> dict[str, Any]:
    """How histories compare: of topics, and with whom."""
    metrics = reading.metrics
    compared: Mapping[str, float] = metrics.get("rumormill_sync_compared_seconds", {})
    lacking: Mapping[str, float] = metrics.get("rumormill_sync_lacking_seconds", {})
    backlog: Mapping[str, float] = metrics.get("rumormill_sync_backlog", {})
    here = [name for name, is_so in metrics.get("topic_subscription_status", {}).items() if is_so]
    rows = [
        {
            "name": name,
            "compared": rounded(compared.get(name)),
            "lacking": rounded(lacking.get(name)),
            "backlog": int(backlog.get(name, 0)),
            "sentence": str(completeness(name)),
        }
        for name in here[:MOST_TOPICS]
    ]
    return {
        "sessions": {
            name: int(count) for name, count in metrics.get("rumormill_sync_sessions", {}).items()
        },
        "events": int(reading.value("rumormill_sync_events")),
        "topics": rows,
        "left_out": max(0, len(here) - MOST_TOPICS),
        "partners": aggregator.partner_rows(MOST_PEERS),
    }


def reach(reading: Reading, lines: Sequence[str], addresses: Sequence[str]) -> dict[str, Any]:
    """Who reaches the node, and by what ways: its addresses, relays, holes that were punched."""
    metrics = reading.metrics
    relays = {what: int(count) for what, count in metrics.get("rumormill_relay", {}).items()}
    if carried := reading.value("rumormill_relay_bytes"):
        relays["bytes carried for others"] = int(carried)
    return {
        "lines": lines,
        "addresses": addresses,
        "relays": {what: count for what, count in relays.items() if count},
        "punches": ranked(metrics.get("rumormill_punches", {})),
    }


def protocol(name: str, own: PeerId, view: View) -> dict[str, Any]:
    """What is special to the protocol, as far as one node knows it."""
    me = peer_text(own)
    rows: list[list[Any]] = [["subscriptions", len(view.subscriptions)]]
    for kind, by_topic in view.links.items():
        rows.append([f"{kind} links", sum(len(each) for each in by_topic.values())])
    for title, counts in (("member", view.members), ("record", view.records)):
        rows += [[f"{title}s {kind}", count] for kind, count in counts.items()]
    rows += [[f"evicted: {table}", count] for table, count in view.evicted.items() if count]
    found: dict[str, Any] = {"name": name, "rows": rows}
    trees: dict[str, list[list[str]]] = {}
    for topic, above in list(view.links.get("parent", {}).items())[:MOST_TOPICS]:
        trees[topic] = [[me, peer_text(each)] for each in above]
    for topic, below in list(view.links.get("child", {}).items())[:MOST_TOPICS]:
        trees.setdefault(topic, []).extend([peer_text(each), me] for each in below)
    if view.labels:
        found["ring"] = {
            topic: {"labels": [[me, label]]}
            for topic, label in list(view.labels.items())[:MOST_TOPICS]
        }
    return found | ({"trees": trees} if trees else {})


def journey_of(event: Event, own: PeerId) -> dict[str, Any]:
    """What a log says of an event's way: who published it, and when it came here."""
    author = peer_text(event.author) if event.author else None
    hops: list[dict[str, Any]] = []
    if event.created is not None and author is not None:
        hops.append({"t": event.created, "peer": author, "kind": "publish", "hop": 0})
    came: dict[str, Any] = {"t": event.received, "peer": peer_text(own), "kind": "deliver"}
    if event.via:
        came["via"] = event.via
    return {
        "id": event.id.hex(),
        "topic": event.topic,
        "author": author,
        "t": hops[0]["t"] if hops else event.received,
        "size": len(event.data),
        "hops": [*hops, came],
        "waiting": [],
    }
