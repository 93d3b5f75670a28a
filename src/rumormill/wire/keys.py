"""Identity keys and the peer ids made from them.

A peer is its public key: the peer id is the key itself where the encoded key is short (an
identity multihash, for Ed25519 and Secp256k1), or the key's SHA-256 where it is long (RSA, ECDSA).
Only the one canonical encoding of a key is accepted: two encodings of one key would be two peers.

The rule of this file: a key from a peer is refused by its type and length before any library parses
it, and by its size before any arithmetic is done with it. Verification never raises: a signature
holds or it does not. Our own keys are Ed25519 only. Where we are stricter than other
implementations, `passes_elsewhere` says so: who relays what they accept has done nothing wrong.
"""

import enum
import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Final, Self, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import CryptoError

from rumormill.core.errors import DecodeError, LocalError
from rumormill.wire import base32, base58
from rumormill.wire.fields import Number, Octets, enumeration
from rumormill.wire.schema import Schema

MAX_ENCODED_KEY_BYTES: Final = 1100
"""The longest encoding that can be an allowed RSA key: 8192 bits take 1064 bytes."""

MIN_RSA_BITS: Final = 2048
"""From go-libp2p: smaller keys are within reach of factoring."""

MAX_RSA_BITS: Final = 8192
"""From go-libp2p's answer to CVE-2023-39533: larger keys make each verification a weapon."""

MAX_PEER_ID_BYTES: Final = 44
"""An identity multihash of the longest key that is embedded: 2 + 42 bytes (peer-ids spec)."""

_ED25519_BYTES = 32
_SIGNATURE_BYTES = 64
_SECP256K1_BYTES = 33
_SECP256K1_HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
_MIN_RSA_DER_BYTES = MIN_RSA_BITS // 8
_MAX_RSA_EXPONENT = 2**31 - 1
_MAX_ECDSA_DER_BYTES = 160
_MAX_SECP256K1_SIGNATURE_BYTES = 72
_MAX_ECDSA_SIGNATURE_BYTES = 141
_ECDSA_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_MAX_EMBEDDED_KEY_BYTES = 42
_DER = serialization.Encoding.DER
_PKIX = serialization.PublicFormat.SubjectPublicKeyInfo
_IDENTITY, _SHA2_256 = 0x00, 0x12
_CID_PREFIX = b"\x01\x72"  # CIDv1, multicodec libp2p-key


class KeyType(enum.IntEnum):
    """The key types that are understood; the numbers are libp2p's."""

    RSA = 0
    ED25519 = 1
    SECP256K1 = 2
    ECDSA = 3


class _KeyMessage(msgspec.Struct, frozen=True):
    """A key as it is sent and stored."""

    key_type: KeyType
    data: bytes


_SCHEMA: Final = Schema(
    _KeyMessage,
    {
        "key_type": Number(1, read=enumeration(KeyType, "unsupported-key-type"), missing="bad-key"),
        "data": Octets(2, MAX_ENCODED_KEY_BYTES, missing="bad-key"),
    },
    max_bytes=MAX_ENCODED_KEY_BYTES,
)


_Verify: TypeAlias = Callable[[bytes, bytes], bool]
"""Whether the second argument is a key's signature of the first, a message."""


