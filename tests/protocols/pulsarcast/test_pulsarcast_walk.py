"""A topic's history beyond the log: from neighbours, then by links through the DHT, bounded, and
with what is missing named."""

import pytest
from pulsarcast_rig import World

from rumormill.overlay.kademlia.validators import content_key
from rumormill.protocols.pulsarcast.commands import History, ReadHistory
from rumormill.protocols.pulsarcast.format import cid as cids

COUNT = 12


def told() -> tuple[World, str, list[bytes]]:
    """A topic whose events are in the DHT, and in the logs of two peers; their CIDs in order."""
    world = World(10, store_events=True)
    topic = world.create(0)
    world.subscribe(topic, 1, wait=5.0)
    for number in range(COUNT):
        world.publish(topic, 0, b"%d" % number, wait=3.0)
    return world, topic, [event.id for event in world.events[0] if event.topic == topic]


@pytest.fixture
def orphaned() -> tuple[World, str, list[bytes]]:
    """The same, and everybody who followed the topic is dead."""
    world, topic, events = told()
    world.crash(0, 1)
    world.run(30.0)
    return world, topic, events


def read(world: World, reader: int, topic: str, **wish: object) -> History:
    wish = {"bare": True, **wish}
    history = world.command(reader, ReadHistory(topic=topic, **wish), wait=200.0).result  # type: ignore[arg-type]
    assert isinstance(history, History)
    return history


def kept(world: World, reader: int, topic: str) -> int:
    return sum(each == topic for each, _ in world.journal(reader)._order)


def test_from_the_last_event_everything_is_fetched_through_the_dht(
    orphaned: tuple[World, str, list[bytes]],
) -> None:
    """It is in the log then; that nobody could be asked for newer ones is said."""
    world, topic, events = orphaned
    history = read(world, 5, topic, start=(cids.text(events[-1]),))
    assert (history.fetched, history.missing, history.bounded) == (COUNT, (), False)
    assert history.events == ()
    assert kept(world, 5, topic) == COUNT
    assert not history.complete
    again = read(world, 5, topic, bare=False)
    assert [event.id for event in again.events] == events
    assert again.fetched == 0


def test_a_bound_holds_and_what_is_beyond_it_is_named(
    orphaned: tuple[World, str, list[bytes]],
) -> None:
    world, topic, events = orphaned
    history = read(world, 5, topic, start=(events[-1],), most=4)
    assert (history.fetched, history.bounded) == (4, True)
    assert history.missing == (events[-5],)
    further = read(world, 5, topic, most=4)
    assert (further.fetched, further.missing) == (4, (events[-9],))
    rest = read(world, 5, topic)
    assert (rest.fetched, rest.missing, rest.bounded) == (COUNT - 8, (), False)


def test_links_are_followed_back_to_a_date_and_no_further(
    orphaned: tuple[World, str, list[bytes]],
) -> None:
    world, topic, events = orphaned
    dates = {each.id: each.created for each in world.events[0]}
    since = dates[events[6]]
    assert since is not None
    history = read(world, 5, topic, start=(events[-1],), since=since)
    assert history.missing == ()
    assert 6 <= history.fetched <= 7, "the parent of the oldest may have been looked at"


def test_what_nobody_has_is_named(orphaned: tuple[World, str, list[bytes]]) -> None:
    """One event has vanished from the DHT: what is behind it comes, what is before it does not."""
    world, topic, events = orphaned
    lost = events[5]
    for index in range(2, 10):
        records = world.machine(index).dht.records
        if records.held(content_key(lost)) is not None:
            records._drop(content_key(lost))
    unknown = cids.of(b"no event")
    history = read(world, 5, topic, start=(events[-1], unknown))
    assert history.missing == (unknown, lost)
    assert history.fetched == COUNT - 6
    assert not history.complete
    rest = read(world, 6, topic, start=(events[4],))
    assert (rest.fetched, rest.missing) == (5, ())


def test_neighbours_give_a_bounded_history_too() -> None:
    """The author is there; what is fetched stops at the bound, up to one answer beyond it."""
    world, topic, events = told()
    some = read(world, 7, topic, most=3)
    assert some.bounded
    assert 3 <= some.fetched <= COUNT
    history = read(world, 7, topic)
    assert history.complete
    assert some.fetched + history.fetched == COUNT
    assert history.answered >= 1
    assert kept(world, 7, topic) == len(events)
