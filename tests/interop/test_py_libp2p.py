"""rumormill and py-libp2p talk to each other, at a rate that py-libp2p can take."""

from contextlib import AsyncExitStack

import pytest
from interop_asserts import (
    TOPIC,
    connection_to,
    exchange,
    exchange_in_a_mixed_mesh,
    ids_in,
    join,
    keep_alive,
    mesh_of,
    messages,
    own_name,
    ping,
    see_each_other,
)
from interop_peer import ForeignPeer, Program

from live_nodes import take
from rumormill.core.trace import RecvRPC, SendRPC
from rumormill.node.node import Node
from rumormill.protocols.floodsub.router import FLOODSUB
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_1, GOSSIPSUB_1_2
from rumormill.version import __version__
from rumormill.wire.multiaddr import Endpoint
from trace_log import TraceLog

pytestmark = pytest.mark.interop

RATE = 100.0
"""Messages per second; py-libp2p loses messages silently from about 200 on."""

MESH_RATE = 10.0
"""Messages per second of each of 8 peers in one mesh."""

WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "py-dials"])


NO_MESH = {"D": 0, "D_lo": 0, "D_hi": 0, "D_out": 0, "D_score": 0, "flood_publish": False}
PY_NO_MESH = {"degree": 0, "degree_low": 0, "degree_high": 0}


@WE_DIAL
@pytest.mark.parametrize(
    "protocols", [[GOSSIPSUB_1_2, GOSSIPSUB_1_1], [GOSSIPSUB_1_1]], ids=["1.2", "1.1"]
)
async def test_200_signed_messages_each_way_arrive_once(
    python: Program, we_dial: bool, protocols: list[str]
) -> None:
    """Whoever dials, GossipSub 1.2 and 1.1 lose and repeat nothing in either direction."""
    async with ForeignPeer(python, protocols=protocols) as py, Node(None) as ours:
        await exchange(ours, py, 200, we_dial=we_dial, rate=RATE, meshes=True)
        assert ours.peers[0].protocol == protocols[0]
        assert await py.ask("protocolOf", peer=own_name(ours)) == protocols[0]


@pytest.mark.parametrize("_round", range(4))
async def test_peers_that_dial_each_other_at_once_talk(python: Program, _round: int) -> None:
    """Two connections between two peers lose and repeat nothing, whosever id is the smaller."""
    async with ForeignPeer(python, protocols=[GOSSIPSUB_1_2]) as py, Node(None) as ours:
        await exchange(ours, py, 20, we_dial=None, rate=RATE, meshes=True)
        assert len(ours.peers) == 1


@WE_DIAL
@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub"])
async def test_a_floodsub_peer_is_served(python: Program, we_dial: bool, protocol: str) -> None:
    """py-libp2p's own FloodSub exchanges messages with our GossipSub and our FloodSub."""
    async with (
        ForeignPeer(python, router="floodsub", protocols=[FLOODSUB]) as py,
        Node(None, protocol=protocol) as ours,
    ):
        await exchange(ours, py, 50, we_dial=we_dial, rate=RATE)
        assert ours.peers[0].protocol == FLOODSUB
        assert await py.ask("protocolOf", peer=own_name(ours)) == FLOODSUB


@WE_DIAL
async def test_gossipsub_of_py_falls_back_to_floodsub(python: Program, we_dial: bool) -> None:
    """A node that offers FloodSub alone is spoken to in it by py-libp2p's GossipSub."""
    async with (
        ForeignPeer(python, protocols=[GOSSIPSUB_1_2, GOSSIPSUB_1_1, FLOODSUB]) as py,
        Node(None, protocol_ids=[FLOODSUB]) as ours,
    ):
        await exchange(ours, py, 50, we_dial=we_dial, rate=RATE)
        assert ours.peers[0].protocol == FLOODSUB
        assert await py.ask("protocolOf", peer=own_name(ours)) == FLOODSUB


