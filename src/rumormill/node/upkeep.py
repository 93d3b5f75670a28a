"""The upkeep of a running node: what is kept, the space that it takes, copies of its home.

The part of `Node` that speaks of its log as files. What works on files is done in a thread, beside
appends and reads.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from rumormill.core.api import Health
from rumormill.core.errors import LocalError
from rumormill.core.ids import Topic as TopicName
from rumormill.log.backup import backup
from rumormill.log.keeping import RetentionLine, compact, has_room, retention_lines, rules_of
from rumormill.log.model import Report, Retention
from rumormill.node.life import NodeLife


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
        self._check_running()
        if self._log.home is None:
            raise LocalError("this node keeps nothing on a disk, so there is nothing to copy")
        return await asyncio.to_thread(backup, self._log.home, to)
