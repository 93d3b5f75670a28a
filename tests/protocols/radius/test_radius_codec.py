"""The frames of radius gossip: the same bytes as the protobuf library, bounded, no other error."""

import tracemalloc

import msgspec
import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from radius_strategies import frames, to_protobuf, without_caches

from oracles import radius_pb2
from refusals import reason_of
from rumormill.core.config import override
from rumormill.core.errors import ConfigError, DecodeError
from rumormill.overlay.hyparview.messages import MAX_ADDRESSES, MAX_PEERS, Membership
from rumormill.protocols.radius.messages import (
    INTEREST_PREFIX,
    PUBLICATION_PREFIX,
    Frame,
    FrameLimits,
    Interest,
    Publication,
    Relay,
    Spread,
    decode_frame,
    encode_frame,
    is_signed,
    sign,
    signed_bytes,
)
from rumormill.sim.identity import SimulatedIdentity
from rumormill.wire.protobuf import bytes_field, string_field, varint_field


def refusal(data: bytes, **limits: int) -> str:
    """Why bytes are refused when some limits are lower."""
    return reason_of(decode_frame, data, msgspec.structs.replace(FrameLimits(), **limits))


class TestAgreementWithProtobuf:
    """The generated classes are the judge of our bytes."""

    @given(frames)
    def test_our_bytes_are_the_librarys_bytes(self, frame: Frame) -> None:
        """Encoding gives byte for byte what the protobuf library serialises."""
        assert encode_frame(frame) == to_protobuf(frame).SerializeToString(deterministic=True)

    @given(frames)
    def test_our_bytes_parse_there_to_the_same_values(self, frame: Frame) -> None:
        """The protobuf library reads the values that we encoded."""
        assert radius_pb2.Frame.FromString(encode_frame(frame)) == to_protobuf(frame)

    @given(frames)
    def test_their_bytes_decode_here_to_the_same_values(self, frame: Frame) -> None:
        """We read the values that the protobuf library serialised."""
        decoded = decode_frame(to_protobuf(frame).SerializeToString())
        assert without_caches(decoded) == without_caches(frame)

    @given(frames)
    def test_sizes_are_the_real_lengths(self, frame: Frame) -> None:
        """The trace's size is the length of the encoding, and its data the publications' part."""
        meta = frame.meta
        assert meta.size == len(encode_frame(frame))
        data = Frame(publications=frame.publications, direct=frame.direct)
        assert meta.data_size == len(encode_frame(data))
        items = frame.interests, frame.publications, frame.direct, frame.membership
        assert len(meta.operations) == sum(map(len, items))

    @given(frames, frames)
    def test_concatenated_frames_merge(self, first: Frame, second: Frame) -> None:
        """Two encodings behind each other are one frame, as protobuf has it."""
        data = encode_frame(first) + encode_frame(second)
        assert encode_frame(decode_frame(data)) == radius_pb2.Frame.FromString(
            data
        ).SerializeToString(deterministic=True)

    def test_of_a_repeated_value_the_last_counts(self) -> None:
        """As protobuf reads it."""
        body = string_field(2, "a") + varint_field(3, 1) + string_field(2, "b") + varint_field(3, 2)
        data = bytes_field(3, body)
        ours, theirs = decode_frame(data).direct[0], radius_pb2.Frame.FromString(data).direct[0]
        assert (ours.topic, ours.time) == (theirs.topic, theirs.time) == ("b", 2)


