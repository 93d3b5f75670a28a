"""The fault suite as a program: many rounds, a few at a time, and a table of what came of them.

    make test-chaos ROUNDS=100 JOBS=2
    python tests/chaos/chaos_suite.py --seed 7 --rounds 1 --protocol pulsarcast

A round that fails prints its schedule and the line that replays it. Seeds count up from the first;
where no protocol is named, rounds take turns.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from chaos_round import Outcome, Round
from chaos_schedule import PROTOCOLS, Schedule, read_schedule, write_schedule
from disk import COMPILER, NEEDS_COMPILER, built

SHOWN = 8
"""Violations that are printed of one round."""


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Place(msgspec.Struct, frozen=True):
    """Where rounds are run: what they need of the machine."""

    port: int
    """No other suite on this machine has it; nodes use it on addresses of 127/8."""
    library: Path | None
    """What makes disks that fail, where there is a compiler."""

    async def run(self, schedule: Schedule, folder: Path, slot: int = 0) -> Outcome:
        """Run one schedule in an empty folder; `slot` tells it from others at the same time."""
        hosts = [f"127.1.{slot}.{number + 1}" for number in range(schedule.size)]
        return await Round(schedule, folder, hosts, self.port, self.library).run()


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """A place to run rounds."""
    with socket.socket() as held, tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        held.bind(("127.0.0.1", 0))
        library = None if COMPILER is None else built(Path(folder))
        yield Place(held.getsockname()[1], library)


class Suite:
    """Rounds that were asked for, and what they add up to."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.outcomes: list[tuple[int, Outcome]] = []
        self._seeds = itertools.count(arguments.seed)
        self._began = time.monotonic()
        self._asked = 0

    def _next(self) -> tuple[int, Schedule] | None:
        """The next round, unless there were enough or the time is over."""
        chosen = self.arguments
        over = chosen.minutes and time.monotonic() - self._began > 60 * chosen.minutes
        if over or (not chosen.minutes and self._asked >= chosen.rounds):
            return None
        self._asked += 1
        seed = next(self._seeds)
        if chosen.schedule:
            return seed, read_schedule(chosen.schedule)
        protocol = chosen.protocol or PROTOCOLS[seed % len(PROTOCOLS)]
        return seed, write_schedule(seed, protocol, nodes=chosen.nodes, seconds=chosen.seconds)

    async def work(self, place: Place, slot: int) -> None:
        """Run one round after the other."""
        while (asked := self._next()) is not None:
            seed, schedule = asked
            folder = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
            try:
                outcome = await place.run(schedule, folder, slot)
                self.outcomes.append((seed, outcome))
                if not self.arguments.json:
                    self._tell(seed, outcome, folder)
            finally:
                if not self.arguments.keep or outcome.ok:
                    shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, seed: int, outcome: Outcome, folder: Path) -> None:
        schedule = outcome.schedule
        kinds = ", ".join(fault.kind for fault in schedule.faults)
        verdict = "ok" if outcome.ok else "FAILED"
        say(
            f"{len(self.outcomes):4} {schedule.protocol:10} seed {seed:<6} {verdict:6} "
            f"{outcome.acknowledged:5} acknowledged, {outcome.lives:2} lives, settled in "
            f"{outcome.settled_in:4.1f} s: {kinds}"
        )
        if outcome.ok:
            return
        rarest = sorted(outcome.violations, key=lambda each: outcome.kinds[each.partition(":")[0]])
        for violation in rarest[:SHOWN]:
            say(f"       {violation}")
        say(f"       in all: {outcome.kinds}")
        say(f"       schedule: {schedule.text()}")
        say(f"       again: {self._replay(seed, schedule)}")
        if self.arguments.keep:
            say(f"       homes: {folder}")

    def _replay(self, seed: int, schedule: Schedule) -> str:
        if self.arguments.schedule:
            return f"python tests/chaos/chaos_suite.py --schedule '{schedule.text()}'"
        more = "".join(
            f" {name.upper()}={getattr(self.arguments, name)}"
            for name, usual in (("nodes", NODES), ("seconds", SECONDS))
            if getattr(self.arguments, name) != usual
        )
        return f"make test-chaos SEED={seed} ROUNDS=1 PROTOCOL={schedule.protocol}{more}"

    async def run(self) -> bool:
        """Run all; return whether all was as promised."""
        with place() as here:
            if here.library is None:
                say(f"without power cuts and failing disks: {NEEDS_COMPILER}")
            works = [self.work(here, slot) for slot in range(self.arguments.jobs)]
            try:
                async with asyncio.TaskGroup() as group:
                    for work in works:
                        group.create_task(work)
            finally:
                self._sum_up()
        return all(outcome.ok for _, outcome in self.outcomes)

    def _sum_up(self) -> None:
        if self.arguments.json:
            say(json.dumps(summary(self.outcomes)))
            return
        totals = summary(self.outcomes)
        names = list(totals["protocols"])
        named = {row for name in names for row in totals["protocols"][name]}
        rows = sorted(
            named, key=lambda row: (row.split(":")[0] in ("fault", "refused", "upkeep"), row)
        )
        rows = [*HEAD, *(row for row in rows if row not in HEAD)]
        say("")
        say(" " * 32 + "".join(f"{name:>12}" for name in names))
        for row in rows:
            cells = (totals["protocols"][name].get(row, 0) for name in names)
            say(f"{row:32}" + "".join(f"{cell:12,}" for cell in cells))
        failed = [seed for seed, outcome in self.outcomes if not outcome.ok]
        say("")
        say(
            f"{len(self.outcomes)} rounds in {time.monotonic() - self._began:.0f} s, "
            f"{len(failed)} failed" + (f": seeds {failed}" if failed else "")
        )


