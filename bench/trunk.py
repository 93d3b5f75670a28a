"""The rows of `docs/trunk.md`: what trees inside the mesh cost and bring, beside plain GossipSub.

Every row is one plan (load, weather, number of peers, seed), run once as it is and once with trees;
with sync on, because that is how nodes run. Choose by name:

    python bench/trunk.py --peers 100 --loads one reddit bursts --weathers calm churn30

A row's gate: at most 1.2 full messages per delivery, 99th percentile of latency at most 1.2 times
the plain run's, control (sync's own bytes apart) at most 15 % of a message of 1 KiB, and nobody
misses anything in the end.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario

LOADS: dict[str, dict[str, Any]] = {
    "one": {"kind": "fixed", "messages": 300, "rate": 10.0, "publishers": 1, "size": "1kib"},
    "reddit": {"kind": "reddit2007", "limit": 300, "rate": 20.0},
    "bursts": {
        "kind": "fixed", "messages": 300, "rate": 10.0, "burst": 20, "publishers": 3, "size": "1kib"
    },
}  # fmt: skip
"""One publisher, Reddit's many in 23 topics, and three who say twenty things at once."""

WEATHERS: dict[str, dict[str, Any]] = {
    "calm": {},
    "jitter": {"links.jitter": "20ms"},
    "loss": {"links.loss": "2%"},
    "churn20": {"churn.fraction": "20%"},
    "churn30": {"churn.fraction": "30%"},
}

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"trunk": False},
    "trunk": {"trunk": True},
    "probes": {"trunk": True, "probes": "subscribers"},
}

HEAD = (
    "load", "weather", "variant", "messages / delivery", "p50 ms", "p99 ms", "p99 / plain",
    "control B / delivery", "complete", "gate", "CPU s",
)  # fmt: skip


def measure(load: str, weather: str, variant: str, peers: int, seed: int) -> dict[str, Any]:
    """Run one row."""
    scenario = Scenario().changed(
        {
            "protocol": "gossipsub",
            "peers": peers,
            "seed": seed,
            "links.latency": "planetlab",
            "workload": LOADS[load],
            "parameters": VARIANTS[variant],
            "sync.enabled": True,
            "cool_down": "60s",
            **WEATHERS[weather],
        }
    )
    begun = time.process_time()
    figures = run_scenario(scenario)
    return {**figures, "cpu": time.process_time() - begun}


def row(names: tuple[str, str, str], run: dict[str, Any], plain: dict[str, Any]) -> list[str]:
    """One line of the table; what breaks the gate is named."""
    copies = run["messages_per_delivery"]
    slower = run["latency_p99"] / plain["latency_p99"]
    spread = run["remote_deliveries"] - run["sync"]["deliveries"]
    control = (run["control_bytes"] - run["sync"]["control_bytes"]) / spread
    complete = run["complete_ratio"]
    broken = [
        name
        for name, holds in {
            "messages": copies <= 1.2,
            "p99": slower <= 1.2,
            "control": control <= 0.15 * 1024,
            "complete": complete == 1.0,
        }.items()
        if not holds
    ]
    return [
        *names,
        f"{copies:.3f}",
        f"{run['latency_p50'] * 1e3:.0f}",
        f"{run['latency_p99'] * 1e3:.0f}",
        f"{slower:.2f}",
        f"{control:.0f}",
        f"{complete:.4%}",
        "–" if names[2] == "plain" else ", ".join(broken) or "holds",
        f"{run['cpu']:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--weathers", nargs="+", choices=list(WEATHERS), default=list(WEATHERS))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|", flush=True)
    for load in options.loads:
        for weather in options.weathers:
            plain = measure(load, weather, "plain", options.peers, options.seed)
            for variant in options.variants:
                run = plain
                if variant != "plain":
                    run = measure(load, weather, variant, options.peers, options.seed)
                shown = row((load, weather, variant), run, plain)
                print("| " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
