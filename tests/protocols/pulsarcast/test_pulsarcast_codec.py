"""RPCs: the protobuf library as the judge of bytes, bounds, and what strangers may send."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pulsarcast_vectors import PEERS, block_cid

from oracles import pulsarcast_pb2 as pb
from refusals import reason_of
from rumormill.core.errors import ConfigError, DecodeError
from rumormill.protocols.pulsarcast.config import RpcLimits
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dag_cbor
from rumormill.protocols.pulsarcast.format.additions import (
    Addition,
    Block,
    Events,
    Fetch,
    Have,
    JoinReply,
    JoinStatus,
    PeerAddress,
    RequestReply,
    RequestStatus,
    Terms,
)
from rumormill.protocols.pulsarcast.format.codec import from_stored, stored
from rumormill.protocols.pulsarcast.format.descriptors import (
    PROTOCOL,
    EventDescriptor,
    TopicDescriptor,
)
from rumormill.protocols.pulsarcast.format.rpc import (
    Operation,
    PeerTree,
    Rpc,
    RpcMessage,
    accepted,
    addition,
    decode_rpc,
    join,
    leave,
    publish,
    read_messages,
    request_to_publish,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.wire.protobuf import bytes_field, varint_field

ALICE, BOB = PEERS["alice"], PEERS["bob"]
TOPIC = block_cid("topic")
CREATED = "2021-06-30T23:59:59.007Z"

peer_ids = st.binary(min_size=1, max_size=40)
some_cids = st.integers(0, 9).map(lambda number: block_cid(str(number)))
cid_lists = st.lists(some_cids, max_size=3).map(tuple)
octets = st.binary(max_size=70)
addresses = st.builds(
    PeerAddress, peer=peer_ids, addresses=st.lists(st.binary(max_size=20), max_size=3).map(tuple)
)
address_lists = st.lists(addresses, max_size=3).map(tuple)
counts = st.integers(0, 2**32 - 1)
signed_events = st.builds(
    SignedEvent,
    event=st.builds(
        EventDescriptor,
        topic=some_cids,
        author=peer_ids,
        payload=st.binary(max_size=300),
        created=st.just(CREATED),
        publisher=st.none() | peer_ids,
        parent=st.none() | some_cids,
        protocol_version=st.text(min_size=1, max_size=10),
        extra=st.sampled_from((b"", dag_cbor.encode({"name": "weather"}))),
        cached_cid=st.just(b""),
    ),
    publisher_signature=octets,
    publisher_key=octets,
    author_signature=octets,
    author_key=octets,
    encoded=st.just(b""),
    cached_event=st.none(),
)
additions: st.SearchStrategy[Addition] = st.one_of(
    st.builds(
        JoinReply,
        topic=some_cids,
        status=st.sampled_from(JoinStatus),
        peers=address_lists,
        reason=st.text(max_size=20),
    ),
    st.builds(
        RequestReply,
        topic=some_cids,
        request=some_cids,
        status=st.sampled_from(RequestStatus),
        event=st.none() | some_cids,
        reason=st.text(max_size=20),
    ),
    st.builds(
        Fetch,
        topic=some_cids,
        wanted=cid_lists,
        ancestors=counts,
        known=st.none() | some_cids,
    ),
    st.builds(
        Events,
        topic=some_cids,
        events=st.lists(signed_events, max_size=3).map(tuple),
        missing=cid_lists,
    ),
    st.builds(
        Terms,
        topic=some_cids,
        silent=st.booleans(),
        start=st.integers(0, 1 << 40),
        end=st.integers(1 << 40, 1 << 45),
        count=counts,
        checksum=st.integers(0, 2**64 - 1),
    ),
    st.builds(
        Have,
        topic=some_cids,
        start=st.integers(0, 1 << 40),
        end=st.integers(1 << 40, 1 << 45),
        tails=st.lists(st.binary(min_size=8, max_size=8), max_size=3).map(tuple),
    ),
    st.builds(Block, topic=some_cids, data=octets),
)
messages = st.one_of(
    st.builds(
        RpcMessage,
        op=st.sampled_from([Operation.JOIN_TOPIC, Operation.LEAVE_TOPIC]),
        created=st.just(CREATED),
        payload=some_cids,
        elsewhere=address_lists,
        protocol_version=st.text(min_size=1, max_size=10),
    ),
    st.builds(
        RpcMessage,
        op=st.sampled_from([Operation.PUBLISH_EVENT, Operation.REQUEST_TO_PUBLISH]),
        created=st.just(CREATED),
        payload=signed_events,
        protocol_version=st.just("v"),
        elsewhere=st.just(()),
    ),
    st.builds(
        RpcMessage,
        op=st.just(Operation.UPDATE),
        created=st.just(CREATED),
        payload=st.builds(
            PeerTree,
            topic=some_cids,
            parents=st.lists(peer_ids, max_size=2).map(tuple),
            children=st.lists(peer_ids, max_size=2).map(tuple),
        ),
        protocol_version=st.just("v"),
        elsewhere=st.just(()),
    ),
)
rpcs = st.builds(
    Rpc,
    messages=st.lists(messages, max_size=3).map(tuple),
    additions=st.lists(additions, max_size=3).map(tuple),
    refused=st.just(()),
    encoded=st.just(b""),
    cached_meta=st.none(),
)


def example() -> SignedEvent:
    """An event of Alice's."""
    return SignedEvent(EventDescriptor(TOPIC, ALICE, b"hello", CREATED, ALICE))


