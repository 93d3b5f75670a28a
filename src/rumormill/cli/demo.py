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
import tempfile
import time
import webbrowser
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rumormill.cli import show
from rumormill.cli.dashboard import started
from rumormill.cli.grammar import DATA_LOSS, FAILURE, USAGE, CommandError
from rumormill.cli.milling import started_spark, teller, write_report
from rumormill.cli.numbers import whole
from rumormill.cli.session import run_async
from rumormill.core.errors import ConfigError, LocalError
from rumormill.daemon.endpoint import DASHBOARD_ENDPOINT
from rumormill.daemon.homes import HomeSource, HomesSource
from rumormill.dashboard.server import Dashboard
from rumormill.demo.run import RunSummary, demonstrate
from rumormill.demo.script import Script, chosen, write_script

if TYPE_CHECKING:
    from rumormill.demo.lake import Mill

_SPARK_SETTINGS: Final = {"spark.app.name": "rumormill demo", "spark.driver.memory": "768m"}
"""The memory is our choice: enough for the traces of a run, and all fits in two gibibytes."""

NO_SPARK: Final = (
    "Spark is not installed, so there is no stream and no report:"
    ' run pip install "rumormill[spark]" for both'
)


def run_demo(options: argparse.Namespace) -> int:
    """Demonstrate, and print what came of it."""
    names = [name.strip() for text in options.protocol or () for name in text.split(",")]
    nodes, events = whole("--nodes", options.nodes) or 0, whole("--events", options.events) or 0
    seed = whole("--seed", options.seed, least=0) or 0
    try:
        participants = chosen(names)
        script = write_script(nodes, events, seed)
    except ConfigError as error:
        raise CommandError(f"--{error}", USAGE) from None
    output = Path(options.output)
    if not output.parent.is_dir() or output.is_dir():
        raise CommandError(f"--output: {output} cannot be written", USAGE)
    begin = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="rumormill-"))
    keep, report = options.keep, None
    try:
        with show.progress_bar(len(participants)) as bars:
            screen = Screen(bars)
            with _spark(screen, folder, wanted=not options.no_spark) as mill:
                work = demonstrate(participants, script, folder, screen, mill)
                runs = run_until_signal(_shown(work, screen, opens=options.open))
                if mill is not None and mill.lake.parts():
                    write_report(mill.lake, output, f"{script.nodes} nodes, {len(runs)} protocols")
                    report = str(output)
        failed = any(run.error for run in runs)
        keep |= failed
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        told = _as_json(runs, script)
        told |= {"report": report, "kept": str(folder) if keep else None}
        print(json.dumps(told | {"seconds": round(time.monotonic() - begin, 1)}))
    else:
        _show_table(runs, script)
        if report:
            print(f"report: {report}")
        if keep:
            print(f"homes, traces and the lake: {folder}")
    if any(run.lost for run in runs):
        return DATA_LOSS
    return FAILURE if failed else 0


def run_until_signal(work: Coroutine[Any, Any, list[RunSummary]]) -> list[RunSummary]:
    """Run the demonstration; SIGINT and SIGTERM end it in order, and are raised afterwards."""

    async def main() -> list[RunSummary]:
        task = asyncio.ensure_future(work)
        received: list[int] = []

        def stop(number: int) -> None:
            if not received:
                received.append(number)
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if received:
            raise KeyboardInterrupt
        return task.result()

    return run_async(main())


async def _shown(
    work: Coroutine[Any, Any, list[RunSummary]], screen: "Screen", *, opens: bool
) -> list[RunSummary]:
    """Demonstrate with a dashboard beside it; where none can be served, without."""
    screen.source = HomesSource({}, notes_absence=False)
    door = Dashboard(screen.source, lambda _: None)
    try:
        try:
            url = await started(door, DASHBOARD_ENDPOINT)
        except LocalError as error:
            screen.say(f"no dashboard: {error}")
        else:
            screen.say(f"dashboard: {url}")
            if opens:
                webbrowser.open(url)
        return await work
    finally:
        await door.close()


