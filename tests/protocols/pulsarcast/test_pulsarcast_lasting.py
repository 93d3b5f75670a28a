"""What is in the DHT stays: over restarts of all holders, days without the author, and churn."""

from pulsarcast_rig import World

from rumormill.core.event import Event
from rumormill.overlay.kademlia.config import HOUR, KademliaConfig
from rumormill.overlay.kademlia.validators import content_key
from rumormill.protocols.pulsarcast.commands import FetchEvent, ShowTopic
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor

DHT = KademliaConfig(
    alpha=2, paths=1, k=4, replicate_interval=HOUR, refresh_interval=HOUR, upkeep_interval=600.0
)
"""Few holders, and little to do in quiet hours."""
SLOW = {"refresh_interval": 600.0, "max_rendezvous_interval": 7200.0}


def published(count: int) -> tuple[World, str, bytes]:
    """A network in which a topic's only event has got into the DHT."""
    world = World(count, store_events=True, kademlia=DHT, **SLOW)
    topic = world.create(0)
    world.publish(topic, 0, b"lasting", wait=10.0)
    (event,) = [each for each in world.events[0] if each.topic == topic]
    return world, topic, event.id


def holders(world: World, cid: bytes) -> list[int]:
    key, found = content_key(cid), []
    for index, host in enumerate(world.network.hosts):
        if host.up and world.machine(index).dht.records.get(key, world.now) is not None:
            found.append(index)
    return found


def restart(world: World, *peers: int) -> None:
    """Let peers come back with what is on their disks, and nothing else."""
    for index in peers:
        world.network.start(world.host(index), keep_state=False)
    world.wire([index for index, host in enumerate(world.network.hosts) if host.up])
    world.run(30.0)


def assert_found(world: World, reader: int, topic: str, event: bytes) -> None:
    """Somebody gets the event and its topic."""
    found = world.command(reader, FetchEvent(event=event), wait=60.0)
    assert isinstance(found.result, Event), found.error
    assert found.result.data == b"lasting"
    shown = world.command(reader, ShowTopic(topic=topic), wait=60.0)
    assert isinstance(shown.result, TopicDescriptor), shown.error


def test_records_outlive_a_restart_of_all_holders_without_the_author() -> None:
    """Everybody is killed at the same moment; all but the author come back."""
    world, topic, event = published(8)
    before = holders(world, event)
    assert len(before) >= 4
    world.crash(*range(8))
    restart(world, *range(1, 8))
    assert holders(world, event) == [index for index in before if index]
    for reader in range(1, 8):
        assert_found(world, reader, topic, event)


def test_records_outlive_a_week_in_which_nobody_was_there() -> None:
    world, topic, event = published(6)
    world.crash(*range(6))
    world.run(7 * 24 * HOUR)
    restart(world, *range(1, 6))
    world.run(40 * HOUR)
    assert_found(world, 3, topic, event)


def test_an_author_that_comes_back_puts_its_events_and_topics_again() -> None:
    """All holders have lost their disks; the author's has what it published."""
    world, topic, event = published(6)
    world.crash(*range(6))
    for index in range(1, 6):
        world.journal(index).records.clear()
    restart(world, *range(6))
    assert holders(world, event) == [0]
    world.run(23 * HOUR)
    world.crash(0)
    world.run(60.0)
    assert_found(world, 4, topic, event)


def test_holders_put_records_again_and_they_move_to_who_is_closest_now() -> None:
    """The author is gone for four lifetimes of a record, and the first holders one by one."""
    world, topic, event = published(16)
    first = holders(world, event)
    world.crash(0)
    for gone in first:
        if gone:
            world.crash(gone)
            world.run(3 * HOUR)
    assert holders(world, event)
    world.run(4 * 36 * HOUR)
    now = holders(world, event)
    assert len(now) >= 4
    assert not set(now) & set(first)
    reader = next(index for index, host in enumerate(world.network.hosts) if host.up)
    assert_found(world, reader, topic, event)


def test_without_replication_records_end_with_their_author() -> None:
    """The cost can be saved: then nothing is put again but by who published it."""
    cheap = KademliaConfig(
        alpha=2, paths=1, k=4, refresh_interval=HOUR, upkeep_interval=600.0, durable=False
    )
    world = World(6, store_events=True, kademlia=cheap, **SLOW)
    topic = world.create(0)
    world.publish(topic, 0, b"passing", wait=10.0)
    (event,) = [each for each in world.events[0] if each.topic == topic]
    assert holders(world, event.id)
    assert not any(world.journal(index).records for index in range(6))
    world.crash(0)
    world.run(38 * HOUR)
    assert holders(world, event.id) == []
    assert cids.parse(topic)
