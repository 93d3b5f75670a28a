"""A few messages to and fro on one stream, each behind its length, as a coroutine says them.

For protocols whose streams are short talks (relays, reachability, hole punching). The rule: what a
peer sends waits here up to one message's size; beyond that its window stays closed, until somebody
reads. After the last message the stream may become something else, which gets what came behind it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rumormill.core.errors import DecodeError, LocalError
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.stream import ENDED, Stream, StreamHandler
from rumormill.wire.frames import frame
from rumormill.wire.protobuf import read_varint

_MAX_PREFIX_BYTES = 3


class Dialogue(StreamHandler):
    """One talk. `stream` is there once it has begun."""

    stream: Stream

    def __init__(
        self,
        max_bytes: int,
        begun: Callable[["Dialogue"], None] = lambda _: None,
    ) -> None:
        self._max_bytes = max_bytes
        self._begun = begun
        self._came = bytearray()
        self._ended = ""
        self._change: asyncio.Future[None] | None = None
        self._open = self._over = False

    # The stream's side.

    def on_open(self, stream: Stream) -> None:
        """The talk begins."""
        self.stream, self._open = stream, True
        self._wake()
        self._begun(self)

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Keep what came until it is read, if it will be."""
        if self._over:
            return
        self._came += data
        if len(self._came) > self._max_bytes:
            stream.hold()
        self._wake()

    def on_close(self, stream: Stream, reason: str) -> None:
        """Nothing more comes."""
        self._ended = reason
        if reason != ENDED or self._over:
            stream.connection.forget_stream(stream)
        self._wake()

    def _wake(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def _wait(self) -> None:
        if self._ended:
            raise LocalError(f"the peer ended the talk: {self._ended}")
        self._change = asyncio.get_running_loop().create_future()
        await self._change

    # The coroutine's side.

    async def opened(self) -> None:
        """Wait until the peer has agreed to talk; LocalError if it does not."""
        while not self._open:
            await self._wait()

    async def read(self) -> bytes:
        """The next message; LocalError if none comes, DecodeError if it is too long."""
        while (found := self._cut()) is None:
            await self._wait()
        return found

    def _cut(self) -> bytes | None:
        came, most = self._came, self._max_bytes
        head = bytes(came[:_MAX_PREFIX_BYTES])
        if not head or (head[-1] >= 0x80 and len(head) < _MAX_PREFIX_BYTES):
            return None
        size, start = read_varint(head, 0, len(head))
        if size > most:
            raise DecodeError("frame-too-long", f"allowed are {most} bytes")
        if len(came) < start + size:
            return None
        message = bytes(came[start : start + size])
        del came[: start + size]
        if len(came) <= most:
            self.stream.release()
        return message

    def say(self, message: bytes) -> None:
        """Send a message; a peer that does not read a few of them is given up."""
        framed = frame(message)
        if self.stream.send(framed) < len(framed):
            self.stream.reset()

    def become(self, handler: StreamHandler) -> None:
        """End the talk: the stream is another handler's, which gets what came already."""
        self.stream.handler = handler
        self.stream.release()
        if self._came:
            handler.on_data(self.stream, bytes(self._came))
        if self._ended:
            handler.on_close(self.stream, self._ended)

    def end(self) -> None:
        """Say no more, and hear no more: what came behind the last word is forgotten, and the
        window stays closed until the peer ends the stream."""
        self._over = True
        self._came.clear()
        self.stream.hold()
        if self._ended in ("", ENDED):
            self.stream.end()
        if self._ended == ENDED:
            self.stream.connection.forget_stream(self.stream)

    def give_up(self) -> None:
        """Break off."""
        if self._open:
            self.stream.reset()


async def begin(connection: Connection, protocol: str, max_bytes: int) -> Dialogue:
    """Open a talk with a peer; LocalError if it does not speak the protocol."""
    dialogue = Dialogue(max_bytes)
    stream = connection.open_stream((protocol,), dialogue)
    try:
        await dialogue.opened()
    except BaseException:
        connection.drop_stream(stream)
        raise
    return dialogue


def answering(
    max_bytes: int,
    spawn: Callable[[Coroutine[Any, Any, None]], None],
    answer: Callable[[Connection, Dialogue], Coroutine[Any, Any, None]],
) -> Callable[[Connection, Stream], StreamHandler]:
    """A service whose streams are talks, each of them a coroutine's."""

    def serve(connection: Connection, _: Stream) -> StreamHandler:
        return Dialogue(max_bytes, lambda dialogue: spawn(answer(connection, dialogue)))

    return serve
