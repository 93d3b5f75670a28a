"""Requests to publish outlive their asker: the next life asks again, and nothing is said twice."""

from pulsarcast_rig import World

from rumormill.core.effects import Published
from rumormill.core.inputs import Publish
from rumormill.core.trace import FailPublish, PublishMessage
from rumormill.protocols.pulsarcast.tree.kept_requests import NOTES
from rumormill.sim.network import peer_id

AUTHOR, ASKER = 0, 3


def notes(world: World, index: int) -> list[str]:
    """The requests that a peer's disk has."""
    return [key for key in world.journal(index)._notes if key.startswith(NOTES)]


def world_with_topic(**changes: float) -> tuple[World, str]:
    """Six peers, of whom one alone may publish."""
    world = World(6, **changes)
    topic = world.create(AUTHOR, allowed_publishers=(peer_id(AUTHOR),), request_to_publish=())
    world.subscribe(topic, *range(6))
    return world, topic


def test_a_request_is_noted_until_it_is_answered() -> None:
    """And not a moment longer: the disk keeps nothing of what is done."""
    world, topic = world_with_topic()
    world.host(ASKER).handle(Publish(topic, b"please", 7))
    assert len(notes(world, ASKER)) == 1
    world.run(2.0)
    assert world.data(AUTHOR, topic) == [b"please"]
    assert notes(world, ASKER) == []


def test_an_asker_that_was_killed_asks_again() -> None:
    """While nobody could publish it was killed; when both are back the event is published, once,
    and whoever counts what became of publications is told."""
    world, topic = world_with_topic()
    world.crash(AUTHOR)
    world.run(0.5)
    world.host(ASKER).handle(Publish(topic, b"please", 7))
    world.run(1.0)
    world.crash(ASKER)
    assert len(notes(world, ASKER)) == 1
    told: list[Published] = []
    world.host(ASKER).receipts = told
    for index in (AUTHOR, ASKER):
        world.network.start(world.host(index))
    world.wire(range(6))
    world.run(2.0)
    world.subscribe(topic, AUTHOR, ASKER, wait=30.0)
    for index in range(6):
        assert world.data(index, topic) == [b"please"]
    assert [(each.number, each.error) for each in told] == [(0, "")]
    assert notes(world, ASKER) == []
    assert world.traced(FailPublish) == []


def test_what_was_granted_before_the_asker_died_is_not_published_again() -> None:
    """It did not hear the answer: its next life is told what became of the request."""
    world, topic = world_with_topic()
    world.host(ASKER).handle(Publish(topic, b"please", 7))
    published = 0
    while not published:
        world.run(0.005)
        said = [peer for peer, each in world.traced(PublishMessage) if each.topic == topic]
        published = len(said)
    world.crash(ASKER)
    assert len(notes(world, ASKER)) == 1, "it has not heard"
    world.network.start(world.host(ASKER))
    world.wire(range(6))
    world.run(2.0)
    world.subscribe(topic, ASKER, wait=30.0)
    said = [peer for peer, each in world.traced(PublishMessage) if each.topic == topic]
    assert len(said) == 1
    assert notes(world, ASKER) == []
    assert world.data(ASKER, topic) == [b"please"]


def test_a_topic_that_is_not_to_be_found_keeps_its_requests_for_another_life() -> None:
    """Who comes back alone cannot ask anybody, and forgets nothing."""
    world, topic = world_with_topic()
    world.crash(AUTHOR)
    world.run(0.5)
    stranger = world.host(ASKER)
    world.unsubscribe(topic, ASKER)
    stranger.handle(Publish(topic, b"please", 7))
    world.run(1.0)
    world.crash(ASKER)
    kept = notes(world, ASKER)
    for key in [key for key in world.journal(ASKER)._notes if key not in kept]:
        del world.journal(ASKER)._notes[key]  # nor does it know the topic
    world.network.start(stranger)
    world.run(60.0)
    assert notes(world, ASKER) == kept
    assert world.traced(FailPublish) == []
