"""Encrypted payloads: what is said in a topic, for those alone who have one of its keys.

An encrypted payload is a magic, the id of its key, a nonce, and the ciphertext with its tag
(XChaCha20-Poly1305). Topic and author are authenticated with it, so that it cannot be moved to
another topic or passed off as another author's. Rules kept here: a topic's first key encrypts and
all of them decrypt; whatever the bytes are, they are read whole or refused under a reason; a key
is never shown, only its id.

Nonces come from the caller, random for each payload: with 24 bytes two of them never meet.
"""

import binascii
import hashlib
from collections.abc import Sequence
from typing import Final

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from rumormill.core.errors import DecodeError, LocalError
from rumormill.core.ids import PeerId, Topic

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24
MAX_KEYS: Final = 32
"""Our choice: who rotates every month has two or three."""

MARK: Final = b"\xfarm"
"""How every payload begins that is more than its publisher's data."""

MAGIC: Final = MARK + b"ciph\x01"
"""Its last byte is the version. No text in UTF-8 begins so."""

_KEY_ID_BYTES: Final = 8
_TAG_BYTES: Final = 16
_HEAD: Final = len(MAGIC) + _KEY_ID_BYTES
_BODY: Final = _HEAD + NONCE_BYTES

OVERHEAD: Final = _BODY + _TAG_BYTES
"""Bytes by which an encrypted payload is longer."""

NOT_ENCRYPTED: Final = "not-encrypted"
NO_TOPIC_KEY: Final = "no-topic-key"
BAD_CIPHERTEXT: Final = "bad-ciphertext"

_CODEC: Final = b"/key/rumormill/topic/1.0.0/"


def is_encrypted(data: bytes) -> bool:
    """Whether a payload says that it is encrypted."""
    return data.startswith(MAGIC)


def key_id_of(data: bytes) -> str:
    """The id of the key that an encrypted payload names, as people read it."""
    return data[len(MAGIC) : _HEAD].hex()


class TopicKeys:
    """The keys of a topic: the first one encrypts, all decrypt. Shown anywhere, it shows ids."""

    __slots__ = ("_first", "_keys", "ids")

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Take the topic's keys, 32 secret bytes each."""
        if not 0 < len(keys) <= MAX_KEYS:
            raise LocalError(f"a topic has 1 to {MAX_KEYS} keys, not {len(keys)}")
        for key in keys:
            if len(key) != KEY_BYTES:
                raise LocalError(f"the key of a topic has {KEY_BYTES} bytes, not {len(key)}")
        self._keys = {_id_of(key): key for key in keys}
        self._first = (MAGIC + _id_of(keys[0]), keys[0])
        self.ids = tuple(key_id.hex() for key_id in self._keys)
        """What people may compare aloud; each encrypted payload names one of them."""

    @classmethod
    def decode(cls, text: bytes) -> "TopicKeys":
        """Read a key file: what it is, then one key a line in base16."""
        lines = text.split()
        if lines[:1] != [_CODEC]:
            raise LocalError(f"a topic's key file begins with {_CODEC.decode()}")
        try:
            return cls([binascii.unhexlify(line) for line in lines[1:]])
        except binascii.Error:
            raise LocalError("a key is not written in base16") from None

    def rotated(self, key: bytes) -> "TopicKeys":
        """These keys behind a new one, which encrypts from now on."""
        if len(self._keys) >= MAX_KEYS:
            raise LocalError(
                f"a topic has at most {MAX_KEYS} keys: take out the last ones, under which nothing"
                " needs to be read any more"
            )
        return TopicKeys([key, *self._keys.values()])

    def encode(self) -> bytes:
        """The content of a key file."""
        return b"\n".join([_CODEC, *(key.hex().encode() for key in self._keys.values()), b""])

    def __repr__(self) -> str:
        return f"TopicKeys({', '.join(self.ids)})"

    def encrypt(self, data: bytes, topic: Topic, author: PeerId, nonce: bytes) -> bytes:
        """Encrypt what an author says in a topic."""
        head, key = self._first
        bound = _bound(head, topic, author)
        return head + nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(data, bound, nonce, key)

    def decrypt(self, data: bytes, topic: Topic, author: PeerId) -> bytes:
        """Decrypt a payload; `DecodeError` unless this author said it in this topic."""
        if not is_encrypted(data):
            raise DecodeError(NOT_ENCRYPTED, "a payload in clear in an encrypted topic")
        if len(data) < OVERHEAD:
            raise DecodeError(BAD_CIPHERTEXT, "an encrypted payload that is cut off")
        head, nonce = data[:_HEAD], data[_HEAD:_BODY]
        key = self._keys.get(head[len(MAGIC) :])
        if key is None:
            raise DecodeError(NO_TOPIC_KEY, "a payload under a key that is not here")
        bound = _bound(head, topic, author)
        try:
            return crypto_aead_xchacha20poly1305_ietf_decrypt(data[_BODY:], bound, nonce, key)
        except CryptoError:
            raise DecodeError(BAD_CIPHERTEXT, "a payload that was changed or moved") from None


def _id_of(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_KEY_ID_BYTES, person=b"rumormill topic").digest()


def _bound(head: bytes, topic: Topic, author: PeerId) -> bytes:
    """What is authenticated besides the payload, so that no two of it read the same."""
    name = topic.encode()
    return head + len(name).to_bytes(4) + name + author
