"""The same seed gives the same run: in one process, in another, whatever Python's hash seed."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rumormill.sim.churn import Churn
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Fault, Links, Scenario, Topology, Workload

ROOT = Path(__file__).resolve().parents[2]

LARGE = """
from rumormill.sim.run import run_scenario
from rumormill.sim.churn import Churn
from rumormill.sim.scenario import Links, Scenario, Workload

scenario = Scenario(
    peers=500,
    warm_up=3.0,
    cool_down=2.0,
    links=Links(latency="uniform:10ms-100ms", jitter=0.01, loss=0.01),
    workload=Workload(kind="zipf", topics=3, messages=6, rate=6.0, subscriptions_per_peer=2),
    churn=Churn(rate=600.0, downtime=0.5),
)
figures = run_scenario(scenario)
print(figures["trace_hash"], figures["delivered"], figures["steps"])
"""


def troubled(**changes: Any) -> Scenario:
    """A little of everything that draws."""
    values: dict[str, Any] = {
        "peers": 20,
        "topology": Topology(degree=6),
        "warm_up": 3.0,
        "cool_down": 3.0,
        "links": Links(latency="regions", jitter=0.02, loss=0.02, reorder=0.1, bandwidth="10mbit"),
        "workload": Workload(kind="zipf", topics=4, messages=30, subscriptions_per_peer=2),
        "churn": Churn(rate=60.0, downtime=1.0, distribution="exponential"),
        "faults": (
            Fault(kind="byzantine", at=0.0, fraction=0.1, duration=2.0),
            Fault(kind="partition", at=1.0, groups=2, duration=1.0),
            Fault(kind="slow-reader", at=0.5, fraction=0.2, duration=1.0),
        ),
        **changes,
    }
    scenario = Scenario(**values)
    scenario.validate()
    return scenario


def trace_hash(scenario: Scenario) -> str:
    found: str = run_scenario(scenario)["trace_hash"]
    return found


@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub"])
def test_the_same_seed_gives_the_same_run(protocol: str) -> None:
    """Every figure is equal, the hash of the trace included."""
    scenario = troubled(protocol=protocol)
    assert run_scenario(scenario) == run_scenario(scenario)


def test_another_seed_gives_another_run() -> None:
    """Ten seeds, ten traces."""
    assert len({trace_hash(troubled(seed=seed)) for seed in range(10)}) == 10


def test_watching_a_run_does_not_change_it(tmp_path: Path) -> None:
    """Neither a progress bar, nor a written trace, nor the codec check leaves a mark."""
    plain = run_scenario(troubled())
    seen: list[float] = []
    watched = run_scenario(
        troubled(check_codec=True), trace=tmp_path / "trace.ndjson", progress=seen.append
    )
    assert watched == plain
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_the_hash_is_that_of_the_written_trace(tmp_path: Path) -> None:
    """`sha256sum` of the NDJSON file gives the run's hash."""
    path = tmp_path / "trace.ndjson"
    figures = run_scenario(troubled(), trace=path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == figures["trace_hash"]


def test_a_change_of_the_load_leaves_the_network_alone() -> None:
    """Each purpose has its own randomness: more messages do not redraw topology or latencies."""
    from rumormill.sim.simulation import Simulation

    few = Simulation(troubled())
    many = Simulation(troubled(workload=Workload(messages=99)))
    assert few._neighbours == many._neighbours
    pairs = [(one, other) for one in range(20) for other in range(20)]
    assert [few.network.latency(*pair) for pair in pairs] == [
        many.network.latency(*pair) for pair in pairs
    ]


def test_500_peers_run_alike_in_processes_with_different_hash_seeds() -> None:
    """Nothing depends on the order of a set or on an object's address."""
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": str(ROOT / "src"),
        }
        finished = subprocess.run(
            [sys.executable, "-c", LARGE],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        outputs.append(finished.stdout.split())
    assert outputs[0] == outputs[1]
    digest, delivered, _steps = outputs[0]
    assert len(digest) == 64
    assert int(delivered) > 1000
