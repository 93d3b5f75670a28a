"""`rumormill mill`, `sweep` and `report`: from what was typed to tables and pages.

The rule: whatever can be checked without Spark is checked before Spark starts.
"""

import argparse
import contextlib
import json
import logging
import os
import platform
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rumormill.cli.numbers import pairs
from rumormill.core.errors import ConfigError, LocalError
from rumormill.sim.units import parse_duration
from rumormill.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rumormill.spark.bronze import Source
    from rumormill.spark.lake import Lake


def run_mill(options: argparse.Namespace) -> int:
    """Mill a source into a lake."""
    from rumormill.spark.lake import Lake, check_name

    source = _source(options)
    check_name(source.name)
    window = _duration(options.window, "--window")
    interval = _duration(options.interval, "--interval")
    if options.once and not options.stream:
        raise ConfigError("--once: goes with --stream")
    if options.merge and options.stream:
        raise ConfigError("--merge: a stream makes each file a run; leave one of them out")
    if options.stream and Path(source.place).is_file():
        raise ConfigError("--stream: name a directory to which trace files are added")
    if options.stream and options.delta is not None:
        raise ConfigError("--delta: a stream makes no Delta tables; mill without --stream")
    write_delta = _delta(options)
    lake = Lake.create(options.to)
    tell = teller()
    with _spark(options, tell) as spark:
        from rumormill.spark.mill import mill
        from rumormill.spark.streaming import Stream

        settings: dict[str, Any] = {"protocol": options.protocol, "window": window}
        if options.stream:
            stream = Stream(spark, source, lake, tell=tell, **settings)
            _follow(lambda: stream.start(once=options.once, interval=interval))
        else:
            mill(spark, source, lake, tell=tell, **settings)
    write_delta(lake, source.name)
    _conclude(lake, source.name, options)
    return 0


def _delta(options: argparse.Namespace) -> Callable[["Lake", str], object]:
    """What writes Delta tables if they are asked for; that it can is seen before Spark starts."""
    from rumormill.spark.delta import delta_library, write_delta

    if options.delta is None:
        return lambda *_: None
    delta_library()
    return lambda lake, part: write_delta(lake, part, Path(options.delta).expanduser())


def _source(options: argparse.Namespace) -> "Source":
    """What is to be milled: a node's door, or what a path names."""
    from rumormill.spark.bronze import find_node, find_source, is_address

    if not is_address(options.source):
        for flag in ("token_file", "tls_roots"):
            if getattr(options, flag) is not None:
                name = flag.replace("_", "-")
                raise ConfigError(f"--{name}: goes with the HOST:PORT of a node")
        return find_source(options.source, name=options.name, merge=options.merge)
    if options.merge:
        raise ConfigError("--merge: is for a directory of trace files")
    return find_node(
        options.source,
        name=options.name,
        token_file=options.token_file,
        tls_roots=options.tls_roots,
    )


def _follow(start: Callable[[], Any]) -> None:
    """Start a stream and wait for its end, by itself, by Ctrl-C or by SIGTERM.

    Neither must strike inside a call to Spark, whose connection it would break: it is noted, and
    the stream stopped afterwards.
    """
    from rumormill.spark.mill import plain

    asked = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda *_: asked.set()) for each in numbers]
    try:
        query = start()
        while query.isActive and not asked.wait(0.2):
            pass
        error = None if asked.is_set() else query.exception()
        query.stop()
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if asked.is_set():
        raise KeyboardInterrupt
    if error is not None:
        raise plain(error) from error


def run_sweep(options: argparse.Namespace) -> int:
    """Simulate a grid on Spark."""
    from rumormill.spark.sweep import Grid

    changes = {key.strip(): value.strip() for key, value in pairs("--with", options.changes)}
    grid = Grid.load(options.grid, changes)
    runs = [run.name for run in grid.runs()]
    if options.list:
        print(json.dumps({"sweep": grid.name, "runs": runs}) if options.json else "\n".join(runs))
        return 0
    from rumormill.spark.lake import Lake
    from rumormill.spark.sweep import sweep

    window = _duration(options.window, "--window")
    write_delta = _delta(options)
    lake = Lake.create(options.to)
    tell = teller()
    with _spark(options, tell) as spark:
        sweep(spark, grid, lake, window=window, tell=tell)
    write_delta(lake, grid.name)
    if options.report is not None:
        write_report(lake, Path(options.report), f"Sweep {grid.name}")
    _conclude(lake, grid.name, options)
    return 0


