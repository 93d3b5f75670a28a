"""Subscriptions over time: renewals, ends, races, and subscribers that are gone."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radius_rig import Bag, interest_of, peer_id

from rumormill.core.inputs import (
    Publish,
    Received,
    SendDropped,
    Start,
    Subscribe,
    TimerFired,
)
from rumormill.core.machine import View
from rumormill.node.driver import QUEUE_FULL as NODE_QUEUE_FULL
from rumormill.node.pending_sends import TOO_MANY_PENDING
from rumormill.protocols.radius import reasons
from rumormill.protocols.radius.config import RadiusConfig
from rumormill.protocols.radius.messages import Frame, Spread
from rumormill.protocols.radius.neighbours import GetNeighbors
from rumormill.protocols.radius.router import RADIUS, Radius
from rumormill.protocols.radius.subscriptions import GATHER, RENEW
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.latency import constant
from rumormill.sim.link import QUEUE_FULL, LinkFaults
from rumormill.sim.network import Network
from rumormill.sim.snapshot import state_of

RING = [(peer, (peer + 1) % 6) for peer in range(6)]


def network(peers: int, faults: LinkFaults | None = None, **config: Any) -> Network:
    """Simulated peers in a line."""
    settings = RadiusConfig(overlay="links", sub_hops=peers, pub_hops=peers, **config)
    net = Network(1, latency=constant(0.05), faults=faults)

    def build(peer: bytes, rng: random.Random) -> Radius:
        return Radius(SimulatedIdentity(peer), rng, settings)

    for index in range(peers):
        host = net.add_host((RADIUS,), build)
        net.start(host)
        if index:
            net.dial(host, peer_id(index - 1))
    net.engine.run_until(1.0)
    return net


def router(net: Network, index: int) -> Radius:
    machine: Any = net.hosts[index].machine
    assert isinstance(machine, Radius)
    return machine


class TestRenewal:
    """A subscription does not lapse while its subscriber lives."""

    def test_no_lapse_over_a_thousand_ttls_with_jitter(self) -> None:
        """Messages take up to a second more, some overtake others, and the subscriber's process
        stands still now and then: nobody who was told ever holds an expired subscription."""
        net = network(4, LinkFaults(jitter=1.0, reorder=0.3))
        config = RadiusConfig()
        subscriber, draw = net.hosts[0], random.Random(7)
        subscriber.handle(Subscribe("t"))
        net.engine.run_until(6.0)
        end = 6.0 + 1000 * config.ttl
        checks = 0
        while net.engine.now < end:
            if draw.random() < 0.1:
                subscriber.pause()
            net.engine.run_until(net.engine.now + 1.0)
            subscriber.resume()
            for index in (1, 2, 3):
                entry = router(net, index).subscriptions.interests.find("t", subscriber.id)
                assert entry is not None
                assert entry.interest.expires > net.engine.now * 1e6
                checks += 1
        assert checks >= 3 * 1000 * config.ttl

    def test_renewals_come_at_a_fifth_of_the_time(self) -> None:
        """With a ttl of 30 s, the timer is set for 24 s after the announcement, exactly."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=1)
        bag.subscribe(0)
        (renewal,) = [at for (index, _), at in bag.timers.items() if index == 0 and at > 1020]
        assert renewal == 1000 + 30 * 0.8

    def test_topics_subscribed_shortly_after_each_other_are_renewed_together(self) -> None:
        """One frame renews all of them."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=1)
        for number in range(5):
            bag.subscribe(0, f"t{number}")
            bag.settle(bag.now + 0.2)
        bag.sent.clear()
        bag.settle(1024.0)
        frames = [frame for source, _, frame in bag.sent if source == 0]
        assert [len(frame.interests) for frame in frames] == [5]

    def test_subscriptions_last_longer_where_many_are_known(self) -> None:
        """So that renewals come at a bounded rate; whoever knows one takes the next as its own."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=0, renew_rate=0.1)
        others = tuple(Spread(interest_of(owner, bag.now), 0) for owner in range(10, 20))
        bag.subscribe(0)
        bag.feed(0, Received(peer_id(1), Frame(others)))
        bag.settle()
        entry = bag.machines[1].subscriptions.interests.find("t", peer_id(0))
        assert entry is not None
        begun, since = bag.now, entry.since
        bag.settle(begun + 24)
        assert entry.interest.expires == (begun + 124) * 1e6
        bag.settle(begun + 103)
        assert entry.interest.expires == (begun + 124) * 1e6
        bag.settle(begun + 104)
        assert entry.interest.expires == (begun + 134) * 1e6  # the others are long gone
        assert entry.since == since

    def test_a_renewal_waits_for_company(self) -> None:
        """Each hop may take a part of the time that is left; what is news waits for `gather`."""
        bag = Bag(3, [(0, 1), (1, 2)], sub_hops=2, pub_hops=0, gather=0.1)
        bag.subscribe(0)
        assert bag.timers[0, GATHER] == bag.now + 0.1
        for _ in range(2):
            bag.settle(bag.now + 0.1)
        bag.settle(1024.0)
        assert bag.timers[0, GATHER] == 1024.375
        bag.settle(1024.375)
        assert bag.timers[1, GATHER] == pytest.approx(1024.375 + 5.625 / 16)
        bag.subscribe(1, "news")
        assert bag.timers[1, GATHER] == 1024.475
        bag.settle(1024.475)
        (*_, (_, _, frame)) = [sent for sent in bag.sent if sent[:2] == (1, 2)]
        assert {spread.interest.topic for spread in frame.interests} == {"t", "news"}

    def test_a_crashed_subscriber_is_forgotten_within_ttl_and_clean_period(self) -> None:
        """Everybody knew it; after ttl + clean_interval nobody's table has it."""
        net = network(6)
        config = RadiusConfig()
        crashed = net.hosts[2]
        crashed.handle(Subscribe("t"))
        net.engine.run_until(40.0)  # it was renewed meanwhile
        others = [router(net, index) for index in range(6) if index != 2]
        assert all(other.subscriptions.interests.owners for other in others)
        net.crash(crashed)
        net.engine.run_until(40.0 + config.ttl + config.clean_interval)
        for other in others:
            assert not len(other.subscriptions.interests)
            assert not other.subscriptions.interests.owners
            assert not other.subscriptions.interests._topics

    def test_an_expired_subscription_is_never_served(self) -> None:
        """Also when it has not been removed yet."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=0, clean_interval=1000.0)
        bag.subscribe(0)
        bag.settle()
        bag.dead[0] = None
        bag.now += 30.0
        bag.sent.clear()
        bag.publish(1)
        assert bag.machines[1].subscriptions.interests.find("t", peer_id(0)) is not None
        assert not bag.sent

    def test_what_expired_is_counted_out_of_the_bounds(self) -> None:
        """A table that was full has room again."""
        bag = Bag(3, [(0, 1), (1, 2)], sub_hops=1, pub_hops=0, max_interests=1)
        bag.subscribe(0)
        bag.settle()
        bag.subscribe(2)
        bag.settle()
        assert reasons.TABLE_FULL in bag.refused[1]
        bag.dead[0] = None
        bag.settle(bag.now + 31)
        bag.settle(bag.now + 24)
        assert bag.knows(1, 2)
        assert not bag.knows(1, 0)


class TestTheOwnersLastWord:
    """Whatever overtakes what, everybody ends up with what the owner said last."""

    @given(
        words=st.lists(st.sampled_from(["subscribe", "unsubscribe", "renew", "step"]), max_size=12),
        seed=st.integers(0, 2**32),
    )
    def test_races_settle_to_it(self, words: list[str], seed: int) -> None:
        """UNSUB overtaking SUB, renewals crossing UNSUB, on a ring, messages in any order."""
        bag = Bag(6, RING, seed, sub_hops=3, pub_hops=0)
        bag.settle()
        wanted = False
        for word in words:
            if word == "subscribe":
                bag.subscribe(0)
                wanted = True
            elif word == "unsubscribe":
                bag.unsubscribe(0)
                wanted = False
            elif word == "renew":
                for index, timer in list(bag.timers):
                    if index == 0 and timer == RENEW:
                        bag.now += 24
                        bag.feed(0, TimerFired(timer))
            else:
                bag.under_way, rest = bag.under_way[1:], bag.under_way[:1]
                for target, event in rest:
                    bag.feed(target, event)
        bag.settle()
        assert [bag.knows(index, 0) for index in range(1, 6)] == [wanted] * 5

    @given(seed=st.integers(0, 2**32), wanted=st.booleans())
    def test_old_words_change_nothing(self, seed: int, wanted: bool) -> None:
        """Frames that were sent before are replayed in any order, without effect."""
        bag = Bag(6, RING, seed, sub_hops=3, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        bag.unsubscribe(0)
        bag.settle()
        if wanted:
            bag.subscribe(0)
            bag.settle()
        for source, target, frame in list(bag.sent):
            bag._post(source, peer_id(target), frame)
        bag.settle()
        assert [bag.knows(index, 0) for index in range(1, 6)] == [wanted] * 5

    def test_an_end_is_remembered_as_long_as_what_it_ended_could_last(self) -> None:
        """The SUB that was withdrawn cannot come back, not even in its last moment."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        announcement = bag.sent[-1][2]
        bag.unsubscribe(0)
        for _ in range(40):
            bag.settle(bag.now + 1)
            bag._post(0, peer_id(1), announcement)
            bag.settle()
            assert not bag.knows(1, 0)
        assert not len(bag.machines[1].subscriptions.interests)
        assert set(bag.refused[1]) == {reasons.SUPERSEDED, reasons.EXPIRED}


