"""The skip ring in the simulator: starts, figures, dumps, and the faults that it must survive."""

import json
from pathlib import Path
from typing import Any

import pytest

from rumormill.core.errors import ConfigError
from rumormill.core.trace import Stabilised
from rumormill.protocols.skipring.labels import text_of
from rumormill.sim.churn import Unsubscribing
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario, Workload
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Batch

PEERS = 30


def scenario(**changes: Any) -> Scenario:
    quick = {"workload": {"messages": 20, "rate": 2.0}, "cool_down": 30.0, "peers": PEERS}
    return Scenario.from_dict({"protocol": "skipring", **quick, **changes})


def fault(kind: str, **rest: Any) -> dict[str, Any]:
    return {"kind": kind, "at": 3.0, **rest}


@pytest.mark.parametrize("start", ["", "empty", "legitimate", "arbitrary"])
def test_a_run_ends_legitimate_from_every_start(start: str) -> None:
    """The figures that the protocol adds, with every message encoded and decoded."""
    figures = run_scenario(scenario(start=start, check_codec=True, warm_up=60.0))
    assert figures["legitimate"] is True
    assert figures["delivery_ratio"] == 1
    assert figures["average_degree"] <= 4
    assert figures["max_degree"] <= 10
    assert figures["supervisor_requests_per_interval"] < 1.6  # a hundred intervals of mean 0.74
    if start == "legitimate":
        assert figures["intervals_to_legitimate"] == 0
        assert "subscribe" not in figures["control_messages"]
    else:
        assert figures["intervals_to_legitimate"] > 0


def test_an_unknown_start_is_refused() -> None:
    """With what the protocol knows."""
    with pytest.raises(ConfigError, match="empty, legitimate, arbitrary"):
        Simulation(scenario(start="chaotic"))
    with pytest.raises(ConfigError, match="gossipsub begins in no other state"):
        Simulation(Scenario.from_dict({"start": "legitimate"}))


def test_the_dump_is_the_whole_state(tmp_path: Path) -> None:
    """What every peer shows and all that it knows: its place, its history, the database."""
    path = tmp_path / "state.json"
    run_scenario(scenario(peers=5, start="legitimate"), dump_state=path)
    peers = json.loads(path.read_text())
    states = {peer: each["state"] for peer, each in peers.items()}
    rings = {
        peer: state["members"]["topic-0"] for peer, state in states.items() if state["members"]
    }
    labels = {peer: text_of(ring["subscriber"]["own"]["label"]) for peer, ring in rings.items()}
    assert sorted(labels.values()) == ["0", "001", "01", "1", "11"]
    (above,) = [state["supervised"] for state in states.values() if state["supervised"]]
    assert {peer: text_of(label) for label, peer in above["topic-0"]["database"]} == labels
    histories = [list(ring["publications"]["trie"]["_keys"]) for ring in rings.values()]
    assert len(histories[0]) == 20
    assert all(sorted(history) == sorted(histories[0]) for history in histories)
    peer_at = {label: peer for peer, label in labels.items()}
    lowest = rings[peer_at["0"]]["subscriber"]
    assert lowest["left"] is None
    assert lowest["right"]["peer"] == peer_at["001"]
    assert lowest["ring"]["peer"] == peer_at["11"]
    assert sorted(peer for _, peer in lowest["shortcuts"]) == sorted([peer_at["01"], peer_at["1"]])
    links = peers[peer_at["0"]]["view"]["links"]
    assert links["ring"]["topic-0"] == [peer_at["001"], peer_at["11"]]
    assert sorted(links["shortcut"]["topic-0"]) == sorted([peer_at["01"], peer_at["1"]])


def test_several_supervisors_share_the_topics() -> None:
    """All of them are hosts beyond the peers."""
    load = {"messages": 16, "topics": 8, "rate": 4.0}
    run = Simulation(scenario(peers=8, workload=load, parameters={"supervisor_count": 3}))
    run.run()
    hosts = run.network.hosts
    assert len(hosts) == 11
    shares = [len(host.machine.supervised) for host in hosts[8:]]
    assert sum(shares) == 8
    assert max(shares) < 8
    assert run.inspection is not None
    assert run.inspection.figures()["legitimate"] is True


