"""What every Python contestant of `bench/peers.py` shares: the commands, the pace, the counting.

A contestant is a process that hosts some nodes. It reads one JSON command per line and answers each
with one JSON line:

    {"do": "tickets"}                                   -> {"tickets": [...]}
    {"do": "connect", "links": [[node, ticket], ...]}   -> {}
    {"do": "subscribe", "nodes": [...]}                 -> {}
    {"do": "ready", "node": 0, "peers": n}              -> {}       when so many peers subscribe
    {"do": "publish", "node": 0, "count": n, "rate": r} -> {"seconds": s}   rate 0: no pause
    {"do": "begin"}                                     -> {}       forget what was counted
    {"do": "stats"}                                     -> {"cpu", "rss", "received", "repeated"}
    {"do": "latencies"}                                 -> {"latencies": [...]}

A payload begins with the time when it was due, so that a publisher that falls behind shows in the
latencies, and its number.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol

SIZE = 1024
TOPIC = "bench"
WINDOW = 64
"""Publishers at a time in one node."""

_HEAD = struct.Struct("<dQ")


def payload(due: float, number: int) -> bytes:
    """A message's content."""
    return _HEAD.pack(due, number).ljust(SIZE, b"\0")


class Contestant(Protocol):
    """What a system must be able to do to take part."""

    def tickets(self) -> list[str]: ...
    async def connect(self, node: int, ticket: str) -> None: ...
    async def subscribe(self, node: int) -> None: ...
    async def ready(self, node: int, peers: int) -> None: ...
    async def publish(self, node: int, data: bytes) -> None: ...


class Count:
    """Deliveries of all nodes of this process."""

    publisher = -1
    """The node that publishes: systems differ in whether it hears itself, so it does not count."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget."""
        self.received = 0
        self.repeated = 0
        self.latencies: list[float] = []
        self._seen: dict[int, set[int]] = {}

    def take(self, node: int, data: bytes) -> None:
        """Count a delivery."""
        if node == self.publisher:
            return
        due, number = _HEAD.unpack_from(data)
        seen = self._seen.setdefault(node, set())
        if number in seen:
            self.repeated += 1
            return
        seen.add(number)
        self.received += 1
        self.latencies.append(time.time() - due)


@contextlib.contextmanager
def ticks(rate: float) -> Iterator[Callable[[], Awaitable[Any]]]:
    """What to await for each next tick of a clock that ticks so often a second, at once first.

    asyncio waits in whole milliseconds. So a publisher that asks it would be up to one late, as
    nobody is in go or rust, whatever it publishes with. Linux has clocks to be read from.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    clock = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
    each = divmod(round(1e9 / rate), 10**9)
    if clock < 0 or libc.timerfd_settime(clock, 0, (ctypes.c_long * 4)(*each, 0, 1), None):
        raise OSError(ctypes.get_errno(), "no clock")
    came, loop = asyncio.Semaphore(0), asyncio.get_running_loop()

    def on_tick() -> None:
        for _ in range(int.from_bytes(os.read(clock, 8), sys.byteorder)):
            came.release()

    loop.add_reader(clock, on_tick)
    try:
        yield came.acquire
    finally:
        loop.remove_reader(clock)
        os.close(clock)


async def publish(contestant: Contestant, node: int, count: int, rate: float) -> float:
    """Publish at a pace, or without pause; return how long it took."""
    numbers = iter(range(count))
    with ticks(rate) if rate else contextlib.nullcontext() as tick:
        start = time.time()

        async def publisher() -> None:
            for number in numbers:
                due = start + number / rate if rate else time.time()
                if tick is not None:
                    await tick()
                await contestant.publish(node, payload(due, number))

        await asyncio.gather(*(publisher() for _ in range(min(WINDOW, count))))
        return time.time() - start


def resident_bytes() -> int:
    """Memory of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def perform(contestant: Contestant, count: Count) -> None:
    """Obey commands until the input ends."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        answer = await _obey(contestant, count, json.loads(line))
        print(json.dumps(answer), flush=True)


async def _obey(contestant: Contestant, count: Count, command: dict[str, Any]) -> dict[str, Any]:
    match command["do"]:
        case "tickets":
            return {"tickets": contestant.tickets()}
        case "connect":
            await _in_turns(contestant.connect(node, to) for node, to in command["links"])
        case "subscribe":
            await _in_turns(contestant.subscribe(node) for node in command["nodes"])
        case "ready":
            await contestant.ready(command["node"], command["peers"])
        case "publish":
            node, number, rate = command["node"], command["count"], command["rate"]
            count.publisher = node
            return {"seconds": await publish(contestant, node, number, rate)}
        case "begin":
            count.begin()
        case "stats":
            return {
                "cpu": time.process_time(),
                "rss": resident_bytes(),
                "received": count.received,
                "repeated": count.repeated,
            }
        case "latencies":
            return {"latencies": count.latencies}
    return {}


async def _in_turns(work: Iterable[Any], at_once: int = 8) -> None:
    """Do things a few at a time."""
    work = iter(work)
    while some := list(itertools.islice(work, at_once)):
        await asyncio.gather(*some)
