"""Unsubscribing in the simulator: planned, carried out, and measured, in every protocol."""

from typing import Any

import pytest
from sim_rig import Run

from rumormill.core.errors import ConfigError
from rumormill.core.trace import DeliverMessage, Join, Leave
from rumormill.protocols.registry import PROTOCOL_NAMES
from rumormill.sim.churn import Churn, Unsubscribing
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Fault, Scenario, Topology, Workload
from rumormill.sim.simulation import Simulation

RESTLESS = Unsubscribing(fraction=6.0, away=3.0, distribution="exponential")
"""A tenth of all subscriptions end in every second."""


def restless(**changes: Any) -> Scenario:
    """Sixteen peers in two topics that cannot make up their minds."""
    values: dict[str, Any] = {
        "peers": 16,
        "topology": Topology(degree=5),
        "warm_up": 8.0,
        "cool_down": 10.0,
        "check_codec": True,
        "workload": Workload(topics=2, messages=50),
        "unsubscribing": RESTLESS,
        **changes,
    }
    return Scenario(**values)


def given_after_leaving(run: Run) -> list[Any]:
    """Every delivery of something that its peer had left, found in the order of the trace."""
    away: dict[tuple[bytes, str], None] = {}
    found = []
    for now, peer, payload in run.log.entries:
        if isinstance(payload, Leave):
            away[peer, payload.topic] = None
        elif isinstance(payload, Join):
            away.pop((peer, payload.topic), None)
        elif isinstance(payload, DeliverMessage) and (peer, payload.topic) in away:
            found.append((now, peer, payload))
    return found


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_nobody_is_given_what_it_has_unsubscribed_from(protocol: str) -> None:
    """Under crashes, pauses and returns with the old state as well; the books balance, and what was
    on its way to a peer that left is dropped for that reason."""
    trouble: dict[str, Any] = {
        "churn": Churn(rate=40.0, downtime=2.0, keep_state=True),
        "faults": (Fault(kind="pause", at=2.0, peers=(1, 2, 3), duration=2.0),),
    }
    for scenario in (restless(protocol=protocol), restless(protocol=protocol, **trouble)):
        run = Run(scenario, keep_trace=True)
        run.check_books()
        found = run.summary["unsubscribed"]
        assert found["left"] >= 10, run
        assert found["deliveries"] == 0, run
        assert given_after_leaving(run) == []


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_nothing_is_left_behind_of_who_has_left(protocol: str) -> None:
    """Subscriptions that end for good, of peers that do not publish: in the end nobody would send
    them anything, and they keep no link for the topic."""
    for_good = Unsubscribing(fraction=4.0, away=1000.0)
    load = Workload(topics=2, messages=50, publishers=1)
    figures = run_scenario(restless(protocol=protocol, workload=load, unsubscribing=for_good))
    left = figures["left_behind"]
    assert left["ended"] >= 5
    assert (left["entries"], left["links"]) == (0, 0)


@pytest.mark.parametrize(
    "workload",
    [
        Workload(kind="fixed", topics=2),
        Workload(kind="poisson", topics=2),
        Workload(kind="zipf", topics=4, subscriptions_per_peer=2),
        Workload(kind="reddit2007", limit=60),
    ],
    ids=lambda workload: workload.kind,
)
def test_every_workload_has_it_and_is_otherwise_as_it_was(workload: Workload) -> None:
    """The changes are drawn apart from all else: who publishes what and when stays the same."""
    restive, calm = [
        Simulation(restless(workload=workload, unsubscribing=each))
        for each in (RESTLESS, Unsubscribing())
    ]
    assert restive.plan == calm.plan
    assert (len(calm.changes), len(restive.changes) > 10) == (0, True)
    for change in restive.changes:
        assert change.topic in restive.plan.subscriptions[change.peer]
        assert restive.plan.start <= change.at <= restive.plan.end


def test_subscriptions_end_at_the_rate_and_begin_again() -> None:
    """Each is there or away in turns, and not more than the allowed share at once."""
    wish = Unsubscribing(fraction=3.0, away=2.0, max_away=0.1)
    changes = Simulation(restless(unsubscribing=wish)).changes
    away: dict[tuple[int, str], None] = {}
    for change in changes:
        pair = (change.peer, change.topic)
        assert (pair in away) == change.subscribes
        if change.subscribes:
            del away[pair]
        else:
            away[pair] = None
        assert len(away) <= 3
    ended = sum(not change.subscribes for change in changes)
    assert 3 <= ended <= 16  # of 1.6 a second for 5 seconds, as far as the share lets them


def test_who_is_down_leaves_all_the_same() -> None:
    """It comes back with its old state, and without the topic that it left meanwhile."""
    down = Fault(kind="crash", at=0.0, fraction=1.0, duration=4.0, keep_state=True)
    only = Unsubscribing(fraction=3.0, away=1000.0)
    run = Run(restless(faults=(down,), unsubscribing=only), keep_trace=True)
    simulation = run.simulation
    left = [(change.peer, change.topic) for change in simulation.changes]
    assert len(left) >= 5
    for peer, topic in left:
        assert topic not in simulation.network.hosts[peer].machine.view().subscriptions
    run.check_books()
    assert run.summary["unsubscribed"]["deliveries"] == 0


def test_what_cannot_be_is_refused() -> None:
    """By the full name of the key."""
    with pytest.raises(ConfigError, match=r"unsubscribing\.fraction: excludes rate"):
        Scenario.parse("[unsubscribing]\nrate = 5\nfraction = 0.1")
    with pytest.raises(ConfigError, match=r"unsubscribing\.away: must be at least 1ms"):
        Scenario.parse("[unsubscribing]\naway = 0")
    with pytest.raises(ConfigError, match=r"unsubscribing\.max_away: must be more than 0"):
        Scenario.parse("[unsubscribing]\nmax_away = 0")
    with pytest.raises(ConfigError, match=r"unsubscribing: 'much' is no rate; write subscriptions"):
        Unsubscribing.parse("much")
