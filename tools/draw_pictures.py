"""Draws docs/pictures/*.svg: small simulations with a seed, and what their traces and machines say.

    python tools/draw_pictures.py [NAME ...]    # write all pictures, or those named
    python tools/draw_pictures.py --check       # say whether they are up to date

The rule: every peer, link, arrow and figure on a picture is read from a run, nothing is drawn by
hand; only where a peer stands on the page is chosen here. One seed gives one file.
"""

import math
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from picture_canvas import Canvas, Point, circle

from rumormill.core import trace
from rumormill.protocols.skipring.inspection import rings_of
from rumormill.protocols.skipring.labels import CIRCLE, text_of
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Batch

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SEED = 7


class Copy(NamedTuple):
    """One copy of an event that arrived."""

    sender: int
    receiver: int
    at: float
    first: bool


class Run:
    """A simulation that has ended, and its trace."""

    def __init__(self, **scenario: Any) -> None:
        self.entries: list[tuple[float, int, trace.TracePayload]] = []
        self.simulation = Simulation(Scenario.from_dict({"seed": SEED, **scenario}), [self])
        self.simulation.run()
        self.views = {number(peer): each.view() for peer, each in self.simulation.machines.items()}
        self.peers = range(self.simulation.scenario.peers)

    def observe(self, batch: Batch) -> None:
        """Keep what happened, peers by their numbers."""
        self.entries += [(now, number(peer), payload) for now, peer, payload in batch]

    def close(self) -> None:
        """Nothing is left to be done."""

    def all_of(self, kind: type[trace.TracePayload]) -> list[tuple[float, int, Any]]:
        """The entries of one kind."""
        return [entry for entry in self.entries if isinstance(entry[2], kind)]

    def copies(self, event: bytes) -> list[Copy]:
        """Every copy of an event that arrived anywhere, in the order of arrival."""
        had = {peer for _, peer, each in self.published if each.message_id == event}
        found = []
        for now, peer, rpc in self.all_of(trace.RecvRPC):
            if any(each.message_id == event for each in rpc.meta.messages):
                found.append(Copy(number(rpc.received_from), peer, now, peer not in had))
                had.add(peer)
        return found

    @property
    def published(self) -> list[tuple[float, int, Any]]:
        """Who published what, and when."""
        return self.all_of(trace.PublishMessage)

    def links(self, kind: str, topic: str) -> set[tuple[int, int]]:
        """The edges of a kind that machines show, each once."""
        ends = (
            (peer, number(other))
            for peer, view in self.views.items()
            for other in view.links[kind].get(topic, ())
        )
        return {(min(pair), max(pair)) for pair in ends}

    def connections(self) -> set[tuple[int, int]]:
        """Who was connected to whom at any time."""
        ends = ((peer, number(each.peer)) for _, peer, each in self.all_of(trace.AddPeer))
        return {(min(pair), max(pair)) for pair in ends}


def pair(copy: Copy) -> tuple[int, int]:
    """The link that a copy took, whichever way."""
    return min(copy.sender, copy.receiver), max(copy.sender, copy.receiver)


def number(peer: bytes) -> int:
    """A simulated peer's number."""
    return int.from_bytes(peer, "big")


def draw_links(
    canvas: Canvas, at: dict[int, Point], pairs: Iterable[tuple[int, int]], kind: str
) -> None:
    """Lines between peers, in a stable order."""
    for one, other in sorted(pairs):
        canvas.line(at[one], at[other], kind)


def draw_ways(canvas: Canvas, at: dict[int, Point], copies: list[Copy]) -> None:
    """Arrows of the first copies; those that came again lie below them."""
    draw_links(canvas, at, {pair(copy) for copy in copies if not copy.first}, "again")
    for copy in copies:
        if copy.first:
            canvas.arrow(at[copy.sender], at[copy.receiver], "way")


def draw_peers(canvas: Canvas, at: dict[int, Point], publisher: int | None = None) -> None:
    """Peers with their numbers."""
    for peer, place in sorted(at.items()):
        canvas.peer(place, str(peer), "publisher" if peer == publisher else "peer")


