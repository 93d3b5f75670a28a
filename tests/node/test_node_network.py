"""Networks of live nodes: many of them, restarts, lost sockets, bursts and slow subscribers."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run, take, until
from rumormill.core.trace import UndeliverableMessage
from rumormill.log.model import Durability, StoreConfig
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.subscription import Overflow
from trace_log import TraceLog

QUICK = NodeConfig(redial_delay_first=0.05, stream_retry_first=0.05)
"""What is lost is made again soon: the tests do not wait longer than they must."""


def links_of(node: Node, topic: str) -> dict[bytes, None]:
    """The peers to which a node forwards a topic's messages at once."""
    machine: Any = node._driver.protocol
    links: dict[bytes, None] = machine.mesh.links.get(topic, {})
    return links


def in_one_mesh(nodes: list[Node], topic: str) -> bool:
    """Whether a message of the first node can reach all others over mesh links."""
    by_id = {node.id: node for node in nodes}
    reached = {nodes[0].id: None}
    waiting = [nodes[0]]
    while waiting:
        for peer in links_of(waiting.pop(), topic):
            if peer not in reached:
                reached[peer] = None
                waiting.append(by_id[peer])
    return len(reached) == len(nodes)


@contextlib.asynccontextmanager
async def network(count: int, links: int, seed: int) -> AsyncIterator[list[Node]]:
    """Nodes with default settings, each connected to a few random others, in one piece."""
    rng = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(None)) for _ in range(count)]
        for number, node in enumerate(nodes[1:], 1):
            for other in rng.sample(nodes[:number], min(links, number)):
                await node.connect(other.tickets[0])
        yield nodes


async def everybody_gets_everything(count: int, messages: int, links: int) -> None:
    """All subscribe, all publish their share, and all get all of it, once."""
    async with network(count, links, seed=count) as nodes:
        subscriptions = [await node.subscribe("news", buffer=messages) for node in nodes]
        await asyncio.gather(*(node.wait_until_ready("news", peers=links) for node in nodes[1:]))
        await until(lambda: in_one_mesh(nodes, "news"), "one mesh reaches every node")
        wanted = [f"message {number}".encode() for number in range(messages)]
        for start in range(0, messages, count):
            await asyncio.gather(
                *(
                    node.publish("news", data)
                    for node, data in zip(nodes, wanted[start : start + count], strict=False)
                )
            )
        received = await asyncio.gather(*(take(each, messages) for each in subscriptions))
        for events in received:
            assert sorted(events) == sorted(wanted)
        assert all(each.waiting == 0 for each in subscriptions)
        for node in nodes:
            assert "queue-full" not in node.refusals


def test_fifty_nodes_deliver_a_thousand_messages_to_everybody() -> None:
    """50 nodes in one process with default settings deliver 100 % of 1,000 messages."""
    run(lambda: everybody_gets_everything(50, 1000, links=6), patience=600)


