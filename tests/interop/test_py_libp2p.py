"""rumormill and py-libp2p talk to each other, at a rate that py-libp2p can take."""

import pytest
from interop_asserts import connection_to, exchange, join, keep_alive, own_name, ping
from interop_peer import ForeignPeer, Program

from rumormill.node.node import Node
from rumormill.protocols.floodsub.router import FLOODSUB
from rumormill.protocols.gossipsub.membership import GOSSIPSUB_1_1, GOSSIPSUB_1_2
from rumormill.version import __version__

pytestmark = pytest.mark.interop

RATE = 50.0
"""Messages per second; py-libp2p loses messages silently from about 200 on."""

WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "py-dials"])


@WE_DIAL
@pytest.mark.parametrize(
    "protocols", [[GOSSIPSUB_1_2, GOSSIPSUB_1_1], [GOSSIPSUB_1_1]], ids=["1.2", "1.1"]
)
async def test_50_signed_messages_each_way_arrive_once(
    python: Program, we_dial: bool, protocols: list[str]
) -> None:
    """Whoever dials, GossipSub 1.2 and 1.1 lose and repeat nothing in either direction."""
    async with ForeignPeer(python, protocols=protocols) as py, Node(None) as ours:
        await exchange(ours, py, 50, we_dial=we_dial, rate=RATE)
        assert ours.peers[0].protocol == protocols[0]
        assert await py.ask("protocolOf", peer=own_name(ours)) == protocols[0]


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
        assert ("127.0.0.1", port) in ours._swarm.book.endpoints(peer)
