"""The whole demonstration: one run after another, then the comparison.

In a run a network is started, publishes the script's events, loses nodes and gets them back. Every
node has a queue of what it is to publish and works it off in order, one event at a time, each when
its receipt for the one before has come. The queue of a killed node waits for its return. An event
that was under way in the moment of the kill has no receipt: it is counted and not sent again.

When a run is over, what the logs hold is compared with what was promised. A receipt promises that
the event is in its publisher's log, whatever happens to the process. That is checked event by
event: the event of the receipt's offset has the receipt's id. What subscribers have is counted as
well: who was killed has missed what was published meanwhile, and some protocols bring that back and
some do not. The rule: everything that is missing is counted, none of it under another name.

What goes wrong in one run is said, with the place of its logs, and the others run all the same; no
run leaves a process behind, however it ends. The figures that are compared come out of the lake
that Spark milled, or where there is none out of the traces, with the same definitions
(`docs/trace.md`, Metrics).
"""

import asyncio
import contextlib
import heapq
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from rumormill.core.errors import LocalError, RumormillError
from rumormill.demo.network import Network, stored
from rumormill.demo.script import Participant, Script
from rumormill.log.event_log import EventLog
from rumormill.sim.workload import PlannedPublish
from rumormill.trace.entries import Recorder
from rumormill.trace.files import read_trace
from rumormill.trace.metrics import Metrics

if TYPE_CHECKING:
    from rumormill.demo.lake import Mill, Streamed
    from rumormill.spark.lake import Lake

SETTLE_SECONDS: Final = 30.0
"""How long nodes may take at most to get what is missing. Our choice."""

_LOOK: Final = 0.5


class Watcher(Protocol):
    """Who is told how things go."""

    def say(self, text: str) -> None:
        """Something has happened."""

    def advance(self, label: str, part: float) -> None:
        """So much of a run is done, from 0 to 1."""

    def begin(self, label: str, homes: Mapping[str, Path]) -> None:
        """The nodes of a run are there, in these homes."""

    def mark(self, kind: str, node: str, text: str) -> None:
        """A node was killed, or is back."""


class Acknowledged(msgspec.Struct, frozen=True):
    """A receipt: who published what, where it was kept, and when that was asked for."""

    publisher: int
    topic: str
    offset: int
    id: bytes
    asked_at: float


class Absence(msgspec.Struct):
    """When a node was killed, and when it had joined again."""

    node: int
    killed_at: float
    back_at: float | None = None


class Audit(msgspec.Struct, frozen=True):
    """What was found."""

    acknowledged: int
    lost: int
    """Acknowledged events that are not in their publisher's log."""
    owed: int
    """Pairs of an acknowledged event and a subscriber, whether or not it was up."""
    kept: int
    """Of those, the ones in the subscriber's log."""
    missed_while_down: int
    """Not there, and published between the subscriber's death and its return."""
    missing: int
    """Not there, without that excuse."""


class Result(msgspec.Struct, frozen=True):
    """What became of a run."""

    seconds: float
    killed: int
    returned: int
    unacknowledged: int
    """Publications that were under way when their node was killed."""
    audit: Audit
    traces: list[str]
    noted: dict[str, Any]
    """What its traces do not say: who was killed and when, what topics are called, what was
    acknowledged and lost."""


Follow = Callable[[Network], contextlib.AbstractAsyncContextManager[None]]
"""What goes on beside a run while its network lives."""


@contextlib.asynccontextmanager
async def alone(_: Network) -> AsyncIterator[None]:
    """Nobody follows."""
    yield


