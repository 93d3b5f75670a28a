"""Claim: a peer that floods is felt by nobody, and is cut off within seconds.

A node under attack relays for an honest pair, which is connected to it alone and exchanges 50
messages a second. (In the skip ring, where neighbours find each other, what counts is when they
come to the node itself.) Calm whiles and floods take turns in one run: in each flood one to four
attackers, a process each and under new names each time, send one thing as fast as the node reads
it, until they are cut off. Figures are medians over the rounds, so that what else the machine does
for a moment shows in none of them.

All processes run from the beginning, and all that attackers send is made before the first while:
the calm value is that of the same machine with the same processes. Attackers stand for other
machines, so they have the lowest priority: they send with all the processor time that the node and
the honest pair leave, and what is measured is what they do to the node, not that they need a
processor too.

For each flood the table shows

    delivered   of the honest pair's messages, from the beginning to the end: one that could not be
                published is one that was not delivered
    p99         of their delays, with the calm value, and the ratio (at most 3)
    turn        the longest that one callback kept the node's event loop (at most 100 ms)
    memory      by which the node grew during a flood, at most (its cap is 128 MiB)
    cut off     seconds until the last attacker was disconnected (at most 10), and for what

The last floods are of those who have no name that could be kept out, and go on to the end of their
time: whoever is let in goes, and comes back under another name; a program of the same user asks the
control socket; somebody near answers the questions that the node puts to its router.

`--flood` and `--attackers` choose, `--quick` is for a first look, `--markdown` prints the table of
docs/security.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from flood_frames import (
    ACCESS_FLOODS,
    JUNK_FLOODS,
    PUBSUB_FLOODS,
    QUESTION_FLOODS,
    WEBSOCKET_FLOODS,
    YAMUX_FLOODS,
)
from flood_sides import BOUNDLESS, protocol_of

ROUNDS = 3
WHILE = 2.5
"""Seconds of a calm while, and of a flood at least."""
QUICK_WHILE = 1.0
CUT_OFF = "cut-off-"
MOST_RATIO, MOST_TURN, MOST_MEMORY, MOST_CUT = 3.0, 0.1, 128 << 20, 10.0

FLOODS = [
    *PUBSUB_FLOODS,
    *ACCESS_FLOODS,
    *JUNK_FLOODS,
    *QUESTION_FLOODS,
    *YAMUX_FLOODS,
    "identify streams",
    *WEBSOCKET_FLOODS,
    *BOUNDLESS,
]


# The one who watches.


class Role:
    """A process of `flood_sides.py`."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("flood_sides.py")), *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        found = self.process.stdout.readline()
        if not found:
            raise RuntimeError(f"{self.process.args} ended")
        return found

    def ask(self, word: str = "go") -> Any:
        self.tell(word)
        return json.loads(self.line())

    def tell(self, word: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(flood: str, crowds: list[int], rounds: int, seconds: float) -> Iterator[dict[str, Any]]:
    """The lines of one flood, for crowds of so many attackers."""
    roles: list[Role] = []
    whiles: list[While] = []
    with tempfile.TemporaryDirectory() as home:
        try:
            name = protocol_of(flood)
            above = []
            if name == "skipring":
                roles.append(Role("supervisor"))
                above = [json.loads(roles[0].line())["ticket"]]
            node = Role("victim", flood, home, *above)
            roles.append(node)
            place = json.loads(node.line())
            honest = Role("pair", name, place["ticket"], place["topic"], *above)
            roles.append(honest)
            honest.line()
            times = str(rounds * len(crowds))
            attackers = [Role("attack", flood, times, str(seconds)) for _ in range(max(crowds))]
            roles += attackers
            for each in attackers:
                each.line()
            for crowd in crowds * rounds:
                whiles.append(While(0, honest, node))
                time.sleep(seconds)
                whiles[-1].end()
                whiles.append(While(crowd, honest, node))
                for each in attackers[:crowd]:
                    each.tell(place["attacked"])
                time.sleep(seconds)
                whiles[-1].said = [json.loads(each.line()) for each in attackers[:crowd]]
                whiles[-1].end()
            told, seen = honest.ask("end"), node.ask("end")
        finally:
            for role in roles:
                role.end()
    sent, came = dict(told["sent"]), dict((seen if name == "skipring" else told)["came"])
    for crowd in crowds:
        yield {"flood": flood, "attackers": crowd, **figures(crowd, whiles, sent, came)}


class While:
    """What the node and the honest pair say before and behind a calm while or a flood."""

    def __init__(self, crowd: int, honest: Role, node: Role) -> None:
        self.crowd = crowd
        self.said: list[dict[str, Any]] = []
        """What its attackers told."""
        self._roles = honest, node
        self._before = node.ask()
        self._first = honest.ask()

    def end(self) -> None:
        honest, node = self._roles
        self.numbers = range(self._first, honest.ask())
        self._after = node.ask()

    @property
    def turn(self) -> float:
        return float(self._after["turn"])

    @property
    def memory(self) -> int:
        return int(self._after["memory"] - self._before["memory"])

    @property
    def counted(self) -> Counter[str]:
        return Counter(self._after["refusals"]) - Counter(self._before["refusals"])


def figures(
    crowd: int, whiles: list[While], sent: dict[int, float], came: dict[int, float]
) -> dict[str, Any]:
    """One line of the table."""
    floods = [each for each in whiles if each.crowd == crowd]
    calm, storm = (
        median(p99([came.get(n, inf) - sent[n] for n in each.numbers]) for each in chosen)
        for chosen in ([each for each in whiles if not each.crowd], floods)
    )
    numbers = [number for each in floods for number in each.numbers]
    counted = sum((each.counted for each in floods), Counter())
    cuts = [said["cut"] for each in floods for said in each.said]
    return {
        "delivered": sum(number in came for number in numbers) / len(numbers),
        "p99 calm": calm,
        "p99": storm,
        "ratio": storm / calm,
        "turn": max(each.turn for each in floods),
        "memory": max(each.memory for each in floods),
        "cut": None if None in cuts else max(cuts),
        "why": [reason.removeprefix(CUT_OFF) for reason in counted if reason.startswith(CUT_OFF)],
        "again": sorted({said["again"] for each in floods for said in each.said}),
        "counted": dict(counted),
    }


def p99(delays: list[float]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)]


