"""The network of the fault suite: a TCP proxy for every way from one node to another.

A link is what lies between two nodes, in both directions. Its faults are those of a real one: what
is held arrives when it is let go, for TCP sends again what was not acknowledged; what is cut is
reset on both sides; a half-open connection is dead on one side and silent on the other.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine
from itertools import combinations, permutations
from typing import Any, Self

Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]

CHUNK = 1 << 14
SLOW = 40_000
"""Bytes a second and direction of a slow link: less than nodes want to say at times."""
DELAY = 0.02
"""Seconds that a chunk takes more on a slow link."""


class Link:
    """What lies between two nodes."""

    def __init__(self) -> None:
        self.pipes: dict[Pipe, None] = {}
        self._holders = 0
        self._open = asyncio.Event()
        self._open.set()
        self._slow = 0

    def hold(self, held: bool) -> None:
        """Let nothing pass, or let pass; the last of several holders opens it."""
        self._holders += 1 if held else -1
        if self._holders:
            self._open.clear()
        else:
            self._open.set()

    def slow(self, slow: bool) -> None:
        """Be slow, or fast again."""
        self._slow += 1 if slow else -1

    def cut(self) -> None:
        """Reset every connection."""
        for pipe in [*self.pipes]:
            pipe.reset()

    def halve(self, side: int) -> list["Pipe"]:
        """Reset one side's end of each connection, and leave the other in the dark."""
        halved = [*self.pipes]
        for pipe in halved:
            pipe.silence(side)
        return halved

    async def passes(self, size: int) -> None:
        """Wait as long as so many bytes take."""
        if self._slow:
            await asyncio.sleep(DELAY + size / SLOW)
        await self._open.wait()


class Pipe:
    """One connection through a link; its ends are in the order of the nodes' numbers."""

    def __init__(self, link: Link, ends: tuple[asyncio.StreamWriter, ...]) -> None:
        self.link = link
        self._ends = ends
        self._deaf = False
        link.pipes[self] = None

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way until they end."""
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self.link.passes(len(data))
                if not self._deaf:
                    writer.write(data)
                    await writer.drain()
        await self.link.passes(0)
        if not self._deaf:
            if reader.exception() is None:
                _end(writer)
            else:
                self.reset()

    def silence(self, side: int) -> None:
        """Reset one end; what the other says from now on goes nowhere, and is not answered."""
        self._deaf = True
        _reset(self._ends[side])

    def reset(self) -> None:
        """Reset both ends."""
        self._deaf = True
        for end in self._ends:
            _reset(end)


class Network:
    """All links between some nodes, and a listening proxy for every way."""

    def __init__(self, addresses: list[tuple[str, int]]) -> None:
        self._addresses = addresses
        everybody = range(len(addresses))
        self.links = {frozenset(pair): Link() for pair in combinations(everybody, 2)}
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], None] = {}
        self._routes: dict[tuple[int, int], int] = {}

    async def __aenter__(self) -> Self:
        for dialler, dialled in permutations(range(len(self._addresses)), 2):
            server = await asyncio.start_server(
                self._proxy(dialler, dialled), "127.0.0.1", 0, limit=CHUNK
            )
            self._servers.append(server)
            self._routes[dialler, dialled] = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections)

    def routes(self, dialler: int) -> dict[str, int]:
        """At which port each address is found, for one node. Itself it may dial as it is."""
        host, port = self._addresses[dialler]
        ways = {f"{host}:{port}": port}
        for (source, target), detour in self._routes.items():
            if source == dialler:
                host, port = self._addresses[target]
                ways[f"{host}:{port}"] = detour
        return ways

    def between(self, group: list[int]) -> list[Link]:
        """The links that lead out of a group."""
        inside = set(group)
        return [link for pair, link in self.links.items() if len(pair & inside) == 1]

    def _proxy(self, dialler: int, dialled: int) -> Accepted:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._connect(dialler, dialled, reader, writer))
            self._connections[task] = None
            with contextlib.suppress(asyncio.CancelledError):
                await task
            del self._connections[task]

        return accepted

    async def _connect(
        self,
        dialler: int,
        dialled: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Connect the node that was dialled as well, and carry what the two say."""
        link = self.links[frozenset((dialler, dialled))]
        ends = [writer]
        try:
            await link.passes(0)
            # From the dialler's address, as if it had dialled itself.
            far_reader, far = await asyncio.open_connection(
                *self._addresses[dialled],
                local_addr=(self._addresses[dialler][0], 0),
                limit=CHUNK,
            )
            ends.append(far)
            pipe = Pipe(link, (writer, far) if dialler < dialled else (far, writer))
            try:
                await asyncio.gather(pipe.pump(reader, far), pipe.pump(far_reader, writer))
            finally:
                del link.pipes[pipe]
        except (OSError, asyncio.CancelledError):
            pass  # nobody is there, or the round is over
        finally:
            for end in ends:
                _reset(end)


def _end(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a crashed machine's answers do: by RST, without what is queued."""
    with contextlib.suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
