"""Faults and churn become actions that never contradict each other."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.sim.churn import Churn, draw_absences
from rumormill.sim.faults import STRIKES, FaultAction, expand_faults
from rumormill.sim.scenario import ENDINGS, Fault, Scenario, Workload
from rumormill.sim.workload import build_plan

START = 2.0


def actions_of(*faults: Fault, churn: Churn | None = None, peers: int = 20) -> list[FaultAction]:
    """Expand faults over a minute of publishing that starts at second two."""
    scenario = Scenario(
        peers=peers,
        join="all-at-once",
        warm_up=START,
        workload=Workload(messages=601),
        faults=faults,
        churn=churn or Churn(),
    )
    scenario.validate()
    rng = random.Random(9)
    return expand_faults(scenario, build_plan(scenario, rng), rng)


def shown(actions: list[FaultAction]) -> list[tuple[float, str, tuple[int, ...]]]:
    return [(action.at, action.kind, action.peers) for action in actions]


def test_times_count_from_the_start_of_the_workload() -> None:
    """An entry at second three strikes three seconds after the warm-up."""
    assert shown(actions_of(Fault(kind="crash", at=3.0, peers=(4,)))) == [(5.0, "crash", (4,))]
    assert shown(actions_of(Fault(kind="crash", at=-2.0, peers=(4,)))) == [(0.0, "crash", (4,))]


def test_a_duration_ends_every_kind_of_fault() -> None:
    """Each striking kind is followed by its ending for the same peers."""
    for kind, ending in ENDINGS.items():
        strike, end = actions_of(Fault(kind=kind, at=1.0, peers=(4, 7), duration=2.0))
        assert (strike.at, strike.kind, end.at, end.kind) == (3.0, kind, 5.0, ending)
        if kind != "partition":
            assert strike.peers == end.peers == (4, 7)


def test_restarts_say_whether_state_is_kept() -> None:
    """The crash's entry decides for its own ending, the restart's entry for itself."""
    kept = actions_of(Fault(kind="crash", at=1.0, peers=(4,), duration=2.0, keep_state=True))
    assert [action.keep_state for action in kept] == [False, True]
    by_hand = actions_of(
        Fault(kind="crash", at=1.0, peers=(4,)), Fault(kind="restart", at=5.0, keep_state=True)
    )
    assert [action.keep_state for action in by_hand] == [False, True]


def test_an_ending_without_peers_releases_everyone() -> None:
    """Restart brings back all who are down at that time, and only them."""
    actions = actions_of(
        Fault(kind="crash", at=1.0, peers=(4,)),
        Fault(kind="crash", at=2.0, peers=(1, 2), duration=1.0),
        Fault(kind="restart", at=9.0),
        Fault(kind="crash", at=5.0, peers=(8,)),
    )
    assert shown(actions)[-1] == (11.0, "restart", (4, 8))


def test_overlapping_entries_hold_a_peer_until_the_last_lets_go() -> None:
    """Down from 1 to 11 and from 5 to 21 is down from 1 to 21."""
    actions = actions_of(
        Fault(kind="crash", at=1.0, peers=(4,), duration=10.0),
        Fault(kind="crash", at=5.0, peers=(4, 5), duration=16.0),
    )
    assert shown(actions) == [
        (3.0, "crash", (4,)),
        (7.0, "crash", (5,)),
        (23.0, "restart", (4, 5)),
    ]


def test_an_ending_in_the_file_releases_from_all_entries() -> None:
    """After a restart by hand the duration has nothing left to end."""
    actions = actions_of(
        Fault(kind="crash", at=1.0, peers=(4,), duration=10.0),
        Fault(kind="restart", at=3.0, peers=(4,)),
    )
    assert shown(actions) == [(3.0, "crash", (4,)), (5.0, "restart", (4,))]


@pytest.mark.parametrize("kind", ["restart", "resume", "normal-reader", "honest"])
def test_endings_that_find_nobody_are_refused(kind: str) -> None:
    """The refusal names the entry and what the peer would have to be under."""
    with pytest.raises(ConfigError, match=rf"faults\[0\].peers: nobody is under {STRIKES[kind]}"):
        actions_of(Fault(kind=kind, at=1.0))
    with pytest.raises(ConfigError, match=r"faults\[1\].peers: peer 5 is not under"):
        actions_of(
            Fault(kind=STRIKES[kind], at=0.0, peers=(4,)), Fault(kind=kind, at=1.0, peers=(5,))
        )


def test_healing_what_is_whole_is_refused() -> None:
    """Heal needs a partition before it."""
    with pytest.raises(ConfigError, match=r"faults\[0\].kind: nothing is partitioned"):
        actions_of(Fault(kind="heal", at=1.0))


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="partition", at=1.0, groups=3),
        Fault(kind="partition", at=1.0, groups=((0, 1), (5,))),
        Fault(kind="partition", at=1.0, peers=(3, 4)),
        Fault(kind="partition", at=1.0, fraction=0.25),
    ],
)
def test_partition_groups_hold_every_peer_once(fault: Fault) -> None:
    """Whatever the entry names, all others form a group too."""
    (action,) = actions_of(fault)
    assert sorted(peer for group in action.groups for peer in group) == list(range(20))
    assert all(action.groups)


def test_partition_groups_are_as_written() -> None:
    """Numbers of groups are equal in size; lists come first, then the rest."""
    (drawn,) = actions_of(Fault(kind="partition", at=1.0, groups=3))
    assert sorted(map(len, drawn.groups)) == [6, 7, 7]
    (listed,) = actions_of(Fault(kind="partition", at=1.0, groups=((9, 1), (5,))))
    assert listed.groups[:2] == ((9, 1), (5,))
    (share,) = actions_of(Fault(kind="partition", at=1.0, fraction=0.25))
    assert [len(group) for group in share.groups] == [5, 15]


def test_a_new_partition_replaces_the_old_one() -> None:
    """The first one's duration does not heal the second."""
    actions = actions_of(
        Fault(kind="partition", at=1.0, groups=2, duration=5.0),
        Fault(kind="partition", at=3.0, groups=4, duration=10.0),
    )
    assert [(action.at, action.kind) for action in actions] == [
        (3.0, "partition"),
        (5.0, "partition"),
        (15.0, "heal"),
    ]