def span(done: list[str]) -> str:
    """What those did whom nobody cut off, from the least to the most: a number, and of what."""
    least, *_, most = sorted(done * 2, key=lambda each: int(each.partition(" ")[0]))
    return f"{least.partition(' ')[0]} to {most} each"


def holds(row: dict[str, Any]) -> bool:
    return bool(
        row["delivered"] == 1.0
        and row["ratio"] <= MOST_RATIO
        and row["turn"] <= MOST_TURN
        and row["memory"] <= MOST_MEMORY
        and row["cut"] is not None
        and row["cut"] <= MOST_CUT
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flood", dest="floods", action="append", choices=FLOODS)
    parser.add_argument("--attackers", type=int, action="append", help="default: 1 and 4")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each flood")
    parser.add_argument("--seconds", type=float, default=WHILE, help="of a while, at least")
    parser.add_argument("--quick", action="store_true", help="one round, whiles of a second")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/security.md")
    chosen = parser.parse_args()
    rounds, seconds = (1, QUICK_WHILE) if chosen.quick else (chosen.rounds, chosen.seconds)
    if chosen.markdown:
        print("| Flood | Attackers | Delivered | p99, calm | p99 | Ratio | Turn", end="")
        print(" | Memory | Cut off | Holds |\n|" + "---|" * 10)
    for flood in chosen.floods or FLOODS:
        for row in measure(flood, chosen.attackers or [1, 4], rounds, seconds):
            if chosen.json:
                print(json.dumps(row), flush=True)
                continue
            cut = "never" if row["cut"] is None else f"{row['cut']:.1f} s"
            ends = f"{cut}: {', '.join(row['why'])}"
            why = span(row["again"]) if flood in BOUNDLESS else ends
            cells = [
                flood,
                str(row["attackers"]),
                f"{row['delivered']:.1%}",
                f"{row['p99 calm'] * 1000:.1f} ms",
                f"{row['p99'] * 1000:.1f} ms",
                f"{row['ratio']:.1f}",
                f"{row['turn'] * 1000:.0f} ms",
                f"{row['memory'] / 2**20:.0f} MiB",
                why,
                "yes" if holds(row) else "**no**",
            ]
            if chosen.markdown:
                print("| " + " | ".join(cells) + " |", flush=True)
            else:
                print("  ".join(cells), row["again"], row["counted"], flush=True)


if __name__ == "__main__":
    main()