def message_bytes(*parts: bytes, op: int = Operation.PUBLISH_EVENT) -> bytes:
    """An RPC of one message with sound metadata."""
    metadata = bytes_field(6, bytes_field(1, CREATED.encode()) + bytes_field(2, b"v"))
    return bytes_field(1, b"".join((varint_field(1, op), *parts, metadata)))


@given(rpcs)
def test_every_rpc_comes_back(rpc: Rpc) -> None:
    """Reading and writing are inverse, ours included."""
    data = Rpc.encode(rpc)
    back = decode_rpc(data)
    assert back.refused == ()
    assert back.messages == rpc.messages
    assert back.additions == rpc.additions
    assert Rpc.encode(back) == data


@given(rpcs)
def test_the_library_reads_and_writes_the_same_bytes(rpc: Rpc) -> None:
    """Google's protobuf finds every field of ours, and writes them in the same order."""
    data = Rpc.encode(rpc)
    read = pb.RPC.FromString(data)
    assert len(read.msgs) == len(rpc.messages)
    # The library groups repeated fields by number, as does an RPC whose additions are so ordered.
    if [type(each) for each in rpc.additions] == sorted(
        [type(each) for each in rpc.additions],
        key=[JoinReply, RequestReply, Fetch, Events, Terms, Have, Block].index,
    ):
        assert read.SerializeToString() == data


@given(rpcs)
def test_the_size_in_the_trace_is_the_size_on_the_wire(rpc: Rpc) -> None:
    """And the part of it that is events is no more than that."""
    meta = rpc.meta
    assert meta.size == len(Rpc.encode(rpc))
    assert meta.data_size <= meta.size
    assert rpc.meta is meta


@given(st.binary(max_size=120))
def test_any_bytes_are_an_rpc_or_the_one_error(data: bytes) -> None:
    """Nothing but `DecodeError` escapes."""
    with contextlib.suppress(DecodeError):
        decode_rpc(data)


@given(rpcs, st.data())
def test_neither_does_anything_else_from_spoilt_rpcs(rpc: Rpc, draw: st.DataObject) -> None:
    """A flipped byte anywhere is an error, a refusal or another RPC."""
    data = bytearray(Rpc.encode(rpc) or b"\n\0")
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        back = decode_rpc(bytes(data))
    except DecodeError:
        return
    assert back.meta.size == len(Rpc.encode(back))


