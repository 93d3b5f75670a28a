"""The processes of `floods.py`: attackers, the node under attack, the honest pair.

Each is started with its role and is told what to do line by line; it answers with lines of JSON.
"""

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from flood_frames import (
    ACCESS_FLOODS,
    ASKED,
    CLOSED,
    CONTROL_FLOOD,
    JUNK_FLOODS,
    OLD,
    PATTERN,
    PUBSUB_FLOODS,
    QUESTION_FLOODS,
    SECRET,
    TOPIC,
    WEBSOCKET_FLOODS,
    YAMUX_FLOODS,
    junk_of,
)

from rumormill import LocalError, Node
from rumormill.libp2p import mapping, portmap
from rumormill.libp2p.config import ConnectionConfig
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.identify import IDENTIFY
from rumormill.libp2p.stream import Stream, StreamHandler
from rumormill.libp2p.swarm import Swarm
from rumormill.node.identity import create_policy, create_topic_key
from rumormill.node.policy import sign_policy
from rumormill.overlay.kademlia.messages import KAD_PROTOCOL
from rumormill.protocols.registry import protocol
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr

HANDSHAKES: Final = "handshakes"
CONTROL: Final = "control socket"
MAPPING: Final = "port mapping"
BOUNDLESS: Final = (HANDSHAKES, CONTROL, MAPPING)
"""Floods of those who have no name that could be kept out: they go on to the end of their time."""
LET_IN: Final = "let in again"
RATE: Final = 50.0
PATIENCE: Final = 20.0
"""Seconds after which an attacker that is not cut off gives up."""
HISTORY: Final = 20_000
"""Events in the topic whose history attackers ask for."""


def protocol_of(flood: str) -> str:
    """What the node under attack and the pair speak."""
    if flood in QUESTION_FLOODS and QUESTION_FLOODS[flood][0] == KAD_PROTOCOL:
        return "pulsarcast"
    return JUNK_FLOODS.get(flood, "gossipsub")


class Sink(StreamHandler):
    """Takes whatever comes."""


class Flood(Sink):
    """Sends a chunk of frames again and again, from the beginning of a frame on each new stream."""

    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.rest = b""

    def on_open(self, stream: Stream) -> None:
        self.rest = b""
        self.on_writable(stream)

    def on_writable(self, stream: Stream) -> None:
        if stream.id not in stream.connection._streams:
            return  # a stream that is gone takes everything
        rest = self.rest or self.chunk
        self.rest = rest[stream.send(rest) :]
        if not self.rest:
            asyncio.get_running_loop().call_soon(self.on_writable, stream)


def chunk_of(flood: str, key: PrivateKey) -> bytes:
    """What is sent again and again."""
    if flood in JUNK_FLOODS:
        return junk_of(JUNK_FLOODS[flood])
    if flood in WEBSOCKET_FLOODS:
        return WEBSOCKET_FLOODS[flood]
    if flood in QUESTION_FLOODS:
        return QUESTION_FLOODS[flood][1](key)
    made = {**PUBSUB_FLOODS, **ACCESS_FLOODS}.get(flood)
    return b"" if made is None else made(key)


async def attack(flood: str, times: str, seconds: str) -> None:
    """Whenever a place is named, flood it until cut off; say how long that took."""
    keys = [PrivateKey(secrets.token_bytes(32)) for _ in range(int(times))]
    chunks = [chunk_of(flood, key) for key in keys]
    ids = protocol(protocol_of(flood)).protocol_ids
    if flood in QUESTION_FLOODS:
        ids = (QUESTION_FLOODS[flood][0],)
    os.nice(19)
    print("ready", flush=True)
    for key, chunk in zip(keys, chunks, strict=True):
        place = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        start = time.monotonic()
        if flood in BOUNDLESS:
            said = await FOR_A_TIME[flood](place.strip(), start + float(seconds))
            print(json.dumps({"cut": 0.0, "again": said}), flush=True)
            continue
        cut, again, address = 0.0, LET_IN, [Multiaddr.parse(place.strip())]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while again == LET_IN:  # a connection that ends by itself is not the end of it yet
                    swarm = Swarm(key, ConnectionConfig())
                    swarm.services.update((each, lambda *_: Sink()) for each in ids)
                    with contextlib.suppress(LocalError):
                        await swarm.connect(address, keep=False)
                    for connection in [*swarm.connections.values()]:
                        await flood_until_cut_off(connection, ids, flood, chunk)
                    cut = time.monotonic() - start
                    again = await come_again(swarm, address)
                    await swarm.close()
        print(json.dumps({"cut": cut if again != LET_IN else None, "again": again}), flush=True)


