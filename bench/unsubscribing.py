"""What unsubscribing does in every protocol: what still arrives, what stays, and what it costs.

    python bench/unsubscribing.py

A hundred peers in three topics; a fifth of all subscriptions ends within the half minute of the
load. One peer publishes. In the first run there are ten publications a second, and nobody comes
back: for what still arrives and what stays behind. The cost is taken from two runs that differ in
unsubscribing alone, with one publication every two seconds, where who leaves comes back after two:
the bytes of control that one has more than the other, for each subscription that ended and began.
"""

import sys
from typing import Any

from rumormill.sim.churn import Unsubscribing
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario, Topology, Workload

ENTRIES = ("floodsub", "gossipsub", "pulsarcast", "skipring", "radius:design", "radius")
HEADS = (
    "protocol",
    "failed of planned",
    "ended",
    "delivered after",
    "copies after, each",
    "entries left",
    "links left",
    "control bytes each",
)


def run(entry: str, rate: float, ending: float, away: float = 3600.0) -> dict[str, Any]:
    """One run's figures."""
    name, _, preset = entry.partition(":")
    return run_scenario(
        Scenario(
            protocol=name,
            preset=preset or "default",
            topology=Topology(degree=10),
            warm_up=20.0,
            cool_down=60.0,
            workload=Workload(topics=3, messages=round(30 * rate), rate=rate, publishers=1),
            unsubscribing=Unsubscribing(fraction=ending, away=away),
        )
    )


def main() -> None:
    """Print the table."""
    write = sys.stdout.write
    write(f"| {' | '.join(HEADS)} |\n|---|{'---:|' * (len(HEADS) - 1)}\n")
    for entry in ENTRIES:
        busy = run(entry, 10.0, 0.4)
        quiet, still = run(entry, 0.5, 0.4, away=2.0), run(entry, 0.5, 0.0)
        told, left = busy["unsubscribed"], busy["left_behind"]
        cost = (quiet["control_bytes"] - still["control_bytes"]) / quiet["unsubscribed"]["left"]
        failed = sum(busy["failed_publications"].values())
        cells = [
            f"{failed} of {busy['planned']}",
            str(left["ended"]),
            str(told["deliveries"]),
            f"{told['copies'] / left['ended']:.1f}",
            str(left["entries"]),
            str(left["links"]),
            f"{cost:,.0f}",
        ]
        write(f"| `{entry}` | {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
