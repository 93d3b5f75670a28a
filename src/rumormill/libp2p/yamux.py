"""yamux: many streams over one connection, each with its own flow control.

A frame is a header of 12 bytes (version, type, flags, stream, length) and, for data, a body. Either
side opens streams: the client has odd numbers, the server even ones; number 0 is the session. A
stream's sender may have at most its window outstanding: 256 KiB at first, more when the receiver
says so. Half-closing is FIN, giving up is RST.

How bytes flow here. `receive` takes whatever arrived, many frames or half of one, and returns
events in order; bodies are handed on as they come. Of many frames it takes so many at a time: the
others wait, as `unread` says, until the caller has time for them.
The caller reports with `consumed` what it is done with, and the window is reopened in halves: one
update per 128 KiB, not one per message. `send` queues bytes up to a limit and says how many it
took; `data_to_send` joins all that waits on a stream into as few frames as window and frame size
allow, one frame per stream in turn. A stream that was refused bytes shows up in `take_writable`
when there is room again.

Rules kept here: every length is checked before anything is done with it; data beyond the credit, a
wrong number, unknown types and flags end the session with a PeerError (a go-away is then waiting in
`data_to_send`); streams beyond a limit are reset and counted in `drops`, which has a name for each
reason; frames that bring nothing are counted in `useless`, for those who judge a peer, but not what
was under way when a stream ended; queues for answers are bounded, so a peer that floods and does
not read is refused.
"""

import struct
from collections import Counter
from typing import Final

from rumormill.core.errors import LimitError, LocalError, PeerError
from rumormill.libp2p.yamux_types import (
    CRUMB_BYTES,
    HEADER_BYTES,
    INITIAL_WINDOW_BYTES,
    RESET_BY_PEER,
    DataReceived,
    Event,
    GoAwayCode,
    GoneAway,
    PingAnswered,
    StreamEnded,
    StreamOpened,
    StreamReset,
    StreamState,
    Worth,
    YamuxConfig,
)

YAMUX: Final = "/yamux/1.0.0"

_DATA, _WINDOW_UPDATE, _PING, _GO_AWAY = 0, 1, 2, 3
_SYN, _ACK, _FIN, _RST = 1, 2, 4, 8
_ALL_FLAGS = _SYN | _ACK | _FIN | _RST
_MAX_WINDOW_BYTES = 2**32 - 1
_MAX_STREAM_ID = 2**32 - 1
_FRAMES_AT_A_TIME = 64
"""Our choice: about a millisecond's work if all of them open streams."""

# Version and type read as one number: the version is 0, so it equals the type.
_header = struct.Struct(">HHII")
_pack_header = _header.pack
_unpack_header = _header.unpack_from


