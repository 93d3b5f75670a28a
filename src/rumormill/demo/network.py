"""The nodes of one run: daemons, an observer in this process, a supervisor where there is one.

A daemon is one `rumormill node` or `rumormill supervisor` in a process of its own. It is started,
killed with SIGKILL, started again in the same home at the same address, and asked things through
its control socket. The rule: whoever starts one kills it, whatever happens. It is not in our
process group, so that Ctrl-C reaches us alone and we end it in order; and it ends by itself when we
are killed.

The observer is a `rumormill.Node` that follows every topic and publishes nothing. It is never
killed: it creates the topics where a protocol wants that, and its Flight door is where Spark reads.
All find each other from one ticket, the observer's, or from the supervisor; who is started again
needs none, because it remembers whom it has met.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.ids import MessageId, PeerId
from rumormill.core.trace import DeliverMessage, NodeDown, PublishMessage, TracePayload
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_messages import socket_path
from rumormill.demo.script import Participant, Script
from rumormill.log.event_log import EventLog
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.protocols.registry import protocol
from rumormill.trace.files import read_trace
from rumormill.trace.writers import LiveWriter
from rumormill.wire.multiaddr import Multiaddr

OBSERVER: Final = "observer"
KILLED: Final = "killed"
"""The reason in the trace, which we write: who is killed says nothing."""

READY_SECONDS: Final = 60.0
"""Our choice: the slowest protocol needs some seconds to find its neighbours."""


START_SECONDS: Final = 60.0
"""Our choice: Python starts in less than one, also when ten start at once on two cores."""

TRACE_INTERVAL: Final = 0.02
"""Seconds of its trace that a killed node may lose. Our choice: about the way of an event."""

_BATCH: Final = 1000
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
        # Ours, without the settings that would reach every node.
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("RUMORMILL_")
        }
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                *extra,
                "--listen",
                self._address,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
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


class Network:
    """Everybody who takes part in one run."""

    observer: Node

    def __init__(self, participant: Participant, script: Script, folder: Path) -> None:
        self.script = script
        self.folder = folder
        self._participant = participant
        self._spec = protocol(participant.protocol)
        spoken = ["--protocol", participant.protocol, "--preset", participant.preset]
        self.daemons = [Daemon(f"n{each}", folder, spoken) for each in range(script.nodes)]
        self.supervisor = Daemon("supervisor", folder, (), verb="supervisor")
        self.names: dict[str, str] = {}
        """The topics' names on the network, by the script's names."""
        self.said_of: dict[str, str] = {}
        """What people call the topics of the network, those of announcements among them."""

    @property
    def homes(self) -> list[Path]:
        """Where the logs are, by the script's numbers."""
        return [*(each.home for each in self.daemons), self.folder / OBSERVER]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everybody; in the end the observer leaves and all others are killed."""
        self.folder.mkdir(parents=True)
        deaths = self._deaths = LiveWriter(self.folder / "deaths.ndjson")
        try:
            if self._spec.servers is not None:
                await self.supervisor.start()
            async with self._new_observer() as self.observer:
                for name in self.script.topics:
                    self.names[name] = called = (await self.observer.create_topic(name)).name
                    self.said_of[called] = name
                    for each in await self.observer.versions(called) if called != name else ():
                        if each.meta is not None:
                            self.said_of[each.meta] = f"versions of {name}"
                joining = [] if self._spec.servers else self.observer.tickets
                numbers = range(self.script.nodes)
                await asyncio.gather(*[self._start(number, joining) for number in numbers])
                yield
                await asyncio.sleep(5 * TRACE_INTERVAL)  # until everybody has written its trace
        finally:
            deaths.close()
            await asyncio.gather(*[each.kill() for each in (*self.daemons, self.supervisor)])

    def _new_observer(self) -> Node:
        return Node(
            self.folder / OBSERVER,
            protocol=self._participant.protocol,
            preset=self._participant.preset,
            supervisors=self._supervisors,
            config=NodeConfig(trace_interval=TRACE_INTERVAL, shutdown_timeout=1.0),
            observers=[LiveWriter(self.folder / f"{OBSERVER}.ndjson")],
        )

    @property
    def _supervisors(self) -> list[str]:
        return [] if self._spec.servers is None else [self.supervisor.ticket]

    async def _start(self, number: int, tickets: list[str]) -> None:
        told = {
            "--topic": [self.names[each] for each in self.script.subscriptions[number]],
            "--supervisor": self._supervisors,
            "--join": tickets,
        }
        words = [word for flag, values in told.items() for each in values for word in (flag, each)]
        await self.daemons[number].start(words)

    async def ready(self) -> None:
        """Wait until everybody could publish to somebody in each topic."""
        numbers = range(self.script.nodes)
        await asyncio.gather(*[self._ready(number) for number in numbers])
        for topic in self.script.topics:
            await self.observer.wait_until_ready(self.names[topic], timeout=READY_SECONDS)

    async def _ready(self, number: int) -> None:
        for topic in self.script.subscriptions[number]:
            await self.daemons[number].client.wait(self.names[topic], 1, READY_SECONDS)

    async def kill(self, number: int) -> None:
        """Kill a node with SIGKILL, and note it in the trace for it, after its last deeds."""
        daemon = self.daemons[number]
        killed = await daemon.kill()
        topics = [self.names[each] for each in self.script.subscriptions[number]]
        deeds = await asyncio.to_thread(unsaid, daemon, topics)
        self._deaths.observe([(killed, daemon.peer, deed) for deed in (*deeds, NodeDown(KILLED))])

    async def restart(self, number: int) -> None:
        """Start a killed node again in its home, at its address; return when it is no longer
        alone."""
        await self._start(number, [])
        await self._ready(number)

    async def kept(self, number: int) -> dict[str, int]:
        """How many events a node has in its log, by the script's topics."""
        if number == self.script.observer:
            found = await asyncio.to_thread(self.observer.log.topics)
            counts = {each.name: each.next_offset for each in found}
        else:
            lines = (await self.daemons[number].client.topics()).topics
            counts = {line.name: line.next_offset for line in lines}
        return {
            topic: counts.get(self.names[topic], 0) for topic in self.script.subscriptions[number]
        }

    def finished_traces(self) -> list[Path]:
        """Everybody's trace when all are gone; what a kill has torn off is cut away."""
        found = sorted(self.folder.glob("*.ndjson"))
        for path in found:
            LiveWriter(path).close()
        return found


def unsaid(daemon: Daemon, topics: Sequence[str]) -> list[TracePayload]:
    """What a killed node's log has of its topics, and its trace had no time to say."""
    LiveWriter(daemon.trace).close()  # cuts away what is torn off
    said: dict[type[TracePayload], set[MessageId]] = {PublishMessage: set(), DeliverMessage: set()}
    for _, _, payload in read_trace(daemon.trace):
        if isinstance(payload, (PublishMessage, DeliverMessage)):
            said[type(payload)].add(payload.message_id)
    found: list[TracePayload] = []
    with EventLog(daemon.home, read_only=True) as log:
        for topic in topics:
            for event in stored(log, topic):
                if event.author == daemon.peer and event.id not in said[PublishMessage]:
                    found.append(PublishMessage(event.id, topic))
                if event.id not in said[DeliverMessage]:
                    found.append(DeliverMessage(event.id, topic, daemon.peer))
    return found


def stored(log: EventLog, topic: str) -> Iterator[Event]:
    """All events of a topic; its offsets have no gaps."""
    offset = 0
    while events := log.read(topic, offset, _BATCH):
        offset += len(events)
        yield from events
