"""A simulation, watched while it runs.

It runs in a thread of its own, and this is an observer of its trace: what the trace tells is
counted in that thread, between two steps, and so is what machines show of themselves, when somebody
wants to see it. The clock can be stopped and held back; it cannot be turned back.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.core.machine import Machine
from rumormill.dashboard.log_pages import HEADS_AMONG, heads_of
from rumormill.dashboard.series import step_for
from rumormill.dashboard.source import Look
from rumormill.dashboard.trace_figures import TraceAggregator
from rumormill.dashboard.trace_sections import summary
from rumormill.dashboard.whole_source import WholeSource
from rumormill.trace.entries import Batch

MAX_SPEED: Final = 1000.0
_LOOK_AGAIN: Final = 0.5
"""Seconds between two looks at all machines."""
_NAP: Final = 0.05

Machines = Callable[[], Mapping[PeerId, Machine]]
Logs = Callable[[Topic, int], Sequence[Sequence[Event]]]
"""The last so many events of a topic, at each peer that keeps any."""


class SimulationSource(WholeSource):
    """One run after another; the one that runs is shown, those before it are compared."""

    kind = "simulation"

    def __init__(self, title: str, about: Mapping[str, Any]) -> None:
        super().__init__(title, about)
        self._end = 0.0
        self._machines: Machines | None = None
        self._viewed_at = 0.0
        self._logs: Logs | None = None
        self._wants_views, self._wanted_topic = False, ""
        self._speed: float | None = None
        self._playing = True
        self._ended = threading.Event()
        self._held: tuple[float, float] | None = None
        """A virtual time and the steady time at which it was reached, since the speed is so."""
        self._epoch = 0

    def begin(
        self, title: str, protocol: str, end: float, machines: Machines, logs: Logs | None = None
    ) -> None:
        """Another run begins."""
        with self.lock:
            if self._epoch:
                self.runs[self._title] = summary(self.figures)
            self._title, self._about["protocol"] = title, protocol
            self.figures = TraceAggregator(step_for(end))
            self.views, self._machines, self._end = None, machines, end
            self.heads, self._logs = None, logs
            self._held = None
            self._epoch += 1

    def observe(self, batch: Batch) -> None:
        """Count the next entries, in the simulation's thread; wait where time is held back."""
        with self.lock:
            self.figures.observe(batch)
            self._take_views()
        self._hold(batch[-1][0])

    def _take_views(self) -> None:
        """Look at all machines, if that is wanted and was not done just now."""
        fresh = time.monotonic() - self._viewed_at < _LOOK_AGAIN
        if self._wants_views and self._machines is not None and not fresh:
            self.views = {peer: each.view() for peer, each in self._machines().items()}
            self._viewed_at, self._wants_views = time.monotonic(), False
            trees = {name for view in self.views.values() for name in view.links.get("child", ())}
            topic = self._wanted_topic or self.figures.busiest(trees)
            if self._logs is not None and topic:
                self.heads = heads_of(topic, self._logs(topic, HEADS_AMONG))

    def _hold(self, now: float) -> None:
        while not self._ended.is_set():
            steady = time.monotonic()
            if self._playing:
                if self._speed is None:
                    return
                if self._held is None:
                    self._held = (now, steady)
                ahead = (now - self._held[0]) / self._speed - (steady - self._held[1])
                if ahead <= 0:
                    return
                self._ended.wait(min(ahead, _NAP))
            else:
                self._held = None
                self._ended.wait(_NAP)

    def end_run(self) -> None:
        """The run is over; what machines are now stays, until another begins."""
        with self.lock:
            self._wants_views, self._viewed_at = True, 0.0
            self._take_views()
            self._machines = None
            self.figures.advance(self._end + self.figures.series.step)

    def proceed(self, look: Look) -> None:
        """Say whether machines are to be looked at."""
        if "links" in look.sections or "protocol" in look.sections:
            self._wants_views, self._wanted_topic = True, look.topic

    def clock(self) -> dict[str, Any]:
        """Virtual time."""
        return {
            "now": self.figures.now or 0.0,
            "start": 0.0,
            "end": self._end,
            "playing": self._playing and self._machines is not None,
            "speed": self._speed,
            "epoch": self._epoch,
        }

    async def play(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Stop or go, or be slower; a speed of 0 is as fast as can be."""
        match wish:
            case {"speed": int() | float() as speed} if not isinstance(speed, bool):
                self._speed = None if speed <= 0 else max(1 / MAX_SPEED, min(MAX_SPEED, speed))
            case {"playing": bool() as playing}:
                self._playing = playing
            case _:
                raise LocalError("a simulation can be stopped and slowed, not moved")
        self._held = None
        return self.clock()

    async def close(self) -> None:
        """Hold nothing back any more."""
        self._ended.set()


class Feed:
    """The observer by which a simulation's trace comes here."""

    def __init__(self, source: SimulationSource) -> None:
        self.observe = source.observe
        self.close = source.end_run
