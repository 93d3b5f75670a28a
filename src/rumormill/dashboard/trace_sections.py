"""The sections of a whole network's trace: of a simulation, or of a file."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from rumormill.core.ids import PeerId
from rumormill.core.machine import View
from rumormill.dashboard.aggregate import TopicFigures
from rumormill.dashboard.figures import boxed, counted, cut, listed, peer_text, percentile, ranked
from rumormill.dashboard.series import rounded
from rumormill.dashboard.trace_figures import CONNECTED, MESH, TraceAggregator
from rumormill.trace.ledger import SUBSCRIBER_DOWN, SUBSCRIBER_LEFT, TopicSums

MOST_TOPICS: Final = 64
MOST_PEERS: Final = 500
MOST_LINKS: Final = 4000
_EXCUSED: Final = (SUBSCRIBER_DOWN, SUBSCRIBER_LEFT)

Views = Mapping[PeerId, View]
"""What machines show of themselves, where they can be seen: in a simulation."""


def well(figures: TraceAggregator) -> dict[str, Any]:
    """How it went, in one sentence."""
    sums = figures.ledger.total()
    dropped = sum(count for name, count in sums.dropped.items() if name not in _EXCUSED)
    if not sums.expected:
        return {"ok": True, "sentence": "nothing was published yet"}
    parts = [f"{100 * sums.delivered / sums.expected:.4g} % of {sums.expected} deliveries made"]
    if sums.pending:
        parts.append(f"{sums.pending} pending")
    if dropped:
        parts.append(f"{dropped} dropped")
    return {"ok": not dropped, "sentence": ", ".join(parts)}


def totals(figures: TraceAggregator) -> dict[str, Any]:
    """Where all pairs stand, by the ledger, and what that took."""
    sums = figures.ledger.total()
    ordinary = figures.messages_sent - sum(figures.copies.values())
    sent = figures.messages_sent
    up = sum(each.up for each in figures.peers.values())
    return {
        "published": sums.published + figures.ledger.untracked,
        "expected": sums.expected,
        "delivered": sums.delivered,
        "pending": sums.pending,
        "duplicates": figures.duplicates,
        "rejected": figures.rejected,
        "rejections": ranked(figures.rejections),
        "failed": figures.failed,
        "copies_per_delivery": rounded(sent / figures.spread) if figures.spread else None,
        "copies": {"spread": ordinary, **ranked(figures.copies)},
        "bytes": {
            "data": figures.data_bytes,
            "control": figures.bytes_sent - figures.data_bytes,
        },
        "dropped": ranked(sums.dropped),
        "rpc_dropped": ranked(figures.dropped_rpcs),
        "refused": ranked(figures.refused),
        "peers": {"up": up, "down": len(figures.peers) - up},
    }


def latency(figures: TraceAggregator) -> dict[str, Any]:
    """How long events took from publication to subscribers."""
    return {
        "p50": percentile(figures.latencies, 0.5),
        "p99": percentile(figures.latencies, 0.99),
        "buckets": boxed(figures.latencies),
        "of": "delivery",
    }


def topics(figures: TraceAggregator, chosen: str) -> dict[str, Any]:
    """The topics with most deliveries, and the one that is looked at."""
    sums, nothing = figures.ledger.sums(), TopicFigures()
    subscribers = figures.ledger.subscribers()
    names = [*dict.fromkeys([*sums, *figures.topics])]

    def weight(name: str) -> tuple[bool, int]:
        return name != chosen, -(sums[name].delivered if name in sums else 0)

    empty = TopicSums(0, 0, 0, 0, {}, 0, 0)
    rows = []
    for name in sorted(names, key=weight)[:MOST_TOPICS]:
        known, sum_ = figures.topics.get(name, nothing), sums.get(name, empty)
        rows.append(
            {
                "name": name,
                "title": cut(name, 64),
                "published": sum_.published,
                "delivered": sum_.delivered,
                "pending": sum_.pending,
                "dropped": ranked(sum_.dropped),
                "duplicates": known.duplicates,
                "rejected": known.rejected,
                "rate": rounded(known.rate),
                "p50": percentile(known.latencies, 0.5),
                "p99": percentile(known.latencies, 0.99),
                "subscribers": len(subscribers.get(name, ())),
            }
        )
    return {"rows": rows, "left_out": max(0, len(names) - MOST_TOPICS)}


def peers(figures: TraceAggregator) -> dict[str, Any]:
    """Everybody, in the order in which the trace speaks of them."""
    rows = []
    for peer, each in list(figures.peers.items())[:MOST_PEERS]:
        text = peer_text(peer)
        row: dict[str, Any] = {"id": text, "name": text[-6:], "up": each.up}
        row |= {"delivered": each.delivered, "duplicates": each.duplicates}
        rows.append(row | ({"errors": list(each.errors)} if each.errors else {}))
    left_out = len(figures.peers) - len(rows) + figures.peers_left_out
    return {"rows": rows, "left_out": left_out}


def links(figures: TraceAggregator, topic: str, views: Views | None) -> dict[str, Any]:
    """Who is linked with whom, of one topic or of all, each link once."""
    index = {peer: number for number, peer in enumerate(list(figures.peers)[:MOST_PEERS])}
    found = _of_trace(figures, topic)
    if views:  # which know the protocol's own links, and not who is connected besides
        plain = (link for link in found if link[1] == CONNECTED)
        found = chain(_of_views(views, topic), plain)
    section = links_once(
        (index.get(peer), index.get(other), kind, name) for peer, kind, other, name in found
    )
    section["left_out"] += figures.links_left_out
    return section


_DIRECTED: Final = ("parent", "child")
_FoundLink = tuple[PeerId, str, PeerId, str]


def links_once(found: Iterable[tuple[int | None, int | None, str, str]]) -> dict[str, Any]:
    """Links between rows of a table of peers, each once; who has no other link is connected."""
    rows: dict[tuple[int, int, str, str], None] = {}
    linked: dict[tuple[int, int], None] = {}
    for a, b, kind, topic in found:
        if a is None or b is None:
            continue
        low, high = sorted((a, b))
        rows[(a, b, kind, topic) if kind in _DIRECTED else (low, high, kind, topic)] = None
        if kind != CONNECTED:
            linked[low, high] = None
    shown = [list(row) for row in rows if row[2] != CONNECTED or (row[0], row[1]) not in linked]
    return listed(shown, MOST_LINKS)


def _of_trace(figures: TraceAggregator, topic: str) -> Iterable[_FoundLink]:
    for peer, of_peer in figures.links.items():
        for kind, other, name in of_peer:
            if not topic or name in ("", topic):
                yield peer, kind, other, name


def _of_views(views: Views, topic: str) -> Iterable[_FoundLink]:
    for peer, view in views.items():
        for kind, by_topic in view.links.items():
            for name, others in by_topic.items():
                if not topic or name in ("", topic):
                    for other in others:
                        yield peer, kind, other, name


def degrees(figures: TraceAggregator) -> dict[str, Any]:
    """How many links of the mesh, or connections, peers have."""
    found: dict[tuple[PeerId, str], int] = {}
    plain: list[int] = []
    for peer, of_peer in figures.links.items():
        plain.append(sum(kind == CONNECTED for kind, _, _ in of_peer))
        for kind, _, name in of_peer:
            if kind == MESH:
                found[peer, name] = found.get((peer, name), 0) + 1
    return {"mesh": counted(found.values()), "connected": counted(plain)}


def protocol(name: str, figures: TraceAggregator, views: Views | None) -> dict[str, Any]:
    """What is special to the protocol: trees, rings and whether they are as they should be."""
    counts = {"sync sessions": sum(figures.sessions.values())}
    rows: list[list[Any]] = [[label, count] for label, count in counts.items() if count]
    found: dict[str, Any] = {"name": name, "rows": rows}
    if figures.legitimate:
        found["ring"] = {
            topic: {"legitimate": is_so, "labels": _labels(topic, views or {})}
            for topic, is_so in list(figures.legitimate.items())[:MOST_TOPICS]
        }
    if views:
        rows += _counted(views)
        trees = _trees(views)
        if trees:
            found["trees"] = trees
            rows += [[f"edges of {cut(topic, 40)}", len(edges)] for topic, edges in trees.items()]
        if coverage := _coverage(views):
            found["coverage"] = coverage
    else:  # of a file: what it says of links
        kinds = Counter(kind for of_peer in figures.links.values() for kind, _, _ in of_peer)
        rows += [[f"{kind} links", count] for kind, count in kinds.items()]
    return found


def _counted(views: Views) -> list[list[Any]]:
    """What all machines hold together."""
    found: dict[str, int] = {"subscriptions": 0}
    for view in views.values():
        found["subscriptions"] += len(view.subscriptions)
        for kind, by_topic in view.links.items():
            label = f"{kind} links"
            found[label] = found.get(label, 0) + sum(map(len, by_topic.values()))
        for table, count in view.evicted.items():
            found[f"evicted: {table}"] = found.get(f"evicted: {table}", 0) + count
    return [[label, count] for label, count in found.items() if count]


def _labels(topic: str, views: Views) -> list[list[str]]:
    """Who stands where in a topic's ring."""
    found = [(view.labels[topic], peer) for peer, view in views.items() if topic in view.labels]
    return [[peer_text(peer), label] for label, peer in sorted(found)[:MOST_PEERS]]