@pytest.mark.parametrize("op", [7, 100, 2**40, 2**64 - 1])
def test_unknown_operations_are_refused_by_name_and_the_rest_stands(op: int) -> None:
    """The reader says which operation it was; the sound message beside it is delivered."""
    data = message_bytes(bytes_field(5, TOPIC), op=op) + Rpc.encode(publish(example(), 0.0))
    rpc = decode_rpc(data)
    assert [message.event for message in rpc.messages] == [example()]
    [refused] = rpc.refused
    assert (refused.reason, refused.op) == ("unknown-operation", op)


def test_an_operation_without_its_payload_is_seen_before_it_is_carried_out() -> None:
    """The original's validator lets it pass, and one of these stops the process."""
    for op in Operation:
        [message] = decode_rpc(message_bytes(bytes_field(5, TOPIC), op=op)).messages
        is_about_a_topic = op in (Operation.JOIN_TOPIC, Operation.LEAVE_TOPIC)
        assert message.misplaced == (not is_about_a_topic and op is not Operation.PING)
    [message] = publish(example(), 0.0).messages
    assert not message.misplaced
    message.op = Operation.JOIN_TOPIC
    assert message.misplaced


def test_the_original_would_skip_what_is_ours() -> None:
    """Without the fields from 100 on, the bytes are those that the original writes."""
    plain = publish(example(), 1.0)
    signed = example()
    signed.publisher_signature = b"s" * 64
    read = pb.RPC.FromString(Rpc.encode(publish(signed, 1.0)))
    read.msgs[0].event.ClearField("publisherSignature")
    assert read.SerializeToString() == Rpc.encode(plain)
    with_hint = leave(TOPIC, 1.0, (PeerAddress(BOB, (b"address",)),))
    read = pb.RPC.FromString(Rpc.encode(with_hint))
    read.msgs[0].ClearField("elsewhere")
    assert read.SerializeToString() == Rpc.encode(leave(TOPIC, 1.0))


def test_an_event_is_forwarded_as_it_arrived() -> None:
    """Fields that nobody here knows go on with it."""
    strange = bytes_field(77, b"from the future")
    event = Rpc.encode(publish(example(), 0.0))
    [message] = pb.RPC.FromString(event).msgs
    body = message.event.SerializeToString() + strange
    [arrived] = decode_rpc(message_bytes(bytes_field(3, body))).messages
    assert arrived.event == example()
    assert strange in Rpc.encode(Rpc((arrived,)))


def test_what_an_author_overdoes_spoils_that_event_alone() -> None:
    """Its forwarder may be honest, so the rest of the RPC stands."""
    big = EventDescriptor(TOPIC, ALICE, bytes(101), CREATED, ALICE)
    long_id = EventDescriptor(TOPIC, bytes(65), b"", CREATED, ALICE)
    signed = SignedEvent(EventDescriptor(TOPIC, ALICE, b"", CREATED, ALICE), bytes(2000))
    rpc = decode_rpc(
        b"".join(
            Rpc.encode(publish(each, 0.0))
            for each in (SignedEvent(big), SignedEvent(long_id), signed, example())
        ),
        RpcLimits(payload_bytes=100),
    )
    assert [message.event for message in rpc.messages] == [example()]
    assert [each.reason for each in rpc.refused] == ["event-oversized"] * 3
    answer = addition(Events(TOPIC, (SignedEvent(big), example())))
    rpc = decode_rpc(Rpc.encode(answer), RpcLimits(payload_bytes=100))
    assert rpc.additions == (Events(TOPIC, (example(),)),)
    assert [each.reason for each in rpc.refused] == ["event-oversized"]


