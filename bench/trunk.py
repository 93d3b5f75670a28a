"""The rows of `docs/trunk.md`: what trees inside the mesh cost and bring, beside plain GossipSub.

Every row is one plan (load, weather, number of peers), run with several seeds, once as it is and
once with trees; with sync on, because that is how nodes run. Choose by name:

    python bench/trunk.py --peers 100 --loads one reddit bursts --weathers calm churn30
    python bench/trunk.py --loads one many --weathers calm --variants trunk plumtree

A figure is the mean over the seeds, and behind it the worst. A row's gate, in its worst seed: at
most 1.2 full messages per delivery, 99th percentile of latency at most 1.2 times the plain run's,
control (sync's own bytes apart) at most 15 % of a message of 1 KiB, and nobody misses anything that
it does not miss in the plain run.

`plumtree` is one tree for all publishers on an overlay of its own (`bench/plumtree.py`).
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from rumormill.protocols import registry
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario

registry._MODULES["plumtree"] = "plumtree"  # it lies beside this file, and runs nowhere else

LOADS: dict[str, dict[str, Any]] = {
    "one": {"kind": "fixed", "messages": 300, "rate": 10.0, "publishers": 1, "size": "1kib"},
    "many": {"kind": "fixed", "messages": 300, "rate": 10.0, "size": "1kib"},
    "bursts": {
        "kind": "fixed", "messages": 300, "rate": 10.0, "burst": 20, "publishers": 3, "size": "1kib"
    },
    "reddit": {"kind": "reddit2007", "limit": 300, "rate": 20.0},
    "reddit-long": {"kind": "reddit2007", "limit": 3000, "rate": 20.0},
    "reddit-all": {"kind": "reddit2007", "rate": 20.0},
}  # fmt: skip
"""One publisher; everybody, in one topic; three who say twenty things at once; Reddit's many in 23
topics, their first 300 comments, their first 3,000, and all 17,611."""

WEATHERS: dict[str, dict[str, Any]] = {
    "calm": {},
    "jitter": {"links.jitter": "20ms"},
    "loss": {"links.loss": "2%"},
    "churn20": {"churn.fraction": "20%"},
    "churn30": {"churn.fraction": "30%"},
}

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"parameters": {"trunk": False}},
    "trunk": {"parameters": {"trunk": True}},
    "probes": {"parameters": {"trunk": True, "probes": "subscribers"}},
    "plumtree": {"protocol": "plumtree"},
}

HEAD = (
    "load", "weather", "variant", "messages / delivery", "p50 ms", "p99 ms", "p99 / plain",
    "control B / delivery", "missing, of a million", "gate", "CPU s",
)  # fmt: skip


def measure(load: str, weather: str, variant: str, peers: int, seed: int) -> dict[str, Any]:
    """Make one run."""
    scenario = Scenario().changed(
        {
            "protocol": "gossipsub",
            "peers": peers,
            "seed": seed,
            "links.latency": "planetlab",
            "workload": LOADS[load],
            "sync.enabled": True,
            "cool_down": "60s",
            **WEATHERS[weather],
            **VARIANTS[variant],
        }
    )
    begun = time.process_time()
    run = run_scenario(scenario)
    spread = run["remote_deliveries"] - run["sync"]["deliveries"]
    return {
        "messages": run["messages_per_delivery"],
        "p50": run["latency_p50"] * 1e3,
        "p99": run["latency_p99"] * 1e3,
        "control": (run["control_bytes"] - run["sync"]["control_bytes"]) / spread,
        "missing": (1 - run["complete_ratio"]) * 1e6,
        "cpu": time.process_time() - begun,
    }


def row(
    names: tuple[str, str, str], runs: list[dict[str, Any]], plain: list[dict[str, Any]]
) -> list[str]:
    """One line of the table; what breaks the gate is named."""
    columns = {name: [run[name] for run in runs] for name in runs[0]}
    slower = [run["p99"] / same["p99"] for run, same in zip(runs, plain, strict=True)]
    more = [run["missing"] - same["missing"] for run, same in zip(runs, plain, strict=True)]
    held = {
        "messages": max(columns["messages"]) <= 1.2,
        "p99": max(slower) <= 1.2,
        "control": max(columns["control"]) <= 0.15 * 1024,
        "missing": max(more) <= 0,
    }
    broken = [name for name, holds in held.items() if not holds]
    return [
        *names,
        both(columns["messages"], 3),
        both(columns["p50"], 0),
        both(columns["p99"], 0),
        both(slower, 2),
        both(columns["control"], 0),
        both(columns["missing"], 0),
        "–" if names[2] == "plain" else ", ".join(broken) or "holds",
        f"{fmean(columns['cpu']):.0f}",
    ]


def both(values: list[float], digits: int) -> str:
    """The mean, and the worst if there are several."""
    mean = f"{fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=["one", "bursts"])
    parser.add_argument("--weathers", nargs="+", choices=list(WEATHERS), default=list(WEATHERS))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=["plain", "trunk"])
    options = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|", flush=True)
    for load in options.loads:
        for weather in options.weathers:
            runs = {
                variant: [measure(load, weather, variant, options.peers, s) for s in options.seeds]
                for variant in dict.fromkeys(("plain", *options.variants))
            }
            for variant in options.variants:
                shown = row((load, weather, variant), runs[variant], runs["plain"])
                print("| " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