def floodsub() -> Canvas:
    """Every copy of one event among ten peers with four links each."""
    run = Run(
        protocol="floodsub",
        peers=10,
        topology={"kind": "random-regular", "degree": 4},
        links={"latency": "planetlab"},
        workload={"messages": 1},
    )
    ((_, publisher, event),) = run.published
    copies = run.copies(event.message_id)
    at = circle(run.peers, (190, 190), 150)
    canvas = Canvas("FloodSub: one event crosses every link", 600, 380)
    draw_ways(canvas, at, copies)
    draw_peers(canvas, at, publisher)
    firsts = sum(copy.first for copy in copies)
    canvas.legend(
        (390, 110),
        ("publisher", f"peer {publisher} publishes"),
        ("way", f"{firsts} first copies"),
        ("again", f"{len(copies) - firsts} that came again"),
        ("", f"{len(run.connections())} links, each crossed"),
        ("", f"{len(copies) / firsts:.1f} copies per delivery"),
    )
    return canvas


SMALL_MESH = {"D": 3, "D_lo": 2, "D_hi": 4, "D_score": 2, "D_out": 1, "flood_publish": False}
"""Fewer mesh links than usual, so that one can follow them with a finger."""


def mesh() -> Canvas:
    """A topic's mesh inside the connections, and the way of one event along it."""
    run = Run(
        protocol="gossipsub",
        parameters=SMALL_MESH,
        peers=14,
        topology={"kind": "random-regular", "degree": 8},
        links={"latency": "planetlab"},
        workload={"messages": 1},
    )
    ((_, publisher, event),) = run.published
    copies = run.copies(event.message_id)
    grafted = run.links("mesh", event.topic)
    at = circle(run.peers, (190, 190), 150)
    canvas = Canvas("GossipSub: a mesh inside the connections", 620, 380)
    draw_links(canvas, at, run.connections() - grafted, "link")
    draw_links(canvas, at, grafted, "strong")
    draw_ways(canvas, at, [copy for copy in copies if copy.first])
    draw_peers(canvas, at, publisher)
    firsts = sum(copy.first for copy in copies)
    canvas.legend(
        (390, 90),
        ("publisher", f"peer {publisher} publishes"),
        ("link", f"{len(run.connections() - grafted)} plain connections,"),
        ("", "for gossip about ids"),
        ("strong", f"{len(grafted)} links of the mesh, D = 3"),
        ("way", f"{firsts} first copies"),
        ("", f"{len(copies) / firsts:.1f} copies per delivery"),
    )
    return canvas


def event() -> Canvas:
    """The way of an event through time: who had it when, from whom."""
    run = Run(
        protocol="gossipsub",
        parameters=SMALL_MESH,
        peers=12,
        topology={"kind": "random-regular", "degree": 8},
        links={"latency": "planetlab"},
        disk={"commit_delay": "15ms"},
        workload={"messages": 1},
    )
    ((safe, publisher, event),) = run.published
    asked = run.simulation.plan.publications[0].at
    copies = run.copies(event.message_id)
    had = {publisher: safe, **{copy.receiver: copy.at for copy in copies if copy.first}}
    rows = {peer: 60 + 25 * row for row, peer in enumerate(sorted(had, key=lambda peer: had[peer]))}
    last = max(copy.at for copy in copies) - asked
    canvas = Canvas("The way of an event", 720, 25 * len(rows) + 84)

    def place(peer: int, when: float) -> Point:
        return 90 + 600 * (when - asked) / last, rows[peer]

    for peer, y in rows.items():
        canvas.text((24, y + 5), f"peer {peer}")
        canvas.line((90, y), (696, y), "link")
    for copy in copies:
        if copy.first:
            canvas.arrow(
                place(copy.sender, had[copy.sender]), place(copy.receiver, copy.at), "way", gap=5
            )
        else:
            canvas.mark(place(copy.receiver, copy.at), "again")
    canvas.line(place(publisher, asked), place(publisher, safe), "disk")
    for peer, when in had.items():
        canvas.mark(place(peer, when), "publisher" if peer == publisher else "peer")
    bottom = 60 + 25 * len(rows)
    for step in range(0, int(last * 1000) + 1, 50):
        canvas.text((90 + 600 * step / 1000 / last, bottom + 8), f"{step} ms", "middle")
    canvas.keys(
        (90, 28),
        ("disk", "to disk"),
        ("way", "first copy"),
        ("peer", "delivered"),
        ("again", "a copy that came again"),
    )
    return canvas


