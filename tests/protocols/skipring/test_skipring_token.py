"""Supervision by a token, the outlook of section 6: what the paper proves of its protocol, again.

The paper states no theorem about tokens. Theorems 8 and 13 are asked of this one as they stand,
Theorem 5 as "no request at all", Theorem 7 of the supervisor, and the sentence that it "only needs
to know the number of subscribers n" as a bound on what it keeps.
"""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipring_legitimate import legitimate
from skipring_starts import Start, build
from skipring_world import SUPERVISOR, TOPIC, Pace, World, make_peers, state_of

from rumormill.core.effects import Effects, Mail
from rumormill.core.trace import Refuse
from rumormill.protocols.skipring import reasons
from rumormill.protocols.skipring.config import MAX_MISSING, SkipRingConfig
from rumormill.protocols.skipring.labels import CIRCLE, label_of
from rumormill.protocols.skipring.messages import (
    Introduce,
    Reference,
    SetData,
    Subscribe,
    Token,
    Unsubscribe,
)
from rumormill.protocols.skipring.token import TokenSubscriber, TokenSupervisor, gaps

CONFIG = SkipRingConfig(supervision="token")


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Start,
        n=st.integers(1, 8),
        seed=st.integers(0, 1 << 32),
        wrong_labels=st.booleans(),
        edges=st.booleans(),
        connected=st.booleans(),
        components=st.integers(1, 3),
        junk=st.sampled_from((0, 0, 5)),
        dead=st.sampled_from((0, 0, 2)),
        held_back=st.sampled_from((0.0, 0.05, 0.3)),
        uneven=st.sampled_from((1.0, 2.0, 8.0)),
        lockstep=st.booleans(),
        token=st.just(True),
    )
)
def test_any_state_becomes_legitimate(start: Start) -> None:
    """Theorem 8, also from a false count, a false contact, and "multiple connected components",
    which section 6 expects to be harder: they wait until one of them asks."""
    build(start).stabilise(4 * start.limit())


@pytest.mark.parametrize("seed", range(3))
def test_a_larger_ring_becomes_legitimate(seed: int) -> None:
    """Theorem 8 with 24 subscribers."""
    start = Start(24, seed, wrong_labels=True, edges=True, components=2, junk=3, token=True)
    build(start).stabilise(2 * start.limit())


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 16, 21, 33])
def test_nothing_changes_in_a_legitimate_state(n: int) -> None:
    """Theorem 13, over 300 intervals; and the token comes round."""
    world = legitimate(n, seed=n, pace=Pace(), config=CONFIG)
    assert not world.faults()
    before = world.states()
    for _ in range(300):
        world.run(1)
        assert world.states() == before
        assert world.supervisor.count == n
    assert "linearize" not in world.sent
    assert world.sent["token"] > 100


