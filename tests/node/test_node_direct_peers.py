"""Direct peers of live nodes: dialled without being asked, dialled again, always sent to."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run, take, until
from processes import Terminal
from rumormill import Node
from rumormill.core.errors import ConfigError
from rumormill.node.identity import load_or_create_key
from rumormill.wire.keys import PeerId


def id_of(home: Path) -> str:
    """The peer id of the node that lives, or will live, in a home."""
    return str(load_or_create_key(home / "identity.key").peer_id)


def connected_to(node: Node) -> list[str]:
    """The ids of a node's peers."""
    return [str(peer.id) for peer in node.peers]


def mesh(node: Node) -> list[bytes]:
    """The mesh of a node's topic "news"."""
    return list(node._driver.machine.view().links["mesh"].get("news", ()))


def test_direct_peers_are_dialled_and_sent_to_apart_from_the_mesh(tmp_path: Path) -> None:
    """A ticket is dialled, an id is waited for. Where nobody floods, they still get everything."""
    only_mesh: dict[str, Any] = {"flood_publish": False, "history_gossip": 0}

    async def main() -> None:
        alice_home = tmp_path / "alice"
        expected = {"direct_peers": [id_of(alice_home)], **only_mesh}
        async with (
            Node(None, parameters=expected, members=False) as bob,
            Node(None, members=False) as carol,
        ):
            dialled = {"direct_peers": bob.tickets, **only_mesh}
            async with Node(alice_home, parameters=dialled, members=False) as alice:
                alices = await alice.subscribe("news")
                bobs = await bob.subscribe("news")
                await carol.subscribe("news")
                await alice.wait_until_ready("news")
                await bob.wait_until_ready("news")
                assert connected_to(alice) == [str(PeerId(bob.id))]
                await carol.connect(alice.tickets[0])
                await until(lambda: mesh(alice) == [carol.id], "carol is in alice's mesh")
                await alice.publish("news", b"from alice")
                await bob.publish("news", b"from bob")
                assert sorted(await take(alices, 2)) == sorted(await take(bobs, 2))
                assert (mesh(alice), mesh(bob)) == ([carol.id], [])

    run(main)


@pytest.mark.parametrize("text", ["12D3KooW", "AAAAAQ==", "/ip4/127.0.0.1/tcp/4001"])
def test_a_direct_peer_that_is_none_is_refused(text: str) -> None:
    """Before anything is opened, and in one sentence."""

    async def main() -> None:
        with pytest.raises(ConfigError, match=r"^direct_peers: .* is neither a ticket nor"):
            await Node(None, parameters={"direct_peers": [text]}).start()

    run(main)


@pytest.mark.parametrize("dialler", ["alice", "bob"])
def test_a_direct_peer_that_was_killed_is_dialled_again(dialler: str, tmp_path: Path) -> None:
    """Nobody says `connect` or `--join`: after kill -9 and a restart they find each other again.

    Either alice knows the address, or bob is told hers with `--direct`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"/ip4/127.0.0.1/tcp/{free.getsockname()[1]}"
    home = tmp_path / "bob"
    named = f"{listen}/p2p/{id_of(home)}" if dialler == "alice" else id_of(home)

    async def one_life(alice: Node) -> None:
        options = ["--direct", alice.tickets[0]] if dialler == "bob" else []
        with Terminal(
            "node", "--home", home, "--listen", listen, "--topic", "news", *options
        ) as bob:
            await alice.wait_until_ready("news")
            assert connected_to(alice) == [id_of(home)]
            assert (await alice.publish("news", b"are you there?")).peers == 1
            await asyncio.to_thread(bob.kill)
        await until(lambda: not alice.peers, "alice has noticed bob's end")

    async def main() -> None:
        async with Node(None, parameters={"direct_peers": [named]}) as alice:
            await one_life(alice)
            await one_life(alice)

    run(main)
