"""Declared messages, with the protobuf library as the judge of what is written and read."""

from enum import IntEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import kad_pb2
from refusals import reason_of
from rumormill.core.errors import DecodeError
from rumormill.wire.fields import LeftOut, Nested, Number, Octets, OneOf, Text, enumeration
from rumormill.wire.protobuf import MAX_FIELDS, bytes_field, string_field, varint_field
from rumormill.wire.schema import Schema


class Kind(IntEnum):
    """What is asked."""

    PUT_VALUE = 0
    GET_VALUE = 1
    FIND_NODE = 4


class Peer(msgspec.Struct, frozen=True):
    """A peer and its addresses."""

    id: bytes
    addresses: tuple[bytes, ...] = ()


class Record(msgspec.Struct, frozen=True):
    """A value under a key."""

    key: bytes = b""
    value: bytes = b""
    received: str = ""


class Message(msgspec.Struct):
    """A question of a hash table, as `kad.proto` has it."""

    kind: Kind
    key: bytes = b""
    record: Record | None = None
    peers: tuple[Peer, ...] = ()
    level: int = 0
    kept: bytes = b""


PEER = Schema(
    Peer,
    {"id": Octets(1, 8, missing="no-id"), "addresses": Octets(2, 8, max_count=3, too_many="")},
)
RECORD = Schema(Record, {"key": Octets(1, 8), "value": Octets(2, 200), "received": Text(5, 8)})
FIELDS = {
    "kind": Number(1, read=enumeration(Kind, "bad-kind"), always=True),
    "key": Octets(2, 8, too_long="long-key"),
    "record": Nested(3, RECORD, optional=True),
    "peers": Nested(8, PEER, max_count=4, too_many="crowd", leave_out=True),
    "level": Number(10, 1000, too_large="too-high"),
}
MESSAGE = Schema(Message, FIELDS, max_bytes=1000, too_long="long", max_others=2)

short = st.binary(max_size=8)
peers = st.builds(Peer, st.binary(min_size=1, max_size=8), st.lists(short, max_size=3).map(tuple))
records = st.builds(Record, short, st.binary(max_size=200), st.text(max_size=2))
messages = st.builds(
    Message,
    st.sampled_from(Kind),
    short,
    st.none() | records,
    st.lists(peers, max_size=4).map(tuple),
    st.integers(0, 1000),
)


def oracle(message: Message) -> kad_pb2.Message:
    """The same message as the protobuf library has it."""
    judge = kad_pb2.Message(type=int(message.kind))
    if message.key:
        judge.key = message.key
    if message.level:
        judge.clusterLevelRaw = message.level
    if message.record is not None:
        judge.record.SetInParent()
        for name, value in (
            ("key", message.record.key),
            ("value", message.record.value),
            ("timeReceived", message.record.received),
        ):
            if value:
                setattr(judge.record, name, value)
    for peer in message.peers:
        judge.closerPeers.add(id=peer.id, addrs=peer.addresses)
    return judge


class TestBytes:
    """What is written is what protobuf writes, and is read back."""

    @given(messages)
    def test_same_bytes_as_the_library(self, message: Message) -> None:
        """In the order of the numbers; the size is known without writing them."""
        encoded = MESSAGE.encode(message)
        assert encoded == oracle(message).SerializeToString(deterministic=True)
        assert MESSAGE.size(message) == len(encoded)

    @given(messages)
    def test_round_trip(self, message: Message) -> None:
        """Also inside another one's bytes, and when there is nothing to leave out."""
        encoded = MESSAGE.encode(message)
        left_out: LeftOut = {}
        assert MESSAGE.decode(encoded, left_out) == message
        assert MESSAGE.read(b"ab" + encoded + b"c", 2, 2 + len(encoded), None) == message
        assert left_out == {}

    @given(st.binary(max_size=60))
    def test_any_bytes(self, data: bytes) -> None:
        """A message that can be written again, or an error and nothing else."""
        try:
            message = MESSAGE.decode(data)
        except DecodeError:
            return
        assert MESSAGE.decode(MESSAGE.encode(message)) == message

    def test_some_of_the_fields(self) -> None:
        """`only` writes those that are named, and nothing else."""
        message = Message(Kind.FIND_NODE, b"key", level=7)
        assert MESSAGE.only("key", "level").encode(message) == bytes_field(2, b"key") + b"\x50\x07"
        assert MESSAGE.only("key").size(message) == 5

    def test_bytes_that_are_kept(self) -> None:
        """With `kept_in` they are made once."""
        keeping = Schema(Message, FIELDS, kept_in="kept")
        message = Message(Kind.GET_VALUE, b"key")
        encoded = MESSAGE.encode(message)
        assert keeping.size(message) == len(encoded)
        assert message.kept == keeping.encode(message) == encoded
        message.kept = b"other"
        assert (keeping.encode(message), keeping.size(message)) == (b"other", 5)

    def test_one_of_several_kinds(self) -> None:
        """Each type has a number of its own; an absent one is None."""
        either = OneOf({Record: Nested(1, RECORD), bytes: Octets(2, 8)})

        class Holder(msgspec.Struct, frozen=True):
            what: Record | bytes | None = None

        schema = Schema(Holder, {"what": either})
        for value in (Record(b"k", b"v"), b"plain", None):
            encoded = schema.encode(Holder(value))
            assert schema.decode(encoded) == Holder(value)
            assert schema.size(Holder(value)) == len(encoded)
        assert reason_of(schema.decode, bytes_field(1, b"") + bytes_field(2, b"x")) == (
            "repeated-field"
        )

    def test_a_declaration_that_does_not_fit_its_struct(self) -> None:
        """The fields are those of the struct, from the first on."""
        with pytest.raises(ValueError, match="first fields"):
            Schema(Record, {"value": Octets(2, 8), "key": Octets(1, 8)})


