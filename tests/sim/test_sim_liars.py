"""Liars in sync, and peers that delete: honest peers have everything in the end, through others;
what the liars cost is bounded, and what they do is counted under a reason."""

from pathlib import Path
from typing import Any

import pytest
from sim_rig import Run

from rumormill.core.errors import ConfigError
from rumormill.core.trace import DeliverMessage, Refuse, SyncEnded
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario
from rumormill.sync import peer as sync_peer
from rumormill.sync.session import COMPLETE, FALSE_EQUAL, FORGED, PROMISED

LIARS = Scenario.load(Path(__file__).resolve().parents[2] / "scenarios" / "liars.toml")
SMALL = {"peers": 36, "workload.messages": 80, "workload.rate": 2.0, "topology.degree": 12}
LIES = {
    "withholding": FALSE_EQUAL,
    "phantoms": PROMISED,
    "recursion": PROMISED,
    "forgery": FORGED,
}


def lying(*lies: str, **changes: Any) -> Scenario:
    """Nine peers lie, in these ways."""
    faults = [
        {"kind": "byzantine", "at": -5.0, "peers": list(range(at, 9, len(lies))), "lie": lie}
        for at, lie in enumerate(lies)
    ]
    return LIARS.changed({**SMALL, "faults": faults, "check_codec": True, **changes})


@pytest.mark.parametrize("lie", LIES)
def test_honest_peers_have_everything_and_the_liars_are_counted(lie: str) -> None:
    """Whatever a quarter of all peers says of its histories, and however often it offers."""
    run = Run(lying(lie), keep_trace=True)
    figures = run.summary
    assert figures["complete_ratio"] == 1.0, run
    assert figures["refused"][LIES[lie]] > 0, run
    blamed = {int.from_bytes(each.peer, "big") for _, _, each in run.trace(Refuse)}
    assert blamed <= set(range(9)), "nobody who is honest"
    fetched = [each for _, _, each in run.trace(DeliverMessage) if each.via]
    givers = {int.from_bytes(each.received_from, "big") for each in fetched}
    assert givers
    assert not givers & set(range(9))


@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub"])
def test_all_liars_together_cost_little(protocol: str) -> None:
    """Who gives nothing is asked ever more seldom; a peer's bytes stay below 25 kB a minute."""
    run = Run(lying(*LIES, protocol=protocol), keep_trace=True)
    figures = run.summary
    assert figures["complete_ratio"] == 1.0, run
    minutes = run.simulation.plan.end / 60
    sync = figures["sync"]
    assert (sync["control_bytes"] + sync["data_bytes"]) / SMALL["peers"] / minutes < 25_000
    last_minute = run.simulation.plan.end - 60
    asked: dict[tuple[int, int], int] = {}
    for now, peer, ended in run.trace(SyncEnded):
        liar = int.from_bytes(ended.peer, "big")
        if now > last_minute and liar < 9 and liar % 4 == 3:
            asked[peer, liar] = asked.get((peer, liar), 0) + 1
    assert max(asked.values(), default=0) <= 3, "forgers, in the last minute, by who was restarted"
    assert sum(asked.values()) < 2 * len(asked)


def test_who_finds_its_partner_equal_by_mistake_completes_through_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums of no bits: sets of as many events look alike, on few links that lose much. Some other
    peer has another number of them; audits, which would find it too, are off."""
    monkeypatch.setattr(sync_peer, "_AUDITED", 0.0)
    weak = {"sync.sum_bits": 0, "faults": [], "disk.fraction": 0.0, "cool_down": 240.0}
    sparse = {"protocol": "floodsub", "links.loss": 0.15, "topology.degree": 3}
    figures = run_scenario(LIARS.changed({**SMALL, **weak, **sparse}))
    assert figures["complete_ratio"] == 1.0
    assert figures["sync"]["sessions"][COMPLETE] > 0


@pytest.mark.parametrize("seed", [5, 6, 7, 8, 11])
def test_sets_that_collide_at_everybody_are_told_apart_by_audits(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two halves of a network were cut off from each other, and each has published four events:
    sums of no bits call all sets equal for ever, and only an audit finds that they are not."""
    cut = {"kind": "partition", "at": -2.0, "groups": 2, "duration": 40.0}
    halves = {
        "protocol": "floodsub", "peers": 8, "topology.degree": 7, "workload.messages": 8,
        "workload.rate": 1.0, "sync.sum_bits": 0, "faults": [cut], "disk.fraction": 0.0,
        "churn.fraction": 0.0, "links.loss": 0.0, "cool_down": 240.0, "seed": seed,
    }  # fmt: skip
    audited = run_scenario(LIARS.changed(halves))
    assert (audited["published"], audited["complete_ratio"]) == (8, 1.0)
    monkeypatch.setattr(sync_peer, "_AUDITED", 0.0)
    believed = run_scenario(LIARS.changed(halves))
    assert believed["complete_ratio"] == 0.5
    assert COMPLETE not in believed["sync"]["sessions"]


def test_peers_that_delete_and_peers_that_keep() -> None:
    """A quarter of them keeps nothing for longer than a minute. Everybody has had everything, and
    nobody twice; in the end some have nothing left, and the others all there ever was."""
    run = Run(lying("withholding"))
    assert run.summary["complete_ratio"] == 1.0, run
    run.check_single_deliveries()
    kept = [len(host.journal or ()) for host in run.simulation.network.hosts[9:]]
    assert set(kept) == {0, run.summary["published"]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sync.enabled": False}, r"faults\[0\].lie: without sync nobody asks"),
        ({"sync.sum_bits": 5000}, "sync.sum_bits: must be from 0 to 4096"),
        ({"disk.max_age": 0}, "disk.max_age: must be more than 0s"),
        ({"disk.max_age": None}, "disk.fraction: has no meaning without limit or max_age"),
        ({"faults": [{"kind": "crash", "at": 0, "peers": [1], "lie": "forgery"}]}, "lie: has no"),
    ],
)
def test_keys_that_mean_nothing_are_refused(changes: dict[str, Any], words: str) -> None:
    """With the rule."""
    with pytest.raises(ConfigError, match=words):
        LIARS.changed(changes)
