"""rumormill and js-libp2p in one private network, and in two: libp2p's pnet, whoever dials."""

from pathlib import Path

import pytest
from interop_asserts import TOPIC, exchange, own_name, refused
from interop_peer import ForeignError, ForeignPeer, Program

from live_nodes import until
from rumormill.core.errors import LocalError
from rumormill.libp2p.pnet import WRONG_NETWORK
from rumormill.node.identity import create_network
from rumormill.node.node import Node

pytestmark = pytest.mark.interop

WE_DIAL = pytest.mark.parametrize("we_dial", [True, False], ids=["we-dial", "js-dials"])


@WE_DIAL
async def test_members_exchange_messages(
    javascript: Program, tmp_path: Path, we_dial: bool
) -> None:
    """One key file, made by us and read by js, and 200 messages each way, some of them long."""
    key = tmp_path / "swarm.key"
    create_network(key)
    async with (
        ForeignPeer(javascript, network=key.read_text()) as js,
        Node(None, network=key) as ours,
    ):
        await exchange(ours, js, 200, longest=100_000, we_dial=we_dial)
        assert ours.peers[0].outbound is we_dial
        assert not refused(ours)


@pytest.mark.parametrize("open_to_all", [True, False], ids=["no-key", "other-key"])
async def test_a_js_stranger_does_not_get_in(
    javascript: Program, tmp_path: Path, open_to_all: bool
) -> None:
    """Without the key or with another, js comes no further than the first bytes, nor do we."""
    key, other = tmp_path / "swarm.key", tmp_path / "other.key"
    create_network(key)
    create_network(other)
    network = None if open_to_all else other.read_text()
    async with ForeignPeer(javascript, network=network) as js, Node(None, network=key) as ours:
        await ours.subscribe(TOPIC)
        with pytest.raises(ForeignError):
            await js.ask("dial", ticket=ours.tickets[0])
        await until(lambda: ours.refusals.get(WRONG_NETWORK), "the stranger is refused")
        with pytest.raises(LocalError, match="cannot reach"):
            await ours.connect(js.ticket, keep=False)
        assert not ours.peers
        assert await js.ask("streams", peer=own_name(ours)) == []