class TestBounds:
    """Counts and lengths are judged before anything is built, each under its reason."""

    def test_lengths(self) -> None:
        """Of the whole message, and of a field; a bound that is reached is not exceeded."""
        assert MESSAGE.decode(bytes_field(2, bytes(8))).key == bytes(8)
        assert reason_of(MESSAGE.decode, bytes_field(2, bytes(9))) == "long-key"
        assert reason_of(MESSAGE.decode, bytes(1001)) == "long"
        record = bytes_field(3, bytes_field(2, bytes(201)))
        assert reason_of(MESSAGE.decode, record) == "oversized"

    def test_numbers(self) -> None:
        """Too large, of no member, of another wire type, and a field number of 0."""
        assert MESSAGE.decode(varint_field(10, 1000)).level == 1000
        assert reason_of(MESSAGE.decode, varint_field(10, 1001)) == "too-high"
        assert reason_of(MESSAGE.decode, varint_field(1, 2)) == "bad-kind"
        assert reason_of(MESSAGE.decode, bytes_field(1, b"")) == "bad-wire-type"
        assert reason_of(MESSAGE.decode, b"\x00\x00") == "bad-tag"

    def test_text(self) -> None:
        """What is not UTF-8 is refused."""
        assert RECORD.decode(string_field(5, "ü")).received == "ü"
        assert reason_of(RECORD.decode, bytes_field(5, b"\xff")) == "bad-text"

    def test_what_is_missing(self) -> None:
        """An absent field and an empty one are the same; others have what stands for nothing."""
        assert reason_of(PEER.decode, b"") == reason_of(PEER.decode, bytes_field(1, b"")) == "no-id"
        assert MESSAGE.decode(b"") == Message(Kind.PUT_VALUE)
        assert MESSAGE.decode(bytes_field(3, b"")).record == Record()

    def test_copies(self) -> None:
        """A field that comes twice is refused; with `last_counts`, the last plain value stands."""
        twice = bytes_field(2, b"a") + bytes_field(2, b"b")
        assert reason_of(MESSAGE.decode, twice) == "repeated-field"
        lenient = Schema(Message, FIELDS, last_counts=True, max_others=2)
        assert lenient.decode(twice).key == b"b"
        assert reason_of(lenient.decode, bytes_field(2, b"a") * 4) == "too-many-fields"
        assert reason_of(lenient.decode, bytes_field(3, b"") * 2) == "repeated-field"

    def test_too_many_values(self) -> None:
        """Refused where there is a reason, left out and counted where there is none."""
        one = bytes_field(8, bytes_field(1, b"p"))
        assert len(MESSAGE.decode(one * 4).peers) == 4
        assert reason_of(MESSAGE.decode, one * 5) == "crowd"
        left_out: LeftOut = {}
        many = bytes_field(1, b"p") + bytes_field(2, b"at") * 5
        assert PEER.decode(many, left_out) == Peer(b"p", (b"at",) * 3)
        assert left_out == {"too-many": 2}

    def test_what_cannot_be_read_is_left_out(self) -> None:
        """With `leave_out` the rest of the message stands, and the reason is counted."""
        left_out: LeftOut = {}
        good, bad = bytes_field(8, bytes_field(1, b"p")), bytes_field(8, b"")
        assert MESSAGE.decode(bad + good, left_out).peers == (Peer(b"p"),)
        assert left_out == {"no-id": 1}


class TestUnknownFields:
    """Newer peers stay readable, within bounds."""

    @pytest.mark.parametrize("field", [varint_field(15, 3), b"\x79" + bytes(8), b"\x7d" + bytes(4)])
    def test_they_are_skipped(self, field: bytes) -> None:
        """Of whatever wire type, wherever they stand, and few of them."""
        encoded = MESSAGE.encode(Message(Kind.GET_VALUE, b"key"))
        assert MESSAGE.decode(field + encoded + field) == Message(Kind.GET_VALUE, b"key")
        assert reason_of(MESSAGE.decode, field * 3) == "too-many-fields"

    def test_the_usual_bound(self) -> None:
        """Sixteen, where a schema says nothing else."""
        assert RECORD.decode(varint_field(9, 1) * MAX_FIELDS) == Record()
        assert reason_of(RECORD.decode, varint_field(9, 1) * (MAX_FIELDS + 1)) == "too-many-fields"
