"""Whole runs under faults: the shipped scenarios, overlapping faults, restarts, attackers."""

from pathlib import Path
from typing import Any

import pytest
from sim_rig import Run

from rumormill.core.trace import (
    DeliverMessage,
    Join,
    Leave,
    NodeDown,
    NodeUp,
    PublishMessage,
    SkipPublish,
)
from rumormill.protocols.registry import PROTOCOL_NAMES
from rumormill.sim.churn import Churn
from rumormill.sim.faults import FaultAction
from rumormill.sim.host import LOST
from rumormill.sim.keeping import Disk
from rumormill.sim.replay import how_to_repeat, scenario_toml
from rumormill.sim.scenario import Fault, FaultKind, Links, Scenario, Topology, Workload
from rumormill.sim.simulation import (
    PUBLISHER_DOWN,
    PUBLISHER_HOSTILE,
    UNFINISHED,
    Simulation,
)
from rumormill.trace.ledger import NOT_PUBLISHED

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
START = 5.0
"""When the workload of `small` begins."""

SMALLER: dict[str, dict[str, Any]] = {
    "all-at-once": {"peers": 40, "workload.messages": 20},
    "away": {"peers": 30, "workload.messages": 40},
    "byzantine": {"peers": 54, "topology.degree": 10, "workload.messages": 60},
    "churn": {"peers": 40, "workload.messages": 60, "churn.fraction": 2.0, "churn.downtime": 5.0},
    "liars": {"peers": 30, "workload.messages": 40},
    "partition": {"peers": 30, "topology.degree": 8, "workload.messages": 160},
    "planetlab": {"peers": 40, "workload.messages": 40},
    "published-numbers": {"peers": 40, "workload.messages": 20},
    "radius-reference": {"workload.messages": 20},
    "radius-sparse": {"peers": 60, "workload.topics": 6},
    "reddit2007": {"topology.degree": 8, "workload.limit": 30},
    "wild": {"peers": 30, "cool_down": 40.0, "workload.messages": 10, "workload.rate": 2.0},
    **{
        f"pulsarcast-reddit2007{variant}": {"topology.degree": 8, "workload.limit": 30}
        for variant in (
            "",
            "-churn5",
            "-churn10",
            "-churn30",
            "-latency",
            "-ordered",
            "-ordered-latency",
        )
    },
}
"""How each shipped scenario is scaled down."""

SLOW = [name for name in SMALLER if name.startswith("pulsarcast-reddit2007-")]
"""A hundred peers that join a hash table take ten seconds; one such scenario is run every time."""


def fault(kind: Any, at: float, *peers: int, **rest: Any) -> Fault:
    return Fault(kind=kind, at=at, peers=peers, **rest)


def small(*faults: Fault, **changes: Any) -> Scenario:
    """Twenty peers, ten messages per second for eight seconds, codec checked."""
    values: dict[str, Any] = {
        "peers": 20,
        "join": "all-at-once",
        "topology": Topology(degree=6),
        "warm_up": START,
        "cool_down": 6.0,
        "check_codec": True,
        "workload": Workload(messages=80),
        "faults": faults,
        **changes,
    }
    return Scenario(**values)


def ups_and_downs(run: Run, peer: int) -> list[tuple[float, str]]:
    """When a peer came up and went down, in seconds of the workload."""
    changes = [(now, at, "up") for now, at, _ in run.trace(NodeUp)]
    changes += [(now, at, "down") for now, at, _ in run.trace(NodeDown)]
    return [(round(now - START, 6), what) for now, at, what in sorted(changes) if at == peer]


def missed(run: Run, peers: list[int], publishers: list[int], since: float) -> int:
    """How many messages, of some publishers and from a moment on, some peers did not get."""
    wanted = [
        payload.message_id
        for now, peer, payload in run.trace(PublishMessage)
        if peer in publishers and now >= run.simulation.plan.start + since
    ]
    assert wanted
    got = [dict.fromkeys(message_id for _, message_id in run.delivered[peer]) for peer in peers]
    return sum(message_id not in mine for mine in got for message_id in wanted)


# The shipped scenarios.


def test_every_shipped_scenario_is_run_here() -> None:
    """A new file needs an entry above."""
    assert sorted(path.stem for path in SCENARIOS.glob("*.toml")) == sorted(SMALLER)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in sorted(SMALLER)
    ],
)
def test_shipped_scenarios_run(name: str) -> None:
    """Scaled down, with every message through the codec, the books balance."""
    scenario = Scenario.load(SCENARIOS / f"{name}.toml")
    run = Run(scenario.changed({**SMALLER[name], "check_codec": True}))
    run.check_books()
    summary = run.summary
    assert summary["delivered"] > 0, run
    planned = len(run.simulation.plan.publications)
    if run.simulation.spec.topics is not None:
        planned += len(run.simulation.plan.topics)  # topics that are created are published too
    assert summary["planned"] == planned, run
    if not (scenario.faults or scenario.churn.fraction):
        assert summary["delivered"] == summary["expected_deliveries"], run


