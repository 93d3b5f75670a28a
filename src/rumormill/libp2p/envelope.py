"""Signed envelopes and the peer records they carry.

An envelope is a payload with the key that signed it. The signature covers a domain string that does
not travel, so a signature made for one purpose is worthless for another. A peer record is one
peer's word on its own addresses: it counts only if the envelope's key is the key of the very peer
that the record names, and only from there on is the record read at all.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError, PeerError
from rumormill.wire import schema
from rumormill.wire.keys import (
    MAX_ENCODED_KEY_BYTES,
    MAX_PEER_ID_BYTES,
    PeerId,
    PrivateKey,
    PublicKey,
)
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.protobuf import bytes_field, varint, varint_field

PEER_RECORD_DOMAIN: Final = "libp2p-peer-record"
"""What go, js and rust use; RFC 0003 still has a draft's name for it."""

PEER_RECORD_TYPE: Final = b"\x03\x01"
"""The multicodec of peer records."""

MAX_ENVELOPE_BYTES: Final = 16 * 1024
"""Our choice: a record with 16 of the longest addresses and the longest RSA key fits."""

MAX_RECORD_ADDRESSES: Final = 64
"""Our choice: a peer with more addresses than this has no more interfaces, only more text."""

_ENVELOPE: schema.Schema = {
    1: schema.Octets(MAX_ENCODED_KEY_BYTES),
    2: schema.Octets(64),
    3: schema.Octets(MAX_ENVELOPE_BYTES),
    5: schema.Octets(1024),
}
_RECORD: schema.Schema = {
    1: schema.Octets(MAX_PEER_ID_BYTES),
    2: schema.Number(),
    3: schema.Octets(MAX_ADDRESS_BYTES + 16, max_count=MAX_RECORD_ADDRESSES),
}
_ADDRESS_INFO: schema.Schema = {1: schema.Octets(MAX_ADDRESS_BYTES)}


class Envelope(msgspec.Struct, frozen=True):
    """The content of an envelope whose signature holds."""

    signer: PublicKey
    payload: bytes


class PeerRecord(msgspec.Struct, frozen=True):
    """What a peer says of itself: its addresses, newer where `seq` is higher.

    Addresses are kept as bytes, since a peer may well list ones that are not understood here.
    """

    peer_id: PeerId
    seq: int
    addresses: tuple[bytes, ...]


def seal(key: PrivateKey, domain: str, payload_type: bytes, payload: bytes) -> bytes:
    """Sign a payload for one domain and wrap it."""
    signature = key.sign(_signed_bytes(domain, payload_type, payload))
    return b"".join((
        bytes_field(1, key.public_key.encoded),
        bytes_field(2, payload_type),
        bytes_field(3, payload),
        bytes_field(5, signature),
    ))  # fmt: skip


def unseal(data: bytes, domain: str, payload_type: bytes) -> Envelope:
    """Open an envelope; PeerError where type or signature are not what this domain expects."""
    message = schema.read(data, _ENVELOPE, max_bytes=MAX_ENVELOPE_BYTES)
    encoded_key, signature = message.octets(1), message.octets(5)
    if encoded_key is None or signature is None:
        raise DecodeError("bad-envelope", "an envelope without key or signature")
    if (message.octets(2) or b"") != payload_type:
        raise DecodeError("bad-envelope", "an envelope of another payload type")
    payload = message.octets(3) or b""
    signer = PublicKey.decode(encoded_key)
    if not signer.verify(_signed_bytes(domain, payload_type, payload), signature):
        raise PeerError("bad-signature", "an envelope's signature does not hold")
    return Envelope(signer, payload)


def seal_peer_record(key: PrivateKey, seq: int, addresses: Sequence[bytes]) -> bytes:
    """Sign a record of our own addresses (binary multiaddrs)."""
    if len(addresses) > MAX_RECORD_ADDRESSES:
        raise ValueError(f"a peer record holds at most {MAX_RECORD_ADDRESSES} addresses")
    parts = [bytes_field(1, key.peer_id), varint_field(2, seq)]
    parts.extend(bytes_field(3, bytes_field(1, address)) for address in addresses)
    return seal(key, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE, b"".join(parts))


def unseal_peer_record(data: bytes) -> PeerRecord:
    """Open a signed peer record; PeerError unless the peer it names has signed it."""
    envelope = unseal(data, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE)
    message = schema.read(envelope.payload, _RECORD, max_bytes=MAX_ENVELOPE_BYTES)
    peer_id = PeerId.from_bytes(message.octets(1) or b"")
    if peer_id != envelope.signer.peer_id():
        raise PeerError("wrong-signer", "a peer record signed by another peer than it names")
    addresses = []
    for info in message.all_octets(3):
        address = schema.read(info, _ADDRESS_INFO, max_bytes=MAX_ADDRESS_BYTES + 16).octets(1)
        if address is not None:
            addresses.append(address)
    return PeerRecord(peer_id, message.number(2) or 0, tuple(addresses))


def _signed_bytes(domain: str, payload_type: bytes, payload: bytes) -> bytes:
    name = domain.encode()
    return b"".join((
        varint(len(name)), name,
        varint(len(payload_type)), payload_type,
        varint(len(payload)), payload,
    ))  # fmt: skip
