"""rumormill and js-libp2p talk to each other: noise, yamux, identify, ping, GossipSub, FloodSub."""

from contextlib import AsyncExitStack

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
    mesh_of,
    messages,
    own_name,
    ping,
)
from interop_peer import PATIENCE, ForeignPeer, Program

from live_nodes import take
from rumormill.core.trace import RecvRPC, SendRPC
from rumormill.node.node import Node
from rumormill.protocols.floodsub.router import FLOODSUB
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_0, GOSSIPSUB_1_1, GOSSIPSUB_1_2
from rumormill.version import __version__
from rumormill.wire.multiaddr import Endpoint
from trace_log import TraceLog

pytestmark = pytest.mark.interop

WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "js-dials"])

JS_NO_MESH = {"D": 0, "Dlo": 0, "Dhi": 0, "Dout": 0, "Dscore": 0, "floodPublish": False}


def js_peer(program: Program, router: str = "gossipsub", **options: object) -> ForeignPeer:
    return ForeignPeer(program, router=router, **options)


async def protocols_between(ours: Node, js: ForeignPeer) -> set[str]:
    """The pubsub protocols of the streams between two peers, as both ends name them."""
    streams = await js.ask("streams", peer=own_name(ours))
    assert {each["direction"] for each in streams} == {"inbound", "outbound"}
    return {each["protocol"] for each in streams} | {ours.peers[0].protocol}


@WE_DIAL
async def test_200_signed_messages_each_way_arrive_once(javascript: Program, we_dial: bool) -> None:
    """Whoever dials, GossipSub 1.2 loses and repeats nothing in either direction."""
    async with js_peer(javascript) as js, Node(None) as ours:
        await exchange(ours, js, 200, we_dial=we_dial)
        assert await protocols_between(ours, js) == {GOSSIPSUB_1_2}
        assert ours.peers[0].outbound is we_dial


@pytest.mark.parametrize("_round", range(3))
async def test_peers_that_dial_each_other_at_once_talk(javascript: Program, _round: int) -> None:
    """Two connections between two peers lose and repeat nothing, whosever id is the smaller."""
    async with js_peer(javascript) as js, Node(None) as ours:
        await exchange(ours, js, 20, we_dial=None)
        assert len(ours.peers) == 1


async def test_default_message_ids_of_js_deliver_too(javascript: Program) -> None:
    """Ids differ from ours then, so gossip is of no use, but messages are passed on and once."""
    async with js_peer(javascript, gossipsub={"msgIdFn": None}) as js, Node(None) as ours:
        await exchange(ours, js, 50, we_dial=True)


async def test_messages_larger_than_a_window_arrive(javascript: Program) -> None:
    """Messages of up to 900 KB pass through yamux windows of 256 KiB both ways."""
    async with js_peer(javascript) as js, Node(None) as ours:
        await exchange(ours, js, 10, longest=900_000, we_dial=True)


@WE_DIAL
@pytest.mark.parametrize(
    ("js_speaks", "we_offer", "agreed"),
    [
        ([GOSSIPSUB_1_1, GOSSIPSUB_1_0], None, GOSSIPSUB_1_1),
        (None, [GOSSIPSUB_1_1, GOSSIPSUB_1_0], GOSSIPSUB_1_1),
        (None, [GOSSIPSUB_1_0], GOSSIPSUB_1_0),
        (None, [FLOODSUB], FLOODSUB),
    ],
    ids=["js-1.1", "we-1.1", "we-1.0", "we-floodsub"],
)
async def test_peers_fall_back_to_what_both_speak(
    javascript: Program,
    we_dial: bool,
    js_speaks: list[str] | None,
    we_offer: list[str] | None,
    agreed: str,
) -> None:
    """A peer with older versions, or with FloodSub alone, is spoken to in those."""
    options = {} if js_speaks is None else {"protocols": js_speaks}
    async with (
        js_peer(javascript, **options) as js,
        Node(None, protocol_ids=we_offer) as ours,
    ):
        await exchange(ours, js, 50, we_dial=we_dial)
        assert await protocols_between(ours, js) == {agreed}


@WE_DIAL
@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub"])
async def test_a_floodsub_peer_is_served(javascript: Program, we_dial: bool, protocol: str) -> None:
    """js-libp2p's own FloodSub exchanges messages with our GossipSub and our FloodSub."""
    async with js_peer(javascript, "floodsub") as js, Node(None, protocol=protocol) as ours:
        await exchange(ours, js, 50, we_dial=we_dial)
        assert await protocols_between(ours, js) == {FLOODSUB}