def tree() -> Canvas:
    """A topic's tree, its relays, and the way of an event that begins far from the root."""
    run = Run(
        protocol="pulsarcast",
        preset="open",
        peers=60,
        topology={"kind": "random-regular", "degree": 4},
        links={"latency": "planetlab"},
        workload={"messages": 20, "topics": 3, "subscriptions_per_peer": 1},
    )
    topics = {versions[-1] for versions in run.simulation.set_up.versions.values()}
    *_, (_, publisher, event) = [
        (now, peer, event)
        for now, peer, event in run.published
        if event.topic in topics and run.views[peer].links["parent"].get(event.topic)
    ]
    below = {
        peer: sorted(map(number, view.links["child"].get(event.topic, ())))
        for peer, view in run.views.items()
    }
    children = {child for each in below.values() for child in each}
    (root,) = [peer for peer, each in below.items() if each and peer not in children]
    at, deep = stand(below, root)
    canvas = Canvas("Pulsarcast: one tree for each topic", 680, deep + 116)
    draw_links(canvas, at, [(peer, each) for peer in at for each in below[peer]], "strong")
    copies = run.copies(event.message_id)
    draw_ways(canvas, at, copies)
    for peer, place in sorted(at.items()):
        relays = event.topic not in run.views[peer].subscriptions
        kind = "publisher" if peer == publisher else "relay" if relays else "peer"
        canvas.peer(place, str(peer), kind)
    canvas.keys((30, deep + 64), ("publisher", "publisher"), ("peer", "subscriber"))
    canvas.keys((290, deep + 64), ("relay", "relay, which did not subscribe"))
    words = f"{len(copies)} copies for {len(at)} members; {root} is the root"
    canvas.keys((30, deep + 94), ("way", words))
    return canvas


def stand(below: dict[int, list[int]], root: int) -> tuple[dict[int, Point], float]:
    """Places for a tree, each peer above the middle of its children, and how deep it is."""
    at: dict[int, tuple[float, int]] = {}
    leaves = 0

    def place(peer: int, depth: int) -> float:
        nonlocal leaves
        if below[peer]:
            found = [place(child, depth + 1) for child in below[peer]]
            x = (found[0] + found[-1]) / 2
        else:
            x, leaves = float(leaves), leaves + 1
        at[peer] = x, depth
        return x

    place(root, 0)
    wide = 620 / max(leaves - 1, 1)
    shown = {peer: (30 + wide * x, 36.0 + 62 * depth) for peer, (x, depth) in at.items()}
    return shown, max(y for _, y in shown.values())


