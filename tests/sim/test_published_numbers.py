"""GossipSub's published message counts, on the network that they were published for.

`docs/published-numbers.md` shows the figures side by side and names their sources. Small networks
vary from seed to seed, so the claims are about means over some seeds.
"""

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario

NETWORK = Path(__file__).resolve().parents[2] / "scenarios" / "published-numbers.toml"

PUBLISHED = (6.2, 6.5)
"""Messages sent per delivery at D = 6: vyzo's simulations of 2022 show 6.28 to 6.42."""

THEORY = (5.5, 6.7)
"""Duplicates per delivery at D = 8: near D - 2, the upper end of the theory (vac, 2025)."""


def runs(peers: int, seeds: int, **changes: Any) -> list[dict[str, Any]]:
    """The figures of the published network for seeds 1, 2, ...; all of them deliver everything."""
    scenario = Scenario.load(NETWORK).changed({"peers": peers, **changes})
    figures = [run_scenario(scenario.changed({"seed": seed})) for seed in range(1, seeds + 1)]
    for run in figures:
        again = f"rumormill sim {NETWORK.name} --peers {peers} --seed {run['seed']} ({changes})"
        assert run["delivered"] == run["expected_deliveries"], f"not all delivered: {again}"
    return figures


def average(figures: list[dict[str, Any]], name: str) -> float:
    return mean(run[name] for run in figures)


def between(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


# Fewer messages say the same: a mesh does not change once it is steady.
QUICK = {"workload.messages": 15}
D8 = {"parameters": {"D": 8, "flood_publish": False}}


def test_100_peers_send_as_many_messages_as_published() -> None:
    """D = 6, 20 links: everything is delivered with 6.2 to 6.5 messages per delivery."""
    assert between(average(runs(100, 10, **QUICK), "messages_per_delivery"), PUBLISHED)


def test_100_peers_at_d_8_get_as_many_duplicates_as_the_theory_says() -> None:
    """The mesh alone; flood publishing adds twelve copies at the source, much of 99 deliveries."""
    assert between(average(runs(100, 5, **D8, **QUICK), "duplicates_per_delivery"), THEORY)


def test_500_peers_send_as_many_messages_as_published() -> None:
    """One seed is enough here: 500 peers vary little."""
    assert between(runs(500, 1, **QUICK)[0]["messages_per_delivery"], PUBLISHED)


def test_500_peers_at_d_8_get_as_many_duplicates_as_the_theory_says() -> None:
    """With every other parameter at its default, flood publishing included."""
    (run,) = runs(500, 1, parameters={"D": 8}, **QUICK)
    assert between(run["duplicates_per_delivery"], THEORY)


def test_flood_publishing_costs_little_and_saves_a_hop() -> None:
    """Published: 6.28 against 6.74 messages at 100 peers, and lower latencies."""
    lean = runs(100, 3, **QUICK)
    flooding = runs(100, 3, **{"parameters.flood_publish": "true"}, **QUICK)
    more = average(flooding, "messages_per_delivery") - average(lean, "messages_per_delivery")
    assert 0.1 < more < 0.6
    assert average(flooding, "hops_mean") < average(lean, "hops_mean")


def test_meshes_are_thicker_when_all_graft_at_once() -> None:
    """Heartbeats in step: everybody grafts D and is grafted by D more, and D_hi allows it."""
    in_step = {"join": "all-at-once", "parameters.heartbeat_spread": 0.0}
    thick = average(runs(100, 3, **in_step, **QUICK), "messages_per_delivery")
    spread = average(runs(100, 3, join="all-at-once", **QUICK), "messages_per_delivery")
    assert between(spread, (6.1, 6.7))
    assert between(thick, (7.9, 8.9))


def test_meshes_are_thicker_when_peers_join_slowly() -> None:
    """Each newcomer grafts D links to peers that have enough, and nobody sheds below D_hi."""
    slow = average(runs(100, 3, join_interval="100ms", **QUICK), "messages_per_delivery")
    assert between(slow, (7.0, 7.8))


@pytest.mark.slow
def test_1000_peers_send_as_many_messages_as_published() -> None:
    """The whole published run: 60 messages."""
    assert between(runs(1000, 1)[0]["messages_per_delivery"], PUBLISHED)


@pytest.mark.slow
def test_1000_peers_at_d_8_get_as_many_duplicates_as_the_theory_says() -> None:
    """With every other parameter at its default, and with flood publishing off."""
    for parameters in ({"D": 8}, {"D": 8, "flood_publish": False}):
        (run,) = runs(1000, 1, parameters=parameters)
        assert between(run["duplicates_per_delivery"], THEORY)
