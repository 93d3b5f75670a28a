"""NDJSON lines have go's shape, come back as they were, and are lenient where go is."""

import base64
import contextlib
import hashlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core import trace
from rumormill.trace.entries import to_nanoseconds, to_seconds
from rumormill.trace.ndjson import (
    PAYLOAD_KEYS,
    TYPE_NAMES,
    LineEncoder,
    TraceHash,
    decode_line,
    encode_lines,
)
from trace_payloads import ONE_OF_EACH, entries


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def go_line(number: int, key: str, payload: object) -> bytes:
    """A line as Go's encoder writes the protobuf struct of an event."""
    event = {"type": number, "peerID": b64(b"peer-a"), "timestamp": 1_700_000_000, key: payload}
    return json.dumps(event, separators=(",", ":")).encode()


@given(st.lists(entries(), max_size=5))
def test_every_entry_comes_back(batch):
    """Encoding and decoding loses nothing of any kind."""
    lines = encode_lines(batch).splitlines()
    assert [decode_line(line) for line in lines] == batch


def test_the_line_of_a_sent_rpc_is_gos_line():
    """Key order, base64 bytes, numeric type, nanoseconds; libp2p's fields before ours."""
    meta = trace.RpcMeta(
        messages=(trace.MessageMeta(b"m", "t"),),
        control=trace.ControlMeta(ihave=(trace.IHaveMeta("t", (b"n",)),)),
        size=9,
    )
    line = encode_lines([(1.5, b"peer-a", trace.SendRPC(b"peer-b", meta))])
    assert line == (
        b'{"type":7,"peerID":"cGVlci1h","timestamp":1500000000,"sendRPC":{"sendTo":"cGVlci1i",'
        b'"meta":{"messages":[{"messageID":"bQ==","topic":"t"}],'
        b'"control":{"ihave":[{"topic":"t","messageIDs":["bg=="]}]},"size":9}}}\n'
    )


MID, FROM = b64(b"id-1"), b64(b"peer-b")
GO_EVENTS = [
    (0, "publishMessage", {"messageID": MID, "topic": "t"}, trace.PublishMessage(b"id-1", "t")),
    (
        1,
        "rejectMessage",
        {"messageID": MID, "receivedFrom": FROM, "reason": "validation failed", "topic": "t"},
        trace.RejectMessage(b"id-1", b"peer-b", "validation failed", "t"),
    ),
    (
        2,
        "duplicateMessage",
        {"messageID": MID, "receivedFrom": FROM, "topic": "t"},
        trace.DuplicateMessage(b"id-1", b"peer-b", "t"),
    ),
    (
        3,
        "deliverMessage",
        {"messageID": MID, "topic": "t", "receivedFrom": FROM},
        trace.DeliverMessage(b"id-1", "t", b"peer-b"),
    ),
    (4, "addPeer", {"peerID": FROM, "proto": "/m/1"}, trace.AddPeer(b"peer-b", "/m/1")),
    (
        4,
        "onNewOutboundStream",
        {"peerID": FROM, "proto": "/m/1"},
        trace.AddPeer(b"peer-b", "/m/1"),
    ),
    (5, "removePeer", {"peerID": FROM}, trace.RemovePeer(b"peer-b")),
    (5, "onClosedOutboundStream", {"peerID": FROM}, trace.RemovePeer(b"peer-b")),
    (6, "recvRPC", {"receivedFrom": FROM, "meta": {}}, trace.RecvRPC(b"peer-b", trace.RpcMeta())),
    (
        7,
        "sendRPC",
        {
            "sendTo": FROM,
            "meta": {
                "messages": [{"messageID": MID, "topic": "t"}],
                "subscription": [{"subscribe": True, "topic": "t"}, {"subscribe": False}],
                "control": {
                    "ihave": [{"topic": "t", "messageIDs": [MID]}],
                    "iwant": [{"messageIDs": [MID]}, {}],
                    "graft": [{"topic": "t"}],
                    "prune": [{"topic": "t", "peers": [FROM]}, {"topic": "t"}],
                    "idontwant": [{"messageIDs": [MID]}],
                },
            },
        },
        trace.SendRPC(
            b"peer-b",
            trace.RpcMeta(
                messages=(trace.MessageMeta(b"id-1", "t"),),
                subscription=(trace.SubMeta(True, "t"), trace.SubMeta(False, "")),
                control=trace.ControlMeta(
                    ihave=(trace.IHaveMeta("t", (b"id-1",)),),
                    iwant=(trace.IWantMeta((b"id-1",)), trace.IWantMeta()),
                    graft=(trace.GraftMeta("t"),),
                    prune=(trace.PruneMeta("t", (b"peer-b",)), trace.PruneMeta("t")),
                    idontwant=(trace.IDontWantMeta((b"id-1",)),),
                ),
            ),
        ),
    ),
    (8, "dropRPC", {"sendTo": FROM, "meta": {}}, trace.DropRPC(b"peer-b", trace.RpcMeta())),
    (9, "join", {"topic": "t"}, trace.Join("t")),
    (10, "leave", {"topic": "t"}, trace.Leave("t")),
    (11, "graft", {"peerID": FROM, "topic": "t"}, trace.Graft(b"peer-b", "t")),
    (12, "prune", {"peerID": FROM, "topic": "t"}, trace.Prune(b"peer-b", "t")),
]


