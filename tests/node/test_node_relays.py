"""Nodes that reach each other through a relay: places, circuits, their limits, and the way out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from live_nodes import run, take, until
from rumormill.core.errors import LocalError
from rumormill.libp2p.circuit import HOP, MAX_MESSAGE_BYTES, Hop, HopMessage, Status
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dialogue import begin
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.sync.config import SyncConfig
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr

TOPIC = "news"
FRIENDLY = NodeConfig(relay_friends=("*",))


def circuit_ticket(node: Node) -> str:
    """A ticket that leads through a relay."""
    return next(ticket for ticket in node.tickets if "/p2p-circuit" in ticket)


async def has_place(node: Node) -> None:
    """Wait until a node can be reached through a relay."""
    await until(lambda: "/p2p-circuit" in "".join(node.tickets), "there is a place at the relay")


@asynccontextmanager
async def through_relay(
    config: NodeConfig | None = None, **options: Any
) -> AsyncIterator[tuple[Node, Node, Node]]:
    """A relay, a node that has a place there, and one that has reached it through the relay."""
    alone: dict[str, Any] = {"members": False, **options}
    async with (
        Node(None, be_relay=True, config=config, **alone) as relay,
        Node(None, be_relay=True, relays=relay.tickets, **alone) as hidden,
        Node(None, **alone) as visitor,
    ):
        await has_place(hidden)
        await visitor.connect(circuit_ticket(hidden))
        yield relay, hidden, visitor


def way(node: Node, other: Node) -> Connection:
    """The connection that a node uses for another."""
    return node._swarm.connections[other.id]


def test_a_ticket_through_a_relay_is_enough() -> None:
    """The connection is from end to end, both ways, and says through whom it goes."""

    async def story() -> None:
        async with through_relay() as (relay, hidden, visitor):
            ends = {str(hidden.id): hidden, str(visitor.id): visitor}
            events = await hidden.subscribe(TOPIC)
            answers = await visitor.subscribe("answers")
            for node in ends.values():
                other = next(each for each in ends.values() if each is not node)
                shown = next(peer for peer in node.peers if peer.id == other.id)
                assert shown.address.endswith(f"/p2p/{relay.id}/p2p-circuit")
                assert way(node, other).limited
            await visitor.wait_until_ready(TOPIC)
            receipt = await visitor.publish(TOPIC, b"hello")
            assert receipt.peers == 1
            assert await take(events, 1) == [b"hello"]
            await hidden.wait_until_ready("answers")
            await hidden.publish("answers", bytes(20_000))
            assert await take(answers, 1) == [bytes(20_000)]
            assert relay.metrics()["rumormill_relay_bytes"][""] > 20_000
            assert relay.metrics()["rumormill_relay"]["circuits"] == 1
            assert relay.metrics()["rumormill_relay"]["reservations"] == 1
            shown = hidden.metrics()["rumormill_connections_by_kind"]
            assert shown == {"direct": 1, "punched": 0, "relayed": 0, "relayed-limited": 1}

    run(story)


def test_no_mesh_through_a_limited_relay_and_everything_arrives() -> None:
    """What others publish is heard of by gossip and asked for, a message once; what the peers
    themselves publish is sent."""

    async def story() -> None:
        async with through_relay() as (_, hidden, visitor), Node(None, members=False) as author:
            events = await hidden.subscribe(TOPIC)
            await visitor.create_topic(TOPIC)
            await visitor.wait_until_ready(TOPIC)
            await author.connect(visitor.tickets[0])
            await author.wait_until_ready(TOPIC)
            said = [b"%d" % number for number in range(20)]
            for each in said:
                await author.publish(TOPIC, each)
            assert sorted(await take(events, 20)) == sorted(said)
            for node in (hidden, visitor):
                links = node._driver.machine.view().links["mesh"][TOPIC]
                assert set(links).isdisjoint({hidden.id, visitor.id})

    run(story)


def test_a_relay_without_limits_is_part_of_the_mesh() -> None:
    """Friends' circuits are connections like any other."""

    async def story() -> None:
        async with through_relay(FRIENDLY) as (_, hidden, visitor):
            await hidden.create_topic(TOPIC)
            await visitor.create_topic(TOPIC)
            assert not way(hidden, visitor).limited
            mesh = lambda node: node._driver.machine.view().links["mesh"].get(TOPIC, ())  # noqa: E731
            await until(lambda: visitor.id in mesh(hidden), "they are linked")
            await until(lambda: hidden.id in mesh(visitor), "both of them")

    run(story)


@pytest.mark.parametrize("protocol", ["floodsub", "pulsarcast", "radius"])
def test_every_protocol_works_through_a_relay(protocol: str) -> None:
    """Those that have no mesh send over it what they send."""

    async def story() -> None:
        async with through_relay(protocol=protocol, members=True) as (_, hidden, visitor):
            topic = (await visitor.create_topic(TOPIC)).name
            events = await hidden.subscribe(topic)
            await visitor.wait_until_ready(topic)
            await visitor.publish(topic, b"hello")
            assert await take(events, 1) == [b"hello"]

    run(story)