class PublicKey:
    """A peer's public key, checked; compare and hash by its one encoding."""

    __slots__ = ("data", "encoded", "key_type", "verify")

    def __init__(self, key_type: KeyType, data: bytes) -> None:
        self.verify: _Verify = _VERIFIERS[key_type](data)
        self.key_type = key_type
        self.data = data
        self.encoded = _SCHEMA.encode(_KeyMessage(key_type, data))

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Read a key as peers send it: a protobuf of type and data, in its one encoding."""
        message = _SCHEMA.decode(encoded)
        key = cls(message.key_type, message.data)
        if key.encoded != encoded:
            raise DecodeError("not-canonical", "a public key in another than its one encoding")
        return key

    def peer_id(self) -> "PeerId":
        """Derive the id of the peer that owns this key."""
        encoded = self.encoded
        if len(encoded) <= _MAX_EMBEDDED_KEY_BYTES:
            return PeerId(bytes((_IDENTITY, len(encoded))) + encoded)
        return PeerId(bytes((_SHA2_256, 32)) + hashlib.sha256(encoded).digest())

    def passes_elsewhere(self, message: bytes, signature: bytes) -> bool:
        """Whether other implementations take for good a signature that `verify` refuses.

        They do not ask for the low one of two Secp256k1 signatures, nor look for small orders of
        Ed25519 keys and points, which let anybody sign.
        """
        if self.key_type is KeyType.SECP256K1:
            return _secp256k1(self.data, low=False)(message, signature)
        if self.key_type is not KeyType.ED25519:
            return False
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.data).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PublicKey):
            return self.encoded == other.encoded
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __repr__(self) -> str:
        return f"PublicKey({self.key_type.name}, {self.data.hex()})"


class PrivateKey:
    """Our Ed25519 identity. The secret shows in neither `repr` nor errors."""

    def __init__(self, seed: bytes) -> None:
        """Take 32 secret random bytes."""
        if len(seed) != _ED25519_BYTES:
            raise ValueError("an Ed25519 seed has 32 bytes")
        self._public, self._secret = crypto_sign_seed_keypair(seed)

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Read libp2p's key-file format: 64 bytes, or 96 with the public key twice.

        The file is our own, so a bad one is a LocalError.
        """
        try:
            message = _SCHEMA.decode(encoded)
        except DecodeError:
            raise LocalError("not a libp2p private key") from None
        data = message.data
        if message.key_type != KeyType.ED25519:
            raise LocalError("a private key that is not Ed25519")
        if len(data) not in (64, 96):
            raise LocalError("an Ed25519 private key has 64 or 96 bytes")
        key = cls(data[:32])
        if data[32:] != key.public_key.data * (len(data) // 32 - 1):
            raise LocalError("the private key does not belong to its public key")
        return key

    def encode(self) -> bytes:
        """Write libp2p's key-file format. This is the secret itself."""
        return _SCHEMA.encode(_KeyMessage(KeyType.ED25519, self._secret))

    def sign(self, message: bytes) -> bytes:
        """Sign a message: 64 bytes."""
        return crypto_sign(message, self._secret)[:_SIGNATURE_BYTES]

    @cached_property
    def public_key(self) -> PublicKey:
        """The public half."""
        return PublicKey(KeyType.ED25519, self._public)

    @cached_property
    def peer_id(self) -> "PeerId":
        """The id under which other peers know the owner of this key."""
        return self.public_key.peer_id()

    def __repr__(self) -> str:
        return f"PrivateKey(of {self.peer_id})"


class PeerId(bytes):
    """A peer's id: a multihash. It is plain bytes on every path; `str` gives the base58 form.

    Bytes and text from outside go through `from_bytes` and `parse`, which check them.
    """

    __slots__ = ()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Check the bytes of a peer id: an identity or SHA-256 multihash of the right length."""
        size = len(data)
        if 2 <= size <= MAX_PEER_ID_BYTES and data[1] == size - 2:
            if data[0] == _SHA2_256 and size == 34:
                return cls(data)
            if data[0] == _IDENTITY:
                return cls(data)
        raise DecodeError("bad-peer-id", "neither an identity nor a SHA-256 multihash")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text forms: base58btc (`12D3…`, `Qm…`) and CIDv1 (`bafz…`, `z…`)."""
        if len(text) > base58.MAX_TEXT_LENGTH:
            raise DecodeError("oversized", "a peer id has at most 128 characters")
        if text.startswith(("1", "Qm")):
            return cls.from_bytes(base58.decode(text))
        if text.startswith("b"):
            cid = base32.decode(text[1:])
        elif text.startswith("z"):
            cid = base58.decode(text[1:])
        else:
            raise DecodeError("bad-peer-id", "neither base58btc nor a CID in base32 or base58btc")
        if not cid.startswith(_CID_PREFIX):
            raise DecodeError("bad-peer-id", "a CID that does not name a libp2p key")
        return cls.from_bytes(cid[len(_CID_PREFIX) :])

    def public_key(self) -> PublicKey | None:
        """Return the key that a short id embeds, or None for a hashed one."""
        return PublicKey.decode(bytes(self[2:])) if self[0] == _IDENTITY else None

    def cid(self) -> str:
        """Write the id as a CIDv1 in base32."""
        return "b" + base32.encode(_CID_PREFIX + self)

    def __str__(self) -> str:
        return base58.encode(self)

    def __repr__(self) -> str:
        return f"PeerId({self})"


def _ed25519(key: bytes) -> _Verify:
    if len(key) != _ED25519_BYTES:
        raise DecodeError("bad-key", "an Ed25519 public key has 32 bytes")

    def verify(message: bytes, signature: bytes) -> bool:
        # The library refuses keys and points of small order and signatures that are not reduced.
        if len(signature) != _SIGNATURE_BYTES:
            return False
        try:
            crypto_sign_open(signature + message, key)
        except CryptoError:
            return False
        return True

    return verify


def _secp256k1(data: bytes, *, low: bool = True) -> _Verify:
    if len(data) != _SECP256K1_BYTES or data[0] not in (2, 3):
        raise DecodeError("bad-key", "a Secp256k1 public key has 33 bytes, compressed")
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), data)
    except ValueError:
        raise DecodeError("bad-key", "not a point of Secp256k1") from None

    def verify(message: bytes, signature: bytes) -> bool:
        if len(signature) > _MAX_SECP256K1_SIGNATURE_BYTES:
            return False
        try:
            _, s = decode_dss_signature(signature)
            # BIP 62: of the two signatures that everybody can compute, only the low one counts.
            if low and s > _SECP256K1_HALF_ORDER:
                return False
            key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True

    return verify