def ring() -> Canvas:
    """A legitimate skip ring: labels, ring edges, shortcuts, and the way of an event."""
    run = Run(
        protocol="skipring",
        peers=16,
        topology={"kind": "random-regular", "degree": 4},
        links={"latency": "planetlab"},
        workload={"messages": 1},
        warm_up="60s",
    )
    ((_, publisher, event),) = run.published
    (members,) = rings_of(run.simulation.machines).values()
    labels = {number(peer): member.subscriber.label for peer, member in members.items()}
    centre = (220, 220)
    at, outside = {}, {}
    for peer, label in labels.items():
        angle = 2 * math.pi * label / CIRCLE - math.pi / 2
        direction = math.cos(angle), math.sin(angle)
        at[peer] = (centre[0] + 160 * direction[0], centre[1] + 160 * direction[1])
        outside[peer] = (centre[0] + 192 * direction[0], centre[1] + 192 * direction[1] + 5)
    canvas = Canvas("The supervised skip ring", 660, 440)
    copies = run.copies(event.message_id)
    draw_links(canvas, at, run.links("shortcut", event.topic), "link")
    draw_links(canvas, at, run.links("ring", event.topic), "strong")
    draw_ways(canvas, at, [copy for copy in copies if copy.first])
    draw_peers(canvas, at, publisher)
    for peer, place in sorted(outside.items()):
        canvas.text(place, text_of(labels[peer]), "middle")
    firsts = [copy for copy in copies if copy.first]
    canvas.legend(
        (440, 100),
        ("publisher", f"peer {publisher} publishes"),
        ("strong", f"{len(run.links('ring', event.topic))} edges of the ring"),
        ("link", f"{len(run.links('shortcut', event.topic))} shortcuts"),
        ("way", f"{len(firsts)} first copies, {hops(firsts, publisher)} hops"),
        ("", "outside: labels, which"),
        ("", "are places on the circle"),
    )
    return canvas


def hops(firsts: list[Copy], publisher: int) -> int:
    """How many steps the longest of the first ways has."""
    steps = {publisher: 0}
    for copy in firsts:
        steps[copy.receiver] = steps[copy.sender] + 1
    return max(steps.values())


COLUMNS, LINES = 9, 5


