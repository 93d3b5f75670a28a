"""Frames on a stream: however the bytes arrive, the same frames, and bounded memory."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError
from rumormill.wire.frames import FrameReader, frame
from rumormill.wire.protobuf import varint

MAX = 300
bodies = st.one_of(st.binary(max_size=20), st.sampled_from([127, 128, MAX]).map(bytes))


def drain(reader: FrameReader, pieces: list[bytes]) -> tuple[list[bytes], str | None]:
    """Feed all pieces; return the frames, and the reason if the stream broke a rule."""
    frames: list[bytes] = []
    try:
        for piece in pieces:
            frames += reader.feed(piece)
            while reader.unread and reader.error is None:
                frames += reader.feed(b"")
        if reader.error is not None:
            reader.feed(b"")
    except DecodeError as error:
        return frames, error.reason
    return frames, None


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@given(st.lists(bodies, max_size=6))
def test_frames_come_back_in_order(sent: list[bytes]) -> None:
    """Any number of frames in one piece, empty ones included."""
    reader = FrameReader(MAX)
    assert reader.feed(b"".join(frame(body) for body in sent)) == sent
    assert not reader._buffer


def test_of_many_frames_some_come_at_a_time_and_the_others_wait() -> None:
    reader = FrameReader(MAX)
    sent = [bytes([number]) for number in range(100)]
    first = reader.feed(b"".join(map(frame, sent)))
    assert first == sent[: len(first)]
    assert len(first) < 20
    assert reader.unread
    assert drain(reader, [frame(b"more")]) == ([*sent[len(first) :], b"more"], None)


@given(st.lists(bodies, max_size=4), st.lists(st.integers(0, 700), max_size=6))
def test_whole_versus_pieces(sent: list[bytes], cuts: list[int]) -> None:
    """Where the stream is cut makes no difference."""
    data = b"".join(frame(body) for body in sent)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[left:right] for left, right in pairwise(edges)]
    assert drain(FrameReader(MAX), pieces) == (sent, None)
    assert drain(FrameReader(MAX), bytewise(data)) == (sent, None)


@given(st.binary(max_size=400))
def test_any_bytes_whole_versus_bytewise(data: bytes) -> None:
    """Noise gives the same frames and the same refusal, fed whole or byte by byte."""
    assert drain(FrameReader(MAX), [data]) == drain(FrameReader(MAX), bytewise(data))


@given(st.binary(max_size=400))
def test_never_holds_more_than_arrived_or_is_allowed(data: bytes) -> None:
    """The buffer is bounded by the limit, whatever the prefixes claim."""
    reader = FrameReader(MAX)
    for piece in bytewise(data):
        try:
            reader.feed(piece)
        except DecodeError:
            break
        assert len(reader._buffer) < MAX


def test_an_oversized_length_is_refused_before_its_body() -> None:
    """The prefix is enough to refuse, and nothing is kept."""
    reader = FrameReader(MAX)
    with pytest.raises(DecodeError, match="frame-too-long"):
        reader.feed(varint(MAX + 1) + bytes(100))
    assert not reader._buffer


@pytest.mark.parametrize("bomb", [varint(2**63 - 1), varint(2**32), b"\xff" * 20])
def test_length_bombs(bomb: bytes) -> None:
    """A huge length is refused as soon as its digits exceed the limit."""
    for pieces in ([bomb], bytewise(bomb)):
        assert drain(FrameReader(1 << 20), pieces) == ([], "frame-too-long")


@pytest.mark.parametrize("prefix", [b"\x80\x00", b"\x81\x00", b"\x80" * 9, b"\x80" * 20])
def test_lengths_must_be_as_short_as_possible(prefix: bytes) -> None:
    """libp2p's unsigned varints have one spelling and at most nine bytes."""
    for pieces in ([prefix], bytewise(prefix)):
        assert drain(FrameReader(MAX), pieces) == ([], "bad-varint")


def test_frames_before_a_bad_length_are_delivered() -> None:
    """The error is visible at once and raised by every later call."""
    reader = FrameReader(MAX)
    assert reader.feed(frame(b"good") + varint(MAX + 1)) == [b"good"]
    assert reader.error is not None
    for _ in range(2):
        with pytest.raises(DecodeError, match="frame-too-long"):
            reader.feed(b"\x00")


def test_the_largest_frame_passes() -> None:
    """The limit itself is allowed."""
    assert FrameReader(MAX).feed(frame(bytes(MAX))) == [bytes(MAX)]
    assert FrameReader(0).feed(frame(b"")) == [b""]
