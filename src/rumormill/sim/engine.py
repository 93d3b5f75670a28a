"""Virtual time: a queue of what happens when, and the loop that makes it happen.

Two entries for the same moment happen in the order in which they were scheduled, so a run depends
on nothing but its inputs. One step pops an entry and calls it: this loop is the floor under every
simulated message, and is kept bare.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from rumormill.trace.recorder import Recorder

_STEPS_BETWEEN_FLUSHES = 256


class Engine:
    """The clock and the queue of one simulation."""

    def __init__(self, recorder: Recorder) -> None:
        self.now = 0.0
        self.recorder = recorder
        self.steps = 0
        self.queue: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = count()

    @property
    def next_order(self) -> Callable[[], int]:
        """Draws the number that keeps simultaneous entries in order."""
        return self._order.__next__

    def schedule(self, at: float, call: Callable[[Any], None], argument: Any = None) -> None:
        """Call `call(argument)` at time `at`, or now when that has passed."""
        heapq.heappush(self.queue, (max(at, self.now), next(self._order), call, argument))

    def run_until(self, end: float) -> None:
        """Let everything happen that is due up to and including `end`."""
        queue, pop, recorder = self.queue, heapq.heappop, self.recorder
        while queue and queue[0][0] <= end:
            step = 0
            for step in range(1, _STEPS_BETWEEN_FLUSHES + 1):  # noqa: B007 (counted below)
                self.now, _, call, argument = pop(queue)
                call(argument)
                if not queue or queue[0][0] > end:
                    break
            self.steps += step
            recorder.maybe_flush()
        self.now = max(self.now, end)
