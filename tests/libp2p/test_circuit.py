"""Circuit relay v2: its messages as the specification has them, and the rules of a relay."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError, PeerError
from rumormill.libp2p.circuit import (
    MAX_MESSAGE_BYTES,
    VOUCHER_DOMAIN,
    VOUCHER_TYPE,
    Hop,
    HopMessage,
    Limit,
    Named,
    Refusal,
    Reservation,
    Reservations,
    Status,
    Stop,
    StopMessage,
    Terms,
    seal_voucher,
    unseal_voucher,
)
from rumormill.libp2p.envelope import seal
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr
from rumormill.wire.protobuf import bytes_field, varint_field

RELAY, ALICE, BOB = (PrivateKey(bytes([number]) * 32) for number in (1, 2, 3))
A, B = bytes(ALICE.peer_id), bytes(BOB.peer_id)
ADDRESS = Multiaddr.tcp("192.0.2.1", 4001).encode()
TERMS = Terms(
    places=4, places_per_group=2, seconds=100.0, circuits_per_peer=2, limit=Limit(120, 131072)
)


def test_the_fields_have_the_specifications_numbers() -> None:
    """Type 1, peer 2, reservation 3, limit 4, status 5; of stop limit 3 and status 4."""
    reservation = varint_field(1, 99) + bytes_field(2, ADDRESS) + bytes_field(3, b"sealed")
    limit = varint_field(1, 120) + varint_field(2, 131072)
    granted = b"".join((
        varint_field(1, 2),
        bytes_field(3, reservation),
        bytes_field(4, limit),
        varint_field(5, 100),
    ))  # fmt: skip
    said = HopMessage(
        Hop.STATUS, None, Reservation(99, (ADDRESS,), b"sealed"), Limit(120, 131072), Status.OK
    )
    assert HopMessage.decode(granted) == said
    assert said.encode() == granted
    peer = bytes_field(2, bytes_field(1, A) + bytes_field(2, ADDRESS))
    assert HopMessage(Hop.CONNECT, Named(A, (ADDRESS,))).encode() == varint_field(1, 1) + peer
    call = varint_field(1, 0) + peer + bytes_field(3, limit)
    assert StopMessage(Stop.CONNECT, Named(A, (ADDRESS,)), Limit(120, 131072)).encode() == call
    refusal = varint_field(1, 1) + varint_field(4, 202)
    assert StopMessage.decode(refusal) == StopMessage(Stop.STATUS, status=Status.PERMISSION_DENIED)


@pytest.mark.parametrize(
    "data",
    [
        varint_field(1, 7),
        varint_field(5, 250),
        bytes_field(2, bytes_field(1, b"nobody")),
        bytes_field(2, b""),
        varint_field(1, 1) * 2,
        bytes_field(4, varint_field(1, 2**32)),
        bytes_field(3, bytes_field(2, ADDRESS) * 65),
        bytes_field(9, bytes(MAX_MESSAGE_BYTES)),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """Unknown types and states, ids that are none, too much of anything."""
    with pytest.raises(DecodeError):
        HopMessage.decode(data)


@given(st.binary(max_size=200))
def test_fuzz_messages_are_read_or_refused(data: bytes) -> None:
    """And what is read is written as it is read."""
    for kind in (HopMessage, StopMessage):
        try:
            message = kind.decode(data)
        except DecodeError:
            continue
        assert kind.decode(message.encode()) == message


def test_a_voucher_is_the_relays_own_word() -> None:
    """Nobody else can give it, and it says for whom and until when."""
    voucher = unseal_voucher(seal_voucher(RELAY, A, 1234))
    assert (voucher.relay, voucher.peer, voucher.expires) == (bytes(RELAY.peer_id), A, 1234)
    forged = bytes_field(1, bytes(RELAY.peer_id)) + bytes_field(2, A) + varint_field(3, 1234)
    with pytest.raises(PeerError, match="signed by another"):
        unseal_voucher(seal(BOB, VOUCHER_DOMAIN, VOUCHER_TYPE, forged))
    with pytest.raises(PeerError, match="signature"):
        unseal_voucher(seal(RELAY, "another-domain", VOUCHER_TYPE, forged))


def peer(number: int) -> bytes:
    """Somebody."""
    return b"peer %d" % number


def reason(outcome: object) -> str:
    """Why something was refused."""
    assert isinstance(outcome, Refusal)
    return outcome.reason


def test_places_are_few_and_shared_by_groups() -> None:
    """One for a peer, two for a group, four in all; one that has expired is free again."""
    relay = Reservations(TERMS, lambda _: False)
    assert relay.reserve(peer(1), "a", False, 0.0) == 100.0
    assert relay.reserve(peer(1), "a", False, 1.0) == 101.0
    assert len(relay) == 1
    assert relay.reserve(peer(2), "a", False, 2.0) == 102.0
    assert reason(relay.reserve(peer(3), "a", False, 3.0)) == "relay-places-taken-by-group"
    assert relay.reserve(peer(4), "b", False, 4.0) == 104.0
    assert relay.reserve(peer(5), "c", False, 5.0) == 105.0
    assert reason(relay.reserve(peer(6), "d", False, 6.0)) == "relay-places-taken"
    relay.release(peer(4))
    assert relay.reserve(peer(6), "d", False, 7.0) == 107.0
    assert relay.reserve(peer(3), "a", False, 101.5) == 201.5


def test_nobody_reserves_over_a_relay_or_all_the_time() -> None:
    """A circuit leads to a peer and no further; a place is asked for now and then."""
    relay = Reservations(TERMS, lambda _: False)
    refused = relay.reserve(peer(1), "a", True, 0.0)
    assert refused == Refusal(Status.PERMISSION_DENIED, "relay-reservation-over-relay")
    for _ in range(8):
        assert relay.reserve(peer(1), "a", False, 0.0) == 100.0
    assert reason(relay.reserve(peer(1), "a", False, 0.0)) == "relay-reserved-too-often"
    assert relay.reserve(peer(1), "a", False, 51.0) == 151.0


def test_circuits_need_a_reservation_and_have_an_end() -> None:
    """Of the one that is reached, not of the one that asks; so many for each of the two."""
    relay = Reservations(TERMS, lambda _: False)
    assert reason(relay.open(A, B, False, 0.0)) == "relay-no-reservation"
    relay.reserve(B, "a", False, 0.0)
    assert reason(relay.open(A, B, True, 1.0)) == "relay-circuit-over-relay"
    assert reason(relay.open(B, B, False, 1.0)) == "relay-circuit-over-relay"
    assert relay.open(A, B, False, 1.0) is None
    assert relay.open(A, B, False, 1.0) is None
    assert relay.circuits == 2
    assert reason(relay.open(A, B, False, 1.0)) == "relay-too-many-circuits"
    assert reason(relay.open(peer(1), B, False, 1.0)) == "relay-too-many-circuits"
    relay.close(A, B)
    assert relay.open(peer(1), B, False, 1.0) is None
    assert reason(relay.open(peer(2), B, False, 100.0)) == "relay-no-reservation"


def test_friends_are_not_limited() -> None:
    """Neither as the one who is reached nor as the one who asks."""
    relay = Reservations(TERMS, lambda each: each == B)
    assert relay.limit(A) == relay.limit(A, peer(1)) == Limit(120, 131072)
    assert not relay.limit(A, B)
    assert not relay.limit(B, A)


def test_no_group_of_addresses_has_all_circuits_to_a_peer() -> None:
    """Else one stranger cuts a node off from everybody who can reach it by that relay alone."""
    terms = msgspec.structs.replace(TERMS, circuits_per_peer=32)
    relay = Reservations(terms, lambda _: False)
    relay.reserve(B, "b", False, 0.0)
    sybils = [peer(number) for number in range(40)]
    refused = [relay.open(each, B, False, 1.0, "bad") for each in sybils]
    assert [each and each.reason for each in refused] == [
        *[None] * 16,
        *["relay-too-many-circuits-of-group"] * 24,
    ]
    for number in range(8):
        assert relay.open(A, B, False, 1.0, "good") is None, number
    for number in range(9):
        relay.close(sybils[number], B, "bad")
    assert relay.open(sybils[20], B, False, 1.0, "bad") is None, "there is enough room again"