# Publications that do not happen.


def test_a_publisher_that_is_down_is_counted() -> None:
    """Every planned publication is published or skipped with a reason, and nothing is expected
    of what was skipped."""
    run = Run(small(fault("crash", 1.0, *range(10), duration=3.0)), keep_trace=True)
    skipped = run.summary["skipped_publications"]
    assert skipped.keys() == {PUBLISHER_DOWN}
    assert run.summary["published"] + skipped[PUBLISHER_DOWN] == 80
    planned = {(round(p.at, 6), p.publisher) for p in run.simulation.plan.publications}
    for now, peer, _ in run.trace(SkipPublish):
        assert peer < 10
        assert (round(now, 6), peer) in planned
    run.check_books()


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_what_a_protocol_does_not_publish_is_expected_all_the_same(protocol: str) -> None:
    """Half of the disks are full for a while: what could not be published there was planned, is
    owed to everybody, and makes the ratio worse by as much."""
    full = fault("disk-full", 1.0, *range(10), duration=3.0)
    made, preset = (1, "open") if protocol == "pulsarcast" else (0, "default")
    run = Run(small(full, protocol=protocol, preset=preset))
    summary = run.summary
    failed = summary["failed_publications"]
    assert failed.keys() == {"the disk is full"}
    assert summary["planned"] == summary["published"] + sum(failed.values()) == 80 + made
    assert summary["dropped"][NOT_PUBLISHED] == sum(failed.values()) * 20
    run.check_books()


def test_a_publication_under_way_is_lost_with_its_process() -> None:
    """Disks that take a second: what had not been stored when its publisher crashed has failed, and
    what is on its way to them when the run ends as well."""
    slow = {"disk": Disk(commit_delay=1.0), "cool_down": 0.1}
    run = Run(small(fault("crash", 2.0, *range(10), duration=3.0), **slow))
    failed = run.summary["failed_publications"]
    assert failed.keys() == {LOST, UNFINISHED}
    assert run.summary["planned"] == 80
    run.check_books()


def test_a_hostile_publisher_is_counted() -> None:
    """An attacker publishes nothing that was planned."""
    run = Run(small(fault("byzantine", 1.0, *range(10), rate=5.0, duration=3.0)))
    assert run.summary["skipped_publications"].keys() == {PUBLISHER_HOSTILE}
    assert run.summary["published"] + run.summary["skipped_publications"][PUBLISHER_HOSTILE] == 80


def test_a_paused_publisher_publishes_when_it_goes_on() -> None:
    """Its requests wait; nothing is skipped and everything delivered."""
    run = Run(small(fault("pause", 1.0, *range(5), duration=2.0)), keep_trace=True)
    assert run.summary["skipped_publications"] == {}
    assert run.summary["published"] == 80
    mine = [round(now - START, 6) for now, peer, _ in run.trace(PublishMessage) if peer < 5]
    assert [at for at in mine if 1 < at < 3] == []
    assert 3.0 in mine
    assert run.summary["delivered"] == run.summary["expected_deliveries"], run
    run.check_single_deliveries()


# Overlapping faults.


def test_a_crash_during_a_pause_ends_it_and_resuming_is_harmless() -> None:
    """The peer is down, then up and running, whatever the pause says."""
    run = Run(
        small(fault("pause", 1.0, 3, duration=4.0), fault("crash", 2.0, 3, duration=1.0)),
        keep_trace=True,
    )
    assert ups_and_downs(run, 3) == [(-START, "up"), (2.0, "down"), (3.0, "up")]
    assert missed(run, [3], [p for p in range(20) if p != 3], since=4.5) == 0
    run.check_books()


def test_a_pause_of_a_peer_that_is_down_is_nothing() -> None:
    """Pausing and resuming within a crash leave it down; it comes back running."""
    run = Run(
        small(fault("crash", 1.0, 3, duration=3.0), fault("pause", 2.0, 3, duration=1.0)),
        keep_trace=True,
    )
    assert ups_and_downs(run, 3) == [(-START, "up"), (1.0, "down"), (4.0, "up")]
    assert missed(run, [3], list(range(20)), since=5.5) == 0


