"""WebSocket as a pipe for bytes: both sides agree, and whoever does not keep to it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from websockets.frames import Frame, Opcode

from rumormill.core.errors import PeerError
from rumormill.libp2p import websocket
from rumormill.libp2p.websocket import WebSocketSession

REQUEST = (
    b"GET /any HTTP/1.1\r\nHost: mill.example.org\r\nUpgrade: websocket\r\n"
    b"Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\nOrigin: https://elsewhere.example\r\n\r\n"
)
"""With the key of RFC 6455, 1.3."""


def opened() -> tuple[WebSocketSession, WebSocketSession]:
    """A dialler and a listener that have agreed."""
    dialler, listener = WebSocketSession("127.0.0.1:80"), WebSocketSession()
    assert listener.receive(dialler.data_to_send(), 0.0) == b""
    assert dialler.receive(listener.data_to_send(), 0.0) == b""
    assert dialler.opened
    assert listener.opened
    return dialler, listener


def frame(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    """A frame as a dialler sends it."""
    return Frame(opcode, data, fin).serialize(mask=True)


def test_a_request_is_answered_as_in_rfc_6455() -> None:
    listener = WebSocketSession()
    listener.receive(REQUEST, 0.0)
    answer = listener.data_to_send()
    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
    assert b"Extensions" not in answer


def test_what_is_sent_before_it_is_open_is_held_back() -> None:
    dialler, listener = WebSocketSession("[::1]:80"), WebSocketSession()
    dialler.send(b"early ")
    listener.send(b"early too")
    dialler.send(b"bird")
    assert listener.receive(dialler.data_to_send(), 0.0) == b""
    assert dialler.receive(listener.data_to_send(), 0.0) == b"early too"
    assert listener.receive(dialler.data_to_send(), 0.0) == b"early bird"


@given(some.lists(some.binary(max_size=400), max_size=8), some.integers(1, 50))
def test_bytes_arrive_as_they_were_sent_however_they_are_cut(pieces: list[bytes], cut: int) -> None:
    for sender, receiver in (opened(), opened()[::-1]):
        for piece in pieces:
            sender.send(piece)
        sent, said = sender.data_to_send(), b""
        for at in range(0, len(sent), cut):
            said += receiver.receive(sent[at : at + cut], 0.0)
        assert said == b"".join(pieces)


def test_fragments_are_bytes_as_well_and_pings_are_answered() -> None:
    _, listener = opened()
    data = frame(Opcode.BINARY, b"one ", fin=False) + frame(Opcode.PING, b"?")
    assert listener.receive(data + frame(Opcode.CONT, b"two"), 0.0) == b"one two"
    assert listener.data_to_send() == Frame(Opcode.PONG, b"?").serialize(mask=False)


def test_an_end_is_said_and_heard() -> None:
    dialler, listener = opened()
    dialler.send(b"last words")
    dialler.close()
    assert listener.receive(dialler.data_to_send(), 0.0) == b"last words"
    assert listener.ended
    listener.send(b"too late")  # is not sent, and breaks nothing
    dialler.receive(listener.data_to_send(), 0.0)
    assert dialler.ended


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"426"),
        (REQUEST.replace(b"13\r\n", b"8\r\n"), b"400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", b""),
        (b"\x13/multistream/1.0.0\n\n", b""),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
    ],
)
def test_what_is_no_request_for_a_websocket_is_refused(request_bytes: bytes, status: bytes) -> None:
    listener = WebSocketSession()
    with pytest.raises(PeerError, match=websocket.NOT_WEBSOCKET):
        listener.receive(request_bytes, 0.0)
    assert status in listener.data_to_send()
    listener.send(b"nothing")
    assert listener.data_to_send() == b""


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found", b"101 Switching Protocols"])
def test_a_dialler_takes_no_other_answer(status: bytes) -> None:
    dialler = WebSocketSession("a:80")
    with pytest.raises(PeerError, match=websocket.NOT_WEBSOCKET):
        dialler.receive(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n", 0.0)


def test_a_head_has_its_size() -> None:
    """However slowly it comes."""
    listener = WebSocketSession()
    listener.receive(b"GET / HTTP/1.1\r\n", 0.0)
    line = b"A: " + b"b" * 95 + b"\r\n"
    for _ in range(websocket.MAX_HEAD_BYTES // len(line) - 1):
        listener.receive(line, 0.0)
    with pytest.raises(PeerError, match=websocket.NOT_WEBSOCKET):
        listener.receive(line * 2, 0.0)


def test_frames_and_messages_have_their_size() -> None:
    half = bytes(websocket.MAX_FRAME_BYTES // 2 + 1)
    for data in (
        frame(Opcode.BINARY, half + half)[:14],
        frame(Opcode.BINARY, half, fin=False) + frame(Opcode.CONT, half),
    ):
        _, listener = opened()
        with pytest.raises(PeerError, match=websocket.BAD_FRAME):
            listener.receive(data, 0.0)


def test_text_and_nonsense_are_refused() -> None:
    for data in (frame(Opcode.TEXT, b"hello"), Frame(Opcode.BINARY, b"bare").serialize(mask=False)):
        _, listener = opened()
        with pytest.raises(PeerError, match=websocket.BAD_FRAME):
            listener.receive(data, 0.0)


def test_a_crowd_of_tiny_frames_is_cut_off() -> None:
    """They cost as much as others, and bring nothing; at an honest rate they pass."""
    _, listener = opened()
    empty = frame(Opcode.BINARY, b"")
    for second in range(10):
        listener.receive(empty * 1000, float(second))
    with pytest.raises(PeerError, match=websocket.TINY_FRAMES):
        listener.receive(empty * 40_000, 10.0)


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG])
def test_pings_and_pongs_bring_nothing_however_long_they_are(opcode: Opcode) -> None:
    _, listener = opened()
    with pytest.raises(PeerError, match=websocket.TINY_FRAMES):
        listener.receive(frame(opcode, bytes(125)) * 5000, 0.0)


def test_frames_that_bring_nothing_are_counted_for_those_who_judge_a_peer() -> None:
    _, listener = opened()
    for opcode, data in (
        (Opcode.PING, bytes(125)),
        (Opcode.PONG, b""),
        (Opcode.BINARY, b""),
        (Opcode.BINARY, b"some"),
    ):
        listener.receive(frame(opcode, data), 0.0)
    assert listener.useless == 3


def test_a_crowd_of_frames_is_refused_before_all_of_it_is_parsed() -> None:
    """Not many more pings are answered than are allowed."""
    _, listener = opened()
    with pytest.raises(PeerError, match=websocket.TINY_FRAMES):
        listener.receive(frame(Opcode.PING, b"") * 40_000, 0.0)
    answers = len(listener.data_to_send()) // len(Frame(Opcode.PONG, b"").serialize(mask=False))
    assert 4000 <= answers < 5000


def test_a_stranger_has_frames_for_a_handshake_and_no_more() -> None:
    _, listener = opened()
    tiny = frame(Opcode.BINARY, b"")
    listener.receive(tiny * websocket.MAX_EARLY, 0.0, known=False)
    listener.receive(tiny * 1000, 0.0, known=True)
    with pytest.raises(PeerError, match=websocket.TINY_FRAMES):
        listener.receive(tiny, 0.0, known=False)
