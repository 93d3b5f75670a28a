"""The paper's statements about legitimate states, each under the sentence that it checks."""

import math
import random
import statistics
from collections.abc import Callable

import pytest
from skipring_definition import skip_ring
from skipring_legitimate import legitimate
from skipring_world import SUPERVISOR, TOPIC, Pace, World, make_peers

from rumormill.core.effects import Effects
from rumormill.protocols.skipring.config import SkipRingConfig
from rumormill.protocols.skipring.labels import label_of
from rumormill.protocols.skipring.messages import GetConfiguration, SetData, Subscribe, Unsubscribe
from rumormill.protocols.skipring.subscriber import request_probability

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 21, 33)


def picture(world: World) -> tuple[object, object]:
    """All explicit edges, labels and tuples of a world."""
    return world.states(), sorted(world.records())


# Closure.


@pytest.mark.parametrize("n", SIZES)
def test_nothing_changes_in_a_legitimate_state(n: int) -> None:
    """Theorem 13: "If the explicit edges in G already form a supervised skip ring SR(n), then they
    are preserved at any point in time if no subscribers join or leave the system": looked at after
    each of 1,000 intervals under an asynchronous schedule, with the failure detector at work."""
    config = SkipRingConfig(patience=64)
    world = legitimate(n, seed=n, pace=Pace(), config=config)
    assert not world.faults()
    before = picture(world)
    for _ in range(1000):
        world.run(1)
        assert picture(world) == before
    assert "linearize" not in world.sent
    assert "introduce" not in world.sent


def test_nothing_changes_in_a_large_legitimate_state() -> None:
    """Theorem 13 once more, for 300 subscribers over 100 intervals."""
    world = legitimate(300, pace=Pace())
    before = picture(world)
    for _ in range(10):
        world.run(10)
        assert picture(world) == before


# Degree and diameter.


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 12, 16, 31, 32, 33, 64])
def test_degrees(n: int) -> None:
    """Lemma 3: "the degree of nodes in a skip ring is logarithmic in the worst case and constant in
    the average case": at most 2·(log n - k + 1) for a label of length k, and 4 on average. For n
    that is no power of two, log n is the length of the longest label."""
    rng = random.Random(n)
    world = World(make_peers(n, rng), rng)
    world.stabilise(500)
    longest = max(len(state.label or "") for state in world.states().values())
    assert longest == max(1, math.ceil(math.log2(n)))
    degrees = []
    for subscriber in world.subscribers.values():
        degree = len(subscriber.neighbours)
        label = world.states()[subscriber.id].label
        assert label is not None
        assert degree <= 2 * (longest - len(label) + 1)
        degrees.append(degree)
    assert sum(degrees) <= 4 * n - 4
    if n >= 4 and n & (n - 1) == 0:
        # The proof counts the two edges between 0 and 1 on level 1; there is one neighbour.
        assert sum(degrees) == 4 * n - 6


@pytest.mark.parametrize("n", [2, 3, 16, 50, 64, 256, 1024])
def test_flooding_reaches_everybody_in_log_n_steps(n: int) -> None:
    """Section 4.3: "recall that the skip ring has a diameter of log n"."""
    ring = skip_ring(n)
    for source in random.Random(n).sample(sorted(ring), min(n, 12)):
        reached, edge, steps = {source}, {source}, 0
        while len(reached) < n:
            edge = {other for each in edge for other in ring[each].everybody} - reached
            reached |= edge
            steps += 1
        assert steps <= max(1, math.ceil(math.log2(n)))


# Requests.


