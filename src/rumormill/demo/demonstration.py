"""The whole demonstration: one run after another, then the comparison.

The rules: what goes wrong in one run is said, with the place of its logs, and the others run all
the same; no run leaves a process behind, however it ends. The figures that are compared come out of
the lake that Spark milled, or where there is none out of the traces, with the same definitions
(`docs/trace.md`, Metrics).
"""

import heapq
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rumormill.core.errors import RumormillError
from rumormill.demo.run import Result, Run, Watcher, alone
from rumormill.demo.script import Participant, Script
from rumormill.trace.files import read_trace
from rumormill.trace.metrics import Metrics
from rumormill.trace.recorder import Recorder

if TYPE_CHECKING:
    from rumormill.demo.lake import Mill, Streamed
    from rumormill.spark.lake import Lake


class Figures(msgspec.Struct, frozen=True):
    """How a protocol did."""

    published: int
    expected: int
    delivered: int
    delivery_ratio: float | None
    messages_per_delivery: float | None
    duplicates_per_delivery: float | None
    latency_p50: float | None
    latency_p99: float | None
    data_bytes: int
    control_bytes: int


class RunSummary(msgspec.Struct):
    """A participant's run: what became of it, or why it failed."""

    participant: Participant
    logs: str
    """The folder with the logs of its processes."""
    result: Result | None = None
    streamed: "Streamed | None" = None
    figures: Figures | None = None
    error: str = ""

    @property
    def lost(self) -> int:
        """Acknowledged events that are gone."""
        return 0 if self.result is None else self.result.audit.lost


async def demonstrate(
    participants: Sequence[Participant],
    script: Script,
    folder: Path,
    watcher: Watcher,
    mill: "Mill | None" = None,
) -> list[RunSummary]:
    """Run every participant; with a mill, Spark follows each of them and makes the figures."""
    if mill is not None:
        await mill.warm_up()
    runs = [await _run(each, script, folder, watcher, mill) for each in participants]
    done = [run for run in runs if run.result is not None]
    if mill is None:
        for run in done:
            assert run.result is not None
            run.figures = figures_of_traces(run.result.traces)
    elif done:
        await _mill(done, script, watcher, mill)
    return runs


async def _run(
    participant: Participant, script: Script, folder: Path, watcher: Watcher, mill: "Mill | None"
) -> RunSummary:
    label = participant.label
    run = RunSummary(participant, str(folder / label))
    follow = alone if mill is None else partial(mill.follow, label)
    try:
        run.result = await Run(participant, script, folder / label, watcher).carry_out(follow)
    except Exception as error:  # noqa: BLE001 (the others run all the same)
        run.error = _sentence(error)
        watcher.say(f"{label} failed: {run.error}; its logs are in {run.logs}")
        return run
    if mill is not None:
        run.streamed = mill.streamed[label]
    found = run.result.audit
    kept = f"{found.acknowledged - found.lost} of {found.acknowledged} acknowledged events kept"
    back = f"{run.result.returned} of {run.result.killed} killed nodes back"
    watcher.say(f"{label}: {kept}, {back}")
    return run


async def _mill(runs: Sequence[RunSummary], script: Script, watcher: Watcher, mill: "Mill") -> None:
    from rumormill.demo.lake import run_of  # noqa: PLC0415 (an extra)

    traces = {run.participant: run.result.traces for run in runs if run.result is not None}
    watcher.say("Spark mills the traces of all runs")
    await mill.mill(traces, script, lambda text: watcher.say(f"Spark: {text}"))
    found = figures_of_lake(mill.lake)
    for run in runs:
        run.figures = found.get(run_of(run.participant.label))


def figures_of_traces(paths: Sequence[str]) -> Figures:
    """The figures of one network, whose traces are merged by their clocks."""
    metrics = Metrics()
    recorder = Recorder([metrics])
    for entry in heapq.merge(*[read_trace(path) for path in paths], key=lambda entry: entry[0]):
        recorder.record(entry)
        recorder.maybe_flush()
    recorder.close()
    found = metrics.summary()
    found["expected"] = found["expected_deliveries"]
    return _figures(found, found["data_bytes"], found["control_bytes"])


def figures_of_lake(lake: "Lake") -> dict[str, Figures]:
    """The figures of all runs of a lake, by run."""
    spent = {(row["run"], row["kind"]): row["bytes"] or 0 for row in lake.rows("overhead")}
    return {
        row["run"]: _figures(
            row, spent.get((row["run"], "message"), 0), spent.get((row["run"], "control"), 0)
        )
        for row in lake.rows("delivery_quality")
        if row["scope"] == "run"
    }


def _figures(found: dict[str, Any], data: int, control: int) -> Figures:
    named = {name: found[name] for name in Figures.__struct_fields__ if name in found}
    return Figures(**{**named, "data_bytes": data, "control_bytes": control})


def _sentence(error: BaseException) -> str:
    """Why a run failed, in one line; of several reasons, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return text if isinstance(error, RumormillError) else f"{type(error).__name__}: {text}"