def test_a_crash_lasts_when_the_peer_turns_hostile_or_honest() -> None:
    """Neither brings it up before its restart, and it comes back as what it is by then."""
    run = Run(
        small(fault("crash", 1.0, 3, duration=4.0), fault("byzantine", 2.0, 3, duration=1.0)),
        keep_trace=True,
    )
    assert ups_and_downs(run, 3) == [(-START, "up"), (1.0, "down"), (5.0, "up")]
    assert missed(run, [3], list(range(20)), since=6.0) == 0


def test_a_hostile_peer_is_hostile_after_a_restart() -> None:
    """A crash does not convert anybody: it leaves its topics again and publishes nothing."""
    run = Run(
        small(fault("byzantine", 1.0, 3, rate=5.0), fault("crash", 2.0, 3, duration=1.0)),
        keep_trace=True,
    )
    assert [what for _, what in ups_and_downs(run, 3)] == ["up", "down", "up", "down", "up"]
    assert [now for now, peer, _ in run.trace(Join) if peer == 3 and now > START] == []
    assert [now for now, peer, _ in run.trace(Leave) if peer == 3] == [START + 1, START + 3]
    assert max(now for now, peer, _ in run.trace(DeliverMessage) if peer == 3) < START + 1
    run.check_books()


def test_faults_before_joining_wait_for_it() -> None:
    """Nobody is brought up before its time, and a crash that lasts keeps a peer from joining."""
    scenario = small(
        fault("crash", -START - 18.0, 19, duration=22.0),
        fault("crash", -START - 18.0, 18, duration=1.0),
        fault("byzantine", -START - 18.0, 17, duration=1.0),
        join="one-by-one",
        join_interval=1.0,
    )
    run = Run(scenario, keep_trace=True)
    first = {}
    for now, peer, _ in run.trace(NodeUp):
        first.setdefault(peer, now)
    assert [first[peer] for peer in (1, 16, 17, 18, 19)] == [1.0, 16.0, 17.0, 18.0, 23.0]
    run.check_books()


def test_faults_that_find_nothing_to_change_are_harmless() -> None:
    """In any order, not only as the list plans them: who is up stays up, who is down stays down."""
    simulation = Simulation(small())
    host = simulation.network.hosts[3]
    simulation._join(host)
    machine = host.machine

    def strike(*kinds: FaultKind) -> None:
        for kind in kinds:
            simulation._strike(FaultAction(0.0, kind, (3,), ((3,), (0, 1, 2)), rate=1.0))

    strike("restart", "resume", "normal-reader", "heal", "heal", "partition", "partition", "heal")
    assert host.up
    assert host.machine is machine
    strike("crash", "crash", "pause", "resume", "slow-reader", "byzantine", "honest", "honest")
    assert not host.up
    strike("restart", "restart")
    assert host.up
    assert host.machine is not machine


def test_churn_during_a_partition_leaves_one_network() -> None:
    """Who joined or came back during the partition is linked to both sides when it is over."""
    scenario = small(
        fault("partition", -8.0, *range(10), duration=8.5),
        fault("crash", -2.0, 4, 14, duration=1.0),
        join="one-by-one",
        join_interval=0.25,
    )
    run = Run(scenario, keep_trace=True)
    hosts = run.simulation.network.hosts
    for mine in run.simulation._neighbours:
        for dialler, listener in mine:
            assert hosts[listener].id in hosts[dialler].links, run
    run.check_books()
    assert missed(run, list(range(20)), list(range(20)), since=2.0) == 0, run


# Restarts.


@pytest.mark.parametrize("keep_state", [True, False])
@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub"])
def test_restarts_repeat_no_message_id(protocol: str, keep_state: bool) -> None:
    """Sequence numbers go on: every published message has an id of its own, and rises by peer."""
    scenario = small(
        protocol=protocol,
        workload=Workload(messages=200, rate=20.0, publishers=3),
        churn=Churn(rate=600.0, downtime=0.2, keep_state=keep_state),
    )
    run = Run(scenario, keep_trace=True)
    assert len(run.trace(NodeDown)) > 20
    ids = [payload.message_id for _, _, payload in run.trace(PublishMessage)]
    assert len(ids) == len(dict.fromkeys(ids)) == run.summary["published"]
    assert run.metrics.ledger.republished == 0
    by_author: dict[bytes, list[bytes]] = {}
    for message_id in ids:
        by_author.setdefault(message_id[:4], []).append(message_id[4:])
    for seqnos in by_author.values():
        assert seqnos == sorted(seqnos)
    run.check_books()


