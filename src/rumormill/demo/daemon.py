"""One `rumormill node` or `rumormill supervisor` in a process of its own, as the demo handles it.

It is started, killed with SIGKILL, started again in the same home at the same address, and asked
things through its control socket. The rule: whoever starts one kills it, whatever happens. It is
not in our process group, so that Ctrl-C reaches us alone and we end it in order; and it ends by
itself when we are killed.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from rumormill.core.errors import LocalError
from rumormill.core.ids import PeerId
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_messages import socket_path
from rumormill.wire.multiaddr import Multiaddr

START_SECONDS: Final = 60.0
"""Our choice: Python starts in less than one, also when ten start at once on two cores."""

TRACE_INTERVAL: Final = 0.02
"""Seconds of its trace that a killed node may lose. Our choice: about the way of an event."""

_ANYWHERE: Final = "/ip4/127.0.0.1/tcp/0"


class _Announced(msgspec.Struct):
    """The line that a node prints when it runs."""

    tickets: list[str]


class Daemon:
    """A node's process, alive or not."""

    def __init__(
        self, name: str, folder: Path, arguments: Sequence[str], verb: str = "node"
    ) -> None:
        self.name = name
        self.home = folder / name
        self.trace = folder / f"{name}.ndjson"
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "rumormill", verb, "--json", "--until-eof"]
        self._command += [*arguments, "--home", str(self.home), "--trace", str(self.trace)]
        self._command += ["--set", f"node.trace_interval={TRACE_INTERVAL}"]
        self._process: asyncio.subprocess.Process | None = None
        self._client: ControlClient | None = None
        self._address = _ANYWHERE
        self.ticket = ""

    @property
    def client(self) -> ControlClient:
        """The way to ask it something, one request at a time."""
        if self._client is None:
            raise LocalError(f"{self.name} does not run")
        return self._client

    @property
    def peer(self) -> PeerId:
        """Its peer id."""
        found = Multiaddr.parse(self.ticket).peer_id
        assert found is not None
        return bytes(found)

    async def start(self, extra: Sequence[str] = ()) -> None:
        """Start it, or start it again where it was; return when it listens and answers."""
        try:
            await self._start(extra)
        except LocalError:
            await self.kill()
            if self._address == _ANYWHERE:
                raise
            # The system may have given its port to somebody else while it was dead.
            self._address = _ANYWHERE
            await self._start(extra)

    async def _start(self, extra: Sequence[str]) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                *extra,
                "--listen",
                self._address,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=_environment(),
                start_new_session=True,
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await self._process.stdout.readline()
                self.ticket = msgspec.json.decode(line, type=_Announced).tickets[0]
                self._client = await ControlClient.connect(socket_path(self.home))
        except (TimeoutError, msgspec.MsgspecError):
            raise LocalError(f"{self.name} does not start: see {self.log}") from None
        self._address = self.ticket.partition("/p2p/")[0]

    async def kill(self) -> float:
        """End it with SIGKILL and wait until it is gone; return when it was killed."""
        process, self._process = self._process, None
        client, self._client = self._client, None
        if process is None:
            return time.time()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        killed = time.time()
        await process.wait()
        if client is not None:
            await client.close()
        return killed


def _environment() -> dict[str, str]:
    """Ours, without the settings that would reach every node."""
    return {key: value for key, value in os.environ.items() if not key.startswith("RUMORMILL_")}