@pytest.mark.parametrize(("number", "key", "payload", "expected"), GO_EVENTS)
def test_a_go_nodes_line_is_read(number, key, payload, expected):
    """Every event type of libp2p's schema, with the older and the newer key names."""
    assert decode_line(go_line(number, key, payload)) == (1.7, b"peer-a", expected)


@pytest.mark.parametrize(("name", "number"), TYPE_NAMES.items())
def test_the_type_may_be_given_as_a_name(name, number):
    """Protobuf's own JSON mapping writes enumerations as names."""
    example = next(entry for entry in ONE_OF_EACH if entry[2].kind == number)
    line = json.loads(encode_lines([example]))
    line["type"] = name
    assert decode_line(json.dumps(line).encode()) == example


def test_what_go_leaves_out_because_it_is_empty_is_read_as_empty():
    """Every field of the schema is optional; an absent payload is an empty one."""
    line = b'{"type":3,"peerID":"cA==","timestamp":0,"deliverMessage":{"topic":"t"}}'
    assert decode_line(line) == (0.0, b"p", trace.DeliverMessage(b"", "t", b""))
    assert decode_line(b'{"type":9,"timestamp":0}') == (0.0, b"", trace.Join(""))
    assert decode_line(b'{"type":7}') == (0.0, b"", trace.SendRPC(b"", trace.RpcMeta()))


def test_unknown_fields_are_skipped():
    """A newer writer's additions do not stop an older reader."""
    line = b'{"type":9,"peerID":"cA==","timestamp":0,"later":1,"join":{"topic":"t","x":[{}]}}'
    assert decode_line(line) == (0.0, b"p", trace.Join("t"))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"type":13}',
        b'{"type":"NO_SUCH"}',
        b'{"type":true}',
        b'{"type":[]}',
        b'{"type":9,"join":{"topic":7}}',
        b'{"type":9,"join":[]}',
        b'{"type":7,"sendRPC":{"meta":{"messages":[7]}}}',
        b'{"type":3,"deliverMessage":{"messageID":"***"}}',
        b'{"type":3,"timestamp":"soon"}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_event_is_one_kind_of_error(line):
    """Garbled lines raise msgspec's decode error and nothing else."""
    with pytest.raises(msgspec.DecodeError):
        decode_line(line)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_an_event_or_an_error(line):
    """No other exception leaves the decoder."""
    with contextlib.suppress(msgspec.DecodeError):
        decode_line(line)


def test_every_kind_has_a_key_and_a_name():
    """The tables cover exactly the kinds that exist."""
    kinds = {payload.kind for payload in trace.TRACE_PAYLOADS}
    assert set(PAYLOAD_KEYS) == set(TYPE_NAMES.values()) == kinds
    assert {entry[2].kind for entry in ONE_OF_EACH} == kinds


@given(st.integers(0, 2 * 10**18))
def test_a_time_that_was_read_is_written_back_as_the_same_time(nanoseconds):
    """Reading rounds to a float's precision once; after that nothing moves any more."""
    seconds = to_seconds(nanoseconds)
    assert to_seconds(to_nanoseconds(seconds)) == seconds
    if nanoseconds < 10**15:
        assert to_nanoseconds(seconds) == nanoseconds


def test_the_hash_is_that_of_the_lines_however_they_are_batched():
    """`sha256sum` of the NDJSON gives the trace hash; batch borders do not matter."""
    whole, parts, shared = TraceHash(), TraceHash(), LineEncoder()
    whole.observe(ONE_OF_EACH)
    for entry in ONE_OF_EACH:
        parts.observe([entry])
    expected = hashlib.sha256(encode_lines(ONE_OF_EACH)).hexdigest()
    assert whole.hexdigest() == parts.hexdigest() == expected
    assert shared.encode(ONE_OF_EACH) is shared.encode(ONE_OF_EACH)
