"""The machine's time: that of the wall clock, which may be set, and yet never goes back.

It is the loop's clock, whose pace nothing changes, and what that is behind the wall clock. Once in
a while the two are compared. A wall clock that was set forward, or ran on while the machine slept,
is followed at once. One that was set back is waited for: our time goes at half its pace until the
other has caught up. So dates and sequence numbers grow all the time, and come right again. That
numbers do over several lives of a node is the log's doing (`node.numbers`).

A wall clock that shows no date is not followed: one before 1970, or from 2255 on. It would take our
numbers out of their 64 bits, where they end, and would be given again in every later life.

When an event was received is told by the wall clock as it was at the last comparison, at once and
in both directions.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

_CLOSE: Final = 0.1
"""Seconds that the clocks may differ by: our choice, above what a time service corrects."""
_SLOWEST: Final = 0.5
"""Our choice: no timeout takes more than twice its time, and an hour is made up in two."""
_TRIES: Final = 3
"""How often both are read again, when a busy machine has let time pass between the two."""
_FIRST: Final = 1.0
LAST: Final = 9e9
"""Seconds since 1970 that are a date: our choice, seven years before nanoseconds end."""
_WORTH_TELLING: Final = 1.0
"""Seconds by which a clock is set before the log says so."""

_log = logging.getLogger("rumormill.node")


class Clock:
    """Two readings of one clock: `at` is a moment of the steady one, that of the event loop."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        at = steady()
        self._looked = at
        self.pace = 1.0
        self.wall = (_shown() or _FIRST) - at
        """What the wall clock was ahead of the steady one when they were compared last."""
        self.offset = self.wall
        """The machine's time is `at * pace + offset`."""

    def now(self) -> float:
        """Seconds since 1970 that never go back."""
        return self._steady() * self.pace + self.offset

    def steadily(self, moment: float) -> float:
        """When the steady clock will be where the machine's time is this."""
        return (moment - self.offset) / self.pace

    @property
    def ahead(self) -> float:
        """Seconds by which our time is ahead of the wall clock, as it was last compared."""
        return self.now() - (self._steady() + self.wall)

    def _read(self) -> tuple[float, float | None]:
        """Both clocks at one moment; None of the other where it shows no date, or we were kept from
        it too long."""
        for _ in range(_TRIES):
            at, wall = self._steady(), _shown()
            if self._steady() - at < _CLOSE / 10:
                return at, wall
        return at, None

    def follow(self) -> bool:
        """Compare with the wall clock; return whether what is to come comes at another time."""
        at, wall = self._read()
        if wall is None:
            return False
        since, self._looked = at - self._looked, at
        now = at * self.pace + self.offset
        stepped, self.wall = wall - at - self.wall, wall - at
        if abs(stepped) > _WORTH_TELLING:
            _log.warning(
                "the clock has been set %s by %.1f s, or the machine has slept",
                "forward" if stepped > 0 else "back",
                abs(stepped),
            )
        ahead = now - wall
        pace = 1.0
        if ahead < -_CLOSE:
            now = wall
        elif ahead > _CLOSE and since > 0:
            pace = max(_SLOWEST, 1.0 - ahead / since)
        if (pace, now) == (self.pace, at * self.pace + self.offset):
            return False
        self.pace, self.offset = pace, now - at * pace
        return True


def _shown() -> float | None:
    """What the wall clock shows, if that is a date."""
    wall = time.time()
    return wall if _FIRST <= wall < LAST else None
