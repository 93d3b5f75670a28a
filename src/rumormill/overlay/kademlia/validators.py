"""Which value may stand under which key.

A value is checked before it is stored and before it is believed. A key names its validator: a raw
CID by its first bytes, every other key by its namespace (`/namespace/rest`). A key without a
validator holds nothing.

Content keys come in two forms. The original Pulsarcast uses the 36 raw bytes of a CIDv1 (dag-cbor,
sha2-256); a key of ours is `/pulsarcast/` and the CID in base32, because libp2p's record code
splits keys at slashes and so cannot store a raw CID in which that byte happens to occur twice.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Protocol

from rumormill.core.errors import DecodeError, LocalError
from rumormill.wire import base32

CID_PREFIX: Final = b"\x01\x71\x12\x20"
"""CIDv1, dag-cbor, sha2-256 of 32 bytes."""

CID_BYTES: Final = 36
CONTENT_NAMESPACE: Final = "pulsarcast"
_CONTENT_KEY_PREFIX: Final = b"/pulsarcast/b"
_CONTENT_KEY_LENGTH: Final = len(_CONTENT_KEY_PREFIX) + 58
_PUBLIC_KEY_PREFIX: Final = b"/pk/"

NO_VALIDATOR: Final = "kad-no-validator"
WRONG_HASH: Final = "kad-wrong-hash"
BAD_KEY: Final = "kad-bad-key"


class Validator(Protocol):
    """Judges the values of one namespace. All methods are pure.

    Where a value hashes to its key, there is never a choice between two, and nothing vouches for it
    but the hash.
    """

    def refusal(self, key: bytes, value: bytes) -> str:
        """Why the value must not stand under the key, as a short label; empty where it may."""
        ...

    def better(self, key: bytes, new: bytes, old: bytes) -> bool:
        """Whether `new` replaces `old`; both are valid."""
        return False

    def vouched(self, key: bytes, value: bytes, proof: bytes) -> bool:
        """Whether what travels beside a valid value vouches for it, or nothing needs to."""
        return True


class ContentValidator(Validator):
    """The value of a content key hashes to it."""

    def refusal(self, key: bytes, value: bytes) -> str:
        """Refuse a value that does not hash to the key's CID."""
        cid = cid_of(key)
        if cid is None:
            return BAD_KEY
        return "" if sha256(value).digest() == cid[4:] else WRONG_HASH


class PublicKeyValidator(Validator):
    """`/pk/<peer id>`: the value is the public key whose hash (or which itself) is the peer id."""

    def refusal(self, key: bytes, value: bytes) -> str:
        """Refuse a key that does not make the peer id."""
        multihash = key.removeprefix(_PUBLIC_KEY_PREFIX)
        if multihash[:2] == b"\x12\x20":
            return "" if sha256(value).digest() == multihash[2:] else WRONG_HASH
        if multihash[:1] == b"\0" and len(multihash) >= 2 and multihash[1] == len(multihash) - 2:
            return "" if value == multihash[2:] else WRONG_HASH
        return BAD_KEY


DEFAULT_VALIDATORS: Final[Mapping[str, Validator]] = {
    CONTENT_NAMESPACE: ContentValidator(),
    "pk": PublicKeyValidator(),
}


class Validators:
    """Finds the validator of a key."""

    __slots__ = ("_content", "_namespaces")

    def __init__(self, namespaces: Mapping[str, Validator] = DEFAULT_VALIDATORS) -> None:
        self._namespaces = namespaces
        self._content = namespaces.get(CONTENT_NAMESPACE)

    def of(self, key: bytes) -> Validator | None:
        """Return the validator of a key, or None where the key can hold nothing."""
        if len(key) == CID_BYTES and key.startswith(CID_PREFIX):
            return self._content
        if key[:1] != b"/":
            return None
        end = key.find(b"/", 1)
        return None if end < 0 else self._namespaces.get(key[1:end].decode(errors="replace"))

    def refusal(self, key: bytes, value: bytes) -> str:
        """Why the value must not stand under the key; empty where it may."""
        validator = self.of(key)
        return NO_VALIDATOR if validator is None else validator.refusal(key, value)

    def better(self, key: bytes, new: bytes, old: bytes) -> bool:
        """Whether a valid value replaces another."""
        validator = self.of(key)
        return validator is not None and validator.better(key, new, old)

    def vouched(self, key: bytes, value: bytes, proof: bytes) -> bool:
        """Whether a proof vouches for a valid value, or none is wanted."""
        validator = self.of(key)
        return validator is not None and validator.vouched(key, value, proof)


def content_key(cid: bytes) -> bytes:
    """The key of a content-addressed value: `/pulsarcast/` and the CID in base32."""
    if len(cid) != CID_BYTES or not cid.startswith(CID_PREFIX):
        raise LocalError("a content key is made of a CIDv1 (dag-cbor, sha2-256)")
    return _CONTENT_KEY_PREFIX + base32.encode(cid).encode()


def cid_of(key: bytes) -> bytes | None:
    """The CID that a content key of either form names, or None where it is no content key."""
    if len(key) == CID_BYTES and key.startswith(CID_PREFIX):
        return key
    if len(key) != _CONTENT_KEY_LENGTH or not key.startswith(_CONTENT_KEY_PREFIX):
        return None
    try:
        cid = base32.decode(key[len(_CONTENT_KEY_PREFIX) :].decode())
    except (DecodeError, UnicodeDecodeError):
        return None
    return cid if cid.startswith(CID_PREFIX) else None
