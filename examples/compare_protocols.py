"""Which protocol suits your network? Simulate yours, with each, and print what it costs.

    python examples/compare_protocols.py links.txt --messages 40

`links.txt` lists who is connected to whom, two peer numbers a line; without it a ring of 24 peers
with a few chords is used. Larger studies, with many seeds and conditions, are `rumormill sweep`.
"""

import argparse
import tempfile
from pathlib import Path

from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario

PROTOCOLS = ("floodsub", "gossipsub", "pulsarcast", "skipring", "radius")
FIGURES = ("delivery_ratio", "latency_p50", "latency_p99", "messages_per_delivery")


def ring_with_chords(peers: int = 24, step: int = 7) -> str:
    """Return an edge list: everybody knows the next peer, and one across the ring."""
    return "".join(f"{n} {(n + 1) % peers}\n{n} {(n + step) % peers}\n" for n in range(peers))


def main() -> None:
    """Run every protocol under the same plan and seed."""
    parser = argparse.ArgumentParser(description="Compare protocols on your own topology.")
    parser.add_argument("links", nargs="?", help="an edge list; a ring with chords without it")
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--latency", default="regions")
    parser.add_argument("--loss", default="0%")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(options.links).read_text() if options.links else ring_with_chords()
        links = Path(folder, "links.txt")
        links.write_text(text)
        print(f"{'protocol':<12}" + "".join(f"{name:>23}" for name in FIGURES))
        for protocol in PROTOCOLS:
            scenario = Scenario.from_dict(
                {
                    "protocol": protocol,
                    "peers": 1 + max(int(number) for number in text.split()),
                    "topology": {"kind": "file", "path": str(links)},
                    "links": {"latency": options.latency, "loss": options.loss},
                    "workload": {"messages": options.messages, "rate": 5},
                    "cool_down": "30s",
                }
            )
            figures = run_scenario(scenario)
            print(f"{protocol:<12}" + "".join(f"{figures[name]:>23.3f}" for name in FIGURES))


main()
