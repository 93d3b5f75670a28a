"""The rows and plots of `docs/radius-evaluation.md`: what radius gossip costs and survives.

Every row is one simulated run; rows are kept in `docs/plots/radius.json`, so that a part can be
measured again without the rest. Choose parts by name, then draw:

    python bench/radius.py reference sparse dense split churn --peers 100 200 500 1000
    python bench/radius.py crashes estimate
    python bench/radius.py tables
    python bench/radius.py plots
"""

import argparse
import json
import multiprocessing
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/overlay/hyparview"))

from hyparview_rig import Overlay

from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.sim.topology import build_topology
from rumormill.sim.unsubscribing import Wishes
from rumormill.spark.line_plot import Series, line_plot
from rumormill.trace.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
PLOTS = ROOT / "docs" / "plots"
ROWS = PLOTS / "radius.json"

DEGREE = 6
SUBSCRIBERS, TOPICS = 100, 10

KEPT = (
    "planned",
    "published",
    "expected_deliveries",
    "delivery_ratio",
    "repeated_deliveries",
    "messages_per_delivery",
    "latency_p50",
    "latency_p99",
    "control_bytes",
    "data_bytes",
    "control_messages",
    "refused",
)

Row = dict[str, Any]

LABELS: list[str] = []


def wanted(label: str) -> bool:
    """Whether a contender is to be measured now."""
    return not LABELS or label in LABELS


def scenario(peers: int, protocol: str, parameters: Row, **changes: Any) -> Scenario:
    """A run on a random graph of degree 6 with latencies of 10 to 100 ms."""
    if protocol == "pulsarcast":  # in its other presets not everybody may publish
        changes = {"preset": "open", **changes}
    text = f"""
        peers = {peers}
        warm_up = "10s"
        cool_down = "5s"
        topology = {{ kind = "random-regular", degree = {DEGREE} }}
        links = {{ latency = "uniform:10ms-100ms" }}
        workload = {{ kind = "poisson", topics = 1, messages = 20, rate = 2.0 }}
    """
    return Scenario.parse(text).changed({"protocol": protocol, "parameters": parameters, **changes})


def run(scene: Scenario, change_plan: Callable[[Simulation], None] | None = None) -> Row:
    """Run a scenario and keep its figures, and how much state peers hold in the end."""
    metrics = Metrics()
    simulation = Simulation(scene, [metrics])
    if change_plan is not None:
        change_plan(simulation)
    simulation.run()
    summary = metrics.summary()
    states = [_state(host.machine) for host in simulation.network.hosts if host.up]
    held = [state for state in states if state is not None]
    return {
        **{name: summary[name] for name in KEPT},
        "failed": sum(summary["failed_publications"].values()),
        "remote_deliveries": summary["remote_deliveries"],
        "state_mean": sum(held) / len(held) if held else None,
        "state_max": max(held, default=None),
        "load_max_over_mean": summary["load_max_over_mean"],
        "seed": scene.seed,
        "peers": scene.peers,
    }


def _state(machine: Any) -> int | None:
    """Subscriptions of others that a peer holds; None where the protocol has no such thing."""
    interests = getattr(getattr(machine, "subscriptions", None), "interests", None)
    if interests is not None:
        return len(interests)
    peers = getattr(machine, "peers", None)
    if not isinstance(peers, dict) or not all(hasattr(each, "topics") for each in peers.values()):
        return None
    return sum(len(state.topics) for state in peers.values())


def radius(peers: int, serving: str = "all", **more: Any) -> Row:
    """Radius gossip over given links, by the design's rule for the radii unless told otherwise."""
    return {"overlay": "links", "network_size": peers, "ttl": 600, "serving": serving, **more}


def few_subscribers(simulation: Simulation) -> None:
    """Let a hundred peers, drawn at random, subscribe to one of ten topics; the others relay."""
    rng = random.Random(f"{simulation.scenario.seed}/subscribers")
    plan = simulation.plan
    chosen = rng.sample(range(len(plan.subscriptions)), SUBSCRIBERS)
    plan.subscriptions[:] = [()] * len(plan.subscriptions)
    for place, peer in enumerate(chosen):
        plan.subscriptions[peer] = (plan.topics[place % TOPICS],)
    simulation.wishes = Wishes(plan)


