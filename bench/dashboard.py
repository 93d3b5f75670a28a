"""What a dashboard costs the node that it shows: processor time, and bytes, with one viewer.

    python bench/dashboard.py [--rate 1000] [--seconds 5] [--rounds 4] [--json]

A node in a process of its own gets events from a publisher at a steady rate. For each view one
viewer reads the stream as a browser would. The dashboard's own processor time is measured where it
is spent: in the observer of the trace, in everything that makes a batch, and in the thread that
reads the log. What the whole process takes is measured in turns, with a viewer and without, each
first in every other round, since a log that grows costs more; what the garbage collector takes of
it, too: entries that are kept for journeys are found by it. Without a viewer, every call into the
package is counted: there must be none. Where a Chromium is installed it opens the page of the
same busy node, anew each time, and tells when the first picture was there.

The bars (docs/dashboard.md): 1 % of a core and 20 kB a second, at 1,000 deliveries a second; the
first picture within a second.
"""

import argparse
import asyncio
import contextlib
import functools
import gc
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import chromium
from rumormill.dashboard import node_source
from rumormill.dashboard.aggregate import Aggregator
from rumormill.dashboard.stream import Viewer
from rumormill.node.node import Node

TOPIC = "bench"
GONE = 3.0
"""Seconds after the last viewer until the node has nothing of it any more, instead of a minute."""
VIEWS = ("overview", "topic", "overlay", "history")
_DRAWN = "performance.getEntriesByName('first picture')"
"""What the page notes when there is something to see."""


@functools.cache
def package_of(file: str) -> str:
    """Whose function it is: of which package of ours, of asyncio, or of others."""
    parts = Path(file).parts
    if "rumormill" in parts:
        return parts[len(parts) - parts[::-1].index("rumormill")].removesuffix(".py")
    return "asyncio" if "asyncio" in parts or file.endswith("selectors.py") else "others"