@contextlib.asynccontextmanager
async def two_nodes(config: NodeConfig | None = None) -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes that are not connected yet, and that no membership connects: both might dial at
    once, and would have two connections."""
    async with (
        Node(None, config=config, members=False) as alice,
        Node(None, config=config, members=False) as bob,
    ):
        yield alice, bob


async def joined(alice: Node, bob: Node, topic: str) -> Any:
    """Connect two nodes over a topic to which the second subscribes; return its subscription."""
    events = await bob.subscribe(topic)
    await alice.connect(bob.tickets[0])
    await alice.wait_until_ready(topic)
    return events


def the_same_connection(alice: Node, bob: Node) -> bool:
    """Whether both ends hold one connection, and it is the same one."""
    ours: list[Any] = list(alice._swarm._all)
    theirs: list[Any] = list(bob._swarm._all)
    return (
        len(ours) == len(theirs) == 1
        and ours == list(alice._swarm.connections.values())
        and theirs == list(bob._swarm.connections.values())
        and ours[0]._transport.get_extra_info("sockname")
        == theirs[0]._transport.get_extra_info("peername")
    )


def is_settled(node: Node) -> bool:
    """Whether a node holds the connection to its one peer, a spare at most, and no more."""
    swarm = node._swarm
    known = [*swarm.connections.values(), *swarm.spares.values()]
    return len(swarm.connections) == 1 and sorted(map(id, swarm._all)) == sorted(map(id, known))


def test_two_nodes_that_dial_each_other_at_once_are_one_peer_to_each_other() -> None:
    """Both dials succeed, a second connection is no second peer, and every message comes once."""

    async def story() -> None:
        for _ in range(8):
            async with two_nodes() as (alice, bob):
                at_alice, at_bob = await alice.subscribe("to alice"), await bob.subscribe("to bob")
                await asyncio.gather(alice.connect(bob.tickets[0]), bob.connect(alice.tickets[0]))
                await until(lambda: is_settled(alice) and is_settled(bob), "nothing else is left")
                await alice.wait_until_ready("to bob")
                await bob.wait_until_ready("to alice")
                for number in range(3):
                    await alice.publish("to bob", b"%d" % number)
                    await bob.publish("to alice", b"%d" % number)
                assert await take(at_bob, 3) == await take(at_alice, 3) == [b"0", b"1", b"2"]
                assert len(alice.peers) == len(bob.peers) == 1
                assert len(alice._driver.channels) == len(bob._driver.channels) == 1

    run(story)


def test_a_peer_that_restarts_is_found_again(tmp_path: Path) -> None:
    """The same home and port: the same peer. The link is made again without being asked for."""

    async def story() -> None:
        home = tmp_path / "bob"
        async with Node(home) as first:
            listen = str(first._swarm.own_addresses[0])
            ticket = first.tickets[0]
        async with Node(None, config=QUICK) as alice:
            at_alice = await alice.subscribe("news")
            for life in range(3):
                async with Node(home, listen=listen) as bob:
                    assert bob.tickets == [ticket]
                    if life == 0:
                        await alice.connect(ticket)
                    await bob.wait_until_ready("news")
                    said = f"life {life}".encode()
                    await bob.publish("news", said)
                    assert await take(at_alice, 1) == [said]
                await until(lambda: not alice.peers, "the loss is noticed")

    run(story)


def test_a_connection_that_breaks_is_made_again_and_nothing_of_it_stays() -> None:
    """An abrupt end, as a partition or a killed process makes it, from either side."""

    async def story() -> None:
        async with two_nodes(QUICK) as (alice, bob):
            events = await joined(alice, bob, "news")
            for number in range(6):
                victim = alice if number % 2 else bob
                (connection,) = victim._swarm.connections.values()
                transport: Any = connection._transport
                transport.abort()
                await until(lambda lost=connection: lost.closed_because, "the loss is noticed")
                await until(lambda: the_same_connection(alice, bob), "they are connected again")
                await alice.wait_until_ready("news")
                await bob.wait_until_ready("news", peers=0)
                said = f"{number}".encode()
                await alice.publish("news", said)
                assert await take(events, 1) == [said]
                assert len(alice._driver.channels) == 1
                assert len(alice._driver.protocol.peers) == 1

    run(story)


@pytest.mark.parametrize("whose", ["alice", "bob"])
def test_an_rpc_stream_that_is_lost_alone_is_opened_again(whose: str) -> None:
    """The connection lives on; both sides begin anew, and know of each other's topics again."""

    async def story() -> None:
        async with two_nodes(QUICK) as (alice, bob):
            events = await joined(alice, bob, "news")
            back = await alice.subscribe("back")
            await bob.wait_until_ready("back")
            (connection,) = alice._swarm.connections.values()
            loser, other = (alice, bob) if whose == "alice" else (bob, alice)
            for number in range(3):
                channel = loser._driver.channels[other.id]
                stream: Any = channel._stream
                stream.reset()
                assert channel._stream is None
                await until(
                    lambda: not alice.subscribers("news") or not bob.subscribers("back"),
                    "the loss is noticed",
                )
                await alice.wait_until_ready("news")
                await bob.wait_until_ready("back")
                said = f"{number}".encode()
                await alice.publish("news", said)
                await bob.publish("back", said)
                assert await take(events, 1) == await take(back, 1) == [said]
            assert list(alice._swarm.connections.values()) == [connection]
            assert connection.closed_because is None
            await until(lambda: connection.session.streams == 2, "two streams are left")

    run(story)


def test_closing_a_node_sends_what_it_has_published() -> None:
    """More than windows and socket buffers hold: the rest is sent while the node closes."""

    async def story() -> None:
        async with Node(None) as bob:
            async with Node(None) as alice:
                events = await joined(alice, bob, "bulk")
                noise = await alice.subscribe("noise")
                await bob.wait_until_ready("noise")
                talk = [bob.publish("noise", bytes(1000)) for _ in range(200)]
                await asyncio.gather(*talk)
                channel = alice._driver.channels[bob.id]
                data: list[bytes] = []
                while not channel.queued_messages:  # `run` bounds how long
                    burst = [f"{len(data) + n} ".encode() * 60_000 for n in range(3)]
                    data += burst
                    await alice.publish_many("bulk", burst)
            noise.close()
            assert await take(events, len(data)) == data
            assert not bob.peers

    run(story)


