"""What reading topics in Spark costs, as ratios to Spark reading the same rows from Parquet.

    python bench/spark.py [--events N] [--rounds R] [--authors A] [--keyed] [--quick] [--brief]
                          [--folder DIR]

A store with N events of one topic is made (46 byte ids, 100 byte payloads, 64 byte signatures), and
its rows are written to Parquet by Spark. Each round reads all columns of all rows and throws them
away (`noop`): from Parquet, from the store by `home`, and by `node` through the Flight door of
`rumormill serve-store` in a process of its own. The server seals segments by itself as long as its
door is open; rounds begin when it has. The store is read twice by each: without its segments, which
were deleted and which that read leaves behind, and with them. Figures are medians of
interleaved rounds, behind one round that is not counted; processor time is that of all processes
together, and depends less than the ratios on what else the machine does. Every row that the source
serves has been verified: by its hash, or by its segment's digests. The last part verifies hashes
and Ed25519 signatures of the rows in Spark tasks, on one core and on two, beside the floor: the
same signatures in as many bare processes, which is how far the machine's own cores scale.

With `--keyed` every event has a key, in an envelope. Java runs as `session()` starts it; with
`--brief`, as `session(brief=True)` does, which compiles less well and sooner.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from rumormill.core.event import Event
from rumormill.log import Durability, EventLog, StoreConfig
from rumormill.spark import session
from rumormill.wire.envelope import encode_envelope

TOPIC = "bench"
PAYLOAD_BYTES = 100
SIGNED = 100_000
"""Rows whose signatures are verified: at about 80 µs each, enough to leave a job's fixed costs
behind, and the rest would only take time."""

GATES = {"home": 0.5, "node": 0.3}
"""For a store that has been served for a minute; reads of one that was not are printed beside."""

_SEALING_SECONDS = 600.0


def make_store(home: Path, count: int, authors: int = 1, *, keyed: bool = False) -> None:
    """A store of signed events, made without waiting for the disk."""
    keys = [SigningKey(bytes(28) + number.to_bytes(4, "big")) for number in range(authors)]
    names = [bytes(6) + bytes(key.verify_key) for key in keys]
    with EventLog(home, StoreConfig(durability=Durability.OS)) as log:
        for start in range(0, count, 1000):
            events = []
            for number in range(start, min(start + 1000, count)):
                key, author = keys[number % authors], names[number % authors]
                data = os.urandom(PAYLOAD_BYTES)
                if keyed:
                    data = encode_envelope(data, key=b"key-%d" % (number % 1000), created=1)
                proof = key.sign(data).signature if number < SIGNED else os.urandom(64)
                event_id = author + number.to_bytes(8, "big")
                received = 1.7e9 + number / 1000
                events.append(
                    Event(
                        TOPIC,
                        data,
                        author,
                        event_id,
                        parents=(),
                        created=None,
                        proof=proof,
                        received=received,
                        protocol="gossipsub",
                    )
                )
            log.append(events)


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def processor_seconds() -> float:
    """What this process and all that it has started have used, Java and workers among them; 0.0
    where there is no /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))  # its own and those of its ended children
    total = 0
    for number, used in ticks.items():
        above = number
        while above in parents and above != os.getpid():
            above = parents[above]
        total += used if above == os.getpid() else 0
    return total / os.sysconf("SC_CLK_TCK")


def discard(frame: Any) -> None:
    """Read every column of every row."""
    frame.write.format("noop").mode("overwrite").save()


class Server:
    """`rumormill serve-store` in a process of its own."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "rumormill", "serve-store", str(home), "--json"]
        self._process = subprocess.Popen(
            [*command, "--flight", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        said = json.loads(self._process.stdout.readline())
        self.endpoint = said["flight"]
        self.token_file = said["token_file"]

    def seal(self, home: Path, count: int) -> None:
        """Wait until the server has sealed all that is whole."""
        start = time.monotonic()
        whole = count // StoreConfig().segment_rows
        while len(list((home / "segments").glob("*/[0-9]*"))) < whole:
            if time.monotonic() > start + _SEALING_SECONDS:
                raise SystemExit("the server did not seal the store")
            time.sleep(0.2)
        print(f"the server sealed {whole} ranges in {time.monotonic() - start:.0f} s", flush=True)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def compare(spark: Any, home: Path, folder: Path, count: int, rounds: int) -> dict[str, float]:
    """Rows per second by way of reading; ratios are printed."""
    by_home = spark.read.format("rumormill").option("home", str(home)).option("subscribe", TOPIC)
    by_home.load().write.parquet(str(folder / "rows"))
    shutil.rmtree(home / "segments", ignore_errors=True)  # of the read that has just been
    server = Server(home)
    server.seal(home, count)
    by_node = (
        spark.read.format("rumormill")
        .option("node", server.endpoint)
        .option("tokenFile", server.token_file)
        .option("subscribe", TOPIC)
    )
    ways = {
        "parquet": lambda: discard(spark.read.parquet(str(folder / "rows"))),
        "home, unsealed": lambda: discard(by_home.load()),
        "home": lambda: discard(by_home.load()),
        "node, unsealed": lambda: discard(by_node.load()),
        "node": lambda: discard(by_node.load()),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    work: dict[str, list[float]] = {way: [] for way in ways}
    try:
        for number in range(rounds + 1):
            for way, read in ways.items():
                if way.endswith("unsealed"):
                    shutil.rmtree(home / "segments", ignore_errors=True)
                before = processor_seconds()
                taken = timed(read)
                if number:
                    times[way].append(taken)
                    work[way].append(processor_seconds() - before)
    finally:
        server.stop()
    for way in list(ways)[1:]:
        ratios = [base / own for base, own in zip(times["parquet"], times[way], strict=True)]
        ratio = statistics.median(ratios)
        line = f"{way:14} {ratio:5.2f} x parquet (from {min(ratios):.2f} to {max(ratios):.2f})"
        if way in GATES:
            verdict = "reached" if ratio >= GATES[way] else "MISSED"
            line += f"; at least {GATES[way]}: {verdict}"
        print(line)
    for way, found in work.items():
        print(f"{way:14} {statistics.median(found) / count * 1e6:5.2f} µs of processor time a row")
    return {way: count / statistics.median(taken) for way, taken in times.items()}


Row = tuple[bytes, bytes, bytes]


def count_good(rows: Iterable[Row]) -> int:
    """How many of (author, data, signature) are good."""
    good = 0
    for author, data, signature in rows:
        try:
            VerifyKey(author[6:]).verify(data, signature)
            good += 1
        except BadSignatureError:
            continue
    return good


def check(batches: Iterator[Any]) -> Iterator[Any]:
    """Verify the signature of every row; give back how many were good."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute as pc  # noqa: PLC0415

    for batch in batches:
        data = pc.coalesce(batch.column("payload"), batch.column("value"))
        columns = [batch.column("author"), data, batch.column("proof")]
        rows = zip(*[each.to_pylist() for each in columns], strict=True)
        yield pa.RecordBatch.from_pydict({"good": [count_good(rows)]})


