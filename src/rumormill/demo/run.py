"""One run: a network is started, publishes the script's events, loses nodes and gets them back.

Every node has a queue of what it is to publish and works it off in order, one event at a time, each
when its receipt for the one before has come. The queue of a killed node waits for its return. An
event that was under way in the moment of the kill has no receipt: it is counted and not sent again.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from rumormill.core.errors import LocalError
from rumormill.daemon.control_messages import ControlError
from rumormill.demo.audit import Absence, Acknowledged, Audit, audit
from rumormill.demo.network import Network, now, trace_is_written
from rumormill.demo.script import Participant, Script
from rumormill.sim.workload import PlannedPublish

SETTLE_SECONDS: Final = 30.0
"""How long nodes may take at most to get what is missing. Our choice."""

_LOOK: Final = 0.5


class Watcher(Protocol):
    """Who is told how things go."""

    def say(self, text: str) -> None:
        """Something has happened."""
        ...

    def advance(self, label: str, part: float) -> None:
        """So much of a run is done, from 0 to 1."""
        ...


class Result(msgspec.Struct, frozen=True):
    """What became of a run."""

    label: str
    seconds: float
    killed: int
    returned: int
    unacknowledged: int
    """Publications that were under way when their node was killed."""
    audit: Audit
    traces: list[str]


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
        self._quiet = participant.quiet
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
        async with self.network.running():
            async with follow(self.network):
                await self.network.ready()
                say(f"{self._label}: everybody has found somebody; publishing")
                await self._publish()
                await self._settle()
            await trace_is_written()
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
            self._label,
            time.monotonic() - begin,
            len(self._absences),
            sum(each.back_at is not None for each in self._absences),
            self._unacknowledged,
            found,
            [str(each) for each in traces],
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
        self._absences.append(Absence(node, now()))
        await self.network.kill(node)
        self._watcher.say(f"{self._label}: kill -9 n{node}")

    async def _bring_back(self, node: int) -> None:
        await self.network.restart(node)
        for each in self._absences:
            if each.node == node:
                each.back_at = now()
        self._up[node].set()
        self._watcher.say(f"{self._label}: n{node} is back")

    async def _work_off(self, number: int) -> None:
        queue = self._queues[number]
        while True:
            event = await queue.get()
            await self._up[number].wait()
            asked_at = now()
            try:
                client = self.network.daemons[number].client
                topic = self.network.names[event.topic]
                (receipt,) = await client.publish(topic, [event.data or b""])
            except ControlError as error:
                if self._up[number].is_set():  # nobody has killed it
                    raise LocalError(f"n{number}: {error}") from error
                self._unacknowledged += 1
            else:
                self._acknowledged.append(
                    Acknowledged(number, event.topic, receipt.offset, receipt.id, asked_at)
                )
            queue.task_done()

    async def _settle(self) -> None:
        """Wait until every log has everything, or nothing comes any more."""
        owed = Counter(each.topic for each in self._acknowledged)
        begin = grown_at = time.monotonic()
        before: list[dict[str, int]] = []
        while True:
            kept = [await self.network.kept(node) for node in range(self._script.nodes + 1)]
            moment = time.monotonic()
            if kept != before:
                before, grown_at = kept, moment
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
            if moment - grown_at > self._quiet or moment - begin > SETTLE_SECONDS:
                return
            await asyncio.sleep(_LOOK)
