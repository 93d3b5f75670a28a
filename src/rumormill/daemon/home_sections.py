"""The sections of several nodes, put together to one.

What is counted is added up; tables are merged by what their rows are about; what cannot be added,
such as a percentile, is computed anew or is the largest.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rumormill.dashboard.figures import listed
from rumormill.dashboard.series import rounded
from rumormill.dashboard.source import Sections
from rumormill.dashboard.trace_sections import links_once

Found = Mapping[str, Sections]
"""What each node shows, by its name."""

_MOST_ROWS: Final = 500
_LARGEST: Final = ("p50", "p99", "fsync", "lag")
_RECENT: Final = 64


def _sections(found: Found, name: str) -> list[Any]:
    return [each[name] for each in found.values() if each.get(name) is not None]


def added(values: list[Any]) -> Any:
    """Numbers added up, and tables of numbers by their names."""
    if values and isinstance(values[0], dict):
        names = dict.fromkeys([name for value in values for name in value])
        return {name: added([v[name] for v in values if name in v]) for name in names}
    known = [value for value in values if isinstance(value, int | float)]
    return sum(known) if known else None


def point(points: list[dict[str, float | None]]) -> dict[str, float | None]:
    """One point of the series, of those of all nodes."""
    found: dict[str, float | None] = {}
    for name in dict.fromkeys([name for each in points for name in each]):
        known = [value for each in points if (value := each.get(name)) is not None]
        if not known:
            continue
        if name in _LARGEST:
            found[name] = max(known)
        elif name == "copies":
            found[name] = rounded(sum(known) / len(known))
        else:
            found[name] = rounded(sum(known))
    return found


def source(title: str, found: Found) -> dict[str, Any]:
    """What is watched."""
    told = _sections(found, "source")
    protocols = dict.fromkeys(each.get("protocol", "") for each in told)
    version = told[0]["version"] if told else ""
    about = {"kind": "homes", "title": title, "protocol": ", ".join(protocols)}
    return about | {"version": version}


def well(found: Found, away: Mapping[str, str]) -> dict[str, Any]:
    """The first thing that is not well, and how many there are."""
    wrong = [f"{name} is away" for name in away]
    for name, each in found.items():
        if not each["well"]["ok"]:
            wrong.append(f"{name}: {each['well']['sentence']}")
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return {"ok": False, "sentence": wrong[0] + more}
    if not found:
        return {"ok": True, "sentence": "no node is there yet"}
    return {"ok": True, "sentence": f"{nodes(found)}, all well"}


def nodes(found: Found) -> str:
    """How many there are, also behind one dashboard."""
    rows = [row for each in found.values() for row in each.get("peers", {}).get("rows", [])]
    count = sum(bool(row.get("me")) for row in rows)
    return "one node" if count == 1 else f"{count} nodes"


def totals(found: Found) -> dict[str, Any]:
    """Counts of all nodes."""
    told: dict[str, Any] = added(_sections(found, "totals")) or {}
    sent, delivered = told.get("messages_sent"), told.get("delivered")
    told["copies_per_delivery"] = rounded(sent / delivered) if sent and delivered else None
    return told


def latency(found: Found) -> dict[str, Any]:
    """Latencies of all nodes; percentiles of their boxes together."""
    boxes: dict[float | None, int] = {}
    told = _sections(found, "latency")
    for each in told:
        for bound, count in each["buckets"]:
            boxes[bound] = boxes.get(bound, 0) + count
    ordered = sorted(boxes.items(), key=lambda box: float("inf") if box[0] is None else box[0])
    return {
        "p50": _percentile(ordered, 0.5),
        "p99": _percentile(ordered, 0.99),
        "buckets": [list(box) for box in ordered],
        "of": told[0]["of"] if told else "delivery",
    }


def _percentile(boxes: list[tuple[float | None, int]], part: float) -> float | None:
    wanted, seen = part * sum(count for _, count in boxes), 0
    for bound, count in boxes:
        seen += count
        if count and seen >= wanted:
            return bound
    return None


def process(found: Found) -> dict[str, Any]:
    """What all processes cost together."""
    told = _sections(found, "process")
    sums: dict[str, Any] = added(told) or {}
    if "cpu" in sums:
        sums["cpu"] = rounded(sums["cpu"])
    if "fsync_p99" in sums:
        sums["fsync_p99"] = max(each["fsync_p99"] for each in told if "fsync_p99" in each)
    return sums


def degrees(found: Found) -> dict[str, Any]:
    """Distributions over all nodes."""
    sums: dict[str, dict[float, int]] = {}
    for each in _sections(found, "degrees"):
        for name, boxes in each.items():
            of_name = sums.setdefault(name, {})
            for value, count in boxes:
                of_name[value] = of_name.get(value, 0) + count
    return {name: [list(box) for box in sorted(boxes.items())] for name, boxes in sums.items()}


def topics(found: Found) -> dict[str, Any]:
    """Topics by name: deliveries of all, subscribers among these nodes, the longest log."""
    rows: dict[str, dict[str, Any]] = {}
    for each in _sections(found, "topics"):
        for row in each["rows"]:
            had = rows.setdefault(row["name"], {"name": row["name"], "title": row["title"]})
            for name in ("published", "delivered", "duplicates", "rejected", "rate"):
                had[name] = rounded((had.get(name) or 0) + (row.get(name) or 0))
            here = row.get("subscribed", row.get("subscribers", 0))  # of one node, or of several
            had["subscribers"] = had.get("subscribers", 0) + int(here)
            for name in ("next", "bytes", "mesh"):
                if name in row:
                    had[name] = max(had.get(name, 0), row[name])
            if "first" in row:
                had["first"] = min(had.get("first", row["first"]), row["first"])
    left_out = max([each["left_out"] for each in _sections(found, "topics")], default=0)
    return {"rows": list(rows.values())[:_MOST_ROWS], "left_out": left_out}


def _ids(found: Found) -> dict[str, dict[str, Any]]:
    """Everybody who is there or connected to who is, by id; these nodes first, by their names."""
    rows: dict[str, dict[str, Any]] = {}
    told = {name: each["peers"]["rows"] for name, each in found.items() if "peers" in each}
    for name, of_node in told.items():
        own = [row for row in of_node if row.get("me")]
        for row in own:
            called = name if len(own) == 1 else f"{name}/{row['name']}"
            rows[row["id"]] = row | {"name": called, "delivered": 0, "duplicates": 0}
    trips: dict[str, list[float]] = {}
    for of_node in told.values():
        own = [row for row in of_node if row.get("me")]
        for row in of_node:
            # Of one node, others' rows say what it got of them; of several, their own rows do.
            getter = row if row.get("me") else own[0] if len(own) == 1 else None
            if getter is not None:
                for count in ("delivered", "duplicates"):
                    rows[getter["id"]][count] += row.get(count, 0)
            if not row.get("me"):
                kept = ("id", "name", "up", "kind")
                rows.setdefault(row["id"], {name: row[name] for name in kept if name in row})
            if "rtt" in row:
                trips.setdefault(row["id"], []).append(row["rtt"])
    return {peer: row | _middle(trips.get(peer)) for peer, row in rows.items()}


def _middle(trips: list[float] | None) -> dict[str, float]:
    """How far a peer is from those that are connected to it: from half of them, nearer."""
    return {"rtt": sorted(trips)[len(trips) // 2]} if trips else {}


def peers(found: Found) -> dict[str, Any]:
    """Everybody; of these nodes, what was new to them and what not."""
    rows = list(_ids(found).values())
    return listed(rows, _MOST_ROWS)


def links(found: Found) -> dict[str, Any]:
    """Links of all, each once."""
    index = {peer: number for number, peer in enumerate(list(_ids(found))[:_MOST_ROWS])}
    joined: list[tuple[int | None, int | None, str, str]] = []
    for each in found.values():
        if "links" not in each or "peers" not in each:
            continue
        own = [row["id"] for row in each["peers"]["rows"]]
        for a, b, kind, topic in each["links"]["rows"]:
            if a < len(own) and b < len(own):
                joined.append((index.get(own[a]), index.get(own[b]), kind, topic))
    return links_once(joined)


def recent(found: Found) -> dict[str, Any]:
    """Events that were seen last, with how many of these nodes have them."""
    rows: dict[str, dict[str, Any]] = {}
    for each in _sections(found, "recent"):
        for row in each["rows"]:
            had = rows.get(row["id"])
            if had is None:
                rows[row["id"]] = dict(row)
                continue
            had["deliveries"] += row["deliveries"]
            had["t"] = min(had["t"], row["t"])
            had["author"] = had["author"] or row["author"]
    wanted = {row["name"]: row["subscribers"] for row in topics(found)["rows"]}
    newest = sorted(rows.values(), key=lambda row: -row["t"])[:_RECENT]
    for row in newest:
        row["complete"] = row["deliveries"] >= wanted.get(row["topic"], 0)
    return {"rows": newest}


def sync(found: Found) -> dict[str, Any]:
    """How histories compare, the worst of each topic; partners of each node."""
    rows: dict[str, dict[str, Any]] = {}
    partners: list[dict[str, Any]] = []
    sessions: dict[str, int] = {}
    for node, each in found.items():
        told = each.get("sync")
        if told is None:
            continue
        sessions = added([sessions, told["sessions"]])
        partners += [{"node": node, **partner} for partner in told["partners"]]
        for row in told["topics"]:
            had = rows.setdefault(row["name"], dict(row))
            for name in ("compared", "lacking", "backlog"):
                had[name] = max((v for v in (had[name], row[name]) if v is not None), default=None)
    return {
        "sessions": sessions,
        "topics": list(rows.values())[:_MOST_ROWS],
        "partners": partners[:_MOST_ROWS],
    }


def reach(found: Found) -> dict[str, Any]:
    """What each says of who reaches it."""
    told = {name: each["reach"] for name, each in found.items() if "reach" in each}
    return {
        "lines": [f"{name}: {line}" for name, each in told.items() for line in each["lines"]],
        "addresses": [address for each in told.values() for address in each["addresses"]],
        "relays": added([each["relays"] for each in told.values()]) or {},
        "punches": added([each["punches"] for each in told.values()]) or {},
    }


def protocol(found: Found) -> dict[str, Any]:
    """Counts of all; trees, as their pieces join."""
    rows: dict[str, Any] = {}
    trees: dict[str, dict[tuple[str, str], None]] = {}
    rings: dict[str, list[list[str]]] = {}
    names: dict[str, None] = {}
    for each in _sections(found, "protocol"):
        names[each["name"]] = None
        for label, value in each["rows"]:
            rows[label] = rows.get(label, 0) + value
        for topic, edges in each.get("trees", {}).items():
            trees.setdefault(topic, {}).update(dict.fromkeys((a, b) for a, b in edges))
        for topic, ring in each.get("ring", {}).items():
            rings.setdefault(topic, []).extend(ring["labels"])
    shown: dict[str, Any] = {
        "name": ", ".join(names),
        "rows": [list(row) for row in rows.items()],
    }
    if trees:
        shown["trees"] = {topic: [list(edge) for edge in edges] for topic, edges in trees.items()}
    if rings:
        shown["ring"] = {topic: {"labels": labels} for topic, labels in rings.items()}
    return shown


def heads(found: Found) -> dict[str, Any] | None:
    """Heads of the first topic that anybody tells of, with how many nodes have them as such."""
    told = _sections(found, "heads")
    counts: dict[str, int] = {}
    same = [each for each in told if each["topic"] == told[0]["topic"]]
    for each in same:
        for event, count in each["rows"]:
            counts[event] = counts.get(event, 0) + count
    rows = [list(row) for row in sorted(counts.items(), key=lambda head: -head[1])]
    left_out = max([each["left_out"] for each in same], default=0)
    return same[0] | {"rows": rows[:_MOST_ROWS], "left_out": left_out} if same else None


def journey(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What several nodes saw of one event, in the order of time, with hops counted anew."""
    told: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in found:
        for hop in each["hops"]:
            key = (hop["kind"], hop["peer"], hop.get("from"), hop.get("to"), hop["t"])
            told.setdefault(key, hop)
    hops = sorted(told.values(), key=lambda hop: hop["t"])
    author = next((each["author"] for each in found if each.get("author")), None)
    depth: dict[str, int] = {} if author is None else {author: 0}
    for hop in hops:
        giver = hop.get("from")
        if hop["kind"] == "deliver" and giver is not None:
            depth.setdefault(hop["peer"], depth.get(giver, 0) + 1)
        hop["hop"] = depth.get(hop["peer"], 0)
    first = found[0]
    return {
        "id": first["id"],
        "topic": next((each["topic"] for each in found if each["topic"]), ""),
        "author": author,
        "t": hops[0]["t"],
        "hops": hops,
        "left_out": sum(each.get("left_out", 0) for each in found),
        "waiting": [],
    }


MAKERS: Final[Mapping[str, Callable[[Found], Any]]] = {
    "totals": totals,
    "latency": latency,
    "process": process,
    "degrees": degrees,
    "topics": topics,
    "peers": peers,
    "links": links,
    "recent": recent,
    "sync": sync,
    "reach": reach,
    "protocol": protocol,
    "heads": heads,
}
"""What puts each section together."""
