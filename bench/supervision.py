"""What supervision by a token costs beside supervision by a database.

    python bench/supervision.py --sizes 16 64 256

Each row is a few runs of the simulator, one seed, intervals of 1 s and links of 50 ms. A quiet ring
is in its legitimate state for 400 s without faults: what its supervisor sends and gets, and all
letters of supervision in the ring (configurations, acknowledgements, requests, tokens), per
interval. Then the faults of `bench/skipring.py`: intervals until the ring is legitimate for good.
"""

import argparse
from typing import Any

from skipring import measure

from rumormill.core.trace import SendRPC
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Batch

QUIET = 400
FAULTS = ("30 % crash", "supervisor back empty", "arbitrary start")
SUPERVISING = ("subscribe", "get-configuration", "set-data", "acknowledge", "token")


class _Counts:
    """Letters by kind, and those of the supervisor."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.supervisor = b""
        self.supervisors = 0

    def observe(self, batch: Batch) -> None:
        for _, peer, payload in batch:
            if type(payload) is SendRPC:
                name = payload.meta.operations[0].name
                self.kinds[name] = self.kinds.get(name, 0) + 1
                self.supervisors += self.supervisor in (peer, payload.send_to)

    def close(self) -> None:
        """Nothing is held."""


def quiet(peers: int, supervision: str) -> tuple[_Counts, int]:
    """A ring in which nothing happens, and how many entries its supervisor keeps."""
    table: dict[str, Any] = {
        "protocol": "skipring",
        "peers": peers,
        "start": "legitimate",
        "cool_down": QUIET,
        "workload": {"messages": 1, "rate": 1.0},
        "parameters": {"supervision": supervision},
    }
    counts = _Counts()
    run = Simulation(Scenario.from_dict(table), [counts])
    counts.supervisor = run.servers[0]
    run.run()
    (supervisor,) = run.network.by_id[run.servers[0]].machine.supervised.values()  # type: ignore[attr-defined]
    tables = [each for each in vars(supervisor).values() if isinstance(each, dict)]
    return counts, sum(map(len, tables))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 256])
    sizes = parser.parse_args().sizes
    heads = ("n", "supervision", "entries kept", "supervisor's letters", "all letters", *FAULTS)
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for peers in sizes:
        for supervision in ("database", "token"):
            counts, entries = quiet(peers, supervision)
            letters = sum(counts.kinds.get(kind, 0) for kind in SUPERVISING)
            cells = [str(entries), f"{counts.supervisors / QUIET:.2f}", f"{letters / QUIET:.2f}"]
            runs = [measure(case, peers, 1, supervision) for case in FAULTS]
            cells += [f"{run.intervals:.0f}" for run in runs]
            print(f"| {peers} | {supervision} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
