"""yamux: the specification's claims, flow control, limits, and hostile frames."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError, LimitError, LocalError, PeerError
from rumormill.libp2p.yamux import YamuxSession
from rumormill.libp2p.yamux_types import (
    INITIAL_WINDOW_BYTES,
    DataReceived,
    Event,
    GoAwayCode,
    GoneAway,
    PingAnswered,
    StreamEnded,
    StreamOpened,
    StreamReset,
    YamuxConfig,
)

DATA, WINDOW, PING, GO_AWAY = 0, 1, 2, 3
SYN, ACK, FIN, RST = 1, 2, 4, 8
KIB = 1024


def frame(kind: int, flags: int, stream_id: int, length: int, body: bytes = b"") -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, stream_id, length) + body


def data(flags: int, stream_id: int, body: bytes) -> bytes:
    return frame(DATA, flags, stream_id, len(body), body)


def frames(wire: bytes) -> list[tuple[int, int, int, int]]:
    """Split bytes into (type, flags, stream, length), bodies left out."""
    found = []
    while wire:
        version, kind, flags, stream_id, length = struct.unpack_from(">BBHII", wire)
        assert version == 0
        found.append((kind, flags, stream_id, length))
        wire = wire[12 + (length if kind == DATA else 0) :]
    return found


def receive_all(session: YamuxSession, wire: bytes) -> list[Event]:
    """Let a session read everything, however long it takes."""
    found = session.receive(wire)
    while session.unread:
        found += session.receive(b"")
    return found


def server(**limits: int) -> YamuxSession:
    return YamuxSession(client=False, config=YamuxConfig(**limits))


def client(**limits: int) -> YamuxSession:
    return YamuxSession(client=True, config=YamuxConfig(**limits))


def opened(session: YamuxSession, stream_id: int = 1) -> YamuxSession:
    """Let the peer open a stream, accept it, and forget what is to be sent."""
    assert session.receive(frame(WINDOW, SYN, stream_id, 0)) == [StreamOpened(stream_id)]
    session.accept(stream_id)
    session.data_to_send()
    return session


def flush(session: YamuxSession) -> bytes:
    """Take everything that waits to be sent."""
    wire = b""
    while part := session.data_to_send():
        wire += part
    return wire


# Streams


def test_the_client_opens_odd_streams_and_the_server_even_ones() -> None:
    """A stream begins with SYN; it may be used before the peer has acknowledged it."""
    one, two = client(), server()
    assert [one.open_stream(), one.open_stream()] == [1, 3]
    assert [two.open_stream(), two.open_stream()] == [2, 4]
    assert one.send(1, b"hello") == 5
    assert frames(one.data_to_send()) == [
        (WINDOW, SYN, 1, 0),
        (DATA, 0, 1, 5),
        (WINDOW, SYN, 3, 0),
    ]


def test_an_accepted_stream_is_acknowledged_once() -> None:
    """The receiver replies with ACK; sending or consuming accepts as well."""
    session = server()
    session.receive(data(SYN, 1, b"x") + data(SYN, 3, b"y") + data(SYN, 5, b"z"))
    session.accept(1)
    session.accept(1)
    session.send(3, b"answer")
    session.consumed(5, 1)
    assert frames(session.data_to_send()) == [
        (WINDOW, ACK, 1, 0),
        (WINDOW, ACK, 3, 0),
        (WINDOW, ACK, 5, 0),
        (DATA, 0, 3, 6),
    ]
    session.accept(99)
    assert session.data_to_send() == b""


def test_data_may_come_with_syn_and_with_fin() -> None:
    """A stream can live in one frame."""
    assert server().receive(data(SYN | FIN, 1, b"all")) == [
        StreamOpened(1),
        DataReceived(1, b"all"),
        StreamEnded(1),
    ]


def test_a_stream_closes_when_both_sides_have_ended_it() -> None:
    """Half-close: each direction ends by itself, queued data first, the FIN in its own frame."""
    session = opened(server())
    session.send(1, b"last words")
    session.end(1)
    session.end(1)
    assert frames(session.data_to_send()) == [(DATA, 0, 1, 10), (WINDOW, FIN, 1, 0)]
    assert session.streams == 1
    assert session.receive(data(0, 1, b"still talking")) == [DataReceived(1, b"still talking")]
    assert session.receive(frame(WINDOW, FIN, 1, 0)) == [StreamEnded(1)]
    assert session.streams == 0
    with pytest.raises(LocalError):
        session.send(1, b"x")


def test_after_the_peers_end_we_may_still_send() -> None:
    """The other order of closing; a second FIN says nothing new."""
    session = opened(server())
    assert session.receive(data(FIN, 1, b"")) == [StreamEnded(1)]
    assert session.receive(data(FIN, 1, b"")) == []
    session.send(1, b"answer")
    session.end(1)
    with pytest.raises(LocalError):
        session.send(1, b"more")
    assert frames(session.data_to_send()) == [(DATA, 0, 1, 6), (WINDOW, FIN, 1, 0)]
    assert session.streams == 0


def test_a_reset_ends_both_directions_at_once() -> None:
    """Queued data is dropped; late frames for the stream are ignored and counted."""
    session = opened(server())
    session.send(1, b"never sent")
    session.reset(1)
    assert frames(session.data_to_send()) == [(WINDOW, RST, 1, 0)]
    assert session.receive(data(0, 1, b"late") + frame(WINDOW, 0, 1, 9)) == []
    assert session.drops == {"gone-stream": 2}
    session = opened(server())
    session.send(1, b"never sent")
    assert session.receive(data(RST, 1, b"body") + data(SYN, 3, b"")) == [
        StreamReset(1, "peer"),
        StreamOpened(3),
    ]
    assert session.data_to_send() == b""
    session.end(1)
    session.reset(1)
    session.consumed(1, 1)
    assert session.data_to_send() == b""


# Flow control


def test_a_sender_never_exceeds_the_window() -> None:
    """256 KiB at first, then what the peer grants."""
    session = client(max_stream_queue=512 * KIB)
    stream_id = session.open_stream()
    assert session.send(stream_id, bytes(400 * KIB)) == 400 * KIB
    sent = [f for f in frames(flush(session)) if f[0] == DATA]
    assert sum(length for *_, length in sent) == 256 * KIB
    assert max(length for *_, length in sent) == session.config.max_data_frame
    session.receive(frame(WINDOW, ACK, stream_id, 100))
    assert frames(flush(session)) == [(DATA, 0, stream_id, 100)]
    session.end(stream_id)
    assert flush(session) == b""
    session.receive(frame(WINDOW, 0, stream_id, 1024 * KIB))
    assert frames(flush(session))[-1] == (WINDOW, FIN, stream_id, 0)


def test_send_takes_what_fits_and_tells_when_there_is_room() -> None:
    """Back-pressure: the queue is bounded per stream, and its stream is announced once."""
    session = client(max_stream_queue=100 * KIB)
    stream_id = session.open_stream()
    assert session.send(stream_id, bytes(150 * KIB)) == 100 * KIB
    assert session.send(stream_id, b"x") == 0
    assert session.take_writable() == []
    flush(session)
    assert session.take_writable() == [stream_id]
    assert session.take_writable() == []
    assert session.send(stream_id, bytes(50 * KIB)) == 50 * KIB
    assert session.send(stream_id, bytes(51 * KIB)) == 50 * KIB
    session.end(stream_id)
    flush(session)
    assert session.take_writable() == []


def test_the_queue_of_all_streams_is_bounded_too() -> None:
    """Many streams cannot hold more than the session may."""
    session = client(max_stream_queue=100 * KIB, max_session_queue=150 * KIB)
    one, two = session.open_stream(), session.open_stream()
    assert session.send(one, bytes(100 * KIB)) == 100 * KIB
    assert session.send(two, bytes(100 * KIB)) == 50 * KIB
    session.reset(one)
    flush(session)
    assert session.take_writable() == [two]
    assert session.send(two, bytes(100 * KIB)) == 100 * KIB


def test_many_small_sends_share_one_frame() -> None:
    """Cost is per frame, not per message."""
    session = client()
    stream_id = session.open_stream()
    flush(session)
    for _ in range(50):
        session.send(stream_id, b"message")
    wire = session.data_to_send()
    assert frames(wire) == [(DATA, 0, stream_id, 350)]
    assert wire[12:] == b"message" * 50


def test_streams_take_turns() -> None:
    """A bulk transfer does not hold up a small message on another stream."""
    session = client()
    bulk, small = session.open_stream(), session.open_stream()
    session.send(bulk, bytes(200 * KIB))
    session.send(small, b"urgent")
    order = [stream_id for kind, _, stream_id, _ in frames(flush(session)) if kind == DATA]
    assert order == [bulk, small, bulk, bulk, bulk]


def test_window_updates_come_in_halves() -> None:
    """One update after half the window is used, not one per message."""
    session = opened(server())
    for _ in range(127):
        session.receive(data(0, 1, bytes(KIB)))
        session.consumed(1, KIB)
    assert session.data_to_send() == b""
    session.receive(data(0, 1, bytes(KIB)))
    session.consumed(1, KIB)
    assert frames(session.data_to_send()) == [(WINDOW, 0, 1, 128 * KIB)]


def test_a_larger_window_is_announced_with_syn_and_ack() -> None:
    """Both sides assume 256 KiB until told otherwise."""
    one, two = client(receive_window=1024 * KIB), server(receive_window=512 * KIB)
    stream_id = one.open_stream()
    wire = one.data_to_send()
    assert frames(wire) == [(WINDOW, SYN, stream_id, 768 * KIB)]
    two.receive(wire)
    two.accept(stream_id)
    wire = two.data_to_send()
    assert frames(wire) == [(WINDOW, ACK, stream_id, 256 * KIB)]
    one.receive(wire)
    assert one.send(stream_id, bytes(256 * KIB)) == 256 * KIB
    for part in (flush(one), flush(one)):
        two.receive(part)
    assert one.send(stream_id, bytes(256 * KIB)) == 256 * KIB
    assert sum(len(e.data) for e in two.receive(flush(one)) if isinstance(e, DataReceived)) == (
        256 * KIB
    )


def test_more_cannot_be_consumed_than_was_received() -> None:
    """A double count would open the window too far."""
    session = opened(server())
    session.receive(data(0, 1, b"four"))
    with pytest.raises(LocalError):
        session.consumed(1, 5)


# Session


def test_pings_are_echoed_and_answers_reported() -> None:
    """SYN asks, ACK answers, the value is opaque."""
    session = client()
    assert session.receive(frame(PING, SYN, 0, 0xDEADBEEF)) == []
    assert frames(session.data_to_send()) == [(PING, ACK, 0, 0xDEADBEEF)]
    session.ping(7)
    assert frames(session.data_to_send()) == [(PING, SYN, 0, 7)]
    assert session.receive(frame(PING, ACK, 0, 7)) == [PingAnswered(7)]
    assert session.receive(frame(PING, ACK, 0, 7)) == []
    assert session.drops == {"unasked-pong": 1}
    for value in range(8):
        session.ping(value)
    with pytest.raises(LimitError):
        session.ping(8)


def test_after_going_away_no_stream_is_opened_but_open_ones_go_on() -> None:
    """Go away, from either side."""
    one, two = client(), opened(server())
    one.open_stream()
    one.data_to_send()
    two.go_away()
    two.go_away()
    wire = two.data_to_send()
    assert frames(wire) == [(GO_AWAY, 0, 0, GoAwayCode.NORMAL)]
    assert one.receive(wire) == [GoneAway(GoAwayCode.NORMAL)]
    for session in (one, two):
        with pytest.raises(LocalError):
            session.open_stream()
    assert two.receive(frame(WINDOW, SYN, 3, 0)) == []
    assert two.drops == {"going-away": 1}
    assert two.receive(data(0, 1, b"go on")) == [DataReceived(1, b"go on")]


def test_a_stream_that_is_given_up_at_once_is_not_spoken_of() -> None:
    """Its peer would see one that was opened to be reset, as floods do."""
    session = client()
    session.send(session.open_stream(), b"never sent")
    session.reset(1)
    assert session.data_to_send() == b""
    session.send(session.open_stream(), b"sent")
    assert frames(session.data_to_send()) == [(WINDOW, SYN, 3, 0), (DATA, 0, 3, 4)]


def test_what_was_under_way_when_a_stream_ended_is_not_held_against_the_peer() -> None:
    """An answer that comes too late, or a reset that crosses the end: so much, and no more."""
    session = client(late_frames=3, max_gone=2)
    for _ in range(4):
        session.open_stream()
    session.data_to_send()
    session.reset(1)
    answer = frame(WINDOW, ACK, 1, 0) + data(0, 1, b"late") + frame(WINDOW, FIN, 1, 0)
    assert session.receive(answer) == []
    assert (session.drops, session.useless) == ({"gone-stream": 3}, 0)
    session.receive(data(0, 1, b"and more"))
    assert (session.drops["unknown-stream"], session.useless) == (1, 1)
    session.end(3)
    session.data_to_send()
    session.receive(frame(WINDOW, FIN, 3, 0) + frame(WINDOW, RST, 3, 0))
    assert (session.drops["gone-stream"], session.useless) == (4, 1)
    session.receive(frame(WINDOW, RST, 3, 0))  # and nothing follows a reset
    assert (session.drops["unknown-stream"], session.useless) == (2, 2)
    session.receive(frame(WINDOW, RST, 5, 0) + data(0, 5, b"after it"))
    assert (session.drops["unknown-stream"], session.useless) == (3, 4)


# Limits


def test_inbound_streams_are_bounded() -> None:
    """Streams beyond the limit are reset, and their data is skipped."""
    session = server(max_inbound_streams=2)
    for stream_id in (1, 3):
        opened(session, stream_id)
    assert session.receive(data(SYN, 5, b"data") + data(0, 5, b"more")) == []
    assert frames(session.data_to_send()) == [(WINDOW, RST, 5, 0)]
    assert session.drops == {"too-many-streams": 1, "unknown-stream": 1}
    session.reset(1)
    assert session.receive(frame(WINDOW, SYN, 7, 0)) == [StreamOpened(7)]


def test_streams_that_nobody_has_accepted_are_bounded() -> None:
    """The ACK backlog: 256 unaccepted streams, then refusal until some are accepted."""
    session = server()
    syns = b"".join(frame(WINDOW, SYN, 2 * n + 1, 0) for n in range(300))
    assert len(receive_all(session, syns)) == 256
    assert session.drops == {"ack-backlog": 44}
    session.accept(1)
    session.reset(3)
    assert len(session.receive(b"".join(frame(WINDOW, SYN, n, 0) for n in (701, 703, 705)))) == 2


def test_our_own_unacknowledged_streams_are_bounded() -> None:
    """At most 256 opened and not acknowledged; an ACK or an end makes room."""
    session = client()
    for _ in range(256):
        session.open_stream()
    with pytest.raises(LimitError):
        session.open_stream()
    session.receive(frame(WINDOW, ACK, 1, 0))
    session.receive(frame(WINDOW, ACK, 1, 0))
    session.open_stream()
    with pytest.raises(LimitError):
        session.open_stream()
    session.receive(frame(WINDOW, RST, 3, 0))
    session.open_stream()
    session = client(max_outbound_streams=1)
    session.open_stream()
    with pytest.raises(LimitError):
        session.open_stream()


def test_stream_numbers_are_not_used_twice() -> None:
    """The last odd number of 32 bits is the last stream."""
    session = client()
    session._next_id = 2**32 - 1
    assert session.open_stream() == 2**32 - 1
    with pytest.raises(LimitError):
        session.open_stream()


def test_cve_2022_23492_many_full_windows_cannot_fill_memory() -> None:
    """What the application has not used is bounded for the whole session, not per stream only."""
    session = server(max_session_unconsumed=1024 * KIB)
    for stream_id in (1, 3, 5, 7):
        opened(session, stream_id)
        session.receive(data(0, stream_id, bytes(256 * KIB)))
    opened(session, 9)
    assert session.receive(data(0, 9, b"one more") + data(0, 9, b"and more")) == [
        StreamReset(9, "session-full")
    ]
    assert session.drops == {"session-full": 1, "gone-stream": 1}
    session.consumed(1, 256 * KIB)
    opened(session, 11)
    assert session.receive(data(0, 11, b"fits")) == [DataReceived(11, b"fits")]


def test_of_many_frames_some_are_read_at_a_time_and_the_others_wait() -> None:
    """So a caller can let others have their turn; meanwhile it reads no more from the socket."""
    session = opened(server())
    wire = b"".join(data(0, 1, bytes([number])) for number in range(200))
    first = session.receive(wire + wire[:7])
    assert 0 < len(first) < 100
    assert session.unread
    rest = receive_all(session, wire[7:])
    assert b"".join(event.data for event in first + rest) == bytes(range(200)) * 2  # type: ignore[union-attr]
    assert not session.unread


def test_frames_that_bring_nothing_are_counted() -> None:
    session = opened(server())
    before = session.useless
    for useless in (
        data(0, 1, b""),
        frame(WINDOW, 0, 1, 0),
        frame(PING, SYN, 0, 5),
        frame(PING, ACK, 0, 5),
        frame(WINDOW, 0, 99, 5),
    ):
        session.receive(useless)
    session.receive(frame(WINDOW, SYN, 3, 0) + frame(WINDOW, RST, 3, 0))
    assert session.useless == before + 6
    session.receive(data(0, 1, b"x") + frame(WINDOW, 0, 1, 100))
    assert session.useless == before + 6


def test_a_ping_flood_that_is_not_read_is_refused() -> None:
    """Answers wait in a bounded queue."""
    session = server()
    with pytest.raises(PeerError, match="unread-answers"):
        receive_all(session, frame(PING, SYN, 0, 1) * 10_000)
    assert len(session.data_to_send()) <= session.config.max_control_bytes + 24


def test_a_flood_of_streams_opened_and_reset_is_refused() -> None:
    """No stream is left open, yet each one costs an answer that nobody reads."""
    session = server()

    def flood() -> None:
        for number in range(10_000):
            session.receive(frame(WINDOW, SYN, 2 * number + 1, 0))
            session.accept(2 * number + 1)
            session.receive(frame(WINDOW, RST, 2 * number + 1, 0))

    with pytest.raises(PeerError, match="unread-answers"):
        flood()
    assert session.streams == 0


@pytest.mark.parametrize(
    "limits",
    [
        {"receive_window": 256 * KIB - 1},
        {"receive_window": 2**25},
        {"max_session_unconsumed": 1},
        {"max_session_queue": 1},
        {"max_ack_backlog": 0},
        {"max_data_frame": 0},
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, int]) -> None:
    """Each check names its key."""
    with pytest.raises(ConfigError, match=next(iter(limits))):
        server(**limits)


# Hostile frames


def test_cve_2026_32314_syn_with_data_beyond_the_credit() -> None:
    """The first frame of a stream has 262,145 bytes: one more than any new stream may get."""
    session = server()
    with pytest.raises(PeerError, match="window-exceeded"):
        session.receive(frame(DATA, SYN, 1, INITIAL_WINDOW_BYTES + 1))
    assert frames(session.data_to_send()) == [(GO_AWAY, 0, 0, GoAwayCode.PROTOCOL_ERROR)]
    with pytest.raises(PeerError, match="window-exceeded"):
        session.receive(frame(PING, SYN, 0, 1))


@pytest.mark.parametrize("flags", range(16))
@pytest.mark.parametrize("length", [INITIAL_WINDOW_BYTES + 1, 2**32 - 1])
def test_cve_2026_32314_oversized_data_with_any_flags(flags: int, length: int) -> None:
    """For new, open, refused and unknown streams alike: refused by the header."""
    for stream_id in (1, 3, 2, 4, 0):
        with pytest.raises(PeerError):
            opened(server()).receive(frame(DATA, flags, stream_id, length))
    refusing = server(max_inbound_streams=1)
    opened(refusing, 1)
    with pytest.raises(PeerError):
        refusing.receive(frame(DATA, flags, 3, length))


def test_data_beyond_the_credit_is_refused_at_the_byte() -> None:
    """256 KiB are fine, one byte more is not, until the window is reopened."""
    session = opened(server())
    session.receive(data(0, 1, bytes(256 * KIB)))
    session.consumed(1, 128 * KIB)
    session.receive(data(0, 1, bytes(128 * KIB)))
    with pytest.raises(PeerError, match="window-exceeded"):
        session.receive(frame(DATA, 0, 1, 1))


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (b"\x01" + bytes(11), "bad-version"),
        (b"\xff" * 12, "bad-version"),
        (frame(4, 0, 0, 0), "unknown-type"),
        (frame(255, 0, 0, 0), "unknown-type"),
        (frame(DATA, 0x10, 1, 0), "unknown-flags"),
        (frame(WINDOW, 0x8001, 3, 0), "unknown-flags"),
        (frame(PING, 0, 0, 0), "unknown-flags"),
        (frame(PING, SYN | ACK, 0, 0), "unknown-flags"),
        (frame(PING, SYN, 1, 0), "bad-stream"),
        (frame(GO_AWAY, 0, 1, 0), "bad-stream"),
        (frame(DATA, 0, 0, 0), "bad-stream"),
        (frame(WINDOW, SYN, 0, 0), "bad-stream"),
        (frame(WINDOW, SYN, 2, 0), "bad-stream"),
        (frame(DATA, 0, 2, 0), "bad-stream"),
        (frame(WINDOW, SYN, 1, 0), "duplicate-stream"),
        (frame(WINDOW, SYN | ACK, 3, 0), "contradicting-flags"),
        (frame(DATA, SYN | RST, 3, 0), "contradicting-flags"),
        (frame(WINDOW, 0, 1, 2**32 - 1), "window-overflow"),
        (data(FIN, 1, b"") + data(0, 1, b"x"), "data-after-fin"),
    ],
)
def test_frames_that_break_the_protocol_end_the_session(wire: bytes, reason: str) -> None:
    """One reason each; stream 1 is open, 2 was never opened by us."""
    with pytest.raises(PeerError) as caught:
        opened(server()).receive(wire)
    assert caught.value.reason == reason


def test_a_stream_given_up_in_the_middle_of_a_body_gets_no_more_of_it() -> None:
    """The rest of the frame is skipped, and the next frame is read."""
    session = opened(server())
    wire = data(FIN, 1, b"0123456789") + frame(PING, SYN, 0, 5)
    assert session.receive(wire[:15]) == [DataReceived(1, b"012")]
    session.reset(1)
    assert session.receive(wire[15:]) == []
    assert frames(session.data_to_send()) == [(WINDOW, RST, 1, 0), (PING, ACK, 0, 5)]


# Properties


class Pair:
    """Two sessions wired back to back, with everything counted on both ends."""

    def __init__(self) -> None:
        self.sides = (client(max_stream_queue=300 * KIB), server(max_stream_queue=300 * KIB))
        self.sent: dict[tuple[int, int], bytearray] = {}
        self.got: dict[tuple[int, int], bytearray] = {}
        self.ended: dict[tuple[int, int], None] = {}

    def write(self, side: int, stream_id: int, body: bytes) -> None:
        taken = self.sides[side].send(stream_id, body)
        self.sent.setdefault((side, stream_id), bytearray()).extend(body[:taken])

    def carry(self, side: int, step: int, *, consume: bool) -> bool:
        """Move what one side has to say to the other, in pieces of `step` bytes."""
        wire = self.sides[side].data_to_send()
        for start in range(0, len(wire), step):
            for event in self.sides[1 - side].receive(wire[start : start + step]):
                self.note(side, event, consume=consume)
        return bool(wire)

    def note(self, side: int, event: Event, *, consume: bool) -> None:
        if isinstance(event, DataReceived):
            self.got.setdefault((side, event.stream_id), bytearray()).extend(event.data)
            if consume:
                self.sides[1 - side].consumed(event.stream_id, len(event.data))
        elif isinstance(event, StreamEnded):
            self.ended[side, event.stream_id] = None
        else:
            assert isinstance(event, StreamOpened)
            self.sides[1 - side].accept(event.stream_id)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 150_000)), max_size=12),
    st.sampled_from([7, 1000, 65_519, 10**7]),
)
def test_every_byte_arrives_once_in_order_whatever_the_pieces(
    writes: list[tuple[int, int, int]], step: int
) -> None:
    """Both sides write at random; with a reader that consumes, all is delivered and closed."""
    pair = Pair()
    streams = [pair.sides[0].open_stream() for _ in range(2)]
    streams += [pair.sides[1].open_stream() for _ in range(2)]
    pair.carry(0, step, consume=True)
    pair.carry(1, step, consume=True)
    for number, (side, stream, size) in enumerate(writes):
        pair.write(side, streams[stream], bytes((number,)) * (size if step > 7 else size // 100))
        pair.carry(number % 2, step, consume=True)
    for side in (0, 1):
        for stream_id in streams:
            pair.sides[side].end(stream_id)
    rounds = 0
    while pair.carry(0, step, consume=True) | pair.carry(1, step, consume=True):
        rounds += 1
        assert rounds < 100
    for key, body in pair.sent.items():
        assert pair.got.get(key, bytearray()) == body
    assert list(pair.ended) != []
    assert len(pair.ended) == 8
    for session in pair.sides:
        assert session.streams == 0
        assert session._queued == session._unconsumed == 0
        assert session._inbound == session._inbound_backlog == session._outbound_backlog == 0
        assert not session._ready
        assert not session._starved


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=8))
def test_a_reader_that_does_not_consume_stops_the_sender_at_the_window(sizes: list[int]) -> None:
    """Back-pressure reaches the writer: window plus queue, and not one byte more."""
    pair = Pair()
    stream_id = pair.sides[0].open_stream()
    for size in sizes:
        pair.write(0, stream_id, bytes(size))
        while pair.carry(0, 10**7, consume=False):
            pass
    taken = len(pair.sent[0, stream_id])
    got = len(pair.got[0, stream_id])
    assert got == min(taken, 256 * KIB)
    assert taken == min(sum(sizes), (256 + 300) * KIB)


FRAMES = st.builds(
    lambda kind, flags, stream_id, length, body: frame(
        kind, flags, stream_id, len(body) if kind == DATA and length is None else length or 0, body
    ),
    st.sampled_from([DATA, DATA, WINDOW, PING, GO_AWAY, 4]),
    st.sampled_from([0, 0, 0, SYN, ACK, FIN, RST, SYN | FIN, ACK | FIN, SYN | ACK, 16]),
    st.sampled_from([0, 1, 1, 2, 2, 3, 4, 5]),
    st.none() | st.sampled_from([0, 1, 100, 2**18, 2**18 + 1, 2**32 - 1]),
    st.binary(max_size=20),
)


def outcome(wire: bytes, step: int) -> tuple[object, ...]:
    """Feed a session in pieces; return all that can be seen from outside."""
    session = server(max_inbound_streams=2)
    session.open_stream()
    story: list[object] = []
    reason = None
    try:
        for start in range(0, len(wire), step):
            for event in session.receive(wire[start : start + step]):
                if isinstance(event, DataReceived):
                    story.extend((event.stream_id, byte) for byte in event.data)
                else:
                    story.append(event)
    except PeerError as error:
        reason = error.reason
    assert len(session._header_part) < 12
    assert session.streams <= 3
    assert session._unconsumed <= session.config.max_session_unconsumed
    # Events of the piece that failed are not returned, so a story is known only without a failure.
    return (reason, story if reason is None else None, session.drops, session.data_to_send())


@given(st.lists(FRAMES, max_size=12).map(b"".join))
def test_fuzz_mixed_frames_whole_and_bytewise_are_the_same(wire: bytes) -> None:
    """Same events, same drops, same answers, same reason of failure."""
    assert outcome(wire, len(wire) + 1) == outcome(wire, 1) == outcome(wire, 5)


@given(st.binary(max_size=400))
def test_fuzz_any_bytes_give_events_or_the_declared_error(wire: bytes) -> None:
    """Bytes without any structure."""
    assert outcome(wire, len(wire) + 1) == outcome(wire, 1)
