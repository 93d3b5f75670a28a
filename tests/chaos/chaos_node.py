"""The process that the fault suite kills, pauses and starves: one node with a home.

Its one argument is a `Life` as JSON. It says what happened on stdout, a JSON list a line, each
written in one piece after the fact that it states (`try` alone comes before it):

    ["opening"], ["ready"], ["topic", label, name]
    ["try", label, content], ["kept", label, offset, id, content], ["refused", error, text, bare]
    ["given", label, offset, id, content, date], ["read", label, [[offset, id, content], ...]]
    ["quiet"], ["look", state], ["failed", error, text]
    ["extent", {label: [first offset, end of what can be read, from which date on all is there]}]

Requests are lines on stdin: `publish`, `quiet`, `look`, `extent`, `clock SECONDS`, `full`, `room`,
those of `chaos_upkeep`, and `stacks`, which writes to stderr what everything waits for.
The process ends in order when stdin does, with `GAVE_UP` when its log can store nothing any more,
and never outlives the suite.
"""

import asyncio
import contextlib
import ctypes
import faulthandler
import itertools
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from chaos_say import say
from chaos_upkeep import Upkeep

from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import Event
from rumormill.core.history import stamp_of
from rumormill.log import repair
from rumormill.log.errors import CorruptLogError, DamagedRangeError, DiskFullError, StoreError
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.subscription import Subscription
from rumormill.protocols.pulsarcast.commands import SubscribeTo
from rumormill.protocols.skipring.peer import LookAt

GAVE_UP = 3
"""The exit code of a node whose log has failed: whoever runs it starts it again."""

PARAMETERS: dict[str, dict[str, Any]] = {
    "floodsub": {},
    "gossipsub": {"heartbeat_interval": 0.1},
    "pulsarcast": {
        "kademlia.bootstrap_delay": "0.1",
        "subscribe_retry_delay": "0.2",
        "sync_settle": "0.5",
        "move_linger": "0.5",
        "refresh_interval": "1",
        "retry_delay": "0.2",
        "max_retry_delay": "1",
        "avoid_failed": "1",
        "join_timeout": "1",
        "connect_timeout": "2",
        "fetch_timeout": "1",
        "rendezvous_interval": "0.5",
        "max_rendezvous_interval": "2",
        "request_retry": "1",
        "request_timeout": "8",
    },
    "radius": {},
    "skipring": {"interval": 0.25},
}
"""Networks that heal in seconds: a round has no minute to wait for a refresh."""

CONFIG = NodeConfig(
    redial_delay_first=0.05,
    redial_delay_longest=0.25,
    keep_alive_interval=0.5,
    keep_alive_timeout=2.0,
    dial_timeout=2.0,
    upgrade_timeout=2.0,
    negotiation_timeout=2.0,
    pending_timeout=4.0,
    shutdown_timeout=1.0,
    close_timeout=0.5,
)
"""Likewise: a dead link is found within two seconds."""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is told of the node that it runs."""

    home: str
    listen: str
    protocol: str
    word: str
    """Begins the content of each of its events: no other life of any node has it."""
    connect: list[str]
    """Tickets of peers that it keeps connections to."""
    routes: dict[str, int]
    """Through which port of the suite an address, HOST:PORT, is reached."""
    topics: dict[str, str]
    """The topics by label; empty where this node is to create them."""
    since: dict[str, int]
    """Where the subscription to each goes on."""
    supervisors: list[str]
    supervises: bool = False
    clock: float = 0.0
    """How many seconds the machine's clock is ahead."""
    publishers: int = 2
    pause: float = 0.03
    """Seconds between two events of a publisher."""
    damaged: bool = False
    """Whether the suite has damaged its log at some time: then it may need a repair."""
    retained: bool = False
    """Whether retention has deleted of its log at some time."""
    takes: str = ""
    """The exported file that it imports before it enters its topics."""


def content_of(name: str) -> bytes:
    """What an event of this name says: between 20 bytes and 40 KB, so that a part would show."""
    dice = zlib.crc32(name.encode())
    repeats = 1 + dice % (2000 if dice % 16 == 0 else 40)
    return f"{name}|".encode() * repeats


def name_in(data: bytes) -> str:
    """The name in a content, marked where the rest of the content is another."""
    name = data.partition(b"|")[0].decode(errors="replace")
    return name if data == content_of(name) else f"damaged {name[:80]}"


