"""Circuit relay v2 with go-, js- and rust-libp2p, each as the relay, behind it, and before it."""

import pytest
from interop_asserts import TOPIC, connection_to, messages, ping
from interop_peer import ForeignPeer, Program

from live_nodes import take, until
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node

pytestmark = pytest.mark.interop

RUST = pytest.param("rust", marks=pytest.mark.rust)
PARTNERS = pytest.mark.parametrize("partner", ["golang", "javascript", RUST])
FRIENDLY = NodeConfig(relay_friends=("*",))


async def circuit_to(node: Node) -> str:
    """The ticket of a node behind a relay, when it has one."""
    await until(lambda: "/p2p-circuit" in "".join(node.tickets), "there is a place")
    return next(each for each in node.tickets if "/p2p-circuit" in each)


async def talk(ours: Node, foreign: ForeignPeer) -> None:
    """Twenty messages each way, once each, over whatever connection there is."""
    events = await ours.subscribe(TOPIC)
    await foreign.ask("subscribe", topic=TOPIC)
    await ours.wait_until_ready(TOPIC, timeout=20)
    await foreign.ask("waitForSubscribers", topic=TOPIC, count=1)
    await foreign.ask("waitForMesh", topic=TOPIC, count=1)
    from_us, from_them = messages("rumormill", 20), messages("foreign", 20)
    for message in from_us:
        await ours.publish(TOPIC, message)
    assert sorted(await foreign.received(TOPIC, 20)) == sorted(from_us)
    await foreign.publish(TOPIC, from_them)
    assert sorted(await take(events, 40)) == sorted(from_us + from_them)


@PARTNERS
async def test_two_of_ours_meet_through_their_relay(
    request: pytest.FixtureRequest, partner: str
) -> None:
    """They give a place with a voucher, and carry what is said."""
    program: Program = request.getfixturevalue(partner)
    async with (
        ForeignPeer(program, beRelay=True) as relay,
        Node(None, relays=[relay.ticket], members=False) as hidden,
        Node(None, members=False) as visitor,
    ):
        ticket = await circuit_to(hidden)
        assert f"/p2p/{relay.id}/p2p-circuit/" in ticket
        events = await hidden.subscribe(TOPIC)
        await visitor.connect(ticket)
        await visitor.wait_until_ready(TOPIC, timeout=20)
        said = messages("rumormill", 50)
        for message in said:
            await visitor.publish(TOPIC, message)
        assert sorted(await take(events, 50)) == sorted(said)
        assert visitor._swarm.connections[hidden.id].relay


@PARTNERS
async def test_they_are_reached_through_our_relay(
    request: pytest.FixtureRequest, partner: str
) -> None:
    """They take our reservation and our circuits."""
    program: Program = request.getfixturevalue(partner)
    async with (
        Node(None, be_relay=True, members=False, config=FRIENDLY) as relay,
        Node(None, members=False) as visitor,
    ):
        listen = ["/ip4/127.0.0.1/tcp/0"]
        if partner != "golang":  # the others reserve by listening there
            listen.append(f"{relay.tickets[0]}/p2p-circuit")
        async with ForeignPeer(program, reach=True, listen=listen) as hidden:
            if partner == "golang":
                granted = await hidden.ask("reserve", ticket=relay.tickets[0])
                assert granted == {"bytes": 0, "voucher": True}
            assert relay._reach.relay is not None
            reservations = relay._reach.relay.reservations
            await until(lambda: len(reservations) == 1, "it has a place")
            await visitor.connect(f"{relay.tickets[0]}/p2p-circuit/p2p/{hidden.id}")
            await talk(visitor, hidden)
            assert connection_to(visitor, hidden).relay
            assert reservations.circuits == 1


@PARTNERS
async def test_they_reach_ours_through_our_relay(
    request: pytest.FixtureRequest, partner: str
) -> None:
    """They dial our ticket with a relay in it."""
    program: Program = request.getfixturevalue(partner)
    async with (
        Node(None, be_relay=True, members=False, config=FRIENDLY) as relay,
        Node(None, relays=relay.tickets, members=False) as hidden,
        ForeignPeer(program, reach=True) as visitor,
    ):
        await visitor.ask("dial", ticket=await circuit_to(hidden))
        await talk(hidden, visitor)
        shown = await visitor.ask("connections", peer=str(hidden.id))
        assert [each["limited"] for each in shown] == [False]
        assert "/p2p-circuit" in shown[0]["address"]


@PARTNERS
async def test_a_limited_circuit_is_known_to_both(
    request: pytest.FixtureRequest, partner: str
) -> None:
    """Our limits are theirs: the connection is limited on both sides, and can be used."""
    program: Program = request.getfixturevalue(partner)
    async with (
        Node(None, be_relay=True, members=False) as relay,
        Node(None, relays=relay.tickets, members=False) as hidden,
        ForeignPeer(program, reach=True) as visitor,
    ):
        await visitor.ask("dial", ticket=await circuit_to(hidden))
        await until(lambda: len(hidden.peers) == 2, "it is reached")
        assert connection_to(hidden, visitor).limited
        shown = await visitor.ask("connections", peer=str(hidden.id))
        assert [each["limited"] for each in shown] == [True]
        await ping(hidden, visitor)