class TestBounds:
    """Limits are checked before anything is built."""

    def test_every_list_has_a_limit(self) -> None:
        """One item too many is refused, with the name of the list."""
        interest = encode_frame(Frame((Spread(Interest(b"o", "t", 1, 1)),)))
        relay = encode_frame(Frame((), (Relay(Publication(b"a", "t", 1)),)))
        member = encode_frame(Frame(membership=(Membership(8),)))
        assert refusal(interest * 3, interests=2) == "too-many-interests"
        assert refusal(relay * 3, publications=2) == "too-many-publications"
        assert refusal(member * 3, membership=2) == "too-many-membership"
        assert refusal(varint_field(9, 1) * 3, other_fields=2) == "too-many-fields"
        assert refusal(relay * 3, frame_bytes=10) == "frame-too-long"

    def test_every_field_has_a_length(self) -> None:
        """Names, keys, signatures, addresses and ids that are too long are refused."""

        def publication(field: bytes) -> bytes:
            return bytes_field(3, field)

        assert refusal(publication(string_field(2, "t" * 9)), topic_bytes=8) == "topic-too-long"
        assert refusal(publication(bytes_field(5, bytes(9))), signature_bytes=8) == (
            "signature-too-long"
        )
        assert refusal(publication(bytes_field(6, bytes(9))), key_bytes=8) == "key-too-long"
        assert refusal(publication(bytes_field(1, bytes(65)))) == "peer-id-too-long"
        assert refusal(publication(bytes_field(2, b"\xff"))) == "bad-topic"
        served = bytes_field(2, bytes_field(3, bytes(24)))
        assert refusal(served, served=2) == "too-many-served"
        peer = bytes_field(5, bytes_field(1, b"p"))
        assert refusal(bytes_field(4, peer * (MAX_PEERS + 1))) == "too-many-peers"
        address = bytes_field(2, b"a")
        many = bytes_field(4, bytes_field(5, address * (MAX_ADDRESSES + 1)))
        assert refusal(many) == "too-many-addresses"
        long = bytes_field(4, bytes_field(5, bytes_field(2, bytes(257))))
        assert refusal(long) == "address-too-long"
        assert refusal(bytes_field(4, bytes_field(7, bytes(5)))) == "bad-minima"
        assert refusal(bytes_field(4, bytes_field(7, bytes(4 * 129)))) == "bad-minima"
        for number in (1, 2, 3, 4):
            assert refusal(bytes_field(number, varint_field(15, 1) * 17)) == "too-many-fields"
        nested = bytes_field(4, bytes_field(5, varint_field(15, 1) * 17))
        assert refusal(nested) == "too-many-fields"

    def test_two_values_in_the_place_of_one_are_refused(self) -> None:
        """Nobody can be made to read a mixture of two interests or publications."""
        inner = bytes_field(1, b"")
        assert refusal(bytes_field(1, inner * 2)) == "repeated-field"
        assert refusal(bytes_field(2, inner * 2)) == "repeated-field"

    def test_no_frame_costs_much_more_than_its_bytes(self) -> None:
        """A frame of the smallest possible items is refused before they fill memory."""
        data = b"\x0a\x00" * (1 << 19)
        tracemalloc.start()
        try:
            assert refusal(data) == "too-many-interests"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 << 20

    @pytest.mark.parametrize("name", FrameLimits.__struct_fields__)
    def test_limits_are_not_negative(self, name: str) -> None:
        with pytest.raises(ConfigError):
            override(FrameLimits(), {name: -1})


class TestAnyBytes:
    """Whatever the bytes, the answer is a frame or a `DecodeError`."""

    @given(st.binary(max_size=200))
    @example(b"\x0a")
    @example(b"\x12\x80")
    def test_arbitrary_bytes(self, data: bytes) -> None:
        """What we accept, protobuf accepts too."""
        try:
            frame = decode_frame(data)
        except DecodeError:
            return
        radius_pb2.Frame.FromString(data)
        assert encode_frame(decode_frame(encode_frame(frame))) == encode_frame(frame)

    @given(frames, st.data())
    def test_damaged_frames(self, frame: Frame, data: st.DataObject) -> None:
        """Bytes changed, cut or added inside a real frame."""
        raw = bytearray(encode_frame(frame))
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(raw)))
            raw[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        try:
            decode_frame(bytes(raw))
        except DecodeError:
            return
        try:
            radius_pb2.Frame.FromString(bytes(raw))
        except ProtobufDecodeError:
            pytest.fail("we read what protobuf does not")


class TestSignatures:
    """What a signature covers survives the wire, and nothing else passes for it."""

    def test_interests(self) -> None:
        """A signed interest is true after the wire; for another owner it is not."""
        owner = SimulatedIdentity(b"owner")
        word = Interest(b"owner", "t", 5, 6, True, (b"here",))
        sign(word, owner)
        (arrived,) = decode_frame(encode_frame(Frame((Spread(word, 3),)))).interests
        assert is_signed(arrived.interest, owner)
        assert not is_signed(msgspec.structs.replace(word, owner=b"other", cached_bytes=b""), owner)

    def test_publications(self) -> None:
        """A signed publication is true after the wire; with other data it is not."""
        author = SimulatedIdentity(b"author")
        word = Publication(b"author", "t", 5, b"data")
        sign(word, author)
        (arrived,) = decode_frame(encode_frame(Frame(direct=(word,)))).direct
        assert is_signed(arrived, author)
        assert arrived.id == b"author" + (5).to_bytes(8, "big")
        assert not is_signed(msgspec.structs.replace(word, data=b"other", cached_bytes=b""), author)

    def test_the_two_kinds_cannot_be_exchanged(self) -> None:
        """The same bytes signed as one kind are not signed as the other."""
        author = SimulatedIdentity(b"author")
        word = Publication(b"author", "t", 5)
        sign(word, author)
        forged = Interest(b"author", "t", 5, 0, signature=word.signature)
        signed = signed_bytes(forged).removeprefix(INTEREST_PREFIX)
        assert signed == signed_bytes(word).removeprefix(PUBLICATION_PREFIX)
        assert not is_signed(forged, author)
