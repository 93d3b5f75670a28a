"""Identify and identify/push."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError, PeerError
from rumormill.libp2p.envelope import (
    PEER_RECORD_DOMAIN,
    PEER_RECORD_TYPE,
    seal,
    seal_peer_record,
)
from rumormill.libp2p.identify import (
    MAX_ADDRESSES,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGES,
    MAX_PROTOCOLS,
    Identify,
    IdentifyReader,
)
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr
from rumormill.wire.protobuf import bytes_field, item_fields, string_field, varint

ALICE, MALLORY = PrivateKey(b"a" * 32), PrivateKey(b"m" * 32)
ADDRESS = Multiaddr.tcp("192.0.2.1", 4001).encode()
MESSAGE = Identify(
    public_key=ALICE.public_key.encoded,
    listen_addresses=(ADDRESS, b"\xff unknown"),
    protocols=("/ipfs/id/1.0.0", "/meshsub/1.2.0"),
    observed_address=ADDRESS,
    protocol_version="/rumormill/1",
    agent_version="rumormill/0",
    signed_peer_record=seal_peer_record(ALICE, 3, [ADDRESS]),
)


def read(*chunks: bytes) -> Identify:
    reader = IdentifyReader()
    for chunk in chunks:
        reader.receive(chunk)
    return reader.finish()


def test_the_fields_have_the_specifications_numbers() -> None:
    """publicKey 1, listenAddrs 2, protocols 3, observedAddr 4, versions 5 and 6, record 8."""
    wire = MESSAGE.encode()
    prefix = varint(len(wire) - 2)
    assert wire.startswith(prefix)
    found = item_fields(wire, len(prefix), len(wire))
    by_number = {tag >> 3: wire[start:stop] for tag, start, stop in found}
    assert by_number[1] == ALICE.public_key.encoded
    assert by_number[3] == b"/meshsub/1.2.0"
    assert by_number[4] == ADDRESS
    assert by_number[5] == b"/rumormill/1"
    assert by_number[6] == b"rumormill/0"
    assert by_number[8] == MESSAGE.signed_peer_record


def test_a_message_round_trips_in_any_pieces() -> None:
    """Whole and byte by byte."""
    wire = MESSAGE.encode()
    assert read(wire) == MESSAGE
    assert read(*(wire[i : i + 1] for i in range(len(wire)))) == MESSAGE


def test_a_message_in_several_parts_is_one() -> None:
    """go sends the signed record in a second message when the first is full."""
    first = Identify(protocols=("/a",), listen_addresses=(b"1",), agent_version="go")
    second = Identify(protocols=("/b",), signed_peer_record=b"record")
    assert read(first.encode() + second.encode()) == Identify(
        protocols=("/a", "/b"),
        listen_addresses=(b"1",),
        agent_version="go",
        signed_peer_record=b"record",
    )


def test_a_push_changes_only_what_it_says() -> None:
    """Missing fields are ignored; present ones replace."""
    push = Identify(protocols=("/new",), listen_addresses=(b"new",))
    updated = MESSAGE.updated(push)
    assert updated.protocols == ("/new",)
    assert updated.listen_addresses == (b"new",)
    assert updated.agent_version == MESSAGE.agent_version
    assert updated.public_key == MESSAGE.public_key
    assert MESSAGE.updated(Identify()) == MESSAGE


def test_key_and_record_must_be_the_remote_peers() -> None:
    """The connection proved who is there; identify may not claim to be somebody else."""
    record = MESSAGE.check(ALICE.peer_id)
    assert record is not None
    assert (record.seq, record.addresses) == (3, (ADDRESS,))
    assert Identify().check(ALICE.peer_id) is None
    with pytest.raises(PeerError, match="wrong-peer"):
        MESSAGE.check(MALLORY.peer_id)
    with pytest.raises(PeerError, match="wrong-peer"):
        Identify(signed_peer_record=MESSAGE.signed_peer_record).check(MALLORY.peer_id)
    with pytest.raises(DecodeError):
        Identify(public_key=b"garbage").check(ALICE.peer_id)


@pytest.mark.parametrize(
    "record",
    [
        b"garbage",
        seal(ALICE, "libp2p-routing-state", b"/libp2p/routing-state-record", b""),
        seal(ALICE, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE, b"garbage"),
    ],
    ids=["garbage", "rust's older names", "no record inside"],
)
def test_a_record_that_does_not_hold_spoils_nothing_else(record: bytes) -> None:
    """What a peer says unsigned is believed as if it had signed nothing."""
    assert (
        Identify(ALICE.public_key.encoded, signed_peer_record=record).check(ALICE.peer_id) is None
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(string_field(3, "/p") * (MAX_PROTOCOLS + 1), id="protocols"),
        pytest.param(bytes_field(2, b"a") * (MAX_ADDRESSES + 1), id="addresses"),
        pytest.param(bytes_field(2, b"a" * 600), id="long address"),
        pytest.param(string_field(6, "a" * 300), id="long agent"),
        pytest.param(string_field(6, "a") * 2, id="agent twice"),
        pytest.param(bytes_field(6, b"\xff"), id="agent not UTF-8"),
        pytest.param(bytes_field(99, b"") * 17, id="many unknown fields"),
        pytest.param(b"\x08\x01", id="key as a number"),
        pytest.param(b"\x0d\x00\x00\x00\x00", id="key as a fixed number"),
        pytest.param(b"\x0b", id="a group"),
        pytest.param(b"\x00\x00", id="field zero"),
    ],
)
def test_messages_beyond_the_limits_are_refused(body: bytes) -> None:
    """Counts, lengths and wire types are checked."""
    with pytest.raises(DecodeError):
        read(varint(len(body)) + body)


def test_a_length_beyond_the_limit_is_refused_before_the_message_comes() -> None:
    """The prefix alone is enough, also when it is an endless varint."""
    for prefix in (varint(MAX_MESSAGE_BYTES + 1), b"\xff" * 10):
        with pytest.raises(DecodeError):
            IdentifyReader().receive(prefix)
    with pytest.raises(ValueError, match="at most"):
        Identify(listen_addresses=(bytes(500),) * 20).encode()


def test_parts_are_too_much_as_soon_as_they_are() -> None:
    """A push that never ends holds what one message may say, and not ten times as much."""
    reader, many = IdentifyReader(), tuple(f"/{number}" for number in range(MAX_PROTOCOLS))
    reader.receive(Identify(protocols=many).encode())
    with pytest.raises(DecodeError, match="oversized"):
        reader.receive(Identify(protocols=("/one more",)).encode())


def test_many_messages_and_half_messages_are_refused() -> None:
    """At most ten parts; the stream may not end inside one, nor before the first."""
    with pytest.raises(DecodeError, match="too-many-messages"):
        read(Identify(agent_version="a").encode() * (MAX_MESSAGES + 1))
    with pytest.raises(DecodeError, match="oversized"):
        read(Identify(protocols=("/p",) * MAX_PROTOCOLS).encode() * 2)
    for wire in (b"", MESSAGE.encode()[:-1], b"\x80"):
        with pytest.raises(DecodeError, match="truncated"):
            read(wire)


def test_unknown_fields_are_skipped() -> None:
    """Newer peers stay readable."""
    body = string_field(6, "new") + bytes_field(1000, b"?") + b"\xf8\x3e\x01"
    assert read(varint(len(body)) + body) == Identify(agent_version="new")


@given(st.binary(max_size=300), st.booleans())
def test_fuzz_any_bytes_are_a_message_or_the_declared_error(data: bytes, framed: bool) -> None:
    """Whole or byte by byte the same; nothing but PeerError."""
    wire = varint(len(data)) + data if framed else data
    results: list[object] = []
    for step in (len(wire) + 1, 1):
        try:
            message = read(*(wire[i : i + step] for i in range(0, len(wire), step)))
            results.append(message)
        except PeerError as error:
            results.append(error.reason)
    assert results[0] == results[1]
    if isinstance(results[0], Identify):
        with contextlib.suppress(PeerError):
            results[0].check(ALICE.peer_id)