def diameter(scene: Scenario) -> int:
    """The true diameter of a scenario's graph."""
    rng = random.Random(f"{scene.seed}/topology")
    links: list[list[int]] = [[] for _ in range(scene.peers)]
    for one, other in build_topology(scene.topology, scene.peers, rng):
        links[one].append(other)
        links[other].append(one)
    longest = 0
    # Beyond 1,000 peers, from a sample of them: that is one less than the truth at most, since
    # whoever is next to the end of a longest path is as good as its end but for one hop.
    origins = range(scene.peers)
    for origin in origins if scene.peers <= 1000 else rng.sample(origins, 300):
        seen = bytearray(scene.peers)
        seen[origin] = 1
        ring, distance = [origin], -1
        while ring:
            distance += 1
            further = []
            for peer in ring:
                for other in links[peer]:
                    if not seen[other]:
                        seen[other] = 1
                        further.append(other)
            ring = further
        longest = max(longest, distance)
    return longest


# The parts. Each yields rows with a label.


def reference(_sizes: list[int]) -> Iterable[Row]:
    """20 peers, 50 topics, 5 subscriptions each, one publication a second for a minute."""
    path = ROOT / "scenarios" / "radius-reference.toml"
    given = Scenario.load(path)
    graph = {"topology": {"kind": "random-regular", "degree": DEGREE}}
    complete = {"topology": {"kind": "complete"}}
    cases: list[tuple[str, Row]] = [
        ("radius, HyParView", {"preset": "design"}),
        ("radius few, HyParView", {}),
        ("radius", {"parameters": radius(20, ttl=30), **graph}),
        ("radius few", {"parameters": radius(20, "few", ttl=30), **graph}),
        ("gossipsub", {"protocol": "gossipsub", **graph}),
        ("gossipsub, complete graph", {"protocol": "gossipsub", **complete}),
        ("pulsarcast", {"protocol": "pulsarcast", "preset": "open", **graph}),
    ]
    for label, changes in cases:
        if not wanted(label):
            continue
        for seed in (1, 2, 3):
            yield {"label": label, **run(given.changed({"seed": seed, **changes}))}


def sparse(sizes: list[int]) -> Iterable[Row]:
    """A hundred subscribers of ten topics among N peers."""
    for peers in sizes:
        work = {"workload.topics": TOPICS, "workload.publish_from": "anyone"}
        base = scenario(peers, "gossipsub", {}, **work)
        across = diameter(base)
        fitted = {"sub_hops": across - 1, "pub_hops": 1}
        for label, protocol, parameters in (
            ("radius", "radius", radius(peers)),
            ("radius few", "radius", radius(peers, "few")),
            ("radius few, fitted", "radius", radius(peers, "few", **fitted)),
            ("gossipsub", "gossipsub", {}),
            ("pulsarcast", "pulsarcast", {}),
        ):
            if not wanted(label):
                continue
            row = run(scenario(peers, protocol, parameters, **work), few_subscribers)
            yield {"label": label, "diameter": across, **row}


def dense(sizes: list[int]) -> Iterable[Row]:
    """Everybody subscribes to one topic."""
    for peers in sizes:
        work = {"workload.messages": 5}
        across = diameter(scenario(peers, "gossipsub", {}))
        fitted = {"sub_hops": across - 1, "pub_hops": 1}
        cases = [
            ("radius few", "radius", radius(peers, "few")),
            ("radius few, fitted", "radius", radius(peers, "few", **fitted)),
            ("gossipsub", "gossipsub", {}),
            ("pulsarcast", "pulsarcast", {}),
        ]
        if peers <= 1000:  # N² letters for each publication
            cases.insert(0, ("radius", "radius", radius(peers)))
        for label, protocol, parameters in cases:
            if not wanted(label):
                continue
            yield {
                "label": label,
                "diameter": across,
                **run(scenario(peers, protocol, parameters, **work)),
            }


