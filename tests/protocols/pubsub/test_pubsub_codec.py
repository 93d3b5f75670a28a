"""The RPC codec: the same bytes as the protobuf library, bounded, and never another error."""

import dataclasses
import tracemalloc

import msgspec
import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from rpc_strategies import (
    from_protobuf,
    id_lists,
    messages,
    rpcs,
    to_protobuf,
    topics,
    without_caches,
)

from oracles import rpc_pb2
from refusals import reason_of
from rumormill.core.config import override
from rumormill.core.errors import ConfigError, DecodeError
from rumormill.protocols.pubsub.codec import (
    SIGN_PREFIX,
    PubsubLimits,
    _read_any,
    _read_usual,
    decode_rpc,
    encode_message,
    encode_rpc,
    proof_of,
    signing_payload,
)
from rumormill.protocols.pubsub.control_codec import MAX_ID_BYTES
from rumormill.protocols.pubsub.messages import (
    Control,
    IHave,
    Message,
    PeerInfo,
    Prune,
    Rpc,
    SubOpts,
    rpc_size,
)
from rumormill.wire.protobuf import bytes_field, string_field, varint, varint_field

SUBSCRIBE = bytes_field(1, varint_field(1, 1) + string_field(2, "t"))


raw_fields = st.tuples(
    st.sampled_from(["shortest length", "longer length", "number"]),
    st.integers(1, 7),
    st.sampled_from([0, 1, 127, 128, 300, 20_000]),
)
"""Fields as an author might send them: how it is written, the field's number, how long it is."""


def raw_field(how: str, number: int, length: int) -> bytes:
    if how == "number":
        return varint_field(number, length)
    encoded = bytes_field(number, bytes(length))
    if how == "longer length" and length < 0x80:
        encoded = bytes((encoded[0], length | 0x80, 0)) + bytes(length)
    return encoded


def refusal(data: bytes, **limits: int) -> str:
    """Why bytes are refused when some limits are lower."""
    return reason_of(decode_rpc, data, msgspec.structs.replace(PubsubLimits(), **limits))


class TestAgreementWithProtobuf:
    """The generated classes are the judge of our bytes."""

    @given(rpcs)
    def test_our_bytes_are_the_librarys_bytes(self, rpc: Rpc) -> None:
        """Encoding gives byte for byte what the protobuf library serialises."""
        assert encode_rpc(rpc) == to_protobuf(rpc).SerializeToString()

    @given(rpcs)
    def test_our_bytes_parse_there_to_the_same_values(self, rpc: Rpc) -> None:
        """The protobuf library reads the values that we encoded."""
        parsed = rpc_pb2.RPC.FromString(encode_rpc(rpc))
        assert from_protobuf(parsed) == without_caches(rpc)

    @given(rpcs)
    def test_their_bytes_decode_here_to_the_same_values(self, rpc: Rpc) -> None:
        """We read the values that the protobuf library serialised."""
        decoded = decode_rpc(to_protobuf(rpc).SerializeToString())
        assert without_caches(decoded) == without_caches(rpc)

    @given(rpcs)
    def test_sizes_are_the_real_lengths(self, rpc: Rpc) -> None:
        """`rpc_size` and `Message.size` are lengths of the encoding, before and after it exists."""
        before = rpc_size(rpc)
        sizes = [message.size for message in rpc.publish]
        encoded = encode_rpc(rpc)
        assert before == rpc_size(rpc) == len(encoded) == rpc.meta.size
        assert decode_rpc(encoded).meta.size == len(encoded)
        assert sizes == [len(encode_message(message)) for message in rpc.publish]

    @given(st.lists(st.tuples(st.integers(1, 7), st.binary(max_size=30)), max_size=8))
    def test_fields_in_any_order_and_number_read_as_protobuf_reads_them(
        self, values: list[tuple[int, bytes]]
    ) -> None:
        """Of a repeated single value the last one counts, in whatever order fields come."""
        body = b"".join(
            bytes_field(number, b"topic" if number == 4 else value) for number, value in values
        )
        data = bytes_field(2, body)
        assert without_caches(decode_rpc(data)) == from_protobuf(rpc_pb2.RPC.FromString(data))

    @given(rpcs, rpcs)
    def test_concatenated_rpcs_merge(self, first: Rpc, second: Rpc) -> None:
        """Two encodings behind each other are one RPC, its control parts merged."""
        data = encode_rpc(first) + encode_rpc(second)
        assert without_caches(decode_rpc(data)) == from_protobuf(rpc_pb2.RPC.FromString(data))

    def test_trace_metadata_of_a_decoded_rpc(self) -> None:
        """The metadata names what arrived."""
        sent = Rpc((SubOpts(True, "t"),), (Message("t", b"x"),), Control(iwant=(b"i",)))
        meta = decode_rpc(encode_rpc(sent), name=lambda message: message.data).meta
        assert meta.messages[0].message_id == b"x"
        assert meta.subscription[0].topic == "t"
        assert meta.control is not None
        assert meta.control.iwant[0].message_ids == (b"i",)

    @pytest.mark.parametrize("ids", [(b"i",), (b"i" * 121,), (b"i" * 122,), (b"i", b"j"), (b"",)])
    def test_an_rpc_of_one_idontwant_is_one_like_any_other(self, ids: tuple[bytes, ...]) -> None:
        """Half of what a mesh sends is this, and is read by a shorter way."""
        sent = Rpc(control=Control(idontwant=ids))
        came = decode_rpc(encode_rpc(sent))
        assert (came.control, came.meta) == (sent.control, sent.meta)
        for limits in (
            PubsubLimits(other_fields=0),
            PubsubLimits(id_lists=0),
            PubsubLimits(idontwant_ids=0),
            PubsubLimits(control_bytes=1),
        ):
            with pytest.raises(DecodeError):
                decode_rpc(encode_rpc(sent), limits)


