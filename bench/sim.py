"""Claim: a simulated message arrival costs at most ten steps of a bare event loop, and a simulated
GossipSub peer at most 100 KB.

The floor is a heapq that holds as many entries as the simulation does on average, and is popped,
called (a no-op) and pushed. Both are timed in the same run, in slices that take turns, as CPU time,
so that whatever else the machine does hits both alike. An arrival is an RPC handed to a router.

    python bench/sim.py                  the claim: 1,000 peers, 20 links, D = 6
    python bench/sim.py --trunk          the same with a tree for each source inside the mesh
    python bench/sim.py --peers 10000    a larger network
"""

import argparse
import gc
import heapq
import json
import random
import sys
import time
import tracemalloc

import msgspec

from rumormill.sim.scenario import Links, Scenario, Topology, Workload
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Observer
from rumormill.trace.metrics import Metrics
from rumormill.trace.ndjson import TraceHash

FLOOR_STEPS = 5_000
MINIMUM_RATIO = 0.10
MAXIMUM_BYTES_PER_PEER = 100_000


def scenario_of(peers: int, messages: int, trunk: bool) -> Scenario:
    return Scenario(
        peers=peers,
        topology=Topology(degree=20),
        links=Links(latency="uniform:20ms-80ms"),
        workload=Workload(messages=messages, rate=100.0),
        parameters={"flood_publish": False, "trunk": trunk},
        cool_down=5.0,
    )


class Row(msgspec.Struct, frozen=True):
    """One line of the result."""

    arrivals: int
    arrival_us: float
    floor_us: float
    ratio: float


class BareLoop:
    """The floor: nothing but a queue of a given length and a no-op."""

    def __init__(self, length: int) -> None:
        draw = random.Random(1)
        self._delays = [0.02 + 0.06 * draw.random() for _ in range(4096)]
        self._order = length
        self._queue = [
            (draw.random() * 0.08, order, self._nothing, None) for order in range(length)
        ]
        heapq.heapify(self._queue)

    def _nothing(self, _argument: None) -> None:
        """Do what a simulation would do, without doing it."""

    def run(self, steps: int) -> float:
        """Make some steps and return the CPU time of one."""
        queue, pop, push, delays = self._queue, heapq.heappop, heapq.heappush, self._delays
        order, nothing = self._order, self._nothing
        begin = time.process_time()
        for step in range(steps):
            now, _, call, argument = pop(queue)
            call(argument)
            push(queue, (now + delays[step & 4095], order + step, nothing, None))
        self._order += steps
        return (time.process_time() - begin) / steps


class Stopwatch:
    """Times a simulation and the floor in turns, slice by slice of virtual time."""

    def __init__(self, simulation: Simulation) -> None:
        self._engine = simulation.network.engine
        self._steps = 0
        self._weighted_floor = 0.0
        self.simulated = 0.0
        self._mark = time.process_time()

    def progress(self, _part: float) -> None:
        """Stop the simulation's watch, run the floor for a while, and start it again."""
        self.simulated += time.process_time() - self._mark
        steps = self._engine.steps - self._steps
        self._steps = self._engine.steps
        bare = BareLoop(max(len(self._engine), 100))
        self._weighted_floor += steps * bare.run(FLOOR_STEPS)
        self._mark = time.process_time()

    @property
    def floor(self) -> float:
        """What a bare step cost, on average over the simulation's steps."""
        return self._weighted_floor / self._steps


def measure(scenario: Scenario, observers: list[Observer], arrivals: int) -> Row:
    """Return what an arrival costs, what a bare step costs, and their ratio."""
    simulation = Simulation(scenario, observers)
    gc.collect()
    watch = Stopwatch(simulation)
    simulation.run(watch.progress)
    cost = watch.simulated / arrivals
    return Row(arrivals, cost * 1e6, watch.floor * 1e6, watch.floor / cost)


def arrivals_of(scenario: Scenario) -> int:
    """Count the RPCs that are handed to routers; the same in every run of a scenario."""
    metrics = Metrics()
    Simulation(scenario, [metrics]).run()
    figures = metrics.summary()
    return int(figures["rpcs_sent"]) - sum(figures["rpcs_dropped"].values())


def memory_per_peer(scenario: Scenario) -> float:
    """Bytes that one more simulated peer takes, measured in the middle of a workload."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    simulation = Simulation(scenario)
    simulation.run()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / scenario.peers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--trunk", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    scenario = scenario_of(options.peers, options.messages, options.trunk)
    arrivals = arrivals_of(scenario)
    watched: dict[str, list[Observer]] = {
        "machines and network alone": [],
        "with metrics": [Metrics()],
        "with metrics and trace hash": [Metrics(), TraceHash()],
    }
    rows = {name: measure(scenario, observers, arrivals) for name, observers in watched.items()}
    per_peer = memory_per_peer(scenario_of(min(options.peers, 500), 60, options.trunk))
    if options.json:
        figures = {name: msgspec.structs.asdict(row) for name, row in rows.items()}
        print(json.dumps({"rows": figures, "bytes_per_peer": per_peer}))
    else:
        for name, row in rows.items():
            print(
                f"{name:30} {row.arrivals:>10,} arrivals {row.arrival_us:6.2f} µs,"
                f" bare step {row.floor_us:5.2f} µs, ratio {row.ratio:.3f}"
            )
        print(f"{'memory per peer':30} {per_peer / 1000:.1f} KB")
    kept = rows["with metrics"].ratio >= MINIMUM_RATIO and per_peer <= MAXIMUM_BYTES_PER_PEER
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