class Meter:
    """Processor time that was spent in some functions, in whatever thread."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.counting = False
        self.calls: Counter[str] = Counter()

    def wrap(self, owner: Any, name: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def metered(*arguments: Any, **options: Any) -> Any:
            begin = time.thread_time()
            try:
                return inner(*arguments, **options)
            finally:
                self.spent += time.thread_time() - begin

        setattr(owner, name, metered)

    def wrap_coroutine(self, owner: Any, name: str) -> None:
        inner: Callable[..., Awaitable[Any]] = getattr(owner, name)

        def metered(*arguments: Any, **options: Any) -> "_Metered":
            return _Metered(self, inner(*arguments, **options))

        setattr(owner, name, metered)

    def count_calls(self) -> None:
        """Count every call from now on, by package, in this thread and in new ones."""
        if self.counting:
            return
        self.counting = True

        def see(frame: Any, event: str, _: object) -> None:
            if event == "call":
                self.calls[package_of(frame.f_code.co_filename)] += 1

        threading.setprofile(see)
        sys.setprofile(see)


class Collector:
    """Processor time of the garbage collector."""

    def __init__(self) -> None:
        self.spent, self._begun = 0.0, 0.0
        gc.callbacks.append(self._told)

    def _told(self, phase: str, _: object) -> None:
        if phase == "start":
            self._begun = time.thread_time()
        else:
            self.spent += time.thread_time() - self._begun


class _Metered:
    """A coroutine each of whose steps is measured."""

    def __init__(self, meter: Meter, work: Awaitable[Any]) -> None:
        self._meter, self._work = meter, work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        sent: Any = None
        while True:
            begin = time.thread_time()
            try:
                waited = steps.send(sent)
            except StopIteration as end:
                return end.value
            finally:
                self._meter.spent += time.thread_time() - begin
            sent = yield waited


async def child(home: str) -> None:
    """The node that is measured; it answers each line of stdin with what it has spent."""
    meter, collector = Meter(), Collector()
    meter.wrap(Aggregator, "observe")
    meter.wrap(node_source, "read_tail")
    for name in ("snapshot", "update"):
        meter.wrap_coroutine(Viewer, name)
    async with Node(home) as node, node.serve(dashboard="127.0.0.1:0") as doors:
        await node.create_topic(TOPIC)
        doors._source._forget_after = GONE
        _say({"ticket": node.tickets[0], "dashboard": doors.dashboard})
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if line.strip() == "count":
                meter.count_calls()
            delivered = node.metrics()["accepted_messages"].get(TOPIC, 0.0)
            _say(
                {
                    "took": time.monotonic(),
                    "spent": meter.spent,
                    "calls": dict(meter.calls),
                    "cpu": time.process_time(),
                    "gc": collector.spent,
                    "delivered": delivered,
                    "attached": doors._source._aggregator is not None,
                }
            )


def _say(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)


class Measured:
    """The other process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, line: str = "") -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        return await self.said()

    async def said(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return found


@contextlib.asynccontextmanager
async def measured(home: str) -> AsyncIterator[tuple[Measured, dict[str, Any]]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--child", home, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        node = Measured(process)
        yield node, await node.said()
    finally:
        process.kill()
        await process.wait()


async def publish(node: Node, rate: int) -> None:
    """So many events a second, until cancelled."""
    share = max(1, rate // 20)
    begin, sent = time.monotonic(), 0
    while True:
        await node.publish_many(TOPIC, [b"x" * 100] * share)
        sent += share
        await asyncio.sleep(max(0.0, begin + sent / rate - time.monotonic()))


async def enter(url: str) -> tuple[str, int, str]:
    """Exchange the token for a cookie."""
    found = re.fullmatch(r"http://(.+):(\d+)/(.*)", url)
    assert found is not None
    reader, writer = await asyncio.open_connection(found[1], int(found[2]))
    writer.write(f"GET /{found[3]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = (await reader.read()).decode()
    writer.close()
    cookie = re.search(r"Set-Cookie: ([^;]+)", head)
    assert cookie is not None
    return found[1], int(found[2]), cookie[1]


async def watch(door: tuple[str, int, str], view: str, sizes: list[int]) -> None:
    """Read a stream, and note how long each message is; the snapshot stands first."""
    host, port, cookie = door
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    path = f"/stream?views={view}&topic={TOPIC}"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
    try:
        while line := await reader.readline():
            if line.startswith(b"data:"):
                sizes.append(len(line))
    finally:
        writer.close()


async def bench(rate: int, seconds: float, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"rate": rate, "seconds": seconds, "views": {}}
    with tempfile.TemporaryDirectory() as folder:
        async with measured(f"{folder}/measured") as (node, told), Node(None) as publisher:
            await publisher.connect(told["ticket"])
            await publisher.wait_until_ready(TOPIC, timeout=30)
            load = asyncio.ensure_future(publish(publisher, rate))
            await asyncio.sleep(2)
            found["first_picture_ms"] = await _first_pictures(told["dashboard"], rounds)
            door = await enter(told["dashboard"])
            for view in VIEWS:
                found["views"][view] = await _one(node, door, view, rate, seconds, rounds)
            await asyncio.sleep(GONE + 2)
            found["without"] = await _counted(node, seconds)
            viewer = asyncio.ensure_future(watch(door, VIEWS[0], []))
            await asyncio.sleep(1)
            found["watched"] = await _counted(node, seconds)
            viewer.cancel()
            load.cancel()
            await asyncio.gather(viewer, return_exceptions=True)
            await asyncio.gather(load, return_exceptions=True)
    return found


async def _one(
    node: Measured, door: tuple[str, int, str], view: str, rate: int, seconds: float, rounds: int
) -> dict[str, Any]:
    """One view, in turns: somebody watches, nobody does."""
    turns: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    streams: list[list[int]] = []
    for number in range(rounds):
        for is_watched in (number % 2 == 1, number % 2 == 0):
            await asyncio.sleep(GONE + 1)  # what the viewer before had is dropped
            sizes: list[int] = []
            before = await node.ask()
            viewer = asyncio.ensure_future(watch(door, view, sizes) if is_watched else _nobody())
            await asyncio.sleep(seconds)
            turns[is_watched].append(_difference(before, await node.ask()))
            viewer.cancel()
            await asyncio.gather(viewer, return_exceptions=True)
            if is_watched:
                streams.append(sizes)

    def share(name: str, is_watched: bool) -> list[float]:
        """Percent of a core that something takes at the rate asked for, turn by turn."""
        return [100 * rate * turn[name] / turn["delivered"] for turn in turns[is_watched]]

    def more(name: str) -> list[float]:
        """The same: what a viewer makes of it, round by round, the least first."""
        pairs = zip(share(name, True), share(name, False), strict=True)
        return sorted(watched - without for watched, without in pairs)

    took = sum(turn["took"] for turn in turns[True])
    return {
        "deliveries_per_second": sum(turn["delivered"] for turn in turns[True]) / took,
        "percent_of_a_core": statistics.median(share("spent", True)),
        "bytes_per_second": sum(sum(sizes[1:]) for sizes in streams) / took,
        "snapshot_bytes": streams[-1][0],
        "process_percent_without": statistics.median(share("cpu", False)),
        "process_percent_more": statistics.median(more("cpu")),
        "process_percent_more_from_to": [more("cpu")[0], more("cpu")[-1]],
        "gc_percent_more": statistics.median(more("gc")),
    }


async def _nobody() -> None:
    """Watches nothing."""


async def _first_pictures(address: str, times: int) -> list[float] | None:
    """Milliseconds until a browser has drawn something, the least first; None without one."""
    program = chromium.find_chromium()
    if program is None:
        return None
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as profile:
            async with chromium.page(program, Path(profile), "about:blank") as shown:
                await shown.command("Page.navigate", url=address)
                await shown.until_true(f"{_DRAWN}.length > 0")
                found.append(float(await shown.evaluate(f"{_DRAWN}[0].startTime")))
    return sorted(found)


async def _counted(node: Measured, seconds: float) -> dict[str, Any]:
    """Calls of functions by package, for each delivery."""
    before = await node.ask("count")
    await asyncio.sleep(seconds)
    after = await node.ask()
    delivered = after["delivered"] - before["delivered"]
    calls = {name: count - before["calls"].get(name, 0) for name, count in after["calls"].items()}
    return {"deliveries": delivered, "calls": calls, "attached": after["attached"]}


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    names = ("took", "spent", "cpu", "gc", "delivered")
    return {name: after[name] - before[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=4, help="an even number is fairer")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        asyncio.run(child(options.child))
        return
    found = asyncio.run(bench(options.rate, options.seconds, options.rounds))
    if options.json:
        print(json.dumps(found))
        return
    print(
        "| view | deliveries/s | % of a core | B/s | snapshot, B | process without, % of a core |"
        " more with a viewer | from … to | of that garbage |"
    )
    print("|---" * 9 + "|")
    for view, row in found["views"].items():
        least, most = row["process_percent_more_from_to"]
        print(
            f"| {view} | {row['deliveries_per_second']:.0f} | {row['percent_of_a_core']:.2f}"
            f" | {row['bytes_per_second']:,.0f} | {row['snapshot_bytes']:,}"
            f" | {row['process_percent_without']:.1f} | {row['process_percent_more']:.2f}"
            f" | {least:.2f} … {most:.2f} | {row['gc_percent_more']:.2f} |"
        )
    pictures = found["first_picture_ms"]
    told = (
        "no Chromium is installed"
        if pictures is None
        else f"{', '.join(f'{ms:.0f}' for ms in pictures)} ms"
    )
    print(f"first picture, each time in a new browser: {told}")
    without, watched = found["without"], found["watched"]
    print(f"without a viewer: {without['calls'].get('dashboard', 0)} calls of the dashboard's code")
    print("calls for each delivery, without and with a viewer of the overview:")
    for name in sorted(watched["calls"], key=lambda each: -watched["calls"][each]):
        told = [each["calls"].get(name, 0) / each["deliveries"] for each in (without, watched)]
        print(f"  {name:12} {told[0]:8.2f} {told[1]:8.2f}")


if __name__ == "__main__":
    main()
