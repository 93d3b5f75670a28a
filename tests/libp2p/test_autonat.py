"""AutoNAT v2: its messages as the specification has them, and who is dialled for whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError
from rumormill.libp2p.autonat import (
    LEAST_COST,
    MAX_ASKED,
    MAX_MESSAGE_BYTES,
    MOST_COST,
    Body,
    DataRequest,
    DataResponse,
    Dial,
    DialBack,
    DialBacks,
    Dialled,
    DialRequest,
    DialResponse,
    Refused,
    Response,
    decode_message,
    encode_message,
    is_public,
)
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Endpoint, Multiaddr
from rumormill.wire.protobuf import bytes_field, varint_field

PEER = PrivateKey(bytes(32)).peer_id
PUBLIC = Multiaddr.tcp("5.9.0.1", 4001).encode()
NONCE = b"\x11" + (0x0102030405060708).to_bytes(8, "little")
"""Field 2 as a fixed64."""


@pytest.mark.parametrize(
    ("body", "wire"),
    [
        (
            DialRequest((PUBLIC,), 0x0102030405060708),
            bytes_field(1, bytes_field(1, PUBLIC) + NONCE),
        ),
        (
            DialResponse(Response.OK, 2, Dialled.DIAL_BACK_ERROR),
            bytes_field(2, varint_field(1, 200) + varint_field(2, 2) + varint_field(3, 101)),
        ),
        (DialResponse(Response.INTERNAL_ERROR), bytes_field(2, b"")),
        (DataRequest(1, 30_000), bytes_field(3, varint_field(1, 1) + varint_field(2, 30_000))),
        (DataResponse(b"data"), bytes_field(4, bytes_field(1, b"data"))),
    ],
)
def test_the_fields_have_the_specifications_numbers(body: Body, wire: bytes) -> None:
    """One message of four kinds; zeros are left out."""
    assert encode_message(body) == wire
    assert decode_message(wire) == body


def test_a_number_is_eight_bytes() -> None:
    """The lowest first, as protobuf's fixed64."""
    assert DialBack(258).encode() == b"\x09\x02\x01" + bytes(6)
    assert DialBack.decode(b"\x09\x02\x01" + bytes(6)) == DialBack(258)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes_field(1, b"\x10\x01"),
        bytes_field(1, b"") * 2,
        bytes_field(1, b"") + bytes_field(3, b""),
        bytes_field(2, varint_field(1, 7)),
        bytes_field(1, bytes_field(1, PUBLIC) * 65),
        bytes_field(9, bytes(MAX_MESSAGE_BYTES)),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """Nothing, a number that is a varint, two messages in one, unknown states, too much."""
    with pytest.raises(DecodeError):
        decode_message(data)


@given(st.binary(max_size=100))
def test_fuzz_messages_are_read_or_refused(data: bytes) -> None:
    """And what is read is written as it is read."""
    try:
        body = decode_message(data)
    except DecodeError:
        return
    assert decode_message(encode_message(body)) == body


@pytest.mark.parametrize(
    "host",
    ["10.0.0.1", "127.0.0.1", "169.254.1.1", "192.168.1.1", "100.64.0.1", "224.0.0.1", "0.0.0.0",
     "::1", "fe80::1", "fd00::1", "::ffff:10.0.0.1", "ff02::1", "example.org"],
)  # fmt: skip
def test_nobody_is_dialled_in_networks_of_ours(host: str) -> None:
    """Neither here, nor on a link, nor behind a provider's NAT; nor is a name looked up."""
    assert not is_public(host)
    assert is_public("5.9.0.1")
    assert is_public("2a01:4f8::1")


def test_the_first_public_address_is_dialled() -> None:
    """Private, relayed and unreadable ones are passed over, up to so many."""
    private = Multiaddr.tcp("10.0.0.1", 4001).encode()
    relayed = Multiaddr.tcp("5.9.0.2", 4001, relay=bytes(PEER)).encode()
    rules = DialBacks()
    asked = (private, relayed, b"\xff", PUBLIC)
    assert rules.take(b"a", "5.9.0.1", asked, 0, 0.0) == Dial(3, Endpoint("5.9.0.1", 4001), 0)
    many = (*[private] * MAX_ASKED, PUBLIC)
    nothing = Refused(Response.DIAL_REFUSED, "autonat-no-public-address")
    assert rules.take(b"a", "5.9.0.1", many, 0, 0.0) == nothing
    assert rules.take(b"a", "5.9.0.1", (), 0, 0.0) == nothing


@given(st.integers(0, 2**32 - 1))
def test_a_foreign_host_costs_more_than_its_dial(draw: int) -> None:
    """Thirty to a hundred thousand bytes, as the specification has it."""
    dial = DialBacks().take(b"a", "5.9.0.7", (PUBLIC,), draw, 0.0)
    assert isinstance(dial, Dial)
    assert LEAST_COST <= dial.cost < MOST_COST


def test_dials_are_few() -> None:
    """Four at once for one, ten for all; eight at a time; they come back with time."""
    rules = DialBacks()

    def ask(who: bytes, now: float) -> bool:
        return isinstance(rules.take(who, "5.9.0.1", (PUBLIC,), 0, now), Dial)

    assert [ask(b"a", 0.0) for _ in range(6)] == [True] * 4 + [False] * 2
    assert [ask(b"%d" % each, 0.0) for each in range(6)] == [True] * 4 + [False] * 2
    for _ in range(8):
        rules.done()
    assert sum(ask(b"x%d" % each, 0.0) for each in range(6)) < 6
    assert ask(b"a", 60.0)
