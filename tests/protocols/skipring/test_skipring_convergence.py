"""Theorem 8: from any state, under any fair schedule, the explicit edges become exactly SR(n).

"Given any initially weakly connected graph G = (V, E_R ∪ E_S) with n nodes, BuildSR transforms G
into a skip ring SR(n)." The graph need not even be connected: every subscriber knows the
supervisor. A start that fails is made smaller by Hypothesis and printed as a `Start`; to repeat it,
call `converge(Start(...))`.
"""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from skipring_starts import Start, build
from skipring_world import SUPERVISOR, Pace, World, make_peers

from rumormill.protocols.skipring.config import SkipRingConfig
from rumormill.protocols.skipring.messages import Reference


def starts(most: int, *, dead: int = 0) -> st.SearchStrategy[Start]:
    """Any start with so many subscribers at most."""
    switch = st.booleans()
    return st.builds(
        Start,
        n=st.integers(1, most),
        seed=st.integers(0, 2**32),
        wrong_labels=switch,
        edges=switch,
        connected=switch,
        components=st.integers(1, 3),
        recorded=switch,
        empty_tuples=switch,
        copies=switch,
        missing=switch,
        beyond=switch,
        index=switch,
        junk=st.sampled_from((0, 1, 4, 10)),
        dead=st.integers(0, dead),
        held_back=st.sampled_from((0.0, 0.05, 0.5)),
        uneven=st.sampled_from((1.0, 2.0, 8.0)),
        lockstep=switch,
    )


def converge(start: Start) -> World:
    """Run a start until it is legitimate."""
    world = build(start)
    try:
        world.stabilise(start.limit())
    except AssertionError as error:
        error.add_note(f"replay: converge({start!r})")
        raise
    return world


EVERYTHING = Start(
    n=12, seed=1, wrong_labels=True, edges=True, connected=True, recorded=True,
    empty_tuples=True, copies=True, missing=True, beyond=True, index=True, junk=10,
)  # fmt: skip


@settings(max_examples=1700)
@given(starts(10))
@example(EVERYTHING)
def test_small_worlds_converge(start: Start) -> None:
    """Theorem 8, from 1,700 arbitrary states of up to 10 subscribers."""
    converge(start)


@settings(max_examples=260)
@given(starts(24))
def test_middling_worlds_converge(start: Start) -> None:
    """Theorem 8, from 260 arbitrary states of up to 24 subscribers."""
    converge(start)


@settings(max_examples=50)
@given(starts(64))
def test_larger_worlds_converge(start: Start) -> None:
    """Theorem 8, from 50 arbitrary states of up to 64 subscribers."""
    converge(start)


@pytest.mark.slow
@settings(max_examples=4)
@given(starts(1024))
def test_large_worlds_converge(start: Start) -> None:
    """Theorem 8, from arbitrary states of up to 1,024 subscribers."""
    converge(start)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(starts(16, dead=4))
def test_many_worlds_converge(start: Start) -> None:
    """Theorem 8, from ten thousand arbitrary states, some with references to the dead."""
    converge(start)


@settings(max_examples=120)
@given(starts(10, dead=5))
def test_references_to_nodes_that_do_not_exist_vanish(start: Start) -> None:
    """Section 1.1: corrupted ids are "easy when having a failure detector that is eventually
    correct": states that name dead nodes in databases, edges and messages converge as well."""
    converge(start)


@pytest.mark.parametrize("corruption", ["empty_tuples", "copies", "missing", "beyond"])
@pytest.mark.parametrize("index", [False, True])
def test_each_corruption_of_the_database_is_repaired(corruption: str, index: bool) -> None:
    """Lemma 9: "Eventually the supervisor's database will not be corrupted anymore", for each of
    the four conditions of section 3.1, also when the index to the database is false."""
    for seed in range(6):
        start = Start(n=9, seed=seed, recorded=True, index=index, **{corruption: True})
        converge(start)


@pytest.mark.parametrize("components", [2, 3, 6])
def test_components_that_nobody_recorded_are_found(components: int) -> None:
    """Lemma 10: "all subscribers v ∈ V will eventually become recorded", though their labels are so
    long that they ask the supervisor with negligible probability."""
    for seed in range(4):
        rng = random.Random(seed)
        world = World(make_peers(12, rng), rng)
        groups = [list(world.subscribers.values())[part::components] for part in range(components)]
        for group in groups:
            group.sort(key=lambda each: rng.random())
            for place, subscriber in enumerate(group):
                label = (place + 1 << 40) | 1  # 62 bits long
                subscriber.own = Reference(label, subscriber.id)
                if place:
                    subscriber.left = group[place - 1].own
        assert not world.supervisor.database
        world.stabilise(2000)


@pytest.mark.parametrize("silent", [False, True])
def test_a_third_crashes_at_once(silent: bool) -> None:
    """Section 3.3: "if the supervisor notices that subscriber v has crashed, it just has to remove
    v from its database": also when messages to the dead vanish without a word to anybody."""
    for seed in range(3):
        rng = random.Random(seed)
        config = SkipRingConfig(patience=8)
        world = World(make_peers(24, rng), rng, config=config, dead_are_silent=silent)
        world.stabilise(500)
        for peer in rng.sample(list(world.subscribers), 8):
            world.crash(peer)
        world.stabilise(2000)
        assert len(world.supervisor.database) == 16


def test_a_supervisor_that_returns_empty_is_rebuilt() -> None:
    """Beyond the paper: the database is lost, the subscribers keep their labels and edges."""
    for seed in range(4):
        rng = random.Random(seed)
        world = World(make_peers(20, rng), rng)
        world.stabilise(500)
        world.supervisor = type(world.supervisor)(world.supervisor.topic, SkipRingConfig())
        assert world.faults()
        world.stabilise(2000)


def test_a_supervisor_that_returns_with_an_old_database_is_put_right() -> None:
    """Beyond the paper: the database is of a time before others came and some went."""
    for seed in range(4):
        rng = random.Random(seed)
        peers = make_peers(20, rng)
        world = World(peers[:12], rng, config=SkipRingConfig(patience=8))
        world.stabilise(500)
        old = dict(world.supervisor.database)
        for peer in peers[12:]:
            world.join(peer)
        for peer in peers[:4]:
            world.crash(peer)
        world.stabilise(2000)
        world.supervisor.database.clear()
        world.supervisor.index.clear()
        for label, peer in old.items():
            world.supervisor.record(label, peer)
        world.stabilise(2000)


def test_slow_subscribers_are_not_taken_for_dead_for_ever() -> None:
    """Section 1.1: the failure detector is "eventually correct": it learns how slow all are."""
    rng = random.Random(5)
    pace = Pace(usual=6.0, slowest=40.0, held_back=0.3, uneven=8.0)
    world = World(make_peers(10, rng), rng, pace, SkipRingConfig(patience=1, misses=1))
    world.stabilise(6000)
    assert world.supervisor.patience > 1


def test_the_supervisor_is_no_subscriber() -> None:
    """The worlds above judge subscribers alone."""
    rng = random.Random(0)
    world = World(make_peers(3, rng), rng)
    assert SUPERVISOR not in world.subscribers
