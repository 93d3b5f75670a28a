"""Claim: of peers that have nothing but one ticket every one gets every message, and each of them
costs the simulator at most 70 kB.

Everybody dials the first peer, 5,000 in a second, and membership does the rest; GossipSub with
trunk spreads what one of them publishes 15 s after the last has come. Every size runs in a process
of its own, so that its peak of memory is its own; what is in memory before a run is not counted.

    python bench/scale.py                            1,000 and 10,000 peers
    python bench/scale.py --peers 100000             the most that a scenario may have
"""

import argparse
import ctypes
import json
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.metrics import Metrics

MAXIMUM_BYTES_PER_PEER = 70_000

HEAD = (
    "peers", "planned", "failed", "delivered", "formed after, s", "kB sent per peer until then",
    "messages / delivery", "p50 ms", "p99 ms", "hops", "links: least, median, most", "CPU s",
    "CPU ms / peer", "peak MB", "kB / peer",
)  # fmt: skip


def scenario_of(peers: int, seed: int) -> Scenario:
    """What every size runs."""
    return Scenario().changed(
        {
            "peers": peers,
            "seed": seed,
            "topology.kind": "self-formed",
            "parameters": {"trunk": True},
            "workload": {"messages": 5, "rate": 1.0, "publishers": 1, "size": "1kib"},
            "warm_up": "15s",
            "cool_down": "10s",
        }
    )


def peak_memory() -> int:
    """The most bytes that this process has ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class LargePages:
    """Has Linux put what is in memory into pages of 2 MB, where it does so for whoever asks.

    Peers are met in no order, and with gigabytes of them nearly every look at one would begin with
    a walk through the tables of small pages. It changes nothing else, and takes no more memory.
    """

    _HUGE_PAGE, _COLLAPSE = 14, 25  # of madvise(2)
    _LEAST = 2 << 20

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], None] = {}
        self._advise = None
        if sys.platform == "linux":
            self._advise = ctypes.CDLL(None).madvise
            self._advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def ask(self) -> None:
        """Ask for all regions that have come or grown."""
        if self._advise is None:
            return
        for line in Path("/proc/self/maps").read_text().splitlines():
            where, rights, _, _, file, *name = line.split()
            begin, end = (int(each, 16) for each in where.split("-"))
            fits = rights == "rw-p" and file == "0" and name in ([], ["[heap]"])
            if fits and end - begin >= self._LEAST and (begin, end) not in self._asked:
                self._asked[begin, end] = None
                self._advise(begin, end - begin, self._HUGE_PAGE)
                self._advise(begin, end - begin, self._COLLAPSE)


def measure(peers: int, seed: int) -> dict[str, Any]:
    """Run one size; what it costs and what comes of it."""
    before, begun, shown = peak_memory(), time.process_time(), 0
    pages = LargePages()

    def progress(part: float) -> None:
        nonlocal shown
        pages.ask()
        if int(part * 100) > shown:
            shown = int(part * 100)
            cpu, taken = time.process_time() - begun, peak_memory() / 1e6
            now, steps = simulation.network.engine.now, simulation.network.engine.steps
            print(
                f"{time.strftime('%H:%M:%S')} {peers} peers: {part:.0%}, {now:.1f} s simulated,"
                f" {steps:,} steps, {cpu:.0f} s of CPU, {taken:.0f} MB",
                file=sys.stderr,
                flush=True,
            )

    metrics = Metrics()
    simulation = Simulation(scenario_of(peers, seed), [metrics])
    simulation.run(progress)
    assert simulation.forming is not None
    return {
        "peers": peers,
        "cpu": time.process_time() - begun,
        "steps": simulation.network.engine.steps,
        "peak": peak_memory(),
        "bytes_per_peer": (peak_memory() - before) / peers,
        "links": sorted(len(host.links) for host in simulation.network.hosts),
        **simulation.forming.figures(),
        **metrics.summary(),
    }


def row(run: dict[str, Any]) -> list[str]:
    """One line of the table."""
    links = run["links"]
    return [
        f"{run['peers']:,}",
        f"{run['planned']}",
        f"{run['failed_publications']}",
        f"{run['delivery_ratio']:.4%}",
        f"{run['formed_after']:.1f}",
        f"{run['formed_bytes_per_peer'] / 1e3:.1f}",
        f"{run['messages_per_delivery']:.2f}",
        f"{run['latency_p50'] * 1e3:.0f}",
        f"{run['latency_p99'] * 1e3:.0f}",
        f"{run['hops_max']}",
        f"{links[0]}, {links[len(links) // 2]}, {links[-1]}",
        f"{run['cpu']:.0f}",
        f"{run['cpu'] / run['peers'] * 1e3:.1f}",
        f"{run['peak'] / 1e6:,.0f}",
        f"{run['bytes_per_peer'] / 1e3:.1f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|", flush=True)
    kept = True
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as process:
        for peers in options.peers:
            run = process.submit(measure, peers, options.seed).result()
            print(json.dumps(run) if options.json else "| " + " | ".join(row(run)) + " |")
            kept &= run["delivery_ratio"] == 1.0
            kept &= run["bytes_per_peer"] <= MAXIMUM_BYTES_PER_PEER
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
