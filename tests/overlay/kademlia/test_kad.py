"""The Kademlia codec: the same bytes as the protobuf library, bounded, and never another error."""

import tracemalloc

import msgspec
import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from oracles import kad_pb2
from refusals import reason_of
from rumormill.core.errors import DecodeError
from rumormill.overlay.kademlia import rfc3339
from rumormill.overlay.kademlia.messages import (
    KadLimits,
    KadMessage,
    KadPeer,
    KadType,
    Record,
    decode_kad,
    encode_kad,
)
from rumormill.wire.protobuf import bytes_field, string_field, varint_field

peers = st.builds(
    KadPeer,
    st.binary(min_size=1, max_size=64),
    st.lists(st.binary(min_size=1, max_size=50), max_size=4).map(tuple),
    st.integers(0, 3),
)
records = st.builds(
    Record,
    st.binary(max_size=40),
    st.binary(max_size=300),
    st.sampled_from(["", "2024", "dé"]),
    st.binary(max_size=200),
)
messages = st.builds(
    KadMessage,
    st.sampled_from(KadType),
    st.binary(max_size=80),
    st.none() | records,
    st.lists(peers, max_size=4).map(tuple),
    st.lists(peers, max_size=4).map(tuple),
    st.booleans(),
)


def to_protobuf(message: KadMessage) -> kad_pb2.Message:
    parsed = kad_pb2.Message(type=int(message.type))
    if message.key:
        parsed.key = message.key
    if message.record is not None:
        parsed.record.key = message.record.key
        parsed.record.value = message.record.value
        if message.record.time_received:
            parsed.record.timeReceived = message.record.time_received
        if message.record.proof:
            parsed.record.proof = message.record.proof
    for ours, theirs in (
        (message.closer, parsed.closerPeers),
        (message.providers, parsed.providerPeers),
    ):
        for peer in ours:
            entry = theirs.add(id=peer.peer, addrs=peer.addresses)
            if peer.connection:
                entry.connection = peer.connection
    if message.brief:
        parsed.brief = True
    return parsed


def from_protobuf(parsed: kad_pb2.Message) -> KadMessage:
    record = None
    if parsed.HasField("record"):
        kept = parsed.record
        record = Record(kept.key, kept.value, kept.timeReceived, kept.proof)
    return KadMessage(
        KadType(parsed.type),
        parsed.key,
        record,
        *(
            tuple(KadPeer(each.id, tuple(each.addrs), each.connection) for each in those)
            for those in (parsed.closerPeers, parsed.providerPeers)
        ),
        parsed.brief,
    )


def plain(message: KadMessage) -> KadMessage:
    """The message without what it remembers about itself."""
    return msgspec.structs.replace(
        message,
        closer=tuple(msgspec.structs.replace(peer, cached_size=0) for peer in message.closer),
        providers=tuple(msgspec.structs.replace(peer, cached_size=0) for peer in message.providers),
        cached_meta=None,
    )


class TestAgreementWithProtobuf:
    """The generated classes are the judge of our bytes."""

    @given(messages)
    def test_our_bytes_are_the_librarys_bytes(self, message: KadMessage) -> None:
        """Both ways, and the size in the trace is the size on the wire."""
        encoded = encode_kad(message)
        assert encoded == to_protobuf(message).SerializeToString()
        assert message.meta.size == len(encoded)
        assert message.meta.operations[0].name == message.type.name
        assert from_protobuf(kad_pb2.Message.FromString(encoded)) == plain(message)
        assert decode_kad(encoded) == plain(message)

    @given(st.binary(max_size=200))
    @example(b"\x0a\x00")
    def test_what_both_read_they_read_alike(self, data: bytes) -> None:
        """Arbitrary bytes: a DecodeError, or what the library reads."""
        try:
            ours = decode_kad(data)
        except DecodeError:
            return
        try:
            theirs = kad_pb2.Message.FromString(data)
        except ProtobufDecodeError:
            return  # field groups and text that is not UTF-8 are the library's business
        if any(not 0 <= each.connection <= 3 for each in theirs.closerPeers):
            return
        if not ours.left_out and len(data) == theirs.ByteSize():
            assert plain(ours) == from_protobuf(theirs)

    @pytest.mark.parametrize(
        ("message", "encoded"),
        [
            (KadMessage(KadType.FIND_NODE, b"\x01\x02"), "080412020102"),
            (KadMessage(KadType.PING), "0805"),
            (
                KadMessage(KadType.PUT_VALUE, b"k", Record(b"k", b"v")),
                "0800 12016b 1a06 0a016b 120176",
            ),
            (
                KadMessage(KadType.GET_VALUE, b"k", Record(b"k", b"v", "2024-01-01T00:00:00Z")),
                "0801 12016b 1a1c 0a016b 120176 2a14" + b"2024-01-01T00:00:00Z".hex(),
            ),
            (
                KadMessage(KadType.GET_VALUE, b"k", Record(b"k", b"v", proof=b"p")),
                "0801 12016b 1a0a 0a016b 120176 82010170",
            ),
            (
                KadMessage(
                    KadType.GET_PROVIDERS,
                    b"k",
                    closer=(KadPeer(b"p", (b"a", b"b")),),
                    providers=(KadPeer(b"q", (), 1),),
                ),
                "0803 12016b 4209 0a0170 120161 120162 4a05 0a0171 1801",
            ),
        ],
    )
    def test_vectors(self, message: KadMessage, encoded: str) -> None:
        """Bytes written down by hand from the specification's schema."""
        assert encode_kad(message) == bytes.fromhex(encoded)
        assert decode_kad(bytes.fromhex(encoded)) == plain(message)


