"""The client's side of a node's control socket: the operations of a node of this process."""

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Self

from rumormill.daemon import control_messages as messages
from rumormill.daemon.control_consumers import Consumer, RemoteConsumer
from rumormill.daemon.control_messages import Begun, Events
from rumormill.daemon.control_service import Service, expected

_READ_AHEAD: Final = 256 * 1024
"""Bytes that wait for a command that is busy printing; more stay with the daemon."""


class NoDaemonError(messages.ControlError):
    """Nobody serves this home."""


def nobody_serves(home: Path, why: str = "") -> NoDaemonError:
    """Say who has a home, and what to do."""
    start = f"; start one with `rumormill node --home {home}`, or a `Node({str(home)!r})`"
    told = held_without_control(home) or f"no daemon runs in {home}{why or start}"
    return NoDaemonError(told, "no-daemon")


def held_without_control(home: Path) -> str | None:
    """The sentence about a process that has a home open and serves no control socket there."""
    with contextlib.suppress(OSError), (home / "lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock.read(32).decode(errors="replace").strip() or "unknown"
            return (
                f"process {holder} has {home} open and serves no control socket; there, call"
                " `node.serve(control=True)`"
            )
    return None


class ControlClient(Service):
    """A connection to a daemon. Make it with `connect`, close it with `close`.

    Calls are made one at a time; a subscription has a connection of its own, because it never ends
    by itself.
    """

    def __init__(
        self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Connect to the daemon at a socket; `NoDaemonError` when there is none."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(path), limit=_READ_AHEAD)
        except FileNotFoundError:
            raise nobody_serves(path.parent) from None
        except ConnectionRefusedError:  # what a dead one left behind
            died = ": the last one died and left its socket; start it again with `rumormill node`"
            raise nobody_serves(path.parent, died) from None
        except OSError as error:
            if len(str(path)) > 100:
                raise nobody_serves(path.parent) from None
            raise messages.ControlError(
                f"cannot connect to the daemon at {path}: {error.strerror or error}"
            ) from error
        client = cls(path, reader, writer)
        try:
            await client.welcome()
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def ended(self) -> bool:
        """Whether the daemon has hung up."""
        return self._reader.at_eof()

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def answer(self, request: messages.Request) -> messages.Answer:
        """Ask the daemon."""
        with contextlib.suppress(OSError):  # the daemon may have said why before it hung up
            self._writer.write(messages.encode(request))
            await self._writer.drain()
        return await self._next()

    async def _next(self) -> messages.Answer:
        answer = await messages.read_answer(self._reader)
        if answer is None:
            raise messages.ControlError("the daemon has stopped", "gone")
        return answer

    async def subscribe(self, request: messages.Subscribe) -> AsyncIterator[Begun | Events]:
        """First `Begun`, then batches of events until the iterator is closed."""
        client = await self.connect(self._path)
        try:
            yield expected(await client.answer(request), messages.Begun)
            while True:
                yield expected(await client._next(), messages.Events)
        finally:
            await client.close()

    async def consume(self, request: messages.Subscribe) -> Consumer:
        """Become a consumer, on a connection of its own."""
        client = await self.connect(self._path)
        try:
            expected(await client.answer(request), messages.Begun)
        except BaseException:
            await client.close()
            raise
        return RemoteConsumer(client._reader, client._writer)
