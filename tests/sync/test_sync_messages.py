"""The messages of sync: their bytes are frozen, protoc reads them, and nothing else is accepted."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import sync_pb2
from rumormill.core.errors import DecodeError
from rumormill.core.history import BEGIN, END, Key, Window
from rumormill.sync.messages import (
    MAX_SPANS,
    MAX_TOPICS,
    Body,
    Compare,
    Compared,
    Confirm,
    Confirmed,
    Difference,
    Events,
    Fetch,
    Offer,
    Probe,
    ProbedTopic,
    SentEvent,
    Span,
    SyncMessage,
    Verdict,
    Wanted,
    decode_sync,
    encode_sync,
)

SALT, TAG, HASH = b"0123456789abcdef", b"newstag!", b"hash66"
KEY = Key(1_700_000_000_000_000, b"author\0\0")

VECTORS: dict[str, Body] = {
    "PROBE": Probe(
        SALT,
        5,
        6,
        (ProbedTopic(TAG, HASH, Window()), ProbedTopic(TAG, HASH, Window(77, False, False))),
    ),
    "VERDICT": Verdict((Difference(1, 300, (Span(KEY, HASH), Span(END))),), (0, 3)),
    "COMPARE": Compare(SALT, TAG, BEGIN, (Span(KEY), Span(Key(KEY.stamp, b"z"), HASH))),
    "COMPARED": Compared((Span(KEY, HASH),), KEY),
    "COMPARED NOTHING": Compared(),
    "FETCH": Fetch(SALT, TAG, (Wanted(BEGIN, KEY), Wanted(KEY, END, b"short1short2"))),
    "EVENTS": Events((SentEvent(b"author", b"id", b"data", b"proof"),), KEY, 1),
    "OFFER": Offer((TAG,)),
    "CONFIRM": Confirm(TAG, (b"one", b"two")),
    "CONFIRMED": Confirmed((0, 63)),
}

FROZEN = {
    "PROBE": (
        "0a370a103031323334353637383961626364656610051806221f6e65777374616721686173683636"
        "006e65777374616721686173683636b302"
    ),
    "VERDICT": (
        "122e0a28080110ac021a218080f9c0c1c4820311617574686f720000686173683636ffff86bfbebb"
        "fdfc7f0010001003"
    ),
    "COMPARE": (
        "1a3a0a103031323334353637383961626364656612086e657773746167211a00221a8080f9c0c1c4"
        "820310617574686f72000000037a686173683636"
    ),
    "COMPARED": (
        "222e0a178080f9c0c1c4820311617574686f7200006861736836361213088080f9c0c1c482031208"
        "617574686f720000"
    ),
    "COMPARED NOTHING": "2200",
    "FETCH": (
        "2a660a103031323334353637383961626364656612086e657773746167211a170a001213088080f9"
        "c0c1c482031208617574686f7200001a2f0a13088080f9c0c1c482031208617574686f720000120a"
        "08ffffffffffffffff7f1a0c73686f72743173686f727432"
    ),
    "EVENTS": (
        "32320a190a06617574686f72120269641a0464617461220570726f6f661213088080f9c0c1c48203"
        "1208617574686f7200001801"
    ),
    "OFFER": "3a0a0a086e65777374616721",
    "CONFIRM": "42140a086e6577737461672112036f6e65120374776f",
    "CONFIRMED": "4a040800083f",
}


@pytest.mark.parametrize("name", VECTORS)
def test_bytes_are_frozen(name: str) -> None:
    """Another implementation writes and reads these."""
    message = SyncMessage(VECTORS[name])
    encoded = encode_sync(message)
    assert encoded.hex() == FROZEN[name]
    assert decode_sync(encoded).body == message.body
    assert message.meta.size == len(encoded)


@pytest.mark.parametrize("name", VECTORS)
def test_protoc_reads_and_writes_the_same(name: str) -> None:
    """The schema is the published one."""
    encoded = encode_sync(SyncMessage(VECTORS[name]))
    read = sync_pb2.SyncMessage.FromString(encoded)
    assert read.WhichOneof("body") == name.split(maxsplit=1)[0].lower()
    assert read.SerializeToString(deterministic=True) == encoded


@given(st.binary(max_size=400))
def test_whatever_arrives_is_read_or_refused(data: bytes) -> None:
    """And what was read is written as it can be read again."""
    try:
        message = decode_sync(data)
    except DecodeError:
        return
    again = decode_sync(encode_sync(message))
    assert again.body == message.body


@given(st.sampled_from(list(VECTORS)), st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_no_altered_message_does_more(name: str, place: int, piece: bytes) -> None:
    """Bytes are changed, left out and put in."""
    good = encode_sync(SyncMessage(VECTORS[name]))
    for bad in (good[:place], good[:place] + piece + good[place:], good[place:]):
        with contextlib.suppress(DecodeError):
            decode_sync(bad)


def spans(count: int) -> bytes:
    return bytes.fromhex("0100") * count


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "no-body"),
        ({"compare": {"salt": b"short", "tag": TAG}}, "bad-salt"),
        ({"compare": {"tag": TAG}}, "bad-salt"),
        ({"compare": {"salt": SALT, "tag": b"1"}}, "bad-tag"),
        ({"compared": {"spans": spans(MAX_SPANS + 1)}}, "too-many-ranges"),
        ({"compared": {"spans": bytes.fromhex("0000")}}, "bad-range"),
        ({"compared": {"spans": bytes.fromhex("01000000")}}, "bad-range"),
        ({"compared": {"spans": bytes.fromhex("0101")}}, "bad-range"),
        ({"compared": {"spans": bytes.fromhex("01ff0f")}}, "bad-range"),
        ({"compared": {"spans": bytes.fromhex("ffffffffffffffffff0100")}}, "bad-range"),
        ({"probe": {"salt": SALT, "topics": bytes(15) * (MAX_TOPICS + 1)}}, "too-many-topics"),
        ({"probe": {"salt": SALT, "topics": bytes(14)}}, "bad-varint"),
        ({"probe": {"salt": SALT, "topics": bytes(14) + b"\xff" * 9 + b"\x01"}}, None),
        ({"fetch": {"salt": SALT, "tag": TAG, "wanted": [{"known": b"short"}]}}, "bad-short-ids"),
        ({"events": {"events": [{"author": b"a"}]}}, "no-id"),
        ({"verdict": {"unknown": [MAX_TOPICS]}}, "bad-number"),
        ({"offer": {"tags": [b"too long a tag"]}}, "oversized"),
    ],
)
def test_what_is_refused_and_why(fields: dict[str, object], reason: str | None) -> None:
    """Every list has a limit, every field its length."""
    data = sync_pb2.SyncMessage(**fields).SerializeToString()  # type: ignore[arg-type]
    if reason is None:
        decode_sync(data)
        return
    with pytest.raises(DecodeError) as refused:
        decode_sync(data)
    assert refused.value.reason == reason
