"""A table of trace hashes: each protocol, calm, stormy and restless, to the byte.

A change that is not meant to change behaviour leaves all of them as they are. One that is meant to
says in docs/decisions.md what changed and why, and renews the table: run this file as a program.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rumormill.protocols.registry import PROTOCOL_NAMES
from rumormill.sim.churn import Churn, Unsubscribing
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Fault, Links, Scenario, Topology, Workload

TABLE = Path(__file__).with_name("trace_hashes.json")

PROTOCOLS = (
    *[(name, "default") for name in PROTOCOL_NAMES],
    ("gossipsub", "ethereum"),
    ("radius", "design"),
)
WEATHERS: dict[str, dict[str, Any]] = {
    "calm": {
        "cool_down": 10.0,
        "workload": Workload(
            kind="zipf", topics=4, messages=60, rate=10.0, subscriptions_per_peer=2
        ),
        "seed": 11,
    },
    "stormy": {
        "cool_down": 20.0,
        "links": Links(latency="regions", jitter=0.02, loss=0.02, reorder=0.1, bandwidth="10mbit"),
        "workload": Workload(
            kind="zipf", topics=4, messages=120, rate=10.0, subscriptions_per_peer=2
        ),
        "churn": Churn(rate=60.0, downtime=3.0, distribution="exponential"),
        "faults": (
            Fault(kind="byzantine", at=0.0, fraction=0.1, duration=6.0),
            Fault(kind="partition", at=3.0, groups=2, duration=3.0),
            Fault(kind="pause", at=7.0, fraction=0.2, duration=2.0),
            Fault(kind="slow-reader", at=5.0, fraction=0.2, duration=3.0),
        ),
        "seed": 12,
    },
    "restless": {
        "cool_down": 10.0,
        "workload": Workload(kind="poisson", topics=3, messages=60, rate=10.0),
        "unsubscribing": Unsubscribing(fraction=4.0, away=3.0, distribution="exponential"),
        "seed": 13,
    },
}


def traced(protocol: str, preset: str, weather: str) -> dict[str, Any]:
    """The hash of a run, and how many deliveries it had."""
    scenario = Scenario(
        protocol=protocol,
        preset=preset,
        peers=40,
        topology=Topology(degree=8),
        warm_up=8.0,
        **WEATHERS[weather],
    )
    figures = run_scenario(scenario)
    return {"delivered": figures["delivered"], "trace_hash": figures["trace_hash"]}


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize(("protocol", "preset"), PROTOCOLS)
def test_a_run_has_the_trace_that_it_had(protocol: str, preset: str, weather: str) -> None:
    """Whoever changes a trace knows it, and says so."""
    table = json.loads(TABLE.read_text())
    assert traced(protocol, preset, weather) == table[f"{protocol}:{preset} {weather}"]


if __name__ == "__main__":
    rows = {
        f"{protocol}:{preset} {weather}": traced(protocol, preset, weather)
        for protocol, preset in sorted(PROTOCOLS)
        for weather in WEATHERS
    }
    TABLE.write_text(json.dumps(rows, indent=1) + "\n")
    sys.stdout.write(f"{TABLE}: {len(rows)} hashes\n")