@contextlib.contextmanager
def _spark(screen: "Screen", folder: Path, *, wanted: bool) -> Iterator["Mill | None"]:
    if not wanted or importlib.util.find_spec("pyspark") is None:
        if wanted:
            screen.say(NO_SPARK)
        yield None
        return
    from rumormill.demo.lake import Mill

    screen.say("starting Spark")
    settings = _SPARK_SETTINGS | {
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    # What fails is raised here, and said once; Spark's own log would repeat it.
    with started_spark("local[2]", settings, brief=True, log_level="OFF") as spark:
        yield Mill(spark, folder)


class Screen:
    """Tells on stderr what happens; on a terminal, with a bar for each run."""

    def __init__(self, bars: Callable[[str], show.Advance]) -> None:
        self.say = teller()
        self._bars = bars
        self._advance: dict[str, show.Advance] = {}
        self.source: HomesSource | None = None

    def begin(self, label: str, homes: Mapping[str, Path]) -> None:
        """Show the nodes of a run on the dashboard."""
        if self.source is not None:
            self.source.turn_to({name: HomeSource(home) for name, home in homes.items()}, label)

    def mark(self, kind: str, node: str, text: str) -> None:
        """Mark a kill or a return there."""
        if self.source is not None:
            self.source.mark(kind, node, text)

    def advance(self, label: str, part: float) -> None:
        """Move the bar of a run."""
        if label not in self._advance:
            self._advance[label] = self._bars(f"{label}: publishing")
        self._advance[label](part)


def _as_json(runs: Sequence[RunSummary], script: Script) -> dict[str, Any]:
    told: list[dict[str, Any]] = []
    for run in runs:
        result: dict[str, Any] = msgspec.to_builtins(run.result) or {}
        told.append(
            {
                "protocol": run.participant.label,
                "preset": run.participant.preset,
                "error": run.error or None,
                "logs": run.logs,
                **{key: value for key, value in result.items() if key != "traces"},
                "spark": msgspec.to_builtins(run.streamed),
                "figures": msgspec.to_builtins(run.figures),
            }
        )
    events = len(script.publications)
    return {"nodes": script.nodes, "events": events, "seed": script.seed, "runs": told}


def _show_table(runs: Sequence[RunSummary], script: Script) -> None:
    columns = {}
    for run in runs:
        if run.result is not None:
            preset = "" if run.participant.preset == "default" else f":{run.participant.preset}"
            columns[f"{run.participant.label}{preset}"] = dict(_rows(run))
    if columns:
        title = f"{script.nodes} nodes, {len(script.publications)} comments"
        show.print_table(title, columns, show.MISSING)
    for run in runs:
        if run.error:
            print(f"{run.participant.label} failed: {run.error}; its logs are in {run.logs}")
    lost = sum(run.lost for run in runs)
    print(
        f"{lost} acknowledged events are lost" if lost else "nothing that was acknowledged is lost"
    )
    print(f"seed: {script.seed}")


def _rows(run: RunSummary) -> Iterator[tuple[str, str]]:
    result, figures, streamed = run.result, run.figures, run.streamed
    assert result is not None
    found = result.audit
    yield "acknowledged", f"{found.acknowledged:,}"
    yield "without a receipt", f"{result.unacknowledged:,}"
    yield "acknowledged and lost", f"{found.lost:,}"
    yield "killed with -9 and back", f"{result.returned} of {result.killed}"
    yield "in the logs in the end", show.as_percent(found.kept / found.owed if found.owed else None)
    yield "missed while killed", f"{found.missed_while_down:,}"
    yield "missing otherwise", f"{found.missing:,}"
    if figures is not None:
        yield "delivery ratio", show.as_percent(figures.delivery_ratio)
        yield "complete in the end", show.as_percent(figures.complete_ratio)
        yield "messages per delivery", show.as_number(figures.messages_per_delivery)
        yield "duplicates per delivery", show.as_number(figures.duplicates_per_delivery)
        yield "latency p50", show.as_seconds(figures.latency_p50)
        yield "latency p99", show.as_seconds(figures.latency_p99)
        yield "data sent", show.as_size(figures.data_bytes)
        yield "control sent", show.as_size(figures.control_bytes)
    if streamed is not None:
        yield "rows in Spark", f"{streamed.rows:,} of {streamed.events:,}"
        yield "with a valid signature", f"{streamed.valid:,}"
    yield "took", show.as_seconds(result.seconds)
