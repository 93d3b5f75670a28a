"""Claim: a durable, signed rumormill message costs little more than the cryptography it needs.

Measures rumormill in its default durable mode and in memory mode, the floor (see
`contestants/floor_peer.py`), and go-, rust-, js- and py-libp2p where they can be had,
interleaved in one run: separate processes, loopback, signed messages of 1 KiB. CPU time per
delivery over all processes is the figure to trust; rates and latencies depend on what else the
machine does. Bytes are those that arrive at TCP sockets, per delivery, for each byte of payload.

    1 -> 1    one publisher, one subscriber
    1 -> 20   one publisher, 20 subscribers in one process
    mesh      20 nodes in two processes, 8 links each, the first one publishes
    formed    the same, but with one ticket: rumormill's nodes find their links themselves

In the first three the links are those that the row speaks of, in every system and version: so
rumormill's membership is off in 1 -> 20 and in the mesh, where it would make more. The fourth has
all defaults. Everybody rests for some seconds before anything is published, because the rows speak
of what a message costs. What starting costs is a figure of its own: the processor time of all
processes from their beginning until then, Python's own start included.

rumormill and the floor make a publisher wait when a receiver falls behind, so their CPU time is
that of a burst. The others drop instead: theirs is that of the highest rate at which nothing is
lost, after a warm-up. Because a burst lets messages share work, 1 -> 1 is also measured at one
moderate rate that every system but py-libp2p keeps, and at 100 messages a second, where nothing is
shared: there latencies are taken as well, from when a message was due. In Python, Go and Rust a
clock of the system says when that is, because timers of asyncio and of Go are up to a millisecond
late, whatever is published. In the mesh rumormill is measured with `trunk` on, too.

`--quick` measures rumormill and the floor only, in two minutes. js and py are looked for where
`RUMORMILL_INTEROP_CACHE` says, or where the interop tests install them; go and rust are built there
with the pins of those tests, if Go and Cargo are installed. Who is left out is named, with the
reason. `--before` names a checkout of another version, which is measured in the same rounds.

Printed are two tables, as README.md and docs/comparison.md have them.
"""

import argparse
import atexit
import contextlib
import json
import os
import random
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
HERE = TREE / "bench" / "contestants"
sys.path.insert(0, str(HERE))

from compiled import MissingError, go_program, rust_program  # noqa: E402 (beside the contestants)
from sockets import received_bytes  # noqa: E402
from stage import SIZE  # noqa: E402
from table import COMMON_PACE, SLOW_PACE, comparisons, tables  # noqa: E402

ANSWER_WITHIN = 120.0
MESH = 20
LINKS = 8
SETTINGS = ("1 -> 1", "1 -> 20", "mesh", "formed")
GIVEN = ("1 -> 20", "mesh")
"""Where nodes keep to the links that they are given."""
SETTLE = 5.0
"""Seconds from the last link to the first message: first comparisons and heartbeats are over."""
FORM = 15.0
"""The same where nodes find their links: they have let go of what they do not need."""

CACHE_VARIABLE = "RUMORMILL_INTEROP_CACHE"

FOREIGN_PACE = {
    "go-libp2p": {"1 -> 1": 2000.0, "1 -> 20": 300.0, "mesh": 150.0},
    "rust-libp2p": {"1 -> 1": 2000.0, "1 -> 20": 300.0, "mesh": 150.0},
    "js-libp2p": {"1 -> 1": 400.0, "1 -> 20": 300.0, "mesh": 15.0},
    "py-libp2p": {"1 -> 1": 100.0, "1 -> 20": 80.0, "mesh": 3.0},
}
"""These drop messages instead of making a publisher wait. So they are measured at the highest rate
at which nothing is lost; the search begins here."""

BURSTS = {"1 -> 1": 5000, "1 -> 20": 500, "mesh": 400, "formed": 400}


