"""What a report says: the runs of a lake, gathered into configurations and compared.

A configuration is what one would choose: a protocol, its preset and its parameters. It is judged
under a condition: a load, a size of the network, faults. Runs that differ in their seed alone are
one configuration's samples, and their figures are averaged. The rule: configurations are compared
with those under the same condition only.

A configuration is on the Pareto front if no other under the same condition is at least as good in
delivery ratio, 99th percentile of latency and cost, and better in one of them. Cost is bytes per
delivery, or messages where a trace knows no bytes.

Everything here reads the gold tables, which are small, and starts no Spark.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from rumormill.core.errors import LocalError
from rumormill.sim.scenario import Scenario
from rumormill.spark.lake import Lake
from rumormill.trace.metrics import nearest_rank

TIMES: Final = ("time_to_complete_p50", "time_to_complete_p99", "time_to_complete_max")
"""Unknown if something is not complete, and then longer than any other."""

FIGURES: Final = (
    "planned", "published", "failed", "skipped", "expected", "delivered", "delivery_ratio",
    "latency_p50", "latency_p90",
    "latency_p99", "latency_max", "hops_mean", "hops_max", "messages_per_delivery",
    "duplicates_per_delivery", "rmr", "entitled", "missing", "complete_ratio", *TIMES,
)  # fmt: skip
"""What is taken over from `delivery_quality`."""

COMPARED: Final = (
    *FIGURES, "bytes_per_delivery", "control_bytes_per_delivery", "sync_bytes_per_delivery",
    "load_max_over_mean", "load_p99_over_mean",
)  # fmt: skip

GOALS: Final = (("delivery_ratio", 1), ("latency_p99", -1), ("cost", -1))
"""What makes a configuration good: higher or lower."""

MOST_FAULTS: Final = 40
_LOAD_POINTS: Final = 100
_VARIED: Final = ("protocol", "preset", "parameters", "peers", "seed")


def collect(lake: Lake) -> dict[str, Any]:
    """Everything that a report of a lake says, ready for JSON."""
    about = {row["run"]: row for row in lake.rows("runs")}
    runs = _runs(lake, about)
    configurations = [_configuration(members) for members in grouped(runs, "key").values()]
    for rivals in grouped(configurations, "condition", "peers").values():
        _judge(rivals)
    _add_curves(lake, configurations, {run["run"]: run["key"] for run in runs}, about)
    return {
        "lake": lake.path.name,
        "parts": lake.parts(),
        "runs": [{name: run[name] for name in run if name != "key"} for run in runs],
        "configurations": configurations,
        "best": _best(configurations),
        "self_stabilisation": _named(lake.rows("self_stabilisation"), about),
        "sync_sessions": lake.rows("sync_sessions"),
        "dag_health": _named(lake.rows("dag_health"), about),
        "topics": _topics(_named(lake.rows("topic_activity"), about)),
        "scenarios": _scenarios(about),
    }


def headline(runs: Sequence[Mapping[str, Any]]) -> str:
    """What became of all that was published, in one sentence; empty if no run tells."""
    known = [run for run in runs if run["missing"] is not None]
    if not known:
        return ""
    said, pairs, missing = (
        sum(run[name] or 0 for run in known) for name in ("published", "entitled", "missing")
    )
    of_runs = "1 run" if len(known) == 1 else f"{len(known):,} runs"
    audited = [run for run in known if run["lost"] is not None]
    lost = sum(run["lost"] for run in audited)
    if not missing and not lost:
        return (
            f"Nothing that was acknowledged is lost: in {of_runs} all {said:,} messages are"
            f" complete in the end, {pairs:,} of {pairs:,} pairs of message and entitled peer."
        )
    short = sum(run["missing"] > 0 for run in known)
    told = (
        f"in {short:,} of {of_runs} something is missing in the end, {missing:,} of {pairs:,} pairs"
        f" of message and entitled peer."
    )
    if not audited:
        return told[0].upper() + told[1:]
    of = f"{sum(run['acknowledged'] for run in audited):,} acknowledged messages"
    return f"{lost:,} of {of} are lost; {told}" if lost else f"None of {of} is lost; {told}"


def _scenarios(about: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The scenarios of simulations, one of each condition, without what differs within it."""
    found: dict[str, dict[str, Any]] = {}
    for row in about.values():
        if row["scenario"]:
            scenario = json.loads(row["scenario"])
            shared = {key: scenario[key] for key in scenario if key not in _VARIED}
            found.setdefault(row["condition"] or "", shared)
    return [{"condition": name, "scenario": found[name]} for name in sorted(found)]