class YamuxSession(Worth):
    """One side of a yamux connection."""

    def __init__(self, *, client: bool, config: YamuxConfig | None = None) -> None:
        """Start a session; the side that dialled is the client."""
        super().__init__()
        self.config = config or YamuxConfig()
        self.config.validate()
        self._max_stream_queue = self.config.max_stream_queue
        self._max_session_queue = self.config.max_session_queue
        self._max_data_frame = self.config.max_data_frame
        self._max_unconsumed = self.config.max_session_unconsumed
        self.drops: Counter[str] = Counter()
        """How many frames or streams were dropped or refused, by reason."""
        self._own_parity = 1 if client else 0
        self._next_id = 1 if client else 2
        self._streams: dict[int, StreamState] = {}
        self._inbound = self._inbound_backlog = self._outbound_backlog = 0
        self._ready: dict[int, StreamState] = {}  # has data or FIN to send, and window for it
        self._starved: dict[int, StreamState] = {}  # was refused bytes by send
        self._control = bytearray()
        self._queued = self._unconsumed = 0
        self._header_part = b""  # an unfinished header, or frames that wait
        self._ended_now: dict[int, None] = {}  # streams that ended in what is being received
        self._body_stream: StreamState | None = None  # None while a body is skipped
        self._body_left = 0
        self._body_ends = False  # the frame of the current body has FIN
        self._gone: dict[int, int] = {}  # streams, and how many frames of each may be under way
        self._pings: dict[int, None] = {}
        self._failure: PeerError | None = None
        self._gone_away = self._remote_gone_away = False

    # What the application asks for

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be sent on all streams, for room or for the peer's window."""
        return self._queued

    @property
    def has_output(self) -> bool:
        """Whether there is anything to send, or somebody to be told of room."""
        return bool(self._control or self._ready or self._starved)

    def open_stream(self) -> int:
        """Open a stream; it may be sent on at once. LimitError when there are too many."""
        config = self.config
        if self._gone_away or self._remote_gone_away:
            raise LocalError("the session is going away")
        if len(self._streams) - self._inbound >= config.max_outbound_streams:
            raise LimitError(f"{config.max_outbound_streams} streams are open")
        if self._outbound_backlog >= config.max_ack_backlog:
            raise LimitError(f"{config.max_ack_backlog} streams wait for the peer to accept them")
        stream_id = self._next_id
        if stream_id > _MAX_STREAM_ID:
            raise LimitError("all stream numbers of this session are used up")
        self._next_id = stream_id + 2
        stream = self._streams[stream_id] = StreamState(stream_id, config.receive_window)
        stream.announced = False  # goes with what is sent on it first
        self._ready[stream_id] = stream
        self._outbound_backlog += 1
        return stream_id

    def accept(self, stream_id: int) -> None:
        """Acknowledge a stream that the peer opened; sending or consuming does so too."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.acknowledged or stream_id & 1 == self._own_parity:
            return
        stream.acknowledged = True
        self._inbound_backlog -= 1
        extra = self.config.receive_window - INITIAL_WINDOW_BYTES
        stream.credit += extra
        self._control += _pack_header(_WINDOW_UPDATE, _ACK, stream_id, extra)

    def send(self, stream_id: int, data: bytes) -> int:
        """Queue bytes on a stream; return how many were taken, from none to all."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.fin_queued:
            raise LocalError(f"stream {stream_id} is closed for sending")
        if not stream.acknowledged:
            self.accept(stream_id)
        size = len(data)
        outgoing = stream.outgoing
        room = self._max_stream_queue - len(outgoing)
        if size > room or size > self._max_session_queue - self._queued:
            size = min(room, self._max_session_queue - self._queued)
            data = data[:size]
            self._starved[stream_id] = stream
        if size:
            outgoing += data
            self._queued += size
            if stream.window:
                self._ready[stream_id] = stream
        return size

    def end(self, stream_id: int) -> None:
        """Half-close: what is queued is still sent, then FIN."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.fin_queued:
            stream.fin_queued = True
            self._starved.pop(stream_id, None)
            if stream.window or not stream.outgoing:
                self._ready[stream_id] = stream

    def reset(self, stream_id: int) -> None:
        """Give a stream up: what is queued is dropped, and the peer is told if it knows of it."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            if stream.announced:
                self._control += _pack_header(_WINDOW_UPDATE, _RST, stream_id, 0)
            self._forget(stream)

    def consumed(self, stream_id: int, size: int) -> None:
        """Say that the application is done with `size` bytes that it received."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if size > stream.unconsumed:
            raise LocalError("more was consumed than was received")
        stream.unconsumed -= size
        self._unconsumed -= size
        if stream.remote_ended:
            return
        if not stream.acknowledged:
            self.accept(stream_id)
        total = stream.consumed = stream.consumed + size
        if total * 2 >= self.config.receive_window:
            stream.consumed = 0
            stream.credit += total
            self._control += _pack_header(_WINDOW_UPDATE, 0, stream_id, total)

    def ping(self, value: int) -> None:
        """Send a ping with a 32-bit value; a PingAnswered with the same value follows."""
        if len(self._pings) >= self.config.max_pings:
            raise LimitError(f"{self.config.max_pings} pings are unanswered")
        self._pings[value] = None
        self._control += _pack_header(_PING, _SYN, 0, value)

    def go_away(self, code: GoAwayCode = GoAwayCode.NORMAL) -> None:
        """Tell the peer that no stream will be opened or accepted any more."""
        if not self._gone_away:
            self._gone_away = True
            self._control += _pack_header(_GO_AWAY, 0, 0, code)

    # What goes out

    def data_to_send(self, limit: int = 256 * 1024) -> bytes:
        """Return bytes for the peer, about `limit` at most; call again until there are none."""
        ready = self._ready
        parts: list[bytes | bytearray] = []
        if self._control:
            parts.append(self._control)
            self._control = bytearray()
        total = 0
        while ready and total < limit:
            # One frame per stream, then the next: a bulk transfer does not hold up the others.
            for stream in list(ready.values()):
                total += self._write_frame(stream, parts)
                if total >= limit:
                    break
        return b"".join(parts)

    def take_writable(self) -> list[int]:
        """Return the streams that were refused bytes and now have room; each is told once."""
        if not self._starved or self._queued * 2 > self.config.max_session_queue:
            return []
        room = self.config.max_stream_queue // 2
        writable = [number for number, it in self._starved.items() if len(it.outgoing) <= room]
        for stream_id in writable:
            del self._starved[stream_id]
        return writable

    def _write_frame(self, stream: StreamState, parts: list[bytes | bytearray]) -> int:
        """Write one data frame of a ready stream; it goes to the back of the line, or out of it.

        A FIN gets a frame of its own, as go and js send it: js-libp2p closes a stream for reading
        at a FIN before it looks at the data in the same frame.
        """
        stream_id = stream.stream_id
        outgoing = stream.outgoing
        queued = len(outgoing)
        window = stream.window
        del self._ready[stream_id]
        if queued <= window and queued <= self._max_data_frame:
            size, body = queued, outgoing
            stream.outgoing = bytearray()
            stream.fin_sent = stream.fin_queued
        else:
            size = min(window, self._max_data_frame)
            body = outgoing[:size]
            del outgoing[:size]
            if window > size:
                self._ready[stream_id] = stream
        stream.window = window - size
        self._queued -= size
        if not stream.announced:
            stream.announced = True
            extra = self.config.receive_window - INITIAL_WINDOW_BYTES
            parts.append(_pack_header(_WINDOW_UPDATE, _SYN, stream_id, extra))
        if size:
            parts.append(_pack_header(_DATA, 0, stream_id, size))
            parts.append(body)
        if stream.fin_sent:
            parts.append(_pack_header(_WINDOW_UPDATE, _FIN, stream_id, 0))
            if stream.remote_ended:
                self._forget(stream)
        return HEADER_BYTES + size

    # What comes in

    @property
    def unread(self) -> bool:
        """Whether frames wait for another call of `receive`."""
        return not self._body_left and len(self._header_part) >= HEADER_BYTES

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes from the peer; return what they mean, in order."""
        if self._failure is not None:
            raise self._failure
        self._ended_now.clear()
        try:
            return self._receive(data)
        except PeerError as failure:
            self._failure = failure
            self.go_away(GoAwayCode.PROTOCOL_ERROR)
            raise

    def _receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        streams = self._streams
        position, end = 0, len(data)
        if self._body_left:
            position = self._take_body(data, 0, events)
        elif self._header_part:
            data = self._header_part + data
            end = len(data)
        left = _FRAMES_AT_A_TIME
        while end - position >= HEADER_BYTES and left:
            left -= 1
            kind, flags, stream_id, length = _unpack_header(data, position)
            position += HEADER_BYTES
            if kind == _DATA:
                if flags == 0 and (stream := streams.get(stream_id)) is not None:
                    stream = self._charge(stream, length, events)
                else:
                    stream = self._on_data(flags, stream_id, length, events)
                stop = position + length
                if stream is not None and stop <= end and not flags & _FIN:
                    if length:
                        events.append(DataReceived(stream_id, data[position:stop]))
                    else:
                        self.useless += 1
                    position = stop
                    continue
                self._body_stream, self._body_left = stream, length
                self._body_ends = bool(flags & _FIN)
                position = self._take_body(data, position, events)
            else:
                self._on_control(kind, flags, stream_id, length, events)
        self._header_part = data[position:]
        return events

    def _take_body(self, data: bytes, position: int, events: list[Event]) -> int:
        """Hand on, or skip, as much of the current body as is here."""
        part = data[position : position + self._body_left]
        self._body_left -= len(part)
        stream = self._body_stream
        # The stream may be gone by now: reset by us while the body was still arriving.
        if stream is not None and self._streams.get(stream.stream_id) is stream:
            if part:
                events.append(DataReceived(stream.stream_id, part))
            if self._body_ends and not self._body_left:
                self._on_end(stream, events)
        return position + len(part)

    def _charge(self, stream: StreamState, length: int, events: list[Event]) -> StreamState | None:
        """Book a body that the peer is about to send; return the stream if it may have it."""
        if length > stream.credit:
            raise PeerError("window-exceeded", f"{length} bytes with a credit of {stream.credit}")
        if stream.remote_ended and length:
            raise PeerError("data-after-fin", "data on a stream that the peer has ended")
        if length < CRUMB_BYTES:
            self.note_crumbs()
        stream.credit -= length
        stream.unconsumed += length
        self._unconsumed += length
        if self._unconsumed <= self._max_unconsumed:
            return stream
        self.drops["session-full"] += 1
        self.reset(stream.stream_id)
        events.append(StreamReset(stream.stream_id, "session-full"))
        return None

    def _on_data(
        self, flags: int, stream_id: int, length: int, events: list[Event]
    ) -> StreamState | None:
        """Handle a data header that is not plain; return the stream that gets the body, if any."""
        stream = self._on_flags(flags, stream_id, events)
        if stream is not None:
            return self._charge(stream, length, events)
        # A body for a stream that we have refused or given up: the peer may not know yet, but it
        # never had more credit than this.
        if length > self.config.receive_window:
            raise PeerError("window-exceeded", f"{length} bytes for a stream that is not open")
        return None

    def _on_control(
        self, kind: int, flags: int, stream_id: int, value: int, events: list[Event]
    ) -> None:
        if kind == _WINDOW_UPDATE:
            stream = self._on_flags(flags, stream_id, events)
            if stream is not None:
                self.useless += not (flags or value)
                self._on_window_update(stream, value)
                if flags & _FIN:
                    self._on_end(stream, events)
        elif kind > 0xFF:
            raise PeerError("bad-version", f"yamux version {kind >> 8}")
        elif kind not in (_PING, _GO_AWAY):
            raise PeerError("unknown-type", f"frame type {kind}")
        elif stream_id != 0:
            raise PeerError("bad-stream", "a ping or go-away that belongs to a stream")
        elif kind == _GO_AWAY:
            self._remote_gone_away = True
            events.append(GoneAway(value))
        elif flags == _SYN:
            self.useless += 1
            self._answer(_PING, _ACK, 0, value)
        elif flags != _ACK:
            raise PeerError("unknown-flags", f"a ping with flags {flags:#x}")
        elif value in self._pings:
            del self._pings[value]
            events.append(PingAnswered(value))
        else:
            self.drops["unasked-pong"] += 1
            self.useless += 1

    def _on_window_update(self, stream: StreamState, size: int) -> None:
        self.note_crumbs(size < CRUMB_BYTES)
        window = stream.window + size
        if window > _MAX_WINDOW_BYTES:
            raise PeerError("window-overflow", "a window of more than 4 GiB")
        stream.window = window
        if window and stream.outgoing:
            self._ready[stream.stream_id] = stream

    def _on_flags(self, flags: int, stream_id: int, events: list[Event]) -> StreamState | None:
        """Open, acknowledge or reset a stream as the flags say; return it if it lives."""
        if flags & ~_ALL_FLAGS:
            raise PeerError("unknown-flags", f"flags {flags:#x}")
        if stream_id == 0:
            raise PeerError("bad-stream", "data or window on the session's own number")
        if flags & _SYN:
            return self._on_syn(flags, stream_id, events)
        stream = self._streams.get(stream_id)
        if stream is None:
            if stream_id & 1 == self._own_parity and stream_id >= self._next_id:
                raise PeerError("bad-stream", f"a frame for stream {stream_id}, never opened")
            left = self._gone.pop(stream_id, 0)
            if left > 1 and not flags & _RST:
                self._gone[stream_id] = left - 1
            self.drops["gone-stream" if left else "unknown-stream"] += 1
            self.useless += not left
            return None
        if flags & _ACK and stream_id & 1 == self._own_parity and not stream.acknowledged:
            stream.acknowledged = True
            self._outbound_backlog -= 1
        if flags & _RST:
            self.useless += 1
            self._forget(stream)
            del self._gone[stream_id]  # nothing follows
            events.append(StreamReset(stream_id, RESET_BY_PEER))
            return None
        return stream

    def _on_syn(self, flags: int, stream_id: int, events: list[Event]) -> StreamState | None:
        if flags & (_ACK | _RST):
            raise PeerError("contradicting-flags", f"a new stream with flags {flags:#x}")
        if stream_id & 1 == self._own_parity:
            raise PeerError("bad-stream", f"stream {stream_id} is not the peer's to open")
        # The events of one call name streams by number, so a number means one stream in them.
        if stream_id in self._streams or stream_id in self._ended_now:
            raise PeerError("duplicate-stream", f"stream {stream_id} is open already")
        if self._gone_away:
            refusal = "going-away"
        elif self._inbound >= self.config.max_inbound_streams:
            refusal = "too-many-streams"
        elif self._inbound_backlog >= self.config.max_ack_backlog:
            refusal = "ack-backlog"
        else:
            if len(self._control) > self.config.max_control_bytes:
                raise PeerError("unread-answers", "the peer opens streams and does not read")
            stream = self._streams[stream_id] = StreamState(stream_id, INITIAL_WINDOW_BYTES)
            self._inbound += 1
            self._inbound_backlog += 1
            events.append(StreamOpened(stream_id))
            return stream
        self.drops[refusal] += 1
        self.useless += 1
        self._answer(_WINDOW_UPDATE, _RST, stream_id, 0)
        return None

    def _on_end(self, stream: StreamState, events: list[Event]) -> None:
        if not stream.remote_ended:
            stream.remote_ended = True
            events.append(StreamEnded(stream.stream_id))
            if stream.fin_sent:
                self._forget(stream)

    def _answer(self, kind: int, flags: int, stream_id: int, value: int) -> None:
        """Queue a frame that the peer has provoked; a peer that reads none of them is refused."""
        if len(self._control) > self.config.max_control_bytes:
            raise PeerError("unread-answers", "the peer asks and does not read")
        self._control += _pack_header(kind, flags, stream_id, value)

    def _forget(self, stream: StreamState) -> None:
        """Remove a stream and everything that was counted for it."""
        stream_id = stream.stream_id
        del self._streams[stream_id]
        self._ended_now[stream_id] = None
        self._gone[stream_id] = self.config.late_frames
        if len(self._gone) > self.config.max_gone:
            del self._gone[next(iter(self._gone))]
        self._ready.pop(stream_id, None)
        self._starved.pop(stream_id, None)
        self._queued -= len(stream.outgoing)
        self._unconsumed -= stream.unconsumed
        own = stream_id & 1 == self._own_parity
        self._inbound -= not own
        if not stream.acknowledged:
            self._outbound_backlog -= own
            self._inbound_backlog -= not own