def test_a_circuit_ends_with_its_bytes_and_the_rest_arrives_all_the_same() -> None:
    """The peers meet again through another circuit, and sync brings what was cut off."""

    async def story() -> None:
        config = NodeConfig(relay_circuit_bytes=64_000)
        soon = SyncConfig(interval=0.5, settle=0.1)
        async with through_relay(config, members=True, sync=soon) as (relay, hidden, visitor):
            events = await hidden.subscribe(TOPIC)
            await visitor.wait_until_ready(TOPIC)
            said = [bytes([number]) * 10_000 for number in range(12)]
            for each in said:
                await visitor.publish(TOPIC, each)
            assert sorted(await take(events, 12)) == sorted(said)
            assert relay.refusals["relay-circuit-out-of-bytes"] >= 1

    run(story)


def test_a_circuit_ends_with_its_time() -> None:
    """However little it has carried."""

    async def story() -> None:
        config = NodeConfig(relay_circuit_seconds=1.0)
        async with through_relay(config) as (relay, hidden, visitor):
            visitor._swarm._wanted.clear()
            gone = lambda: visitor.id not in hidden._swarm.connections  # noqa: E731
            await until(gone, "the circuit has ended")
            assert relay.refusals["relay-circuit-out-of-time"] == 1
            assert relay._reach.relay is not None
            assert relay._reach.relay.reservations.circuits == 0

    run(story)


def test_a_direct_connection_takes_the_place_of_a_relayed_one_with_its_queue() -> None:
    """What waited for the relay goes straight there, once each; the circuit ends."""

    async def story() -> None:
        async with through_relay(FRIENDLY) as (relay, hidden, visitor):
            events = await hidden.subscribe(TOPIC)
            await visitor.wait_until_ready(TOPIC)
            old = way(hidden, visitor)
            assert old._transport is not None
            old._transport.pause_reading()
            said = [b"%d " % number + bytes(10_000) for number in range(300)]
            await visitor.publish_many(TOPIC, said)
            queued = next(peer for peer in visitor.peers if peer.id == hidden.id).queued_messages
            assert queued > 0
            endpoint = Multiaddr.parse(hidden.tickets[0]).endpoint
            assert endpoint is not None
            assert not endpoint.relay
            visitor._swarm.book.give(hidden.id, endpoint)
            await visitor._swarm.dial(hidden.id, direct=True)
            await until(lambda: not way(hidden, visitor).relay, "they are connected")
            old._transport.resume_reading()
            assert sorted(await take(events, 300)) == sorted(said)
            assert relay._reach.relay is not None
            reservations = relay._reach.relay.reservations
            await until(lambda: reservations.circuits == 0, "the circuit has ended")
            assert not way(visitor, hidden).relay

    run(story)


def test_there_is_no_moment_without_a_way_to_the_peer() -> None:
    """What is published while the connection moves has somebody to go to, and arrives."""

    async def story() -> None:
        async with through_relay(sync=False) as (_, hidden, visitor):
            events = await hidden.subscribe(TOPIC)
            await visitor.wait_until_ready(TOPIC)
            endpoint = Multiaddr.parse(hidden.tickets[0]).endpoint
            assert endpoint is not None
            visitor._swarm.book.give(hidden.id, endpoint)
            dialling = asyncio.ensure_future(visitor._swarm.dial(hidden.id, direct=True))
            said = []
            while not (dialling.done() and len(said) % 50 == 49):
                said.append(b"%d" % len(said))
                assert (await visitor.publish(TOPIC, said[-1])).peers == 1
            assert sorted(await take(events, len(said))) == sorted(said)
            assert not way(visitor, hidden).relay

    run(story)


def test_a_relayed_connection_does_not_take_the_place_of_a_direct_one() -> None:
    """It is a spare, in whichever direction it was made, and its end is nobody's."""

    async def story() -> None:
        async with through_relay() as (_, hidden, visitor):
            endpoint = Multiaddr.parse(hidden.tickets[0]).endpoint
            assert endpoint is not None
            visitor._swarm.book.give(hidden.id, endpoint)
            direct = await visitor._swarm.dial(hidden.id, direct=True)
            circuit = Multiaddr.parse(circuit_ticket(hidden)).endpoint
            assert circuit is not None
            again = await visitor._swarm.dial_at(hidden.id, circuit)
            assert isinstance(again, Connection)
            assert way(visitor, hidden) is direct
            assert visitor._swarm.spares[hidden.id] is again
            again.abort("the relay is gone")
            await asyncio.sleep(0.05)
            assert way(visitor, hidden) is direct
            assert way(hidden, visitor).closed_because is None

    run(story)


def test_a_relay_that_comes_back_is_asked_again() -> None:
    """A place that is lost is not told any more, and told again when there is one."""

    async def story() -> None:
        relay = Node(None, be_relay=True, members=False)
        await relay.start()
        port = Multiaddr.parse(relay.tickets[0]).endpoint.port  # type: ignore[union-attr]
        key = relay.identity.key
        async with Node(None, relays=relay.tickets, members=False) as hidden:
            await has_place(hidden)
            await relay.close()
            await until(lambda: len(hidden.tickets) == 1, "the place is gone")
            relay = Node(None, be_relay=True, members=False, listen=f"/ip4/127.0.0.1/tcp/{port}")
            await relay.start()
            assert relay.identity.key != key
            problem = lambda: "".join(hidden._reach.reserving.problems.values())  # noqa: E731
            await until(problem, "another node at that address is not taken for the relay")
            await relay.close()

    run(story)