async def test_a_mixed_mesh_delivers_everything_to_everybody(python: Program) -> None:
    """3 py and 5 rumormill peers, 4 links each, 20 messages from everybody: all arrive once."""
    async with AsyncExitStack() as stack:
        py = [
            await stack.enter_async_context(ForeignPeer(python, protocols=[GOSSIPSUB_1_2]))
            for _ in range(3)
        ]
        ours = [await stack.enter_async_context(Node(None)) for _ in range(5)]
        await exchange_in_a_mixed_mesh(ours, py, rate=MESH_RATE)


async def test_a_py_peer_gets_what_it_missed_by_ihave_and_iwant(python: Program) -> None:
    """Messages that are not sent to a py peer outside the mesh: our IHAVE, its IWANT."""
    log = TraceLog()
    async with (
        ForeignPeer(python, protocols=[GOSSIPSUB_1_2], gossipsub=PY_NO_MESH) as py,
        Node(None, parameters=NO_MESH, observers=[log]) as ours,
    ):
        await ours.subscribe(TOPIC)
        await py.ask("subscribe", topic=TOPIC)
        await join(ours, py, we_dial=True)
        await see_each_other(ours, py)
        missed = messages("rumormill", 5)
        receipts = [await ours.publish(TOPIC, message) for message in missed]
        assert [receipt.peers for receipt in receipts] == [0] * 5
        assert sorted(await py.received(TOPIC, 5)) == sorted(missed)
    ids = {receipt.id for receipt in receipts}
    assert ids_in(log, SendRPC, "ihave") == ids
    assert ids_in(log, RecvRPC, "iwant") == ids


async def test_we_get_what_we_missed_by_ihave_and_iwant(python: Program) -> None:
    """Messages that a py peer does not send us, outside its mesh: its IHAVE, our IWANT."""
    log = TraceLog()
    async with (
        ForeignPeer(python, protocols=[GOSSIPSUB_1_2], gossipsub=PY_NO_MESH) as py,
        Node(None, parameters=NO_MESH, observers=[log]) as ours,
    ):
        subscription = await ours.subscribe(TOPIC)
        await py.ask("subscribe", topic=TOPIC)
        await join(ours, py, we_dial=True)
        await see_each_other(ours, py)
        missed = messages("py", 5)
        await py.publish(TOPIC, missed, rate=RATE)
        assert sorted(await take(subscription, 5)) == sorted(missed)
        ids = {event.id for event in await ours.history(TOPIC)}
    assert ids_in(log, RecvRPC, "ihave") == ids
    assert ids_in(log, SendRPC, "iwant") == ids


@WE_DIAL
async def test_peers_that_subscribe_later_graft_each_other(python: Program, we_dial: bool) -> None:
    """On an open connection py-libp2p may graft before it announces: both ends mesh the link."""
    async with ForeignPeer(python, protocols=[GOSSIPSUB_1_2]) as py, Node(None) as ours:
        await join(ours, py, we_dial=we_dial)
        await ours.subscribe(TOPIC)
        await py.ask("waitForSubscribers", topic=TOPIC, count=1)
        await py.ask("subscribe", topic=TOPIC)
        await mesh_of(ours, 1)
        await py.ask("waitForMesh", topic=TOPIC, count=1)
        assert not ours._swarm.counts


async def test_identify_and_ping_are_answered_both_ways(python: Program) -> None:
    """Each side tells the other who it is and where it listens, and pongs."""
    async with ForeignPeer(python, protocols=[GOSSIPSUB_1_2]) as py, Node(None) as ours:
        await join(ours, py, we_dial=True)
        await py.ask("waitForPeer", peer=own_name(ours))
        said = await py.ask("identified", peer=own_name(ours))
        listen = [ticket.partition("/p2p/")[0] for ticket in ours.tickets]
        assert said["agent"] == f"rumormill/{__version__}"
        assert said["listen"] == listen
        assert {GOSSIPSUB_1_2, FLOODSUB, "/ipfs/ping/1.0.0"} <= set(said["protocols"])
        assert len(await py.ask("ping", peer=own_name(ours))) == 1
        await ping(ours, py)
        await keep_alive(ours, py)
        peer = connection_to(ours, py).remote_peer
        port = int(py.ticket.split("/")[4])
        assert Endpoint("127.0.0.1", port) in ours._swarm.book.endpoints(peer)