def test_fractions_draw_at_least_one_peer() -> None:
    """A quarter of 20 is 5; a thousandth is one."""
    (quarter,) = actions_of(Fault(kind="pause", at=1.0, fraction=0.25))
    assert len(set(quarter.peers)) == 5
    (little,) = actions_of(Fault(kind="byzantine", at=1.0, fraction=0.001, rate=3.0))
    assert len(little.peers) == 1
    assert little.rate == 3.0


def test_what_lies_beyond_the_run_is_left_out() -> None:
    """The run ends with the cool-down."""
    assert actions_of(Fault(kind="crash", at=71.0, peers=(1,))) == []


strikes = st.builds(
    Fault,
    kind=st.sampled_from(["crash", "pause", "slow-reader", "byzantine"]),
    at=st.floats(0, 60),
    peers=st.lists(st.integers(0, 19), min_size=1, max_size=4, unique=True).map(tuple),
    duration=st.one_of(st.none(), st.floats(0.1, 30)),
)
churns = st.builds(
    Churn,
    rate=st.floats(0, 300),
    downtime=st.floats(0.1, 40),
    distribution=st.sampled_from(["fixed", "exponential"]),
    max_down=st.floats(0.01, 1),
)


@given(st.lists(strikes, max_size=8).map(tuple), churns)
def test_actions_never_contradict_each_other(faults: tuple[Fault, ...], churn: Churn) -> None:
    """In order of time, only free peers are struck and only struck peers are released."""
    actions = actions_of(*faults, churn=churn)
    assert [action.at for action in actions] == sorted(action.at for action in actions)
    struck: set[tuple[str, int]] = set()
    for action in actions:
        assert action.peers
        for peer in action.peers:
            if action.kind in ENDINGS:
                assert (action.kind, peer) not in struck
                struck.add((action.kind, peer))
            else:
                struck.remove((STRIKES[action.kind], peer))


@given(churns, st.integers(2, 60), st.integers(0, 2**32))
def test_churn_keeps_its_limits(churn: Churn, peers: int, seed: int) -> None:
    """Never more peers are down than allowed, and departures lie inside the time given."""
    absences = draw_absences(churn, range(peers), peers, (10.0, 70.0), random.Random(seed))
    for absence in absences:
        assert 10.0 <= absence.left <= 70.0
        assert absence.left < absence.back
        away = [other for other in absences if other.left <= absence.left <= other.back]
        assert len(away) <= max(1, int(churn.max_down * peers))
        assert len({other.who for other in away}) == len(away)


def test_churn_has_the_rate() -> None:
    """30 peers per minute over 100 minutes are 3000 departures, give or take."""
    churn = Churn(rate=30.0, downtime=1.0)
    absences = draw_absences(churn, range(500), 500, (0.0, 6000.0), random.Random(1))
    assert len(absences) == pytest.approx(3000, rel=0.1)
    assert {round(absence.back - absence.left, 9) for absence in absences} == {1.0}
    share = Churn(fraction=0.06, downtime=1.0)
    same = draw_absences(share, range(500), 500, (0.0, 6000.0), random.Random(1))
    assert [absence.left for absence in same] == pytest.approx([a.left for a in absences])


def test_exponential_downtimes_have_the_mean() -> None:
    """The named downtime is the mean of the draws."""
    churn = Churn(rate=600.0, downtime=5.0, distribution="exponential")
    absences = draw_absences(churn, range(5000), 5000, (0.0, 600.0), random.Random(1))
    mean = sum(absence.back - absence.left for absence in absences) / len(absences)
    assert mean == pytest.approx(5.0, rel=0.1)


def test_churn_spares_peers_that_entries_crash_or_pause() -> None:
    """Planned faults stay as planned."""
    actions = actions_of(
        Fault(kind="pause", at=1.0, peers=(0, 1, 2)), churn=Churn(rate=300.0, downtime=1.0)
    )
    churned = {peer for action in actions if action.kind == "crash" for peer in action.peers}
    assert churned == set(range(3, 20))


def test_endless_churn_is_refused() -> None:
    """More than a million expected departures are refused before they are drawn."""
    with pytest.raises(ConfigError, match=r"churn\.rate: would make more than 1000000 peers"):
        draw_absences(Churn(rate=1e6), range(5), 5, (0.0, 1000.0), random.Random(1))
