"""Coverage: two radii that add up to the diameter reach every subscriber, exactly once.

Peers hand each other messages in random order, links not even keeping theirs, so what is shown does
not depend on who is fast.
"""

import random
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from radius_rig import Bag, Edge, diameter, distances, interest_of, peer_id

from rumormill.core.effects import Mail, Published, SendAll
from rumormill.core.inputs import NotStored, Publish, Received, SendDropped, Stored
from rumormill.core.trace import FailPublish
from rumormill.protocols.radius.messages import Frame, Spread

SERVING = ("all", "few")


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> tuple[int, list[Edge]]:
    """A connected graph: a random tree and some more links."""
    peers = draw(st.integers(2, most))
    edges = [(peer, draw(st.integers(0, peer - 1))) for peer in range(1, peers)]
    more = draw(st.lists(st.tuples(st.integers(0, peers - 1), st.integers(0, peers - 1))))
    known = {frozenset(edge) for edge in edges}
    for one, other in more[: 2 * peers]:
        if one != other and frozenset((one, other)) not in known:
            known.add(frozenset((one, other)))
            edges.append((one, other))
    return peers, edges


def played(
    graph: tuple[int, list[Edge]],
    seed: int,
    sub_hops: int,
    pub_hops: int,
    subscribers: list[int],
    publishers: list[int],
    **config: Any,
) -> Bag:
    """Subscribe, wait a propagation time, publish, and wait again."""
    bag = Bag(*graph, seed, sub_hops=sub_hops, pub_hops=pub_hops, max_hops=64, **config)
    bag.settle()
    for index in subscribers:
        bag.subscribe(index)
    bag.settle()
    bag.settle(bag.now + 10)
    for number, index in enumerate(publishers):
        bag.publish(index, data=b"%d" % number)
    bag.settle()
    return bag


def assert_covered(data: st.DataObject, serving: str, most: int) -> None:
    peers, edges = graph = data.draw(graphs(most))
    across = diameter(peers, edges)
    sub_hops = data.draw(st.integers(0, across), label="sub_hops")
    slack = data.draw(st.integers(0, 2), label="slack")
    some = st.lists(st.integers(0, peers - 1), min_size=1, max_size=6, unique=True)
    subscribers, publishers = data.draw(some), data.draw(some)
    seed = data.draw(st.integers(0, 2**32))
    bag = played(
        graph,
        seed,
        sub_hops,
        across - sub_hops + slack,
        subscribers,
        publishers,
        serving=serving,
        max_marks=data.draw(st.sampled_from([0, 1, 64])),
    )
    for index in range(peers):
        got = sorted(event.data for event in bag.events[index])
        wanted = sorted(b"%d" % number for number in range(len(publishers)))
        assert got == (wanted if index in subscribers else [])


@pytest.mark.parametrize("serving", SERVING)
class TestCoverage:
    """subHops + pubHops ≥ the diameter, no faults."""

    @given(data=st.data())
    def test_every_subscriber_gets_every_publication_exactly_once(
        self, serving: str, data: st.DataObject
    ) -> None:
        """On any connected graph, however the diameter is split, in any order of arrival."""
        assert_covered(data, serving, 12)

    @pytest.mark.slow
    @settings(settings.get_profile("long"))
    @given(data=st.data())
    def test_the_same_for_many_and_larger_graphs(self, serving: str, data: st.DataObject) -> None:
        """The same with thousands of examples."""
        assert_covered(data, serving, 30)

    def test_one_hop_less_is_not_enough(self, serving: str) -> None:
        """With subHops + pubHops one below the diameter a counter-example exists, and is found."""

        def loses(case: tuple[tuple[int, list[Edge]], int, int]) -> bool:
            (peers, edges), share, seed = case
            across = diameter(peers, edges)
            sub_hops = share % across
            publisher, subscriber = max(
                ((one, other) for one in range(peers) for other in range(peers)),
                key=lambda pair: distances(peers, edges, pair[0])[pair[1]],
            )
            bag = played(
                (peers, edges),
                seed,
                sub_hops,
                across - 1 - sub_hops,
                [subscriber],
                [publisher],
                serving=serving,
            )
            return not bag.events[subscriber]

        cases = st.tuples(graphs(), st.integers(0, 10), st.integers(0, 1000))
        (peers, edges), _, _ = find(cases, loses)
        assert peers >= 2
        assert edges

    def test_a_publisher_gets_its_own_publication_once(self, serving: str) -> None:
        """The publisher treats its own publication as received."""
        bag = played((3, [(0, 1), (1, 2)]), 1, 2, 2, [0, 1, 2], [0], serving=serving)
        assert [len(events) for events in bag.events] == [1, 1, 1]