class _NoChance:
    """Fails whoever leaves anything to chance."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


@pytest.mark.parametrize("n", [2, 16, 40])
def test_nobody_asks_and_nothing_is_left_to_chance(n: int) -> None:
    """Theorem 5 becomes: no request at all. A token stays with each for an interval at least, and
    the supervisor has two letters in a round of n."""
    world = legitimate(n, seed=n, config=CONFIG)
    for subscriber in world.subscribers.values():
        subscriber._randomness = _NoChance()
    to_supervisor = []
    post = world.post

    def watch(sender: bytes, receiver: bytes, message: Any) -> None:
        if SUPERVISOR in (sender, receiver):
            to_supervisor.append(message)
        post(sender, receiver, message)

    world.post = watch  # type: ignore[method-assign]
    world.run(400)
    assert "get-configuration" not in world.sent
    assert "set-data" not in world.sent
    assert len(to_supervisor) <= 2 + 2 * 400 / n
    assert 100 < world.sent["token"] <= 401 + len(to_supervisor) / 2
    assert not world.faults()


@pytest.mark.parametrize("n", [4, 32, 128])
def test_what_the_supervisor_keeps_does_not_grow(n: int) -> None:
    """ "It only needs to know the number of subscribers n": and two contacts, and for an interval
    or two who has just come."""
    rng = random.Random(n)
    world = World(make_peers(n, rng), rng, config=CONFIG)
    world.run(30)
    kept = [each for each in vars(world.supervisor).values() if isinstance(each, dict | list)]
    assert [len(each) for each in kept] == [0] * len(kept)
    assert world.supervisor.count >= n


@pytest.mark.parametrize("n", [8, 33, 128])
def test_subscribing_and_leaving_cost_the_supervisor_one_letter_each(n: int) -> None:
    """Theorem 7, of the supervisor. Who comes second finds its place from who came first, a few
    places away: for subscribers too a row of newcomers costs the same in any ring."""
    world = legitimate(n, seed=n, config=CONFIG)
    effects: Effects = []
    for message in (Subscribe(TOPIC), Unsubscribe(TOPIC)):
        world.supervisor.receive(b"\x00\x00", message, effects)
    assert len(effects) == 2
    world = legitimate(n, seed=n, config=CONFIG)
    world.join(b"\x00\x00")
    world.run(6)
    first = world.sent.get("linearize", 0)
    world.join(b"\x00\x01")
    world.run(6)
    assert world.sent["linearize"] - first <= 12
    world.stabilise(40 * n)


@pytest.mark.parametrize("n", [3, 9, 20])
def test_who_leaves_is_forgotten_and_its_label_is_given_away(n: int) -> None:
    """Lemma 6: its neighbours are introduced to each other, and the token sees to the labels."""
    world = legitimate(n, seed=n, pace=Pace(), config=CONFIG)
    leaver = list(world.subscribers)[n // 2]
    effects: Effects = []
    world.subscribers[leaver].leave(effects)
    world.carry_out(leaver, effects)
    world.run(10)
    assert world.subscribers[leaver].gone
    del world.subscribers[leaver]
    world.stabilise(100 * n)


@pytest.mark.parametrize("n", [4, 16])
def test_a_third_crashes_at_once(n: int) -> None:
    """Section 3.3, by the word of the runtime; also the one at the label 0."""
    world = legitimate(n, seed=n, config=CONFIG)
    for peer in list(world.subscribers)[: n // 3]:
        world.crash(peer)
    world.stabilise(100 * n)


def test_a_supervisor_that_lost_its_count_counts_again() -> None:
    """Who misses the token asks, and is the new contact."""
    world = legitimate(12, config=CONFIG)
    world.run(20)
    world.supervisor = TokenSupervisor(TOPIC, CONFIG)
    assert world.faults()
    world.stabilise(1000)
    assert world.supervisor.count == 12


# Single tokens.


def told(subscriber: TokenSubscriber, sender: bytes, token: Token) -> Effects:
    effects: Effects = []
    subscriber.receive(sender, token, effects)
    return effects


def middle() -> TokenSubscriber:
    """The subscriber at 01 between those at 001 and 011, in a ring of eight."""
    one = TokenSubscriber(TOPIC, b"me", SUPERVISOR, random.Random(0))
    one.own = Reference(label_of(2), b"me")
    one.left, one.right = Reference(label_of(4), b"le"), Reference(label_of(5), b"ri")
    return one


def test_a_token_notes_what_is_missing_and_goes_on() -> None:
    """After an interval, or at once, but at once only once in an interval."""
    token = Token(TOPIC, 7, 8, 1, Reference(0, b"lo"), None, 0, quick=True)
    one = middle()
    (mail,) = told(one, b"le", token)
    assert isinstance(mail, Mail)
    assert mail.peer == b"ri"
    assert mail.message == Token(
        TOPIC, 7, 8, 2, Reference(0, b"lo"), None, label_of(2), (label_of(4),), True
    )
    assert told(one, b"le", token) == []
    effects: Effects = []
    one.timeout(effects)
    assert Token not in [type(each.message) for each in effects]
    one.timeout(effects)
    assert [each.peer for each in effects if type(each.message) is Token] == [b"ri"]


def test_a_label_beyond_n_is_given_up_for_one_that_is_missing() -> None:
    """The neighbours are introduced to each other, and the token goes on to the old one."""
    one = middle()
    token = Token(TOPIC, 7, 2, 1, None, None, 0, (label_of(1),))
    effects = told(one, b"le", token)
    assert one.label == label_of(1)
    assert effects[0].peer == b"ri"
    assert effects[0].message.changed
    assert effects[0].message.missing == ()
    assert {each.peer for each in effects[1:3]} == {b"le", b"ri"}
    assert state_of(one).label == "1"


def test_who_may_go_passes_the_token_on_first() -> None:
    """Else the ring would wait for it, longer than a round takes."""
    one = middle()
    token = Token(TOPIC, 7, 8, 1, Reference(0, b"lo"), None, 0)
    assert told(one, b"le", token) == []
    one.leave([])
    effects: Effects = []
    one.receive(SUPERVISOR, SetData(TOPIC, None, None, None), effects)
    assert one.gone
    assert [(each.peer, type(each.message)) for each in effects] == [
        (b"ri", Token),
        (b"le", Introduce),
        (b"ri", Introduce),
    ]


def test_tokens_of_strangers_and_of_other_rounds_are_refused() -> None:
    """A label is taken from the supervisor's token alone, which neighbours pass on."""
    one = middle()
    assert told(one, b"??", Token(TOPIC, 7, 2)) == [Refuse(b"??", reasons.NOT_NEIGHBOUR, TOPIC)]
    supervisor = TokenSupervisor(TOPIC, CONFIG)
    effects: Effects = []
    supervisor.receive(b"me", Token(TOPIC, 3, 9, 4, back=True), effects)
    assert effects == [Refuse(b"me", reasons.STALE_TOKEN, TOPIC)]
    assert supervisor.empty


def test_gaps() -> None:
    """Labels of SR(n) between two, eight of them at most."""
    assert gaps(None, label_of(1), 4) == (0, label_of(2))
    assert gaps(0, label_of(1), 3) == (label_of(2),)
    assert gaps(label_of(1), CIRCLE, 4) == (label_of(3),)
    assert gaps(0, 0, 1) == gaps(0, CIRCLE, 1) == ()
    assert len(gaps(None, CIRCLE, 100)) == MAX_MISSING
