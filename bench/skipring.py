"""How the skip ring recovers: time and messages as a function of the number of subscribers.

Every run begins in a legitimate state (but for the arbitrary start), with a publication per second.
After a fault, or its end where it has one, it is counted how many intervals pass until the ring is
legitimate for good, how many messages each subscriber and the supervisor send until then, and that
no publication is missing anywhere in the end.

    python bench/skipring.py --sizes 16 32 64 --seeds 3 --svg docs/plots/skipring-recovery.svg
"""

import argparse
import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from rumormill.core.trace import SendRPC, Stabilised
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Batch
from rumormill.trace.metrics import Metrics

AT = 20.0
"""Seconds after the start of the workload at which a fault strikes."""
WARM_UP = 5.0

CASES: dict[str, tuple[str, list[dict[str, Any]], float]] = {
    "30 % crash": ("legitimate", [{"kind": "crash", "at": AT, "fraction": 0.3}], 0.0),
    "supervisor away 60 s": (
        "legitimate",
        [{"kind": "crash", "at": AT, "servers": [0], "duration": 60.0, "keep_state": True}],
        60.0,
    ),
    "supervisor back empty": (
        "legitimate",
        [{"kind": "crash", "at": AT, "servers": [0], "duration": 20.0}],
        20.0,
    ),
    "partition of 30 s": (
        "legitimate",
        [{"kind": "partition", "at": AT, "groups": 2, "duration": 30.0}],
        30.0,
    ),
    "arbitrary start": ("arbitrary", [], -AT - WARM_UP),
}
"""The start, the faults, and how long after `AT` the counting begins."""


class Recovery(NamedTuple):
    """What one run came to."""

    intervals: float
    messages_per_subscriber: float
    supervisor_messages: int
    missing: int
    planned: int
    failed: int


class _Watcher:
    """Notes when the ring turned legitimate, and who sent how many messages in which second."""

    def __init__(self) -> None:
        self.turns: list[tuple[float, bool]] = []
        self.sent: dict[tuple[int, bool], int] = {}
        self.supervisor = b""

    def observe(self, batch: Batch) -> None:
        for at, peer, payload in batch:
            if type(payload) is SendRPC:
                key = (int(at), peer == self.supervisor)
                self.sent[key] = self.sent.get(key, 0) + 1
            elif type(payload) is Stabilised:
                self.turns.append((at, payload.legitimate))

    def close(self) -> None:
        """Nothing is held."""


def measure(case: str, peers: int, seed: int, supervision: str = "database") -> Recovery:
    """Run one case."""
    start, faults, offset = CASES[case]
    watcher, metrics = _Watcher(), Metrics()
    load = {"messages": 100, "rate": 1.0}
    table = {
        "protocol": "skipring",
        "peers": peers,
        "seed": seed,
        "start": start,
        "join": "all-at-once",
        "warm_up": WARM_UP,
        "cool_down": 60.0 + (peers if supervision == "database" else 16 * peers),
        "workload": load,
        "faults": faults,
        "parameters": {"supervision": supervision},
    }
    run = Simulation(Scenario.from_dict(table), [watcher, metrics])
    watcher.supervisor = run.servers[0]
    run.run()
    begin = WARM_UP + AT + offset
    last, legitimate = watcher.turns[-1]
    if not legitimate:
        raise SystemExit(f"{case}, {peers} subscribers, seed {seed}: not legitimate in the end")
    until = max(last, begin)
    spent = {
        boss: sum(
            count for (second, is_boss), count in watcher.sent.items()
            if is_boss is boss and begin <= second < until
        )
        for boss in (False, True)
    }  # fmt: skip
    figures = metrics.summary()
    failed = sum(figures["failed_publications"].values())
    outcome = (figures["pending"], figures["planned"], failed)
    return Recovery(until - begin, spent[False] / peers, spent[True], *outcome)


def table_of(sizes: list[int], seeds: int) -> dict[str, list[tuple[int, Recovery]]]:
    """Run everything and print it as it comes: the median of the seeds."""
    found: dict[str, list[tuple[int, Recovery]]] = {}
    heads = ("case", "n", "intervals", "messages per subscriber", "supervisor's", "missing")
    print(f"| {' | '.join((*heads, 'failed of planned'))} |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        for peers in sizes:
            runs = [measure(case, peers, seed) for seed in range(1, seeds + 1)]
            middle = Recovery(
                statistics.median(run.intervals for run in runs),
                statistics.median(run.messages_per_subscriber for run in runs),
                int(statistics.median(run.supervisor_messages for run in runs)),
                max(run.missing for run in runs),
                max(run.planned for run in runs),
                max(run.failed for run in runs),
            )
            found.setdefault(case, []).append((peers, middle))
            print(
                f"| {case} | {peers} | {middle.intervals:.0f}"
                f" | {middle.messages_per_subscriber:.0f} | {middle.supervisor_messages}"
                f" | {middle.missing} | {middle.failed} of {middle.planned} |",
                flush=True,
            )
    return found


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666")
_WIDTH, _HEIGHT, _LEFT, _TOP = 360, 260, 56, 40


def drawing(found: dict[str, list[tuple[int, Recovery]]]) -> str:
    """The figures as an SVG image with two panels; both axes are logarithmic."""
    panels = [
        ("intervals until legitimate", lambda run: run.intervals),
        ("messages per subscriber until then", lambda run: run.messages_per_subscriber),
    ]
    sizes = [peers for peers, _ in next(iter(found.values()))]
    parts = [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="400"'
            ' font-family="sans-serif" font-size="12">'
        ),
        '<rect width="900" height="400" fill="white"/>',
    ]
    for number, (title, value) in enumerate(panels):
        left = _LEFT + number * (_WIDTH + 80)
        top = max(value(run) for runs in found.values() for _, run in runs)
        highest = max(1, math.ceil(math.log2(top + 1)))

        def place(peers: int, amount: float, left: int = left, highest: int = highest) -> str:
            x = left + _WIDTH * math.log2(peers / sizes[0]) / max(
                1, math.log2(sizes[-1] / sizes[0])
            )
            y = _TOP + _HEIGHT * (1 - math.log2(amount + 1) / highest)
            return f"{x:.1f},{y:.1f}"

        parts.append(f'<text x="{left}" y="24" font-weight="bold">{title}</text>')
        for power in range(highest + 1):
            y = _TOP + _HEIGHT * (1 - power / highest)
            parts.append(
                f'<path d="M{left},{y:.1f}h{_WIDTH}" stroke="#ddd"/>'
                f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{2**power - 1}</text>'
            )
        for peers in sizes:
            x = place(peers, 0).partition(",")[0]
            parts.append(
                f'<text x="{x}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{peers}</text>'
            )
        for colour, runs in zip(_COLOURS, found.values(), strict=False):
            line = " ".join(place(peers, value(run)) for peers, run in runs)
            parts.append(
                f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
    for number, (colour, case) in enumerate(zip(_COLOURS, found, strict=False)):
        x = _LEFT + number * 168
        parts.append(
            f'<path d="M{x},362h20" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{x + 26}" y="366">{case}</text>'
        )
    parts.append(f'<text x="{_LEFT}" y="390">subscribers, from left to right</text></svg>\n')
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="How the skip ring recovers from faults.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 32, 64, 128, 256])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    found = table_of(options.sizes, options.seeds)
    if options.svg is not None:
        options.svg.write_text(drawing(found))


if __name__ == "__main__":
    main()
