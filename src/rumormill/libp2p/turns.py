"""Turns: how long the bytes of one connection are worked on before others have theirs.

A connection works through what it has read for some milliseconds; what is left waits in a line, and
each time the event loop comes round, the first in the line works on. So those that send more than
we can handle share one turn of the loop among them, however many they are, and whoever sends little
is seen to as soon as it is read.

A turn in which the peer is found to misbehave is over soon. Honest peers have long ones because
short turns tear bursts apart: what answers them leaves in many small pieces.
"""

import asyncio
from collections import deque
from collections.abc import Callable

TURN = 0.008
SHORT_TURN = 0.001
"""Seconds; our choice: a tenth of what anybody should have to wait, and an eighth of that for those
who flood, which is still a hundred of the frames that floods are made of."""


class Turns:
    """The line of a node's connections that have more to do."""

    def __init__(self) -> None:
        self._line: deque[Callable[[], None]] = deque()
        self._loop = asyncio.get_running_loop()

    def line_up(self, take_turn: Callable[[], None]) -> None:
        """Call `take_turn` when all that wait already have had theirs."""
        self._line.append(take_turn)
        if len(self._line) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        take_turn = self._line.popleft()
        if self._line:
            self._loop.call_soon(self._next)
        take_turn()