def radius() -> Canvas:
    """A subscription and a publication on a lattice, and the peers where they meet."""
    steps = [(0, 1), (1, 0)]
    cells = {(x, y): y * COLUMNS + x for y in range(LINES) for x in range(COLUMNS)}
    pairs = [
        (peer, cells[x + right, y + down])
        for (x, y), peer in cells.items()
        for right, down in steps
        if (x + right, y + down) in cells
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lattice.txt")
        path.write_text("".join(f"{one} {other}\n" for one, other in pairs))
        run = Run(
            protocol="radius",
            parameters={"overlay": "links", "sub_hops": 3, "pub_hops": 3, "serving": "few"},
            peers=len(cells),
            topology={"kind": "file", "path": str(path)},
            workload={
                "messages": 200,
                "topics": len(cells),
                "subscriptions_per_peer": 1,
                "publish_from": "anyone",
            },
        )
    places = {peer: cell for cell, peer in cells.items()}
    joined = [(each.topic, peer) for _, peer, each in run.all_of(trace.Join)]

    def apart(one: int, other: int) -> int:
        return sum(abs(a - b) for a, b in zip(places[one], places[other], strict=True))

    for _, publisher, event in run.published:
        wanting = [peer for topic, peer in joined if topic == event.topic]
        if len(wanting) == 1 and apart(publisher, wanting[0]) == 6:
            (subscriber,) = wanting
            break
    return coverage(run, event, publisher, subscriber)


def reached(run: Run, name: str, topic: str, event: bytes) -> set[int]:
    """Who got a SUB of a topic, or a PUB of an event."""
    return {
        peer
        for _, peer, rpc in run.all_of(trace.RecvRPC)
        for operation in rpc.meta.operations
        if operation.name == name
        and (operation.topic == topic or any(m.message_id == event for m in rpc.meta.messages))
    }


def coverage(run: Run, event: Any, publisher: int, subscriber: int) -> Canvas:
    """Two discs of hops, and the letters of those who stand in both."""
    at = {peer: (50 + 65 * (peer % COLUMNS), 44 + 62 * (peer // COLUMNS)) for peer in run.peers}
    told = reached(run, "sub", event.topic, b"") | {subscriber}
    got = reached(run, "pub", "-", event.message_id) | {publisher}
    canvas = Canvas("Radius gossip: two radii that meet", 620, 430)
    draw_links(canvas, at, run.connections(), "link")
    copies = [copy for copy in run.copies(event.message_id) if copy.first]
    letters = {
        (peer, number(rpc.send_to))
        for _, peer, rpc in run.all_of(trace.SendRPC)
        if any(each.name == "directmsg" for each in rpc.meta.operations)
        and any(each.message_id == event.message_id for each in rpc.meta.messages)
    }
    draw_ways(canvas, at, [c for c in copies if (c.sender, c.receiver) not in letters])
    for sender, receiver in sorted(letters):
        canvas.bow(at[sender], at[receiver], "letter")
    for peer, place in at.items():
        kind = "both" if peer in told & got else "told" if peer in told else "peer"
        kind = kind if peer in told | got else "relay"
        kind = {publisher: "publisher", subscriber: "wanted"}.get(peer, kind)
        canvas.peer(place, str(peer), kind)
    canvas.keys((40, 344), ("publisher", "publisher"), ("peer", "has the publication, 3 hops"))
    canvas.keys((40, 374), ("wanted", "subscriber"), ("told", "knows the subscription, 3 hops"))
    canvas.keys((40, 404), ("both", "has both"), ("letter", f"letters: {len(letters)}"))
    return canvas


def sync() -> Canvas:
    """A session: what a peer that was away and one that was there say to each other."""
    run = Run(
        protocol="gossipsub",
        peers=2,
        topology={"kind": "complete"},
        links={"latency": "constant:20ms"},
        sync={"enabled": True},
        workload={"messages": 600, "rate": 20, "publishers": 1, "size": "200b"},
        faults=[{"kind": "partition", "at": "10s", "groups": 2, "duration": "10s"}],
        cool_down="30s",
    )
    ended = [entry for entry in run.all_of(trace.SyncEnded) if entry[2].events > 100]
    now, asker, end = ended[0]
    said = [
        (sent, peer, rpc.meta)
        for sent, peer, rpc in run.all_of(trace.SendRPC)
        if rpc.meta.operations and rpc.meta.operations[0].name.startswith("sync ")
    ]
    begins = max(
        sent for sent, peer, meta in said if peer == asker and sent < now and is_probe(meta)
    )
    shown = [each for each in said if begins <= each[0] < now]
    canvas = Canvas("A session of sync", 640, 34 * len(shown) + 150)
    sides = {asker: 150.0, 1 - asker: 490.0}
    bottom = 34 * len(shown) + 84
    for peer, name in ((asker, "was cut off"), (1 - asker, "has everything")):
        canvas.text((sides[peer], 34), name, "middle")
        canvas.line((sides[peer], 46), (sides[peer], bottom), "link")
    for row, (sent, peer, meta) in enumerate(shown):
        y = 78.0 + 34 * row
        canvas.arrow((sides[peer], y), (sides[1 - peer], y), "way", gap=2)
        name = meta.operations[0].name.removeprefix("sync ")
        canvas.text((320, y - 7), f"{name}, {meta.size:,} bytes", "middle")
        canvas.text((40, y + 5), f"{(sent - begins) * 1000:.0f} ms")
    spent = sum(meta.size - meta.data_size for _, _, meta in shown)
    took = f"{end.events} events fetched in {(now - begins) * 1000:.0f} ms"
    canvas.text((320, bottom + 34), f"{took}; besides them {spent:,} bytes", "middle")
    return canvas


def is_probe(meta: trace.RpcMeta) -> bool:
    """Whether a session begins with it."""
    return meta.operations[0].name == "sync probe"


PICTURES: dict[str, Callable[[], Canvas]] = {
    each.__name__: each for each in (event, floodsub, mesh, radius, ring, sync, tree)
}


def main(words: list[str]) -> int:
    """Write pictures, or compare all of them."""
    if words == ["--check"]:
        fresh = {FOLDER / f"{name}.svg": draw().svg() for name, draw in PICTURES.items()}
        return sum(path.read_text() != svg for path, svg in fresh.items())
    for name in words or PICTURES:
        FOLDER.joinpath(f"{name}.svg").write_text(PICTURES[name]().svg())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
