"""A socket is let go in order: what waits in it leaves first, and its end is nobody's error."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rumormill.libp2p.closing import let_go, until

BYTES = 4 << 20
"""More than the kernel takes from somebody whose peer does not read."""


class Disconnected(socket.socket):
    """A socket whose peer is gone at the moment when our half is to be closed."""

    def shutdown(self, how: int) -> None:
        raise OSError(107, "Transport endpoint is not connected")


def with_a_full_socket(
    story: Callable[[asyncio.Transport, socket.socket], Awaitable[None]],
    kind: type[socket.socket] = socket.socket,
) -> list[dict[str, Any]]:
    """Tell a story of a transport whose buffer is full; return what was raised in callbacks."""
    raised: list[dict[str, Any]] = []

    async def told() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: raised.append(context))
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        with theirs:
            sock = kind(fileno=ours.detach())
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
            transport.write(bytes(BYTES))
            assert transport.get_write_buffer_size() > 0
            await story(transport, theirs)
            assert transport.is_closing()

    asyncio.run(told())
    return raised


async def everything(theirs: socket.socket) -> int:
    """Read to the end; return how many bytes came."""
    count = 0
    while data := await asyncio.get_running_loop().sock_recv(theirs, 1 << 16):
        count += len(data)
    return count


def test_what_waits_is_sent_before_our_half_is_closed() -> None:
    async def story(transport: asyncio.Transport, theirs: socket.socket) -> None:
        deadline = let_go(transport, orderly=True, within=60.0)
        assert await everything(theirs) == BYTES
        assert not transport.is_closing(), "the peer's half is still open"
        theirs.close()
        await until(transport.is_closing, 10.0)
        deadline.cancel()

    assert with_a_full_socket(story) == []


def test_a_peer_that_is_gone_when_our_half_is_to_be_closed_raises_nowhere() -> None:
    """Neither in the caller, nor in a callback of the event loop, where it would be logged."""

    async def story(transport: asyncio.Transport, theirs: socket.socket) -> None:
        deadline = let_go(transport, orderly=True, within=60.0)
        assert await everything(theirs) == BYTES
        await until(transport.is_closing, 10.0)
        deadline.cancel()

    assert with_a_full_socket(story, Disconnected) == []


@pytest.mark.parametrize("orderly", [True, False])
def test_a_peer_that_never_reads_is_waited_for_until_the_deadline(orderly: bool) -> None:
    async def story(transport: asyncio.Transport, theirs: socket.socket) -> None:
        closed = asyncio.get_running_loop().create_future()
        transport.set_protocol(Ending(closed))
        let_go(transport, orderly=orderly, within=0.01)
        await closed

    assert with_a_full_socket(story) == []


class Ending(asyncio.Protocol):
    """Tells when the socket is gone."""

    def __init__(self, closed: "asyncio.Future[None]") -> None:
        self._closed = closed

    def connection_lost(self, error: Exception | None) -> None:
        self._closed.set_result(None)
