"""rumormill and rust-libp2p talk to each other, both with the defaults that users have."""

from contextlib import AsyncExitStack

import pytest
from interop_asserts import (
    TOPIC,
    connection_to,
    exchange,
    exchange_in_a_mixed_mesh,
    join,
    keep_alive,
    mesh_of,
    messages,
    own_name,
    ping,
    see_each_other,
)
from interop_peer import ForeignPeer, Program

from live_nodes import take_events, until
from rumormill.core.trace import DropRPC
from rumormill.node.channel import TOO_LARGE
from rumormill.node.node import Node
from rumormill.node.subscription import Subscription
from rumormill.version import __version__
from rumormill.wire.keys import PeerId
from rumormill.wire.multiaddr import Endpoint
from trace_log import TraceLog

pytestmark = [pytest.mark.interop, pytest.mark.rust]

WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "rust-dials"])

NO_MESH = {"D": 0, "D_lo": 0, "D_hi": 0, "D_out": 0, "D_score": 0, "flood_publish": False}


@WE_DIAL
async def test_200_signed_messages_each_way_arrive_once(rust: Program, we_dial: bool) -> None:
    """Whoever dials, nothing is lost and nothing repeated in either direction."""
    async with ForeignPeer(rust) as peer, Node(None) as ours:
        await exchange(ours, peer, 200, we_dial=we_dial)


@pytest.mark.parametrize("_round", range(3))
async def test_peers_that_dial_each_other_at_once_talk(rust: Program, _round: int) -> None:
    """Two connections between two peers lose and repeat nothing, whosever id is the smaller."""
    async with ForeignPeer(rust) as peer, Node(None) as ours:
        await exchange(ours, peer, 20, we_dial=None)


@WE_DIAL
async def test_identify_and_ping_are_answered_both_ways(rust: Program, we_dial: bool) -> None:
    """Each side tells the other who it is and where it listens, and pongs."""
    async with ForeignPeer(rust) as peer, Node(None) as ours:
        await join(ours, peer, we_dial=we_dial)
        said = await peer.ask("identified", peer=own_name(ours))
        assert said["agent"] == f"rumormill/{__version__}"
        assert said["listen"] == [ticket.partition("/p2p/")[0] for ticket in ours.tickets]
        assert (await peer.ask("ping", ticket=ours.tickets[0]))["milliseconds"] >= 0
        await ping(ours, peer)
        await keep_alive(ours, peer)
        known = ours._swarm.book.endpoints(connection_to(ours, peer).remote_peer)
        assert Endpoint("127.0.0.1", int(peer.ticket.split("/")[4])) in known
        assert not ours._swarm.counts


@pytest.mark.parametrize("key", ["ecdsa", "secp256k1"])
async def test_peers_and_authors_with_other_keys_are_heard(rust: Program, key: str) -> None:
    """rust has such keys too."""
    async with ForeignPeer(rust, key=key) as peer, Node(None) as ours:
        await exchange(ours, peer, 20, we_dial=False)


async def test_rusts_older_signed_record_does_not_hide_its_addresses(rust: Program) -> None:
    """Its record is signed under other names than ours; its addresses are believed unsigned."""
    async with ForeignPeer(rust, record=True) as peer, Node(None) as ours:
        await join(ours, peer, we_dial=False)
        remote = connection_to(ours, peer).remote_peer
        port = int(peer.ticket.split("/")[4])
        known = ours._swarm.book
        await until(
            lambda: Endpoint("127.0.0.1", port) in known.endpoints(remote), "its port is known"
        )
        assert remote not in known.records
        assert not ours._swarm.counts


async def test_a_mixed_mesh_delivers_everything_to_everybody(rust: Program) -> None:
    """3 rust and 5 rumormill peers, 4 links each, 20 messages from everybody: all arrive once."""
    async with AsyncExitStack() as stack:
        foreign = [await stack.enter_async_context(ForeignPeer(rust)) for _ in range(3)]
        ours = [await stack.enter_async_context(Node(None)) for _ in range(5)]
        await exchange_in_a_mixed_mesh(ours, foreign)


async def meshed(ours: Node, peer: ForeignPeer) -> Subscription:
    """Let two peers subscribe, meet, and mesh."""
    subscription = await ours.subscribe(TOPIC)
    await peer.ask("subscribe", topic=TOPIC)
    await join(ours, peer, we_dial=True)
    await see_each_other(ours, peer)
    await peer.ask("waitForMesh", topic=TOPIC, count=1)
    await mesh_of(ours, 1)
    return subscription


async def test_after_a_message_that_is_too_large_the_next_one_arrives(rust: Program) -> None:
    """rust ends our stream on 100 KB; we open it again, and trace what it did not take."""
    log = TraceLog()
    async with ForeignPeer(rust) as peer, Node(None, observers=[log]) as ours:
        subscription = await meshed(ours, peer)
        large = [await ours.publish(TOPIC, bytes(100_000)) for _ in range(6)]
        small = messages("rumormill", 20)
        for message in small:
            await ours.publish(TOPIC, message)
        assert sorted(await peer.received(TOPIC, 20)) == sorted(small)
        assert ours.subscribers(TOPIC) == 1, "the peer's topics are known as before"
        back = messages("rust", 20)
        await peer.publish(TOPIC, back)
        came = [event.data for event in await take_events(subscription, 46)]
        assert sorted(came[26:]) == sorted(back)
    dropped = [drop for drop in log.of(DropRPC) if drop.reason == TOO_LARGE]
    assert {drop.send_to for drop in dropped} == {bytes(PeerId.parse(peer.id))}
    assert {drop.meta.messages[0].message_id for drop in dropped} == {each.id for each in large}


async def test_a_long_answer_comes_in_parts_that_rust_takes(rust: Program) -> None:
    """250 KB that rust asks for at once, and more ids than it reads in one RPC."""
    settings = {**NO_MESH, "history_gossip": 30, "history_length": 40}
    settings["message_id"] = "rust"
    async with ForeignPeer(rust) as peer, Node(None, parameters=settings) as ours:
        missed = [b"%d " % number + bytes(250) for number in range(1000)]
        await ours.subscribe(TOPIC)
        await ours.publish_many(TOPIC, missed)
        await peer.ask("subscribe", topic=TOPIC)
        await join(ours, peer, we_dial=True)
        assert sorted(await peer.received(TOPIC, 1000)) == sorted(missed)


async def test_many_topics_are_announced_in_parts(rust: Program) -> None:
    """rust takes a hundred topics of a peer, and no more in one RPC."""
    async with ForeignPeer(rust) as peer, Node(None) as ours:
        for number in range(99):
            await ours.subscribe(f"other {number} ".ljust(400, "."))
        await meshed(ours, peer)
        for message in messages("rumormill", 20):
            await ours.publish(TOPIC, message)
        assert len(await peer.received(TOPIC, 20)) == 20