def _ecdsa(data: bytes) -> _Verify:
    if len(data) > _MAX_ECDSA_DER_BYTES:
        raise DecodeError("bad-key-size", f"an ECDSA key encoded in {len(data)} bytes")
    key = _load_der(data)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, _ECDSA_CURVES):
        raise DecodeError("bad-key", "not a key of P-256, P-384 or P-521")
    _check_der(data, key)

    def verify(message: bytes, signature: bytes) -> bool:
        if len(signature) > _MAX_ECDSA_SIGNATURE_BYTES:
            return False
        try:
            key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True

    return verify


def _load_der(data: bytes) -> object:
    try:
        return serialization.load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise DecodeError("bad-key", "not a PKIX public key") from None


def _check_der(data: bytes, key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> None:
    if data != key.public_bytes(_DER, _PKIX):
        raise DecodeError("not-canonical", "a key in another than its one DER encoding")


def _rsa(data: bytes) -> _Verify:
    if not _MIN_RSA_DER_BYTES < len(data) <= MAX_ENCODED_KEY_BYTES:
        raise DecodeError("bad-key-size", f"an RSA key encoded in {len(data)} bytes")
    key = _load_der(data)
    if not isinstance(key, rsa.RSAPublicKey):
        raise DecodeError("bad-key", "not an RSA key")
    if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
        raise DecodeError("bad-key-size", f"an RSA key of {key.key_size} bits")
    if key.public_numbers().e > _MAX_RSA_EXPONENT:
        raise DecodeError("bad-key-size", "an RSA key with an exponent of over 31 bits")
    _check_der(data, key)

    def verify(message: bytes, signature: bytes) -> bool:
        if len(signature) != (key.key_size + 7) // 8:
            return False
        try:
            key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, ValueError):
            return False
        return True

    return verify


_VERIFIERS: Final[dict[KeyType, Callable[[bytes], _Verify]]] = {
    KeyType.RSA: _rsa,
    KeyType.ED25519: _ed25519,
    KeyType.SECP256K1: _secp256k1,
    KeyType.ECDSA: _ecdsa,
}
