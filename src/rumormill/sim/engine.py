"""Virtual time: a queue of what happens when, and the loop that makes it happen.

Two entries for the same moment happen in the order in which they were scheduled, so a run depends
on nothing but its inputs. One step takes an entry and calls it: this loop is the floor under every
simulated message, and is kept bare.

The queue is a calendar. An entry is put, unsorted, into the bucket of its millisecond; only the
bucket whose time has come is a heap. Tens of thousands of messages may be under way at once, and a
heap of them all would spend most of its time waiting for memory.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, Final, TypeAlias

from rumormill.trace.entries import Recorder

Entry: TypeAlias = tuple[float, int, Callable[[Any], None], Any]
"""When, in which order, what to call, and with what."""

BUCKETS_PER_SECOND: Final = 1000
"""Our choice: at the latencies of real networks a bucket then holds some tens of entries."""

_STEPS_BETWEEN_FLUSHES: Final = 256


class Engine:
    """The clock and the queue of one simulation."""

    def __init__(self, recorder: Recorder) -> None:
        self.now = 0.0
        self.recorder = recorder
        self.steps = 0
        self.next_order = count().__next__
        """Draws the number that keeps simultaneous entries in order."""
        self.buckets: dict[int, list[Entry]] = {}
        """Entries of later milliseconds; whoever finds the bucket of its entry may append to it,
        and leaves everything else to `schedule`."""
        self._later: list[int] = []  # a heap of the buckets' numbers
        self._current: list[Entry] = []
        self._bucket = -1

    def __len__(self) -> int:
        return len(self._current) + sum(map(len, self.buckets.values()))

    def schedule(self, at: float, call: Callable[[Any], None], argument: Any = None) -> None:
        """Call `call(argument)` at time `at`, or now when that has passed."""
        self.place((max(at, self.now), self.next_order(), call, argument))

    def place(self, entry: Entry) -> None:
        """Take in an entry that is not due before now, and whose place in the order was drawn."""
        number = int(entry[0] * BUCKETS_PER_SECOND)
        if number <= self._bucket:
            heapq.heappush(self._current, entry)
            return
        bucket = self.buckets.get(number)
        if bucket is None:
            self.buckets[number] = [entry]
            heapq.heappush(self._later, number)
        else:
            bucket.append(entry)

    def run_until(self, end: float) -> None:
        """Let everything happen that is due up to and including `end`."""
        pop, recorder = heapq.heappop, self.recorder
        while self._turn_page(end):
            current = self._current
            step = 0
            for step in range(1, _STEPS_BETWEEN_FLUSHES + 1):  # noqa: B007 (counted below)
                self.now, _, call, argument = pop(current)
                call(argument)
                if not current or current[0][0] > end:
                    break
            self.steps += step
            recorder.maybe_flush()
        self.now = max(self.now, end)

    def _turn_page(self, end: float) -> bool:
        """Make the next bucket current when this one is done; false when nothing is due."""
        if not self._current:
            if not self._later or self._later[0] > int(end * BUCKETS_PER_SECOND):
                return False
            self._bucket = heapq.heappop(self._later)
            self._current = self.buckets.pop(self._bucket)
            heapq.heapify(self._current)
        return self._current[0][0] <= end