def test_auto_finds_a_relay_among_peers() -> None:
    """Whoever offers to be one; peers that are connected hear of the address."""

    async def story() -> None:
        async with (
            Node(None, be_relay=True, members=False) as relay,
            Node(None, relays=["auto"], members=False) as hidden,
            Node(None, members=False) as friend,
        ):
            await friend.connect(hidden.tickets[0])
            await hidden.connect(relay.tickets[0])
            await has_place(hidden)
            known = friend._swarm.book
            told = lambda: any(each.relay for each in known.endpoints(hidden.id))  # noqa: E731
            await until(told, "a peer hears of the new address")

    run(story)


def _no_talk_in(connections: tuple[Connection, ...]) -> bool:
    return not any(each.streams_of(HOP) for each in connections)


async def ask(node: Node, relay: Node, message: HopMessage) -> HopMessage:
    """Say something to a relay; return the answer."""
    connection = node._swarm.connections[relay.id]
    dialogue = await begin(connection, HOP, MAX_MESSAGE_BYTES)
    dialogue.say(message.encode())
    answer = HopMessage.decode(await dialogue.read())
    dialogue.end()
    return answer


def test_floods_of_reservations_are_bounded_and_counted() -> None:
    """The places of a relay are taken by whoever comes first, and everybody else is told so."""

    async def story() -> None:
        config = NodeConfig(relay_places=3, relay_places_per_group=2)
        async with Node(None, be_relay=True, members=False, config=config) as relay:
            nodes = [Node(None, members=False) for _ in range(6)]
            for node in nodes:
                await node.start()
                await node.connect(relay.tickets[0])
            answers = [await ask(node, relay, HopMessage(Hop.RESERVE)) for node in nodes]
            told = [answer.status for answer in answers]
            assert told == [Status.OK] * 2 + [Status.RESERVATION_REFUSED] * 4
            often = [await ask(nodes[0], relay, HopMessage(Hop.RESERVE)) for _ in range(50)]
            assert sum(answer.status is Status.OK for answer in often) < 8
            assert relay.refusals["relay-places-taken-by-group"] == 4
            assert relay.refusals["relay-reserved-too-often"] >= 42
            assert len(relay._reach.relay.reservations) == 2  # type: ignore[union-attr]
            for node in nodes:
                ends = way(node, relay), way(relay, node)
                await until(partial(_no_talk_in, ends), "no talk is left")
                await node.close()
            gone = lambda: not len(relay._reach.relay.reservations)  # type: ignore  # noqa: E731
            await until(gone, "the places of those who left are free")

    run(story)


def test_nobody_is_reached_through_somebody_that_is_relayed() -> None:
    """Neither a place nor a circuit is given over a circuit."""

    async def story() -> None:
        async with through_relay() as (_, hidden, visitor):
            answer = await ask(visitor, hidden, HopMessage(Hop.RESERVE))
            assert answer.status is Status.PERMISSION_DENIED
            assert hidden.refusals["relay-reservation-over-relay"] == 1

    run(story)


def test_who_has_no_place_is_not_reached_and_the_reason_is_told() -> None:
    """By the dialler, to people."""

    async def story() -> None:
        async with (
            Node(None, be_relay=True, members=False) as relay,
            Node(None, members=False) as nobody,
            Node(None, members=False) as visitor,
        ):
            ticket = f"{relay.tickets[0]}/p2p-circuit/p2p/{nobody.id}"
            with pytest.raises(LocalError, match="the relay says no reservation"):
                await visitor.connect(ticket, keep=False)
            somebody = PrivateKey(bytes(32)).peer_id
            ticket = f"{nobody.tickets[0]}/p2p-circuit/p2p/{somebody}"
            with pytest.raises(LocalError, match="the peer ended the talk: refused"):
                await visitor.connect(ticket, keep=False)
            assert relay.refusals["relay-no-reservation"] == 1

    run(story)


def test_circuits_are_taken_from_our_relays_alone() -> None:
    """Whoever else says that somebody wants to reach us is told no."""

    async def story() -> None:
        async with (
            Node(None, be_relay=True, members=False) as relay,
            Node(None, members=False) as target,
            Node(None, members=False) as visitor,
        ):
            await target.connect(relay.tickets[0])
            await until(lambda: target.id in relay._swarm.connections, "it is connected")
            relay._reach.relay.reservations.reserve(target.id, "", False, 9e9)  # type: ignore[union-attr]
            with pytest.raises(LocalError, match="connection failed"):
                await visitor.connect(f"{relay.tickets[0]}/p2p-circuit/p2p/{target.id}", keep=False)
            assert target.refusals["circuit-without-reservation"] == 1

    run(story)
