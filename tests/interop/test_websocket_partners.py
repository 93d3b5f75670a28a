"""rumormill, js-libp2p and go-libp2p over WebSocket, whoever listens and whoever dials."""

import pytest
from interop_asserts import connection_to, exchange, refused
from interop_peer import ForeignPeer, Program

from rumormill.node.node import Node

pytestmark = pytest.mark.interop

WS = "/ip4/127.0.0.1/tcp/0/ws"
WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "they-dial"])


@WE_DIAL
@pytest.mark.parametrize("partner", ["javascript", "golang"])
async def test_messages_pass_over_websocket(
    request: pytest.FixtureRequest, partner: str, we_dial: bool
) -> None:
    """200 messages each way, each of them once."""
    program: Program = request.getfixturevalue(partner)
    async with ForeignPeer(program, listen=[WS]) as other, Node(None, listen=WS) as ours:
        assert "/ws/p2p/" in other.ticket
        await exchange(ours, other, 200, we_dial=we_dial, meshes=partner == "golang")
        assert ours.peers[0].outbound is we_dial
        assert "/ws" in connection_to(ours, other).remote_address
        assert not refused(ours)
