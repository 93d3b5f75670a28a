"""Claim: a peer that floods is felt by nobody, and is cut off within seconds.

A node under attack relays for an honest pair, which is connected to it alone and exchanges 50
messages a second. (In the skip ring, where neighbours find each other, what counts is when they
come to the node itself.) After a calm while, one to four attackers, a process each, send one thing
as fast as the node reads it.

All processes run from the beginning, and all that attackers send is made before the calm while: the
calm value is that of the same machine with the same processes. Attackers stand for other machines,
so they have the lowest priority: they send with all the processor time that the node and the honest
pair leave, and what is measured is what they do to the node, not that they need a processor too.

For each flood the table shows

    delivered   of the honest pair's messages, from the first attack to the end
    p99         of their delays, with the calm value before, and the ratio (at most 3)
    turn        the longest that one callback kept the node's event loop (at most 100 ms)
    memory      by which the node grew
    cut off     seconds until the last attacker was disconnected (at most 10), and for what

`--flood` and `--attackers` choose, `--markdown` prints the table of docs/security.md.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import secrets
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rumormill import Node
from rumormill.libp2p.config import ConnectionConfig
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.identify import IDENTIFY
from rumormill.libp2p.stream import Stream, StreamHandler
from rumormill.libp2p.swarm import Swarm
from rumormill.protocols.pubsub.codec import encode_rpc, signing_payload
from rumormill.protocols.pubsub.messages import Control, IHave, Message, Rpc, SubOpts
from rumormill.protocols.registry import protocol
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr

TOPIC = "honest"
RATE = 50.0
CALM = 6.0
STORM = 12.0
CHUNK = 64 << 10
CUT_OFF = "cut-off-"
MOST_RATIO, MOST_TURN, MOST_CUT = 3.0, 0.1, 10.0


# What attackers send: chunks of whole frames, made once.


def rpcs(*made: Rpc) -> bytes:
    return b"".join(frame(encode_rpc(each)) for each in made)


def forged(number: int) -> Message:
    """A message of a made-up author with a signature that is none."""
    author = bytes(PrivateKey(struct.pack(">Q", number).rjust(32, b"f")).peer_id)
    return Message(TOPIC, b"x" * 100, author, struct.pack(">Q", number), secrets.token_bytes(64))


def signed(key: PrivateKey, number: int) -> Message:
    """A message that is in order, of an author that has too much to say."""
    seqno = struct.pack(">Q", time.time_ns() + number)
    bare = Message(TOPIC, b"spam" * 64, bytes(key.peer_id), seqno)
    return Message(TOPIC, bare.data, bare.author, seqno, key.sign(signing_payload(bare)))


def ids(count: int) -> tuple[bytes, ...]:
    return tuple(secrets.token_bytes(40) for _ in range(count))


def junk_of(name: str) -> bytes:
    spec = protocol(name)
    source = random.Random(7)
    made = (spec.junk(source, [secrets.token_bytes(38)], [TOPIC]) for _ in range(400))  # type: ignore[arg-type]
    return b"".join(frame(spec.encode(each)) for each in made)


PUBSUB_FLOODS: dict[str, Callable[[PrivateKey], bytes]] = {
    "empty RPCs": lambda _: b"\0" * CHUNK,
    "undecodable RPCs": lambda _: frame(b"\xff" * 20) * 2000,
    "GRAFT": lambda _: rpcs(*(Rpc(control=Control(graft=(TOPIC,))) for _ in range(2000))),
    "SUBSCRIBE": lambda _: rpcs(
        *(Rpc(subscriptions=(SubOpts(True, f"t{number}"),)) for number in range(3000))
    ),
    "on and off": lambda _: rpcs(
        *(Rpc(subscriptions=(SubOpts(bool(number % 2), TOPIC),)) for number in range(3000))
    ),
    "IHAVE": lambda _: rpcs(
        *(Rpc(control=Control(ihave=(IHave(TOPIC, ids(20)),))) for _ in range(100))
    ),
    "IWANT": lambda _: rpcs(*(Rpc(control=Control(iwant=ids(20))) for _ in range(100))),
    "IDONTWANT": lambda _: rpcs(*(Rpc(control=Control(idontwant=ids(20))) for _ in range(100))),
    "forged messages": lambda _: rpcs(*(Rpc(publish=(forged(n),)) for n in range(300))),
    "one message again": lambda key: rpcs(Rpc(publish=(signed(key, 0),))) * 300,
}
JUNK_FLOODS = {f"{name} junk": name for name in ("floodsub", "pulsarcast", "radius", "skipring")}


def yamux(kind: int, flags: int, stream: int, length: int = 0) -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, stream, length)


def syn_rst() -> Iterator[bytes]:
    for start in itertools.count(1001, 4000):
        odd = range(start, start + 4000, 2)
        yield b"".join(yamux(1, 1, each) + yamux(1, 8, each) for each in odd)


YAMUX_FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "yamux SYN and RST": syn_rst,
    "yamux pings": lambda: itertools.repeat(yamux(2, 1, 0, 7) * 4000),
    "yamux window updates": lambda: itertools.repeat(yamux(1, 0, 1, 0) * 4000),
    "yamux empty data": lambda: itertools.repeat(yamux(0, 0, 1, 0) * 4000),
}
FLOODS = [*PUBSUB_FLOODS, *JUNK_FLOODS, *YAMUX_FLOODS, "identify streams"]


def protocol_of(flood: str) -> str:
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
        while not self.rest:
            self.rest = self.chunk[stream.send(self.chunk) :]
        self.rest = self.rest[stream.send(self.rest) :]
        if not self.rest:
            asyncio.get_running_loop().call_soon(self.on_writable, stream)


async def attack(flood: str, ticket: str) -> None:
    """Flood until cut off; say how long that took."""
    key = PrivateKey(secrets.token_bytes(32))
    swarm = Swarm(key, ConnectionConfig())
    ids = protocol(protocol_of(flood)).protocol_ids
    for each in ids:
        swarm.services[each] = lambda *_: Sink()
    made = PUBSUB_FLOODS.get(flood)
    chunk = made(key) if made else junk_of(JUNK_FLOODS[flood]) if flood in JUNK_FLOODS else b""
    os.nice(19)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    start = time.monotonic()
    peer = await swarm.connect(Multiaddr.parse(ticket), keep=False)
    connection = swarm.connections[peer]
    while connection.closed_because is None:
        if flood in YAMUX_FLOODS:
            connection.open_stream(ids, Sink())
            await asyncio.sleep(0.05)
            await raw_flood(connection, YAMUX_FLOODS[flood]())
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
    print(json.dumps({"cut": time.monotonic() - start}))
    again = "let in again"
    try:
        await asyncio.wait_for(swarm.connect(Multiaddr.parse(ticket), keep=False), 3)
        await asyncio.sleep(0.3)
        if not swarm.connections:
            again = "kept out"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not in
        again = f"kept out ({error})"
    print(json.dumps({"again": again}), flush=True)
    await swarm.close()


async def raw_flood(connection: Connection, chunks: Iterator[bytes]) -> None:
    for chunk in chunks:
        while not connection._writable and connection.closed_because is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        if connection.closed_because is not None or connection._transport is None:
            return
        assert connection._noise is not None
        connection._transport.write(connection._noise.encrypt(chunk))
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


async def victim(name: str, home: str, *above: str) -> None:
    global _longest  # noqa: PLW0603
    watch_turns()
    loop = asyncio.get_running_loop()
    listen = "/ip4/127.0.0.1/tcp/0"
    async with Node(Path(home), protocol=name, supervisors=above, listen=listen) as node:
        events = await node.subscribe(TOPIC) if name != "pulsarcast" else None
        topic = TOPIC
        if events is None:
            created = await node.create_topic(TOPIC)
            topic = created.name
            events = await node.subscribe(topic)

        came: dict[int, float] = {}

        async def read() -> None:
            async for event in events:
                note(came, event.data)

        reading = asyncio.create_task(read())
        print(json.dumps({"ticket": node.tickets[0], "topic": topic}), flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            said = {
                "turn": _longest,
                "memory": resident(),
                "cpu": time.process_time(),
                "refusals": node.refusals,
                "came": [*came.items()],
            }
            _longest = 0.0
            print(json.dumps(said), flush=True)
        reading.cancel()


def note(came: dict[int, float], data: bytes) -> None:
    """Note when a message of the honest pair came; all processes have one clock."""
    if len(data) == 1024:
        came.setdefault(struct.unpack(">Q", data[:8])[0], time.monotonic())


async def pair(name: str, ticket: str, topic: str, *above: str) -> None:
    """Two nodes that know the node under attack alone; say what came, with delays, on request."""
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
            start = time.monotonic()
            for number in itertools.count():
                due = start + number / RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                sent[number] = due
                await one.publish(topic, struct.pack(">Q", number).ljust(1024, b"\0"))

        tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
        print("ready", flush=True)
        first = 0
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            last = max(sent, default=0)
            if line.strip() == "end":
                tasks[1].cancel()
                await asyncio.sleep(3)
            asked = [(number, at) for number, at in sent.items() if first <= number <= last]
            print(json.dumps({"sent": asked, "came": [*came.items()]}), flush=True)
            first = last + 1
        for task in tasks:
            task.cancel()


# The one who watches.


class Role:
    """A process of this file."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, __file__, "--role", *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        found = self.process.stdout.readline()
        if not found:
            raise RuntimeError(f"{self.process.args} ended")
        return found

    def ask(self, word: str = "go") -> Any:
        self.tell(word)
        return json.loads(self.line())

    def tell(self, word: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(flood: str, attackers: int) -> dict[str, Any]:
    """One line of the table."""
    roles: list[Role] = []
    with tempfile.TemporaryDirectory() as home:
        try:
            name = protocol_of(flood)
            above = []
            if name == "skipring":
                roles.append(Role("supervisor"))
                above = [json.loads(roles[0].line())["ticket"]]
            node = Role("victim", name, home, *above)
            roles.append(node)
            place = json.loads(node.line())
            honest = Role("pair", name, place["ticket"], place["topic"], *above)
            roles.append(honest)
            honest.line()
            crowd = [Role("attack", flood, place["ticket"]) for _ in range(attackers)]
            roles += crowd
            for each in crowd:
                each.line()
            honest.ask()
            time.sleep(CALM)
            calm, before = honest.ask(), node.ask()
            for each in crowd:
                each.tell()
            time.sleep(STORM)
            after = node.ask()
            storm, late = honest.ask("end"), node.ask()
            said = []
            for each in crowd:
                each.process.terminate()
                found = each.process.communicate()[0].splitlines()
                said.append([json.loads(line) for line in found])
        finally:
            for role in roles:
                role.end()
    ended = [lines[0] for lines in said if lines]
    counted = after["refusals"]
    for reason, count in before["refusals"].items():
        counted[reason] -= count
    came = dict(late["came"] if name == "skipring" else storm["came"])
    p99_calm, p99_storm = _p99(_delays(calm["sent"], came)), _p99(_delays(storm["sent"], came))
    return {
        "flood": flood,
        "attackers": attackers,
        "delivered": len(_delays(storm["sent"], came)) / len(storm["sent"]),
        "p99 calm": p99_calm,
        "p99": p99_storm,
        "ratio": p99_storm / p99_calm,
        "turn": after["turn"],
        "memory": after["memory"] - before["memory"],
        "cut": max(each["cut"] for each in ended) if len(ended) == attackers else None,
        "why": [reason.removeprefix(CUT_OFF) for reason in counted if reason.startswith(CUT_OFF)],
        "again": sorted({lines[1]["again"] for lines in said if len(lines) > 1}),
        "counted": {reason: count for reason, count in counted.items() if count},
    }


def _delays(sent: list[tuple[int, float]], came: dict[int, float]) -> list[float]:
    return sorted(came[number] - at for number, at in sent if number in came)


def _p99(delays: list[float]) -> float:
    return delays[int(len(delays) * 0.99)] if delays else float("inf")


def holds(row: dict[str, Any]) -> bool:
    return bool(
        row["delivered"] == 1.0
        and row["ratio"] <= MOST_RATIO
        and row["turn"] <= MOST_TURN
        and row["cut"] is not None
        and row["cut"] <= MOST_CUT
    )


def main() -> None:
    if sys.argv[1:2] == ["--role"]:
        work = {"victim": victim, "pair": pair, "attack": attack, "supervisor": supervisor}[
            sys.argv[2]
        ]
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(work(*sys.argv[3:]))  # type: ignore[operator]
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flood", dest="floods", action="append", choices=FLOODS)
    parser.add_argument("--attackers", type=int, action="append", help="default: 1 and 4")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/security.md")
    chosen = parser.parse_args()
    if chosen.markdown:
        print(
            "| Flood | Attackers | Delivered | p99, calm | p99 | Longest turn | Memory | Cut off |"
        )
        print("|---|---|---|---|---|---|---|---|")
    for flood in chosen.floods or FLOODS:
        for attackers in chosen.attackers or (1, 4):
            row = measure(flood, attackers)
            if chosen.json:
                print(json.dumps(row), flush=True)
                continue
            cut = "never" if row["cut"] is None else f"{row['cut']:.1f} s"
            cells = [
                flood,
                str(attackers),
                f"{row['delivered']:.1%}",
                f"{row['p99 calm'] * 1000:.1f} ms",
                f"{row['p99'] * 1000:.1f} ms",
                f"{row['turn'] * 1000:.0f} ms",
                f"{row['memory'] / 2**20:.0f} MiB",
                f"{cut}: {', '.join(row['why'])}",
            ]
            if chosen.markdown:
                print("| " + " | ".join(cells) + " |", flush=True)
            else:
                verdict = "holds" if holds(row) else "DOES NOT HOLD"
                print("  ".join(cells), f"x {row['ratio']:.1f}", verdict, row["again"], flush=True)
                print("    ", row["counted"], flush=True)


if __name__ == "__main__":
    main()