async def test_a_js_peer_gets_what_it_missed_by_ihave_and_iwant(javascript: Program) -> None:
    """Messages published before a js peer came reach it by gossip: our IHAVE, its IWANT."""
    log = TraceLog()
    settings = {**NO_MESH, "history_gossip": 30, "history_length": 40}
    async with (
        js_peer(javascript) as js,
        Node(None, parameters=settings, observers=[log]) as ours,
    ):
        missed = messages("rumormill", 5)
        await ours.subscribe(TOPIC)
        receipts = [await ours.publish(TOPIC, message) for message in missed]
        assert [receipt.peers for receipt in receipts] == [0] * 5
        await js.ask("subscribe", topic=TOPIC)
        await join(ours, js, we_dial=True)
        assert sorted(await js.received(TOPIC, 5)) == sorted(missed)
    ids = {receipt.id for receipt in receipts}
    assert ids_in(log, SendRPC, "ihave") == ids
    assert ids_in(log, RecvRPC, "iwant") == ids


async def test_we_get_what_we_missed_by_ihave_and_iwant(javascript: Program) -> None:
    """Messages that a js peer published before we came reach us: its IHAVE, our IWANT."""
    log = TraceLog()
    history = {**JS_NO_MESH, "mcacheGossip": 30, "mcacheLength": 40}
    async with (
        js_peer(javascript, gossipsub=history) as js,
        Node(None, observers=[log]) as ours,
    ):
        missed = messages("js", 5)
        await js.ask("subscribe", topic=TOPIC)
        await js.publish(TOPIC, missed)
        subscription = await ours.subscribe(TOPIC)
        await join(ours, js, we_dial=True)
        assert sorted(await take(subscription, 5)) == sorted(missed)
        ids = {event.id for event in await ours.history(TOPIC)}
    assert ids_in(log, RecvRPC, "ihave") == ids
    assert ids_in(log, SendRPC, "iwant") == ids


@WE_DIAL
async def test_peers_that_subscribe_later_graft_each_other(
    javascript: Program, we_dial: bool
) -> None:
    """Subscriptions travel over an open connection too, and both ends mesh the link."""
    async with js_peer(javascript) as js, Node(None) as ours:
        await join(ours, js, we_dial=we_dial)
        await js.ask("subscribe", topic=TOPIC)
        await ours.wait_until_ready(TOPIC, timeout=PATIENCE)
        await ours.subscribe(TOPIC)
        await js.ask("waitForMesh", topic=TOPIC, count=1)
        await mesh_of(ours, 1)
        assert await js.ask("mesh", topic=TOPIC) == [own_name(ours)]


@WE_DIAL
async def test_identify_and_ping_are_answered_both_ways(javascript: Program, we_dial: bool) -> None:
    """Each side tells the other who it is, where it listens and what it speaks, and pongs."""
    async with js_peer(javascript) as js, Node(None) as ours:
        await join(ours, js, we_dial=we_dial)
        said = await js.ask("identified", peer=own_name(ours))
        listen = [ticket.partition("/p2p/")[0] for ticket in ours.tickets]
        assert said["agent"] == f"rumormill/{__version__}"
        assert said["listen"] == said["record"] == listen
        assert {GOSSIPSUB_1_2, FLOODSUB, "/ipfs/ping/1.0.0"} <= set(said["protocols"])
        assert said["observed"].startswith("/ip4/127.0.0.1/tcp/")
        assert (await js.ask("ping", ticket=ours.tickets[0]))["milliseconds"] >= 0
        await ping(ours, js)
        await keep_alive(ours, js)
        peer = connection_to(ours, js).remote_peer
        port = int(js.ticket.split("/")[4])
        assert Endpoint("127.0.0.1", port) in ours._swarm.book.endpoints(peer)
        assert peer in ours._swarm.book.records
        assert not ours._swarm.counts


async def test_a_mixed_mesh_delivers_everything_to_everybody(javascript: Program) -> None:
    """3 js and 5 rumormill peers, 4 links each, 20 messages from everybody: all arrive once."""
    async with AsyncExitStack() as stack:
        js = [await stack.enter_async_context(js_peer(javascript)) for _ in range(3)]
        ours = [await stack.enter_async_context(Node(None)) for _ in range(5)]
        await exchange_in_a_mixed_mesh(ours, js)
