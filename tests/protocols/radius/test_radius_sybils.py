"""Subscribers that do not exist: what one neighbour can have us keep, do and dial is bounded."""

import random

from radius_rig import interest_of, peer_id

from rumormill.core.effects import Effects, Learn, Mail, SetTimer
from rumormill.core.inputs import (
    Input,
    PeerConnected,
    Publish,
    Received,
    SendDropped,
    Start,
    Stored,
    TimerFired,
)
from rumormill.core.trace import Refuse
from rumormill.protocols.radius import reasons
from rumormill.protocols.radius.config import RadiusConfig
from rumormill.protocols.radius.letters import LETTERS_AT_ONCE, POST
from rumormill.protocols.radius.messages import Frame, Spread
from rumormill.protocols.radius.router import RADIUS, Radius
from rumormill.sim.identity import SimulatedIdentity

ME, HONEST, LIAR, BOB = 0, 1, 2, 3
SYBILS = range(1000, 21_000)


class Victim:
    """A peer with two neighbours, of whom one lies."""

    def __init__(self, **config: object) -> None:
        settings = {
            "overlay": "links",
            "sub_hops": 2,
            "pub_hops": 2,
            "gather": 0.0,
            "serving": "all",
            **config,
        }
        self.now = 1000.0
        self.machine = Radius(
            SimulatedIdentity(peer_id(ME)), random.Random(1), RadiusConfig(**settings)
        )
        self.feed(Start())
        for neighbour in (HONEST, LIAR):
            self.feed(PeerConnected(peer_id(neighbour), RADIUS))

    def feed(self, event: Input) -> Effects:
        effects: Effects = []
        self.machine.handle(event, self.now, effects)
        return effects

    def hear(self, neighbour: int, owners: range | list[int]) -> dict[str, int]:
        """Let a neighbour tell of subscribers; return what was refused."""
        refused: dict[str, int] = {}
        address = (b"\x04\x7f\x00\x00\x01\x06\x00\x09",)
        for begin in range(0, len(owners), 4000):
            words = [
                interest_of(each, self.now, addresses=address) for each in owners[begin:][:4000]
            ]
            frame = Frame(tuple(Spread(word, 1) for word in words))
            for effect in self.feed(Received(peer_id(neighbour), frame)):
                if isinstance(effect, Refuse):
                    refused[effect.reason] = refused.get(effect.reason, 0) + effect.count
        return refused

    def publish(self, number: int = 1) -> list[Effects]:
        """Publish, and return what each turn of it did."""
        (append,) = self.feed(Publish("t", b"x", number))
        turns = [self.feed(Stored((append.barrier,)))]  # type: ignore[attr-defined]
        while any(isinstance(each, SetTimer) and each.timer == POST for each in turns[-1]):
            turns.append(self.feed(TimerFired(POST)))
        return turns


def letters(turns: list[Effects]) -> list[bytes]:
    """To whom letters went."""
    return [each.peer for turn in turns for each in turn if isinstance(each, Mail)]


def test_one_neighbour_brings_so_many_subscribers_at_once_and_others_are_heard() -> None:
    victim = Victim()
    refused = victim.hear(LIAR, SYBILS)
    assert refused == {reasons.TOO_MANY_OWNERS: 15_000}
    assert len(victim.machine.subscriptions.interests) == 5_000
    assert victim.hear(HONEST, [BOB]) == {}
    assert victim.hear(LIAR, [BOB]) == {}, "whom others told us of is no news"
    victim.now += 1
    assert victim.hear(LIAR, range(30_000, 30_300)) == {reasons.TOO_MANY_OWNERS: 100}


def test_one_neighbour_fills_its_share_of_the_table_and_no_more() -> None:
    victim = Victim(owner_burst=50_000.0, max_interests_per_neighbour=3000)
    assert victim.hear(LIAR, SYBILS[:4000]) == {reasons.SENDER_FULL: 1000}
    assert victim.hear(HONEST, [BOB]) == {}
    victim.now += 31
    victim.feed(TimerFired("clean"))
    assert victim.hear(LIAR, SYBILS[4000:7000]) == {}, "what has expired makes room"


def test_strangers_count_as_one() -> None:
    victim = Victim(max_interests_per_neighbour=10)
    victim.hear(77, SYBILS[:10])
    assert victim.hear(78, SYBILS[10:20]) == {reasons.SENDER_FULL: 10}
    assert victim.hear(HONEST, [BOB]) == {}


def test_a_publication_tries_a_few_of_them_in_short_turns_and_reaches_the_others() -> None:
    victim = Victim()
    victim.hear(LIAR, SYBILS[:5000])
    victim.hear(HONEST, [BOB])
    turns = victim.publish()
    assert all(len(letters([turn])) <= LETTERS_AT_ONCE for turn in turns)
    assert len(turns) > 1
    reached = letters(turns)
    assert peer_id(BOB) in reached
    assert len(reached) == 512 + 1
    told = [each for turn in turns for each in turn if isinstance(each, Learn)]
    assert {each.informant for each in told} == {peer_id(HONEST), peer_id(LIAR)}
    untried = [each for each in turns[0] if isinstance(each, Refuse)]
    assert untried == [Refuse(peer_id(ME), reasons.NOT_TRIED, count=5000 - 512)]


def test_each_that_is_not_there_costs_the_neighbour_further_trials() -> None:
    victim = Victim()
    victim.hear(LIAR, SYBILS[:5000])
    victim.hear(HONEST, [BOB])
    tried = []
    for number in range(20):
        turns = victim.publish(number + 1)
        assert peer_id(BOB) in letters(turns)
        for effect in [each for turn in turns for each in turn if isinstance(each, Mail)]:
            if effect.peer != peer_id(BOB):
                victim.feed(SendDropped(effect.peer, effect.message, "cannot reach it"))
                tried.append(effect.peer)
        victim.now += 1
    assert len(tried) == 512, "and none in the twenty seconds that follow"


def test_who_is_connected_needs_no_trial() -> None:
    victim = Victim()
    victim.hear(LIAR, SYBILS[:600])
    victim.publish(1)
    late = SYBILS[599]
    victim.feed(PeerConnected(peer_id(late), RADIUS))
    assert peer_id(late) in letters(victim.publish(2))


def test_twenty_thousand_strangers_that_speak_for_themselves() -> None:
    """They are no neighbours, so they share what one neighbour may bring, and it is served in the
    same small turns; whom an honest neighbour knows is reached as before."""
    victim = Victim()
    refused: dict[str, int] = {}
    for number in SYBILS:
        for reason, count in victim.hear(number, [number]).items():
            refused[reason] = refused.get(reason, 0) + count
    assert len(victim.machine.subscriptions.interests) == 10_000
    assert refused == {reasons.SENDER_FULL: 10_000}
    assert victim.hear(HONEST, [BOB]) == {}
    turns = victim.publish()
    assert all(len(letters([turn])) <= LETTERS_AT_ONCE for turn in turns)
    assert peer_id(BOB) in letters(turns)
    assert len(letters(turns)) == 512 + 1
