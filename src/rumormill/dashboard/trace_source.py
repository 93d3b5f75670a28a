"""A recorded trace, watched: with a clock that can be stopped, moved and made faster.

The file is read once when it is opened, for its extent and its faults, and then as far as the clock
has come, again from the start when it is moved back: memory has what is shown and no more. Nobody
reads while nobody looks. Several files are several runs, beside which the first one is played.
"""

import heapq
import threading
import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final

from rumormill.core import trace
from rumormill.core.errors import LocalError
from rumormill.dashboard.figures import cut
from rumormill.dashboard.series import step_for
from rumormill.dashboard.source import Look
from rumormill.dashboard.trace_figures import TraceAggregator
from rumormill.dashboard.trace_sections import summary
from rumormill.dashboard.whole_source import WholeSource
from rumormill.trace.entries import FLUSH_AT, Entry, TraceError
from rumormill.trace.files import SUFFIXES, read_trace

MAX_SPEED: Final = 1000.0
_MOST_FILES: Final = 1000
_TELLING: Final = (trace.NodeUp, trace.NodeDown, trace.Stabilised, trace.DropRPC)
"""Entries that marks are made of."""
_ALL: Final = 1e12
"""Seconds of a step that has a whole trace in it."""
_UNIX: Final = 1e9
"""Times above this are seconds since 1970, and below it those of a virtual clock."""


def trace_entries(path: Path) -> Iterator[Entry]:
    """The entries of a file; of a folder, those of all traces in it, in the order of time."""
    if not path.is_dir():
        return read_trace(path)
    found = sorted(each for each in path.iterdir() if each.name.endswith(SUFFIXES))
    if not found:
        raise TraceError(f"{path}: there is no trace in this folder")
    if len(found) > _MOST_FILES:
        raise TraceError(f"{path}: more than {_MOST_FILES} traces")
    return heapq.merge(*map(read_trace, found), key=lambda entry: entry[0])


def is_trace(path: Path) -> bool:
    """Whether a path is a trace, or a folder of traces."""
    if path.is_dir():
        return any(each.name.endswith(SUFFIXES) for each in path.iterdir())
    return path.name.endswith(SUFFIXES)


class TraceSource(WholeSource):
    """One file, and perhaps others beside it."""

    kind = "trace"

    def __init__(self, paths: Sequence[Path]) -> None:
        self._path = path = paths[0]
        self._extent = _Extent(path)
        super().__init__(path.name, {"protocol": self._extent.protocol})
        self._playing, self._speed = False, 1.0
        self._at, self._since = self._extent.end, 0.0
        """Where the clock stood, and when, by the steady clock, that was."""
        self._epoch = 0
        self._feeding = threading.Lock()
        self._rewind()
        for other in paths[1:]:
            extent = _Extent(other)
            figures = extent.figures()
            for batch in _batches(trace_entries(other), inf):
                figures.observe(batch)
            figures.advance(extent.end + figures.series.step)
            self.runs[other.name] = summary(figures)

    def _rewind(self) -> None:
        with self.lock:
            self.figures = self._extent.figures()
        self._entries = _Ahead(trace_entries(self._path))
        self._epoch += 1

    def _now(self) -> float:
        """Where the clock stands."""
        if not self._playing:
            return self._at
        now = self._at + (time.monotonic() - self._since) * self._speed
        if now >= self._extent.end:
            self._at, self._playing = self._extent.end, False
            return self._at
        return now

    def proceed(self, look: Look) -> None:
        """Read as far as the clock has come."""
        with self._feeding:
            now = self._now()
            if self.figures.now is not None and now < self.figures.now:
                self._rewind()
            for batch in _batches(self._entries, now):
                with self.lock:
                    self.figures.observe(batch)
            with self.lock:
                at_end = now >= self._extent.end
                self.figures.advance(now + (self.figures.series.step if at_end else 0.0))

    def clock(self) -> dict[str, Any]:
        """How time stands; a change of `epoch` says that it went back."""
        extent = self._extent
        found = {
            "now": self._now(),
            "start": extent.start,
            "end": extent.end,
            "playing": self._playing,
            "speed": self._speed,
            "epoch": self._epoch,
        }
        return found | ({"wall0": 0} if extent.start > _UNIX else {})

    def marks(self, after: int) -> list[dict[str, Any]]:
        """Those of the whole file, so that they can be gone to."""
        return self._extent.marks[after:]

    async def play(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Stop or go, go to a time, be faster or slower."""
        now = self._now()
        match wish:
            case {"at": int() | float() as at} if not isinstance(at, bool):
                now = max(self._extent.start, min(self._extent.end, float(at)))
            case {"speed": int() | float() as speed} if not isinstance(speed, bool):
                self._speed = max(1 / MAX_SPEED, min(MAX_SPEED, float(speed)))
            case {"playing": bool() as playing}:
                if playing and now >= self._extent.end:
                    now = self._extent.start
                self._playing = playing
            case _:
                raise LocalError("say at, speed or playing")
        self._at, self._since = now, time.monotonic()
        return self.clock()

    async def close(self) -> None:
        """Nothing is held open."""


class _Ahead:
    """Entries, of which the next can be looked at."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._next: Entry | None = next(entries, None)

    def take_until(self, now: float) -> Iterator[Entry]:
        while self._next is not None and self._next[0] <= now:
            yield self._next
            self._next = next(self._entries, None)


def _batches(entries: "_Ahead | Iterator[Entry]", until: float) -> Iterator[list[Entry]]:
    chosen = entries.take_until(until) if isinstance(entries, _Ahead) else entries
    batch: list[Entry] = []
    for entry in chosen:
        batch.append(entry)
        if len(batch) >= FLUSH_AT:
            yield batch
            batch = []
    if batch:
        yield batch


class _Extent:
    """From when to when a trace goes, and where something broke."""

    def __init__(self, path: Path) -> None:
        self.protocol = ""
        """Under what id its first two peers met."""
        scout = TraceAggregator(_ALL)
        first = last = None
        for batch in _batches(trace_entries(path), inf):
            first, last = batch[0][0] if first is None else first, batch[-1][0]
            if telling := [entry for entry in batch if type(entry[2]) in _TELLING]:
                scout.observe(telling)
            if not self.protocol:
                met = [each for _, _, each in batch if isinstance(each, trace.AddPeer)]
                self.protocol = cut(met[0].proto, 80) if met else ""
        if first is None or last is None:
            raise TraceError(f"{path}: the trace is empty")
        self.start, self.end = first, max(first, last)
        self.marks = scout.marks_section(0)

    def figures(self) -> TraceAggregator:
        """New figures, in steps that fit the whole."""
        return TraceAggregator(step_for(self.end - self.start))
