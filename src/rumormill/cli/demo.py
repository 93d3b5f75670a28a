"""`rumormill demo`: from what was typed to a demonstration, a table and a page.

Ctrl-C and SIGTERM end it in order: the first cancels the work, which kills every process and
removes every file on its way out; later ones change nothing.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from rumormill.cli.grammar import DATA_LOSS, FAILURE, USAGE, CommandError
from rumormill.cli.milling import one_sentence, quiet_launcher, write_report
from rumormill.cli.numbers import whole
from rumormill.cli.session import run_async
from rumormill.cli.show import as_count, as_number, as_percent, as_seconds, as_size
from rumormill.core.errors import ConfigError
from rumormill.demo.demonstration import RunSummary, demonstrate
from rumormill.demo.script import Script, chosen, write_script

if TYPE_CHECKING:
    from rumormill.demo.lake import Mill

NODES: Final = 10
EVENTS: Final = 240
"""Our choice: twelve seconds of publishing for each protocol."""
SEED: Final = 1

_SPARK_SETTINGS: Final = {"spark.driver.memory": "768m"}
"""Our choice: enough for the traces of a run, and all fits in two gibibytes."""

NO_SPARK: Final = (
    "Spark is not installed, so there is no stream and no report:"
    ' run pip install "rumormill[spark]" for both'
)


def run_demo(options: argparse.Namespace) -> int:
    """Demonstrate, and print what came of it."""
    try:
        participants = chosen(_names(options.protocol))
        nodes = whole("--nodes", options.nodes) or NODES
        events = whole("--events", options.events) or EVENTS
        seed = SEED if options.seed is None else whole("--seed", options.seed, least=0)
        assert seed is not None
        script = write_script(nodes, events, seed)
    except ConfigError as error:
        raise CommandError(f"--{error}", USAGE) from None
    output = Path(options.output)
    if not output.parent.is_dir() or output.is_dir():
        raise CommandError(f"--output: {output} cannot be written", USAGE)
    with one_sentence(), _screen() as screen, _folder(keep=options.keep) as place:
        begin = time.monotonic()
        with _spark(screen, place.path, wanted=not options.no_spark) as mill:
            runs = run_until_signal(demonstrate(participants, script, place.path, screen, mill))
            report = None
            if mill is not None and mill.lake.parts():
                write_report(mill.lake, output, f"{script.nodes} nodes, {len(runs)} protocols")
                report = str(output)
        failed = [run for run in runs if run.error]
        place.keep |= bool(failed)
        told = _as_json(runs, script, report, place.path if place.keep else None)
        told["seconds"] = round(time.monotonic() - begin, 1)
    if options.json:
        print(json.dumps(told))
    else:
        _show(runs, script, told)
    if any(run.lost for run in runs):
        return DATA_LOSS
    return FAILURE if failed else 0


def _names(typed: Sequence[str]) -> list[str]:
    """Protocols may be repeated, or separated by commas."""
    return [name.strip() for text in typed for name in text.split(",")]


def run_until_signal(work: Any) -> list[RunSummary]:
    """Run the demonstration; SIGINT and SIGTERM end it in order, and are raised afterwards."""
    found: list[RunSummary] = []
    received: list[int] = []

    async def main() -> int:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            if not received:
                received.append(number)
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        with contextlib.suppress(asyncio.CancelledError):
            found.extend(await task)
        return 0

    run_async(main())
    if received:
        raise KeyboardInterrupt
    return found


class Place:
    """Where homes, traces and the lake are, and whether they stay."""

    def __init__(self, path: Path, *, keep: bool) -> None:
        self.path = path
        self.keep = keep


@contextlib.contextmanager
def _folder(*, keep: bool) -> Iterator[Place]:
    """A folder that is removed in the end, unless it is to be kept."""
    place = Place(Path(tempfile.mkdtemp(prefix="rumormill-")), keep=keep)
    try:
        yield place
    except BaseException:
        place.keep = keep
        raise
    finally:
        if not place.keep:
            shutil.rmtree(place.path, ignore_errors=True)


@contextlib.contextmanager
def _spark(screen: "Screen", folder: Path, *, wanted: bool) -> Iterator["Mill | None"]:
    """Spark, where it is wanted and there."""
    if not wanted or importlib.util.find_spec("pyspark") is None:
        if wanted:
            screen.say(NO_SPARK)
        yield None
        return
    from rumormill.demo.lake import Mill
    from rumormill.spark import session

    screen.say("starting Spark")
    folders = {
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    with quiet_launcher():
        # What fails is raised here, and said once; Spark's own log would repeat it.
        started = session(
            "local[2]",
            app="rumormill demo",
            brief=True,
            settings=_SPARK_SETTINGS | folders,
            log_level="OFF",
        )
    try:
        yield Mill(started, folder)
    finally:
        started.stop()


class Screen:
    """Tells on stderr what happens; on a terminal, with a bar for the run under way."""

    def __init__(self, bar: Progress | None) -> None:
        self._begin = time.monotonic()
        self._bar = bar
        self._tasks: dict[str, Any] = {}

    def say(self, text: str) -> None:
        """Print a line."""
        line = f"{time.monotonic() - self._begin:6.1f} s  {text}"
        if self._bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(line, highlight=False, markup=False)

    def advance(self, label: str, part: float) -> None:
        """Move the bar of a run."""
        if self._bar is None:
            return
        if label not in self._tasks:
            for task in self._tasks.values():
                self._bar.update(task, visible=False)
            self._tasks[label] = self._bar.add_task(label, total=1.0)
        self._bar.update(self._tasks[label], completed=part, visible=part < 1.0, refresh=True)


@contextlib.contextmanager
def _screen() -> Iterator[Screen]:
    if not sys.stderr.isatty():
        yield Screen(None)
        return
    bar = Progress(
        TextColumn("          {task.description}: publishing"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
    )
    with bar:
        yield Screen(bar)


def _as_json(
    runs: Sequence[RunSummary], script: Script, report: str | None, kept: Path | None
) -> dict[str, Any]:
    return {
        "nodes": script.nodes,
        "events": len(script.publications),
        "seed": script.seed,
        "runs": [
            {
                "protocol": run.participant.label,
                "preset": run.participant.preset,
                "error": run.error or None,
                "logs": run.logs,
                **_without_traces(run),
                "spark": msgspec.to_builtins(run.streamed),
                "figures": msgspec.to_builtins(run.figures),
            }
            for run in runs
        ],
        "report": report,
        "kept": None if kept is None else str(kept),
    }


def _without_traces(run: RunSummary) -> dict[str, Any]:
    if run.result is None:
        return {}
    found: dict[str, Any] = msgspec.to_builtins(run.result)
    return {key: value for key, value in found.items() if key not in ("label", "traces")}


def _show(runs: Sequence[RunSummary], script: Script, told: dict[str, Any]) -> None:
    """Print the comparison, and where everything is."""
    done = [run for run in runs if run.result is not None]
    if done:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        title = f"{script.nodes} nodes, {len(script.publications)} comments"
        table.add_column(title, style="bold", no_wrap=True)
        columns = []
        for run in done:
            preset = "" if run.participant.preset == "default" else f":{run.participant.preset}"
            table.add_column(f"{run.participant.label}{preset}", justify="right")
            columns.append(dict(_rows(run)))
        for name in columns[0]:
            table.add_row(name, *(column[name] for column in columns))
        console.print(table)
    for run in runs:
        if run.error:
            print(f"{run.participant.label} failed: {run.error}; its logs are in {run.logs}")
    lost = sum(run.lost for run in runs)
    print(
        f"{lost} acknowledged events are lost" if lost else "nothing that was acknowledged is lost"
    )
    print(f"seed: {script.seed}")
    if told["report"]:
        print(f"report: {told['report']}")
    if told["kept"]:
        print(f"homes, traces and the lake: {told['kept']}")


def _rows(run: RunSummary) -> Iterator[tuple[str, str]]:
    result, figures, streamed = run.result, run.figures, run.streamed
    assert result is not None
    found = result.audit
    yield "acknowledged", as_count(found.acknowledged)
    yield "without a receipt", as_count(result.unacknowledged)
    yield "acknowledged and lost", as_count(found.lost)
    yield "killed with -9 and back", f"{result.returned} of {result.killed}"
    yield "in the logs in the end", as_percent(found.kept / found.owed if found.owed else None)
    yield "missed while killed", as_count(found.missed_while_down)
    yield "missing otherwise", as_count(found.missing)
    if figures is not None:
        yield "delivery ratio", as_percent(figures.delivery_ratio)
        yield "messages per delivery", as_number(figures.messages_per_delivery)
        yield "duplicates per delivery", as_number(figures.duplicates_per_delivery)
        yield "latency p50", as_seconds(figures.latency_p50)
        yield "latency p99", as_seconds(figures.latency_p99)
        yield "data sent", as_size(figures.data_bytes)
        yield "control sent", as_size(figures.control_bytes)
    if streamed is not None:
        yield "rows in Spark", f"{streamed.rows:,} of {streamed.events:,}"
        yield "with a valid signature", as_count(streamed.valid)
    yield "took", as_seconds(result.seconds)
