"""What the durable log costs, as ratios to bare SQLite on the same disk in the same run.

    python bench/store.py [--events N] [--rounds R] [--home DIR]

Every figure is the median of interleaved rounds. "Bare" is the least that could keep an event: one
table (key, id, data) in WAL mode with synchronous=FULL, one INSERT and one COMMIT for each event,
and a SELECT of the same rows. The log adds: unique ids, hashes, heads file, a second thread.
"""

import argparse
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from rumormill.core.event import Event
from rumormill.log import Durability, EventLog, StoreConfig

PAYLOAD_BYTES = 1024
SINGLE = 300


def events(count: int) -> list[Event]:
    return [
        Event("bench", os.urandom(PAYLOAD_BYTES), b"author", os.urandom(40), received=time.time())
        for _ in range(count)
    ]


def bare(home: Path, count: int) -> tuple[float, float]:
    """Events per second of insert + commit, and rows per second of a plain SELECT."""
    db = sqlite3.connect(home / "bare.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE events (key INTEGER PRIMARY KEY, id BLOB, data BLOB)")
    rows = [(event.id, event.data) for event in events(SINGLE)]
    start = time.perf_counter()
    for row in rows:
        db.execute("INSERT INTO events (id, data) VALUES (?, ?)", row)
    write = SINGLE / (time.perf_counter() - start)
    db.execute("BEGIN")
    fields = "INSERT INTO events (id, data) VALUES (?, ?)"
    db.executemany(fields, [(event.id, event.data) for event in events(count - SINGLE)])
    db.execute("COMMIT")
    start = time.perf_counter()
    read = len(db.execute("SELECT key, id, data FROM events ORDER BY key").fetchall())
    rate = read / (time.perf_counter() - start)
    db.close()
    return write, rate


def single(log: EventLog) -> float:
    """Events per second when each append waits for its own commit."""
    prepared = events(SINGLE)
    start = time.perf_counter()
    for event in prepared:
        log.append([event]).result()
    return SINGLE / (time.perf_counter() - start)


def grouped(log: EventLog, count: int, batch: int) -> float:
    """Events per second when appends of `batch` events are queued and then awaited together."""
    prepared = events(count)
    calls = [prepared[at : at + batch] for at in range(0, count, batch)]
    start = time.perf_counter()
    for ticket in [log.append(call) for call in calls]:
        ticket.result()
    return count / (time.perf_counter() - start)


def read(log: EventLog, count: int) -> float:
    """Verified rows per second."""
    start = time.perf_counter()
    rows = sum(len(chunk) for chunk in log.chunks("bench", 0, count))
    return rows / (time.perf_counter() - start)


def one_round(home: Path, count: int) -> dict[str, float]:
    (home / "plain").mkdir()
    write, select = bare(home / "plain", count)
    found = {"bare insert+commit": write, "bare select": select}
    with EventLog(home / "fsync") as log:
        found["single commits"] = single(log)
        found["group commit, appends of 1"] = grouped(log, count, 1)
        found["group commit, appends of 100"] = grouped(log, count, 100)
        found["verified read"] = read(log, count)
    with EventLog(home / "os", StoreConfig(durability=Durability.OS)) as log:
        found["single commits, os mode"] = single(log)
    with EventLog(None, StoreConfig(durability=Durability.MEMORY)) as log:
        found["single commits, memory mode"] = single(log)
        found["group commit, memory mode"] = grouped(log, count, 100)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--home", default=".", help="a directory on the disk to measure")
    options = parser.parse_args()
    rounds = []
    for _ in range(options.rounds):
        home = Path(tempfile.mkdtemp(prefix="bench-store-", dir=options.home))
        try:
            rounds.append(one_round(home, options.events))
        finally:
            shutil.rmtree(home)
    print(f"{PAYLOAD_BYTES} byte events, median of {options.rounds} rounds")
    for name in rounds[0]:
        rate = statistics.median(found[name] for found in rounds)
        base = "bare select" if name in ("verified read", "bare select") else "bare insert+commit"
        ratio = statistics.median(found[name] / found[base] for found in rounds)
        print(f"{name:32} {rate:10,.0f}/s   {ratio:7.2f} x {base}")


if __name__ == "__main__":
    main()