def test_a_peer_that_kept_its_state_gets_nothing_twice() -> None:
    """It remembers what it has seen; a new process may get what its predecessor got."""
    keeping = Run(small(churn=Churn(rate=240.0, downtime=1.0, keep_state=True)))
    keeping.check_single_deliveries()
    assert keeping.summary["repeated_deliveries"] == 0


# Attackers.


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub"])
def test_attackers_do_not_keep_honest_peers_from_each_other(protocol: str, seed: int) -> None:
    """A fifth of the peers sends junk for the whole run; honest messages reach honest peers."""
    hostile = range(4)
    run = Run(
        small(fault("byzantine", 0.0, *hostile, rate=20.0), protocol=protocol, seed=seed),
        keep_trace=True,
    )
    honest = [peer for peer in range(20) if peer not in hostile]
    assert missed(run, honest, honest, since=0.0) == 0, run
    run.check_books()
    run.check_single_deliveries()
    assert run.summary["pending"] == 0, run
    assert run.summary["rejected"], run


def test_attackers_are_nobody_that_the_ledger_expects_anything_of() -> None:
    """From the attack on, only honest subscribers form pairs."""
    run = Run(small(fault("byzantine", -1.0, 0, 1, 2, 3, rate=5.0)))
    assert run.summary["expected_deliveries"] == run.summary["published"] * 16


def test_the_graylist_outlives_the_attack() -> None:
    """GossipSub peers remember who attacked; among the others nothing is missing."""
    run = Run(
        small(fault("byzantine", 0.0, 0, 1, 2, rate=50.0, duration=3.0), cool_down=4.0),
        keep_trace=True,
    )
    honest = list(range(3, 20))
    assert missed(run, honest, honest, since=0.0) == 0, run
    assert run.summary["refused"]["score below graylist threshold"] > 0
    run.check_books()


# Slow links and readers.


def test_a_slow_reader_drops_and_the_books_know_why() -> None:
    """Its queue overflows, senders are told, and pairs end as dropped, not as missing."""
    scenario = small(
        fault("slow-reader", 0.0, 3, rate=1.0),
        protocol="floodsub",
        links=Links(queue_limit=16),
    )
    run = Run(scenario)
    run.check_books()
    assert run.summary["rpcs_dropped"].keys() == {"queue full"}
    assert run.summary["dropped"]["queue full"] > 0
    others = [len(mine) for peer, mine in enumerate(run.delivered) if peer != 3]
    assert min(others) == run.summary["published"]


def test_narrow_uploads_delay_and_lose_nothing() -> None:
    """With room in the queues, bandwidth costs time alone."""
    wide = Run(small()).summary
    narrow = Run(small(links=Links(bandwidth="200kbit"))).summary
    assert narrow["delivered"] == narrow["expected_deliveries"] == wide["delivered"]
    assert narrow["latency_max"] > wide["latency_max"]
    assert narrow["rpcs_dropped"] == {}


# Failures can be repeated.


def test_an_error_says_how_to_repeat_the_run() -> None:
    """Its notes hold the seed and the moment, the command, and the whole scenario."""
    scenario = small(fault("crash", 1.0, 3), seed=77)
    simulation = Simulation(scenario)

    def fail(event: object) -> None:
        raise RuntimeError("the application broke")

    simulation.network.hosts[5].on_event = fail  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="broke") as caught:
        simulation.run()
    moment, note = caught.value.__notes__
    assert moment.startswith("seed 77, virtual time ")
    assert "rumormill sim again.toml --seed 77" in note
    assert Scenario.parse(note.partition("--seed 77\n\n")[2]) == scenario


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_scenarios_can_be_written_and_read_again(path: Path) -> None:
    """What `how_to_repeat` shows is the whole scenario."""
    scenario = Scenario.load(path)
    assert Scenario.parse(scenario_toml(scenario)) == scenario


def test_written_scenarios_hold_whatever_a_scenario_can_hold() -> None:
    """Lists of groups, optional values, nested parameters, odd names."""
    scenario = Scenario(
        name='odd "name" \\ with = signs\n',
        seed=2**63,
        parameters={"D": 8, "score": {"decay to zero": 0.5, "topics": ["a", "b"]}, "px": True},
        faults=(
            Fault(kind="partition", at=1.0, groups=((0, 1), (2,)), duration=0.25),
            Fault(kind="partition", at=-2.0, groups=3),
            Fault(kind="crash", at=1e-3, fraction=0.5),
        ),
        workload=Workload(publishers=3, subscriptions_per_peer=1, arrivals="fixed", rate=1e-6),
        churn=Churn(fraction=0.25),
    )
    assert f"--seed {2**63}" in how_to_repeat(scenario)
    assert Scenario.parse(scenario_toml(scenario)) == scenario