@pytest.mark.parametrize(
    ("data", "limits", "reason"),
    [
        (bytes(11), RpcLimits(rpc_bytes=10, payload_bytes=1), "rpc-too-long"),
        (Rpc.encode(join(TOPIC, None, 0.0)) * 3, RpcLimits(messages=2), "too-many-messages"),
        (varint_field(9, 1) * 17, RpcLimits(), "too-many-fields"),
        (message_bytes(varint_field(9, 1) * 99), RpcLimits(), "too-many-fields"),
        (
            Rpc.encode(addition(Have(TOPIC, 0, 1, (TOPIC[-8:],) * 3))),
            RpcLimits(cids=2),
            "too-many-cids",
        ),
        (Rpc.encode(addition(Fetch(TOPIC, (b"x",)))), RpcLimits(), "bad-cid"),
        (Rpc.encode(addition(Fetch(b""))), RpcLimits(), "bad-cid"),
        (
            Rpc.encode(addition(Events(TOPIC, (example(),) * 3))),
            RpcLimits(events=2),
            "too-many-events",
        ),
        (
            Rpc.encode(leave(TOPIC, 0.0, (PeerAddress(BOB),) * 3)),
            RpcLimits(peers=2),
            "too-many-peers",
        ),
        (
            Rpc.encode(leave(TOPIC, 0.0, (PeerAddress(BOB, (bytes(300),)),))),
            RpcLimits(),
            "bad-address",
        ),
        (
            Rpc.encode(leave(TOPIC, 0.0, (PeerAddress(BOB, (b"a",) * 17),))),
            RpcLimits(),
            "bad-address",
        ),
        (Rpc.encode(leave(TOPIC, 0.0, (PeerAddress(b""),))), RpcLimits(), "bad-peer-id"),
        (
            Rpc.encode(addition(JoinReply(TOPIC, JoinStatus.REDIRECTED, (PeerAddress(BOB),) * 3))),
            RpcLimits(peers=2),
            "too-many-peers",
        ),
        (Rpc.encode(addition(Have(TOPIC, 2, 1))), RpcLimits(), "bad-range"),
        (
            Rpc.encode(addition(Terms(TOPIC, start=0, end=1 << 60))),
            RpcLimits(),
            "bad-range",
        ),
        (
            Rpc.encode(addition(JoinReply(TOPIC, JoinStatus.REFUSED, reason="x" * 300))),
            RpcLimits(),
            "text-too-long",
        ),
        (bytes_field(100, bytes_field(1, TOPIC) + varint_field(2, 9)), RpcLimits(), "bad-status"),
        (
            bytes_field(102, bytes_field(1, TOPIC) + varint_field(3, 2**32)),
            RpcLimits(),
            "bad-number",
        ),
        (b"\x0a\x05\x08", RpcLimits(), "truncated"),
    ],
)
def test_what_a_sender_overdoes_fails_the_rpc(data: bytes, limits: RpcLimits, reason: str) -> None:
    """Counts and sizes of the sender's own choosing have limits, and the sender pays."""
    assert reason_of(decode_rpc, data, limits or RpcLimits()) == reason


def test_limits_must_leave_room() -> None:
    """Limits under which nothing could be received are refused."""
    RpcLimits().validate()
    for wrong in (RpcLimits(peers=-1), RpcLimits(rpc_bytes=0), RpcLimits(payload_bytes=3 << 20)):
        with pytest.raises(ConfigError):
            wrong.validate()


def test_what_holds_the_tree_together_overtakes_events() -> None:
    """Joins and answers are urgent; whatever carries events, or asks whether they came, is not."""
    assert join(TOPIC, None, 0.0).urgent
    assert join(TOPIC, Terms(TOPIC), 0.0).urgent
    assert accepted(TOPIC, Terms(TOPIC)).urgent
    assert not addition(Terms(TOPIC)).urgent
    assert not publish(example(), 0.0).urgent
    assert not request_to_publish(example(), 0.0).urgent
    assert not addition(Events(TOPIC)).urgent