@pytest.mark.parametrize("n", [16, 64, 256, 1024, 4096])
def test_the_supervisor_gets_less_than_one_request_per_interval(
    n: int, record_property: Callable[[str, object], None]
) -> None:
    """Theorem 5: "The expected number of configuration requests sent out by all subscribers is less
    than 1 in each timeout interval." The expectation is summed exactly; the mean over many
    intervals agrees with it within four standard errors, and stays below 1 with that margin."""
    probabilities = [request_probability(label_of(x)) for x in range(n)]
    expected = sum(probabilities)
    assert expected == pytest.approx(sum(1 / (2 * k * k) for k in range(1, n.bit_length())))
    assert expected < 1
    intervals = 2000 if n <= 256 else 300
    world = legitimate(n, seed=n)
    rng = random.Random(n)
    for subscriber in world.subscribers.values():
        subscriber._randomness = rng
    counts = []
    for _ in range(intervals):
        asked = 0
        for subscriber in world.subscribers.values():
            own = subscriber.own
            assert own is not None
            asked += rng.random() < subscriber._request_probability(own)
        counts.append(asked)
    mean = statistics.fmean(counts)
    error = math.sqrt(sum(p * (1 - p) for p in probabilities) / intervals)
    shown = f"n = {n}: mean {mean:.3f}, expected {expected:.3f}, standard error {error:.3f}"
    record_property("requests per interval", shown)
    assert abs(mean - expected) < 4 * error, shown
    assert expected + 4 * error < 1


@pytest.mark.parametrize("n", [1, 2, 16, 40])
def test_requests_of_a_whole_world(n: int) -> None:
    """Theorem 5 in a running world: GETCONFIGURATIONs are all that the supervisor is asked for."""
    world = legitimate(n, seed=n)
    intervals = 600
    world.run(intervals)
    expected = sum(request_probability(label_of(x)) for x in range(n))
    error = math.sqrt(expected / intervals)
    assert "subscribe" not in world.sent
    assert abs(world.sent["get-configuration"] / intervals - expected) < 5 * error


def test_as_the_paper_prints_them_the_probabilities_sum_to_more_than_one() -> None:
    """Why labels of length 1 ask with probability 1/4: there are two of them, and the proof of
    Theorem 5 counts one. With 1/(2^k·k²) for both, the sum is 1 for n = 2 and 1.2 for n = 16."""

    def printed(n: int) -> float:
        lengths = [max(1, x.bit_length()) for x in range(n)]
        return sum(1 / (2**k * k * k) for k in lengths)

    assert printed(2) == 1
    assert printed(16) > 1.2
    for x in range(2, 4096):
        k = x.bit_length()
        assert request_probability(label_of(x)) == 1 / (2**k * k * k)


# Subscribe and unsubscribe.


@pytest.mark.parametrize("n", [8, 32, 128, 512])
def test_subscribing_costs_the_same_for_any_n(n: int) -> None:
    """Theorem 7: "In a legitimate state, the message overhead of the supervisor and subscribers is
    constant for subscribe/unsubscribe operations." Counted are the messages beyond periodic ones:
    everything but CHECK and INTRODUCESHORTCUT to neighbours, requests and acknowledgements."""
    world = legitimate(n, seed=n)
    newcomer = b"\x00\x00"
    world.join(newcomer)
    before = dict(world.sent)
    for _ in range(30):
        world.run(1)
    assert not world.faults()
    extra = {name: world.sent.get(name, 0) - before.get(name, 0) for name in world.sent}
    assert extra["subscribe"] == 1
    assert extra.get("linearize", 0) + extra.get("introduce", 0) <= 8
    # One configuration per TIMEOUT, one per request, and one for the newcomer.
    assert extra["set-data"] <= 30 + extra.get("get-configuration", 0) + 2
    assert extra.get("remove-connections", 0) <= 2