def split(_sizes: list[int]) -> Iterable[Row]:
    """How the diameter is divided between subscriptions and publications, at 1,000 peers."""
    work = {"workload.topics": TOPICS, "workload.publish_from": "anyone"}
    across = diameter(scenario(1000, "gossipsub", {}))
    for serving in ("all", "few"):
        for pub_hops in range(across + 1):
            hops = {"sub_hops": across - pub_hops, "pub_hops": pub_hops}
            row = run(
                scenario(1000, "radius", radius(1000, serving, **hops), **work), few_subscribers
            )
            yield {"label": f"radius {serving}", "pub_hops": pub_hops, "diameter": across, **row}


def churn(_sizes: list[int]) -> Iterable[Row]:
    """100 peers on HyParView, of which a share leaves every minute and comes back."""
    for share in ("0%", "10%", "20%", "40%"):
        for serving in ("few", "all"):
            for seed in (1, 2):
                scene = scenario(
                    100,
                    "radius",
                    {"serving": serving},
                    join_interval="20ms",
                    warm_up="30s",
                    seed=seed,
                    **{
                        "topology": {"kind": "tree", "branching": 4},
                        "workload.messages": 120,
                        "workload.topics": TOPICS,
                        "workload.subscriptions_per_peer": 1,
                        "workload.publish_from": "anyone",
                        "churn.fraction": share,
                        "churn.downtime": "20s",
                    },
                )
                yield {"label": f"radius {serving}", "churn": share, **run(scene)}