@pytest.mark.parametrize(
    "config",
    [
        NodeConfig(),
        NodeConfig(queue_messages=20, queue_bytes=64 << 10),
    ],
    ids=["default", "small-queues"],
)
def test_a_burst_of_5000_loses_nothing(config: NodeConfig) -> None:
    """All at once: publishing waits for the peer instead of dropping."""

    async def story() -> None:
        async with two_nodes(config) as (alice, bob):
            events = await joined(alice, bob, "burst")
            data = [f"{number:04} ".encode() + bytes(1000) for number in range(5000)]
            publishing = asyncio.gather(*(alice.publish("burst", each) for each in data))
            received = await take(events, len(data))
            receipts = await publishing
            assert sorted(received) == data
            assert sorted(receipt.offset for receipt in receipts) == list(range(5000))
            assert not alice.refusals

    run(story)


def test_a_burst_through_a_relay_loses_nothing() -> None:
    """The relay has to forward as fast as it is told."""

    async def story() -> None:
        async with two_nodes() as (alice, carol), Node(None) as relay:
            at_relay = await relay.subscribe("burst", buffer=4)
            at_carol = await carol.subscribe("burst")
            await alice.connect(relay.tickets[0])
            await carol.connect(relay.tickets[0])
            await alice.wait_until_ready("burst")
            await until(lambda: carol.id in links_of(relay, "burst"), "the relay forwards to Carol")
            data = [f"{number:04} ".encode() + bytes(500) for number in range(3000)]
            await asyncio.gather(*(alice.publish("burst", each) for each in data))
            assert sorted(await take(at_carol, len(data))) == data
            assert sorted(await take(at_relay, len(data))) == data
            assert not relay.refusals

    run(story)


def test_a_log_that_cannot_keep_up_slows_its_peers_down_and_loses_nothing(tmp_path: Path) -> None:
    """What waits for the disk is bounded: the peer's window stays closed meanwhile."""

    async def story() -> None:
        narrow = StoreConfig(queue_events=4, queue_bytes=100_000, max_event_bytes=100_000)
        async with Node(None) as alice, Node(tmp_path, store=narrow) as bob:
            events = await joined(alice, bob, "bulk")
            data = [f"{number:04} ".encode() + bytes(60_000) for number in range(600)]
            publishing = asyncio.gather(*(alice.publish("bulk", each) for each in data))
            journal, held, most = bob._journal, False, 0

            async def watch() -> None:
                nonlocal held, most
                while (info := bob._log.topic("bulk")) is None or info.next_offset < len(data):
                    held = held or bool(bob._driver.intake._held)
                    most = max(most, journal._waiting_bytes)
                    await asyncio.sleep(0)

            watching = asyncio.ensure_future(watch())
            assert sorted(await take(events, len(data))) == data
            await asyncio.gather(publishing, watching)
            assert held, "the log kept up, so nothing was shown"
            assert most < (8 << 20) + (1 << 20)
            assert journal.lost == 0
            assert not bob._driver.intake._held

    run(story)


@pytest.mark.parametrize("overflow", list(Overflow))
@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.FSYNC])
def test_a_slow_subscriber_gets_what_it_chose(
    overflow: Overflow, durability: Durability, tmp_path: Path
) -> None:
    """Catching up loses nothing; dropping keeps the newest or the oldest, and counts the rest."""

    async def story() -> None:
        log = TraceLog()
        home = tmp_path / "bob" if durability is Durability.FSYNC else None
        async with (
            Node(None) as alice,
            Node(home, durability=durability, observers=[log]) as bob,
        ):
            slow = await bob.subscribe("news", buffer=16, overflow=overflow)
            quick = await joined(alice, bob, "news")
            data = [f"{number:03}".encode() for number in range(300)]
            for each in data:
                await alice.publish("news", each)
            assert await take(quick, len(data)) == data
            assert slow.waiting <= 16
            expected = {
                Overflow.CATCH_UP: data,
                Overflow.DROP_OLDEST: data[-16:],
                Overflow.DROP_NEWEST: data[:16],
            }[overflow]
            assert await take(slow, len(expected)) == expected
            assert slow.dropped == len(data) - len(expected)
            await alice.publish("news", b"last")
            assert await take(slow, 1) == [b"last"]
        assert len(log.of(UndeliverableMessage)) == len(data) - len(expected)

    run(story)


def test_catching_up_while_events_arrive_repeats_and_skips_nothing() -> None:
    """A subscription that falls behind again and again sees every offset once, in order."""

    async def story() -> None:
        async with two_nodes() as (alice, bob):
            quick = await joined(alice, bob, "news")
            slow = await bob.subscribe("news", buffer=3)
            total = 1500

            async def publish() -> None:
                for number in range(total):
                    await alice.publish("news", f"{number}".encode())

            publishing = asyncio.ensure_future(publish())
            offsets = [(await anext(slow)).offset for _ in range(total)]
            assert offsets == list(range(total))
            assert slow.dropped == 0
            await publishing
            assert len(await take(quick, total)) == total

    run(story)
