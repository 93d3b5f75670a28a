"""Claim: a peer that floods is felt by nobody, and is cut off within seconds.

A node under attack relays for an honest pair, which is connected to it alone and exchanges 50
messages a second. (In the skip ring, where neighbours find each other, what counts is when they
come to the node itself.) Calm whiles and floods take turns in one run: in each flood one to four
attackers, a process each and under new names each time, send one thing as fast as the node reads
it, until they are cut off. Figures are medians over the rounds, so that what else the machine does
for a moment shows in none of them.

All processes run from the beginning, and all that attackers send is made before the first while:
the calm value is that of the same machine with the same processes. Attackers stand for other
machines, so they have the lowest priority: they send with all the processor time that the node and
the honest pair leave, and what is measured is what they do to the node, not that they need a
processor too.

For each flood the table shows

    delivered   of the honest pair's messages, from the beginning to the end: one that could not be
                published is one that was not delivered
    p99         of their delays, with the calm value, and the ratio (at most 3)
    turn        the longest that one callback kept the node's event loop (at most 100 ms)
    memory      by which the node grew during a flood, at most (its cap is 128 MiB)
    cut off     seconds until the last attacker was disconnected (at most 10), and for what

The last flood is of handshakes: whoever is let in goes, and comes back under another name. There is
nothing to cut off, and it goes on to the end of its time.

`--flood` and `--attackers` choose, `--markdown` prints the table of docs/security.md.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import secrets
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from flood_frames import JUNK_FLOODS, PUBSUB_FLOODS, TOPIC, YAMUX_FLOODS, junk_of

from rumormill import Node
from rumormill.libp2p.config import ConnectionConfig
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.identify import IDENTIFY
from rumormill.libp2p.stream import Stream, StreamHandler
from rumormill.libp2p.swarm import Swarm
from rumormill.protocols.registry import protocol
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr

RATE = 50.0
ROUNDS = 3
WHILE = 2.5
"""Seconds of a calm while, and of a flood at least; all floods take 14 minutes together."""
CUT_OFF = "cut-off-"
MOST_RATIO, MOST_TURN, MOST_MEMORY, MOST_CUT = 3.0, 0.1, 128 << 20, 10.0


HANDSHAKES = "handshakes"
FLOODS = [*PUBSUB_FLOODS, *JUNK_FLOODS, *YAMUX_FLOODS, "identify streams", HANDSHAKES]


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
        if stream.id not in stream.connection._streams:
            return  # a stream that is gone takes everything
        rest = self.rest or self.chunk
        self.rest = rest[stream.send(rest) :]
        if not self.rest:
            asyncio.get_running_loop().call_soon(self.on_writable, stream)


async def attack(flood: str, times: str) -> None:
    """Whenever a ticket comes, flood until cut off; say how long that took."""
    made, ids = PUBSUB_FLOODS.get(flood), protocol(protocol_of(flood)).protocol_ids
    names = [PrivateKey(secrets.token_bytes(32)) for _ in range(int(times))]
    junk = junk_of(JUNK_FLOODS[flood]) if flood in JUNK_FLOODS else b""
    chunks = [made(key) if made else junk for key in names]
    os.nice(19)
    print("ready", flush=True)
    for key, chunk in zip(names, chunks, strict=True):
        ticket = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        start = time.monotonic()
        if flood == HANDSHAKES:
            count = await shake_hands([Multiaddr.parse(ticket.strip())], start + WHILE)
            print(json.dumps({"cut": 0.0, "again": f"{count} handshakes"}), flush=True)
            continue
        swarm = Swarm(key, ConnectionConfig())
        swarm.services.update((each, lambda *_: Sink()) for each in ids)
        address = [Multiaddr.parse(ticket.strip())]
        cut = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * MOST_CUT):
                connection = swarm.connections[await swarm.connect(address, keep=False)]
                await flood_until_cut_off(connection, ids, flood, chunk)
            cut = time.monotonic() - start
        print(json.dumps({"cut": cut, "again": await come_again(swarm, address)}), flush=True)
        await swarm.close()


async def shake_hands(address: list[Multiaddr], until: float) -> int:
    """Come under ever new names, and go as soon as the handshake is done; return how often."""
    count = 0
    while time.monotonic() < until:
        swarm = Swarm(PrivateKey(secrets.token_bytes(32)), ConnectionConfig())
        with contextlib.suppress(Exception):
            await swarm.connect(address, keep=False)
            count += 1
        for connection in [*swarm.connections.values()]:
            connection.abort("off")
    return count


async def flood_until_cut_off(
    connection: Connection, ids: tuple[str, ...], flood: str, chunk: bytes
) -> None:
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


async def come_again(swarm: Swarm, address: list[Multiaddr]) -> str:
    """Whether who was cut off is let in under its old name."""
    try:
        await asyncio.wait_for(swarm.connect(address, keep=False), 3)
        await asyncio.sleep(0.3)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not in
        return f"kept out ({error})"
    return "let in again" if swarm.connections else "kept out"


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
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            said = {"turn": _longest, "memory": resident(), "refusals": node.refusals}
            if line.strip() == "end":
                said["came"] = [*came.items()]
            print(json.dumps(said), flush=True)
            _longest = 0.0
        reading.cancel()


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


def measure(flood: str, crowds: list[int]) -> Iterator[dict[str, Any]]:
    """The lines of one flood, for crowds of so many attackers."""
    roles: list[Role] = []
    whiles: list[While] = []
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
            times = str(ROUNDS * len(crowds))
            attackers = [Role("attack", flood, times) for _ in range(max(crowds))]
            roles += attackers
            for each in attackers:
                each.line()
            for crowd in crowds * ROUNDS:
                whiles.append(While(0, honest, node))
                time.sleep(WHILE)
                whiles[-1].end()
                whiles.append(While(crowd, honest, node))
                for each in attackers[:crowd]:
                    each.tell(place["ticket"])
                time.sleep(WHILE)
                whiles[-1].said = [json.loads(each.line()) for each in attackers[:crowd]]
                whiles[-1].end()
            told, seen = honest.ask("end"), node.ask("end")
        finally:
            for role in roles:
                role.end()
    sent, came = dict(told["sent"]), dict((seen if name == "skipring" else told)["came"])
    for crowd in crowds:
        yield {"flood": flood, "attackers": crowd, **figures(crowd, whiles, sent, came)}


class While:
    """What the node and the honest pair say before and behind a calm while or a flood."""

    def __init__(self, crowd: int, honest: Role, node: Role) -> None:
        self.crowd = crowd
        self.said: list[dict[str, Any]] = []
        """What its attackers told."""
        self._roles = honest, node
        self._before = node.ask()
        self._first = honest.ask()

    def end(self) -> None:
        honest, node = self._roles
        self.numbers = range(self._first, honest.ask())
        self._after = node.ask()

    @property
    def turn(self) -> float:
        return float(self._after["turn"])

    @property
    def memory(self) -> int:
        return int(self._after["memory"] - self._before["memory"])

    @property
    def counted(self) -> Counter[str]:
        return Counter(self._after["refusals"]) - Counter(self._before["refusals"])


def figures(
    crowd: int, whiles: list[While], sent: dict[int, float], came: dict[int, float]
) -> dict[str, Any]:
    """One line of the table."""
    floods = [each for each in whiles if each.crowd == crowd]
    calm, storm = (
        median(p99([came.get(n, inf) - sent[n] for n in each.numbers]) for each in chosen)
        for chosen in ([each for each in whiles if not each.crowd], floods)
    )
    numbers = [number for each in floods for number in each.numbers]
    counted = sum((each.counted for each in floods), Counter())
    cuts = [said["cut"] for each in floods for said in each.said]
    return {
        "delivered": sum(number in came for number in numbers) / len(numbers),
        "p99 calm": calm,
        "p99": storm,
        "ratio": storm / calm,
        "turn": max(each.turn for each in floods),
        "memory": max(each.memory for each in floods),
        "cut": None if None in cuts else max(cuts),
        "why": [reason.removeprefix(CUT_OFF) for reason in counted if reason.startswith(CUT_OFF)],
        "again": sorted({said["again"] for each in floods for said in each.said}),
        "counted": dict(counted),
    }


def p99(delays: list[float]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)]


def holds(row: dict[str, Any]) -> bool:
    return bool(
        row["delivered"] == 1.0
        and row["ratio"] <= MOST_RATIO
        and row["turn"] <= MOST_TURN
        and row["memory"] <= MOST_MEMORY
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
        print("| Flood | Attackers | Delivered | p99, calm | p99 | Ratio | Turn", end="")
        print(" | Memory | Cut off | Holds |\n|" + "---|" * 10)
    for flood in chosen.floods or FLOODS:
        for row in measure(flood, chosen.attackers or [1, 4]):
            if chosen.json:
                print(json.dumps(row), flush=True)
                continue
            cut = "never" if row["cut"] is None else f"{row['cut']:.1f} s"
            why = f"{cut}: {', '.join(row['why'])}" if row["why"] else ", ".join(row["again"])
            cells = [
                flood,
                str(row["attackers"]),
                f"{row['delivered']:.1%}",
                f"{row['p99 calm'] * 1000:.1f} ms",
                f"{row['p99'] * 1000:.1f} ms",
                f"{row['ratio']:.1f}",
                f"{row['turn'] * 1000:.0f} ms",
                f"{row['memory'] / 2**20:.0f} MiB",
                why,
                "yes" if holds(row) else "**no**",
            ]
            if chosen.markdown:
                print("| " + " | ".join(cells) + " |", flush=True)
            else:
                print("  ".join(cells), row["again"], row["counted"], flush=True)


if __name__ == "__main__":
    main()