class TestUnknownFields:
    """What a newer peer adds is skipped and, inside a message, forwarded."""

    UNKNOWN = (
        varint_field(9, 300)
        + bytes_field(17, b"later")
        + varint(20 << 3 | 1)
        + bytes(8)
        + varint(21 << 3 | 5)
        + bytes(4)
        + varint_field(6492434, 1)
    )

    @given(messages)
    def test_a_forwarded_message_is_byte_identical(self, message: Message) -> None:
        """Decoding and encoding a message repeats it, fields included that we do not know."""
        body = self.UNKNOWN + encode_message(message) + self.UNKNOWN
        decoded = decode_rpc(bytes_field(2, body))
        assert decoded.publish[0].encoded == body
        assert decoded.publish[0].data == message.data
        assert encode_rpc(decoded) == bytes_field(2, body)
        assert rpc_size(decoded) == len(bytes_field(2, body))

    def test_they_are_skipped_at_every_level(self) -> None:
        """Each part of an RPC tolerates unknown fields of every wire type."""
        more = self.UNKNOWN
        peer = bytes_field(2, bytes_field(1, b"p") + more)
        control = (
            bytes_field(1, string_field(1, "t") + more + bytes_field(2, b"i"))
            + bytes_field(2, more + bytes_field(1, b"w"))
            + bytes_field(3, string_field(1, "g") + more)
            + bytes_field(4, string_field(1, "p") + more + peer + varint_field(3, 60))
            + bytes_field(5, more + bytes_field(1, b"d"))
            + more
        )
        sub = varint_field(1, 1) + more + string_field(2, "s")
        data = more + bytes_field(1, sub) + bytes_field(3, control) + more
        assert decode_rpc(data) == Rpc(
            (SubOpts(True, "s"),),
            (),
            Control(
                (IHave("t", (b"i",)),),
                (b"w",),
                ("g",),
                (Prune("p", (PeerInfo(b"p"),), 60),),
                (b"d",),
            ),
        )

    def test_a_known_number_with_another_wire_type_is_unknown(self) -> None:
        """A number in place of a topic is skipped, as the protobuf library does."""
        data = bytes_field(2, varint_field(4, 5) + bytes_field(2, b"x"))
        assert without_caches(decode_rpc(data)) == from_protobuf(rpc_pb2.RPC.FromString(data))

    def test_an_empty_message_stays_empty(self) -> None:
        """Even a message without any field is forwarded as it came."""
        assert encode_rpc(decode_rpc(b"\x12\x00")) == b"\x12\x00"

    def test_tags_and_lengths_longer_than_needed_are_read(self) -> None:
        """Padding of a varint changes nothing but its length."""
        body = b"\x92\x00" + b"\x83\x80\x00" + b"abc" + b"\xa2\x80\x00\x81\x00t"
        decoded = decode_rpc(b"\x92\x80\x00" + bytes([len(body) | 0x80, 0]) + body)
        assert (decoded.publish[0].data, decoded.publish[0].topic) == (b"abc", "t")


