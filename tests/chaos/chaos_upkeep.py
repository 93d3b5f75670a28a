"""The upkeep that the fault suite asks of a node while it runs, and the damage that asks for some.

Requests are words: `backup DIR`, `restore DIR`, `damage PART`, `repair`, `retain EVENTS`,
`compact`, `export FILE`, `import FILE`. They are done one after the other, and may fail like
anything else. What they may take away is said before, and what is gone for good behind it, so that
the judge can tell:

    ["backing up", DIR], ["backed up", DIR], ["exported", FILE], ["imported", number of events]
    ["restoring", {label: next offset of the copy}], ["damaging", label, offset], ["repaired"]
    ["retaining", EVENTS], ["losses", {label: [first offset, [[start, end], ...]]}], ["upkept"]
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from chaos_say import say

from rumormill.core.errors import RumormillError
from rumormill.log import EventLog, Retention, StoreError, export_parquet
from rumormill.node.node import Node


class Upkeep:
    """What is done to one node's log, in turn."""

    def __init__(self, node: Node, topics: dict[str, str]) -> None:
        self._node = node
        self._topics = topics
        self._turn = asyncio.Lock()
        self.work: dict[str, Callable[[str], Awaitable[None]]] = {
            "backup": self._backup,
            "restore": self._restore,
            "damage": self._damage,
            "repair": self._repair,
            "retain": self._retain,
            "compact": self._compact,
            "export": self._export,
            "import": self._import,
        }

    async def do(self, what: str, word: str = "") -> None:
        """Do it, and say what is lost for good then; whatever it raises but our own errors is a
        fault.

        A log that has stopped says nothing: a restore may have been done or not, and the next life
        tells.
        """
        async with self._turn:
            try:
                await self.work[what](word)
            except RumormillError as error:
                say("refused", f"{what}: {type(error).__name__}", str(error), False)
            except Exception as error:  # noqa: BLE001 (whatever it is, the suite wants to know)
                say("refused", f"{what}: {type(error).__name__}", str(error), True)
            if not self._node.log.writer().failed:
                self.tell_losses()

    async def finish(self) -> None:
        """Say when all that was asked for is done."""
        async with self._turn:
            say("upkept")

    def tell_losses(self) -> None:
        """Say which offsets stay empty, and which are not there any more."""
        log = self._node.log
        found = {}
        for label, name in self._topics.items():
            info = log.topic(name)
            found[label] = 0 if info is None else info.first_offset, log.losses(name)
        say("losses", found)

    async def _backup(self, to: str) -> None:
        say("backing up", to)
        await self._node.backup(to)
        say("backed up", to)

    async def _restore(self, copy: str) -> None:
        with EventLog(copy, read_only=True) as log:
            extents = {label: log.topic(name) for label, name in self._topics.items()}
        ends = {label: each.next_offset if each else 0 for label, each in extents.items()}
        say("restoring", ends)
        await self._node.restore(copy, replace=True)

    async def _damage(self, part: str) -> None:
        """Let one event be another than its hash says."""
        label = list(self._topics)[int(float(part) * 1000) % len(self._topics)]
        log, writer = self._node.log, self._node.log.writer()
        extent, row = log.topic(self._topics[label]), writer.topics.get(self._topics[label])
        if extent is None or row is None or extent.first_offset == extent.next_offset:
            return
        kept = range(extent.first_offset, extent.next_offset)
        offset = kept[min(int(float(part) * len(kept)), len(kept) - 1)]  # a schedule rounds up to 1
        say("damaging", label, offset)

        def overwrite() -> None:
            writer.db.execute("UPDATE events SET data = x'00' WHERE key = ?", (row.key(offset),))

        await asyncio.wrap_future(writer.run(writer.exclusively(overwrite)))

    async def _repair(self, _: str) -> None:
        await self._node.repair()
        say("repaired")

    async def _retain(self, events: str) -> None:
        say("retaining", int(events))
        await self._node.retention(rules=Retention(max_events=int(events)), apply=True)

    async def _compact(self, _: str) -> None:
        await self._node.compact(old=True)

    async def _export(self, file: str) -> None:
        await asyncio.to_thread(export_parquet, self._node.log, file)
        say("exported", file)

    async def _import(self, file: str) -> None:
        say("imported", await self._node.import_events(file))

    def extents(self, *, windows: bool) -> dict[str, tuple[int, int, int]]:
        """Of each topic the first offset, the end of what can be read, and, where it is asked for,
        from which date on nothing was deleted."""
        found = {}
        for label, name in self._topics.items():
            info = self._node.log.topic(name)
            if info is None:
                continue
            end, losses = info.next_offset, dict(map(reversed, self._node.log.losses(name)))
            while end in losses:
                end = losses[end]
            window = 0
            if windows:
                with contextlib.suppress(StoreError), self._node.log.histories() as histories:
                    window = histories.history(name).window.keep_from
            found[label] = info.first_offset, max(end, info.first_offset), window
        return found
