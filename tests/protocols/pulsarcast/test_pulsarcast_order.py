"""Ordered topics, requests to publish, gaps, and history."""

from itertools import pairwise

import pytest
from pulsarcast_rig import Lone, World, delivered, event_by, publication

from rumormill.core.effects import Append, SetTimer
from rumormill.core.event import Event
from rumormill.core.inputs import Publish, Subscribe, TimerFired
from rumormill.core.trace import PublishMessage, RejectMessage
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import History, ReadHistory
from rumormill.protocols.pulsarcast.context import HoldTimer
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.additions import RequestStatus
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.sim.link import LinkFaults
from rumormill.sim.network import peer_id

ANYONE = {"allowed_publishers": None}


def is_chain(events: list[Event]) -> bool:
    """Whether every event links to the one before it, and the first to nothing or the unknown."""
    return all(after.parents == (before.id,) for before, after in pairwise(events))


def of(world: World, index: int, topic: str) -> list[Event]:
    """What a peer was given of a topic."""
    return [event for event in world.events[index] if event.topic == topic]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_everybody_sees_one_chain_in_order_under_reordering(seed: int) -> None:
    """The author publishes what all request; links delay and reorder; order holds everywhere."""
    faults = LinkFaults(jitter=0.4, loss=0.0, reorder=0.5, queue_limit=1024)
    world = World(10, seed=seed, faults=faults, fan_out=2)
    topic = world.create(0)
    world.subscribe(topic, *range(1, 10), wait=10.0)
    for number in range(40):
        world.publish(topic, number % 10, b"%d" % number, wait=0.1)
    world.run(30.0)
    chain = [event.id for event in of(world, 0, topic)]
    assert len(chain) == 40
    for index in range(10):
        events = of(world, index, topic)
        assert is_chain(events)
        assert [event.id for event in events] == chain


def test_lost_events_are_asked_for_and_order_holds() -> None:
    """One message in ten is lost on the way; nobody misses an event or sees one too early."""
    faults = LinkFaults(jitter=0.1, loss=0.1, reorder=0.0, queue_limit=1024)
    world = World(8, faults=faults, fan_out=2, refresh_interval=5.0)
    topic = world.create(0)
    world.subscribe(topic, *range(1, 8), wait=30.0)
    for number in range(30):
        world.publish(topic, 0, b"%d" % number, wait=0.2)
    world.run(90.0)
    for index in range(8):
        events = of(world, index, topic)
        assert [event.data for event in events] == [b"%d" % number for number in range(30)]


def test_nothing_is_held_back_for_ever() -> None:
    """A parent that nobody has is given up in time; when it comes late it is not delivered."""
    lone = Lone(5, hold_timeout=10.0)
    topic = TopicDescriptor(
        "t", peer_id(0), "1970-01-01T00:00:00.000Z", allowed_publishers=(peer_id(0),)
    )
    lone.machine.topics.add(topic)
    lone.feed(Subscribe(cids.text(topic.cid)))
    lone.meet(peer_id(1))
    created = [dates.iso_at(lone.now + number) for number in range(3)]
    lost = event_by(0, topic.cid, b"lost", created[0])
    held = event_by(0, topic.cid, b"held", created[1], lost.cid)
    next_one = event_by(0, topic.cid, b"next", created[2], held.cid)
    for each in (next_one, held):
        effects = lone.receive(peer_id(1), publication(each))
        assert not any(isinstance(effect, Append) for effect in effects)
    (timer,) = [
        each.timer
        for each in lone.effects
        if isinstance(each, SetTimer) and isinstance(each.timer, HoldTimer)
    ]
    lone.now += 10.0
    effects = lone.feed(TimerFired(timer))
    assert delivered(effects) == [b"held", b"next"]
    effects = lone.receive(peer_id(1), publication(lost))
    assert [each.reason for each in effects if isinstance(each, RejectMessage)] == [
        reasons.OVERTAKEN
    ]


def test_a_request_is_published_by_the_author_and_answered() -> None:
    """The event keeps who wrote it; who published it is somebody else."""
    world = World(8, fan_out=2)
    topic = world.create(0)
    world.subscribe(topic, *range(1, 8))
    outcome = world.say(5, topic, b"asked for")
    assert outcome.error == ""
    for index in range(8):
        (event,) = of(world, index, topic)
        assert outcome.event is not None
        assert (event.author, event.id) == (peer_id(5), outcome.event.id)
    publishers = [peer for peer, each in world.traced(PublishMessage) if each.topic == topic]
    assert publishers == [peer_id(0)]


def test_a_request_is_published_once_however_often_it_is_repeated() -> None:
    """An answer that was lost makes the asker repeat itself; the publisher answers again."""
    faults = LinkFaults(jitter=0.0, loss=0.1, reorder=0.0, queue_limit=1024)
    world = World(6, faults=faults, request_retry=1.0)
    topic = world.create(0)
    world.subscribe(topic, *range(1, 6), wait=30.0)
    for number in range(10):
        world.publish(topic, 1 + number % 5, b"%d" % number, wait=3.0)
    world.run(60.0)
    published = [each.message_id for _, each in world.traced(PublishMessage) if each.topic == topic]
    assert len(published) == len(set(published)) == 10