def crashes(_sizes: list[int]) -> Iterable[Row]:
    """The giant component of HyParView after simultaneous crashes, at 1,000 peers.

    Every share strikes the same overlay, in a process forked off for it.
    """
    context = multiprocessing.get_context("fork")
    for seed in (1, 2):
        overlay = Overlay(1000, seed, interval=0.02, swap_interval=120.0)
        overlay.run(60)
        for share in (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
            found: multiprocessing.Queue[Row] = context.Queue()
            process = context.Process(target=_struck, args=(overlay, share, found))
            process.start()
            yield {"label": "crashes", "share": share, "seed": seed, **found.get()}
            process.join()


def _struck(overlay: Overlay, share: float, found: "multiprocessing.Queue[Row]") -> None:
    overlay.crash(share)
    at_once = overlay.giant_component()
    overlay.run(20)
    after = overlay.giant_component()
    found.put({"at_once": at_once, "after_20s": after, "lopsided": len(overlay.lopsided())})


def estimate(_sizes: list[int]) -> Iterable[Row]:
    """What peers believe the size to be, after a minute."""
    for peers in (20, 100, 500):
        for seed in range(1, 7 if peers < 500 else 4):
            overlay = Overlay(peers, seed, interval=0.02, swap_interval=120.0)
            overlay.run(55)
            sizes = sorted(view.size for view in overlay.views().values())
            yield {
                "label": "estimate",
                "peers": peers,
                "seed": seed,
                "smallest": sizes[0],
                "largest": sizes[-1],
            }


PARTS: dict[str, Callable[[list[int]], Iterable[Row]]] = {
    part.__name__: part for part in (reference, sparse, dense, split, churn, crashes, estimate)
}


def measure(part: str, sizes: list[int]) -> None:
    """Run a part and put its rows in place of the old ones of the same sizes."""
    for row in PARTS[part](sizes):
        kept = json.loads(ROWS.read_text()) if ROWS.exists() else {}
        rows = kept.setdefault(part, [])
        key = _key(row)
        kept[part] = [old for old in rows if _key(old) != key] + [row]
        PLOTS.mkdir(parents=True, exist_ok=True)
        ROWS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(part, json.dumps({name: row[name] for name in row if name not in _LONG}), flush=True)


_LONG = ("control_messages", "refused")


def _key(row: Row) -> tuple[Any, ...]:
    names = ("label", "peers", "seed", "pub_hops", "churn", "share")
    return tuple(row.get(name) for name in names)


def plots() -> None:
    """Draw every plot from the kept rows."""
    kept = json.loads(ROWS.read_text())
    for part, title in (
        ("sparse", "100 subscribers of 10 topics among N peers"),
        ("dense", "everybody subscribes to one topic"),
    ):
        rows = kept.get(part, [])
        for name, what in (
            ("messages_per_delivery", "messages per delivery"),
            ("latency_p99", "99th percentile of latency, s"),
            ("delivery_ratio", "delivery ratio"),
        ):
            series = _series(rows, "peers", name)
            log_y = name == "messages_per_delivery"
            svg = line_plot(f"{what}: {title}", "peers", what, series, log_y=log_y)
            (PLOTS / f"radius-{part}-{name.replace('_', '-')}.svg").write_text(svg)
    series = _series(kept.get("split", []), "pub_hops", "messages_per_delivery")
    svg = line_plot(
        "1,000 peers: the diameter divided",
        "pub_hops",
        "messages per delivery",
        series,
        log_x=False,
    )
    (PLOTS / "radius-split.svg").write_text(svg)
    rows = kept.get("crashes", [])
    series = [
        Series(name, _means(rows, "share", key))
        for name, key in (("at once", "at_once"), ("20 s later", "after_20s"))
    ]
    svg = line_plot(
        "HyParView, 1,000 peers: largest component after crashes",
        "share of peers that crash",
        "share of the living",
        series,
        log_x=False,
        log_y=False,
    )
    (PLOTS / "radius-crashes.svg").write_text(svg)


def _series(rows: list[Row], x: str, y: str) -> list[Series]:
    labels = dict.fromkeys(row["label"] for row in rows)
    return [
        Series(label, _means([row for row in rows if row["label"] == label], x, y))
        for label in labels
    ]


def _means(rows: list[Row], x: str, y: str) -> list[tuple[float, float]]:
    values: dict[float, list[float]] = {}
    for row in rows:
        if row[y] is not None:
            values.setdefault(row[x], []).append(row[y])
    return sorted((at, sum(found) / len(found)) for at, found in values.items())


COLUMNS = {
    "protocol": "label",
    "peers": "peers",
    "churn per minute": "churn",
    "crashed": "share",
    "at once": "at_once",
    "20 s later": "after_20s",
    "lopsided": "lopsided",
    "smallest estimate": "smallest",
    "largest estimate": "largest",
    "diameter": "diameter",
    "pub_hops": "pub_hops",
    "planned": "planned",
    "failed": "failed",
    "delivery ratio": "delivery_ratio",
    "messages per delivery": "messages_per_delivery",
    "p50, s": "latency_p50",
    "p99, s": "latency_p99",
    "state per peer": "state_mean",
    "load max/mean": "load_max_over_mean",
    "PUB": "pub",
    "DIRECTMSG": "directmsg",
    "SUB": "sub",
    "control, kB": "control_bytes",
}
"""The columns of tables, in order; a table has those that its rows have."""


def tables() -> None:
    """Print the kept rows as Markdown, means over the seeds."""
    for part, rows in json.loads(ROWS.read_text()).items():
        flat = []
        for row in rows:
            counts = row.get("control_messages", {})
            more = {name: counts.get(name) for name in ("pub", "directmsg", "sub") if counts}
            flat.append({**row, **more})
        names = [name for name, key in COLUMNS.items() if any(key in row for row in flat)]
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in flat:
            groups.setdefault(_key({**row, "seed": None}), []).append(row)
        print(f"\n## {part}\n\n| {' | '.join(names)} |\n|{'---|' * len(names)}")
        for group in sorted(groups.values(), key=lambda group: group[0].get("peers") or 0):
            cells = [_cell(COLUMNS[name], group) for name in names]
            print(f"| {' | '.join(cells)} |")


def _cell(key: str, group: list[Row]) -> str:
    values = [row.get(key) for row in group]
    numbers = [value for value in values if isinstance(value, int | float)]
    if not numbers:
        return str(values[0]) if isinstance(values[0], str) else "–"
    mean = sum(numbers) / len(numbers)
    if key == "control_bytes":
        mean /= 1000
    return f"{mean:,.0f}" if abs(mean) >= 100 or mean == int(mean) else f"{mean:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "tables", "plots"])
    parser.add_argument("--peers", nargs="+", type=int, default=[100, 200, 500, 1000])
    parser.add_argument("--labels", nargs="+", default=[], help="only these contenders")
    options = parser.parse_args()
    LABELS.extend(options.labels)
    for part in options.parts:
        if part == "tables":
            tables()
        elif part == "plots":
            plots()
        else:
            measure(part, options.peers)


if __name__ == "__main__":
    main()
