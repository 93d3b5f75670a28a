"""The stream on which a peer sends RPCs: cut into frames, in pieces that a turn has time for.

Bytes may hold many RPCs, and one RPC thousands of messages. Both are handed on until the turn of
their connection is over, and what is left waits for the next. A large RPC is handed on in parts for
that, as if its sender had sent several.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from rumormill.core.errors import PeerError
from rumormill.core.messages import WireMessage
from rumormill.libp2p.stream import ENDED, Stream, StreamHandler
from rumormill.wire.frames import FrameReader

Read: TypeAlias = bytes | WireMessage
"""The frame of an RPC, or a part of a large one."""

LARGE: Final = 16 << 10
"""Bytes; our choice: what is smaller has no more than some hundred signatures."""


class _Channel(Protocol):
    """What the stream belongs to."""

    @property
    def max_frame(self) -> int: ...

    @property
    def open(self) -> bool: ...

    def receive(self, stream: Stream, arrived: Sequence[Read]) -> int: ...

    def parts(self, frame: bytes) -> list[Read]: ...

    def pace(self, stream: Stream) -> None: ...

    def note_part(self, stream: Stream, size: int, *, anew: bool) -> None: ...

    def on_incoming_closed(self, stream: Stream) -> None: ...


class Incoming(StreamHandler):
    """Reads RPCs from a stream that the peer opened."""

    def __init__(self, channel: _Channel) -> None:
        self.channel = channel
        self._reader = FrameReader(channel.max_frame)
        self._waiting: list[Read] = []
        """What waits for the connection's next turn, or for our own stream to be open."""
        self._uncut = False
        """Whether some of it is as it came: before that it is only read to be judged."""
        self._part = 0
        """Bytes of an RPC that has come in part."""

    @property
    def unread(self) -> bool:
        """Whether RPCs wait to be read, and can be."""
        return self.channel.open and bool(self._waiting or self._reader.unread)

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Cut frames and hand them on, until they are done or the connection's turn is over."""
        stream.connection.active = True
        reader, waiting = self._reader, self._waiting
        if self._uncut and self.channel.open:
            self._uncut = False
            waiting[:] = self._cut(waiting)
        if data or not waiting:
            waiting += self._cut(reader.feed(data))
        anew = bool(waiting)
        while waiting:
            del waiting[: self.channel.receive(stream, waiting)]
            if waiting or not reader.unread:
                break
            waiting += self._cut(reader.feed(b""))
        self.channel.pace(stream)
        held = reader.held + (sum(map(_size, waiting)) if self._uncut else 0)
        if held or self._part:
            self._part = held
            self.channel.note_part(stream, held, anew=anew)
        if reader.error is not None and not waiting:
            raise reader.error

    def _cut(self, frames: Sequence[Read]) -> Sequence[Read]:
        if not self.channel.open:
            self._uncut = True
            for frame in frames:
                self.channel.parts(frame)  # type: ignore[arg-type]
        if self._uncut or max(map(_size, frames), default=0) <= LARGE:
            return frames
        cut: list[Read] = []
        for frame in frames:
            try:
                large = isinstance(frame, bytes) and len(frame) > LARGE
                cut += self.channel.parts(frame) if large else (frame,)  # type: ignore[arg-type]
            except PeerError:
                cut.append(frame)  # and said again when it is read, behind those before it
        return cut

    def on_close(self, stream: Stream, reason: str) -> None:
        """The peer stopped sending; it may open another stream."""
        if reason == ENDED:
            stream.end()
        stream.connection.forget_stream(stream)
        self.channel.on_incoming_closed(stream)


def _size(read: Read) -> int:
    return len(read) if isinstance(read, bytes) else 0
