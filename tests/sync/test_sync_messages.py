"""The messages of sync: what is well formed is read, and nothing else is accepted."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import sync_pb2
from rumormill.core.errors import DecodeError
from rumormill.core.history import Key
from rumormill.sync.messages import (
    MAX_SPANS,
    MAX_TOPICS,
    Body,
    Events,
    SentEvent,
    SyncMessage,
    decode_sync,
    encode_sync,
)
from rumormill.wire.protobuf import field_size
from wire_samples import SALT, SYNC, TAG

VECTORS: dict[str, Body] = dict(SYNC)


@pytest.mark.parametrize("name", VECTORS)
def test_the_trace_knows_how_long_a_message_is(name: str) -> None:
    """Their bytes are those of `sync.vectors.json` (`tests/public/test_wire_vectors.py`)."""
    message = SyncMessage(VECTORS[name])
    measured = message.meta
    encoded = encode_sync(message)
    assert measured.size == len(encoded)
    assert message.meta == measured
    assert decode_sync(encoded).meta == measured


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=30), st.booleans())
def test_events_are_told_from_what_stands_around_them(lengths: list[int], more: bool) -> None:
    """However long they are: the length's own length is none of theirs."""
    events = tuple([SentEvent(b"author", b"id", bytes(length), b"proof") for length in lengths])
    message = SyncMessage(Events(events, Key(7, b"id") if more else None))
    assert message.meta.data_size == sum([field_size(length_of(each)) for each in events])


def length_of(event: SentEvent) -> int:
    """What the reference makes of it."""
    events = sync_pb2.SyncMessage().events.events
    made = events.add(author=event.author, id=event.id, data=event.data, proof=event.proof)
    return int(made.ByteSize())


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
