"""Where connections come in: the sockets that a node and its doors listen on.

asyncio's own server, when no descriptor is left, reports each failure of a burst and tries again
without pause. The rule here: what cannot be taken is counted, and tried again in a while; whoever
waits meanwhile does so in the kernel's queue.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from rumormill.core.errors import LocalError
from rumormill.wire.multiaddr import Multiaddr

_BACKLOG: Final = 256
_PAUSE: Final = 1.0
"""Seconds until the next try: asyncio's own."""


class Listening:
    """Takes connections, and makes a protocol of asyncio for each."""

    def __init__(self, make: Callable[[], asyncio.Protocol], count: Callable[[str], None]) -> None:
        self._make = make
        self._count = count
        self.addresses: list[Multiaddr] = []
        """Where we listen."""
        self._sockets: dict[socket.socket, asyncio.Task[None]] = {}

    async def listen(self, host: str, port: int) -> None:
        """Take connections at a TCP address from now on."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, _, _, _, address in dict.fromkeys(found):
                listener = socket.create_server(address[:2], family=family)
                self.addresses.append(Multiaddr.tcp(*listener.getsockname()[:2]))
                self.take_from(listener)
        except OSError as error:
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            raise LocalError(f"cannot listen on {where}: {error.strerror or error}") from error

    def take_from(self, listener: socket.socket) -> None:
        """Take connections from a socket that is bound, and close it in the end."""
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._sockets[listener] = asyncio.ensure_future(self._accept(listener))

    async def close(self) -> None:
        """Take none any more."""
        for accepting in self._sockets.values():
            accepting.cancel()
        await asyncio.gather(*self._sockets.values(), return_exceptions=True)
        for listener in self._sockets:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        """Take connections until cancelled.

        None is in a future on the way: `sock_accept` would lose one that comes in the turn of the
        loop in which we close.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                await _readable(listener)
                continue
            except ConnectionError:
                continue  # it was gone before we looked
            except OSError:
                self._count("no-descriptors")
                await asyncio.sleep(_PAUSE)
                continue
            try:
                await loop.connect_accepted_socket(self._make, accepted)
            except OSError:
                accepted.close()


async def _readable(listener: socket.socket) -> None:
    """Wait until somebody knocks."""
    loop = asyncio.get_running_loop()
    knocked = asyncio.Event()
    loop.add_reader(listener, knocked.set)
    try:
        await knocked.wait()
    finally:
        loop.remove_reader(listener)
