"""Pulsarcast in the simulator: the paper's workload, whole and in small, with and without loss."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rumormill.core.ids import MessageId, PeerId
from rumormill.core.trace import DeliverMessage, PublishMessage
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Batch
from rumormill.trace.metrics import Metrics

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"

SMALL = {
    "protocol": "pulsarcast",
    "preset": "open",
    "peers": 24,
    "warm_up": 12.0,
    "cool_down": 40.0,
    "topology": {"degree": 6},
    "parameters": {"store_events": False, "kademlia.paths": 1},
}


def small(**changes: Any) -> Scenario:
    """A small run."""
    return Scenario.from_dict({**SMALL, **changes})


class Survivors:
    """An observer that knows who was given what."""

    def __init__(self) -> None:
        self.published: dict[MessageId, tuple[PeerId, str]] = {}
        self.given: dict[MessageId, dict[PeerId, int]] = {}

    def observe(self, batch: Batch) -> None:
        """Note publications and deliveries."""
        for _, peer, payload in batch:
            if type(payload) is PublishMessage:
                self.published[payload.message_id] = (peer, payload.topic)
            elif type(payload) is DeliverMessage:
                given = self.given.setdefault(payload.message_id, {})
                given[peer] = given.get(peer, 0) + 1

    def close(self) -> None:
        """Nothing is left to do."""

    def check(self, simulation: Simulation) -> None:
        """Every survivor that subscribes has every event of a survivor, once."""
        hosts = simulation.network.hosts
        names = {name: each[-1] for name, each in simulation.set_up.versions.items()}
        up = [host for host in hosts if host.up]
        living = {host.id for host in up}
        subscribers = {
            names[topic]: [
                host.id for host in up if topic in simulation.plan.subscriptions[host.index]
            ]
            for topic in simulation.plan.topics
        }
        for message_id, (publisher, topic) in self.published.items():
            if publisher in living:
                given = self.given[message_id]
                for peer in subscribers.get(topic, ()):
                    assert given.get(peer) == 1


def run(scenario: Scenario) -> tuple[dict[str, Any], Simulation]:
    """Run a scenario to its figures, and check the survivors."""
    survivors, metrics = Survivors(), Metrics()
    simulation = Simulation(scenario, [survivors, metrics])
    simulation.run()
    survivors.check(simulation)
    return metrics.summary(), simulation


@pytest.mark.parametrize("preset", ["open", "ordered"])
def test_everything_is_delivered_once_over_one_copy_per_edge(preset: str) -> None:
    """Both modes, every message through the codec."""
    scenario = small(
        preset=preset, check_codec=True, workload={"topics": 2, "messages": 60, "rate": 10.0}
    )
    figures, _ = run(scenario)
    assert figures["published"] == 62  # with the two announcements in the meta topics
    assert figures["delivery_ratio"] == 1.0
    assert figures["messages_per_delivery"] <= 1.01
    assert figures["repeated_deliveries"] == figures["extra_deliveries"] == 0
    assert figures["load_p99_over_mean"] <= 5.0
    assert figures["failed_publications"] == figures["skipped_publications"] == {}


@pytest.mark.parametrize("preset", ["open", "ordered"])
def test_a_third_of_the_peers_is_lost_and_no_survivor_misses_anything(preset: str) -> None:
    """The roots of both topics among them; in the ordered mode they are spared."""
    workload = {"topics": 2, "messages": 120, "rate": 6.0}
    roots = sorted(
        {who[0] for who in Simulation(small(workload=workload)).set_up.publishers.values()}
    )
    others = [peer for peer in range(24) if peer not in roots]
    lost = roots + others[: 8 - len(roots)] if preset == "open" else others[:8]
    faults = [{"kind": "crash", "at": 8.0, "peers": lost}]
    figures, simulation = run(small(preset=preset, workload=workload, faults=faults))
    assert sum(host.up for host in simulation.network.hosts) == 16
    assert figures["repeated_deliveries"] == 0
    assert figures["skipped_publications"].keys() <= {"publisher down"}


def test_peers_that_come_and_go_get_what_they_missed() -> None:
    """Everybody who was away returns, remembers its archive, and catches up."""
    faults = [{"kind": "crash", "at": 5.0, "duration": 12.0, "peers": [3, 4, 5, 6]}]
    figures, _ = run(small(workload={"messages": 150, "rate": 6.0}, faults=faults, cool_down=60.0))
    assert figures["repeated_deliveries"] == 0


def test_hostile_peers_disturb_nobody() -> None:
    """Junk is refused and its senders pay; every honest subscriber has everything."""
    faults = [{"kind": "byzantine", "at": 4.0, "peers": [2, 9, 17], "rate": 20.0}]
    scenario = small(workload={"messages": 80, "rate": 5.0}, faults=faults, check_codec=True)
    metrics = Metrics()
    simulation = Simulation(scenario, [metrics])
    simulation.run()
    figures = metrics.summary()
    assert figures["pending"] == 0
    assert set(figures["dropped"]) <= {"subscriber-left", "subscriber-down"}
    assert figures["penalties"]
    assert figures["refused"]["banned"] > 0


def test_a_run_repeats_itself() -> None:
    """The same seed gives the same trace."""
    scenario = small(workload={"messages": 20, "rate": 10.0})
    assert run_scenario(scenario)["trace_hash"] == run_scenario(scenario)["trace_hash"]


def test_every_shipped_scenario_of_the_paper_is_valid() -> None:
    """And means the whole workload."""
    found = sorted(SCENARIOS.glob("pulsarcast-*.toml"))
    assert len(found) == 7
    for path in found:
        scenario = Scenario.load(path)
        assert (scenario.peers, scenario.workload.limit) == (100, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["", "-ordered", "-latency", "-ordered-latency", "-churn5", "-churn10", "-churn30"]
)
def test_the_papers_workload(name: str) -> None:
    """17,611 events, 1,734,851 deliveries: complete, one copy each, and evenly carried."""
    scenario = Scenario.load(SCENARIOS / f"pulsarcast-reddit2007{name}.toml")
    quick = msgspec.structs.replace(scenario, parameters={"store_events": False})
    figures, _ = run(quick)
    assert figures["messages_per_delivery"] <= 1.01
    assert figures["load_p99_over_mean"] <= 5.0
    assert figures["repeated_deliveries"] == 0
    if "churn" not in name:
        assert figures["published"] == 17_611 + 23
        assert figures["delivered"] == 1_734_851 + 23


def reddit(peers: int, messages: int, **changes: Any) -> dict[str, Any]:
    """The figures of the comparison's workload, as it is by default."""
    table = {
        "protocol": "pulsarcast",
        "peers": peers,
        "links": {"latency": "planetlab"},
        "workload": {"kind": "reddit2007", "limit": messages, "rate": 20.0},
    }
    return run_scenario(Scenario.from_dict({**table, **changes}))