class TestBounds:
    """Nothing is built that a limit has not allowed."""

    @pytest.mark.parametrize(
        ("data", "limits", "reason"),
        [
            (bytes(100), {"message_bytes": 99}, "oversized"),
            (varint_field(1, 6), {}, "unknown-type"),
            (varint_field(1, 2**63), {}, "unknown-type"),
            (bytes_field(2, bytes(513)), {}, "key-too-long"),
            (bytes_field(3, bytes_field(1, bytes(513))), {}, "key-too-long"),
            (bytes_field(3, bytes_field(2, bytes(11))), {"value_bytes": 10}, "value-too-long"),
            (bytes_field(3, bytes_field(16, bytes(11))), {"proof_bytes": 10}, "proof-too-long"),
            (bytes_field(3, string_field(5, "x" * 65)), {}, "bad-date"),
            (bytes_field(3, bytes_field(5, b"\xff")), {}, "bad-date"),
            (bytes_field(8, bytes_field(1, b"p")) * 65, {}, "too-many-peers"),
            (bytes_field(9, bytes_field(1, b"p")) * 3, {"providers": 2}, "too-many-peers"),
            (bytes_field(8, b""), {}, "bad-peer"),
            (bytes_field(8, bytes_field(1, bytes(65))), {}, "bad-peer"),
            (varint_field(15, 0) * 17, {}, "too-many-fields"),
            (bytes_field(3, varint_field(15, 0) * 17), {}, "too-many-fields"),
            (bytes_field(8, varint_field(15, 0) * 17), {}, "too-many-fields"),
            (b"\x12\x05abc", {}, "truncated"),
            (b"\x0b", {}, "bad-wire-type"),
        ],
    )
    def test_what_breaks_a_rule_is_refused(
        self, data: bytes, limits: dict[str, int], reason: str
    ) -> None:
        """Each with its reason."""
        assert reason_of(decode_kad, data, msgspec.structs.replace(KadLimits(), **limits)) == reason

    def test_addresses_too_many_or_too_long_are_left_out_and_counted(self) -> None:
        """Who names a peer did not choose its addresses."""
        peer = bytes_field(1, b"p") + bytes_field(2, bytes(513)) + bytes_field(2, b"a") * 20
        message = decode_kad(bytes_field(8, peer) + bytes_field(9, peer))
        assert message.closer == (KadPeer(b"p", (b"a",) * 16),)
        assert message.left_out == 10

    def test_a_message_of_small_lies_takes_little_memory(self) -> None:
        """A long message of empty peers stops at the first item too many."""
        data = bytes_field(9, bytes_field(1, b"p")) * 300_000
        tracemalloc.start()
        try:
            with pytest.raises(DecodeError):
                decode_kad(data)
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()

    @given(messages, st.data())
    def test_a_damaged_message_is_refused_or_read_but_breaks_nothing(
        self, message: KadMessage, data: st.DataObject
    ) -> None:
        """Any byte changed, any tail cut off."""
        encoded = bytearray(encode_kad(message))
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(encoded)))
        try:
            read = decode_kad(bytes(encoded[:cut]))
        except DecodeError:
            return
        assert len(encode_kad(read)) == read.meta.size


class TestDates:
    """RFC 3339 between text and seconds."""

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("1970-01-01T00:00:00Z", 0.0),
            ("2024-02-29T12:00:00.250Z", 1_709_208_000.25),
            ("2024-02-29T13:30:00.25+01:30", 1_709_208_000.25),
            ("2024-02-29t04:00:00.250000000-08:00", 1_709_208_000.25),
            ("2000-12-31T23:59:60z", 978_307_200.0),
            ("9999-12-31T23:59:59Z", 253_402_300_799.0),
        ],
    )
    def test_dates_of_all_peers_are_read(self, text: str, seconds: float) -> None:
        """js writes milliseconds, go nanoseconds and offsets."""
        assert rfc3339.read(text) == seconds

    @given(st.integers(0, 253_402_300_799_999))
    def test_what_is_written_is_read_back(self, milliseconds: int) -> None:
        """To the millisecond, from 1970 to 9999."""
        assert round(rfc3339.read(rfc3339.write(milliseconds / 1000)) * 1000) == milliseconds

    @pytest.mark.parametrize(
        "text",
        [
            "", "2024", "2024-13-01T00:00:00Z", "2023-02-29T00:00:00Z", "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00", "2024-01-01T00:00:00+24:00", "0000-01-01T00:00:00Z",
            "٢٠٢٤-01-01T00:00:00Z", "2024-01-01T00:00:00Z" + " " * 100,
        ],
    )  # fmt: skip
    def test_anything_else_is_no_date(self, text: str) -> None:
        """And a record with such a date has none."""
        assert rfc3339.read(text) is None
        assert Record(b"", b"", text).received is None

    @given(st.text(max_size=70))
    def test_any_text_is_a_date_or_none(self, text: str) -> None:
        """Dates come from peers."""
        assert isinstance(rfc3339.read(text), float | None)

    @pytest.mark.parametrize("seconds", [-1.0, 1e18])
    def test_dates_out_of_range_are_clamped_when_written(self, seconds: float) -> None:
        """A clock that is wrong writes a date that is wrong, and never fails."""
        assert len(rfc3339.write(seconds)) == 24