def _trees(views: Views) -> dict[str, list[list[str]]]:
    trees: dict[str, dict[tuple[str, str], None]] = {}
    for peer, view in views.items():
        for topic, above in view.links.get("parent", {}).items():
            for parent in above:
                trees.setdefault(topic, {})[peer_text(peer), peer_text(parent)] = None
        for topic, below in view.links.get("child", {}).items():
            for child in below:
                trees.setdefault(topic, {})[peer_text(child), peer_text(peer)] = None
    kept = list(trees.items())[:8]
    return {topic: [list(edge) for edge in list(edges)[:MOST_LINKS]] for topic, edges in kept}


def _coverage(views: Views) -> dict[str, Any]:
    """Of radius gossip: how many of a topic's subscribers each peer knows, on average."""
    if not any("neighbour" in view.links for view in views.values()):
        return {}
    subscribers: dict[str, int] = {}
    for view in views.values():
        for topic in view.subscriptions:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    found = {}
    for topic, count in list(subscribers.items())[:MOST_TOPICS]:
        known = [len(view.peers.get(topic, ())) for view in views.values()]
        found[topic] = rounded(sum(known) / len(known) / count)
    return found


def sync(figures: TraceAggregator) -> dict[str, Any]:
    """How histories were compared."""
    partners = figures.partner_rows(MOST_PEERS)
    return {"sessions": ranked(figures.sessions), "topics": [], "partners": partners}


def summary(figures: TraceAggregator) -> dict[str, Any]:
    """One run, to be compared with others."""
    return {
        "totals": totals(figures),
        "latency": latency(figures),
        "series": figures.series.points(None),
    }