VERDICTS = (
    *("lost", "lost elsewhere", "repeated", "moved", "reused", "gap", "not given", "unknown"),
    *("forked", "gave up", "overdone", "not copied"),
)
"""Rows that are shown also when they are nought: what the suite is about."""


HEAD = ("rounds", "failed rounds", "acknowledged", "delivered", *VERDICTS)


def summary(outcomes: list[tuple[int, Outcome]]) -> dict[str, dict[str, dict[str, int]]]:
    """Add up, by protocol: rounds, faults, events, violations, refusals."""
    by_protocol: dict[str, Counter[str]] = {}
    for _, outcome in outcomes:
        row = by_protocol.setdefault(outcome.schedule.protocol, Counter())
        row["rounds"] += 1
        row["failed rounds"] += not outcome.ok
        row["acknowledged"] += outcome.acknowledged
        row["delivered"] += outcome.delivered
        for kind in VERDICTS:
            row[kind] += outcome.kinds.get(kind, 0)
        for kind, count in outcome.kinds.items():
            row[kind] += count if kind not in VERDICTS else 0
        row["processes started"] += outcome.lives
        row["logs failed, node restarted"] += outcome.gave_up
        for work, count in outcome.upkeep.items():
            row[f"upkeep: {work}"] += count
        for fault in outcome.schedule.faults:
            row[f"fault: {fault.kind}"] += 1
        for reason, count in outcome.refused.items():
            row[f"refused: {reason}"] += count
    return {"protocols": {name: dict(row) for name, row in sorted(by_protocol.items())}}


NODES, SECONDS = 4, 2.5


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        description="Run nodes in processes, and let faults befall them."
    )
    parser.add_argument("--rounds", type=int, default=10, help="how many rounds")
    parser.add_argument("--minutes", type=float, default=0, help="rounds for so long instead")
    parser.add_argument("--seed", type=int, default=1, help="the first round's; others count up")
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, help="one protocol; all in turn unless given"
    )
    parser.add_argument("--jobs", type=int, default=2, help="rounds at a time")
    parser.add_argument("--nodes", type=int, default=NODES, help="subscribers in a network")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long faults come")
    parser.add_argument("--schedule", help="this schedule, as it was printed")
    parser.add_argument("--json", action="store_true", help="print the sums as JSON, and no more")
    parser.add_argument("--keep", action="store_true", help="keep the homes of failed rounds")
    arguments = parser.parse_args()
    try:
        return 0 if asyncio.run(Suite(arguments).run()) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
