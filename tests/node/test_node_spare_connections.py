"""Two peers that dial each other at once have two connections: one is used, one is a spare."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from live_nodes import run, until
from rumormill.libp2p.caller import Caller
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.transports import dial
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.wire.multiaddr import Multiaddr

TOPIC = "twice"
QUICK = NodeConfig(redial_delay_first=0.01, keep_alive_interval=0.5, retire_timeout=0.2)
IDLE = replace(QUICK, idle_timeout=1.0)


@asynccontextmanager
async def two_connections(config: NodeConfig = QUICK) -> AsyncIterator[tuple[Node, Node]]:
    """Yield two subscribed nodes; the first dialled the second, then the second dialled too."""
    async with Node(None, config=config) as one, Node(None, config=config) as other:
        await one.subscribe(TOPIC)
        await other.subscribe(TOPIC)
        await one.connect(other.tickets[0])
        await other.wait_until_ready(TOPIC)
        await one.wait_until_ready(TOPIC)
        endpoint = Multiaddr.parse(one.tickets[0]).endpoint
        assert endpoint is not None
        other._swarm.book.give(one.id, endpoint)
        await other._swarm._dial(one.id)
        await until(lambda: one._swarm.spares, "the second connection is a spare")
        yield one, other


async def exchanged(one: Node, other: Node) -> list[int]:
    """Publish on both sides; return how many events each has, when both have all."""
    await one.publish(TOPIC, b"one")
    await other.publish(TOPIC, b"other")
    sizes = [0, 0]
    while min(sizes) < 2:
        await asyncio.sleep(0.002)
        sizes = [len(await node.history(TOPIC)) for node in (one, other)]
    return sizes


def test_a_second_connection_disturbs_nobody() -> None:
    """The peer stays one peer with its subscriptions, and messages arrive once."""

    async def scenario() -> None:
        async with two_connections() as (one, other):
            assert [len(one.peers), len(other.peers)] == [1, 1]
            assert one.subscribers(TOPIC) == other.subscribers(TOPIC) == 1
            assert await exchanged(one, other) == [2, 2]

    run(scenario)


def test_a_spare_that_nobody_uses_is_closed_alone() -> None:
    """An idle spare goes; the connection that is used stays."""

    async def scenario() -> None:
        async with two_connections(IDLE) as (one, other):
            used = dict(one._swarm.connections)
            await until(
                lambda: not one._swarm.spares and not other._swarm.spares, "the spare is closed"
            )
            assert one._swarm.connections == used
            assert await exchanged(one, other) == [2, 2]

    run(scenario)


def test_both_connections_go_when_one_is_lost_in_use_and_a_new_one_is_made() -> None:
    """Peers that keep a stream on the lost one would be mute; so all begin again."""

    async def scenario() -> None:
        async with two_connections() as (one, other):
            first: Connection = one._swarm.connections[other.id]
            spare = one._swarm.spares[other.id]
            first.close("cut")
            assert spare.closed_because is not None
            await until(lambda: one.subscribers(TOPIC) == 1, "the peers are connected again")
            await other.wait_until_ready(TOPIC)
            assert one._swarm.connections[other.id] not in {first, spare}
            assert await exchanged(one, other) == [2, 2]

    run(scenario)


def test_nodes_that_dial_each_other_at_once_exchange_everything() -> None:
    """Whichever connection is first at either end, nothing is lost or repeated."""

    async def scenario() -> None:
        async with Node(None) as one, Node(None) as other:
            await one.subscribe(TOPIC)
            await other.subscribe(TOPIC)
            await asyncio.gather(one.connect(other.tickets[0]), other.connect(one.tickets[0]))
            await one.wait_until_ready(TOPIC)
            await other.wait_until_ready(TOPIC)
            assert await exchanged(one, other) == [2, 2]

    for _ in range(5):
        run(scenario)


def test_a_dial_back_under_the_peers_own_id_takes_nobodys_place() -> None:
    """As js and rust make it when we ask them to: the connection that there is stays in use."""

    async def scenario() -> None:
        async with Node(None, config=QUICK) as one, Node(None, config=QUICK) as other:
            await one.subscribe(TOPIC)
            await other.subscribe(TOPIC)
            await other.connect(one.tickets[0])
            await one.wait_until_ready(TOPIC)
            await other.wait_until_ready(TOPIC)
            used = one._swarm.connections[other.id]
            one._swarm.dialling_back[other.id] = None
            caller = Caller(other._swarm)
            caller.key = other._swarm.key
            call = caller.connection(one.id)
            endpoint = Multiaddr.parse(one.tickets[0]).endpoint
            assert endpoint is not None
            await dial(endpoint, call)
            await call.ready_or_failed
            await until(lambda: call.closed_because, "the call is over")
            assert one._swarm.connections == {other.id: used}
            assert not one._swarm.spares
            assert await exchanged(one, other) == [2, 2]

    run(scenario)
