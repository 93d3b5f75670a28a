"""Private networks: libp2p's pnet, a cipher around a connection whose key all members share.

Each side sends 24 random bytes, its nonce, and behind them everything through XSalsa20 with that
nonce and the network's key. Multistream, noise and the rest happen inside. A stranger sees random
bytes, and what it says decrypts to nonsense.

The cipher proves nothing by itself, so the session looks at the first thing that a member says in
every libp2p: the greeting of multistream. Rules kept here: one wrong byte of it is final, as is our
own nonce come back, and a listener says nothing but its nonce before it has the whole greeting. So
whoever dials without the key gets 24 random bytes, with which no guess of the key can be tested.
Noise inside notices what is changed or replayed later.

Nonces come from the caller, fresh for each connection. Kept are an unfinished nonce, how much of
the greeting has come, and a listener's own greeting until then.
"""

import base64
import binascii
import hashlib
import struct
from typing import TYPE_CHECKING, Final

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p.multistream import MULTISTREAM, encode_line

if TYPE_CHECKING:
    from Crypto.Cipher.Salsa20 import Salsa20Cipher

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24

WRONG_NETWORK: Final = "wrong-network"

_CODEC: Final = b"/key/swarm/psk/1.0.0/"
_GREETING: Final = encode_line(MULTISTREAM)
_CONSTANTS: Final = struct.unpack("<4I", b"expand 32-byte k")
_ROUND: Final = (
    (0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11),
    (0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14),
)  # fmt: skip
"""The columns of Salsa20's square, then its rows, each from the diagonal on."""


class PrivateNetwork:
    """A network's key. Shown anywhere, it shows its fingerprint."""

    __slots__ = ("_key", "fingerprint")

    def __init__(self, key: bytes) -> None:
        """Take a network's 32 secret bytes."""
        if len(key) != KEY_BYTES:
            raise LocalError(f"the key of a private network has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        try:
            mixed = _salsa20(key, b"finprint").encrypt(bytes(64))
        except ImportError:
            raise LocalError(
                'private networks need pycryptodome: run pip install "rumormill[private]"'
            ) from None
        self.fingerprint = hashlib.shake_128(mixed).hexdigest(16)
        """What members may compare aloud; go and rust compute the same."""

    @classmethod
    def decode(cls, text: bytes) -> "PrivateNetwork":
        """Read a key file: what it is, how it is encoded, and the key, one a line."""
        codec, _, rest = text.partition(b"\n")
        encoding, _, key = rest.partition(b"\n")
        if codec.strip() != _CODEC:
            raise LocalError(f"a network's key file begins with {_CODEC.decode()}")
        try:
            match encoding.strip():
                case b"/base16/":
                    return cls(binascii.unhexlify(key.strip()))
                case b"/base64/":
                    return cls(base64.b64decode(key.strip(), validate=True))
                case b"/bin/":
                    return cls(key)
        except binascii.Error:
            raise LocalError("the key is not encoded as the line before it says") from None
        raise LocalError("the key is encoded as none of /base16/, /base64/ and /bin/")

    def encode(self) -> bytes:
        """Write a key file that every libp2p reads."""
        return b"\n".join((_CODEC, b"/base16/", self._key.hex().encode(), b""))

    def session(self, nonce: bytes, *, outbound: bool) -> "PrivateSession":
        """Begin a connection with 24 random bytes that were never used before."""
        return PrivateSession(self._key, nonce, outbound=outbound)

    def __repr__(self) -> str:
        return f"PrivateNetwork({self.fingerprint})"


class PrivateSession:
    """One connection inside a private network: two ciphers, and whether the peer has the key."""

    __slots__ = ("_ahead", "_due", "_held", "_key", "_nonce", "_receiver", "_refused", "_sender")

    def __init__(self, key: bytes, nonce: bytes, *, outbound: bool) -> None:
        self._key = key
        self._nonce = nonce
        self._ahead: bytes | None = nonce
        """What goes before the next bytes that are sent."""
        self._held: bytes | None = None if outbound else b""
        """What a listener says when it has been greeted; None from then on."""
        self._sender: Salsa20Cipher | None = None
        self._receiver: Salsa20Cipher | bytes = b""
        """The cipher, or what there is of the nonce that it begins with."""
        self._due = _GREETING
        """What is still to come of the greeting."""
        self._refused = False

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt what is to be sent, also nothing: a greeted listener then says what it held."""
        ahead, self._ahead = self._ahead, None
        if self._held is not None:
            if self._due:
                self._held += data
                return ahead or b""
            data, self._held = self._held + data, None
        if self._sender is None:
            self._sender = _xsalsa20(self._key, self._nonce)
        sealed = self._sender.encrypt(data)
        return sealed if ahead is None else ahead + sealed

    def decrypt(self, data: bytes) -> bytes:
        """Take bytes from the peer; return what they say. A PeerError is final."""
        if isinstance(self._receiver, bytes):
            started = self._receiver + data
            self._receiver = started[:NONCE_BYTES]
            if len(started) <= NONCE_BYTES:
                return b""
            self._refused = self._receiver == self._nonce  # our own words, sent back
            self._receiver = _xsalsa20(self._key, self._receiver)
            data = started[NONCE_BYTES:]
        plain = self._receiver.decrypt(data)
        if self._due:
            as_due = plain.startswith(self._due) or self._due.startswith(plain)
            if self._refused or not as_due:
                self._refused = True
                raise PeerError(WRONG_NETWORK, "the first bytes are not a member's")
            self._due = self._due[len(plain) :]
        return plain


def _salsa20(key: bytes, nonce: bytes) -> "Salsa20Cipher":
    # An extra: only private networks need it, and it takes a while to import.
    from Crypto.Cipher import Salsa20  # noqa: PLC0415

    return Salsa20.new(key, nonce)


def _xsalsa20(key: bytes, nonce: bytes) -> "Salsa20Cipher":
    """Salsa20 with a key that comes from the longer nonce's first 16 bytes."""
    return _salsa20(hsalsa20(key, nonce[:16]), nonce[16:])


def hsalsa20(key: bytes, nonce: bytes) -> bytes:
    """Derive a key from a key and 16 bytes: Salsa20's rounds without its last addition."""
    state = [0] * 16
    state[0], state[5], state[10], state[15] = _CONSTANTS
    state[1:5] = struct.unpack("<4I", key[:16])
    state[6:10] = struct.unpack("<4I", nonce)
    state[11:15] = struct.unpack("<4I", key[16:])
    for _ in range(10):
        for a, b, c, d in _ROUND:
            state[b] ^= _rotated(state[a] + state[d], 7)
            state[c] ^= _rotated(state[b] + state[a], 9)
            state[d] ^= _rotated(state[c] + state[b], 13)
            state[a] ^= _rotated(state[d] + state[c], 18)
    return struct.pack("<8I", *(state[place] for place in (0, 5, 10, 15, 6, 7, 8, 9)))


def _rotated(word: int, bits: int) -> int:
    word &= 0xFFFFFFFF
    return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF
