"""What a yamux session says and how far it goes: its events, its limits, its constants."""

import enum
from typing import Final

import msgspec

from rumormill.core.errors import ConfigError

HEADER_BYTES: Final = 12

INITIAL_WINDOW_BYTES: Final = 256 * 1024
"""From the specification: every stream starts with this window on both sides."""

_MAX_RECEIVE_WINDOW = 16 * 1024 * 1024


class GoAwayCode(enum.IntEnum):
    """Why a session ends."""

    NORMAL = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2


class StreamOpened(msgspec.Struct, frozen=True, gc=False):
    """The peer opened a stream; answer with `accept` or `reset`."""

    stream_id: int


class DataReceived(msgspec.Struct, frozen=True, gc=False):
    """Bytes of a stream; report them with `consumed` when done with them."""

    stream_id: int
    data: bytes


class StreamEnded(msgspec.Struct, frozen=True, gc=False):
    """The peer will send no more on this stream; it may still read."""

    stream_id: int


RESET_BY_PEER: Final = "peer"
"""The reason of a reset that the peer sent."""


class StreamReset(msgspec.Struct, frozen=True, gc=False):
    """The stream is gone, in both directions: given up by the peer, or by us for `reason`."""

    stream_id: int
    reason: str


class PingAnswered(msgspec.Struct, frozen=True, gc=False):
    """The peer echoed a ping."""

    value: int


class GoneAway(msgspec.Struct, frozen=True, gc=False):
    """The peer opens and accepts no more streams; `code` is a GoAwayCode if the peer knows them."""

    code: int


Event = StreamOpened | DataReceived | StreamEnded | StreamReset | PingAnswered | GoneAway


CRUMB_BYTES: Final = 12
"""What is shorter is a crumb: no frame of ours can be, with its header."""
_CRUMBS: Final = 16
"""Crumbs that count as one frame that brings nothing. Our choice: some implementations send a
length by itself, or open the window again for each message; nobody thousands a second."""


class Worth:
    """What a peer's frames were worth, for those who judge it."""

    def __init__(self) -> None:
        self.useless = 0
        """How many frames brought nothing: pings, empty frames, streams opened to be reset."""
        self._crumbs = 0

    def note_crumbs(self, count: int = 1) -> None:
        """So many pieces came that bring next to nothing, and cost as much as others."""
        self._crumbs += count
        if self._crumbs >= _CRUMBS:
            self.useless += self._crumbs // _CRUMBS
            self._crumbs %= _CRUMBS


class StreamState:
    """One stream's state: what each side may still send, and who has finished."""

    __slots__ = (
        "acknowledged",
        "announced",
        "consumed",
        "credit",
        "fin_queued",
        "fin_sent",
        "outgoing",
        "remote_ended",
        "stream_id",
        "unconsumed",
        "window",
    )

    def __init__(self, stream_id: int, credit: int) -> None:
        self.stream_id = stream_id
        self.credit = credit  # what the peer may still send
        self.consumed = 0  # used up by the application, not yet given back as credit
        self.unconsumed = 0  # handed to the application, not yet used up
        self.window = INITIAL_WINDOW_BYTES  # what we may still send
        self.outgoing = bytearray()
        self.announced = True  # the peer knows of it, or has opened it
        self.acknowledged = False
        self.fin_queued = False
        self.fin_sent = False
        self.remote_ended = False


class YamuxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a session."""

    receive_window: int = INITIAL_WINDOW_BYTES
    """How much a peer may send on a stream before we have used it. The specification's value; more
    helps bulk transfers over long distances and costs that much memory per stream."""

    max_inbound_streams: int = 1000
    """Streams that the peer may have open. The default of go and js."""

    max_outbound_streams: int = 1000
    """Streams that we may have open. The default of js."""

    late_frames: int = 16
    max_gone: int = 256
    """Frames that may follow the end of a stream without being held against the peer, which may not
    have heard of it: a window of them. And of how many streams, the last ones. Our choice."""

    max_ack_backlog: int = 256
    """Streams that wait to be accepted, in each direction. The specification's value."""

    max_data_frame: int = 65535 - 16 - HEADER_BYTES
    """Our choice: with its header, the largest body that fits one Noise frame."""

    max_stream_queue: int = INITIAL_WINDOW_BYTES
    """Bytes that wait to be sent on one stream. Our choice: one window ahead is enough to keep a
    peer busy that reads."""

    max_session_queue: int = 4 * 1024 * 1024
    """Bytes that wait to be sent on all streams. Our choice: 16 full streams."""

    max_session_unconsumed: int = 16 * 1024 * 1024
    """Bytes that the application has not used yet, on all streams; the stream that exceeds it is
    reset. Our choice: 64 full windows. yamux itself bounds only each stream."""

    max_control_bytes: int = 64 * 1024
    """Answers to pings and refusals that the peer has not read. Our choice: over 5000 frames."""

    max_pings: int = 8
    """Our own unanswered pings. Our choice: keep-alive needs one."""

    def validate(self) -> None:
        """Raise ConfigError where a value cannot work."""
        if not INITIAL_WINDOW_BYTES <= self.receive_window <= _MAX_RECEIVE_WINDOW:
            raise ConfigError("receive_window must be 256 KiB to 16 MiB")
        if self.max_session_unconsumed < self.receive_window:
            raise ConfigError("max_session_unconsumed must hold at least one receive_window")
        if self.max_session_queue < self.max_stream_queue:
            raise ConfigError("max_session_queue must hold at least one max_stream_queue")
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