def signed_rows(home: Path, count: int) -> list[Row]:
    """What the floor verifies: the same rows, read beforehand."""
    with EventLog(home, read_only=True) as log:
        events = (event for chunk in log.chunks(TOPIC) for event in chunk)
        return [(each.author, each.data, each.proof) for each in islice(events, count)]


class Floor:
    """Processes that do nothing but verify signatures."""

    def __init__(self, rows: list[Row], cores: int) -> None:
        self._pool = ProcessPoolExecutor(cores, mp_context=get_context("spawn"))
        self._shares = [rows[number::cores] for number in range(cores)]
        self._count = len(rows)
        self.rate()

    def rate(self) -> float:
        """Signatures per second."""
        found: list[int] = []
        taken = timed(lambda: found.extend(self._pool.map(count_good, self._shares)))
        assert sum(found) == self._count, "a signature is not good"
        return self._count / taken

    def close(self) -> None:
        self._pool.shutdown()


def verify(spark: Any, home: Path, count: int, cores: int) -> float:
    """Rows per second whose hash and signature are verified by so many tasks at a time."""
    frame = (
        spark.read.format("rumormill")
        .option("home", str(home))
        .option("subscribe", TOPIC)
        .option("includeProof", "true")
        .option("endingOffsets", json.dumps({TOPIC: count}))
        .option("minPartitions", cores)
        .load()
    )
    found = []
    taken = timed(lambda: found.extend(frame.mapInArrow(check, "good long").collect()))
    assert sum(row.good for row in found) == count, "a signature is not good"
    return count / taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--authors", type=int, default=100)
    parser.add_argument("--keyed", action="store_true", help="events with keys")
    parser.add_argument("--quick", action="store_true", help="100,000 events, 2 rounds")
    parser.add_argument("--brief", action="store_true", help="Java as for work of seconds")
    parser.add_argument("--folder", default=None, help="a directory on the disk to measure")
    options = parser.parse_args()
    if options.quick:
        options.events, options.rounds = 100_000, 2
    folder = Path(tempfile.mkdtemp(prefix="bench-spark-", dir=options.folder))
    try:
        home = folder / "home"
        print(f"{options.events:,} events of {options.authors} authors, {options.rounds} rounds,"
              " local[2]", flush=True)  # fmt: skip
        make_store(home, options.events, options.authors, keyed=options.keyed)
        settings = {"spark.local.dir": str(folder / "local")}
        spark = session("local[2]", brief=options.brief, settings=settings)
        for way, rate in compare(spark, home, folder, options.events, options.rounds).items():
            print(f"{way:14} {rate:12,.0f} rows/s")
        signed = min(SIGNED, options.events)
        verify(spark, home, signed, 2)
        rows = signed_rows(home, signed)
        floors = {cores: Floor(rows, cores) for cores in (1, 2)}
        rates: dict[tuple[str, int], list[float]] = {}
        for _ in range(min(3, options.rounds)):
            for cores, floor in floors.items():
                rates.setdefault(("spark", cores), []).append(verify(spark, home, signed, cores))
                rates.setdefault(("floor", cores), []).append(floor.rate())
        for floor in floors.values():
            floor.close()
        for way, what in (("spark", "hash + signature in Spark"), ("floor", "signatures alone")):
            one, two = (statistics.median(rates[way, cores]) for cores in (1, 2))
            print(f"{what}: {one:,.0f} rows/s on one core, {two:,.0f} on two:"
                  f" {two / one:.2f} x")  # fmt: skip
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