class TestMessageIds:
    """The router's function names messages as they are decoded."""

    def test_each_message_gets_its_id(self) -> None:
        """The function sees the decoded message, and what it says becomes the id."""
        rpc = Rpc(publish=(Message("t", b"1", b"A", b"x"), Message("t", b"2", b"B", b"y")))
        decoded = decode_rpc(encode_rpc(rpc), name=lambda m: m.author + m.seqno)
        assert [message.id for message in decoded.publish] == [b"Ax", b"By"]

    def test_a_bad_rpc_is_refused_before_any_id_is_computed(self) -> None:
        """No hash is computed for an RPC that ends badly."""
        asked: list[Message] = []

        def remember(message: Message) -> bytes:
            asked.append(message)
            return b""

        with pytest.raises(DecodeError):
            decode_rpc(encode_rpc(Rpc(publish=(Message("t", b"1"),))) + b"\x0a", name=remember)
        assert not asked


class TestSigning:
    """What a signature covers, as the pub/sub specification and go-libp2p-pubsub have it."""

    @given(messages)
    def test_the_payload_is_the_prefix_and_the_message_without_signature_and_key(
        self, message: Message
    ) -> None:
        """Author, receiver and the protobuf library agree on the signed bytes."""
        reference = to_protobuf(Rpc(publish=(message,))).publish[0]
        reference.ClearField("signature")
        reference.ClearField("key")
        expected = SIGN_PREFIX + reference.SerializeToString()
        assert signing_payload(message) == expected
        received = decode_rpc(encode_rpc(Rpc(publish=(message,)))).publish[0]
        assert signing_payload(received) == expected

    def test_a_field_that_is_present_but_empty_is_signed(self) -> None:
        """go signs `data` of length zero as a field; the receiver must do the same."""
        body = bytes_field(1, b"A") + bytes_field(2, b"") + string_field(4, "t")
        received = decode_rpc(bytes_field(2, body + bytes_field(5, b"sig"))).publish[0]
        assert received.data == b""
        assert signing_payload(received) == SIGN_PREFIX + body

    def test_fields_out_of_order_are_signed_in_order_and_unknown_ones_behind(self) -> None:
        """The author signed what its own serialiser makes of the message."""
        unknown = varint_field(9, 1)
        body = unknown + string_field(4, "t") + bytes_field(6, b"key") + bytes_field(1, b"A")
        received = decode_rpc(bytes_field(2, body)).publish[0]
        expected = bytes_field(1, b"A") + string_field(4, "t") + unknown
        assert signing_payload(received) == SIGN_PREFIX + expected

    @given(st.lists(raw_fields, max_size=8))
    @example([("shortest length", number, 20) for number in range(1, 7)])
    @example([("shortest length", 1, 1), ("longer length", 2, 1), ("shortest length", 5, 64)])
    def test_what_is_signed_does_not_depend_on_how_it_is_found(
        self, fields: list[tuple[str, int, int]]
    ) -> None:
        """Bytes taken as they are and bytes put together again are the same, whatever was sent."""
        body = b"".join(raw_field(*field) for field in fields)
        limits = PubsubLimits(topic_bytes=1 << 20, key_bytes=1 << 20, signature_bytes=1 << 20)
        received = decode_rpc(bytes_field(2, body), limits).publish[0]
        anew = msgspec.structs.replace(received, signed_bytes=0)
        assert signing_payload(received) == signing_payload(anew)
        if received.signature:
            assert proof_of(received) == proof_of(anew)

    def test_a_usual_message_is_taken_as_it_is(self) -> None:
        """Otherwise every receiver would pay for putting it together again."""
        body = bytes_field(1, b"A") + bytes_field(2, bytes(1000)) + string_field(4, "t")
        received = decode_rpc(bytes_field(2, body + bytes_field(5, b"sig"))).publish[0]
        assert received.signed_bytes == len(body)