def test_a_hierarchy_of_topics_lightens_the_supervisor() -> None:
    """Eight topics of one branch: an eighth of the configurations in a quiet ring, and the same
    publications and rings after a crash."""
    load = {"messages": 16, "topics": 8, "rate": 2.0}
    sent = []
    for between in ("", "-"):
        wish = {"workload": load, "parameters": {"hierarchy": between}, "peers": 8}
        quiet = run_scenario(scenario(start="legitimate", **wish))
        sent.append(quiet["control_messages"]["set-data"])
        hurt = run_scenario(scenario(faults=[fault("crash", peers=[1, 2])], cool_down=60.0, **wish))
        assert [quiet["pending"], hurt["pending"]] == [0, 0]
        assert [quiet["legitimate"], hurt["legitimate"]] == [True, True]
    assert 6 < sent[0] / sent[1] <= 8


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([fault("crash", fraction=0.3)], id="a third crashes"),
        pytest.param([fault("crash", fraction=0.3, duration=20.0)], id="a third comes back"),
        pytest.param(
            [fault("crash", servers=[0], duration=60.0, keep_state=True)], id="supervisor away"
        ),
        pytest.param([fault("crash", servers=[0], duration=10.0)], id="supervisor back empty"),
        pytest.param([fault("partition", groups=2, duration=20.0)], id="partition"),
        pytest.param([fault("partition", fraction=0.1, duration=20.0)], id="some cut off"),
        pytest.param([fault("byzantine", fraction=0.1, duration=20.0)], id="some lie"),
        pytest.param(
            [
                fault("crash", servers=[0], duration=15.0),
                {"kind": "crash", "at": 8.0, "fraction": 0.3, "duration": 30.0},
            ],
            id="a third and the supervisor",
        ),
    ],
)
def test_faults_end_in_a_legitimate_state_with_everything_delivered(
    faults: list[dict[str, Any]],
) -> None:
    """Every publication is at every live subscriber in the end, whatever happened meanwhile."""
    figures = run_scenario(scenario(faults=faults, cool_down=100.0))
    assert figures["legitimate"] is True
    assert figures["pending"] == 0
    assert figures["delivered"] > 0


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nothing happens"),
        pytest.param({"start": "arbitrary"}, id="arbitrary start"),
        pytest.param({"faults": [fault("crash", fraction=0.3, duration=20.0)]}, id="a third"),
        pytest.param({"faults": [fault("crash", servers=[0], duration=10.0)]}, id="supervisor"),
        pytest.param({"unsubscribing": {"fraction": 4.0, "away": 3.0}}, id="restless"),
    ],
)
def test_supervision_by_a_token(changes: dict[str, Any]) -> None:
    """Section 6: the same ends, with a supervisor that counts, through the codec."""
    token = {"parameters": {"supervision": "token"}, "check_codec": True}
    figures = run_scenario(scenario(cool_down=240.0, peers=20, **token, **changes))
    assert figures["legitimate"] is True
    assert figures["pending"] == 0
    assert figures["control_messages"]["token"] > 0


def test_flooding_goes_on_while_the_supervisor_is_away() -> None:
    """Section 1: the supervisor "does not handle the dissemination of publish requests"."""
    away = [fault("crash", servers=[0], duration=60.0, keep_state=True)]
    load = {"messages": 40, "rate": 1.0}
    figures = run_scenario(scenario(faults=away, workload=load))
    assert figures["delivery_ratio"] == 1
    assert figures["latency_max"] < 1


def test_the_tries_deliver_without_flooding() -> None:
    """Theorem 17: "eventually all subscribers store a Patricia trie consisting of all
    publications", over ring edges alone."""
    parameters = {"publications.flooding": False, "checks_shortcuts": False}
    figures = run_scenario(scenario(peers=12, parameters=parameters, cool_down=60.0))
    assert figures["delivery_ratio"] == 1
    assert "publish-new" not in figures["control_messages"]


def test_who_leaves_and_comes_back_all_the_time_misses_nothing_that_it_is_owed() -> None:
    """Many publish while they are out of the ring, and have no neighbours when they do: what they
    say is with everybody within seconds of entering it, not of many comparisons of tries."""
    restless = Unsubscribing(fraction=6.0, away=3.0, distribution="exponential")
    load = Workload(messages=100, topics=2)
    run = Scenario(protocol="skipring", peers=40, workload=load, unsubscribing=restless)
    figures = run_scenario(run)
    assert figures["unsubscribed"]["left"] > 50
    assert figures["pending"] == 0
    assert figures["complete_ratio"] == 1


def test_the_trace_says_when_the_ring_was_legitimate() -> None:
    """STABILISED entries, for whoever reads traces later."""
    seen: list[tuple[float, bool]] = []

    class Watcher:
        def observe(self, batch: Batch) -> None:
            seen.extend((at, each.legitimate) for at, _, each in batch if type(each) is Stabilised)

        def close(self) -> None:
            """Nothing is held."""

    run = Simulation(scenario(faults=[fault("crash", fraction=0.3)]), [Watcher()])
    run.run()
    assert [legitimate for _, legitimate in seen] == [True, False, True]


def test_the_same_seed_gives_the_same_run() -> None:
    """Also from an arbitrary state."""
    hashes = {run_scenario(scenario(start="arbitrary"))["trace_hash"] for _ in range(2)}
    assert len(hashes) == 1


def test_servers_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 is no server; there are 1"):
        Simulation(scenario(faults=[fault("crash", servers=[1])]))
