"""The rows of `docs/published-numbers.md`: GossipSub's message counts beside the published ones.

Every row is a scenario file with a few values changed, run once per seed; what is printed is the
mean over the seeds. Choose rows and sizes by name:

    python bench/published_numbers.py --rows v1.0 v1.1 --peers 100 500 --seeds 5
    python bench/published_numbers.py --list
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from rumormill.core.ids import MessageId
from rumormill.core.trace import DeliverMessage, PublishMessage, SendRPC
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Batch
from rumormill.trace.metrics import Metrics

NETWORK = Path(__file__).resolve().parent.parent / "scenarios" / "published-numbers.toml"

_FLOOD = {"parameters.flood_publish": "true"}
# Links, dials and sources as in the published runs (vyzo/gerbil-simsub: simulator.ss, scripts.ss).
_LIKE = {
    "join": "all-at-once",
    "topology": {"kind": "ring-random", "degree": 40},
    "links.latency": "uniform:10ms-150ms",
    "links.jitter": "8ms",
    "workload.rate": 1.0,
    "workload.publishers": 5,
}
_ALL_AT_ONCE = {"join": "all-at-once"}
_D8 = {"parameters": {"D": 8}}

ROWS: dict[str, dict[str, Any]] = {
    "v1.0": {},
    "v1.1": _FLOOD,
    "v1.0-like": {**_LIKE, "parameters.gossip_factor": 0.0},
    "v1.1-like": {**_FLOOD, **_LIKE},
    "D8": _D8,
    "D8-no-flood": {"parameters": {"D": 8, "flood_publish": False}},
    "join-at-once-in-step": {**_ALL_AT_ONCE, "parameters.heartbeat_spread": 0.0},
    "join-at-once": _ALL_AT_ONCE,
    "join-10ms": {"join_interval": "10ms"},
    "join-100ms": {"join_interval": "100ms"},
    "join-1500ms": {"join_interval": "1500ms"},
}

COLUMNS = (
    "messages_per_delivery",
    "duplicates_per_delivery",
    "planned",
    "failed",
    "delivery_ratio",
    "latency_p50",
    "latency_p99",
    "latency_max",
    "up_to_200ms",
    "up_to_300ms",
    "below_400ms",
    "ihave",
    "ihave_ids",
    "iwant",
    "mesh_links",
)


class Extra:
    """What the published tables show and the summary does not: shares of latency, ids of gossip."""

    def __init__(self) -> None:
        self.published: dict[MessageId, tuple[float, bytes]] = {}
        self.latencies: list[float] = []
        self.ihave_ids = 0

    def observe(self, batch: Batch) -> None:
        """Add a batch of the trace."""
        for now, peer, payload in batch:
            if isinstance(payload, PublishMessage):
                self.published[payload.message_id] = (now, peer)
            elif isinstance(payload, DeliverMessage):
                at, author = self.published[payload.message_id]
                if peer != author:
                    self.latencies.append(round(now - at, 9))
            elif isinstance(payload, SendRPC) and payload.meta.control is not None:
                ihave = payload.meta.control.ihave
                self.ihave_ids += sum(len(entry.message_ids) for entry in ihave)

    def close(self) -> None:
        """Nothing is held open."""

    def share(self, limit: float) -> float:
        """Return the part of the remote deliveries that took at most so many seconds."""
        return sum(latency <= limit for latency in self.latencies) / len(self.latencies)


def measure(row: str, peers: int, seed: int) -> dict[str, Any]:
    """Run one row once."""
    scenario = Scenario.load(NETWORK).changed({**ROWS[row], "peers": peers, "seed": seed})
    metrics, extra = Metrics(), Extra()
    simulation = Simulation(scenario, [metrics, extra])
    simulation.run()
    machines: list[Any] = [host.machine for host in simulation.network.hosts]
    links = [len(mesh) for machine in machines for mesh in machine.mesh.links.values()]
    summary = metrics.summary()
    return {
        **summary,
        "failed": sum(summary["failed_publications"].values()),
        "ihave": summary["control_messages"].get("ihave", 0),
        "iwant": summary["control_messages"].get("iwant", 0),
        "up_to_200ms": extra.share(0.2),
        "up_to_300ms": extra.share(0.3),
        "below_400ms": extra.share(0.399999999),
        "ihave_ids": extra.ihave_ids,
        "mesh_links": sum(links) / len(links),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--peers", nargs="+", type=int, default=[100, 500, 1000])
    parser.add_argument("--seeds", type=int, default=3, help="run seeds 1 to this")
    parser.add_argument("--list", action="store_true", help="show what each row changes, and end")
    options = parser.parse_args()
    if options.list:
        for row, changes in ROWS.items():
            print(f"{row}: {changes}")
        return
    for peers in options.peers:
        for row in options.rows:
            runs = [measure(row, peers, seed) for seed in range(1, options.seeds + 1)]
            means = {name: sum(run[name] for run in runs) / len(runs) for name in COLUMNS}
            shown = "  ".join(f"{name}={value:.4g}" for name, value in means.items())
            each = " ".join(f"{run['messages_per_delivery']:.3f}" for run in runs)
            print(f"{row} peers={peers}  {shown}  each=[{each}]", flush=True)


if __name__ == "__main__":
    main()