def trouble(seed: int) -> dict[str, Any]:
    """5 % of all messages are lost, and a fifth of all peers leaves per minute."""
    links = {"latency": "planetlab", "loss": "5%"}
    return {"seed": seed, "links": links, "churn": {"fraction": "20%"}, "cool_down": "90s"}


@pytest.mark.parametrize("seed", [1, 2])
def test_loss_and_churn_delay_little_and_cost_no_publication(seed: int) -> None:
    """What is lost is asked for again at once, and who is killed asks again when it is back."""
    figures = reddit(40, 100, **trouble(seed))
    assert figures["failed_publications"] == {}
    assert figures["delivery_ratio"] == 1.0
    assert figures["latency_p99"] <= 3.0


@pytest.mark.slow
def test_the_comparisons_workload_in_calm_and_trouble() -> None:
    """What docs/pulsarcast-evaluation.md says of a hundred peers."""
    calm = reddit(100, 300, seed=1)
    assert calm["latency_p99"] <= 0.7
    assert calm["control_bytes"] <= calm["data_bytes"]
    for seed in (1, 2, 3):
        figures = reddit(100, 300, **trouble(seed))
        assert figures["failed_publications"] == {}
        assert figures["delivery_ratio"] == 1.0
        assert figures["latency_p99"] <= 2.0
        assert figures["control_bytes"] <= 1.1 * figures["data_bytes"]