def test_a_request_that_nobody_can_grant_is_refused() -> None:
    """With the author dead, the top of the tree turns to nobody, and says so."""
    world = World(6, request_timeout=20.0)
    topic = world.create(0)
    world.subscribe(topic, *range(1, 6), wait=5.0)
    world.crash(0)
    world.run(30.0)
    outcome = world.say(3, topic, b"x", wait=40.0)
    assert outcome.error in map(reasons.sentence, (reasons.NO_PUBLISHER_REACHED, reasons.TIMED_OUT))
    assert RequestStatus.TIMED_OUT.name == "TIMED_OUT"


def test_a_request_travels_to_a_listed_publisher_when_the_root_is_none() -> None:
    """The author need not be among those who may publish."""
    world = World(6)
    topic = world.create(0, allowed_publishers=(peer_id(4),))
    world.subscribe(topic, *range(1, 6))
    outcome = world.say(2, topic, b"x")
    assert outcome.error == ""
    assert all(world.data(index, topic) == [b"x"] for index in range(6))
    assert [peer for peer, each in world.traced(PublishMessage) if each.topic == topic] == [
        peer_id(4)
    ]


@pytest.mark.parametrize("options", [{}, ANYONE], ids=["ordered", "open"])
@pytest.mark.parametrize("keep_state", [True, False])
def test_a_subscriber_that_was_away_gets_what_it_missed(
    options: dict[str, None], keep_state: bool
) -> None:
    """Offline for the middle third, it has the complete verified history a minute later."""
    world = World(8, fan_out=2)
    topic = world.create(0, **options)
    world.subscribe(topic, *range(1, 8), wait=5.0)
    for number in range(60):
        if number == 20:
            world.crash(7)
        if number == 40:
            world.network.start(world.host(7), keep_state=keep_state)
            world.wire(range(8))
            world.subscribe(topic, 7, wait=0.0)
        world.publish(topic, number % 3, b"%d" % number, wait=0.5)
    world.run(60.0)
    assert sorted(event.id for event in of(world, 7, topic)) == sorted(
        event.id for event in of(world, 0, topic)
    )
    if not options:
        assert is_chain(of(world, 7, topic))
    history = world.command(7, ReadHistory(topic=topic), wait=20.0).result
    assert isinstance(history, History)
    assert len(history.events) == 60
    assert history.complete


@pytest.mark.parametrize("options", [{}, ANYONE], ids=["ordered", "open"])
def test_a_subscriber_that_went_before_the_first_event_gets_it_all(
    options: dict[str, None],
) -> None:
    """It has kept nothing but the topic, and knows by that since when events concern it."""
    world = World(8, fan_out=2)
    topic = world.create(0, **options)
    world.subscribe(topic, *range(1, 8), wait=5.0)
    world.crash(7)
    for number in range(10):
        world.publish(topic, number % 3, b"%d" % number, wait=0.5)
    world.network.start(world.host(7), keep_state=False)
    world.wire(range(8))
    world.subscribe(topic, 7, wait=0.0)
    for number in range(10, 15):
        world.publish(topic, number % 3, b"%d" % number, wait=0.5)
    world.run(60.0)
    assert sorted(event.id for event in of(world, 7, topic)) == sorted(
        event.id for event in of(world, 0, topic)
    )
    assert len(of(world, 7, topic)) == 15


@pytest.mark.parametrize("options", [{}, ANYONE], ids=["ordered", "open"])
def test_the_last_to_join_can_read_the_whole_history(options: dict[str, None]) -> None:
    """Forwards and backwards, verified, without being given the past as news."""
    world = World(8, fan_out=2, fetch_batch=16)
    topic = world.create(0, **options)
    world.subscribe(topic, *range(1, 7), wait=5.0)
    for number in range(50):
        world.publish(topic, number % 7, b"%d" % number, wait=0.3)
    world.run(5.0)
    world.subscribe(topic, 7, wait=5.0)
    history = world.command(7, ReadHistory(topic=topic), wait=30.0).result
    assert isinstance(history, History)
    assert history.complete
    assert sorted(event.id for event in history.events) == sorted(
        event.id for event in of(world, 0, topic)
    )
    if not options:
        assert is_chain(list(history.events))
    assert world.data(7, topic) == []
    newest = world.command(7, ReadHistory(topic=topic, backwards=True, limit=5), wait=30.0).result
    assert isinstance(newest, History)
    assert newest.events == history.events[-5:][::-1]


def catch_up(world: World, topic: str, *peers: int, wait: float = 30.0) -> None:
    """Let peers subscribe that want all that there ever was."""
    for index in peers:
        world.host(index).handle(Subscribe(topic, since=0.0))
    world.run(wait)