def test_what_the_trace_says() -> None:
    """Events are messages, in answers too; everything else is an operation by name."""
    assert [each.message_id for each in publish(example(), 0.0).meta.messages] == [example().cid]
    meta = addition(Events(TOPIC, (example(),))).meta
    assert [each.name for each in meta.operations] == ["events"]
    assert len(meta.messages) == 1
    names = [
        each.name
        for rpc in (join(TOPIC, None, 0.0), leave(TOPIC, 0.0), request_to_publish(example(), 0.0))
        for each in rpc.meta.operations
    ]
    assert names == ["join-topic", "leave-topic", "request-to-publish"]


def topic_in_protobuf(*publishers: bytes, **metadata: str) -> pb.TopicDescriptor:
    """A topic as the thesis writes it in protobuf; without publishers, as the original does."""
    lists = {"enabled": True, "publishers": publishers}
    dated = {"created": CREATED, "protocolVersion": PROTOCOL, **metadata}
    link = pb.Link(cid=cids.of(b"earlier")).SerializeToString()
    return pb.TopicDescriptor(
        name="news",
        authorAndParent=[ALICE, link],
        subTopics=[{"name": "meta", "topic": {"cid": cids.of(b"meta")}}],
        metadata={**dated, "allowedPublishers": lists, "requestToPublish": {"enabled": True}},
    )


def test_a_topic_in_protobuf_is_understood_if_nothing_of_it_is_lost() -> None:
    """Author and parent share a field and come in this order; the lists have to be there."""
    body = topic_in_protobuf(ALICE).SerializeToString()
    data = message_bytes(bytes_field(2, body), op=Operation.NEW_TOPIC)
    (message,) = decode_rpc(data).messages
    assert read_messages(data)[0][1] == "topic-in-protobuf"  # as the original has it
    links = {"meta": cids.of(b"meta")}
    whole = TopicDescriptor("news", ALICE, CREATED, cids.of(b"earlier"), links, (ALICE,), ())
    assert message.payload == whole


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (topic_in_protobuf(), "topic-in-protobuf"),
        (pb.TopicDescriptor(name="news"), "topic-in-protobuf"),
        (topic_in_protobuf(ALICE, created="now"), "topic-bad-metadata"),
        (pb.TopicDescriptor(authorAndParent=[ALICE, b"\x0a\x01a"]), "topic-bad-metadata"),
    ],
)
def test_a_topic_of_which_something_is_lost_is_shown_but_not_accepted(
    body: pb.TopicDescriptor, reason: str
) -> None:
    """The original loses the lists of peers: what is left is another topic."""
    part = bytes_field(2, body.SerializeToString())
    data = message_bytes(part, op=Operation.NEW_TOPIC)
    assert [each.reason for each in decode_rpc(data).refused] == [reason]
    [(message, _)] = read_messages(data)
    assert isinstance(message.payload, TopicDescriptor)
    (refused,) = decode_rpc(message_bytes(part)).refused
    assert refused.reason == "topic-in-protobuf"


def test_metadata_that_we_do_not_know_travels_with_an_event() -> None:
    """It is hashed, signed, sent and stored; what the original would skip is not lost here."""
    extra = dag_cbor.encode({"name": "weather", "list": [1, b"x"]})
    plain = example().event
    event = SignedEvent(replace(plain, extra=extra, cached_cid=b""))
    assert event.cid != plain.cid
    read = decode_rpc(publish(event, 0.0).encode()).messages[0].event
    assert read is not None
    assert (read.event.extra, read.cid) == (extra, event.cid)
    assert from_stored(stored(event)).event.extra == extra
    wrong = [dag_cbor.encode(each) for each in ({}, [1], {"created": "x"})]
    for bad in (*wrong, b"\xff"):
        data = pb.RPC.FromString(publish(example(), 0.0).encode())
        data.msgs[0].event.metadata.extra = bad
        assert [each.reason for each in decode_rpc(data.SerializeToString()).refused] == [
            "event-bad-metadata"
        ]
