"""A log that changes under a running peer: it is read again, and what is gone comes again."""

from typing import Any

import pytest
from pulsarcast_rig import Lone, World, event_by

from rumormill.core.effects import FromOffset, Load, Published
from rumormill.core.inputs import LogChanged, Publish
from rumormill.core.trace import DeliverMessage
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.history.feed import core_event
from rumormill.sim.journal import Journal
from rumormill.sim.network import peer_id

LAST = 5


def lose(journal: Journal, topic: str, *offsets: int) -> None:
    """Have a disk give up events of a topic, as a repair does: their offsets stay empty."""
    kept = journal._topics[topic]
    for offset in offsets:
        event = kept.events.pop(offset)
        del kept.offsets[event.id], journal._order[topic, event.id]


def told(world: World, **options: Any) -> str:
    """A topic of peer 0's that all follow, in which there are ten events, all of them settled."""
    topic = world.create(0, **options)
    world.subscribe(topic, *range(LAST + 1))
    for number in range(10):
        world.publish(topic, 0, b"%d" % number, wait=0.5)
    world.run(60.0)  # so that all have agreed on them, and nobody compares that time again
    return topic


def stored(world: World, index: int, topic: str) -> list[bytes]:
    """What a peer's disk has, by offset."""
    return [event.data for event in world.journal(index).latest(topic, 1000)]


@pytest.mark.parametrize("index", [0, 1, LAST], ids=["root", "one", "another"])
@pytest.mark.parametrize("publishers", ["author", "anybody"])
def test_what_is_gone_comes_again_from_neighbours(index: int, publishers: str) -> None:
    """Once, at new offsets; nothing else is fetched, and whoever publishes next follows the last.

    Without the peer's reading again, nobody would ever look: all have agreed on that time.
    """
    world = World(LAST + 1)
    options: dict[str, Any] = {} if publishers == "author" else {"allowed_publishers": None}
    topic = told(world, **options)
    before = [stored(world, each, topic) for each in range(LAST + 1)]
    lose(world.journal(index), topic, 3, 4, 9)
    world.run(60.0)
    assert len(stored(world, index, topic)) == 7
    world.host(index).handle(LogChanged())
    world.run(60.0)
    after = stored(world, index, topic)
    assert after[:7] == [*before[index][:3], *before[index][5:9]]
    assert sorted(after[7:]) == [b"3", b"4", b"9"]
    world.publish(topic, 0, b"on", wait=10.0)
    for each in range(LAST + 1):
        assert stored(world, each, topic)[-1] == b"on"
        assert sorted(stored(world, each, topic)[:-1]) == sorted(before[each])
    world.check_tree(topic)


@pytest.mark.parametrize("index", [0, LAST], ids=["root", "another"])
def test_what_a_repair_gave_up_while_a_peer_was_down_comes_again(index: int) -> None:
    """Offsets that nobody has say that something was lost: from there on is compared."""
    world = World(LAST + 1)
    topic = told(world, allowed_publishers=None)
    world.run(3600.0)
    world.publish(topic, 0, b"much later", wait=60.0)
    before = stored(world, index, topic)
    world.crash(index)
    world.run(5.0)
    lose(world.journal(index), topic, 3, 4)
    world.network.start(world.host(index), keep_state=False)
    world.wire(range(LAST + 1))
    world.subscribe(topic, index)
    world.run(90.0)
    after = stored(world, index, topic)
    assert after[:9] == [*before[:3], *before[5:]]
    assert sorted(after[9:]) == [b"3", b"4"]


def test_what_an_import_has_brought_goes_on_to_neighbours() -> None:
    """An event of the topic that only one disk has, of a time on which all have agreed."""
    world = World(LAST + 1)
    topic = told(world, allowed_publishers=None)
    date = dates.iso_at(world.now - 62.0)
    brought = event_by(2, cids.parse(topic), b"brought", date)
    world.journal(1).keep(core_event(brought), world.now)
    world.host(1).handle(LogChanged())
    world.run(120.0)
    for each in range(LAST + 1):
        assert b"brought" in stored(world, each, topic)


def test_a_publication_waits_until_it_is_known_which_event_is_the_last() -> None:
    """It would be linked to one that is gone. Reads that were asked for before count no more."""
    lone = Lone()
    topic = lone.create()
    name = cids.text(topic.cid)
    for number in range(3):
        lone.feed(Publish(name, b"%d" % number, number + 1))
    first, second, third = lone.journal.latest(name, 3)
    assert third.parents == (second.id,)
    lone.slow = True
    lone.feed(LogChanged())
    lone.answer_one()  # as the log was
    lose(lone.journal, name, third.offset)
    again = lone.feed(LogChanged())
    assert FromOffset(0) in [each.query for each in again if isinstance(each, Load)]
    assert not lone.feed(Publish(name, b"next", 9))
    lone.slow = False
    done = lone.commit()
    (published,) = [each for each in done if isinstance(each, Published)]
    assert published.number == 9
    assert published.event is not None
    assert published.event.parents == (second.id,)
    assert [event.data for event in lone.journal.latest(name, 9)] == [b"0", b"1", b"next"]
    assert first.offset + 3 == lone.journal.latest(name, 1)[0].offset


def test_what_retention_has_deleted_is_not_gone() -> None:
    """It is forgotten, and not asked for."""
    world = World(LAST + 1)
    topic = told(world, allowed_publishers=None)
    journal = world.journal(LAST)
    journal._limit = 4
    journal.retain(world.now)
    kept = stored(world, LAST, topic)
    world.host(LAST).handle(LogChanged())
    world.run(60.0)
    assert stored(world, LAST, topic) == kept
    came = [each for peer, each in world.traced(DeliverMessage) if peer == peer_id(LAST)]
    assert len([each for each in came if each.topic == topic]) == 10