def _faults(row: Mapping[str, Any]) -> list[tuple[float, float | None, str]]:
    """Planned faults of a simulation, or those that a demonstration noted: begin, end, kind."""
    if row.get("scenario"):
        with contextlib.suppress(LocalError):  # of a version whose scenarios were others
            scenario = Scenario.from_dict(json.loads(row["scenario"]))
            begun = [(scenario.workload_start + each.at, each) for each in scenario.faults]
            return [
                (at, None if each.duration is None else at + each.duration, each.kind)
                for at, each in begun
            ]
    return [(begin, end, kind) for begin, end, kind in _noted(row).get("faults", [])]


def _runs(lake: Lake, about: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    costs = {(row["run"], row["kind"]): row for row in lake.rows("overhead")}
    loads = _loads(lake)
    found = []
    for row in lake.rows("delivery_quality"):
        if row["scope"] != "run":
            continue
        run = row["run"]
        known = about.get(run, {})
        load = loads.get(run, [])
        skewed = bool(load) and load[-1] > 0
        parameters = json.loads(known.get("parameters") or "{}")
        noted = _noted(known)
        label = _label(row["protocol"], known.get("preset"), parameters)
        condition, peers = known.get("condition") or "", known.get("peers") or len(load)
        found.append(
            {
                "run": run,
                "protocol": row["protocol"],
                "configuration": label,
                "condition": condition,
                "peers": peers,
                "seed": known.get("seed"),
                **{name: row[name] for name in FIGURES},
                "acknowledged": noted.get("acknowledged"),
                "lost": noted.get("lost"),
                "bytes_per_delivery": _cost(costs, run, "rpc"),
                "control_bytes_per_delivery": _cost(costs, run, "control"),
                "sync_bytes_per_delivery": _cost(costs, run, "sync"),
                "load_max_over_mean": load[-1] if skewed else None,
                "load_p99_over_mean": nearest_rank(load, 99) if skewed else None,
                "key": json.dumps([condition, peers, label]),
            }
        )
    return sorted(found, key=lambda run: str(run["run"]))


def _loads(lake: Lake) -> dict[str, list[float]]:
    loads: dict[str, list[float]] = {}
    for row in lake.rows("peer_load", ["run", "over_mean"]):
        loads.setdefault(row["run"], []).append(row["over_mean"] or 0.0)
    return {run: sorted(load) for run, load in loads.items()}


def _cost(costs: Mapping[tuple[str, str], Mapping[str, Any]], run: str, kind: str) -> float | None:
    row = costs.get((run, kind))
    # go's traces do not say how large an RPC was: that is unknown, not nothing.
    return None if row is None or not row["bytes"] else row["bytes_per_delivery"]


def _label(protocol: str, preset: str | None, parameters: Mapping[str, Any]) -> str:
    name = protocol if preset in (None, "", "default") else f"{protocol}:{preset}"
    shown = [(key, str(each).lower() if isinstance(each, bool) else each)
             for key, each in parameters.items()]  # fmt: skip
    chosen = " ".join(f"{key}={value}" for key, value in shown)
    return f"{name} {chosen}" if chosen else name


def _configuration(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    shared = ("key", "configuration", "protocol", "condition", "peers")
    means = {name: _mean([run[name] for run in members]) for name in COMPARED}
    for name in TIMES:
        if any(run[name] is None for run in members):
            means[name] = None
    size = means["bytes_per_delivery"]
    known = {name: [run[name] for run in members if run[name] is not None] for name in COMPARED}
    return {
        **{name: members[0][name] for name in shared},
        "runs": len(members),
        **means,
        "spread": {name: (min(found), max(found)) for name, found in known.items() if found},
        "cost": means["messages_per_delivery"] if size is None else size,
        "pareto": False,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def grouped(
    rows: Iterable[dict[str, Any]], *names: str
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows that have the same values in some columns, by these values."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in rows:
        groups.setdefault(tuple([each[name] for name in names]), []).append(each)
    return groups


def _scores(configuration: Mapping[str, Any]) -> list[float]:
    """The goals as numbers of which more is better; what is not known is worst."""
    return [
        float("-inf") if configuration[name] is None else sign * configuration[name]
        for name, sign in GOALS
    ]


def _ordered_scores(configuration: Mapping[str, Any], first: int) -> list[float]:
    scores = _scores(configuration)
    return [scores.pop(first), *scores]


def _judge(rivals: list[dict[str, Any]]) -> None:
    if any(each["bytes_per_delivery"] is None for each in rivals):
        for each in rivals:
            each["cost"] = each["messages_per_delivery"]
    scores = [_scores(each) for each in rivals]
    for each, own in zip(rivals, scores, strict=True):
        each["pareto"] = not any(
            other != own and all(a >= b for a, b in zip(other, own, strict=True))
            for other in scores
        )


def _best(configurations: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for (condition, peers), rivals in grouped(configurations, "condition", "peers").items():
        row: dict[str, Any] = {"condition": condition, "peers": peers}
        for number, (name, _) in enumerate(GOALS):
            # Among equals the one that is better in the other goals, in their order.
            best = max(rivals, key=partial(_ordered_scores, first=number))
            row[name] = None if best[name] is None else best["configuration"]
        row["pareto"] = [each["configuration"] for each in rivals if each["pareto"]]
        found.append(row)
    return found


def _add_curves(
    lake: Lake,
    configurations: Iterable[dict[str, Any]],
    by_run: Mapping[str, str],
    about: Mapping[str, Mapping[str, Any]],
) -> None:
    """Give configurations their curves: the means of their runs at each point."""
    latency: dict[str, dict[float, list[float]]] = {}
    for row in lake.rows("latency_cdf"):
        points = latency.setdefault(by_run.get(row["run"], ""), {})
        points.setdefault(row["percent"], []).append(row["latency"])
    timeline: dict[str, dict[float, list[float]]] = {}
    begins: dict[str, float] = {}
    windows = [row for row in lake.rows("delivery_quality") if row["scope"] == "window"]
    windows = [row for row in windows if row["window_start"] is not None and row["expected"]]
    # Runs are laid over each other. A simulation's clock begins with the run; other traces have the
    # time of day, and their first publication is the beginning.
    simulated = {run for run, row in about.items() if row["scenario"]}
    for row in windows:
        begins[row["run"]] = min(begins.get(row["run"], row["window_start"]), row["window_start"])
    for row in windows:
        begin = 0.0 if row["run"] in simulated else begins[row["run"]]
        at = round(row["window_start"] - begin, 6)
        points = timeline.setdefault(by_run.get(row["run"], ""), {})
        points.setdefault(at, []).append(row["delivery_ratio"])
    faults: dict[str, dict[tuple[float, float | None, str], None]] = {}
    for run, known in about.items():
        shift = 0.0 if run in simulated else begins.get(run, 0.0)
        own = faults.setdefault(by_run.get(run, ""), {})
        for begin, end, kind in _faults(known):
            own[round(begin - shift, 1), None if end is None else round(end - shift, 1), kind] = (
                None
            )
    load: dict[str, dict[float, list[float]]] = {}
    for run, ordered in _loads(lake).items():
        points = load.setdefault(by_run.get(run, ""), {})
        for percent in range(1, _LOAD_POINTS + 1):
            points.setdefault(percent, []).append(nearest_rank(ordered, percent) or 0.0)
    for each in configurations:
        key = each["key"]
        each["latency_cdf"] = [(late, at) for at, late in _curve(latency.get(key, {}))]
        each["delivery_over_time"] = _curve(timeline.get(key, {}))
        each["faults"] = sorted(faults.get(key, {}), key=_beginning)[:MOST_FAULTS]
        each["load_distribution"] = _curve(load.get(key, {}))


def _beginning(fault: tuple[float, float | None, str]) -> tuple[float, str]:
    return fault[0], fault[2]


def _curve(points: Mapping[float, Sequence[float]]) -> list[tuple[float, float]]:
    return [(at, sum(values) / len(values)) for at, values in sorted(points.items())]


def _named(
    rows: Iterable[dict[str, Any]], about: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Rows with the names that people gave to topics, where a protocol calls them by hashes."""
    names = {run: _noted(row).get("topic_names", {}) for run, row in about.items()}
    return [
        {**row, "topic": names.get(row["run"], {}).get(row["topic"], row["topic"])} for row in rows
    ]


def _noted(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the maker of a run says of it."""
    found: dict[str, Any] = json.loads(row.get("figures") or "{}")
    return found


def _topics(activity: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What happened in each topic of each part, all windows and runs together; the busiest first.

    `bytes` is null where the source does not tell: traces have sizes of RPCs alone.
    """
    rows = [{**row, "part": row["run"].partition("/")[0]} for row in activity]
    sums = []
    for (part, topic), members in grouped(rows, "part", "topic").items():
        sizes = [row["bytes"] for row in members if row["bytes"] is not None]
        sums.append(
            {
                "part": part,
                "topic": topic,
                "runs": len({row["run"] for row in members}),
                "published": sum(row["published"] or 0 for row in members),
                "bytes": sum(sizes) if sizes else None,
            }
        )
    return sorted(sums, key=lambda row: (-row["published"], str(row["topic"])))