async def shake_hands(place: str, until: float) -> str:
    """Come under ever new names, and go as soon as the handshake is done; return how often."""
    count, address = 0, [Multiaddr.parse(place)]
    while time.monotonic() < until:
        swarm = Swarm(PrivateKey(secrets.token_bytes(32)), ConnectionConfig())
        with contextlib.suppress(Exception):
            await swarm.connect(address, keep=False)
            count += 1
        for connection in [*swarm.connections.values()]:
            connection.abort("off")
    return f"{count} handshakes"


async def ask_control(place: str, until: float) -> str:
    """Ask the control socket for what it has to work out, and read the answers."""
    reader, writer = await asyncio.open_unix_connection(place)
    answered = 0

    async def read() -> None:
        nonlocal answered
        while data := await reader.read(1 << 18):
            answered += len(data)

    reading = asyncio.ensure_future(read())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(until - time.monotonic()):
            while True:
                writer.write(CONTROL_FLOOD)
                await writer.drain()
    reading.cancel()
    writer.transport.abort()
    return f"{answered >> 10} KiB of answers"


async def answer_mapping(place: str, until: float) -> str:
    """Send to every datagram socket of a process, as another than the gateway."""
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.bind(("127.0.0.2", 0))
        while time.monotonic() < until:
            for port in datagram_ports(int(place)):
                for _ in range(1000):
                    with contextlib.suppress(OSError):
                        sending.sendto(bytes(1000), ("127.0.0.1", port))
                        sent += 1
            await asyncio.sleep(0)
    return f"{sent} datagrams"


def datagram_ports(process: int) -> list[int]:
    """The UDP ports of a process of this machine."""
    inodes = set()
    for each in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(each.readlink().name)
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in inodes]


FOR_A_TIME: Final[dict[str, Callable[[str, float], Any]]] = {
    HANDSHAKES: shake_hands,
    CONTROL: ask_control,
    MAPPING: answer_mapping,
}


async def flood_until_cut_off(
    connection: Connection, ids: tuple[str, ...], flood: str, chunk: bytes
) -> None:
    while connection.closed_because is None:
        if flood in YAMUX_FLOODS:
            connection.open_stream(ids, Sink())
            await asyncio.sleep(0.05)
            await raw_flood(connection, YAMUX_FLOODS[flood]())
        elif flood in WEBSOCKET_FLOODS:
            await asyncio.sleep(0.2)  # earlier it were a stranger's, who is let go and not kept out
            await bare_flood(connection, chunk)
        elif flood == "identify streams":
            with contextlib.suppress(Exception):
                connection.open_stream((IDENTIFY,), Sink())
        else:
            try:
                stream = connection.open_stream(ids, Flood(chunk))
            except Exception:  # noqa: BLE001 - too many unanswered streams: try again
                await asyncio.sleep(0.01)
                continue
            while connection.closed_because is None and stream.id in connection._streams:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.0005)


async def come_again(swarm: Swarm, address: list[Multiaddr]) -> str:
    """Whether who was cut off is let in under its old name."""
    try:
        await asyncio.wait_for(swarm.connect(address, keep=False), 3)
        await asyncio.sleep(0.3)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not in
        return f"kept out ({error})"
    return LET_IN if swarm.connections else "kept out"


async def raw_flood(connection: Connection, chunks: Iterator[bytes]) -> None:
    for chunk in chunks:
        while not connection._writable and connection.closed_because is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        if connection.closed_because is not None or connection._transport is None:
            return
        assert connection._noise is not None
        connection._transport.write(connection._noise.encrypt(chunk))
        await asyncio.sleep(0)


async def bare_flood(connection: Connection, chunk: bytes) -> None:
    """Frames of WebSocket below everything else."""
    below: Any = connection._transport
    below._session.receive = lambda *_, **__: b""  # it does not mind a flood of answers
    while connection.closed_because is None:
        if below.get_write_buffer_size() < 1 << 20 and not below.is_closing():
            below._socket.write(chunk)
        await asyncio.sleep(0)


# The node under attack, and the honest pair.

_longest = 0.0


def watch_turns() -> None:
    """Time every callback of this process, by the processor time of its thread."""
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        global _longest  # noqa: PLW0603
        before = time.thread_time()
        run(handle)
        _longest = max(_longest, time.thread_time() - before)

    asyncio.Handle._run = timed  # type: ignore[method-assign]


