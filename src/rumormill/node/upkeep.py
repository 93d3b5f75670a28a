"""The upkeep of a running node: what is kept, the space that it takes, copies of its home.

The part of `Node` that speaks of its log as files. What works on files is done in a thread, beside
appends and reads.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from rumormill.core.api import Health
from rumormill.core.errors import LocalError
from rumormill.core.event import Position
from rumormill.core.ids import Topic as TopicName
from rumormill.core.inputs import LogChanged
from rumormill.log.backup import backup, restore
from rumormill.log.keeping import RetentionLine, compact, has_room, retention_lines, rules_of
from rumormill.log.model import Report, Retention
from rumormill.log.parquet import import_parquet
from rumormill.log.positions import read_positions
from rumormill.log.repair import repair
from rumormill.log.threads import in_thread
from rumormill.node.life import NodeLife
from rumormill.node.verdicts import fault_of

_Result = TypeVar("_Result")


class Upkeep(NodeLife):
    """A node and its disk."""

    def set_retention(self, retain: Retention | Mapping[TopicName, Retention] | None) -> None:
        """Have other rules from now on, as `Node(retain=…)` takes them; they are applied within a
        minute, or by `retention(apply=True)`."""
        rules = rules_of(retain)
        self._rules.clear()
        self._rules.update(rules)

    async def retention(
        self,
        topic: TopicName | None = None,
        *,
        rules: Retention | Mapping[TopicName, Retention] | None = None,
        apply: bool = False,
    ) -> list[RetentionLine]:
        """What is kept of topics, or of one, by this node's rules or by others, and what is beyond.

        With `apply`, that is deleted first. What was deleted does not come back, and offsets stay.
        """
        self._check_running()
        chosen = dict(self._rules) if rules is None else rules_of(rules)
        return await asyncio.to_thread(retention_lines, self._log, chosen, topic, apply=apply)

    def health(self) -> Health:
        """Whether this node lives, and whether it can take events now."""
        failure = self._journal.failure if self._running else LocalError("it is not running")
        if failure is not None or self._log.writer().failed:
            why = " ".join(str(failure or "the log's disk has failed").split())
            return Health(healthy=False, ready=False, why=why)
        if self._log.counters.full and not has_room(self._log):
            return Health(healthy=True, ready=False, why="the log has no room for events")
        return Health(healthy=True, ready=True, why="ok")

    async def compact(self, *, old: bool = False) -> int:
        """Give space that the log does not use back to the file system; return how many bytes.

        `old` deletes the databases that a repair or a restore has put aside.
        """
        self._check_running()
        return await asyncio.to_thread(compact, self._log, old=old)

    async def backup(self, to: str | Path) -> Report:
        """Copy this node's home, at one moment, to a new directory, verified; say what is in it."""
        home = self._check_files("there is nothing to copy")
        return await asyncio.to_thread(backup, home, to)

    async def repair(self) -> Report:
        """Keep every event of the log that can be proved, give up the rest, and go on.

        Publications wait meanwhile. What was given up is in the report: its offsets stay empty,
        history and subscriptions go on behind them, and where peers have the events, sync brings
        them again, at new offsets. A log whose disk has failed is written anew, and the node takes
        events again. The damaged database stays in the home until `compact(old=True)`.
        """
        self._check_files("there is nothing to repair")
        return await self._mended(partial(repair, self._log))

    async def restore(self, copy: str | Path, *, replace: bool = False) -> Report:
        """Have this node's log take a backup of its home, and go on; say what that has.

        Publications wait meanwhile. A log with events is replaced only if that is said, and its
        database stays in the home until `compact(old=True)`. No offset is used again: what the
        log had beyond the backup is in the report, its offsets stay empty, and sync brings what
        peers still have of it.
        """
        self._check_files("it cannot restore the backup")
        positions: list[Position] = []

        def work() -> Report:
            report = restore(copy, self._log, replace=replace)
            positions.extend(read_positions(self._log))
            return report

        try:
            return await self._mended(work)
        finally:
            self._groups.learn(positions)

    async def import_events(self, file: str | Path) -> int:
        """Append what an exported Parquet file has and the log lacks, at the same offsets; return
        how many events that is.

        Every hash, id and signature is checked first: see `rumormill.log.import_parquet`.
        """
        self._check_files("it cannot import the file")
        return await self._mended(partial(import_parquet, self._log, file, fault_of()))

    def _check_files(self, otherwise: str) -> Path:
        self._check_running()
        if self._log.home is None:
            raise LocalError(f"this node keeps nothing on a disk, so {otherwise}")
        return self._log.home

    async def _mended(self, work: Callable[[], _Result]) -> _Result:
        """Make the log another, to the end, also if nobody waits for that any more; then take
        events again, have the machine know it, and give subscriptions what it has now."""
        try:
            return await in_thread(work)
        finally:
            if not self._log.writer().failed:
                self._journal.failure = None
            self._driver.feed(LogChanged())
            for subscription in self._journal.all_subscriptions():
                subscription.look_again()
