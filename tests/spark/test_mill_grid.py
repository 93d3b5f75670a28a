"""Grids: every combination once, checked before anything runs; tasks of about equal work."""

import random
from pathlib import Path
from typing import Any

import pytest

from rumormill.core.errors import ConfigError
from rumormill.protocols.registry import PROTOCOL_NAMES
from rumormill.sim.workload import build_plan
from rumormill.spark.sweep import Grid, estimate, pack

GRID: dict[str, Any] = {
    "name": "small",
    "base": {"topology": {"degree": 4}, "workload": {"messages": 3}},
    "protocols": ["floodsub", "gossipsub", "gossipsub:ethereum"],
    "peers": [8, 12],
    "seeds": [1, 2, 3],
    "parameters": {"gossipsub": {"D": [6, 8]}},
    "conditions": {"calm": {}, "lossy": {"links.loss": 0.05}},
}


def test_a_grid_is_every_combination() -> None:
    """Parameters belong to the protocol that they are written under."""
    runs = Grid.from_dict(GRID).runs()
    assert len(runs) == (1 + 2 + 1) * 2 * 2 * 3
    assert len({run.name for run in runs}) == len({run.digest for run in runs}) == len(runs)
    scenarios = {run.name: run.scenario for run in runs}
    one = scenarios["gossipsub,D=8,lossy,n=12,seed=2"]
    assert (one.protocol, one.preset, one.parameters) == ("gossipsub", "default", {"D": 8})
    assert (one.peers, one.seed, one.links.loss, one.workload.messages) == (12, 2, 0.05, 3)
    other = scenarios["gossipsub-ethereum,calm,n=8,seed=1"]
    assert (other.preset, other.parameters, other.links.loss) == ("ethereum", {}, 0.0)


def test_a_grid_names_a_scenario_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "storm.toml").write_text('protocol = "floodsub"\npeers = 30\n')
    (tmp_path / "grid.toml").write_text('scenario = "storm.toml"\nseeds = [4, 5]\n')
    grid = Grid.load(tmp_path / "grid.toml")
    assert grid.name == "grid"
    assert [run.name for run in grid.runs()] == ["floodsub,n=30,seed=4", "floodsub,n=30,seed=5"]


def test_sync_is_for_protocols_that_do_not_repair_histories() -> None:
    """One grid compares all protocols, each with what makes it complete."""
    both = {"protocols": ["gossipsub", "skipring"], "base": {"sync": {"enabled": True}}}
    runs = Grid.from_dict(both).runs()
    assert [run.scenario.sync.enabled for run in runs] == [True, False]


SHIPPED = Path(__file__).resolve().parents[2] / "grids"


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_grids_are_valid(path: Path) -> None:
    assert Grid.load(path).runs()


def test_the_papers_grid_is_the_papers_workload_under_every_protocol() -> None:
    """17,611 events of 100 peers in 23 topics with 762 subscriptions, the same for all."""
    runs = Grid.load(SHIPPED / "reddit2007.toml").runs()
    assert tuple(run.scenario.protocol for run in runs) == PROTOCOL_NAMES
    for run in runs:
        plan = build_plan(run.scenario, random.Random(run.scenario.seed))
        assert len(plan.publications) == 17_611
        assert len(plan.subscriptions) == 100
        assert sum(map(len, plan.subscriptions)) == 762
        assert len({topic for topics in plan.subscriptions for topic in topics}) == 23


def test_keys_of_the_shared_scenario_can_be_changed() -> None:
    """For a slice of a large grid, say; a key that does not exist is named."""
    file = SHIPPED / "reddit2007.toml"
    whole, slice_ = Grid.load(file).runs(), Grid.load(file, {"workload.limit": 30}).runs()
    assert [run.scenario.workload.limit for run in slice_] == [30] * len(whole)
    assert not {run.digest for run in whole} & {run.digest for run in slice_}
    with pytest.raises(ConfigError, match=r"workload\.limits"):
        Grid.load(file, {"workload.limits": 30})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"protocol": ["x"]}, "protocol: there is no such key; did you mean protocols"),
        ({"protocols": ["gosipsub"], "parameters": {}}, "did you mean gossipsub"),
        ({"protocols": []}, "protocols: the list is empty"),
        ({"peers": ["many"]}, "peers: 'many' is not what belongs there"),
        ({"seeds": [1, 1]}, "seeds: names something twice"),
        ({"parameters": {"radius": {"D": 6}}}, r"parameters\.radius: not among the protocols"),
        ({"parameters": {"gossipsub": {"DD": [3]}}}, "DD: there is no such parameter"),
        ({"conditions": {"bad": {"links.los": 1}}}, r"bad.*links\.los"),
        ({"conditions": {"bad": 3}}, r"conditions\.bad: expected a table"),
        ({"name": "../up"}, "name: use letters"),
        ({"scenario": "x.toml"}, "base: excludes scenario"),
        ({"scenario": {"peers": 5}}, r"is the name of a file; .* is \[base\]"),
        ({"peers": list(range(2, 10_000))}, "more than 100000 runs"),
    ],
)
def test_what_a_grid_cannot_mean_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Grid.from_dict({**GRID, **change}).runs()


def test_a_file_that_is_no_grid_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: cannot be read"):
        Grid.load(tmp_path / "no.toml")
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(ConfigError, match=r"bad\.toml: not TOML"):
        Grid.load(tmp_path / "bad.toml")


def test_tasks_take_about_equally_long() -> None:
    """No task has more than the average and one run: none waits for the last."""
    runs = Grid.from_dict({**GRID, "peers": [8, 200, 1000]}).runs()
    packs = pack(runs, 6)
    assert sorted(run.name for each in packs for run in each) == sorted(run.name for run in runs)
    loads = [sum(map(estimate, each)) for each in packs]
    assert len(packs) == 6
    assert max(loads) <= sum(loads) / 6 + max(map(estimate, runs))
    assert [len(each) for each in pack(runs[:2], 6)] == [1, 1]