class Clock:
    """The machine's clock, which may be wrong and may be set; the monotonic one stays."""

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead
        true, true_ns = time.time, time.time_ns
        time.time = lambda: true() + self.ahead
        time.time_ns = lambda: true_ns() + int(self.ahead * 1e9)


class Network(asyncio.SelectorEventLoop):
    """A loop on which other nodes are reached through the suite's proxies alone."""

    routes: dict[str, int]

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> Any:
        """Dial where the proxy for this address listens."""
        detour = self.routes[f"{host}:{port}"]
        return await super().create_connection(factory, "127.0.0.1", detour, **options)


class Peer:
    """A node, its publishers and its subscribers."""

    def __init__(self, life: Life, clock: Clock) -> None:
        self.life = life
        self.clock = clock
        self.topics = dict(life.topics)
        if life.protocol != "pulsarcast":  # where a topic's name is made with it
            self.topics = {label: label for label in life.topics}
        self.node = Node(
            life.home,
            listen=life.listen,
            protocol=life.protocol,
            config=CONFIG,
            parameters=PARAMETERS[life.protocol],
            supervisors=life.supervisors,
            supervises=life.supervises,
            control=False,  # nobody uses it, and the model of a disk knows files alone
        )
        self.publishing = asyncio.Event()
        self.at_work = 0
        self.requests: list[asyncio.Task[None]] = []
        self.failed = asyncio.Event()
        self.upkeep = Upkeep(self.node, self.topics)
        self.damaged, self.retained = life.damaged, life.retained

    def gives_up(self, error: StoreError) -> None:
        """The log stores nothing any more: nothing but a new start helps."""
        say("failed", type(error).__name__, str(error))
        self.failed.set()

    async def publish(self, worker: int) -> None:
        """Publish whenever it is wished, and tell of each receipt and refusal."""
        labels = list(self.topics)
        for number in itertools.count():
            await self.publishing.wait()
            self.at_work += 1
            label = labels[(worker + number) % len(labels)]
            name = f"{self.life.word}.{worker}.{number}"
            say("try", label, name)
            pause = self.life.pause
            try:
                receipt = await self.node.publish(self.topics[label], content_of(name))
                say("kept", label, receipt.offset, receipt.id.hex(), name)
            except RumormillError as error:
                say("refused", type(error).__name__, str(error), False)
                if isinstance(error, StoreError) and not isinstance(error, DiskFullError):
                    self.gives_up(error)
                pause = 0.1
            except Exception as error:  # noqa: BLE001 (whatever it is, the suite wants to know)
                say("refused", type(error).__name__, str(error), True)
                pause = 0.1
            finally:
                self.at_work -= 1
            await asyncio.sleep(pause)

    async def listen(self, label: str) -> None:
        """Tell of each event that arrives, behind those that former lives were given."""
        topic = self.topics[label]
        with self.bearing_damage():
            say("read", label, [_told(event) for event in await self.node.history(topic)])
        events = await self.subscribe(label, topic)
        while True:
            with self.bearing_damage():
                async for event in events:
                    say("given", label, *_told(event), stamp_of(event))
            await asyncio.sleep(0.05)

    @contextlib.contextmanager
    def bearing_damage(self) -> Iterator[None]:
        """What the suite has damaged is refused, until the log is repaired."""
        try:
            yield
        except DamagedRangeError:
            if not self.damaged:
                raise

    async def subscribe(self, label: str, topic: str) -> Subscription:
        """Subscribe, as soon as the disk has room for the note of it."""
        while True:
            try:
                return await self.node.subscribe(topic, since_offset=self.life.since.get(label, 0))
            except DiskFullError:
                await asyncio.sleep(0.1)

    async def enter(self) -> None:
        """Join the topics; the one who is to create them does."""
        for label, name in self.topics.items():
            if self.life.protocol != "pulsarcast":
                await self.node.create_topic(label)
            elif not name:
                allowed = "anyone" if label == "open" else ["author"]
                made = await self.node.create_topic(
                    label, allowed_publishers=allowed, request_to_publish=True
                )
                self.topics[label] = made.name
            else:
                await self.follow(name)
            say("topic", label, self.topics[label])

    async def follow(self, topic: str) -> None:
        """Find a way into a Pulsarcast topic, which may take until others are back."""
        while True:
            try:
                await self.node.command(SubscribeTo(topic=topic))
            except LocalError:
                await asyncio.sleep(0.1)
            else:
                return

    async def keep_connected(self, ticket: str) -> None:
        """Connect to a peer that may be dead just now; afterwards the node keeps the link."""
        while True:
            try:
                await self.node.connect(ticket)
            except LocalError:
                await asyncio.sleep(0.05)
            else:
                return

    async def look(self) -> dict[str, Any]:
        """How a skip ring's node sees its rings; of the others there is nothing to see."""
        if self.life.protocol != "skipring" or self.life.supervises:
            return {}
        found = {}
        for label in self.topics:
            try:
                view = await self.node.command(LookAt(label))
            except LocalError:
                return {}
            found[label] = [view.label, view.root_hash.hex()]
        return found

    async def fill(self, full: bool) -> None:
        """Let the database have no further page, or room again."""
        writer = self.node.log.writer()

        def limit() -> None:
            (pages,) = writer.db.execute("PRAGMA page_count").fetchone()
            writer.db.execute(f"PRAGMA max_page_count = {pages if full else 1 << 30}")

        with contextlib.suppress(StoreError):
            await asyncio.wrap_future(writer.run(writer.exclusively(limit)))

    async def hear(self, line: str) -> None:
        """Do what the suite asks for, unless the node is about to end."""
        with contextlib.suppress(LocalError):
            await self.answer(*line.split())

    async def answer(self, request: str, *words: str) -> None:
        """Do what the suite asks for."""
        if request == "publish":
            self.publishing.set()
        elif request == "quiet":
            self.publishing.clear()
            while self.at_work:  # noqa: ASYNC110 (a publication announces nothing)
                await asyncio.sleep(0.01)
            say("quiet")
        elif request == "look":
            say("look", await self.look())
        elif request == "extent":
            extents = await asyncio.to_thread(self.upkeep.extents, windows=self.retained)
            say("extent", extents)
        elif request in self.upkeep.work:
            self.damaged |= request == "damage"
            self.retained |= request == "retain"
            await self.upkeep.do(request, *words)
        elif request == "finish":
            await self.upkeep.finish()
        elif request == "clock":
            self.clock.ahead = float(words[0])
        elif request == "stacks":
            faulthandler.dump_traceback()
            for task in asyncio.all_tasks():
                task.print_stack(file=sys.stderr)
        else:
            await self.fill(request == "full")

    async def serve(self) -> None:
        """Answer requests until there are no more.

        No thread reads them: the loop would wait for it at the end, until another request comes.
        """
        requests = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(requests), sys.stdin
        )
        while line := await requests.readline():
            self.requests.append(asyncio.ensure_future(self.hear(line.decode())))

    async def live(self) -> None:
        """Take part until stdin ends or the log fails."""
        tasks = [
            asyncio.ensure_future(self.serve()),
            asyncio.ensure_future(self.failed.wait()),
            *[asyncio.ensure_future(self.keep_connected(each)) for each in self.life.connect],
        ]
        ends = tasks[:2]
        if not self.life.supervises:
            tasks.append(asyncio.ensure_future(self.take_part()))
            ends.append(tasks[-1])
        say("ready")
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def take_part(self) -> None:
        """Enter the topics, read, publish and listen."""
        if self.life.takes:
            await self.upkeep.do("import", self.life.takes)
        await self.enter()
        self.upkeep.tell_losses()
        works = [self.listen(label) for label in self.topics]
        works += [self.publish(worker) for worker in range(self.life.publishers)]
        try:
            await asyncio.gather(*works)
        except StoreError as error:
            self.gives_up(error)


def _told(event: Event) -> tuple[int, str, str]:
    return event.offset, event.id.hex(), name_in(event.data)


async def main(life: Life, clock: Clock) -> int:
    """Run one life; return the exit code."""
    say("opening")
    peer = Peer(life, clock)
    try:
        try:
            await peer.node.start()
        except CorruptLogError:
            if not life.damaged:
                raise
            await asyncio.to_thread(repair, life.home)
            peer = Peer(life, clock)
            await peer.node.start()
    except StoreError as error:
        peer.gives_up(error)
        return GAVE_UP
    if life.damaged:
        say("repaired")
    try:
        await peer.live()
    finally:
        await peer.node.close()
    return GAVE_UP if peer.failed.is_set() else 0


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the suite
    told = msgspec.json.decode(sys.argv[1], type=Life)
    Network.routes = told.routes
    with asyncio.Runner(loop_factory=Network) as runner:
        code = runner.run(main(told, Clock(told.clock)))
    sys.exit(code)
