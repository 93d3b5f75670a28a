"""Links between events: what a publisher names, and every event behind the one that it links to."""

import random

import pytest
from pulsarcast_rig import Lone, World, delivered, event_by, penalties, publication, refusals

from rumormill.core.effects import Append, SetTimer
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.inputs import Publish, Subscribe, TimerFired
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import event_cid_of
from rumormill.protocols.pulsarcast.context import HoldTimer
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates, rpc
from rumormill.protocols.pulsarcast.format.descriptors import (
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent, sign_request
from rumormill.protocols.pulsarcast.history.graph import in_order
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.link import LinkFaults
from rumormill.sim.network import peer_id

LINKINGS = pytest.mark.parametrize("linking", list(EventLinking))
CUSTOM = EventLinking.CUSTOM


def subscriber(linking: EventLinking = CUSTOM) -> tuple[Lone, bytes]:
    """A peer that has subscribed to a topic in which everybody publishes."""
    lone = Lone(5)
    topic = TopicDescriptor("t", peer_id(0), "1970-01-01T00:00:00.000Z", event_linking=linking)
    lone.machine.topics.add(topic)
    lone.feed(Subscribe(cids.text(topic.cid)))
    lone.meet(peer_id(1))
    return lone, topic.cid


def line(lone: Lone, topic: bytes, count: int) -> list[SignedEvent]:
    """Events of several publishers, each linked to the one before it."""
    found: list[SignedEvent] = []
    for number in range(count):
        parent = found[-1].cid if found else None
        created = dates.iso_at(lone.now + number / 1000)
        found.append(event_by(number % 3, topic, b"%d" % number, created, parent))
    return found


def parents_come_first(events: list[Event]) -> bool:
    """Whether each event stands behind the one that it links to, where that is there."""
    place = {event.id: number for number, event in enumerate(events)}
    return all(
        place.get(parent, -1) < place[event.id] for event in events for parent in event.parents
    )


@LINKINGS
def test_an_event_waits_for_the_one_that_it_links_to(linking: EventLinking) -> None:
    """However they arrive, also where many publish: the log has them in the order of the links."""
    for seed in range(20):
        lone, topic = subscriber(linking)
        events = line(lone, topic, 8)
        shuffled = events.copy()
        random.Random(seed).shuffle(shuffled)
        given: list[bytes] = []
        for each in shuffled:
            given += delivered(lone.receive(peer_id(1), publication(each)))
        assert given == [b"%d" % number for number in range(8)]


def test_nothing_waits_for_ever_and_what_comes_late_is_given_all_the_same() -> None:
    """Where many publish, one event that is not to be had does not silence what follows it."""
    lone, topic = subscriber()
    lost, held = line(lone, topic, 2)
    assert not delivered(lone.receive(peer_id(1), publication(held)))
    for expected in ([], [b"1"]):  # at first it is asked for once more
        timers = [each for each in lone.effects if isinstance(each, SetTimer)]
        hold = [each for each in timers if isinstance(each.timer, HoldTimer)][-1]
        lone.now = hold.at
        assert delivered(lone.feed(TimerFired(hold.timer))) == expected
    effects = lone.receive(peer_id(1), publication(lost))
    assert delivered(effects) == [b"0"]
    assert not refusals(effects)


def test_what_we_publish_follows_what_is_in_our_log_and_not_what_waits() -> None:
    """LAST_SEEN: an event that was received and waits has not been seen by anybody here."""
    lone, topic = subscriber(EventLinking.LAST_SEEN)
    first, _, third = line(lone, topic, 3)
    lone.receive(peer_id(1), publication(first))
    lone.receive(peer_id(1), publication(third))
    effects = lone.feed(Publish(cids.text(topic), b"ours", 1))
    (append,) = [each for each in effects if isinstance(each, Append)]
    assert append.event.parents == (first.cid,)


def test_an_event_behind_one_that_waits_is_published_when_that_is_there() -> None:
    """CUSTOM: the parent is known and has no place in the log yet."""
    lone, topic = subscriber()
    first, second = line(lone, topic, 2)
    lone.receive(peer_id(1), publication(second))
    wish = Publish(cids.text(topic), b"ours", 1, parents=(second.cid,))
    assert not any(isinstance(each, Append) for each in lone.feed(wish))
    assert delivered(lone.receive(peer_id(1), publication(first))) == [b"0", b"1", b"ours"]


def test_what_cannot_be_a_parent_is_said_at_once() -> None:
    """One CID of an event, and nothing else."""
    lone, topic = subscriber()
    a, b = (cids.of(name) for name in (b"a", b"b"))
    with pytest.raises(LocalError, match="follows one other, not 2"):
        lone.feed(Publish(cids.text(topic), b"x", 1, parents=(a, b)))
    with pytest.raises(LocalError, match="no CID of an event"):
        lone.feed(Publish(cids.text(topic), b"x", 1, parents=(b"a",)))
    assert event_cid_of(a.hex()) == event_cid_of(cids.text(a)) == a
    for wrong in ("news", "00" * cids.LENGTH, "zz" * cids.LENGTH):
        with pytest.raises(LocalError, match="names no event"):
            event_cid_of(wrong)


@LINKINGS
@pytest.mark.parametrize("seed", [1, 2])
def test_every_subscriber_has_parents_before_children_under_loss_and_reordering(
    linking: EventLinking, seed: int
) -> None:
    """All publish; links lose, delay and reorder; a late one gets the past by back-fill."""
    faults = LinkFaults(jitter=0.3, loss=0.05, reorder=0.3, queue_limit=1024)
    world = World(8, seed=seed, faults=faults, fan_out=2, refresh_interval=5.0)
    topic = world.create(0, allowed_publishers=None, event_linking=linking)
    world.subscribe(topic, *range(1, 7), wait=20.0)
    draws = random.Random(seed)
    for number in range(40):
        publisher = number % 7
        heard = [event.id for event in world.events[publisher] if event.topic == topic]
        parents = draws.sample(heard, 1) if linking is CUSTOM and heard else []
        world.host(publisher).handle(Publish(topic, b"%d" % number, parents=tuple(parents)))
        world.run(0.2)
    world.host(7).handle(Subscribe(topic, since=0))
    world.run(90.0)
    orders = []
    for index in range(8):
        events = [event for event in world.events[index] if event.topic == topic]
        assert len(events) == 40
        assert parents_come_first(events)
        orders.append([event.id for event in in_order(events)])
    assert orders == [orders[0]] * 8


def test_a_request_names_its_parent_and_is_granted_behind_it() -> None:
    """The author publishes for another what follows an event of the other's choice."""
    world = World(6)
    topic = world.create(0, event_linking=CUSTOM)
    world.subscribe(topic, *range(1, 6))
    first = world.say(3, topic, b"first").event
    world.say(4, topic, b"second")
    assert first is not None
    receipt = world.say(5, topic, b"third", first.id)
    assert receipt.error == ""
    assert receipt.event is not None
    for index in range(6):
        event = world.events[index][-1]
        assert (event.id, event.parents, event.author) == (
            receipt.event.id, (first.id,), peer_id(5)
        )  # fmt: skip


def test_a_request_behind_what_the_publisher_lacks_is_granted_when_it_comes() -> None:
    """The publisher's own log has parents first as well; who asks too early is not to blame."""
    lone = Lone(0)
    topic = lone.create(event_linking=CUSTOM, allowed_publishers=(peer_id(0), peer_id(1))).cid
    lone.meet(peer_id(1), peer_id(2))
    created = dates.iso_at(lone.now)
    parent = event_by(1, topic, b"parent", created)
    draft = EventDescriptor(topic, peer_id(2), b"behind it", created, None, parent.cid)
    request = rpc.request_to_publish(sign_request(draft, SimulatedIdentity(peer_id(2))), lone.now)
    effects = lone.receive(peer_id(2), request)
    assert refusals(effects) == [reasons.NO_SUCH_PARENT]
    assert not penalties(effects)
    assert delivered(lone.receive(peer_id(1), publication(parent))) == [b"parent"]
    assert delivered(lone.receive(peer_id(2), request)) == [b"behind it"]
