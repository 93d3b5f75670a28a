"""The RPC streams between this node and one peer.

libp2p keeps one long-lived stream per direction: we send on the one that we opened, and receive on
the one that the peer opened. What cannot be sent at once waits in a bounded queue, control before
data. When the queue is full a message is dropped, and the protocol is told.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rumormill.core.errors import DecodeError, LocalError
from rumormill.core.messages import WireMessage
from rumormill.node.connection import Connection
from rumormill.node.stream import ENDED, Stream
from rumormill.wire.frames import FrameReader

if TYPE_CHECKING:
    from rumormill.node.driver import Driver

QUEUE_FULL = "queue full"
_HELD_MESSAGES = 1024
"""Messages that may arrive before our own stream is open; a peer says hello, not more."""


class Channel:
    """The RPC streams to and from one peer."""

    def __init__(self, driver: "Driver", connection: Connection) -> None:
        self.driver = driver
        self.connection = connection
        self.peer = connection.remote_peer
        self.protocol = ""
        self.queued_bytes = 0
        self.waits_since: float | None = None
        """Since when the queue has not been empty."""
        self._stream: Stream | None = None
        self._urgent: deque[bytes] = deque()
        self._bulk: deque[bytes] = deque()
        self._rest: bytes | memoryview = b""
        self._early: list[WireMessage] = []
        self._held: list[Stream] = []

    @property
    def open(self) -> bool:
        """Whether the peer can be sent to."""
        return bool(self.protocol)

    @property
    def queued_messages(self) -> int:
        """RPCs that wait."""
        return len(self._urgent) + len(self._bulk)

    def start(self) -> None:
        """Open our stream to the peer."""
        try:
            self._stream = self.connection.open_stream(self.driver.protocol_ids, self)
        except LocalError:
            self.driver.on_channel_lost(self, "no stream")

    # Our stream: sending.

    def on_open(self, stream: Stream) -> None:
        """The peer speaks our protocol."""
        self.protocol = stream.protocol
        self.driver.on_channel_open(self)
        early, self._early = self._early, []
        for message in early:
            self.driver.receive(self.peer, message)
        for held in self._held:
            held.release()
        self._held.clear()

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Nothing is expected on our own stream; libp2p peers send nothing there."""

    def on_writable(self, stream: Stream) -> None:
        """There is room again."""
        self._pump()

    def on_close(self, stream: Stream, reason: str) -> None:
        """Without this stream the peer cannot be sent to."""
        if reason == ENDED:
            return  # the peer will send nothing here, which it never does; we still can
        self.protocol = ""
        self.driver.on_channel_lost(self, reason)

    def send(self, frame: bytes, *, urgent: bool) -> bool:
        """Send a framed RPC, or queue it; false when there is no room."""
        stream = self._stream
        if stream is None or not self.protocol:
            return False
        if not self._rest and not self._bulk and not self._urgent:
            taken = stream.send(frame)
            if taken < len(frame):
                self._rest = memoryview(frame)[taken:]
                self.waits_since = self.driver.now()
            return True
        config = self.driver.config
        if (
            self.queued_messages >= config.queue_messages
            or self.queued_bytes + len(frame) > config.queue_bytes
        ):
            return False
        (self._urgent if urgent else self._bulk).append(frame)
        self.queued_bytes += len(frame)
        return True

    def _pump(self) -> None:
        stream = self._stream
        if stream is None or not self.protocol:
            return
        while True:
            if not self._rest:
                queue = self._urgent or self._bulk
                if not queue:
                    self.waits_since = None
                    break
                self._rest = queue.popleft()
                self.queued_bytes -= len(self._rest)
            taken = stream.send(bytes(self._rest))
            if taken < len(self._rest):
                if taken:
                    self.waits_since = self.driver.now()
                self._rest = memoryview(self._rest)[taken:]
                break
            self._rest = b""
        self.driver.on_room(self)

    # The peer's stream: receiving.

    def accept(self, stream: Stream) -> "Incoming":
        """Take a stream that the peer opened."""
        return Incoming(self, stream)

    def receive(self, stream: Stream, messages: list[WireMessage]) -> None:
        """Hand on what arrived, or keep it until our own stream is open."""
        if self.protocol:
            receive, peer = self.driver.receive, self.peer
            for message in messages:
                receive(peer, message)
            return
        self._early.extend(messages)
        if len(self._early) > _HELD_MESSAGES:
            raise DecodeError("too-early", "a flood before the streams were open")
        if stream not in self._held:
            stream.hold()
            self._held.append(stream)


class Incoming:
    """Reads RPCs from a stream that the peer opened."""

    def __init__(self, channel: Channel, stream: Stream) -> None:
        self._channel = channel
        self._frames = FrameReader(channel.driver.max_frame)
        self._decode: Callable[[bytes], WireMessage] = channel.driver.decode

    def on_open(self, stream: Stream) -> None:
        """The peer speaks first."""

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Cut frames, decode them, hand them on."""
        frames = self._frames.feed(data)
        if frames:
            decode = self._decode
            self._channel.receive(stream, [decode(frame) for frame in frames])
        if self._frames.error is not None:
            raise self._frames.error

    def on_writable(self, stream: Stream) -> None:
        """Nothing is sent here."""

    def on_close(self, stream: Stream, reason: str) -> None:
        """The peer stopped sending; it may open another stream."""
        if reason == ENDED:
            stream.end()
        stream.connection.forget_stream(stream)
