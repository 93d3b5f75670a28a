"""The control socket: lets commands of the same user use a running node.

A Unix socket in the node's home that only its owner can open. Requests of one client are served
one after the other, one each time the event loop comes round, so that a client that does not read
its answers is not read from either: the socket's buffers are all that waits. A client that says
nothing at all is let go after a while. One that does not read what it was sent may go on so, but
not in the way of others: when all places are taken, it makes room for whoever comes, and when
there is no such client, one too many is told so. Whoever holds the store's lock is the only daemon
of a home, so a socket that is there when the lock has been taken was left by a dead one, and is
replaced.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, cast

from rumormill.core.errors import LocalError, RumormillError
from rumormill.daemon import control_messages as messages
from rumormill.daemon.control_consumers import serve_consumer
from rumormill.daemon.control_errors import refusal_of
from rumormill.daemon.control_service import Service
from rumormill.daemon.endpoint import MAX_SOCKET_PATH
from rumormill.dashboard.http import close_server, until_either
from rumormill.libp2p.listening import Listening
from rumormill.log import files

MAX_CLIENTS: Final = 64
"""Our choice: commands of one user at a time; each may hold two batches in buffers."""

PATIENCE: Final = 30.0
"""Seconds for the first request, after which a client may pause for ever: a program that publishes
what it is given does."""

STALLED: Final = 30.0
"""Seconds for which a client that is sent something may read nothing and still keep its place when
all are taken. Somebody who looks at a page of `rumormill sub | less` may take longer."""

_LAST_WORDS: Final = 5.0
"""Seconds in which a client that is turned away has to hang up."""

_log = logging.getLogger("rumormill.control")


class _Client(asyncio.StreamReaderProtocol):
    """A connection, and since when its buffer is full."""

    stalled_since: float | None = None

    def pause_writing(self) -> None:
        """There is more in the buffer than should wait there."""
        self.stalled_since = asyncio.get_running_loop().time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self.stalled_since = None
        super().resume_writing()


class ControlServer:
    """Serves a node to the commands of its owner."""

    def __init__(
        self,
        service: Service,
        path: Path,
        count: Callable[[str], None],
        *,
        max_clients: int = MAX_CLIENTS,
        patience: float = PATIENCE,
        stalled: float = STALLED,
    ) -> None:
        self._service = service
        self._path = path
        self._count = count
        """Told the reason of each refusal."""
        self._max_clients = max_clients
        self._patience = patience
        self._stalled = stalled
        self._listening = Listening(self._protocol, count)
        self._started = False
        self._clients: dict[asyncio.Task[None], _Client] = {}
        self._turned_away: dict[asyncio.Task[None], None] = {}

    def _protocol(self) -> asyncio.Protocol:
        return _Client(asyncio.StreamReader(), self._serve)

    async def start(self) -> None:
        """Make the socket, private before anybody can connect."""
        most = MAX_SOCKET_PATH
        if len(os.fsencode(self._path)) > most:
            raise LocalError(
                f"the path of the control socket {self._path} is longer than {most} bytes;"
                " choose a home with a shorter path"
            )
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            files.make_folder(self._path.parent)
            self._clear()
            listener.bind(str(self._path))
            self._path.chmod(0o600)  # before it listens, it lets nobody in
            self._listening.take_from(listener)
            self._started = True
        except OSError as error:
            listener.close()
            raise LocalError(
                f"cannot make the control socket {self._path}: {error.strerror}"
            ) from error
        except LocalError:
            listener.close()
            raise

    def _clear(self) -> None:
        """Remove a socket that nobody serves, and nothing else."""
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self._path.lstat().st_mode):
                raise LocalError(f"{self._path} is not a socket; move it away")
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe,
            ):
                # Only a node without files can meet another here: no lock is held for it.
                probe.connect(str(self._path))
                raise LocalError(f"a node already serves {self._path}; choose another home")
            self._path.unlink()

    async def close(self) -> None:
        """Hang up on everybody and remove the socket."""
        if not self._started:
            return
        try:
            await close_server(self._listening, [*self._clients, *self._turned_away])
        finally:
            with contextlib.suppress(OSError):  # the next one replaces it
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writer.transport.set_write_buffer_limits(high=messages.BATCH_BYTES)
        try:
            if self._has_room():
                self._clients[task] = cast("_Client", writer.transport.get_protocol())
                await self._converse(reader, writer)
            else:
                self._count("busy")
                if len(self._turned_away) < self._max_clients:
                    self._turned_away[task] = None
                    await self._turn_away(reader, writer)
        except messages.ControlError as error:
            await _refuse(writer, error)
        except OSError:
            _log.debug("a command was cut off")
        except asyncio.CancelledError:
            # By `close`, or to make room: what the client has not read is not waited for.
            writer.transport.abort()
        finally:
            self._clients.pop(task, None)
            self._turned_away.pop(task, None)
            writer.close()

    def _has_room(self) -> bool:
        """Whether there is a place, if need be that of who has read nothing for longest."""
        if len(self._clients) < self._max_clients:
            return True
        stalled = [
            (client.stalled_since, task)
            for task, client in self._clients.items()
            if client.stalled_since is not None
        ]
        since, longest = min(stalled, key=lambda each: each[0], default=(0.0, None))
        if longest is None or asyncio.get_running_loop().time() - since < self._stalled:
            return False
        self._count("made-room")
        del self._clients[longest]
        longest.cancel()
        return True

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests until the client hangs up, or begins to listen for good."""
        patience: float | None = self._patience
        while True:
            try:
                async with asyncio.timeout(patience):
                    request = await read_or_refuse(reader, writer)
            except TimeoutError:
                self._count("silent")
                raise messages.ControlError(
                    f"no request came within {patience:g} seconds", "silent"
                ) from None
            if request is None:
                return
            await self._answer(request, reader, writer)
            if isinstance(request, messages.Subscribe):
                return
            patience = None

    async def _turn_away(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say that there are too many, and wait until the client has read it and hung up.

        Bytes that were not read would turn the close into a reset, which takes the answer with it.
        """
        error = messages.ControlError(
            f"the daemon serves {self._max_clients} commands already: end one of them, such as a"
            " `rumormill sub` that nobody needs, or try again later",
            "busy",
        )
        async with asyncio.timeout(_LAST_WORDS):
            await _refuse(writer, error)
            writer.write_eof()
            while await reader.read(messages.BATCH_BYTES):
                pass

    async def _answer(
        self,
        request: messages.Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            if isinstance(request, messages.Subscribe):
                await self._subscribe(request, reader, writer)
                return
            answer = await self._service.answer(request)
        except RumormillError as error:
            await _refuse(writer, error)
            return
        writer.write(messages.encode(answer))
        await writer.drain()

    async def _subscribe(
        self,
        request: messages.Subscribe,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Send events until the client hangs up, who is waited for if it is slow; those of a named
        subscription when it asks for them."""
        if request.name:
            consumer = await self._service.consume(request)
            writer.write(messages.encode(messages.Begun(0)))
            await serve_consumer(consumer, reader, writer)
            return
        batches = self._service.subscribe(request)
        await until_either(_send_all(batches, writer), reader.read(1))
        raise messages.ControlError("the subscription has ended", "ended")


async def _send_all(
    batches: AsyncIterator[messages.Begun | messages.Events], writer: asyncio.StreamWriter
) -> None:
    try:
        async for batch in batches:
            writer.write(messages.encode(batch))
            await writer.drain()
    finally:
        await batches.aclose()  # type: ignore[attr-defined]


async def read_or_refuse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> messages.Request | None:
    """The next request; a record that is none is answered, and one without end is the end."""
    while True:
        await asyncio.sleep(0)  # or all that one client has sent would be answered in one turn
        try:
            return await messages.read_request(reader)
        except messages.ControlError as error:
            if error.code == "too-large":
                raise
            await _refuse(writer, error)


async def _refuse(writer: asyncio.StreamWriter, error: RumormillError) -> None:
    with contextlib.suppress(OSError):
        writer.write(messages.encode(refusal_of(error)))
        await writer.drain()