class Run:
    """The state of one run."""

    def __init__(
        self, participant: Participant, script: Script, folder: Path, watcher: Watcher
    ) -> None:
        self._label = participant.label
        self._script = script
        self._watcher = watcher
        self.network = Network(participant, script, folder)
        self._queues: list[asyncio.Queue[PlannedPublish]] = [
            asyncio.Queue() for _ in range(script.nodes)
        ]
        self._up = [asyncio.Event() for _ in range(script.nodes)]
        self._acknowledged: list[Acknowledged] = []
        self._unacknowledged = 0
        self._absences: list[Absence] = []

    async def carry_out(self, follow: Follow = alone) -> Result:
        """Do it all; what goes wrong is raised when every process is gone."""
        begin = time.monotonic()
        say = self._watcher.say
        count = self._script.nodes
        say(f"{self._label}: starting {count} nodes, each in a process of its own")
        async with self.network.running(), follow(self.network):
            homes = {each.name: each.home for each in self.network.daemons}
            self._watcher.begin(self._label, homes)
            await self.network.ready()
            say(f"{self._label}: everybody has found somebody; publishing")
            await self._publish()
            await self._settle()
        traces = await asyncio.to_thread(self.network.finished_traces)
        found = await asyncio.to_thread(
            audit,
            self._script,
            self.network.names,
            self.network.homes,
            self._acknowledged,
            self._absences,
        )
        return Result(
            time.monotonic() - begin,
            len(self._absences),
            sum(each.back_at is not None for each in self._absences),
            self._unacknowledged,
            found,
            [str(each) for each in traces],
            {
                "faults": [
                    (each.killed_at, each.back_at, f"n{each.node} killed")
                    for each in self._absences
                ],
                "topic_names": self.network.said_of,
                "acknowledged": found.acknowledged,
                "lost": found.lost,
            },
        )

    async def _publish(self) -> None:
        """Let everybody publish; the first failure ends all of it."""
        for event in self._up:
            event.set()
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(self._work_off(n)) for n in range(self._script.nodes)]
            await self._follow_script(tasks)
            for queue in self._queues:
                await queue.join()
            for worker in workers:
                worker.cancel()

    async def _follow_script(self, tasks: asyncio.TaskGroup) -> None:
        """Hand out publications when their time has come; kill and bring back in between."""
        returns = []
        begin = time.monotonic()
        for number, event in enumerate(self._script.publications):
            await asyncio.sleep(max(0.0, begin + event.at - time.monotonic()))
            for kill in self._script.kills:
                if kill.after == number:
                    await self._kill(kill.node)
                if kill.back_after == number:
                    returns.append(tasks.create_task(self._bring_back(kill.node)))
            self._queues[event.publisher].put_nowait(event)
            self._watcher.advance(self._label, (number + 1) / len(self._script.publications))
        await asyncio.gather(*returns)

    async def _kill(self, node: int) -> None:
        self._up[node].clear()
        self._absences.append(Absence(node, time.time()))
        await self.network.kill(node)
        self._watcher.mark("kill", f"n{node}", f"kill -9 n{node}")
        self._watcher.say(f"{self._label}: kill -9 n{node}")

    async def _bring_back(self, node: int) -> None:
        await self.network.restart(node)
        for each in self._absences:
            if each.node == node:
                each.back_at = time.time()
        self._up[node].set()
        self._watcher.mark("start", f"n{node}", f"n{node} is back")
        self._watcher.say(f"{self._label}: n{node} is back")

    async def _work_off(self, number: int) -> None:
        queue = self._queues[number]
        while True:
            event = await queue.get()
            await self._up[number].wait()
            asked_at = time.time()
            try:
                client = self.network.daemons[number].client
                topic = self.network.names[event.topic]
                (receipt,) = await client.publish(topic, [event.data or b""])
            except RumormillError as error:
                if self._up[number].is_set():  # nobody has killed it
                    raise LocalError(f"n{number}: {error}") from error
                self._unacknowledged += 1
            else:
                self._acknowledged.append(
                    Acknowledged(number, event.topic, receipt.offset, receipt.id, asked_at)
                )
            queue.task_done()

    async def _settle(self) -> None:
        """Wait until every log has everything, but not for ever."""
        owed = Counter(each.topic for each in self._acknowledged)
        begin = time.monotonic()
        while time.monotonic() - begin < SETTLE_SECONDS:
            kept = [await self.network.kept(node) for node in range(self._script.nodes + 1)]
            # Somebody may have an event more than there are receipts: its publisher was killed.
            most = {
                topic: max(each.get(topic, 0) for each in kept) for topic in self._script.topics
            }
            if all(
                count == most[topic] >= owed[topic]
                for each in kept
                for topic, count in each.items()
            ):
                return
            await asyncio.sleep(_LOOK)


def audit(
    script: Script,
    names: Mapping[str, str],
    homes: Sequence[Path],
    acknowledged: Sequence[Acknowledged],
    absences: Sequence[Absence],
) -> Audit:
    """Read every log and compare."""
    logs = [_ids(home, list(names.values())) for home in homes]
    lost = kept = owed = missed = 0
    for each in acknowledged:
        found = logs[each.publisher][names[each.topic]]
        lost += each.offset >= len(found) or found[each.offset] != each.id
    held = [{topic: dict.fromkeys(ids) for topic, ids in log.items()} for log in logs]
    for each in acknowledged:
        for node, topics in enumerate(script.subscriptions):
            if each.topic in topics:
                owed += 1
                has = each.id in held[node][names[each.topic]]
                kept += has
                missed += not has and _was_away(node, each.asked_at, absences)
    return Audit(len(acknowledged), lost, owed, kept, missed, owed - kept - missed)


def _ids(home: Path, topics: Sequence[str]) -> dict[str, list[bytes]]:
    """The ids of a log's events by topic, in the order of their offsets."""
    with EventLog(home, read_only=True) as log:
        return {topic: [event.id for event in stored(log, topic)] for topic in topics}


def _was_away(node: int, moment: float, absences: Sequence[Absence]) -> bool:
    return any(
        each.node == node
        and each.killed_at <= moment
        and (each.back_at is None or moment < each.back_at)
        for each in absences
    )


class Figures(msgspec.Struct, frozen=True):
    """How a protocol did."""

    published: int
    expected: int
    delivered: int
    delivery_ratio: float | None
    complete_ratio: float | None
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

    results = {
        run.participant: (run.result.traces, run.result.noted)
        for run in runs
        if run.result is not None
    }
    watcher.say("Spark mills the traces of all runs")
    await mill.mill(results, script, lambda text: watcher.say(f"Spark: {text}"))
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
