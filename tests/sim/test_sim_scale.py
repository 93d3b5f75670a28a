"""What one more peer of a simulated network costs in memory: what decides how large one can be."""

import gc
import tracemalloc

from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.metrics import Metrics

PEERS = 40
MOST_BYTES = 65_000
"""Of one peer in such a network, while all its links are young and it has more than it keeps."""


def scenario(peers: int) -> Scenario:
    return Scenario().changed(
        {
            "peers": peers,
            "topology.kind": "self-formed",
            "parameters": {"trunk": True},
            "workload": {"messages": 2, "rate": 1.0, "publishers": 1},
            "warm_up": "6s",
            "cool_down": "2s",
        }
    )


def test_a_peer_of_a_network_from_one_ticket_costs_little_memory() -> None:
    """Counted by the allocator and not by the system, so that it does not depend on the machine.

    Of those whom a peer has asked something, and they are many, only when that was is left.
    """
    Simulation(scenario(4)).run()  # what is loaded and made once for all
    metrics = Metrics()
    gc.collect()
    tracemalloc.start()
    try:
        simulation = Simulation(scenario(PEERS), [metrics])
        simulation.run()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    hosts = simulation.network.hosts
    assert metrics.summary()["delivery_ratio"] == 1.0
    assert taken / len(hosts) <= MOST_BYTES
    under_way, resting = (
        sum(len(each) for each in ways)
        for ways in ([host.routes for host in hosts], [host.warm for host in hosts])
    )
    assert resting > 10 * len(hosts)
    assert under_way < resting / 10