class TestSince:
    """From when on a subscription may be relied upon to be known to neighbours."""

    def since(self, bag: Bag) -> float:
        entry = bag.machines[1].subscriptions.interests.find("t", peer_id(0))
        assert entry is not None
        return entry.since

    def test_renewals_continue_it(self) -> None:
        """Words that come when they are due leave the beginning as it was."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        for _ in range(3):
            bag.settle(bag.now + 24)
        assert self.since(bag) == 1000.0

    def test_an_owner_that_started_anew_begins_anew(self) -> None:
        """A word at another time than a renewal's is news, of which not everybody has heard."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=0)
        bag.subscribe(0)
        bag.settle(bag.now + 10)
        word = interest_of(0, bag.now)
        bag.feed(1, Received(peer_id(0), Frame((Spread(word, 0),))))
        assert self.since(bag) == 1010.0

    def test_so_does_one_that_withdrew_or_was_out_of_reach(self) -> None:
        """What was broken off is not continued."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        bag.machines[1].subscriptions.interests.lose(peer_id(0))
        bag.settle(bag.now + 24)
        assert self.since(bag) == 1024.0
        bag.unsubscribe(0)
        bag.settle(bag.now + 24)
        bag.subscribe(0)
        bag.settle()
        assert self.since(bag) == 1048.0


class TestLostSubscribers:
    """A subscriber whose letters fail is forgotten."""

    def test_a_failed_letter_ends_the_service(self) -> None:
        """After one failed DIRECTMSG no other is sent, until the subscriber speaks again."""
        bag = Bag(3, [(0, 1), (1, 2)], sub_hops=2, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        assert bag.knows(2, 0)
        bag.dead[0] = None
        bag.publish(2)
        bag.settle()
        assert not bag.knows(2, 0)
        assert reasons.SUBSCRIBER_LOST in bag.refused[2]
        bag.sent.clear()
        bag.publish(2)
        assert not bag.sent
        del bag.dead[0]
        bag.now += 24
        bag.machines[0].subscriptions.renew(2, bag.now, effects := [])
        bag.timers.update({(0, effect.timer): effect.at for effect in effects})
        bag.settle()
        assert bag.knows(2, 0)

    @pytest.mark.parametrize("reason", [QUEUE_FULL, NODE_QUEUE_FULL, TOO_MANY_PENDING])
    def test_a_full_queue_is_no_death(self, reason: str) -> None:
        """A letter for which a runtime had no room does not end the service."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        bag.publish(1)
        letter = bag.sent[-1][2]
        bag.feed(1, SendDropped(peer_id(0), letter, reason))
        assert bag.knows(1, 0)