class TestLimits:
    """Every count and size has a bound, and exactly the bound is allowed."""

    @pytest.mark.parametrize(
        ("limit", "item", "reason"),
        [
            ("subscriptions", SUBSCRIBE, "too-many-subscriptions"),
            ("messages", bytes_field(2, string_field(4, "t")), "too-many-messages"),
            ("id_lists", bytes_field(3, bytes_field(1, b"")), "too-many-lists"),
            ("id_lists", bytes_field(3, bytes_field(2, b"")), "too-many-lists"),
            ("id_lists", bytes_field(3, bytes_field(5, b"")), "too-many-lists"),
            ("id_lists", bytes_field(3, varint_field(9, 1)), "too-many-lists"),
            ("ihave_ids", bytes_field(3, bytes_field(1, bytes_field(2, b"i"))), "too-many-ids"),
            ("iwant_ids", bytes_field(3, bytes_field(2, bytes_field(1, b"i"))), "too-many-ids"),
            ("idontwant_ids", bytes_field(3, bytes_field(5, bytes_field(1, b"i"))), "too-many-ids"),
            ("grafts", bytes_field(3, bytes_field(3, b"")), "too-many-grafts"),
            ("prunes", bytes_field(3, bytes_field(4, b"")), "too-many-prunes"),
            ("other_fields", varint_field(9, 1), "too-many-fields"),
            ("other_fields", bytes_field(3, b""), "too-many-fields"),
        ],
    )
    def test_counts_are_per_rpc_however_the_items_are_spread(
        self, limit: str, item: bytes, reason: str
    ) -> None:
        """Three items pass a limit of three, four do not."""
        decode_rpc(item * 3, msgspec.structs.replace(PubsubLimits(), **{limit: 3}))
        assert refusal(item * 4, **{limit: 3}) == reason

    @pytest.mark.parametrize("lengths", [(4, 4, 4), (4, 5, 6), (4, 4, 200), (0, 0, 0)])
    @pytest.mark.parametrize(("kind", "number"), [("ihave", 2), ("iwant", 1), ("idontwant", 1)])
    def test_ids_in_one_list_are_counted(
        self, lengths: tuple[int, ...], kind: str, number: int
    ) -> None:
        """Ids of one length are read in one step, others one by one; the limit is the same."""
        ids = b"".join(bytes_field(number, bytes(length)) for length in lengths)
        tag = {"ihave": 1, "iwant": 2, "idontwant": 5}[kind]
        data = bytes_field(3, bytes_field(tag, ids))
        decode_rpc(data, msgspec.structs.replace(PubsubLimits(), **{f"{kind}_ids": 3}))
        assert refusal(data, **{f"{kind}_ids": 2}) == "too-many-ids"

    def test_peers_of_a_prune(self) -> None:
        """The bound on offered peers holds for each PRUNE."""
        prune = bytes_field(4, bytes_field(2, bytes_field(1, b"p")) * 64)
        decode_rpc(bytes_field(3, prune * 2))
        more = bytes_field(4, bytes_field(2, b"") * 65)
        assert refusal(bytes_field(3, more)) == "too-many-peers"

    def test_sizes(self) -> None:
        """Topics, records, the control part and the RPC itself have a longest length."""
        record = bytes_field(2, bytes_field(2, bytes(9)))
        control = bytes_field(3, bytes_field(4, record))
        decode_rpc(control, PubsubLimits(record_bytes=9))
        assert refusal(control, record_bytes=8) == "record-too-long"
        inner = len(control) - 2
        assert refusal(control * 2, control_bytes=inner * 2 - 1) == "control-too-long"
        decode_rpc(control * 2, PubsubLimits(control_bytes=inner * 2))
        assert refusal(bytes(10), rpc_bytes=9) == "rpc-too-long"

    @pytest.mark.parametrize(
        "around",
        [
            lambda topic: bytes_field(1, bytes_field(2, topic)),
            lambda topic: bytes_field(2, bytes_field(4, topic)),
            lambda topic: bytes_field(3, bytes_field(1, bytes_field(1, topic))),
            lambda topic: bytes_field(3, bytes_field(3, bytes_field(1, topic))),
            lambda topic: bytes_field(3, bytes_field(4, bytes_field(1, topic))),
        ],
        ids=["subscription", "message", "ihave", "graft", "prune"],
    )
    def test_every_topic_is_bounded_and_utf8(self, around: object) -> None:
        """A topic of 1024 bytes passes, a longer one or one that is no text does not."""
        assert callable(around)
        decode_rpc(around(b"t" * 1024))
        assert refusal(around(b"t" * 1025)) == "topic-too-long"
        assert refusal(around(b"\xff")) == "bad-topic"

    def test_a_long_key_or_signature_costs_the_author_and_not_the_forwarder(self) -> None:
        """The RPC is read, the field is cut behind its limit, and the message is forwarded whole.

        A signature of that length verifies under no key, and honest peers keep their link.
        """
        body = string_field(4, "t") + bytes_field(5, bytes(5000)) + bytes_field(6, bytes(9000))
        message = decode_rpc(bytes_field(2, body)).publish[0]
        assert (len(message.signature), len(message.key)) == (1025, 2049)
        assert message.encoded == body

    def test_a_message_of_too_many_fields_costs_the_author_and_not_the_forwarder(self) -> None:
        """It comes out with a topic that nobody can have, is kept whole, and is never verified."""
        body = string_field(4, "t") + varint_field(9, 1) * 15
        assert decode_rpc(bytes_field(2, body)).publish[0].topic == "t"
        longer = body + varint_field(9, 1)
        message = decode_rpc(bytes_field(2, longer)).publish[0]
        assert (message.topic, message.encoded) == ("", longer)
        with pytest.raises(DecodeError, match="too-many-fields"):
            signing_payload(message)

    @pytest.mark.parametrize("unknown", [varint_field(9, 1), varint_field(200, 1), b"\x0a\x00"])
    def test_fields_of_small_items_are_bounded(self, unknown: bytes) -> None:
        """A megabyte of fields that nobody wants is not walked through to its end."""
        more = unknown * 17
        peer = bytes_field(2, more)
        control = [(1, bytes_field(2, b"i") + more), (3, more), (4, peer)]
        control += [] if unknown == b"\x0a\x00" else [(2, more), (5, more)]
        control += [(4, varint_field(9, 1) * 81)]
        for number, body in control:
            data = bytes_field(3, bytes_field(number, body))
            assert refusal(data) == "too-many-fields"
        assert refusal(bytes_field(1, more)) == "too-many-fields"

    def test_a_message_id_is_a_name_and_not_a_payload(self) -> None:
        """Ids are remembered, so an RPC with an overlong one is refused."""
        fits = Rpc(control=Control(idontwant=(bytes(MAX_ID_BYTES),)))
        assert decode_rpc(encode_rpc(fits)) == fits
        for control in (
            Control(idontwant=(bytes(MAX_ID_BYTES + 1),)),
            Control(iwant=(b"x", bytes(MAX_ID_BYTES + 1))),
            Control(ihave=(IHave("t", (bytes(MAX_ID_BYTES + 1),)),)),
        ):
            assert refusal(encode_rpc(Rpc(control=control))) == "id-too-long"

    def test_four_topics_of_5000_ids_each_as_go_sends_them_fit(self) -> None:
        """An IHAVE of go's largest size (peer id and seqno: 46 or 47 bytes an id) per topic."""
        ids = tuple(bytes([n & 255]) * 47 for n in range(5000))
        ihaves = tuple(IHave(f"t{n}", ids) for n in range(4))
        decoded = decode_rpc(encode_rpc(Rpc(control=Control(ihave=ihaves))))
        assert decoded.control is not None
        assert decoded.control.ihave == ihaves
        one_more = Rpc(control=Control(ihave=(*ihaves, IHave("t4", (b"x",)))))
        assert refusal(encode_rpc(one_more)) == "too-many-ids"

    def test_cve_2026_46679_subscription_flood(self) -> None:
        """349,525 SUBSCRIBE entries in one 4 MB RPC: refused by length, and by count before it.

        With the length limit out of the way the count stops the walk at entry 5001; what was
        allocated until then stays under 2 MB, where all entries would need some 50 MB.
        """
        flood = b"".join(
            bytes_field(1, varint_field(1, 1) + string_field(2, f"{n:06x}")) for n in range(349_525)
        )
        assert len(flood) >= 4_000_000
        assert refusal(flood) == "rpc-too-long"
        tracemalloc.start()
        try:
            assert refusal(flood, rpc_bytes=1 << 23) == "too-many-subscriptions"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2_000_000

    def test_length_bombs_allocate_nothing(self) -> None:
        """A field that claims 2**63 bytes is refused, at whatever depth it stands."""
        bomb = b"\x0a" + varint(2**63)
        for number in (1, 2, 3):
            assert refusal(bytes_field(number, bomb)) == "truncated"
            assert refusal(varint(number << 3 | 2) + varint(2**64 - 1)) == "truncated"
            assert refusal(varint(number << 3 | 2) + b"\xff" * 10) == "bad-varint"
        for number in range(1, 6):
            assert refusal(bytes_field(3, bytes_field(number, bomb))) == "truncated"

    def test_a_field_may_not_reach_out_of_its_message(self) -> None:
        """A length that ends inside the RPC but outside the enclosing part is refused."""
        assert refusal(b"\x12\x02\x12\x04abcd" + SUBSCRIBE) == "truncated"
        assert refusal(b"\x1a\x04\x12\x02\x0a\x04abcd") == "truncated"
        # Here the part ends before the length; what stands behind it is no length of its field.
        assert refusal(b"\x12\x01\x12" + SUBSCRIBE) == "bad-varint"
        assert refusal(b"\x1a\x03\x12\x01\x0a" + SUBSCRIBE) == "bad-varint"

    def test_field_number_zero_and_groups_are_refused(self) -> None:
        """No field has the number 0, and groups are not in use, in a message or outside."""
        for data in (b"\x02\x00", bytes_field(2, b"\x02\x00"), bytes_field(2, b"\x00\x00")):
            assert refusal(data) == "bad-tag"
        for data in (b"\x0b\x0c", bytes_field(2, b"\x0b\x0c")):
            assert refusal(data) == "bad-wire-type"

    def test_validate(self) -> None:
        """Limits that contradict each other are refused by name."""
        PubsubLimits().validate()
        assert override(PubsubLimits(), {"grafts": "7"}).grafts == 7
        for name, value in (("grafts", -1), ("rpc_bytes", 0), ("topic_bytes", 0)):
            with pytest.raises(ConfigError, match=name):
                override(PubsubLimits(), {name: value})
        with pytest.raises(ConfigError, match="control_bytes"):
            override(PubsubLimits(), {"control_bytes": 2 << 20})


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One change of one byte string: cut, overwritten, grown or repeated at a place."""

    kind: str
    place: int
    filling: bytes

    def apply(self, data: bytes) -> bytes:
        at = self.place % (len(data) + 1)
        if self.kind == "cut":
            return data[:at]
        if self.kind == "overwrite":
            return data[:at] + self.filling + data[at + len(self.filling) :]
        if self.kind == "insert":
            return data[:at] + self.filling + data[at:]
        return data[:at] + data


mutations = st.builds(
    Mutation,
    st.sampled_from(["cut", "overwrite", "insert", "repeat"]),
    st.integers(0, 1 << 16),
    st.one_of(st.binary(min_size=1, max_size=4), st.sampled_from([b"\xff" * 9, b"\x80" * 12])),
)


def has_too_many_fields(message: Message) -> bool:
    try:
        return not signing_payload(message).startswith(SIGN_PREFIX)
    except DecodeError:
        return True


def check_any_bytes(data: bytes) -> None:
    """Decode, or raise the one declared error; what decodes must survive a round trip."""
    try:
        decoded = decode_rpc(data)
    except DecodeError:
        return
    again = decode_rpc(encode_rpc(decoded))
    assert again.meta == decoded.meta
    assert again == decoded
    spoilt = [message for message in decoded.publish if has_too_many_fields(message)]
    if spoilt:
        # The protobuf library reads on where we stop.
        assert {message.topic for message in spoilt} == {""}
        return
    try:
        reference = rpc_pb2.RPC.FromString(data)
        expected = from_protobuf(reference)
    except (ProtobufDecodeError, UnicodeDecodeError):
        return
    assert without_caches(decoded) == expected


class TestAnyBytes:
    """Whatever arrives is an RPC or a `DecodeError`."""

    @given(st.binary(max_size=300))
    @example(b"\x12")
    @example(b"\x12\x80")
    @example(b"\x1a\x02\x0a")
    def test_arbitrary_bytes(self, data: bytes) -> None:
        """Noise either decodes, to what the protobuf library reads, or is refused."""
        check_any_bytes(data)

    @given(rpcs, st.lists(mutations, min_size=1, max_size=4))
    def test_mutated_rpcs(self, rpc: Rpc, changes: list[Mutation]) -> None:
        """So do real RPCs with some bytes changed."""
        data = encode_rpc(rpc)
        for change in changes:
            data = change.apply(data)
        check_any_bytes(data)

    @given(rpcs, st.data())
    def test_every_prefix(self, rpc: Rpc, data: st.DataObject) -> None:
        """An RPC cut anywhere is refused, or ends between two fields."""
        encoded = encode_rpc(rpc)
        check_any_bytes(encoded[: data.draw(st.integers(0, len(encoded)))])

    @given(topics, id_lists, st.binary(min_size=1, max_size=3), st.integers(0, 300))
    def test_id_lists_with_foreign_bytes(
        self, topic: str, ids: tuple[bytes, ...], noise: bytes, place: int
    ) -> None:
        """The fast reading of uniform ids takes nothing for uniform that is not."""
        inner = bytearray(string_field(1, topic) + b"".join(bytes_field(2, i) for i in ids))
        at = place % (len(inner) + 1)
        inner[at : at + len(noise)] = noise
        check_any_bytes(bytes_field(3, bytes_field(1, bytes(inner))))


@given(
    message=messages,
    before=st.binary(max_size=3),
    behind=st.binary(max_size=3),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
)
@example(Message("t", b"d" * 127, b"a", b"s", b"g"), b"", b"", [])
@example(Message("t", b"d" * 128, b"a", b"s", b"g"), b"", b"\x32\x01k", [])
@example(Message("t", b"d" * 16_384, b"a" * 38, b"s" * 8, b"g" * 64), b"", b"", [])
@example(Message("t" * 200, b"d", b"a", b"s", b"g"), b"", b"", [])
def test_the_short_way_reads_what_the_long_one_reads(
    message: Message, before: bytes, behind: bytes, changes: list[tuple[int, int]]
) -> None:
    """Of whatever bytes, in the middle of others: the same message, or none."""
    message.encoded = b""
    data = bytearray(encode_message(message))
    for place, value in changes:
        if place < len(data):
            data[place] = value
    limits = PubsubLimits(topic_bytes=100, signature_bytes=80)
    whole, end = before + bytes(data) + behind, len(before) + len(data)
    try:
        found = _read_usual(whole, len(before), end, limits)
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            _read_any(whole, len(before), end, limits)
        return
    if found is not None:
        assert found == _read_any(whole, len(before), end, limits)


def test_the_short_way_takes_what_our_own_authors_write() -> None:
    """It is worth having for these."""
    usual = Message("news", b"d" * 1024, b"a" * 38, b"s" * 8, b"g" * 64)
    data = encode_message(usual)
    found = _read_usual(data, 0, len(data), PubsubLimits())
    assert found is not None
    assert (found.topic, found.data, found.signed_bytes) == ("news", usual.data, len(data) - 66)
