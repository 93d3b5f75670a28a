"""rumormill and rust-libp2p talk to each other, both with the defaults that users have."""

from contextlib import AsyncExitStack

import pytest
from interop_asserts import (
    connection_to,
    exchange,
    exchange_in_a_mixed_mesh,
    join,
    keep_alive,
    own_name,
    ping,
)
from interop_peer import ForeignPeer, Program

from live_nodes import until
from rumormill.node.node import Node
from rumormill.version import __version__

pytestmark = [pytest.mark.interop, pytest.mark.rust]

WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "rust-dials"])


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
        assert ("127.0.0.1", int(peer.ticket.split("/")[4])) in known
        assert not ours._swarm.counts


async def test_rusts_older_signed_record_does_not_hide_its_addresses(rust: Program) -> None:
    """Its record is signed under other names than ours; its addresses are believed unsigned."""
    async with ForeignPeer(rust, record=True) as peer, Node(None) as ours:
        await join(ours, peer, we_dial=False)
        remote = connection_to(ours, peer).remote_peer
        port = int(peer.ticket.split("/")[4])
        known = ours._swarm.book
        await until(lambda: ("127.0.0.1", port) in known.endpoints(remote), "its port is known")
        assert remote not in known.records
        assert not ours._swarm.counts


async def test_a_mixed_mesh_delivers_everything_to_everybody(rust: Program) -> None:
    """3 rust and 5 rumormill peers, 4 links each, 20 messages from everybody: all arrive once."""
    async with AsyncExitStack() as stack:
        foreign = [await stack.enter_async_context(ForeignPeer(rust)) for _ in range(3)]
        ours = [await stack.enter_async_context(Node(None)) for _ in range(5)]
        await exchange_in_a_mixed_mesh(ours, foreign)
