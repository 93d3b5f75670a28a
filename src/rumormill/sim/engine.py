"""Virtual time: a queue of what happens when, and the loop that makes it happen.

Two entries for the same moment happen in the order in which they were scheduled, so a run depends
on nothing but its inputs. One step takes an entry and calls it: this loop is the floor under every
simulated message, and is kept bare.

The queue is a calendar. An entry is put, unsorted, into the bucket of its millisecond; only the
bucket whose time has come is sorted. Tens of thousands of messages may be under way at once, and a
heap of them all would spend most of its time waiting for memory.
"""

import heapq
import sys
from bisect import insort
from collections.abc import Callable, Iterator
from itertools import count, islice
from operator import length_hint
from typing import Any, Final, TypeAlias

from rumormill.trace.entries import Recorder

Entry: TypeAlias = tuple[float, int, Callable[[Any], None], Any]
"""When, in which order, what to call, and with what."""

BUCKETS_PER_SECOND: Final = 1000
"""Our choice: at the latencies of real networks a bucket then holds some tens of entries."""

_STEPS_BETWEEN_FLUSHES: Final = 256
_LAST: Final = sys.maxsize
"""Behind everything else of its moment."""


class _Reached(Exception):  # noqa: N818 (it is no error)
    """The end of a stretch."""


class Engine:
    """The clock and the queue of one simulation."""

    def __init__(self, recorder: Recorder) -> None:
        self.now = 0.0
        self.recorder = recorder
        self.next_order = count().__next__
        """Draws the number that keeps simultaneous entries in order."""
        self.buckets: dict[int, list[Entry]] = {}
        """Entries of later milliseconds; whoever finds the bucket of its entry may append to it,
        and leaves everything else to `schedule`."""
        self._later: list[int] = []  # a heap of the buckets' numbers
        self._current: list[Entry] = []
        self._left: Iterator[Entry] = iter(())
        """What of the current bucket has not happened yet."""
        self._bucket = -1
        self._steps_before = 0
        self._end = 0.0

    def __len__(self) -> int:
        return length_hint(self._left) + sum(map(len, self.buckets.values()))

    @property
    def steps(self) -> int:
        """How many entries have happened."""
        return self._steps_before + len(self._current) - length_hint(self._left)

    def schedule(self, at: float, call: Callable[[Any], None], argument: Any = None) -> None:
        """Call `call(argument)` at time `at`, or now when that has passed."""
        self.place((max(at, self.now), self.next_order(), call, argument))

    def place(self, entry: Entry) -> None:
        """Take in an entry that is not due before now, and whose place in the order was drawn."""
        number = int(entry[0] * BUCKETS_PER_SECOND)
        if number <= self._bucket:
            insort(self._current, entry)
            return
        bucket = self.buckets.get(number)
        if bucket is None:
            self.buckets[number] = [entry]
            heapq.heappush(self._later, number)
        else:
            bucket.append(entry)

    def run_until(self, end: float) -> None:
        """Let everything happen that is due up to and including `end`."""
        end = self._end = max(end, self.now)
        self.place((end, _LAST, self._reach, end))
        recorder = self.recorder
        try:
            while True:
                if not length_hint(self._left):
                    self._turn_page()
                some = islice(self._left, _STEPS_BETWEEN_FLUSHES)
                for self.now, _, call, argument in some:
                    call(argument)
                recorder.maybe_flush()
        except _Reached:
            recorder.maybe_flush()
        finally:  # what comes now may be due at this same moment, and belongs behind what happened
            happened = len(self._current) - length_hint(self._left)
            self._begin(self._bucket, self._current[happened:])

    def _turn_page(self) -> None:
        """Make the next bucket current; there is one as long as the end is not reached."""
        number = heapq.heappop(self._later)
        self._begin(number, sorted(self.buckets.pop(number)))

    def _begin(self, bucket: int, entries: list[Entry]) -> None:
        self._steps_before = self.steps
        self._bucket, self._current, self._left = bucket, entries, iter(entries)

    def _reach(self, end: float) -> None:
        """Stop, unless this is the end of a stretch that an error cut short."""
        self._steps_before -= 1  # it is no step of the simulation
        if end == self._end:
            raise _Reached
