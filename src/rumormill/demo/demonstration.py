"""The whole demonstration: one run after another, then the comparison.

The rule: what goes wrong in one run is said, with the place of its logs, and the others run all the
same. No run leaves a process behind, however it ends.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rumormill.core.errors import RumormillError
from rumormill.demo.figures import Figures, of_lake, of_traces
from rumormill.demo.performance import Performance, Played, Watcher, alone
from rumormill.demo.script import Contender, Script

if TYPE_CHECKING:
    from rumormill.demo.lake import Mill, Streamed


class Run(msgspec.Struct):
    """A contender's run: what became of it, or why it failed."""

    contender: Contender
    logs: str
    """The folder with the logs of its processes."""
    played: Played | None = None
    streamed: "Streamed | None" = None
    figures: Figures | None = None
    error: str = ""

    @property
    def lost(self) -> int:
        """Acknowledged events that are gone."""
        return 0 if self.played is None else self.played.audit.lost


async def demonstrate(
    contenders: Sequence[Contender],
    script: Script,
    folder: Path,
    watcher: Watcher,
    mill: "Mill | None" = None,
) -> list[Run]:
    """Run every contender; with a mill, Spark follows each of them and makes the figures."""
    if mill is not None:
        await mill.warm_up()
    runs = [await _run(each, script, folder, watcher, mill) for each in contenders]
    played = [run for run in runs if run.played is not None]
    if mill is None:
        for run in played:
            assert run.played is not None
            run.figures = of_traces(run.played.traces)
    elif played:
        await _mill(played, script, watcher, mill)
    return runs


async def _run(
    contender: Contender, script: Script, folder: Path, watcher: Watcher, mill: "Mill | None"
) -> Run:
    label = contender.label
    run = Run(contender, str(folder / label))
    performance = Performance(contender, script, folder / label, watcher)
    follow = alone if mill is None else partial(mill.follow, label)
    try:
        run.played = await performance.play(follow)
    except Exception as error:  # noqa: BLE001 (the others run all the same)
        run.error = _sentence(error)
        watcher.say(f"{label} failed: {run.error}; its logs are in {run.logs}")
        return run
    if mill is not None:
        run.streamed = mill.streamed[label]
    watcher.say(f"{label}: {_summary(run.played)}")
    return run


async def _mill(runs: Sequence[Run], script: Script, watcher: Watcher, mill: "Mill") -> None:
    from rumormill.demo.lake import run_of  # noqa: PLC0415 (an extra)

    traces = {run.contender: run.played.traces for run in runs if run.played is not None}
    watcher.say("Spark mills the traces of all runs")
    await mill.mill(traces, script, lambda text: watcher.say(f"Spark: {text}"))
    found = of_lake(mill.lake)
    for run in runs:
        run.figures = found.get(run_of(run.contender.label))


def _summary(played: Played) -> str:
    found = played.audit
    kept = f"{found.acknowledged - found.lost} of {found.acknowledged} acknowledged events kept"
    return f"{kept}, {played.returned} of {played.killed} killed nodes back"


def _sentence(error: BaseException) -> str:
    """Why a run failed, in one line; of several reasons, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return text if isinstance(error, RumormillError) else f"{type(error).__name__}: {text}"
