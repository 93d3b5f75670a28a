"""rumormill and go-libp2p talk to each other, both with the defaults that users have."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import interop_install
import pytest
from interop_asserts import (
    NO_MESH,
    TOPIC,
    connection_to,
    exchange,
    exchange_in_a_mixed_mesh,
    ids_in,
    join,
    keep_alive,
    messages,
    own_name,
    ping,
)
from interop_peer import ForeignPeer, Program

from live_nodes import take, until
from rumormill.core.errors import LocalError
from rumormill.core.trace import RecvRPC, SendRPC
from rumormill.node.node import Node
from rumormill.protocols.floodsub.router import FLOODSUB
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_0, GOSSIPSUB_1_2, GOSSIPSUB_1_3
from rumormill.version import __version__
from rumormill.wire.multiaddr import Endpoint
from trace_log import TraceLog

pytestmark = pytest.mark.interop

WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "go-dials"])


OLDER = "libp2p-0.39"
"""go-libp2p that many still run; its build is another minute, so only where slow tests are run."""


@pytest.fixture(
    params=["go", pytest.param(OLDER, marks=pytest.mark.slow)],
    ids=["libp2p-0.51", OLDER],
    scope="module",
)
def golang(request: pytest.FixtureRequest) -> Program:
    """go-libp2p, today's and an older one."""
    return interop_install.installed(partial(interop_install.golang, request.param))


async def protocols_between(ours: Node, go: ForeignPeer) -> set[str]:
    """The pubsub protocols of the streams between two peers, as both ends name them."""
    streams = await go.ask("streams", peer=own_name(ours))
    assert {each["direction"] for each in streams} == {"inbound", "outbound"}
    return {each["protocol"] for each in streams} | {ours.peers[0].protocol}


@WE_DIAL
async def test_200_signed_messages_each_way_arrive_once(golang: Program, we_dial: bool) -> None:
    """Whoever dials, nothing is lost and nothing repeated in either direction."""
    async with ForeignPeer(golang) as go, Node(None) as ours:
        await exchange(ours, go, 200, we_dial=we_dial, meshes=True)
        assert await protocols_between(ours, go) == {GOSSIPSUB_1_3}


@pytest.mark.parametrize("_round", range(3))
async def test_peers_that_dial_each_other_at_once_talk(golang: Program, _round: int) -> None:
    """Two connections between two peers lose and repeat nothing, whosever id is the smaller."""
    async with ForeignPeer(golang) as go, Node(None) as ours:
        await exchange(ours, go, 20, we_dial=None, meshes=True)


async def test_messages_larger_than_a_window_arrive(golang: Program) -> None:
    """Messages of up to 900 KB pass through yamux windows of 256 KiB both ways."""
    async with ForeignPeer(golang) as go, Node(None) as ours:
        await exchange(ours, go, 10, longest=900_000, we_dial=True, meshes=True)


@WE_DIAL
async def test_a_peer_that_offers_1_3_alone_is_a_peer(golang: Program, we_dial: bool) -> None:
    """go with the newest version and no other exchanges messages with us."""
    async with ForeignPeer(golang, protocols=[GOSSIPSUB_1_3]) as go, Node(None) as ours:
        await exchange(ours, go, 50, we_dial=we_dial, meshes=True)


@pytest.mark.parametrize("spoken", [GOSSIPSUB_1_2, GOSSIPSUB_1_0, FLOODSUB])
async def test_peers_fall_back_to_what_both_speak(golang: Program, spoken: str) -> None:
    """A node of ours with an older version, or with FloodSub alone, is spoken to in that."""
    async with ForeignPeer(golang) as go, Node(None, protocol_ids=[spoken]) as ours:
        await exchange(ours, go, 50, we_dial=True, meshes=spoken != FLOODSUB)
        assert await protocols_between(ours, go) == {spoken}


@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub"])
async def test_a_floodsub_peer_is_served(golang: Program, protocol: str) -> None:
    """go's own FloodSub exchanges messages with our GossipSub and our FloodSub."""
    async with ForeignPeer(golang, router="floodsub") as go, Node(None, protocol=protocol) as ours:
        # go drops what its queue of 32 RPCs for a peer does not hold, and FloodSub repairs nothing.
        await exchange(ours, go, 50, we_dial=False, rate=200.0)
        assert await protocols_between(ours, go) == {FLOODSUB}