def resident() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def supervisor() -> None:
    """A node that nobody attacks, which the skip ring needs."""
    listen = "/ip4/127.0.0.1/tcp/0"
    async with Node(None, protocol="skipring", supervises=True, listen=listen) as node:
        print(json.dumps({"ticket": node.tickets[0]}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def settings(flood: str, folder: Path) -> dict[str, Any]:
    """What the node under attack has besides."""
    if flood == "not a publisher":
        owner, policy = PrivateKey(secrets.token_bytes(32)), folder / "policy"
        made = sign_policy(owner, CLOSED, (bytes(owner.peer_id),), 1, int(time.time()))
        create_policy(policy, made)
        return {"policies": [policy]}
    if flood == "in clear":
        create_topic_key(folder / "key")
        return {"topic_keys": {SECRET: folder / "key"}}
    return {}


async def reply_to_all(node: Node) -> None:
    async for request in await node.subscribe(ASKED):
        if request.reply_to:
            await node.reply(request, b"here it is")


async def ask_for_mappings(node: Node) -> None:
    """Ask for a mapping all the time, of a gateway that does not answer."""
    asking = mapping.PortMapping(node._swarm, lambda: None)
    while True:
        with contextlib.suppress(TimeoutError):
            await asking._ask("127.0.0.1", portmap.PORT, portmap.search())


async def prepare(node: Node, flood: str) -> list[asyncio.Task[None]]:
    """Do what is flooded."""
    for topic, floods in ((CLOSED, "not a publisher"), (SECRET, "in clear")):
        if flood == floods:
            await node.subscribe(topic)
    if flood == "topics of a pattern":
        await node.subscribe(PATTERN)
    if flood.startswith("sync "):
        await node.subscribe(OLD)
        await node.publish_many(OLD, [bytes(100)] * HISTORY)
    work = {"requests": reply_to_all, MAPPING: ask_for_mappings}.get(flood)
    return [] if work is None else [asyncio.create_task(work(node))]


async def victim(flood: str, home: str, *above: str) -> None:
    global _longest  # noqa: PLW0603
    watch_turns()
    name, loop = protocol_of(flood), asyncio.get_running_loop()
    listen = ["/ip4/127.0.0.1/tcp/0"]
    if flood in WEBSOCKET_FLOODS:
        listen.append("/ip4/127.0.0.1/tcp/0/ws")
    more = settings(flood, Path(home))
    async with Node(
        Path(home, "node"), protocol=name, supervisors=above, listen=listen, **more
    ) as node:
        events = await node.subscribe(TOPIC) if name != "pulsarcast" else None
        topic = TOPIC
        if events is None:
            created = await node.create_topic(TOPIC)
            topic = created.name
            events = await node.subscribe(topic)
        work = await prepare(node, flood)
        came: dict[int, float] = {}

        async def read() -> None:
            async for event in events:
                note(came, event.data)

        work.append(asyncio.create_task(read()))
        attacked = {CONTROL: str(Path(home, "node", "control.sock")), MAPPING: str(os.getpid())}
        said: dict[str, Any] = {"ticket": node.tickets[0], "topic": topic}
        said["attacked"] = attacked.get(flood, node.tickets[-1])
        print(json.dumps(said), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            said = {"turn": _longest, "memory": resident(), "refusals": node.refusals}
            if line.strip() == "end":
                said["came"] = [*came.items()]
            print(json.dumps(said), flush=True)
            _longest = 0.0
        for each in work:
            each.cancel()


def note(came: dict[int, float], data: bytes) -> None:
    """Note when a message of the honest pair came; all processes have one clock."""
    if len(data) == 1024:
        came.setdefault(struct.unpack(">Q", data[:8])[0], time.monotonic())


async def pair(name: str, ticket: str, topic: str, *above: str) -> None:
    """Two nodes that know the node under attack alone; say how many messages were sent, and in the
    end when, and when they came."""
    loop = asyncio.get_running_loop()
    listen = ["/ip4/127.0.0.1/tcp/0"]
    async with (
        Node(None, protocol=name, supervisors=above, listen=listen) as one,
        Node(None, protocol=name, supervisors=above, listen=listen) as two,
    ):
        for node in (one, two):
            await node.connect(ticket)
        events = await two.subscribe(topic)
        if name in ("pulsarcast", "skipring", "radius"):
            await one.subscribe(topic)
        await one.wait_until_ready(topic, peers=1, timeout=30)
        await asyncio.sleep(2)
        sent: dict[int, float] = {}
        came: dict[int, float] = {}

        async def read() -> None:
            async for event in events:
                note(came, event.data)

        async def write() -> None:
            """Publish on time, whether or not what was published before has its receipt."""
            start = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for number in itertools.count():
                    due = start + number / RATE
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    sent[number] = due
                    data = struct.pack(">Q", number).ljust(1024, b"\0")
                    group.create_task(one.publish(topic, data))

        tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            said: Any = len(sent)
            if line.strip() == "end":
                tasks[1].cancel()
                await asyncio.sleep(3)
                said = {"sent": [*sent.items()], "came": [*came.items()]}
            print(json.dumps(said), flush=True)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    roles: dict[str, Callable[..., Any]] = {
        "victim": victim,
        "pair": pair,
        "attack": attack,
        "supervisor": supervisor,
    }
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(roles[sys.argv[1]](*sys.argv[2:]))
