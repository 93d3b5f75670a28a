"""The control socket: lets commands of the same user use a running node.

A Unix socket in the node's home that only its owner can open. Requests of one client are served
one after the other, so that a client that does not read its answers is not read from either: the
socket's buffers are all that waits. Whoever holds the store's lock is the only daemon of a home, so
a socket that is there when the lock has been taken was left by a dead one, and is replaced.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from rumormill.core.errors import ConfigError, LocalError, RumormillError
from rumormill.daemon import control_messages as messages
from rumormill.daemon.control_service import Service
from rumormill.daemon.endpoint import close_server
from rumormill.log import files
from rumormill.log.errors import CorruptLogError, DiskFullError

MAX_CLIENTS: Final = 64
"""Our choice: commands of one user at a time; each may hold two batches in buffers."""

_CODES: Final = {CorruptLogError: "damaged", DiskFullError: "disk-full", ConfigError: "usage"}

_log = logging.getLogger("rumormill.control")


def error_code(error: RumormillError) -> str:
    """The kind of an error, as a client is told it."""
    if isinstance(error, messages.ControlError):
        return error.code
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), "failed")


class ControlServer:
    """Serves a node to the commands of its owner."""

    def __init__(self, service: Service, path: Path, *, max_clients: int = MAX_CLIENTS) -> None:
        self._service = service
        self._path = path
        self._max_clients = max_clients
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], None] = {}
        self.refused = 0

    async def start(self) -> None:
        """Make the socket, private before anybody can connect."""
        most = messages.MAX_SOCKET_PATH
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
            self._server = await asyncio.start_unix_server(self._serve, sock=listener)
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
        if self._server is None:
            return
        await close_server(self._server, self._clients)
        with contextlib.suppress(OSError):  # the next one replaces it
            self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writer.transport.set_write_buffer_limits(high=messages.BATCH_BYTES)
        try:
            if len(self._clients) >= self._max_clients:
                self.refused += 1
                raise messages.ControlError(
                    f"the daemon serves {self._max_clients} commands already", "busy"
                )
            self._clients[task] = None
            while (request := await read_or_refuse(reader, writer)) is not None:
                await self._answer(request, reader, writer)
                if isinstance(request, messages.Subscribe):
                    break
        except messages.ControlError as error:
            await _refuse(writer, error)
        except (OSError, asyncio.CancelledError):
            _log.debug("a command was cut off")
        finally:
            self._clients.pop(task, None)
            writer.close()

    async def _answer(
        self,
        request: messages.Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            if isinstance(request, messages.Subscribe):
                await self._stream(request, reader, writer)
                return
            answer = await self._service.answer(request)
        except RumormillError as error:
            await _refuse(writer, error)
            return
        writer.write(messages.encode(answer))
        await writer.drain()

    async def _stream(
        self,
        request: messages.Subscribe,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Send events until the client hangs up; a client that is slow is waited for."""
        batches = self._service.subscribe(request.topic, offset=request.offset, since=request.since)
        hung_up = asyncio.ensure_future(reader.read(1))
        sending = asyncio.ensure_future(_send_all(batches, writer))
        try:
            await asyncio.wait({hung_up, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            hung_up.cancel()
            await asyncio.gather(sending, hung_up, return_exceptions=True)
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
        try:
            return await messages.read_request(reader)
        except messages.ControlError as error:
            if error.code == "too-large":
                raise
            await _refuse(writer, error)


async def _refuse(writer: asyncio.StreamWriter, error: RumormillError) -> None:
    with contextlib.suppress(OSError):
        writer.write(messages.encode(messages.Refused(str(error), error_code(error))))
        await writer.drain()
