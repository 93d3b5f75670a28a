"""The round trip to a peer is the kernel's own measure; where there is none, it is not known."""

import socket
import sys

import pytest

from live_nodes import pair, run, until
from rumormill.libp2p import round_trip as module
from rumormill.libp2p.round_trip import round_trip

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells on Linux")


@linux
def test_a_connected_socket_has_one() -> None:
    """Also one that nothing was sent over yet: a handshake is a round trip."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            found = round_trip(client)
        assert found is not None
        assert found > 0
        assert round_trip(client) is None  # it is closed


def test_what_is_no_connection_of_tcp_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert round_trip(None) is None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert round_trip(ours) is None
    with socket.socket() as unconnected:
        assert round_trip(unconnected) is None
        monkeypatch.setattr(module, "_INFO", None)
        assert round_trip(unconnected) is None


@pytest.mark.parametrize("told", [b"", b"\0" * 152, b"\xff" * 152])
def test_an_older_kernel_and_one_that_does_not_know_tell_nothing(told: bytes) -> None:
    class Told:
        def getsockopt(self, *_: object) -> bytes:
            return told

    assert round_trip(Told()) is None


@linux
def test_nodes_show_how_far_their_peers_are() -> None:
    async def story() -> None:
        async with pair() as (alice, bob):
            await until(lambda: alice.peers and bob.peers, "they are connected")
            for node in (alice, bob):
                (peer,) = node.peers
                assert peer.round_trip is not None
                assert peer.round_trip > 0

    run(story)
