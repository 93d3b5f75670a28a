"""Turns: how long the bytes of one connection are worked on before others have theirs.

A connection works through what it has read for some milliseconds; what is left waits in a line, and
each time the event loop comes round, the first in the line works on. So those that send more than
we can handle share one turn of the loop among them, however many they are, and whoever sends little
is seen to as soon as it is read.

A turn in which the peer is found to misbehave is over soon. One that brings new events goes on for
longer, because short turns tear bursts apart: they are stored and answered in many small pieces.
Who is behind and has brought nothing new has half as long the next time, and twice as long when it
has caught up: what is worth nothing to us is the less felt by others, the more there is of it.
Newcomers begin with little, and strangers, whose handshake is not done, wait in the line.

Python runs one thread at a time, and a busy one lets others in after five milliseconds only. So
when nobody in the line has brought anything new, and the log is at work in a thread of its own, the
line rests for a moment: what others have sent is stored as fast as if nobody were behind.
"""

import asyncio
from collections import deque
from collections.abc import Callable

TURN = 0.008
LONG_TURN = 0.02
LEAST_TURN = 0.001
SHORT_TURN = 0.0005
"""Seconds; our choice: a fifth of what the loop may ever be kept for who brings new events, less
for others, in the end ten times what the loop's own work is, and for who misbehaves still dozens of
the frames that floods are made of."""
REST = 0.001
RESTS = 4
"""Seconds of a rest, and how many there are one after the other; our choice: a commit takes two or
three milliseconds of which its thread does not let go, and who is behind has a turn in five of a
log that is always at work."""


class Turn:
    """The turn of one connection."""

    __slots__ = ("_latest", "_length", "began", "ends", "fruitful")

    def __init__(self) -> None:
        self.began = self._latest = 0.0
        self.ends = 0.0
        """When it is over, by the loop's clock: who has more to do stops, and is `unread`."""
        self.fruitful = False
        """Whether the peer has brought what is new."""
        self._length = LEAST_TURN

    def begin(self, now: float, *, behind: bool) -> None:
        """The connection has its turn, another one of what it has read if it is behind."""
        if self.fruitful:
            self._length = TURN
        elif behind:
            self._length = max(self._length / 2, LEAST_TURN)
        else:
            self._length = min(self._length * 2, TURN)
        self.fruitful = False
        self.began, self.ends, self._latest = now, now + self._length, now + LONG_TURN

    def extend(self) -> None:
        """The peer brings what is new: see to others later."""
        self.fruitful = True
        self.ends = min(self.ends + TURN, self._latest)

    def shorten(self) -> None:
        """The peer misbehaves: see to others sooner."""
        self._latest = self.began + SHORT_TURN
        self.ends = min(self.ends, self._latest)

    def end(self) -> None:
        """There is nothing more to do, whatever is left."""
        self.ends = self._latest = 0.0


READ_BYTES = 256 * 1024
"""What is read from a socket at a time, as asyncio has it. A buffer of this size for every read
would come from the kernel and go back to it each time."""


class Turns:
    """The line of a node's connections that have more to do."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_BYTES))
        """Where all of them read to, one at a time."""
        self.others_work: Callable[[], bool] = lambda: False
        """Whether another thread is at work that those are to make room for who bring nothing."""
        self._line: deque[tuple[Callable[[], None], bool]] = deque()
        self.fruitful = self._rests = 0
        """How many in the line have brought what is new, and the rests since the last turn."""
        self._loop = asyncio.get_running_loop()

    def line_up(self, take_turn: Callable[[], None], *, fruitful: bool) -> None:
        """Call `take_turn` when all that wait already have had theirs."""
        self._line.append((take_turn, fruitful))
        self.fruitful += fruitful
        if len(self._line) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        if not self.fruitful and self._rests < RESTS and self.others_work():
            self._rests += 1
            self._loop.call_later(REST, self._next)
            return
        self._rests = 0
        take_turn, fruitful = self._line.popleft()
        self.fruitful -= fruitful
        if self._line:
            self._loop.call_soon(self._next)
        take_turn()
