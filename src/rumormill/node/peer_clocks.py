"""What time peers have: whoever opens a stream of `/rumormill/clock/1.0.0` is told ours.

The answer is eight bytes, the milliseconds since 1970, big-endian, and the end of the stream.
Nobody follows another's clock: the answers are for people, who set their own.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from rumormill.core.api import PeerClock
from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.stream import ENDED, Stream, StreamHandler
from rumormill.wire.keys import PeerId

CLOCK: Final = "/rumormill/clock/1.0.0"
_BYTES: Final = 8
_MOST_ASKED: Final = 32
"""Our choice: more do not make it clearer whose clock is wrong."""


class TellTime(StreamHandler):
    """Tells the peer our time, and ends."""

    def on_open(self, stream: Stream) -> None:
        """Send the one message of this protocol."""
        stream.send(max(0, int(time.time() * 1000)).to_bytes(_BYTES))
        stream.end()

    def on_close(self, stream: Stream, reason: str) -> None:
        """Forget the stream once the peer has ended it too."""
        stream.connection.forget_stream(stream)


class _AskTime(StreamHandler):
    def __init__(self) -> None:
        self.answer: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self._came = b""

    def on_open(self, stream: Stream) -> None:
        stream.end()

    def on_data(self, stream: Stream, data: bytes) -> None:
        self._came += data
        if len(self._came) > _BYTES:
            raise PeerError("bad-clock", "a time is eight bytes")

    def on_close(self, stream: Stream, reason: str) -> None:
        stream.connection.forget_stream(stream)
        whole = reason == ENDED and len(self._came) == _BYTES
        if not self.answer.done():
            self.answer.set_result(int.from_bytes(self._came) / 1000 if whole else None)


async def ask_clocks(connections: Iterable[Connection], seconds: float) -> list[PeerClock]:
    """How far the clocks of those peers who tell are ahead of ours."""
    asked = [each for each in connections if each.spoken is not None and CLOCK in each.spoken]
    found = await asyncio.gather(*(_ask(each, seconds) for each in asked[:_MOST_ASKED]))
    return [each for each in found if each is not None]


async def _ask(connection: Connection, seconds: float) -> PeerClock | None:
    asking, before = _AskTime(), time.monotonic()
    stream = None
    try:
        stream = connection.open_stream((CLOCK,), asking)
        async with asyncio.timeout(seconds):
            theirs = await asking.answer
    except (LocalError, TimeoutError):
        if stream is not None:
            connection.drop_stream(stream)
        return None
    if theirs is None:
        return None
    within = (time.monotonic() - before) / 2
    ahead = theirs - (time.time() - within)
    return PeerClock(PeerId(connection.remote_peer), ahead, within)