class TestGreeting:
    """A new neighbour hears what may travel on to it."""

    def test_a_new_link_is_covered_at_once(self) -> None:
        """Two halves that are joined know each other's subscriptions as far as hops allow."""
        bag = Bag(6, [(0, 1), (1, 2), (3, 4), (4, 5)], sub_hops=3, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        bag.link(2, 3)
        bag.settle()
        assert [bag.knows(index, 0) for index in range(1, 6)] == [True, True, True, False, False]

    def test_an_end_is_told_too(self) -> None:
        """Whoever missed the UNSUB hears of it over the next new link."""
        bag = Bag(3, [(0, 1), (1, 2)], sub_hops=2, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        bag.lost = lambda source, target, _frame: (source, target) == (1, 2)
        bag.unsubscribe(0)
        bag.settle()
        assert bag.knows(2, 0)
        bag.lost = lambda _source, _target, _frame: False
        bag.link(0, 2)
        bag.settle()
        assert not bag.knows(2, 0)

    def test_without_it_a_renewal_brings_the_news(self) -> None:
        """`greet = false` is the design as written."""
        bag = Bag(2, [], sub_hops=1, pub_hops=0, greet=False)
        bag.subscribe(0)
        bag.settle()
        bag.link(0, 1)
        bag.settle()
        assert not bag.knows(1, 0)
        bag.settle(bag.now + 24)
        assert bag.knows(1, 0)


class TestRequests:
    """What an application may ask for."""

    def test_a_publisher_sees_what_it_publishes_in_a_publish_only_topic(self) -> None:
        """And nobody is told of an interest."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=1)
        bag.feed(0, Subscribe("t", publish_only=True))
        bag.settle()
        assert not bag.knows(1, 0)
        bag.publish(0)
        assert len(bag.events[0]) == 1

    def test_the_same_words_twice_are_two_publications(self) -> None:
        """The id includes the time, and no two of an author are alike."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=1)
        bag.subscribe(1)
        bag.settle()
        bag.publish(0, data=b"again")
        bag.publish(0, data=b"again")
        bag.settle()
        assert [event.data for event in bag.events[1]] == [b"again", b"again"]

    def test_a_machine_that_comes_back_with_its_state_renews(self) -> None:
        """Its timers are gone, its subscriptions are not."""
        bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=1)
        bag.subscribe(0)
        bag.timers.clear()
        bag.settle(bag.now + 29)
        bag.feed(0, Start())
        bag.settle()
        entry = bag.machines[1].subscriptions.interests.find("t", peer_id(0))
        assert entry is not None
        assert entry.interest.expires == int((bag.now + 30) * 1e6)
        bag.feed(1, Publish("t", b"x"))
        bag.settle()
        assert len(bag.events[0]) == 1


def test_the_view_shows_neighbours_and_known_subscribers() -> None:
    """Own subscriptions, who is served in which topic, and whom messages go to."""
    bag = Bag(3, [(0, 1), (1, 2)], sub_hops=1, pub_hops=1)
    bag.subscribe(0, "a")
    bag.subscribe(0, "b")
    bag.subscribe(2, "b")
    bag.settle()
    neighbours = {"neighbour": {"": (peer_id(0), peer_id(2))}}
    peers = {"a": (peer_id(0),), "b": (peer_id(0), peer_id(2))}
    view = bag.machines[1].view()
    assert (view.subscriptions, view.links) == ((), neighbours)
    assert {topic: tuple(sorted(known)) for topic, known in view.peers.items()} == peers
    assert bag.machines[0].view() == View(("a", "b"), {}, {"neighbour": {"": (peer_id(1),)}})
    bag.unsubscribe(0, "a")
    bag.settle()
    assert "a" not in bag.machines[1].view().peers


class TestNeighbours:
    """The design's request for neighbours, and its indication."""

    def test_who_asks_is_told_who_the_neighbours_are_now(self) -> None:
        """Of a line of three the one in the middle has two, and one when the other is gone."""
        net = network(3)
        found: list[Any] = []
        middle = net.hosts[1]
        middle.command(GetNeighbors(), lambda outcome: found.append(outcome.result))
        net.crash(net.hosts[0])
        net.engine.run_until(2.0)
        middle.command(GetNeighbors(), lambda outcome: found.append(outcome.result))
        assert [sorted(each.peers) for each in found] == [[peer_id(0), peer_id(2)], [peer_id(2)]]
        middle.command("else", lambda outcome: found.append(outcome.error))
        assert found[-1] == "radius gossip has no command str"


def test_what_is_remembered_of_a_publication_is_no_payload_and_ages() -> None:
    """The design's `delivered`, without the draft's payloads: hops by id, for two lifetimes."""
    net = network(2, publication_lifetime=10.0)
    net.hosts[1].handle(Subscribe("t"))
    net.hosts[0].handle(Publish("t", b"news" * 1000))
    net.engine.run_until(2.0)
    seen = router(net, 1).seen
    assert len(seen) == 1
    known = repr(state_of(router(net, 1)))
    assert peer_id(0).hex() in known
    assert b"news".hex() not in known
    assert "news" not in known
    net.engine.run_until(60.0)
    assert len(seen) == 0
