"""A peer that connects again in the same direction, and one that is connected and does not read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from live_nodes import run, until
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.readers import STUCK_PEER

TOPIC = "again"
EVENTS = [b"%d " % number + bytes(10_000) for number in range(300)]
"""More than all windows and buffers on the way take, less than a queue does."""


@asynccontextmanager
async def connected(config: NodeConfig | None = None) -> AsyncIterator[tuple[Node, Node]]:
    """A publisher, and a reader that it has dialled."""
    async with Node(None, config=config) as author, Node(None) as reader:
        await reader.subscribe(TOPIC)
        await author.connect(reader.tickets[0], keep=False)
        await author.wait_until_ready(TOPIC)
        yield author, reader


def stop_reading(reader: Node, peer: Node) -> Callable[[], None]:
    """Let nothing in from a peer's present connection; return what lets it in again."""
    transport = reader._swarm.connections[peer.id]._transport
    assert transport is not None
    transport.pause_reading()
    return transport.resume_reading


async def dial_again(author: Node, reader: Node) -> None:
    """Make a second connection in the direction of the first; wait until both sides use it."""
    ours, theirs = author._swarm.connections, reader._swarm.connections
    first = ours[reader.id], theirs[author.id]
    await author._swarm._dial(reader.id)
    await until(lambda: ours[reader.id] is not first[0], "the author uses the new connection")
    await until(lambda: theirs[author.id] is not first[1], "the reader uses the new connection")
    await author.wait_until_ready(TOPIC)


async def has_kept(reader: Node, count: int) -> None:
    """Wait until a reader's log has so many events."""
    appended = lambda: reader.metrics()["rumormill_log_appended"][""]  # noqa: E731
    await until(lambda: appended() == count, f"the reader keeps {count} events")


def test_what_is_on_its_way_arrives_when_a_connection_is_replaced() -> None:
    """Bytes in buffers take the old connection, messages in the queue the new one; none is lost."""

    async def story() -> None:
        async with connected() as (author, reader):
            go_on = stop_reading(reader, author)
            await author.publish_many(TOPIC, EVENTS)
            assert author.peers[0].queued_messages > 0
            await dial_again(author, reader)
            go_on()
            await has_kept(reader, len(EVENTS))
            history = await reader.history(TOPIC)
            assert sorted(event.data for event in history) == sorted(EVENTS)

    run(story)


def test_a_replaced_connection_is_closed_and_the_new_one_goes_on() -> None:
    """Both sides close the old one after a moment; the peers stay peers and exchange events."""

    async def story() -> None:
        quick = NodeConfig(retire_timeout=0.05)
        async with connected(quick) as (author, reader):
            old = author._swarm.connections[reader.id]
            await dial_again(author, reader)
            await until(lambda: old.closed_because is not None, "the old connection is closed")
            await until(
                lambda: len(author._swarm._all) == len(reader._swarm._all) == 1,
                "one connection is left",
            )
            await author.wait_until_ready(TOPIC)
            receipt = await author.publish(TOPIC, b"hello")
            assert receipt.peers == 1
            await has_kept(reader, 1)
            assert len(author.peers) == len(reader.peers) == 1

    run(story)


def test_a_peer_that_connects_again_and_again_holds_two_connections() -> None:
    """The present one, and the one before it."""

    async def story() -> None:
        async with connected() as (author, reader):
            for _ in range(5):
                await dial_again(author, reader)
            await until(lambda: len(reader._swarm._all) <= 2, "two connections are left")
            await author.publish(TOPIC, b"hello")
            await has_kept(reader, 1)

    run(story)


def test_streams_on_a_spare_connection_go_over_to_the_new_channel() -> None:
    """When the first of two connections is replaced, what comes over the other is still heard."""

    async def story() -> None:
        async with connected() as (author, reader):
            endpoint = author._swarm.own_addresses[0].endpoint
            assert endpoint is not None
            reader._swarm.book.give(author.id, endpoint)
            await reader._swarm._dial(author.id)
            await until(lambda: reader._swarm.spares and author._swarm.spares, "both have a spare")
            spoken = author._driver.channels[reader.id]
            spare = author._swarm.spares[reader.id]
            stream = spare.open_stream(author._driver.protocol_ids, spoken)
            await until(
                lambda: any(
                    each.connection.outbound
                    for each in reader._driver.channels[author.id]._incoming
                ),
                "the reader hears a stream on it",
            )
            await dial_again(author, reader)
            present = reader._driver.channels[author.id]
            over_spare = [each for each in present._incoming if each.connection.outbound]
            assert over_spare
            assert all(each.handler.channel is present for each in over_spare)
            assert stream.protocol

    run(story)


def test_a_peer_that_does_not_read_for_too_long_is_disconnected() -> None:
    """Its queue is given back, which until then it held; the refusal is counted."""

    async def story() -> None:
        async with connected(NodeConfig(slow_peer_limit=0.1)) as (author, reader):
            queued: dict[int, None] = {}

            def gone() -> bool:
                queued.update((peer.queued_bytes, None) for peer in author.peers)
                return not author.peers

            stop_reading(reader, author)
            publishing = asyncio.ensure_future(author.publish_many(TOPIC, EVENTS))
            await until(gone, "the reader is disconnected")
            await publishing
            assert max(queued) > 0
            assert author.refusals[STUCK_PEER] == 1
            assert (await author.publish(TOPIC, b"alone")).peers == 0

    run(story)


def test_a_slow_reader_that_reads_is_not_disconnected() -> None:
    """As long as its queue moves, it may take its time."""

    async def story() -> None:
        async with connected(NodeConfig(slow_peer_limit=1.5)) as (author, reader):
            publishing = asyncio.ensure_future(author.publish_many(TOPIC, EVENTS))
            while reader.metrics()["rumormill_log_appended"][""] < len(EVENTS):
                go_on = stop_reading(reader, author)
                await asyncio.sleep(0.02)
                go_on()
                await asyncio.sleep(0.005)
            await publishing
            assert STUCK_PEER not in author.refusals

    run(story)
