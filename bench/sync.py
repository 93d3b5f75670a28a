"""What it costs to keep and to compare histories.

    python bench/sync.py [index] [sessions] [joiner] [others]
                         [--events N] [--rounds R] [--home DIR] [--log DIR] [--quick]

`index`: the log's index of histories. Appends with and without it, in turns in one run, as a ratio;
what a caught-up event costs in time and on the disk; what questions cost at N events.
`sessions`: what it takes two logs to find out how they differ. `joiner`: how fast a node that has
nothing fetches everything. `others`: the differences of `sessions` by the skip ring's trie.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sync_joiner import bench_joiner
from sync_others import bench_others
from sync_sessions import bench_sessions, build

from rumormill.core.event import Event
from rumormill.core.history import BEGIN, END, Key
from rumormill.log import EventLog, Retention

AUTHOR = os.urandom(38)
TOPIC = "bench"
PAYLOAD = bytes(200)
BATCH = 1000
SECOND = 10**9
START = 1_700_000_000 * SECOND
EVERY = SECOND // 100
LATE = 5 * EVERY
"""An event may come behind some that are younger than it: a few in a hundred ms."""


def events(start: int, stop: int, rng: random.Random) -> list[Event]:
    """Events of one topic, about in the order of their dates."""
    made = []
    for number in range(start, stop):
        came = START + number * EVERY
        sequence_number = (came - rng.randrange(LATE)).to_bytes(8, "big")
        made.append(Event(TOPIC, PAYLOAD, AUTHOR, AUTHOR + sequence_number, received=came / SECOND))
    return made


def fill(log: EventLog, count: int, *, asked: bool = False) -> float:
    """Seconds in which so many events are appended and safe, and indexed if that is asked for."""
    rng = random.Random(1)
    spent = 0.0
    for start in range(0, count, BATCH):
        batch = events(start, min(start + BATCH, count), rng)
        began = time.perf_counter()
        log.append(batch).result()
        spent += time.perf_counter() - began + (catch_up(log) if asked else 0.0)
    return spent


def catch_up(log: EventLog) -> float:
    """Seconds until everything is indexed."""
    began = time.perf_counter()
    with log.histories():
        return time.perf_counter() - began


def without_index(log: EventLog) -> None:
    """What nobody asks for is not indexed: for the comparison, not even when the writer is idle."""
    log.writer().spare_work = None


def file_bytes(home: Path) -> int:
    return (home / "events-1.db").stat().st_size


def timed(question: Callable[[], object], times: int) -> float:
    """Milliseconds for a question."""
    question()
    began = time.perf_counter()
    for _ in range(times):
        question()
    return 1000 * (time.perf_counter() - began) / times


def append_round(home: Path, count: int) -> dict[str, float]:
    """Append so many events to three logs: never indexed, indexed when idle, asked all the time."""
    found = {}
    for name in ("without index", "with index", "asked after each append"):
        with EventLog(home / name) as log:
            if name == "without index":
                without_index(log)
            found[name] = fill(log, count, asked=name == "asked after each append")
    return found


def bench_appends(home: Path, count: int, rounds: int) -> None:
    """Appends with and without the index, in turns."""
    found = []
    for number in range(rounds):
        found.append(append_round(home / f"round-{number}", count))
        shutil.rmtree(home / f"round-{number}")
    print(f"appends of {BATCH} events, {count:,} events, median of {rounds} rounds in turns")
    for name in found[0]:
        cost = statistics.median(1e6 * each[name] / count for each in found)
        ratio = statistics.median(each[name] / each["without index"] for each in found)
        print(f"  {name:34} {cost:8.2f} µs an event   {ratio:5.2f} x")


def bench_index(home: Path, count: int) -> None:
    """Catching up, questions, retention."""
    with EventLog(home / "store") as log:
        without_index(log)
        fill(log, count)
    before = file_bytes(home / "store")
    with EventLog(home / "store") as log:
        without_index(log)
        spent = catch_up(log)
        print(f"index of {count:,} events")
        print(f"  {'catching up':34} {1e6 * spent / count:8.2f} µs an event   {spent:5.1f} s")
    after = file_bytes(home / "store")
    print(f"  {'on the disk':34} {(after - before) / count:8.1f} bytes an event")
    with EventLog(home / "store") as log:
        ask(log, count)
        began = time.perf_counter()
        log.retain({TOPIC: Retention(max_events=count - count // 10)}, now=0.0)
        spent = time.perf_counter() - began
        print(f"  {'retention':34} {1e6 * spent / (count // 10):8.2f} µs an event")
        began = time.perf_counter()
        assert log.verify().ok
        print(
            f"  {'verification':34} {1e6 * (time.perf_counter() - began) / count:8.2f} µs an event"
        )


def ask(log: EventLog, count: int) -> None:
    """What questions cost."""
    rng = random.Random(2)

    def anywhere() -> Key:
        return Key(START // 1000 + rng.randrange(count) * EVERY // 1000, b"")

    with log.histories() as histories:
        history = histories.history(TOPIC)
        assert history is not None
        questions: dict[str, Callable[[], object]] = {
            "sum of everything": lambda: history.summary(BEGIN, END),
            "sum between two dates": lambda: history.summary(*sorted((anywhere(), anywhere()))),
            "cut of everything into 16": lambda: history.cut(BEGIN, END, 16),
            "cut between two dates into 16": lambda: history.cut(
                *sorted((anywhere(), anywhere())), 16
            ),
            "256 keys": lambda: history.keys(anywhere(), END, 256),
            "256 events": lambda: history.events(history.keys(anywhere(), END, 256), 2**20),
        }
        for name, question in questions.items():
            print(f"  {name:34} {timed(question, 200):8.3f} ms")


def index(options: argparse.Namespace, home: Path) -> None:
    """All of the index."""
    bench_appends(home, min(options.events, 50_000), options.rounds)
    bench_index(home, options.events)


def sessions(options: argparse.Namespace, home: Path) -> None:
    """Sessions between two logs."""
    bench_sessions(signed_log(options, home), home, options.events)


def joiner(options: argparse.Namespace, home: Path) -> None:
    """A late joiner."""
    bench_joiner(signed_log(options, home), home, options.events)


def others(options: argparse.Namespace, _: Path) -> None:
    """The trie, and a full transfer."""
    bench_others(options.events)


def signed_log(options: argparse.Namespace, home: Path) -> Path:
    """The log of signed events, made unless there is one."""
    full = Path(options.log) if options.log else home / "signed"
    if not full.exists():
        began = time.perf_counter()
        build(full, options.events)
        print(f"made a log of {options.events:,} events in {time.perf_counter() - began:.0f} s")
    return full


BENCHES: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "index": index,
    "sessions": sessions,
    "joiner": joiner,
    "others": others,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--home", default=".", help="a directory on the disk to measure")
    parser.add_argument("--log", help="where the log of signed events is, or is to stay")
    parser.add_argument("--quick", action="store_true", help="20,000 events, 2 rounds")
    options = parser.parse_args()
    if options.quick:
        options.events, options.rounds = 20_000, 2
    home = Path(tempfile.mkdtemp(prefix="bench-sync-", dir=options.home))
    try:
        for name in options.what:
            BENCHES[name](options, home)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
