"""Signed envelopes (RFC 0002) and peer records (RFC 0003)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError, PeerError
from rumormill.libp2p.envelope import (
    MAX_ENVELOPE_BYTES,
    MAX_RECORD_ADDRESSES,
    PEER_RECORD_DOMAIN,
    PEER_RECORD_TYPE,
    PeerRecord,
    seal,
    seal_peer_record,
    unseal,
    unseal_peer_record,
)
from rumormill.wire.keys import PrivateKey, PublicKey
from rumormill.wire.multiaddr import Multiaddr
from rumormill.wire.protobuf import bytes_field, item_fields, varint_field

ALICE = PrivateKey(b"a" * 32)
MALLORY = PrivateKey(b"m" * 32)
ADDRESSES = (Multiaddr.tcp("192.0.2.0", 42).encode(), Multiaddr.tcp("198.51.100.0", 42).encode())


def _by_number(data: bytes) -> dict[int, bytes]:
    return {tag >> 3: data[start:stop] for tag, start, stop in item_fields(data, 0, len(data))}


def test_an_envelope_gives_back_payload_and_signer() -> None:
    """What was sealed comes out, with the key that sealed it."""
    envelope = unseal(seal(ALICE, "domain", b"/type", b"payload"), "domain", b"/type")
    assert (envelope.signer, envelope.payload) == (ALICE.public_key, b"payload")


def test_the_signature_covers_length_prefixed_domain_type_and_payload() -> None:
    """RFC 0002: three fields, each behind its length as an unsigned varint."""
    parts = _by_number(seal(ALICE, "dom", b"ty", b"x" * 200))
    signature = parts[5]
    assert parts[1] == ALICE.public_key.encoded
    assert ALICE.public_key.verify(b"\x03dom" + b"\x02ty" + b"\xc8\x01" + b"x" * 200, signature)


def test_a_signature_for_one_domain_or_type_is_worthless_for_another() -> None:
    """Domain separation: the domain does not travel, and must be the one signed."""
    data = seal(ALICE, "one", b"t", b"payload")
    with pytest.raises(PeerError, match="bad-signature"):
        unseal(data, "two", b"t")
    with pytest.raises(DecodeError, match="payload type"):
        unseal(data, "one", b"u")


def test_no_changed_byte_of_an_envelope_passes() -> None:
    """Flip one bit of each byte in turn: always refused."""
    data = seal_peer_record(ALICE, 7, ADDRESSES)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x01
        with pytest.raises(PeerError):
            unseal_peer_record(bytes(changed))


def test_a_peer_record_gives_back_what_the_peer_said() -> None:
    """Peer id, sequence number and addresses survive."""
    record = unseal_peer_record(seal_peer_record(ALICE, 1570215229, ADDRESSES))
    assert record == PeerRecord(ALICE.peer_id, 1570215229, ADDRESSES)


def test_a_peer_record_has_the_deployed_domain_and_type() -> None:
    """go, js and rust sign `libp2p-peer-record` with payload type 0x0301."""
    payload = bytes_field(1, ALICE.peer_id) + varint_field(2, 1)
    by_hand = seal(ALICE, "libp2p-peer-record", b"\x03\x01", payload)
    assert unseal_peer_record(by_hand) == PeerRecord(ALICE.peer_id, 1, ())


def test_rustsec_2022_0009_a_record_signed_by_another_key_is_refused() -> None:
    """The envelope is perfectly signed, but not by the peer whose addresses it gives."""
    payload = bytes_field(1, ALICE.peer_id) + varint_field(2, 9)
    data = seal(MALLORY, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE, payload)
    with pytest.raises(PeerError, match="wrong-signer"):
        unseal_peer_record(data)


def test_a_second_key_in_an_envelope_is_refused() -> None:
    """Readers that keep the first and readers that keep the last would see different signers."""
    data = seal_peer_record(ALICE, 1, ())
    for forged in (
        data + bytes_field(1, MALLORY.public_key.encoded),
        bytes_field(1, MALLORY.public_key.encoded) + data,
    ):
        with pytest.raises(DecodeError, match="repeated-field"):
            unseal_peer_record(forged)


def test_the_payload_is_not_read_before_the_signature_holds() -> None:
    """RFC 0003: an invalid envelope is discarded without deserialising the record."""
    data = seal(ALICE, "elsewhere", PEER_RECORD_TYPE, b"\xff" * 20)
    with pytest.raises(PeerError, match="bad-signature"):
        unseal_peer_record(data)


def test_missing_parts_are_refused() -> None:
    """No key, no signature, no peer id."""
    data = seal_peer_record(ALICE, 1, ())
    parts = _by_number(data)
    assert list(parts) == [1, 2, 3, 5]
    for missing in parts:
        kept = [bytes_field(number, parts[number]) for number in parts if number != missing]
        with pytest.raises(PeerError):
            unseal_peer_record(b"".join(kept))
    with pytest.raises(DecodeError, match="bad-peer-id"):
        unseal_peer_record(seal(ALICE, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE, b""))


def test_records_are_bounded() -> None:
    """Too many addresses, or too many bytes, are refused on both sides."""
    too_many = [ADDRESSES[0]] * (MAX_RECORD_ADDRESSES + 1)
    with pytest.raises(ValueError, match="at most"):
        seal_peer_record(ALICE, 1, too_many)
    payload = bytes_field(1, ALICE.peer_id) + bytes_field(3, bytes_field(1, b"\x06\0\0")) * 65
    with pytest.raises(DecodeError, match="repeated-field"):
        unseal_peer_record(seal(ALICE, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE, payload))
    with pytest.raises(DecodeError, match="oversized"):
        unseal_peer_record(bytes(MAX_ENVELOPE_BYTES + 1))


@given(st.binary(max_size=200))
def test_fuzz_any_bytes_are_refused_with_the_declared_error(data: bytes) -> None:
    """Nobody draws a valid signature by chance; nothing but PeerError comes out."""
    with pytest.raises(PeerError):
        unseal_peer_record(data)


@given(st.binary(max_size=200))
def test_fuzz_a_signed_payload_is_a_record_or_the_declared_error(payload: bytes) -> None:
    """The signer is honest about signing, not about the payload."""
    own = bytes_field(1, ALICE.peer_id) + payload
    for content in (payload, own):
        try:
            record = unseal_peer_record(seal(ALICE, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE, content))
        except PeerError:
            continue
        assert record.peer_id == PublicKey.decode(ALICE.public_key.encoded).peer_id()
