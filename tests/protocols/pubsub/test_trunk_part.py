"""The extension's part of an RPC: bytes that do not change, the protobuf library's, and bounded."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import rpc_pb2
from refusals import reason_of
from rumormill.core.errors import DecodeError
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc
from rumormill.protocols.pubsub.messages import Control, Rpc, SubOpts, rpc_size
from rumormill.protocols.pubsub.trunk_part import (
    AGE_MAX,
    ANSWER,
    CALL,
    EXTENSION,
    FIELDS_MAX,
    NAMES_MAX,
    PAST_MAX,
    TAGS_MAX,
    TICK,
    Past,
    Probe,
    TrunkPart,
    key_of,
    mark_of,
)
from rumormill.wire.protobuf import bytes_field, string_field
from wire_samples import NAME, SOURCE_TAG, TRUNK

PAGE = Path(__file__).parents[3] / "docs" / "trunk.md"

names = st.lists(st.binary(min_size=8, max_size=8), max_size=6).map(tuple)
tags = st.lists(st.binary(min_size=4, max_size=4), max_size=6).map(tuple)
topics = st.text(min_size=1, max_size=12)
probes = st.builds(
    Probe, topic=topics, source=st.binary(max_size=40), number=st.integers(0, 2**32 - 1)
)
ages = st.integers(0, round(AGE_MAX / TICK)).map(lambda ticks: ticks * TICK)
pasts = st.builds(
    lambda topic, heard: Past(topic, tuple(heard), tuple(heard.values())),
    topics,
    st.dictionaries(st.binary(min_size=8, max_size=8), ages, min_size=1, max_size=6),
)
trunk_parts = st.builds(
    TrunkPart,
    have=names,
    want=tags,
    choke=tags,
    unchoke=tags,
    probes=st.lists(probes, max_size=3).map(tuple),
    echo=st.sampled_from((0, CALL, ANSWER)),
    gossip=tags,
    past=st.lists(pasts, max_size=3).map(tuple),
)
extended = st.builds(
    Rpc,
    subscriptions=st.lists(st.builds(SubOpts, st.booleans(), topics), max_size=2).map(tuple),
    control=st.builds(
        Control,
        graft=st.lists(topics, max_size=2).map(tuple),
        offers_trunk=st.booleans(),
        trunk=trunk_parts,
    ),
)


def field(inner: bytes) -> bytes:
    return bytes_field(EXTENSION, inner)


@pytest.mark.parametrize("name", TRUNK)
def test_the_bytes_are_those_of_the_specification(name: str) -> None:
    """The page that describes the extension has them; another implementation may rely on that."""
    written = dict(re.findall(r"^\| (.+?) \| `([0-9a-f]+)` \|$", PAGE.read_text(), re.MULTILINE))
    assert encode_rpc(TRUNK[name]).hex() == written[name]
    read = decode_rpc(bytes.fromhex(written[name]))
    assert read.control == TRUNK[name].control


def test_tags_marks_and_keys_are_those_of_the_specification() -> None:
    """Four bytes of a hash; the last four bytes of a number, however short it is; both in one."""
    found = re.findall(
        r"^\| (tag|mark|key).*? \| `([0-9a-f]+)` \|$", PAGE.read_text(), re.MULTILINE
    )
    written = dict(found)
    key = key_of(NAME)
    assert written == {"tag": SOURCE_TAG.hex(), "mark": NAME[4:].hex(), "key": key.hex()}
    assert mark_of(b"\1") == b"\0\0\0\1"


@given(extended)
def test_what_is_written_is_read_and_its_size_is_known(rpc: Rpc) -> None:
    """With anything beside it; the trace counts the bytes that travel."""
    encoded = encode_rpc(rpc)
    read = decode_rpc(encoded)
    assert (read.subscriptions, read.control) == (rpc.subscriptions, rpc.control)
    assert len(encoded) == rpc_size(rpc) == rpc.meta.size == read.meta.size


@given(extended)
def test_the_protobuf_library_reads_the_same(rpc: Rpc) -> None:
    """The schema says what the bytes are."""
    parsed = rpc_pb2.RPC.FromString(encode_rpc(rpc))
    assert rpc.control is not None
    part = rpc.control.trunk
    assert part is not None
    have = [
        group[:4] + group[at : at + 4]
        for group in parsed.trunk.have
        for at in range(4, len(group), 4)
    ]
    assert have == list(part.have)
    for text in ("want", "choke", "unchoke", "gossip"):
        assert getattr(parsed.trunk, text) == b"".join(getattr(part, text))
    found = [Probe(each.topic, each.source, each.number) for each in parsed.trunk.probe]
    assert tuple(found) == part.probes
    assert parsed.trunk.echo == part.echo
    assert len(parsed.trunk.past) == len(part.past)
    for told, past in zip(parsed.trunk.past, part.past, strict=True):
        assert told.topic == past.topic
        items = [told.heard[at : at + 11] for at in range(0, len(told.heard), 11)]
        assert [each[:8] for each in items] == list(past.names)
        assert [int.from_bytes(each[8:], "big") * TICK for each in items] == list(past.ages)
    assert parsed.control.extensions.trunk == rpc.control.offers_trunk


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (bytes_field(1, b"tag and"), "bad-trunk-list"),
        (bytes_field(1, b"tag!"), "bad-trunk-list"),
        (bytes_field(1, bytes(4 * (NAMES_MAX + 2))), "bad-trunk-list"),
        (bytes_field(1, bytes(2004 * 4)) * 3, "bad-trunk-list"),
        (bytes_field(2, bytes(10)), "bad-trunk-list"),
        (bytes_field(8, bytes(4 * (NAMES_MAX + 1))), "bad-trunk-list"),
        (bytes_field(8, bytes(4)) * 2, "trunk-repeated"),
        (bytes_field(2, b""), "bad-trunk-list"),
        (bytes_field(3, bytes(4 * (TAGS_MAX + 1))), "bad-trunk-list"),
        (bytes_field(4, bytes(4)) * 2, "trunk-repeated"),
        (bytes_field(12, b"unknown") * (FIELDS_MAX + 1), "too-many-fields"),
        (bytes_field(9, string_field(1, "t")) * (FIELDS_MAX + 1), "too-many-fields"),
        (bytes_field(9, string_field(1, "t" * 2000)), "topic-too-long"),
        (bytes_field(9, bytes_field(2, bytes(10))), "bad-trunk-list"),
        (bytes_field(9, bytes_field(2, bytes(11 * (PAST_MAX + 1)))), "bad-trunk-list"),
        (bytes_field(9, bytes_field(2, bytes(11 * PAST_MAX))) * 10, "too-many-fields"),
        (bytes_field(6, string_field(1, "t" * 2000)), "topic-too-long"),
        (bytes_field(6, bytes_field(2, bytes(200))), "source-too-long"),
        (bytes_field(9, bytes_field(1, b"\xff")), "bad-topic"),
    ],
)
def test_what_is_out_of_bounds_is_refused(inner: bytes, reason: str) -> None:
    """With the RPC that it came in, as everything that the sender chose."""
    assert reason_of(decode_rpc, field(inner)) == reason


def test_there_is_one_part_in_an_rpc() -> None:
    """A second one is refused, and what is unknown inside one is read over."""
    assert reason_of(decode_rpc, field(b"") * 2) == "too-many-trunk-parts"
    read = decode_rpc(field(bytes_field(5, b"unknown") + bytes_field(3, SOURCE_TAG)))
    assert read.control == Control(trunk=TrunkPart(choke=(SOURCE_TAG,)))


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(inner: bytes) -> None:
    """And never fail in another way."""
    with suppress(DecodeError):
        decode_rpc(field(inner))
