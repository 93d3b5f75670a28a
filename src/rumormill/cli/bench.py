"""`rumormill bench`: two nodes, two processes, one machine.

One process publishes, the other subscribes. A burst gives the throughput and the processor time of
a delivery; a moderate rate gives the latency, from the call of `publish` in one process to the
event in the other. Both read the same monotonic clock of the system.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.numbers import seconds, whole
from rumormill.cli.session import run_async
from rumormill.core.errors import LocalError
from rumormill.node.node import Node
from rumormill.node.subscription import Subscription
from rumormill.protocols.registry import protocol
from rumormill.trace.metrics import nearest_rank

TOPIC = "bench"
_STAMP = 16
_WINDOW = 256
_PATIENCE = 60.0


def run_bench(options: argparse.Namespace) -> int:
    """Measure, and print the figures."""
    plan = {
        "messages": whole("--messages", options.messages),
        "size": whole("--size", options.size, least=_STAMP),
        "samples": whole("--samples", options.samples),
        "rate": seconds("--rate", options.rate),
        "protocol": options.protocol or "gossipsub",
        "preset": options.preset or "default",
        "durability": options.durability or "fsync",
    }
    if plan["durability"] not in ("fsync", "os", "memory"):
        raise CommandError("--durability: choose fsync, os or memory", USAGE)
    figures = {**plan, **run_async(_measure(plan))}
    if options.json:
        print(json.dumps(figures))
        return 0
    for label, key, unit in (
        ("throughput", "messages_per_second", "messages/s"),
        ("processor time", "cpu_us_per_delivery", "µs per delivery, both nodes"),
        ("latency p50", "latency_p50_ms", "ms"),
        ("latency p99", "latency_p99_ms", "ms"),
        ("lost", "lost", "messages"),
    ):
        print(f"{label:<15} {figures[key]:>10,} {unit}")
    return 0


@contextlib.asynccontextmanager
async def _node(plan: dict[str, Any]) -> AsyncIterator[Node]:
    with tempfile.TemporaryDirectory(prefix="rumormill-bench-") as home:
        memory = plan["durability"] == "memory"
        supervised = protocol(plan["protocol"]).servers is not None
        async with Node(
            None if memory else Path(home) / "node",
            protocol=plan["protocol"],
            preset=plan["preset"],
            durability=plan["durability"],
            supervisors=[plan["ticket"]] if supervised and "ticket" in plan else (),
            supervises=supervised and "ticket" not in plan,
        ) as node:
            yield node


async def _measure(plan: dict[str, Any]) -> dict[str, Any]:
    async with _node(plan) as node:
        ticket = node.tickets[0]
        peer = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "rumormill.cli.bench",
            json.dumps({**plan, "ticket": ticket}),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await node.wait_until_ready(TOPIC, timeout=_PATIENCE)
            own = time.process_time()
            begin = time.monotonic()
            await _burst(node, plan["messages"], plan["size"])
            own = time.process_time() - own
            await _paced(node, plan)
            async with asyncio.timeout(_PATIENCE):
                assert peer.stdout is not None
                said = await peer.stdout.readline()
                await peer.wait()
        except TimeoutError:
            raise LocalError(f"the other node said nothing for {_PATIENCE:g} seconds") from None
        finally:
            if peer.returncode is None:
                peer.kill()
                await peer.wait()
    if not said:
        raise LocalError("the other node failed; see above")
    other: dict[str, Any] = json.loads(said)
    cpu = (own + other["burst_cpu"]) / plan["messages"] * 1e6
    return {
        "messages_per_second": round(other["burst"] / (other["burst_end"] - begin)),
        "cpu_us_per_delivery": round(cpu, 1),
        "latency_p50_ms": other["p50"],
        "latency_p99_ms": other["p99"],
        "lost": plan["messages"] + plan["samples"] - other["burst"] - other["samples"],
    }


async def _burst(node: Node, messages: int, size: int) -> None:
    """Publish as fast as the node takes it, a window at a time."""
    data = bytes(size)
    while messages:
        now = min(messages, _WINDOW)
        await asyncio.gather(*(node.publish(TOPIC, data) for _ in range(now)))
        messages -= now


async def _paced(node: Node, plan: dict[str, Any]) -> None:
    start = time.monotonic()
    for number in range(plan["samples"]):
        await asyncio.sleep(max(0.0, start + number / plan["rate"] - time.monotonic()))
        stamp = time.monotonic_ns().to_bytes(_STAMP)
        await node.publish(TOPIC, stamp + bytes(plan["size"] - _STAMP))


async def _listen(plan: dict[str, Any]) -> dict[str, Any]:
    """The other process: count the burst, then time the samples."""
    async with _node(plan) as node:
        subscription = await node.subscribe(TOPIC)
        await node.connect(plan["ticket"])
        cpu = time.process_time()
        burst = await _take(subscription, plan["messages"], [])
        burst_end = time.monotonic()
        cpu = time.process_time() - cpu
        delays: list[int] = []
        samples = await _take(subscription, plan["samples"], delays)
    delays.sort()
    return {
        "burst": burst,
        "burst_end": burst_end,
        "burst_cpu": cpu,
        "samples": samples,
        "p50": round((nearest_rank(delays, 50) or 0) / 1e6, 3),
        "p99": round((nearest_rank(delays, 99) or 0) / 1e6, 3),
    }


async def _take(subscription: Subscription, count: int, delays: list[int]) -> int:
    taken = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE / 2):
            while taken < count:
                event = await anext(subscription)
                delays.append(time.monotonic_ns() - int.from_bytes(event.data[:_STAMP]))
                taken += 1
    return taken


if __name__ == "__main__":
    print(json.dumps(run_async(_listen(json.loads(sys.argv[1])))), flush=True)
