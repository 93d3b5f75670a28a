"""Claim: a formed network of 20 nodes costs little when nobody says anything, and is soon joined.

Measures rumormill and go-libp2p side by side, GossipSub with its defaults, each node a process of
its own in one network namespace, one topic that all subscribe to:

- the processor time of all nodes while nothing is published, in percent of one core and node;
- the bytes that pass over the loopback device meanwhile, headers and acknowledgements included;
- the time from the start of a further process, which has one ticket, to its first event.

rumormill's nodes form their network from one ticket. go's peers have no such thing: each is told
some others to dial, so that both networks have about as many links, which are printed too.

go's peer is built as the interop tests build it (`tests/interop`); without Go it is left out.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests" / "interop"))

import interop_install  # noqa: E402
from interop_peer import ForeignPeer  # noqa: E402

from rumormill.daemon.control_client import ControlClient  # noqa: E402
from rumormill.daemon.control_messages import socket_path  # noqa: E402

NODES = 20
SETTLE = 40.0
"""Seconds before anything is measured: what was done to form the network is done then."""
DIALS = 5
"""Others that each of go's peers dials: rumormill's nodes have about twice as many links."""
TOPIC = "news"


class Cost(NamedTuple):
    """What one network costs."""

    links: float
    """Links of a node, on average."""
    percent: float
    """Of a core, a node."""
    bytes: float
    """A second and node."""
    first: float
    """Seconds from a process's start to its first event."""


class Running(NamedTuple):
    """A network that has formed."""

    processes: list[int]
    links: float
    newcomer: Callable[[], Awaitable[float]]


def cpu_seconds(processes: Sequence[int]) -> float:
    """The processor time that processes have taken so far."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def loopback_bytes() -> int:
    """The bytes that have passed over the loopback device of this namespace."""
    (line,) = [each for each in Path("/proc/net/dev").read_text().splitlines() if "lo:" in each]
    return int(line.split()[1])


class Daemon:
    """`rumormill node` with nothing but a topic and, for all but the first, a ticket."""

    async def start(self, home: Path, *tickets: str) -> None:
        """Return when it runs."""
        words = ["node", "--json", "--until-eof", "--home", str(home), "--topic", TOPIC]
        words += [word for ticket in tickets for word in ("--join", ticket)]
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rumormill", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.ticket = json.loads(await self.process.stdout.readline())["tickets"][0]
        self.client = await ControlClient.connect(socket_path(home))

    async def stop(self) -> None:
        """End it."""
        self.process.kill()
        await self.process.wait()
        await self.client.close()


@contextlib.asynccontextmanager
async def rumormill(folder: Path) -> AsyncIterator[Running]:
    """Daemons that were given the first one's ticket."""
    daemons = [Daemon() for _ in range(NODES)]
    async with contextlib.AsyncExitStack() as running:
        for number, each in enumerate(daemons):
            await each.start(folder / f"n{number}", *([daemons[0].ticket] if number else []))
            running.push_async_callback(each.stop)

        async def newcomer() -> float:
            began = time.monotonic()
            speaking = asyncio.ensure_future(_speak(daemons[0]))
            late = Daemon()
            await late.start(folder / "late", daemons[0].ticket)
            running.push_async_callback(late.stop)
            while not (await late.client.history(TOPIC, offset=0, limit=1)).events:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            took = time.monotonic() - began
            speaking.cancel()
            return took

        await asyncio.sleep(SETTLE)
        links = sum([len(await each.client.peers()) for each in daemons]) / NODES
        yield Running([each.process.pid for each in daemons], links, newcomer)


async def _speak(daemon: Daemon) -> None:
    while True:
        await daemon.client.publish(TOPIC, [b"tick"])
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def golang() -> AsyncIterator[Running]:
    """go's peers, each of which dials some others."""
    program = interop_install.golang()
    async with contextlib.AsyncExitStack() as running:
        peers = [await running.enter_async_context(ForeignPeer(program)) for _ in range(NODES)]
        draws = random.Random(1)
        links = 0
        for at, each in enumerate(peers):
            others = draws.sample(peers[:at], min(DIALS, at))
            links += 2 * len(others)
            for other in others:
                await each.ask("dial", ticket=other.ticket)
            await each.ask("subscribe", topic=TOPIC)

        async def newcomer() -> float:
            began = time.monotonic()
            async with ForeignPeer(program) as late:
                await late.ask("dial", ticket=peers[0].ticket)
                await late.ask("subscribe", topic=TOPIC)
                speaking = asyncio.ensure_future(_speak_go(peers[0]))
                await late.received(TOPIC, 1)
                took = time.monotonic() - began
                speaking.cancel()
                return took

        await asyncio.sleep(SETTLE)
        yield Running([each.process_id for each in peers], links / NODES, newcomer)


async def _speak_go(peer: ForeignPeer) -> None:
    while True:
        await peer.publish(TOPIC, [b"tick"])
        await asyncio.sleep(0.05)


async def measured(network: Running, seconds: float) -> Cost:
    """What a network costs that is left alone, and how soon somebody else has joined it."""
    cpu, passed, began = cpu_seconds(network.processes), loopback_bytes(), time.monotonic()
    await asyncio.sleep(seconds)
    took = (time.monotonic() - began) * len(network.processes)
    cpu, passed = cpu_seconds(network.processes) - cpu, loopback_bytes() - passed
    return Cost(network.links, 100 * cpu / took, passed / took, await network.newcomer())


async def main(seconds: float) -> None:
    """Measure one network after the other, and print both and how they compare."""
    found: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with rumormill(Path(folder)) as ours:
            found["rumormill"] = await measured(ours, seconds)
    try:
        async with golang() as theirs:
            found["go-libp2p"] = await measured(theirs, seconds)
    except interop_install.NotInstallableError as missing:
        print(f"go-libp2p is left out: {missing}")
    print(f"{'':12}{'links':>8}{'% of a core':>14}{'bytes/s':>10}{'first event':>14}")
    for name, cost in found.items():
        print(
            f"{name:12}{cost.links:8.1f}{cost.percent:14.2f}{cost.bytes:10.0f}{cost.first:12.2f} s"
        )
    if len(found) > 1:
        ours, go = found.values()
        ratios = [mine / other for mine, other in zip(ours, go, strict=True)]
        print(f"{'ratio':12}{ratios[0]:8.2f}{ratios[1]:14.2f}{ratios[2]:10.2f}{ratios[3]:12.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=40.0, help="how long nothing is said")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        asyncio.run(main(arguments.seconds))
    else:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled
        again = [sys.executable, __file__, "--inside", "--seconds", str(arguments.seconds)]
        inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", *again]
        sys.exit(subprocess.run(["unshare", "-rn", *inside], check=False).returncode)
