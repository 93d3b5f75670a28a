"""WebSocket (RFC 6455) as a pipe for bytes: what libp2p says over `/ws`, one side of it.

Binary frames carry the bytes, and where one ends means nothing. The package `websockets`, without
its sockets, reads and writes HTTP and frames; what is here are the rules around it. A request that
is none for a WebSocket is answered with HTTP's refusal. Heads, frames and crowds of frames that
bring nothing have their limits, looked at before much is read; text is refused. Who waits for bytes
holds one frame at most.
"""

from typing import Final

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from rumormill.core.errors import PeerError
from rumormill.core.rate_limit import RateLimit

NOT_WEBSOCKET: Final = "not-websocket"
BAD_FRAME: Final = "bad-websocket-frame"
TINY_FRAMES: Final = "tiny-websocket-frames"

MAX_HEAD_BYTES: Final = 8 * 1024
"""What HTTP may take before there is a WebSocket. Our choice: a browser sends less than one KiB."""
MAX_FRAME_BYTES: Final = 1 << 20
"""Of a frame, and of the frames of one message. Our choice: libp2p's own are 64 KiB or less."""
TINY_BYTES: Final = 64
TINY: Final = (2000.0, 4000.0)
"""Frames of less than so many bytes, and pings and pongs of any size, a second and at once: reading
one costs as much as one that brings something. Our choice: pings and windows of a busy connection
are a tenth of it."""
MAX_EARLY: Final = 256
"""Such frames of a stranger. Our choice: a handshake takes less than ten."""
_PIECE: Final = 4 * 1024
"""Bytes that are parsed before their frames are counted: some hundred frames of none."""


class WebSocketSession:
    """One side of a WebSocket: opened by a request, then bytes in and out, then closed."""

    def __init__(self, host: str = "") -> None:
        """Ask a host, with its port, for a WebSocket; without one, wait to be asked."""
        self.opened = False
        self.ended = False
        """Whether the peer has said that nothing more comes."""
        self.useless = 0
        """Frames that brought nothing, for those who judge a peer."""
        self._head_bytes = 0
        self._seen = b""
        """The last bytes of what has come of the head, which may begin its end."""
        self._held: list[bytes] = []
        """What is to be sent when it is open."""
        self._tiny = RateLimit(*TINY)
        self._early = 0
        """Tiny frames that came before anybody knew who sends them."""
        self._server: ServerProtocol | None = None
        self._protocol: ServerProtocol | ClientProtocol
        if host:
            client = ClientProtocol(parse_uri(f"ws://{host}/"), max_size=MAX_FRAME_BYTES)
            client.send_request(client.connect())
            self._protocol = client
        else:
            self._protocol = self._server = ServerProtocol(max_size=MAX_FRAME_BYTES)

    def send(self, data: bytes) -> None:
        """Queue bytes for the peer."""
        if not self.opened:
            self._held.append(data)
        elif data and self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)

    def close(self) -> None:
        """Say that nothing more comes."""
        if self.opened and self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)

    def data_to_send(self) -> bytes:
        """Return and forget the bytes that wait to be sent."""
        return b"".join(self._protocol.data_to_send())

    def receive(self, data: bytes, now: float, *, known: bool = True) -> bytes:
        """Take bytes from the peer, who is `known` or a stranger; return what it says.

        A PeerError is final.
        """
        if self.opened:
            return self._take_all(data, now, known=known)
        # What lies behind the head is of use only when the head has been accepted.
        seen, self._seen = self._seen, (self._seen + data)[-3:]
        end = (seen + data).find(b"\r\n\r\n")
        head = len(data) if end < 0 else end + 4 - len(seen)
        self._head_bytes += head
        self._take(data[:head], now, known=known)
        if not self.opened and self._head_bytes > MAX_HEAD_BYTES:
            raise PeerError(NOT_WEBSOCKET, "an HTTP head without end")
        return self._take_all(data[head:], now, known=known) if data[head:] else b""

    def _take_all(self, data: bytes, now: float, *, known: bool) -> bytes:
        """Piece by piece: a crowd of frames is refused before all of it has been parsed."""
        if len(data) <= _PIECE:
            return self._take(data, now, known=known)
        pieces = range(0, len(data), _PIECE)
        return b"".join(
            self._take(data[start : start + _PIECE], now, known=known) for start in pieces
        )

    def _take(self, data: bytes, now: float, *, known: bool) -> bytes:
        protocol = self._protocol
        protocol.receive_data(data)
        said = []
        for event in protocol.events_received():
            if self.opened:
                said.append(self._payload(event, now, known=known))
            else:
                self._open(event)
        if protocol.handshake_exc is not None:
            raise PeerError(NOT_WEBSOCKET, str(protocol.handshake_exc))
        if protocol.parser_exc is not None:
            raise PeerError(BAD_FRAME, str(protocol.parser_exc))
        self.ended |= protocol.close_rcvd is not None
        return b"".join(said)

    def _open(self, event: object) -> None:
        """Accept a request, or take note that ours was accepted."""
        server = self._server
        if server is not None:
            response = server.accept(event)  # type: ignore[arg-type]
            server.send_response(response)
        if self._protocol.handshake_exc is None:
            self.opened = True
            held, self._held = self._held, []
            self.send(b"".join(held))

    def _payload(self, frame: object, now: float, *, known: bool) -> bytes:
        """What a frame brings."""
        assert isinstance(frame, Frame)
        if frame.opcode is Opcode.TEXT:
            raise PeerError(BAD_FRAME, "a frame of text")
        carries = frame.opcode in (Opcode.BINARY, Opcode.CONT)
        self.useless += not (carries and frame.data)
        if not carries or len(frame.data) < TINY_BYTES:
            self._early += not known
            if self._early > MAX_EARLY or not self._tiny.take(now):
                raise PeerError(TINY_FRAMES, "a crowd of tiny frames")
        return bytes(frame.data) if carries else b""
