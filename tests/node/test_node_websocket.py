"""Nodes over WebSocket: the same connection as over TCP, with HTTP before it, and TLS if wanted."""

import asyncio
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile_peer import WebSocketPeer
from websockets.frames import Frame, Opcode

from certificates import certificate
from live_nodes import run, take, until
from processes import environment
from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p import listening, transports, websocket
from rumormill.node.config import NodeConfig
from rumormill.node.identity import create_network
from rumormill.node.node import Node
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr, Way

WS = "/ip4/127.0.0.1/tcp/0/ws"


async def talk(listener: Node, ticket: str, dialler: Node) -> None:
    """Messages from a few bytes to many windows, each way."""
    for publisher, reader in ((dialler, listener), (listener, dialler)):
        topic = f"to {reader.id.hex()}"
        events = await reader.subscribe(topic)
        await dialler.connect(ticket)
        await publisher.wait_until_ready(topic)
        said = [b"x" * size for size in (1, 100, 70_000, 900_000)]
        for each in said:
            await publisher.publish(topic, each)
        assert await take(events, len(said)) == said


@pytest.mark.parametrize("host", ["ip4/127.0.0.1", "ip6/::1", "dns4/localhost"])
def test_nodes_talk_over_websocket(host: str) -> None:
    async def story() -> None:
        kind = "ip6/::1" if "ip6" in host else "ip4/127.0.0.1"
        async with Node(None, listen=f"/{kind}/tcp/0/ws") as alice, Node(None) as bob:
            (ticket,) = alice.tickets
            assert "/ws/p2p/" in ticket
            await talk(alice, ticket.replace(f"/{kind}/", f"/{host}/"), bob)
            assert "/ws" in bob.peers[0].address
            assert not alice.refusals
            assert not bob.refusals

    run(story)


def test_a_node_listens_to_both_and_tells_both() -> None:
    """Who came by TCP learns where WebSocket is, and the other way round."""

    async def story() -> None:
        both = ["/ip4/127.0.0.1/tcp/0", WS]
        async with Node(None, listen=both) as alice, Node(None) as bob:
            plain, framed = alice.tickets
            await bob.connect(plain)
            told = bob._swarm.book.endpoints
            await until(lambda: len(told(alice.id)) == 2, "identify has come")
            assert [each.way for each in told(alice.id)] == [Way.PLAIN, Way.WEBSOCKET]
            assert framed.split("/p2p/")[0] in bob.network_ticket()

    run(story)


def test_a_private_network_is_private_over_websocket_too(tmp_path: Path) -> None:
    key = tmp_path / "swarm.key"
    create_network(key)

    async def story() -> None:
        async with (
            Node(None, listen=WS, network=key) as alice,
            Node(None, network=key) as bob,
            Node(None) as stranger,
        ):
            await talk(alice, alice.tickets[0], bob)
            with pytest.raises(LocalError, match="cannot reach"):
                await stranger.connect(alice.tickets[0])

    run(story)


def with_tls(folder: Path) -> NodeConfig:
    """A node's own certificate, of 127.0.0.1 and localhost."""
    pem, key = certificate(folder, "localhost", "127.0.0.1")
    return NodeConfig(tls_certificate=str(pem), tls_key=str(key))


@pytest.mark.parametrize("written", ["/tls/ws", "/wss"])
def test_with_tls_the_certificate_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """Nobody who is not vouched for is talked to; who is, is."""
    config = with_tls(tmp_path)

    async def story(*, trusted: bool) -> None:
        transports._authorities.cache_clear()
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", config.tls_certificate)
        listen = f"/ip4/127.0.0.1/tcp/0{written}"
        async with Node(None, listen=listen, config=config) as alice, Node(None) as bob:
            ticket = alice.tickets[0].replace("/tls/ws", written)
            assert "/tls/ws/p2p/" in alice.tickets[0]
            if trusted:
                await talk(alice, ticket, bob)
                return
            with pytest.raises(LocalError, match="certificate verify failed"):
                await bob.connect(ticket)
            await until(lambda: alice.refusals.get("tls-failed"), "it is counted")

    run(lambda: story(trusted=False))
    run(lambda: story(trusted=True))
    transports._authorities.cache_clear()