async def test_a_go_peer_gets_what_it_missed_by_ihave_and_iwant(golang: Program) -> None:
    """Messages published before a go peer came reach it by gossip: our IHAVE, its IWANT."""
    log = TraceLog()
    settings = {**NO_MESH, "history_gossip": 30, "history_length": 40}
    async with (
        ForeignPeer(golang) as go,
        Node(None, parameters=settings, observers=[log]) as ours,
    ):
        missed = messages("rumormill", 5)
        await ours.subscribe(TOPIC)
        receipts = [await ours.publish(TOPIC, message) for message in missed]
        await go.ask("subscribe", topic=TOPIC)
        await join(ours, go, we_dial=True)
        assert sorted(await go.received(TOPIC, 5)) == sorted(missed)
    assert ids_in(log, RecvRPC, "iwant") == {receipt.id for receipt in receipts}


async def test_we_get_what_we_missed_by_ihave_and_iwant(golang: Program) -> None:
    """Messages that a go peer published before we came reach us: its IHAVE, our IWANT."""
    log = TraceLog()
    async with (
        ForeignPeer(golang, noMesh=True, history=30) as go,
        Node(None, observers=[log]) as ours,
    ):
        missed = messages("go", 5)
        await go.ask("subscribe", topic=TOPIC)
        await go.publish(TOPIC, missed)
        subscription = await ours.subscribe(TOPIC)
        await join(ours, go, we_dial=True)
        assert sorted(await take(subscription, 5)) == sorted(missed)
        ids = {event.id for event in await ours.history(TOPIC)}
    assert ids_in(log, SendRPC, "iwant") == ids


@WE_DIAL
async def test_identify_and_ping_are_answered_both_ways(golang: Program, we_dial: bool) -> None:
    """Each side tells the other who it is, where it listens and what it speaks, and pongs."""
    async with ForeignPeer(golang) as go, Node(None) as ours:
        await join(ours, go, we_dial=we_dial)
        said = await go.ask("identified", peer=own_name(ours))
        assert said["agent"] == f"rumormill/{__version__}"
        assert {ticket.partition("/p2p/")[0] for ticket in ours.tickets} <= set(said["listen"])
        assert {GOSSIPSUB_1_2, FLOODSUB, "/ipfs/ping/1.0.0"} <= set(said["protocols"])
        assert (await go.ask("ping", ticket=ours.tickets[0]))["milliseconds"] >= 0
        await ping(ours, go)
        await keep_alive(ours, go)
        peer = connection_to(ours, go).remote_peer
        assert Endpoint("127.0.0.1", int(go.ticket.split("/")[4])) in ours._swarm.book.endpoints(
            peer
        )
        assert peer in ours._swarm.book.records
        assert not ours._swarm.counts


async def test_a_ticket_of_another_transport_is_refused_by_name(golang: Program) -> None:
    """go listens on QUIC too; its TCP address is what helps, and identify has it."""
    transport = "quic-v1"
    addresses = [f"/ip4/127.0.0.1/udp/0/{transport}", "/ip4/127.0.0.1/tcp/0"]
    async with ForeignPeer(golang, listen=addresses) as go, Node(None) as ours:
        tickets = (await go.ask("about"))["tickets"]
        (foreign,) = [ticket for ticket in tickets if f"/{transport}/" in ticket]
        with pytest.raises(LocalError, match=f"unsupported transport {transport}; .*TCP"):
            await ours.connect(foreign)
        (plain,) = [ticket for ticket in tickets if ticket != foreign]
        await ours.connect(plain)
        peer = connection_to(ours, go).remote_peer
        endpoint = Endpoint("127.0.0.1", int(plain.split("/")[4]))
        await until(lambda: peer in ours._swarm.book.records, "identify has come")
        assert endpoint in ours._swarm.book.endpoints(peer)


async def test_a_mixed_mesh_delivers_everything_to_everybody(golang: Program) -> None:
    """3 go and 5 rumormill peers, 4 links each, 20 messages from everybody: all arrive once."""
    async with AsyncExitStack() as stack:
        go = [await stack.enter_async_context(ForeignPeer(golang)) for _ in range(3)]
        ours = [await stack.enter_async_context(Node(None)) for _ in range(5)]
        await exchange_in_a_mixed_mesh(ours, go)


@pytest.mark.parametrize("_round", range(5))
async def test_a_node_closes_cleanly_while_go_resets(
    golang: Program, tmp_path: Path, _round: int
) -> None:
    """go ends connections by RST; closing raises nothing, and the home can be opened again."""
    async with Node(tmp_path / "home") as ours:
        await ours.subscribe(TOPIC)
        async with ForeignPeer(golang) as go:
            await go.ask("subscribe", topic=TOPIC)
            await join(ours, go, we_dial=True)
            await go.ask("waitForMesh", topic=TOPIC, count=1)
            await go.publish(TOPIC, messages("go", 20))
            closing = asyncio.ensure_future(ours.close())
        await closing
    async with Node(tmp_path / "home"):
        pass