class TestHops:
    """What starts with r hops reaches everybody within distance r, and nobody beyond it."""

    @given(graphs(), st.integers(0, 6), st.integers(0, 2**32))
    def test_sub_reaches_exactly_its_hops(
        self, graph: tuple[int, list[Edge]], hops: int, seed: int
    ) -> None:
        """A subscription is known within `sub_hops` of its subscriber, in any order of arrival."""
        peers, edges = graph
        bag = Bag(peers, edges, seed, sub_hops=hops, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        for index, distance in enumerate(distances(peers, edges, 0)):
            assert bag.knows(index, 0) == (0 < distance <= hops)

    @given(graphs(), st.integers(0, 6), st.integers(0, 2**32))
    def test_pub_reaches_exactly_its_hops(
        self, graph: tuple[int, list[Edge]], hops: int, seed: int
    ) -> None:
        """A publication gets to everybody within `pub_hops`, in any order of arrival."""
        peers, edges = graph
        bag = Bag(peers, edges, seed, sub_hops=0, pub_hops=hops)
        bag.publish(0)
        bag.settle()
        for index, distance in enumerate(distances(peers, edges, 0)):
            assert len(bag.machines[index].seen) == (distance <= hops)

    def test_a_late_copy_with_more_hops_extends_the_radius(self) -> None:
        """The long way round is faster here; the short way's copy must still go on."""
        # 0 - 1 - 2 - 3 - 4 and a short cut 0 - 2, over which the copy comes late.
        bag = Bag(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2)], sub_hops=0, pub_hops=3)
        bag.settle()
        late: list[Any] = []

        def is_late(source: int, target: int, frame: Any) -> bool:
            if (source, target) == (0, 2) and frame.publications:
                late.append(frame)
                return True
            return False

        bag.lost = is_late
        bag.publish(0)
        bag.settle()
        assert not len(bag.machines[4].seen)
        bag.lost = lambda _source, _target, _frame: False
        bag._post(0, bag.machines[2].id, late[0])
        bag.settle()
        assert len(bag.machines[4].seen) == 1

    def test_a_bringer_of_a_poor_copy_still_gets_the_better_one(self) -> None:
        """A neighbour is left out only when it has as many hops as we would give it."""
        bag = Bag(4, [(0, 1), (0, 2), (0, 3)], sub_hops=8, pub_hops=0)
        word = interest_of(9, bag.now)
        for source, hops in ((1, 8), (2, 2), (3, 6)):
            bag.feed(0, Received(peer_id(source), Frame((Spread(word, hops),))))
        bag.settle()
        told = [target for source, target, _ in bag.sent if source == 0]
        assert told == [2]

    def test_the_default_radius_follows_the_size(self) -> None:
        """diameter = ln(10·n), subHops = pubHops = ⌈(diameter + 1) / 2⌉; `few` goes all the way."""
        sizes = (1, 20, 100, 1000, 5000, 10_000)
        for serving, radii in (("all", (2, 4, 4, 6, 6, 7)), ("few", (32,) * 6)):
            for peers, hops in zip(sizes, radii, strict=True):
                machine = Bag(1, [], network_size=peers, serving=serving).machines[0]
                assert (machine.sub_hops, machine.pub_hops) == (hops, hops)

    @given(graphs(), st.integers(0, 6), st.integers(0, 2**32))
    def test_the_distance_of_a_subscriber_is_known(
        self, graph: tuple[int, list[Edge]], hops: int, seed: int
    ) -> None:
        """Whoever knows a subscriber knows how many hops away it is, in any order of arrival."""
        peers, edges = graph
        bag = Bag(peers, edges, seed, sub_hops=hops, pub_hops=0)
        bag.subscribe(0)
        bag.settle()
        for index, distance in enumerate(distances(peers, edges, 0)):
            entry = bag.machines[index].subscriptions.interests.find("t", peer_id(0))
            assert entry is None or entry.distance == distance