def run_report(options: argparse.Namespace) -> int:
    """Write a report of a lake."""
    from rumormill.spark.lake import Lake
    from rumormill.spark.report import collect

    lake = Lake.existing(options.lake)
    if options.json:
        print(json.dumps(collect(lake)))
        if options.output is None:
            return 0
    output = Path(options.output or "report.html")
    write_report(lake, output, options.title or f"Report of {lake.path.name}")
    if not options.json:
        print(output)
    return 0


def write_report(lake: "Lake", path: Path, title: str) -> None:
    """Write the page of a lake, whole or not at all."""
    from rumormill.spark.page import page
    from rumormill.spark.report import collect

    text = page(collect(lake), title, _made())
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _made() -> dict[str, str]:
    """When, by which command and with what a page is made."""
    versions = [f"rumormill {__version__}", f"Python {platform.python_version()}"]
    for name in ("pyspark", "pyarrow"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["rumormill", *sys.argv[1:]]),
        "versions": ", ".join(versions),
    }


def _conclude(lake: "Lake", part: str, options: argparse.Namespace) -> None:
    if part not in lake.parts():  # a stream that has found nothing yet
        raise LocalError(f"there is nothing in the source yet, and so no part {part} in the lake")
    rows = [row for row in lake.rows("delivery_quality") if row["scope"] == "run"]
    mine = [row for row in rows if row["run"] == part or row["run"].startswith(f"{part}/")]
    if options.json:
        print(json.dumps({"lake": str(lake.path), "part": part, "runs": mine}))
        return
    for row in sorted(mine, key=lambda row: str(row["run"])):
        share = "–" if row["delivery_ratio"] is None else f"{row['delivery_ratio']:.2%}"
        late = "–" if row["latency_p99"] is None else f"{row['latency_p99']:.3f} s"
        made = f"{row['published']} of {row['planned']} published"
        print(f"{row['run']}: {row['protocol']}, {made}, {share} delivered, p99 {late}")
    print(f"{lake.path}/parts/{part}")


def _duration(text: str, flag: str) -> float:
    try:
        found = parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error}") from None
    if found < 1e-6:
        raise ConfigError(f"{flag}: must be more than 0s")
    return found


def teller() -> Callable[[str], None]:
    """Tell what goes on, with the time, on stderr."""
    begin = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {text}", file=sys.stderr, flush=True)

    return tell


@contextlib.contextmanager
def _spark(options: argparse.Namespace, tell: Callable[[str], None]) -> Iterator["SparkSession"]:
    settings = dict(pairs("--conf", options.conf, start="spark."))
    # What Spark's connection logs when Ctrl-C breaks it is of no use to anybody.
    logging.getLogger().addHandler(logging.NullHandler())
    tell(f"starting Spark ({options.master})")
    with started_spark(options.master, settings) as spark:
        yield spark


@contextlib.contextmanager
def started_spark(
    master: str, settings: Mapping[str, str], *, brief: bool = False, log_level: str = "ERROR"
) -> Iterator["SparkSession"]:
    """Spark, until the end of the block, and of its Java; SIGTERM ends the block as Ctrl-C does."""
    from rumormill.spark.java_process import end

    before = [(each, signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield _start_spark(master, settings, brief, log_level)
    finally:
        end()
        for number, handler in before:  # Spark has put its own in place of the first
            signal.signal(number, handler)


def _start_spark(
    master: str, settings: Mapping[str, str], brief: bool, log_level: str
) -> "SparkSession":
    """Start it; what Java says meanwhile is kept off the screen, unless it does not start."""
    from rumormill.spark import session

    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            return session(master, brief=brief, settings=settings, log_level=log_level)
        except LocalError:
            raise
        except Exception as error:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else str(error)
            raise LocalError(f"Spark does not start: {reason}") from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
