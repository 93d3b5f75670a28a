"""A node of a round, over all its lives: the process, what it said, and what is done to it."""

import asyncio
import contextlib
import json
import math
import os
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from chaos_checker import Backup, Kept, Seen, Violation
from chaos_node import GAVE_UP, Life
from disk import Disk, Rule

from processes import environment

SCRIPT = Path(__file__).with_name("chaos_node.py")
RESTART = 0.2
"""Seconds after which a node whose log has failed is started again."""
MOST_ERRORS = 2000
"""Lines of stderr that are kept of a node."""

NEVER = ("CorruptLogError", "DamagedRangeError", "OffsetAheadError", "StoreVersionError")
"""No fault here damages what was stored, so no log may say that it is damaged."""


class Member:
    """One node, and everything that it told its application."""

    def __init__(
        self, name: str, first_life: Life, disk: Disk | None, changed: Callable[[], None]
    ) -> None:
        """Without a `disk` of the suite its files lie on the machine's."""
        self.name = name
        self.seen = Seen()
        self.refused: Counter[str] = Counter()
        self.faults: list[Violation] = []
        self.errors: list[str] = []
        self.topics = dict(first_life.topics)
        self.clock = 0.0
        self.lives = self.gave_up = self.held_down = self.imported = 0
        self.publishing = False
        self.extent: dict[str, tuple[int, int, int]] | None = None
        self.takes = ""
        """The exported file that its first life begins with."""
        self.look: dict[str, Any] | None = None
        self.entered = self.quiet = False
        self._topics_entered = 0
        self.process: asyncio.subprocess.Process | None = None
        self._first_life = first_life
        self._disk = disk
        self._rules: list[Rule] = []
        self._changed = changed
        self._watch: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._expected = 0
        self._restarts: dict[asyncio.Task[None], None] = {}
        self.exported: dict[str, None] = {}
        self.needs_repair, self.upkept = False, True
        self._before_backup = 0
        self._restoring: dict[str, int] = {}
        """Where the copy ends that is being restored, by topic."""
        self._imported = False

    # Its process.

    async def start(self) -> None:
        """Begin a life, unless one is under way or somebody holds it down."""
        async with self._turn:
            if self.process is not None or self.held_down:
                return
            self.lives += 1
            self._expected = self._topics_entered = 0
            self.entered, self.quiet, self.upkept = False, not self.publishing, True
            self.extent = self.look = None
            life = msgspec.structs.replace(
                self._first_life,
                word=f"{self.name}.{self.lives}",
                topics=self.topics,
                since={topic: places[-1][0] + 1 for topic, places in self.seen.given.items()},
                clock=self.clock,
                damaged=bool(self.seen.damaged),
                retained=self.seen.least is not None,
                takes=self.takes,
            )
            self.takes = ""
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                SCRIPT,
                msgspec.json.encode(life).decode(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment() if self._disk is None else self._disk.environment(),
                limit=1 << 26,
            )
            self._watch = asyncio.ensure_future(self._follow(self.process))
            if self.publishing:
                self.tell("publish")
            else:  # perhaps since it was being started, when it heard nothing
                self.quiet = True

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        """Hear everything that a process says; one that ends by itself is started again."""
        await asyncio.gather(self._listen(process), self._overhear(process))
        code = await process.wait()
        self.process = None
        if code == GAVE_UP:
            self.gave_up += 1
        elif code != self._expected:
            tail = " / ".join(self.errors[-3:])
            self.faults.append(Violation("crashed", self.name, f"exit code {code}: {tail}"))
        if code != self._expected:
            task = asyncio.ensure_future(self._restart())
            self._restarts[task] = None
            task.add_done_callback(lambda done: self._restarts.pop(done, None))
        self._changed()

    async def _restart(self) -> None:
        await asyncio.sleep(RESTART)
        await self.start()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.endswith(b"\n"):
                self._hear(*json.loads(line))

    async def _overhear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            if len(self.errors) < MOST_ERRORS:
                self.errors.append(line.decode(errors="replace").rstrip())

    def _hear(self, what: str, *rest: Any) -> None:
        """Take down one line."""
        seen = self.seen
        if what == "given":
            label, offset, id_, name, date = rest
            seen.given.setdefault(label, []).append((offset, id_, name))
            seen.dates[id_] = date
        elif what == "try":
            seen.tried[rest[1]] = rest[0]
        elif what == "kept":
            seen.kept.append(Kept(*rest))
        elif what == "read":
            seen.read.setdefault(rest[0], []).extend((o, i, n) for o, i, n in rest[1])
        elif what == "refused":
            error, text, bare = rest
            self.refused[error] += 1
            if bare:
                self.faults.append(Violation("bare error", self.name, f"{error}: {text}"))
        elif what == "failed":
            error, text = rest
            self.entered = False  # it ends, and begins another life
            self.refused[error] += 1
            if error in NEVER:
                self.faults.append(Violation("damaged", self.name, text))
        elif what == "topic":
            self.topics[rest[0]] = rest[1]
            self._topics_entered += 1
            self.entered = self._topics_entered == len(self.topics)
        elif what == "quiet":
            self.quiet = True
        elif what == "extent":
            (self.extent,) = rest
            for label, (first, _, window) in rest[0].items():
                seen.first[label], seen.window[label] = first, window
        elif what == "look":
            (self.look,) = rest
        else:
            self._hear_of_upkeep(what, *rest)
        self._changed()

    def _hear_of_upkeep(self, what: str, *rest: Any) -> None:
        """Take down one line about the log as a whole."""
        seen = self.seen
        if what == "backing up":
            self._before_backup = len(seen.kept)
        elif what == "backed up":
            seen.backups[rest[0]] = Backup(self._before_backup)
        elif what == "damaging":
            seen.damaged[rest[0], rest[1]] = None
            self.needs_repair = True
        elif what == "repaired":
            self.needs_repair = False
        elif what == "restoring":
            (self._restoring,) = rest
        elif what == "imported":
            self.imported += rest[0]
            self._imported = True
        elif what == "retaining":
            seen.least = min(rest[0], rest[0] if seen.least is None else seen.least)
        elif what == "upkept":
            self.upkept = True
        elif what == "exported":
            self.exported[rest[0]] = None
        elif what == "losses":
            self.note_losses(rest[0])
            self._restoring, self._imported = {}, False

    def note_losses(self, losses: Mapping[str, tuple[int, list[tuple[int, int]]]]) -> None:
        """Offsets that are empty: what was damaged, or what a restored copy does not have.

        A copy that was made before that may bring them back.
        """
        seen = self.seen
        for label, (first, ranges) in losses.items():
            empty = {(label, each) for start, end in ranges for each in range(start, end)}
            back = [each for each in seen.lost if each[0] == label and each[1] >= first]
            for each in back:
                if each not in empty:
                    del seen.lost[each]
            new = empty - seen.lost.keys()
            seen.lost |= dict.fromkeys(new, len(seen.tried))
            limit = 0 if self._imported else self._restoring.get(label, math.inf)
            wrong = sorted(at for _, at in new - seen.damaged.keys() if at < limit)
            if wrong:
                text = f"{label} offsets {wrong} were given up, and nobody asked for that"
                self.faults.append(Violation("gave up", self.name, text))

    def tell(self, request: str) -> None:
        """Ask the process for something; a dead one hears nothing."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self.process.stdin.write(f"{request}\n".encode())

    async def kill(self) -> None:
        """kill -9, and wait until everything that it said was heard."""
        async with self._turn:
            self._expected = -signal.SIGKILL
            self.signal(signal.SIGKILL)
            await self._watched()
            if self._disk is not None:
                await asyncio.to_thread(self._disk.notice)

    async def stop(self) -> None:
        """Let it end in order."""
        async with self._turn:
            self._expected = 0
            if self.process is not None and self.process.stdin is not None:
                self.process.stdin.close()
            await self._watched()

    async def restart(self) -> None:
        """End in order, and begin another life."""
        await self.stop()
        await self.start()

    async def _watched(self) -> None:
        if self._watch is not None:
            await asyncio.shield(self._watch)

    async def end(self) -> None:
        """However: no process is left."""
        self.held_down += 1
        for task in [*self._restarts]:
            task.cancel()
        self.signal(signal.SIGKILL)  # who waits for its end waits no longer
        await self.kill()

    @property
    def runs(self) -> bool:
        """Whether it has entered its topics in this life."""
        return self.process is not None and self.entered

    @property
    def is_damaged(self) -> bool:
        """Whether its log was refused, which no new start changes."""
        return any(fault.kind == "damaged" for fault in self.faults)

    # What is done to it.

    def signal(self, number: int) -> None:
        """Send a signal."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def down(self, held: bool) -> None:
        """Kill it and hold it down, or let it come back."""
        if held:
            self.held_down += 1
            await self.kill()
        else:
            self.held_down -= 1
            await self.start()

    async def cut_power(self, seed: int) -> None:
        """What was not flushed is gone; with a seed, a part of it. The node must be down."""
        if self._disk is not None:
            luck = random.Random(seed) if seed else None
            async with self._turn:
                await asyncio.to_thread(self._disk.cut_power, luck)

    def strike(self, rule: Rule, on: bool) -> None:
        """Let operations of its disk fail, or succeed again."""
        if on:
            self._rules.append(rule)
        else:
            self._rules.remove(rule)
        if self._disk is not None:
            self._disk.rules(*dict.fromkeys(self._rules))

    @property
    def has_disk(self) -> bool:
        """Whether its disk is the suite's."""
        return self._disk is not None

    def limit(self, which: int, most: int | None) -> None:
        """Lower a limit of the living process, or lift it again."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(self.process.pid, which)
                soft = hard if most is None else most
                resource.prlimit(self.process.pid, which, (soft, hard))

    def descriptors(self) -> int:
        """How many it has open."""
        if self.process is None:
            return 0
        with contextlib.suppress(OSError):
            return len(os.listdir(f"/proc/{self.process.pid}/fd"))
        return 0

    def largest_file(self) -> int:
        """Bytes of the largest file that it writes."""
        files = Path(self._first_life.home).glob("*")
        return max((each.stat().st_size for each in files if each.is_file()), default=0)