@pytest.mark.parametrize("options", [{}, ANYONE], ids=["ordered", "open"])
def test_a_late_subscriber_that_wants_everything_is_given_everything(
    options: dict[str, None],
) -> None:
    """In the order of the chain where there is one, also while new events come; whoever came later
    and wants what is new is given that alone, although its parent fetches the rest for another."""
    world = World(8, fan_out=1, fetch_batch=16)
    topic = world.create(0, **options)
    world.subscribe(topic, 1, 2, wait=5.0)
    for number in range(50):
        world.publish(topic, number % 3, b"%d" % number, wait=0.3)
    world.run(70.0)
    world.subscribe(topic, 3, 4, 5, 6, wait=10.0)
    catch_up(world, topic, 7, wait=0.5)
    for number in range(50, 60):
        world.publish(topic, number % 3, b"%d" % number, wait=0.3)
    world.run(60.0)
    everything = [b"%d" % number for number in range(60)]
    assert sorted(world.data(7, topic)) == sorted(everything)
    if not options:
        assert world.data(7, topic) == everything
    for index in range(3, 7):
        assert sorted(world.data(index, topic)) == sorted(everything[50:])


def test_a_subscriber_may_want_everything_later() -> None:
    """What it was given stays where it is; the rest follows. (The last event before the first that
    it was given is in its log already, as that one's parent.)"""
    world = World(4)
    topic = world.create(0, **ANYONE)
    for number in range(5):
        world.publish(topic, 0, b"%d" % number)
    world.run(10.0)
    world.subscribe(topic, 3, wait=10.0)
    world.publish(topic, 0, b"new", wait=10.0)
    assert world.data(3, topic) == [b"new"]
    catch_up(world, topic, 3)
    assert world.data(3, topic) == [b"new", b"0", b"1", b"2", b"3"]


def test_who_dies_while_it_catches_up_goes_on_when_it_is_back() -> None:
    """Its log remembers that the whole topic was wanted; events that came first are no end."""
    world = World(4, fetch_batch=4)
    topic = world.create(0, **ANYONE)
    for number in range(40):
        world.publish(topic, 0, b"%d" % number, wait=1.0)
    world.run(70.0)
    catch_up(world, topic, 3, wait=0.0)
    while len(world.data(3, topic)) < 8:
        world.run(0.01)
    world.publish(topic, 0, b"40", wait=0.2)
    world.crash(3)
    assert len(world.data(3, topic)) < 41
    world.network.start(world.host(3), keep_state=False)
    world.wire(range(4))
    world.subscribe(topic, 3, wait=60.0)
    assert sorted(world.data(3, topic)) == sorted(b"%d" % number for number in range(41))


def test_what_the_log_has_deleted_is_not_fetched_again() -> None:
    """Whoever wants all of it has had that."""
    world = World(4)
    world.journal(3)._limit = 5
    topic = world.create(0, **ANYONE)
    catch_up(world, topic, 3, wait=5.0)
    for number in range(10):
        world.publish(topic, 0, b"%d" % number, wait=20.0)
    world.crash(3)
    world.network.start(world.host(3), keep_state=False)
    world.wire(range(4))
    catch_up(world, topic, 3, wait=60.0)
    assert world.data(3, topic) == [b"%d" % number for number in range(10)]


def test_history_comes_from_the_dht_when_no_neighbour_has_it() -> None:
    """All who kept the events are gone; the links and the DHT bring the chain back, with the
    signatures that travelled beside it."""
    world = World(10, store_events=True)
    topic = world.create(0)
    world.subscribe(topic, 1, wait=5.0)
    for number in range(6):
        world.publish(topic, 0, b"%d" % number, wait=3.0)
    last = of(world, 0, topic)[-1]
    world.crash(0, 1)
    world.run(20.0)
    world.subscribe(topic, 5, wait=20.0)
    cid = cids.parse(topic)
    machine, host = world.machine(5), world.host(5)
    machine._missing.fetch(machine.feeds.open[cid], last.id, peer_id(5), world.now, host.effects)
    host.carry_out()
    world.run(20.0)
    history = world.command(5, ReadHistory(topic=topic), wait=60.0).result
    assert isinstance(history, History)
    assert [event.data for event in history.events] == [b"%d" % number for number in range(6)]
    assert not history.missing
    assert not history.complete, "who knows the newest events could not be asked"
    assert history.unsigned == 0


def test_publishing_is_linked_to_what_was_seen_last() -> None:
    """LAST_SEEN, across publishers."""
    world = World(5)
    topic = world.create(0, **ANYONE)
    world.subscribe(topic, *range(1, 5))
    for index in range(5):
        world.publish(topic, index, b"%d" % index)
    assert is_chain(of(world, 3, topic))
    world.host(2).handle(Publish(topic, b"a"))
    world.host(2).handle(Publish(topic, b"b"))
    world.run(2.0)
    assert is_chain(of(world, 4, topic))