def test_silent_sockets_before_tls_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than there are places, and none of them says a word: the oldest makes room."""
    config = with_tls(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", config.tls_certificate)
    monkeypatch.setattr(listening, "_TLS_TIMEOUT", 600.0)  # none of them goes by itself
    transports._authorities.cache_clear()

    async def story() -> None:
        listen = "/ip4/127.0.0.1/tcp/0/tls/ws"
        async with Node(None, listen=listen, config=config) as alice, Node(None) as bob:
            endpoint = Multiaddr.parse(alice.tickets[0]).endpoint
            assert endpoint is not None
            silent = [
                (await asyncio.open_connection(endpoint.host, endpoint.port))[1] for _ in range(70)
            ]
            await bob.connect(alice.tickets[0])
            assert alice.refusals["too-many-upgrades"] >= 7
            for each in silent:
                each.close()

    run(story)
    transports._authorities.cache_clear()


def test_to_listen_with_tls_takes_a_certificate(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(LocalError, match=r"node\.tls_certificate"):
            await Node(None, listen="/ip4/127.0.0.1/tcp/0/tls/ws").start()
        config = NodeConfig(tls_certificate=str(tmp_path / "none"), tls_key="none")
        with pytest.raises(LocalError, match="cannot use the certificate"):
            await Node(None, listen="/ip4/127.0.0.1/tcp/0/tls/ws", config=config).start()

    run(story)


def test_other_requests_of_http_are_refused_and_counted() -> None:
    """A crawler, a head without end, and one who says nothing; a peer gets in as ever."""

    async def story() -> None:
        config = NodeConfig(upgrade_timeout=0.5)
        async with Node(None, listen=WS, config=config) as alice, Node(None) as bob:
            port = int(alice.tickets[0].split("/")[4])
            for request, answer in (
                (b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 426 "),
                (b"GET / HTTP/1.1\r\nA: " + b"b" * 9000, b"HTTP/1.1 431 "),
                (b"", b""),
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                assert (await reader.read()).startswith(answer)
                writer.close()
            assert alice.refusals == {websocket.NOT_WEBSOCKET: 2, "upgrade-timeout": 1}
            await talk(alice, alice.tickets[0], bob)

    run(story)


def test_who_dials_websocket_where_there_is_none_is_told() -> None:
    async def story() -> None:
        async with Node(None) as alice, Node(None) as bob:
            with pytest.raises(LocalError, match=r"/ws: .*valid HTTP response"):
                await bob.connect(alice.tickets[0].replace("/p2p/", "/ws/p2p/"))

    run(story)


WITHOUT = """
import asyncio, sys
sys.modules["websockets"] = None
from rumormill import Node
async def story():
    try:
        await Node(None, listen="/ip4/127.0.0.1/tcp/0/ws").start()
    except Exception as error:
        print(error)
    async with Node(None) as node:
        try:
            await node.connect(node.tickets[0].replace("/p2p/", "/ws/p2p/")[:-4] + "AAAA")
        except Exception as error:
            print(error)
asyncio.run(story())
"""


def test_without_the_extra_it_is_said_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all('pip install "rumormill[websocket]"' in line for line in lines)


class Deaf(asyncio.Transport):
    """A socket whose other end does not read."""

    waiting = 0

    def write(self, data: Any) -> None:
        self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return False


class Bearer:
    """The connection above, which is told why it ends."""

    ready = True

    def __init__(self) -> None:
        self.failed = ""
        self.useless = 0

    def connection_made(self, transport: Any) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        pass

    def charge_useless(self, frames: int) -> None:
        self.useless += frames

    def fail(self, error: PeerError) -> None:
        self.failed = error.reason


def test_who_pings_and_does_not_read_is_cut_off_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pongs that wait are bounded, and what is beyond is counted and held against the peer."""
    monkeypatch.setattr(transports, "_MAX_UNREAD", 10_000)

    async def story() -> None:
        bearer: Any = Bearer()
        transport = transports.WebSocketTransport(bearer, Way.WEBSOCKET)
        transport.connection_made(Deaf())
        asker = websocket.WebSocketSession("127.0.0.1:80")
        transport.data_received(asker.data_to_send())
        ping = b"\x89\xfd" + bytes(4) + bytes(125)
        transport.data_received(ping * 40)
        assert not bearer.failed
        transport.data_received(ping * 60)
        assert bearer.failed == "unread-websocket-pongs"
        assert bearer.useless == 100

    run(story)


def test_pings_of_websocket_are_paid_for_below_their_limit_too() -> None:
    """No connection breaks a rule, and the peer is cut off all the same."""

    async def story() -> None:
        chunk = Frame(Opcode.PING, bytes(125)).serialize(mask=True) * 3500
        cut_off = "cut-off-useless-frames"
        async with Node(None, listen=WS) as alice:
            key, tries = PrivateKey(secrets.token_bytes(32)), 0
            peer = bytes(key.peer_id)
            while cut_off not in alice.refusals and tries < 8:
                tries += 1
                async with WebSocketPeer(key) as mallory:
                    await mallory.connect(alice)
                    await until(lambda: peer in alice._swarm.connections, "it is let in")
                    mallory.bare(chunk)
                    before = mallory.received
                    mallory.session.ping(tries)
                    mallory.flush()
                    await until(
                        lambda one=mallory, had=before: one.closed or one.received > had,
                        "what it says is worked through",
                    )
            assert cut_off in alice.refusals
            assert "tiny-websocket-frames" not in alice.refusals

    run(story)