class Process:
    """A contestant's process, with its commands."""

    def __init__(self, command: list[str], tree: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.pid = self._process.pid
        self._pending = b""

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        self.tell(do, **arguments)
        return self.answer()

    def tell(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + ANSWER_WITHIN
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise TimeoutError(f"no answer from {self._process.args}")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise RuntimeError(f"{self._process.args} ended")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Let it end; its input has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass
class System:
    """A contestant and what was measured."""

    name: str
    command: Callable[[int, Path], list[str]]
    """How to start a process with so many nodes."""
    tree: Path = TREE
    """The checkout whose rumormill it imports."""
    warm_ups: int = 1
    """Runs of two seconds before anything counts, for a system that compiles as it goes."""
    paces: dict[str, float] = field(default_factory=dict)
    """Messages a second in a setting; without one, as fast as the system's back-pressure allows."""
    settings: tuple[str, ...] = SETTINGS[:3]
    knows_links: bool = False
    """Whether it is to be told that links are given."""
    options: tuple[str, ...] = ()
    """What it is told last."""
    results: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def note(self, setting: str, **values: float) -> None:
        for name, value in values.items():
            self.results.setdefault(setting, {}).setdefault(name, []).append(value)

    def value(self, setting: str, name: str) -> float | None:
        values = self.results.get(setting, {}).get(name)
        return statistics.median(values) if values else None


class Arena:
    """The running processes of one system in one setting: a publisher, and receivers."""

    def __init__(self, processes: list[Process], receivers: int) -> None:
        self.processes = processes
        self.publisher = processes[0]
        self.receivers = receivers

    def stats(self) -> tuple[float, int, int]:
        """CPU seconds so far; deliveries and repetitions since `begin`."""
        stats = [process.ask("stats") for process in self.processes]
        return (
            sum(each["cpu"] for each in stats),
            sum(each["received"] for each in stats),
            sum(each["repeated"] for each in stats),
        )

    def run(self, count: int, rate: float) -> dict[str, float]:
        """Publish and wait until everything has arrived or nothing more comes."""
        for process in self.processes:
            process.ask("begin")
        cpu, _, _ = self.stats()
        arrived = self.received_bytes()
        seconds = self.publisher.ask("publish", node=0, count=count, rate=rate)["seconds"]
        expected = count * self.receivers
        received, quiet_since = -1, time.monotonic()
        while True:
            used, now_received, repeated = self.stats()
            if now_received != received:
                received, quiet_since = now_received, time.monotonic()
            if received >= expected or time.monotonic() - quiet_since > 3:
                break
            time.sleep(0.05)
        return {
            "cpu": (used - cpu) / max(received, 1) * 1e6,
            "bytes": (self.received_bytes() - arrived) / max(received, 1) / SIZE,
            "rate": count / seconds,
            "lost": float(expected - received),
            "repeated": float(repeated),
        }

    def received_bytes(self) -> int:
        return sum(received_bytes(process.pid) for process in self.processes)

    def latencies(self) -> list[float]:
        found = [process.ask("latencies")["latencies"] for process in self.processes]
        return sorted(each for part in found for each in part)


@contextlib.contextmanager
def arena(system: System, setting: str, scratch: Path) -> Iterator[Arena]:
    """Start a system in a setting; stop it in the end."""
    home = Path(tempfile.mkdtemp(dir=scratch))
    sizes = {"1 -> 1": (1, 1), "1 -> 20": (1, 20)}.get(setting, (MESH // 2, MESH // 2))
    last = ["given" if setting in GIVEN else "found"] if system.knows_links else []
    last += system.options
    processes = [
        Process([*system.command(size, home / str(number)), *last], system.tree)
        for number, size in enumerate(sizes)
    ]
    try:
        tickets = [
            (process, node, ticket)
            for process in processes
            for node, ticket in enumerate(process.ask("tickets")["tickets"])
        ]
        if setting == "mesh":
            for process in processes:
                process.ask("subscribe", nodes=list(range(MESH // 2)))
            link_mesh(tickets)
            publisher_peers, receivers = 4, MESH - 1
        elif setting == "formed":
            for process, node, _ in tickets:
                process.ask("subscribe", nodes=[node])
                if process is not processes[0] or node:
                    process.ask("connect", links=[[node, tickets[0][2]]])
            publisher_peers, receivers = 4, MESH - 1
        else:
            processes[1].ask("subscribe", nodes=list(range(sizes[1])))
            links = [[node, tickets[0][2]] for node in range(sizes[1])]
            processes[1].ask("connect", links=links)
            publisher_peers = receivers = sizes[1]
        processes[0].ask("ready", node=0, peers=publisher_peers)
        time.sleep(FORM if setting == "formed" else SETTLE)
        yield Arena(processes, receivers)
    finally:
        for process in processes:
            process.close()
        shutil.rmtree(home, ignore_errors=True)


def link_mesh(tickets: list[tuple[Process, int, str]]) -> None:
    """Connect all nodes in a ring, then at random until each has its links."""
    chance = random.Random(20)
    pairs = {(number, (number + 1) % MESH): None for number in range(MESH)}
    degree = [2] * MESH
    while min(degree) < LINKS:
        short = [number for number in range(MESH) if degree[number] < LINKS]
        first = chance.choice(short)
        others = [
            number
            for number in (short if len(short) > 1 else range(MESH))
            if number != first and (first, number) not in pairs and (number, first) not in pairs
        ] or [number for number in range(MESH) if number != first]
        second = chance.choice(others)
        pairs[first, second] = None
        degree[first] += 1
        degree[second] += 1
    for process in dict.fromkeys(process for process, _, _ in tickets):
        links = [
            [tickets[first][1], tickets[second][2]]
            for first, second in pairs
            if tickets[first][0] is process
        ]
        process.ask("connect", links=links)


def measure(system: System, setting: str, scratch: Path, options: argparse.Namespace) -> None:
    """One round of one system in one setting."""
    with arena(system, setting, scratch) as stage:
        rss = sum(process.ask("stats")["rss"] for process in stage.processes)
        system.note(setting, start=stage.stats()[0])
        pace = system.paces.get(setting)
        if pace is None:
            burst = BURSTS[setting] // (2 if options.quick else 1)
            stage.run(burst // 20, 0)
            found = best = stage.run(burst, 0)
            if setting == "1 -> 1" and not options.quick:
                best = loss_free(stage, found["rate"])
        else:
            for _ in range(system.warm_ups):
                stage.run(max(20, int(pace * 2)), pace)
            found = best = loss_free(stage, pace)
        system.note(setting, best=best["rate"], **found)
        if setting == "1 -> 1" and not options.quick and best["rate"] >= COMMON_PACE:
            paced = stage.run(int(COMMON_PACE * 2), COMMON_PACE)
            if not paced["lost"]:
                system.note(setting, paced=paced["cpu"])
        if setting == "1 -> 1":
            slow = stage.run(200 if options.quick else 500, SLOW_PACE)
            system.note(setting, slow=slow["cpu"])
            delays = stage.latencies()
            if delays:
                p50, p99 = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
                system.note(setting, p50=p50 * 1e3, p99=p99 * 1e3)
        if setting in ("mesh", "formed"):
            system.note(setting, rss=rss / MESH / 2**20)


def loss_free(stage: Arena, start: float) -> dict[str, float]:
    """Search the highest rate, to within a seventh, that is kept for two seconds without loss."""

    def tried(rate: float) -> dict[str, float] | None:
        found = stage.run(max(20, int(rate * 2)), rate)
        return None if found["lost"] or found["rate"] < 0.95 * rate else found

    rate = start
    while (best := tried(rate)) is None:
        if rate < start / 10:
            raise RuntimeError(f"loses messages even at {rate:.2g} a second")
        rate *= 0.6
    low, high = rate, 0.0
    while not high or high > 1.15 * low:
        middle = (low + high) / 2 if high else low * 1.5
        found = tried(middle)
        if found is None:
            high = middle
        else:
            low, best = middle, found
    return best


def python_system(name: str, program: str, *extra: str, tree: Path = TREE) -> System:
    python = sys.executable if tree == TREE else str(tree / ".venv" / "bin" / "python")

    def command(nodes: int, home: Path) -> list[str]:
        where = [str(home)] if not extra else list(extra)
        return [python, str(HERE / program), str(nodes), *where]

    return System(name, command, tree)


def versions(tree: Path, before: str = "") -> list[System]:
    """rumormill as a checkout has it, durable and in memory."""
    found = [
        python_system(f"{before}rumormill", "rumormill_peer.py", tree=tree),
        python_system(f"{before}rumormill, memory", "rumormill_peer.py", "memory", tree=tree),
    ]
    for system in found:
        system.knows_links = True
        if (tree / "src" / "rumormill" / "members").exists():
            system.settings = SETTINGS
    if not before:
        found.append(python_system("rumormill, trunk", "rumormill_peer.py", tree=tree))
        found[2].knows_links, found[2].settings, found[2].options = True, ("mesh",), ("trunk",)
    return found


def foreign_systems(wanted: list[str] | None) -> Iterator[System]:
    """The other implementations that can be had here; who cannot is named, with the reason."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path(base) / "rumormill" / "interop")
    for name, program_in in FOREIGN.items():
        if wanted is None or name in wanted:
            try:
                program = program_in(cache)
            except MissingError as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
            else:
                yield foreign(name, program, warm_ups=3 if name == "js-libp2p" else 1)


def javascript(cache: Path) -> list[str]:
    folder = installed(cache, "js")
    script = folder / f"bench-{os.getpid()}.mjs"  # packages are looked for beside the script
    shutil.copy(HERE / "js_peer.mjs", script)
    atexit.register(script.unlink)
    return [str(folder / "node_modules" / ".bin" / "node"), str(script)]


def python(cache: Path) -> list[str]:
    folder = installed(cache, "py")
    return [str(folder / "venv" / "bin" / "python"), str(HERE / "py_libp2p_peer.py")]


def installed(cache: Path, kind: str) -> Path:
    """What the interop tests installed last of an implementation."""
    marks = sorted(cache.glob(f"{kind}-*/ready"), key=lambda mark: mark.stat().st_mtime)
    if not marks:
        raise MissingError(f"`make test-interop` has not installed it in {cache}")
    return marks[-1].parent


FOREIGN: dict[str, Callable[[Path], list[str]]] = {
    "go-libp2p": lambda cache: [str(go_program(cache))],
    "rust-libp2p": lambda cache: [str(rust_program(cache))],
    "js-libp2p": javascript,
    "py-libp2p": python,
}
"""The program of each, looked for or built in the cache of the interop tests."""


def foreign(name: str, program: list[str], *, warm_ups: int) -> System:
    def command(nodes: int, _: Path) -> list[str]:
        return [*program, str(nodes)]

    return System(name, command, warm_ups=warm_ups, paces=FOREIGN_PACE[name])


def main() -> None:
    options = parse()
    floor = python_system("floor", "floor_peer.py")
    floor.settings = ("1 -> 1", "1 -> 20")
    systems = [floor, *versions(TREE)]
    if options.before:
        systems += versions(options.before.resolve(), "before: ")
    if not options.quick:
        systems += foreign_systems(options.systems)
    if options.systems:
        systems = [system for system in systems if system.name in options.systems]
    with tempfile.TemporaryDirectory(prefix="rumormill-bench-") as scratch:
        for _ in range(options.rounds):
            for setting in options.settings:
                for system in systems:
                    if setting in system.settings:
                        try:
                            measure(system, setting, Path(scratch), options)
                        except (RuntimeError, TimeoutError) as error:  # who died has no figure
                            print(f"{system.name}, {setting}: {error}", file=sys.stderr)
    print("\n".join(["", *tables(systems), "", *comparisons(systems)]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="rumormill and the floor only")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--before", type=Path, help="a checkout with its .venv, to compare with")
    parser.add_argument("--setting", dest="settings", action="append", choices=SETTINGS)
    parser.add_argument("--system", dest="systems", action="append", help="measure this one only")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.settings = options.settings or list(SETTINGS)
    return options


if __name__ == "__main__":
    main()
