"""Where connections come in: the sockets that a node and its doors listen on.

asyncio's own server, when no descriptor is left, reports each failure of a burst and tries again
without pause. The rule here: what cannot be taken is counted, and tried again in a while; whoever
waits meanwhile does so in the kernel's queue. Handshakes of TLS have places, which are shared out
as those of our own are (`admission`): who is silent there keeps nobody out.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, cast

from rumormill.core.errors import LocalError
from rumormill.libp2p.admission import Origin, Places, origin_of
from rumormill.wire.multiaddr import Multiaddr, Way

_BACKLOG: Final = 256
_PAUSE: Final = 1.0
"""Seconds until the next try: asyncio's own."""
_MAX_SECURING: Final = 64
_TLS_TIMEOUT: Final = 5.0
"""Handshakes of TLS at a time, and seconds for each."""


class Layer(NamedTuple):
    """What lies between the sockets that are taken and the protocols that are made for them."""

    way: Way
    around: Callable[[Any], asyncio.Protocol]
    tls: ssl.SSLContext | None


PLAIN: Final = Layer(Way.PLAIN, lambda made: cast("asyncio.Protocol", made), None)


class Listening:
    """Takes connections, and makes a protocol of asyncio for each."""

    def __init__(self, make: Callable[[], asyncio.Protocol], count: Callable[[str], None]) -> None:
        self._make = make
        self._count = count
        self.addresses: list[Multiaddr] = []
        """Where we listen."""
        self._sockets: dict[socket.socket, asyncio.Task[None]] = {}
        self.expected: dict[str, Callable[[], asyncio.Protocol]] = {}
        """Hosts from which a connection is awaited that is not as others are, and what is made."""
        self._plain: list[socket.socket] = []
        self._securing: Places[asyncio.Task[None]] = Places(_MAX_SECURING)
        """Handshakes of TLS that are not done."""
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def listen(self, host: str, port: int, layer: Layer = PLAIN) -> None:
        """Take connections at a TCP address from now on."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, _, _, _, address in dict.fromkeys(found):
                listener = socket.create_server(address[:2], family=family)
                bound, number = listener.getsockname()[:2]
                self.addresses.append(Multiaddr.tcp(bound, number, way=layer.way))
                if layer is PLAIN:
                    self._plain.append(listener)
                self.take_from(listener, layer)
        except OSError as error:
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            raise LocalError(f"cannot listen on {where}: {error.strerror or error}") from error

    def take_from(self, listener: socket.socket, layer: Layer = PLAIN) -> None:
        """Take connections from a socket that is bound, and close it in the end."""
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._sockets[listener] = asyncio.ensure_future(self._accept(listener, layer))

    def bound(self, *, six: bool) -> socket.socket | None:
        """A socket to dial from the port on which we listen; None where that cannot be.

        The port is shared for this moment alone: who does not ask for that cannot listen there, so
        that two nodes are not started at one port.
        """
        family = socket.AF_INET6 if six else socket.AF_INET
        for listener in self._plain:
            if listener.family == family:
                made = socket.socket(family, socket.SOCK_STREAM)
                made.setblocking(False)
                try:
                    for each in (made, listener):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    made.bind(listener.getsockname())
                except OSError:
                    made.close()
                else:
                    return made
                finally:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
        return None

    async def close(self) -> None:
        """Take none any more."""
        tasks = [*self._sockets.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:  # also for whoever is interrupted; by then the tasks have ended
            for listener in self._sockets:
                listener.close()

    async def _accept(self, listener: socket.socket, layer: Layer) -> None:
        """Take connections until cancelled.

        None is in a future on the way: `sock_accept` would lose one that comes in the turn of the
        loop in which we close.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = listener.accept()
            except BlockingIOError:
                await _readable(listener)
                continue
            except ConnectionError:
                continue  # it was gone before we looked
            except OSError:
                self._count("no-descriptors")
                await asyncio.sleep(_PAUSE)
                continue
            host = address[0] if address else ""  # a socket in a file names nobody
            if layer.tls is None:
                try:
                    make = self.expected.get(host) or partial(self._made, layer)
                    await loop.connect_accepted_socket(make, accepted)
                except OSError:
                    accepted.close()
            else:  # a handshake that others must not wait for
                self._begin_securing(accepted, layer, origin_of(host))

    def _begin_securing(self, accepted: socket.socket, layer: Layer, origin: Origin) -> None:
        if self._securing.full:
            self._count("too-many-upgrades")
            going = self._securing.candidates(origin, ties=True)[0]
            self._securing.remove(going)
            going.cancel()
        task = asyncio.ensure_future(self._secure(accepted, layer))
        self._securing.add(task, origin)
        self._tasks[task] = None
        task.add_done_callback(self._securing.remove)
        task.add_done_callback(self._tasks.pop)

    def _made(self, layer: Layer) -> asyncio.Protocol:
        return layer.around(self._make())

    async def _secure(self, accepted: socket.socket, layer: Layer) -> None:
        loop, make = asyncio.get_running_loop(), partial(self._made, layer)
        try:
            await loop.connect_accepted_socket(
                make, accepted, ssl=layer.tls, ssl_handshake_timeout=_TLS_TIMEOUT
            )
        except OSError:  # ssl's errors are such too
            self._count("tls-failed")
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
