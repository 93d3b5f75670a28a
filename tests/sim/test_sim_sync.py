"""Sync in the simulator: under churn and loss, everybody has everything in the end.

A third of the peers goes down every minute for half a minute, links lose one message in twenty, and
delays are PlanetLab's. The figures come from the trace alone.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
from sim_rig import Run

from rumormill.core.trace import DeliverMessage, SyncEnded
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario

AWAY = Scenario.load(Path(__file__).resolve().parents[2] / "scenarios" / "away.toml")
SYNCED = ("gossipsub", "floodsub", "radius")
SMALL = {"peers": 36, "workload.messages": 80, "workload.rate": 1.3}

TOPICS = {"workload.kind": "zipf", "workload.topics": 4, "workload.subscriptions_per_peer": 2}
WEATHERS: dict[str, dict[str, Any]] = {
    "churn": {"check_codec": True},
    "several topics": TOPICS,
    "slow disks": {"disk.commit_delay": 0.05},
    "few links": {"topology.degree": 6},
    "returning with what they knew": {"churn.keep_state": True},
    "a partition and a pause": {
        "faults": [
            {"kind": "partition", "at": 10.0, "groups": 2, "duration": 20.0},
            {"kind": "pause", "at": 25.0, "fraction": 0.2, "duration": 15.0},
        ]
    },
}


def away(protocol: str, **changes: Any) -> Scenario:
    return AWAY.changed({"protocol": protocol, **SMALL, "seed": 3, **changes})


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("protocol", SYNCED)
def test_everybody_has_everything_in_the_end(protocol: str, weather: str) -> None:
    """Every pair of an event and a subscriber that is up, within a minute of the last fault."""
    run = Run(away(protocol, **WEATHERS[weather]))
    figures = run.summary
    assert figures["complete_ratio"] == 1.0, run
    assert figures["delivery_ratio"] == 1.0, run
    assert figures["time_to_complete"]["max"] < 60, run
    run.check_books()
    run.check_single_deliveries()


@pytest.mark.parametrize("protocol", SYNCED)
def test_without_sync_much_is_missing_for_good(protocol: str) -> None:
    """So the test above tests something."""
    figures = run_scenario(away(protocol, **{"sync.enabled": False}))
    assert figures["complete_ratio"] < 0.95
    assert figures["time_to_complete"]["incomplete"] > 0
    assert figures["sync"]["sessions"] == {}


@pytest.mark.parametrize("seed", [1, 2])
def test_pulsarcast_is_complete_by_itself(seed: int) -> None:
    """Where everybody publishes: an author that returns has its tree again, and what is lost on the
    way up or down is found."""
    run = Run(AWAY.under("pulsarcast").changed({**SMALL, "preset": "open", "seed": seed}))
    figures = run.summary
    assert figures["complete_ratio"] == 1.0, run
    assert figures["time_to_complete"]["max"] < 30, run
    run.check_single_deliveries()


def test_who_was_never_away_gets_next_to_nothing_by_sync() -> None:
    """On links that lose nothing, what was fetched was published while its new owner was down."""
    run = Run(away("gossipsub", **{"links.loss": 0}), keep_trace=True)
    fetched = [entry for entry in run.trace(DeliverMessage) if entry[2].via]
    assert fetched
    assert run.summary["sync"]["deliveries"] <= len(fetched) / 20


@pytest.mark.parametrize("protocol", [*SYNCED, "pulsarcast", "skipring"])
def test_what_was_deleted_stays_deleted(protocol: str) -> None:
    """Half of the peers keep nothing for long. Some of all are killed when that is over, and come
    back: others have everything still, and do not bring it back to who has deleted it."""
    disk = {"disk.max_age": 20.0, "disk.fraction": 0.5}
    times = {"warm_up": 30.0, "cool_down": 140.0, "workload.messages": 30, "workload.rate": 1.0}
    killed = [{"kind": "crash", "at": 110.0, "fraction": 0.4, "duration": 5.0}]
    calm = {"churn.fraction": 0.0, "faults": killed, "links.loss": 0.0, "peers": 20}
    run = Run(AWAY.under(protocol).changed({**disk, **times, **calm}))
    assert run.summary["complete_ratio"] == 1.0, run
    run.check_single_deliveries()
    kept = [len(host.journal or ()) for host in run.simulation.network.hosts[:20]]
    assert sum(count == 0 for count in kept) >= 4, "what is deleted is looked at when one reads"
    assert sum(count >= 30 for count in kept) >= 10


def test_the_trace_tells_of_every_session_and_every_event_that_it_brought() -> None:
    """A session counts what it handed on, and each of that is delivered, or known by then."""
    run = Run(away("gossipsub"), keep_trace=True)
    ended = [payload for _, _, payload in run.trace(SyncEnded)]
    fetched = [payload for _, _, payload in run.trace(DeliverMessage) if payload.via]
    assert {payload.via for payload in fetched} == {"sync"}
    assert sum(payload.events for payload in ended) >= len(fetched) > 0
    assert {payload.outcome for payload in ended} >= {"equal", "complete"}
    for payload in ended:
        assert payload.unequal <= payload.topics
        assert payload.unequal or not payload.events


@pytest.mark.slow
@pytest.mark.parametrize("peers", [100, 1000])
@pytest.mark.parametrize("protocol", [*SYNCED, "pulsarcast", "skipring"])
def test_large_networks_are_complete_too(
    protocol: str, peers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two events a peer, all within two minutes, each protocol by its default settings; the time to
    complete is printed against the size. Pulsarcast and the skip ring repair their histories
    themselves."""
    size = {"peers": peers, "workload.messages": 2 * peers, "workload.rate": peers / 30}
    figures = run_scenario(AWAY.under(protocol).changed(size))
    times, sync = figures["time_to_complete"], figures["sync"]
    minutes = figures["virtual_seconds"] / 60
    sent = (sync["control_bytes"] + sync["data_bytes"]) / peers / minutes
    with capsys.disabled():
        sys.stdout.write(
            f"\n{protocol}, {peers} peers: complete after p50 {times['p50']} s,"
            f" p99 {times['p99']} s, max {times['max']} s; {sent:.0f} bytes per peer and minute\n"
        )
    assert figures["complete_ratio"] == 1.0
    assert times["max"] < (60 if protocol in SYNCED else 120)
