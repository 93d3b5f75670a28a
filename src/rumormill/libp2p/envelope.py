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
from rumormill.wire.fields import Number, Octets
from rumormill.wire.keys import (
    MAX_ENCODED_KEY_BYTES,
    MAX_PEER_ID_BYTES,
    PeerId,
    PrivateKey,
    PublicKey,
)
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.protobuf import varint
from rumormill.wire.schema import Schema

PEER_RECORD_DOMAIN: Final = "libp2p-peer-record"
"""What go, js and rust use; RFC 0003 still has a draft's name for it."""

PEER_RECORD_TYPE: Final = b"\x03\x01"
"""The multicodec of peer records."""

MAX_ENVELOPE_BYTES: Final = 16 * 1024
"""Our choice: a record with 16 of the longest addresses and the longest RSA key fits."""

MAX_RECORD_ADDRESSES: Final = 64
"""Our choice: a peer with more addresses than this has no more interfaces, only more text."""


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


class _Sealed(msgspec.Struct, frozen=True):
    """An envelope as it travels."""

    key: bytes
    payload_type: bytes
    payload: bytes
    signature: bytes


class _AddressInfo(msgspec.Struct, frozen=True):
    """What stands around each address of a record."""

    address: bytes


_ENVELOPE: Final = Schema(
    _Sealed,
    {
        "key": Octets(1, MAX_ENCODED_KEY_BYTES, missing="bad-envelope"),
        "payload_type": Octets(2, 64, always=True),
        "payload": Octets(3, MAX_ENVELOPE_BYTES, always=True),
        "signature": Octets(5, 1024, missing="bad-envelope"),
    },
    max_bytes=MAX_ENVELOPE_BYTES,
)
_ADDRESS_INFO: Final = Schema(_AddressInfo, {"address": Octets(1, MAX_ADDRESS_BYTES, always=True)})
_RECORD: Final = Schema(
    PeerRecord,
    {
        "peer_id": Octets(1, MAX_PEER_ID_BYTES, read=PeerId.from_bytes, missing="bad-peer-id"),
        "seq": Number(2, always=True),
        "addresses": Octets(
            3,
            MAX_ADDRESS_BYTES + 16,
            max_count=MAX_RECORD_ADDRESSES,
            read=lambda data: _ADDRESS_INFO.decode(data).address,
            write=lambda address: _ADDRESS_INFO.encode(_AddressInfo(address)),
        ),
    },
    max_bytes=MAX_ENVELOPE_BYTES,
)


def seal(key: PrivateKey, domain: str, payload_type: bytes, payload: bytes) -> bytes:
    """Sign a payload for one domain and wrap it."""
    signature = key.sign(_signed_bytes(domain, payload_type, payload))
    return _ENVELOPE.encode(_Sealed(key.public_key.encoded, payload_type, payload, signature))


def unseal(data: bytes, domain: str, payload_type: bytes) -> Envelope:
    """Open an envelope; PeerError where type or signature are not what this domain expects."""
    sealed = _ENVELOPE.decode(data)
    if sealed.payload_type != payload_type:
        raise DecodeError("bad-envelope", "an envelope of another payload type")
    signer = PublicKey.decode(sealed.key)
    if not signer.verify(_signed_bytes(domain, payload_type, sealed.payload), sealed.signature):
        raise PeerError("bad-signature", "an envelope's signature does not hold")
    return Envelope(signer, sealed.payload)


def seal_peer_record(key: PrivateKey, seq: int, addresses: Sequence[bytes]) -> bytes:
    """Sign a record of our own addresses (binary multiaddrs)."""
    if len(addresses) > MAX_RECORD_ADDRESSES:
        raise ValueError(f"a peer record holds at most {MAX_RECORD_ADDRESSES} addresses")
    record = PeerRecord(key.peer_id, seq, tuple(addresses))
    return seal(key, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE, _RECORD.encode(record))


def unseal_peer_record(data: bytes) -> PeerRecord:
    """Open a signed peer record; PeerError unless the peer it names has signed it."""
    envelope = unseal(data, PEER_RECORD_DOMAIN, PEER_RECORD_TYPE)
    record = _RECORD.decode(envelope.payload)
    if record.peer_id != envelope.signer.peer_id():
        raise PeerError("wrong-signer", "a peer record signed by another peer than it names")
    return record


def _signed_bytes(domain: str, payload_type: bytes, payload: bytes) -> bytes:
    name = domain.encode()
    return b"".join((
        varint(len(name)), name,
        varint(len(payload_type)), payload_type,
        varint(len(payload)), payload,
    ))  # fmt: skip
