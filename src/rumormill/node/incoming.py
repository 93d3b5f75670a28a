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
        """What waits for the connection's next turn."""
        self._part = 0
        """Bytes of an RPC that has come in part."""

    @property
    def unread(self) -> bool:
        """Whether RPCs wait to be read."""
        return bool(self._waiting or self._reader.unread)

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Cut frames and hand them on, until they are done or the connection's turn is over."""
        stream.connection.active = True
        reader, waiting = self._reader, self._waiting
        if data or not waiting:
            waiting += self._cut(reader.feed(data))
        anew = bool(waiting)
        while waiting:
            del waiting[: self.channel.receive(stream, waiting)]
            if waiting or not reader.unread:
                break
            waiting += self._cut(reader.feed(b""))
        self.channel.pace(stream)
        if reader.held or self._part:
            self._part = reader.held
            self.channel.note_part(stream, self._part, anew=anew)
        if reader.error is not None and not waiting:
            raise reader.error

    def _cut(self, frames: list[bytes]) -> Sequence[Read]:
        if not frames or max(map(len, frames)) <= LARGE:
            return frames
        cut: list[Read] = []
        for frame in frames:
            try:
                cut += self.channel.parts(frame) if len(frame) > LARGE else (frame,)
            except PeerError:
                cut.append(frame)  # and said again when it is read, behind those before it
        return cut

    def on_close(self, stream: Stream, reason: str) -> None:
        """The peer stopped sending; it may open another stream."""
        if reason == ENDED:
            stream.end()
        stream.connection.forget_stream(stream)
        self.channel.on_incoming_closed(stream)