@pytest.mark.parametrize("n", [8, 32, 100, 400])
def test_unsubscribing_costs_the_same_for_any_n(n: int) -> None:
    """Theorem 7, for unsubscribe, from anywhere in the ring. A CHECK that is under way when labels
    change can send a reference along the list, which is rare: the median is what is constant."""
    costs = []
    for seed, place in enumerate([0, 1, 2, n // 3, n // 2, n - 2, n - 1]):
        world = legitimate(n, seed=seed)
        leaver = world.supervisor.database[label_of(place)]
        assert leaver is not None
        effects: Effects = []
        world.subscribers[leaver].leave(effects)
        world.carry_out(leaver, effects)
        world.run(10)
        assert world.subscribers[leaver].gone
        assert len(world.supervisor.database) == n - 1
        sent = world.sent
        assert sent["unsubscribe"] <= 2
        assert sent["set-data"] <= 10 + sent["get-configuration"] + 7
        costs.append(sent.get("linearize", 0) + sent.get("introduce", 0))
        # Everybody who knew the leaver is told once or twice to forget it.
        assert sent.get("remove-connections", 0) <= 4 * math.log2(n)
    assert statistics.median(costs) <= 4


def test_the_supervisor_sends_a_constant_number_of_messages() -> None:
    """Section 4.1: "the supervisor only has to send out a constant number of messages per
    subscribe/unsubscribe request": one to the newcomer; one to who leaves, one to its heir, and
    one each to the neighbours of the two places that changed hands."""
    for n in (1, 2, 10, 1000):
        world = legitimate(n)
        effects: Effects = []
        world.supervisor.receive(b"\x00\x00", Subscribe(TOPIC), effects)
        assert len(effects) == 1
        effects.clear()
        world.supervisor.receive(
            world.supervisor.database[0],
            Unsubscribe(TOPIC),
            effects,
        )
        assert len(effects) <= 6


def test_a_subscriber_is_involved_in_two_consecutive_subscriptions() -> None:
    """Section 4.1: "a pre-existing subscriber is involved (i.e., it has to change its
    configuration) only for two consecutive subscribe operations. Afterwards its configuration
    remains untouched until the number of subscribers has doubled"."""
    changes: dict[str, list[int]] = {}
    for n in range(16, 32):
        before, after = skip_ring(n), skip_ring(n + 1)
        for text, links in before.items():
            old = (links.left or links.ring, links.right or links.ring)
            new = (after[text].left or after[text].ring, after[text].right or after[text].ring)
            if old != new:
                changes.setdefault(text, []).append(n)
    assert len(changes) == 16
    for involved in changes.values():
        assert len(involved) == 2
        assert (involved[1] - involved[0]) in {1, 15}  # the label 0 has the first and the last


@pytest.mark.parametrize("n", [2, 3, 9, 20])
def test_who_unsubscribes_is_disconnected(n: int) -> None:
    """Lemma 6: "After a subscriber v has sent an unsubscribe(v) request to the supervisor, v
    eventually gets disconnected from the graph induced by E_R ∪ E_S"."""
    for seed in range(3):
        world = legitimate(n, seed=seed, pace=Pace())
        leaver = random.Random(seed).choice(list(world.subscribers))
        effects: Effects = []
        world.subscribers[leaver].leave(effects)
        world.carry_out(leaver, effects)
        for _ in range(400):
            world.run(1)
            others = [each for peer, each in world.subscribers.items() if peer != leaver]
            if world.subscribers[leaver].gone and not any(leaver in o.neighbours for o in others):
                break
        else:
            raise AssertionError("somebody still knows who left")
        assert not world.subscribers[leaver].neighbours
        del world.subscribers[leaver]
        world.stabilise(1000)


def test_who_unsubscribed_is_not_brought_back_by_a_stale_request() -> None:
    """Section 3.2.1 against Algorithm 3: a configuration request for who is not recorded is
    answered with (⊥, ⊥, ⊥) and records nobody."""
    world = legitimate(5)
    effects: Effects = []
    stranger = b"\x00\x00"
    sender = next(iter(world.subscribers))
    world.supervisor.receive(sender, GetConfiguration(TOPIC, stranger), effects)
    assert len(world.supervisor.database) == 5
    (mail,) = effects
    assert mail.peer == stranger
    assert mail.message == SetData(TOPIC, None, None, None)
    assert SUPERVISOR not in world.subscribers
