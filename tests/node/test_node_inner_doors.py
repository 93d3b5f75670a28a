"""What a stranger names leads to no door of ours: neither as its own address, nor by a name."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator

import pytest
from hostile_peer import HostilePeer

from live_nodes import run, until
from rumormill.core.errors import LocalError
from rumormill.libp2p import swarm as swarms
from rumormill.libp2p.address_book import ANYWHERE, HERE, AddressBook
from rumormill.libp2p.admission import origin_of
from rumormill.libp2p.envelope import seal_peer_record
from rumormill.libp2p.identify import IDENTIFY_PUSH, Identify
from rumormill.node.node import Node
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Endpoint, Multiaddr

ABROAD = "8.8.8.8"
OUTSIDE = Multiaddr.tcp("9.9.9.9", 4001)
INNER = (
    Multiaddr.tcp("127.0.0.1", 6379),
    Multiaddr.tcp("10.0.0.7", 80),
    Multiaddr.tcp("169.254.169.254", 80),
    Multiaddr.tcp("::1", 6379),
    Multiaddr.tcp("::ffff:0.0.0.0", 6379),
    Multiaddr.tcp("0.0.0.0", 6379),
)


class Door(asyncio.Protocol):
    """A service of this machine that is nobody else's business."""

    def __init__(self) -> None:
        self.knocks = 0
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.knocks += 1


@contextlib.asynccontextmanager
async def inner_door() -> AsyncIterator[Door]:
    door = Door()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: door, "127.0.0.1", 0)
    door.port = server.sockets[0].getsockname()[1]
    async with server:
        yield door


def somebody() -> PrivateKey:
    return PrivateKey(secrets.token_bytes(32))


def test_a_stranger_has_no_address_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """By identify, from abroad: of what it lists as its own, only what it could be reached at."""
    monkeypatch.setattr(swarms, "nearness", lambda _: ANYWHERE)

    async def story() -> None:
        async with Node(None) as alice, HostilePeer() as mallory:
            await mallory.connect(alice)
            listed = tuple(each.encode() for each in (*INNER, OUTSIDE))
            stream = mallory.open(IDENTIFY_PUSH, Identify(listen_addresses=listed).encode())
            mallory.session.end(stream)
            mallory.flush()
            book, peer = alice._swarm.book, bytes(mallory.key.peer_id)
            await until(lambda: book.endpoints(peer), "it is heard")
            assert [each.host for each in book.endpoints(peer)] == ["9.9.9.9"]

    run(story)


def test_a_record_that_a_stranger_hands_on_has_none_either() -> None:
    """As in peer exchange: signed by whom it names, who may be the stranger itself."""

    async def story() -> None:
        async with Node(None) as alice, HostilePeer() as mallory, inner_door() as door:
            await mallory.connect(alice)
            swarm, told = alice._swarm, bytes(mallory.key.peer_id)
            await until(lambda: told in swarm.connections, "it is connected")
            sybil = somebody()
            listed = (Multiaddr.tcp("127.0.0.1", door.port).encode(),)
            record = seal_peer_record(sybil, 1, listed)
            swarm.connections[told].origin = origin_of(ABROAD)
            swarm.dial_record(bytes(sybil.peer_id), record, told)
            await until(lambda: alice.refusals.get("dial-failed"), "it is dialled in vain")
            assert not door.knocks
            swarm.connections[told].origin = origin_of("127.0.0.1")
            swarm.dial_record(bytes(sybil.peer_id), record, told)
            await until(lambda: door.knocks, "a neighbour's word is good")

    run(story)


@pytest.mark.parametrize("name", ["localhost", "127.1"])
def test_a_name_leads_no_nearer_than_whoever_named_it(name: str) -> None:
    """What it stands for is known when it is dialled, and is looked at then."""

    async def story() -> None:
        async with Node(None) as alice, inner_door() as door:
            peer, at = somebody().peer_id, Endpoint(name, door.port, version=4)
            alice._swarm.book.hint(bytes(peer), [at])
            with pytest.raises(LocalError, match="leads nearer"):
                await alice._swarm.dial(bytes(peer))
            assert not door.knocks
            alice._swarm.book.hint(bytes(peer), [at], HERE)
            dialling = asyncio.ensure_future(alice._swarm.dial(bytes(peer)))
            await until(lambda: door.knocks, "a name of the configuration leads anywhere")
            dialling.cancel()
            await asyncio.gather(dialling, return_exceptions=True)

    run(story)


def test_a_name_that_leads_abroad_is_dialled_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its addresses the inner ones are left out, and the others are tried one after another."""

    async def story() -> None:
        loop, dialled = asyncio.get_running_loop(), []

        async def resolved(*_: object, **__: object) -> list[object]:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, (host, 1)) for host in ("9.9.9.8", "127.0.0.1", "9.9.9.9")]

        async def connect(made: object, host: str, *_: object, **__: object) -> None:
            dialled.append(host)
            raise OSError("not today")

        async with Node(None) as alice:
            peer = bytes(somebody().peer_id)
            alice._swarm.book.hint(peer, [Endpoint("example.org", 1)])
            monkeypatch.setattr(loop, "getaddrinfo", resolved)
            monkeypatch.setattr(loop, "create_connection", connect)
            with pytest.raises(LocalError, match="not today"):
                await alice._swarm.dial(peer)
            monkeypatch.undo()
        assert dialled == ["9.9.9.8", "9.9.9.9"]

    run(story)


def test_what_a_book_remembers_is_as_near_as_its_source() -> None:
    book, at = AddressBook(), Endpoint("a.name", 1)
    assert book.leads(b"peer", at) == ANYWHERE
    book.learn(b"peer", [at], HERE)
    assert book.leads(b"peer", at) == HERE
    book.learn(b"peer", [at])
    assert book.leads(b"peer", at) == ANYWHERE
    book.give(b"peer", at)
    assert book.leads(b"peer", at) == HERE