class TestFewServers:
    """What `few` saves on a graph in which everybody knows everybody's subscription."""

    def test_the_publisher_alone_serves_whom_it_knows(self) -> None:
        """On a ring of ten, everybody within reach: one letter per subscriber and no more."""
        edges = [(peer, (peer + 1) % 10) for peer in range(10)]
        letters = {}
        for serving in SERVING:
            bag = played((10, edges), 3, 5, 2, [5], [0], serving=serving)
            assert len(bag.events[5]) == 1
            letters[serving] = sum(bool(frame.direct) for _, _, frame in bag.sent)
        assert letters == {"all": 5, "few": 1}

    def test_the_flood_serves_whom_it_reaches(self) -> None:
        """A subscriber gets a letter only if it is not well within the publication's radius."""
        line = [(peer, peer + 1) for peer in range(6)]
        bag = played((7, line), 1, 6, 4, list(range(7)), [0], serving="few")
        assert all(len(events) == 1 for events in bag.events)
        assert {target for _, target, frame in bag.sent if frame.direct} == {4, 5, 6}

    def test_who_does_not_say_how_far_it_is_gets_a_letter(self) -> None:
        """Peers that know no distances pass interests on without them: nothing is relied upon."""
        bag = Bag(3, [(0, 1), (1, 2)], sub_hops=2, pub_hops=2, serving="few")
        bag.settle()
        bag.feed(0, Received(peer_id(1), Frame((Spread(interest_of(2, bag.now), 1),))))
        bag.settle()
        bag.now += 10
        bag.publish(0)
        assert [target for _, target, frame in bag.sent if frame.direct] == [2]

    def test_letters_where_few_subscribe_and_a_flood_where_many_do(self) -> None:
        """Unless told otherwise a publisher chooses what costs less, of two ways that cover all."""
        edges = [(one, other) for one in range(30) for other in (one + 1, one + 7, one + 12)]
        graph = 30, [(one, other % 30) for one, other in edges]
        for subscribers, flooded in (([4, 11], False), (list(range(30)), True)):
            bag = Bag(*graph, network_size=30, serving="few")
            bag.settle()
            for index in subscribers:
                bag.subscribe(index)
            bag.settle()
            bag.settle(bag.now + 10)
            bag.publish(2)
            bag.settle()
            copies = sum(len(frame.publications) for _, _, frame in bag.sent)
            letters = sum(len(frame.direct) for _, _, frame in bag.sent)
            assert [len(bag.events[index]) for index in subscribers] == [1] * len(subscribers)
            assert (copies > 30, letters) == ((True, 0) if flooded else (False, 2))

    def test_who_is_out_of_reach_of_letters_is_reached_by_a_flood(self) -> None:
        """That publication floods after all, and so does the next one of the topic."""
        edges = [(peer, (peer + step) % 30) for peer in range(30) for step in (1, 7, 12)]
        bag = Bag(30, edges, network_size=30, serving="few")
        bag.settle()
        bag.subscribe(4)
        bag.settle()
        bag.settle(bag.now + 10)
        bag.lost = lambda _source, _target, frame: bool(frame.direct)
        bag.publish(2)
        bag.settle()
        assert not bag.events[4]
        (letter,) = [frame for _, _, frame in bag.sent if frame.direct]
        bag.feed(2, SendDropped(peer_id(4), letter, "peer out of reach"))
        bag.settle()
        assert len(bag.events[4]) == 1
        bag.publish(2, data=b"next")
        bag.settle()
        assert len(bag.events[4]) == 2

    def test_a_newcomer_floods(self) -> None:
        """Who has had no neighbour for a while does not know who subscribes."""
        bag = Bag(9, [], network_size=9, serving="few")
        for peer in range(8):
            bag.link(peer, peer + 1)
            bag.link(peer, (peer + 3) % 8)
        bag.publish(0)
        assert bag.sent[-1][2].publications[0].hops == bag.machines[0].pub_hops - 1

    def test_marks_never_exceed_their_limit(self) -> None:
        """However many subscribers there are, a copy names at most `max_marks` of them."""
        rng = random.Random(5)
        edges = [(peer, rng.randrange(peer)) for peer in range(1, 30)]
        across = diameter(30, edges)
        everyone = list(range(30))
        bag = played((30, edges), 7, across // 2, across, everyone, [3], serving="few", max_marks=4)
        assert all(len(events) == 1 for events in bag.events)
        marks = [len(r.served) for _, _, frame in bag.sent for r in frame.publications]
        assert max(marks) == 4 * 8


def test_a_publication_is_nobody_s_before_it_is_stored() -> None:
    """Neither sent nor remembered; what cannot be stored is answered with the reason."""
    bag = Bag(2, [(0, 1)], sub_hops=1, pub_hops=1)
    bag.subscribe(1)
    bag.settle()
    machine, effects = bag.machines[0], list[Any]()
    for number in (1, 2):
        machine.handle(Publish("t", b"mine", number), bag.now, effects)
    stored, lost = effects
    assert len(machine.seen) == 0
    effects.clear()
    machine.handle(NotStored((lost.barrier,), "the disk is full"), bag.now, effects)
    failed = FailPublish("t", "the disk is full")
    assert effects == [failed, Published(2, None, error="the disk is full")]
    machine.handle(Stored((stored.barrier,)), bag.now, effects)
    assert [each.peers for each in effects if isinstance(each, SendAll)] == [(peer_id(1),)]
    assert [each.peer for each in effects if isinstance(each, Mail)] == [peer_id(1)]
    assert effects[-1] == Published(1, stored.event, 2)
