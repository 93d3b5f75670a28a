"""Radius gossip on HyParView in whole simulated runs: quiet, hostile, with crashes."""

from typing import Any

import pytest

from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario

BASE = """
    protocol = "radius"
    peers = 20
    join_interval = "50ms"
    warm_up = "10s"
    cool_down = "5s"
    check_codec = true
    topology = { kind = "tree", branching = 3 }
    links = { latency = "uniform:10ms-100ms" }
    [workload]
    kind = "poisson"
    topics = 5
    messages = 24
    rate = 4.0
    subscriptions_per_peer = 2
"""


def played(serving: str = "all", more: str = "", **changes: Any) -> dict[str, Any]:
    scenario = Scenario.parse(BASE + more)
    return run_scenario(scenario.changed({"parameters": {"serving": serving}, **changes}))


@pytest.mark.parametrize("serving", ["all", "few"])
def test_a_quiet_network_delivers_everything_once(serving: str) -> None:
    """Every subscriber gets every publication, with the codec checked on each message."""
    figures = played(serving)
    assert figures["delivery_ratio"] == 1.0
    assert figures["repeated_deliveries"] == figures["extra_deliveries"] == 0
    assert figures["delivered"] > 150


def test_a_run_is_decided_by_its_seed() -> None:
    """The same seed gives the same trace, another one another."""
    small = {"peers": 10, "workload.messages": 5}
    first, again = played(**small), played(**small)
    other = played(seed=2, **small)
    assert first["trace_hash"] == again["trace_hash"] != other["trace_hash"]


@pytest.mark.parametrize("serving", ["all", "few"])
def test_arbitrary_messages_of_a_tenth_of_the_peers_change_little(serving: str) -> None:
    """Nothing raises, everything false is refused, and the others are served as before."""
    junk = '\n[[faults]]\nkind = "byzantine"\nat = "0s"\npeers = [7, 14]\nrate = 20.0\n'
    figures = played(serving, junk)
    assert figures["repeated_deliveries"] == 0
    assert figures["delivery_ratio"] > 0.99
    assert figures["rejected"]["invalid signature"] > 20
    assert figures["refused"]["hops clamped"] > 20


@pytest.mark.parametrize("serving", ["all", "few"])
def test_the_crash_of_a_third_is_survived(serving: str) -> None:
    """What was under way may be lost; the rest is served, and nothing twice."""
    crash = '\n[[faults]]\nkind = "crash"\nat = "3s"\nfraction = "33%"\n'
    figures = played(serving, crash)
    settled = figures["delivered"] + sum(figures["dropped"].values())
    assert settled == figures["expected_deliveries"]
    assert sum(figures["dropped"].values()) <= 0.03 * figures["expected_deliveries"]
    assert figures["repeated_deliveries"] == 0


def test_renewed_subscriptions_outlive_many_ttls() -> None:
    """Minutes of publications with short subscriptions: none is missed."""
    workload = {"workload.messages": 40, "workload.rate": 0.4, "peers": 8}
    settings = {"parameters": {"ttl": 10.0, "clock_skew": 1.0}}
    figures = run_scenario(Scenario.parse(BASE).changed({**workload, **settings}))
    assert figures["delivery_ratio"] == 1.0
    assert figures["virtual_seconds"] > 100
