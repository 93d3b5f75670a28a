"""Noise as libp2p uses it: Noise_XX_25519_ChaChaPoly_SHA256, then encrypted frames.

The handshake has three messages: e / e, ee, s, es / s, se. Each side runs a hash `h` over all that
was said and a chaining key `ck` over all Diffie-Hellman results, so both end with the same two
cipher keys only if nobody changed a byte. Noise proves that the peer owns its static key; the
libp2p payload in messages two and three proves whose that key is: the identity key signs it.

`NoiseHandshake` takes bytes with `receive` and gives bytes with `data_to_send`. When `session` is
set the handshake is over, and `receive` has returned the bytes behind it, for `session.decrypt`.
`NoiseSession` turns plaintext into frames of at most 65535 bytes and back: many writes may share a
frame, so callers join what they have and encrypt once.

Rules kept here: the secret keys come from the caller, fresh for each handshake; a frame's length is
checked against the state's limit before the frame is awaited; a point of low order is refused; a
PeerError is final, the connection must be closed.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from rumormill.core.errors import DecodeError, LimitError, PeerError
from rumormill.libp2p.yamux_types import CRUMB_BYTES
from rumormill.wire.fields import Nested, Octets, Text
from rumormill.wire.keys import MAX_ENCODED_KEY_BYTES, PeerId, PrivateKey, PublicKey
from rumormill.wire.schema import Schema

NOISE: Final = "/noise"

MAX_FRAME_BYTES: Final = 65535
"""From the Noise specification: the length has two bytes."""

TAG_BYTES: Final = 16
MAX_PLAINTEXT_BYTES: Final = MAX_FRAME_BYTES - TAG_BYTES

MAX_HANDSHAKE_BYTES: Final = 8 * 1024
"""Our choice: the longest RSA key and signature with extensions take under 5 KiB."""

_PROTOCOL_NAME = b"Noise_XX_25519_ChaChaPoly_SHA256"
_SIGNED_PREFIX = b"noise-libp2p-static-key:"
_KEY_BYTES = 32
_MAX_NONCE = 2**64 - 1  # reserved by Noise: reaching it ends the session
_FRAMES_AT_A_TIME = 64
"""Our choice: less than a millisecond's work, and more than a peer of ours sends in one write."""
_CRUMB = CRUMB_BYTES + TAG_BYTES
_MAX_MUXERS = 16


class _Extensions(msgspec.Struct, frozen=True):
    """What the handshake says besides; hashes of certificates are for another transport."""

    certificate_hashes: tuple[bytes, ...] = ()
    muxers: tuple[str, ...] = ()


class _Payload(msgspec.Struct, frozen=True):
    """Whose identity key vouches for the static key."""

    key: bytes
    signature: bytes
    extensions: _Extensions | None = None


_EXTENSIONS: Final = Schema(
    _Extensions,
    {
        "certificate_hashes": Octets(1, 128, max_count=16),
        "muxers": Text(2, 256, max_count=_MAX_MUXERS),
    },
)
_PAYLOAD: Final = Schema(
    _Payload,
    {
        "key": Octets(1, MAX_ENCODED_KEY_BYTES, missing="bad-handshake"),
        "signature": Octets(2, 1024, missing="bad-handshake"),
        "extensions": Nested(4, _EXTENSIONS, optional=True),
    },
    max_bytes=MAX_HANDSHAKE_BYTES,
)

_Cipher = Callable[[bytes, bytes | bytearray, bytes | None], bytes]
_pack_nonce = struct.Struct("<4xQ").pack


class RemoteIdentity(msgspec.Struct, frozen=True):
    """Who is at the other end, proven by the handshake."""

    peer_id: PeerId
    public_key: PublicKey
    muxers: tuple[str, ...]
    """The stream multiplexers that the peer offered inside the handshake, preferred first."""


class NoiseSession:
    """The encrypted connection behind a handshake: two ciphers and their counters."""

    __slots__ = ("_decrypt", "_encrypt", "_pending", "_receive_nonce", "_send_nonce", "on_crumbs")

    def __init__(self, send_key: bytes, receive_key: bytes) -> None:
        self._encrypt = ChaCha20Poly1305(send_key).encrypt
        self._decrypt: _Cipher = ChaCha20Poly1305(receive_key).decrypt
        self._send_nonce = 0
        self._receive_nonce = 0
        self._pending = bytearray()
        self.on_crumbs: Callable[[int], None] = lambda _: None
        """Hears how many frames came that hold less than a frame of yamux has."""

    def encrypt(self, plaintext: bytes) -> bytes:
        """Encrypt into as few frames as possible; nothing gives nothing."""
        size = len(plaintext)
        nonce = self._send_nonce
        if nonce + size // MAX_PLAINTEXT_BYTES >= _MAX_NONCE:
            raise LimitError("the session has encrypted all it may; connect anew")
        if 0 < size <= MAX_PLAINTEXT_BYTES:
            self._send_nonce = nonce + 1
            ciphertext = self._encrypt(_pack_nonce(nonce), plaintext, None)
            return (size + TAG_BYTES).to_bytes(2) + ciphertext
        frames: list[bytes] = []
        view = memoryview(plaintext)
        for start in range(0, size, MAX_PLAINTEXT_BYTES):
            ciphertext = self._encrypt(
                _pack_nonce(nonce), view[start : start + MAX_PLAINTEXT_BYTES], None
            )
            frames += (len(ciphertext).to_bytes(2), ciphertext)
            nonce += 1
        self._send_nonce = nonce
        return b"".join(frames)

    @property
    def unread(self) -> bool:
        """Whether a whole frame waits for another call of `decrypt`."""
        pending = self._pending
        return len(pending) >= 2 and len(pending) - 2 >= (pending[0] << 8 | pending[1])

    def decrypt(self, data: bytes) -> bytes:
        """Take bytes from the peer; return the plaintext of the frames that are now complete.

        Of many small frames so many at a time: the others wait, as `unread` says, until the caller
        has time for them. It should read no more of the socket before that.
        """
        pending = self._pending
        buffer: bytes | bytearray = data
        if pending:
            pending += data
            buffer = pending
        position, end = 0, len(buffer)
        nonce = self._receive_nonce
        if nonce + end // TAG_BYTES >= _MAX_NONCE:
            raise PeerError("nonces-spent", "the peer has encrypted more than it may")
        plaintexts: list[bytes] = []
        crumbs = 0
        try:
            while end - position >= 2 and len(plaintexts) < _FRAMES_AT_A_TIME:
                start = position + 2
                stop = start + (buffer[position] << 8 | buffer[position + 1])
                if stop > end:
                    break
                plaintexts.append(self._decrypt(_pack_nonce(nonce), buffer[start:stop], None))
                nonce += 1
                position = stop
                crumbs += stop - start < _CRUMB
        except InvalidTag:
            self._decrypt = _refuse
            raise PeerError("bad-frame", "a frame that was not encrypted with our key") from None
        self._receive_nonce = nonce
        if crumbs:
            self.on_crumbs(crumbs)
        if buffer is pending:
            del pending[:position]
        elif position < end:
            pending += data[position:]
        return plaintexts[0] if len(plaintexts) == 1 else b"".join(plaintexts)


def _refuse(*_frame: object) -> bytes:
    """Stand in for the cipher once a frame has failed: no later frame is read."""
    raise InvalidTag


class _SymmetricState:
    """Noise's SymmetricState: the running hash, the chaining key, and the current cipher."""

    def __init__(self) -> None:
        self._hash = self._chaining_key = _PROTOCOL_NAME  # exactly 32 bytes, so not hashed
        self._cipher: ChaCha20Poly1305 | None = None
        self._nonce = 0
        self.mix_hash(b"")  # the empty prologue

    def mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def mix_key(self, private: X25519PrivateKey, public: X25519PublicKey) -> None:
        try:
            secret = private.exchange(public)
        except ValueError:
            raise PeerError("low-order-point", "a public key that gives no secret") from None
        self._chaining_key, key = _derive_two(self._chaining_key, secret)
        self._cipher = ChaCha20Poly1305(key)
        self._nonce = 0

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        assert self._cipher is not None
        ciphertext = self._cipher.encrypt(_pack_nonce(self._nonce), plaintext, self._hash)
        self._nonce += 1
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, ciphertext: bytes) -> bytes:
        assert self._cipher is not None
        try:
            plaintext = self._cipher.decrypt(_pack_nonce(self._nonce), ciphertext, self._hash)
        except InvalidTag:
            raise PeerError("bad-handshake", "a handshake message that does not decrypt") from None
        self._nonce += 1
        self.mix_hash(ciphertext)
        return plaintext

    def split(self) -> tuple[bytes, bytes]:
        """Return the cipher keys of initiator and responder."""
        return _derive_two(self._chaining_key, b"")


class NoiseHandshake:
    """One side of the handshake; `session` and `remote` are set when it has succeeded."""

    def __init__(
        self,
        identity: PrivateKey,
        *,
        initiator: bool,
        static_secret: bytes,
        ephemeral_secret: bytes,
        expected_peer: PeerId | None = None,
        muxers: Sequence[str] = (),
    ) -> None:
        """Start a handshake with 32 + 32 secret random bytes.

        `expected_peer` is who was dialled: anybody else is refused. `muxers` are offered inside
        the handshake, preferred first, which saves the peers that can read them a round trip.
        """
        self.session: NoiseSession | None = None
        self.remote: RemoteIdentity | None = None
        self._identity = identity
        self._initiator = initiator
        self._static = X25519PrivateKey.from_private_bytes(static_secret)
        self._ephemeral = X25519PrivateKey.from_private_bytes(ephemeral_secret)
        self._remote_ephemeral: X25519PublicKey | None = None
        self._expected_peer = expected_peer
        self._muxers = tuple(muxers)
        self._state = _SymmetricState()
        self._failure: PeerError | None = None
        self._received = bytearray()
        self._to_send = bytearray()
        if initiator:
            self._write_message(self._write_ephemeral())
            self._state.mix_hash(b"")  # its empty payload

    @property
    def muxer(self) -> str | None:
        """The multiplexer agreed inside the handshake; None if one side offered none there.

        It is the first of the initiator's list that the responder has too.
        """
        if self.remote is None:
            return None
        ours, theirs = self._muxers, self.remote.muxers
        first, second = (ours, theirs) if self._initiator else (theirs, ours)
        return next((name for name in first if name in second), None)

    def data_to_send(self) -> bytes:
        """Return and forget the bytes that wait to be sent."""
        data = bytes(self._to_send)
        self._to_send.clear()
        return data

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the peer; return those behind the handshake, once it is over."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._advance(data)
        except PeerError as failure:
            self._failure = failure
            raise

    def _advance(self, data: bytes) -> bytes:
        received = self._received
        received += data
        while self.session is None:
            if len(received) < 2:
                return b""
            size = received[0] << 8 | received[1]
            if size > MAX_HANDSHAKE_BYTES:
                raise DecodeError("oversized", f"a handshake message of {size} bytes")
            if len(received) < 2 + size:
                return b""
            message = bytes(received[2 : 2 + size])
            del received[: 2 + size]
            if self._initiator:
                self._on_second(message)
            elif self._remote_ephemeral is None:
                self._on_first(message)
            else:
                self._on_third(message)
        rest = bytes(received)
        received.clear()
        return rest

    def _on_first(self, message: bytes) -> None:
        """Read -> e; answer <- e, ee, s, es."""
        if len(message) != _KEY_BYTES:
            raise DecodeError("bad-handshake", "the first message is one public key")
        state = self._state
        remote = self._remote_ephemeral = X25519PublicKey.from_public_bytes(message)
        state.mix_hash(message)
        state.mix_hash(b"")  # its empty payload
        answer = self._write_ephemeral()
        state.mix_key(self._ephemeral, remote)
        answer += state.encrypt_and_hash(self._static.public_key().public_bytes_raw())
        state.mix_key(self._static, remote)
        self._write_message(answer + state.encrypt_and_hash(self._payload()))

    def _on_second(self, message: bytes) -> None:
        """Read <- e, ee, s, es; answer -> s, se."""
        if len(message) < _KEY_BYTES + _KEY_BYTES + TAG_BYTES + TAG_BYTES:
            raise DecodeError("bad-handshake", "the second message is cut short")
        state = self._state
        ephemeral = message[:_KEY_BYTES]
        remote = self._remote_ephemeral = X25519PublicKey.from_public_bytes(ephemeral)
        state.mix_hash(ephemeral)
        state.mix_key(self._ephemeral, remote)
        static = self._read_static(message[_KEY_BYTES:][: _KEY_BYTES + TAG_BYTES])
        state.mix_key(self._ephemeral, static)
        payload = state.decrypt_and_hash(message[_KEY_BYTES + _KEY_BYTES + TAG_BYTES :])
        remote_identity = self._identify(static, payload)
        answer = state.encrypt_and_hash(self._static.public_key().public_bytes_raw())
        state.mix_key(self._static, remote)
        self._write_message(answer + state.encrypt_and_hash(self._payload()))
        self._finish(remote_identity)

    def _on_third(self, message: bytes) -> None:
        """Read -> s, se."""
        if len(message) < _KEY_BYTES + TAG_BYTES + TAG_BYTES:
            raise DecodeError("bad-handshake", "the third message is cut short")
        static = self._read_static(message[: _KEY_BYTES + TAG_BYTES])
        self._state.mix_key(self._ephemeral, static)
        payload = self._state.decrypt_and_hash(message[_KEY_BYTES + TAG_BYTES :])
        self._finish(self._identify(static, payload))

    def _finish(self, remote: RemoteIdentity) -> None:
        self.remote = remote
        if self._muxers and remote.muxers and self.muxer is None:
            self.remote = None
            raise PeerError("no-common-muxer", "both sides offered multiplexers, none in common")
        initiator_key, responder_key = self._state.split()
        if self._initiator:
            self.session = NoiseSession(initiator_key, responder_key)
        else:
            self.session = NoiseSession(responder_key, initiator_key)

    def _identify(self, static: X25519PublicKey, payload: bytes) -> RemoteIdentity:
        """Check whose key the peer's static key is."""
        read = _PAYLOAD.decode(payload)
        key = PublicKey.decode(read.key)
        peer_id = key.peer_id()
        if self._expected_peer is not None and peer_id != self._expected_peer:
            raise PeerError("wrong-peer", f"{peer_id} answered instead of {self._expected_peer}")
        if not key.verify(_SIGNED_PREFIX + static.public_bytes_raw(), read.signature):
            raise PeerError("bad-signature", "the static key is not signed by the identity key")
        return RemoteIdentity(peer_id, key, read.extensions.muxers if read.extensions else ())

    def _payload(self) -> bytes:
        signature = self._identity.sign(
            _SIGNED_PREFIX + self._static.public_key().public_bytes_raw()
        )
        extensions = _Extensions(muxers=self._muxers) if self._muxers else None
        payload = _Payload(self._identity.public_key.encoded, signature, extensions)
        return _PAYLOAD.encode(payload)

    def _write_ephemeral(self) -> bytes:
        ephemeral = self._ephemeral.public_key().public_bytes_raw()
        self._state.mix_hash(ephemeral)
        return ephemeral

    def _write_message(self, message: bytes) -> None:
        self._to_send += len(message).to_bytes(2) + message

    def _read_static(self, ciphertext: bytes) -> X25519PublicKey:
        return X25519PublicKey.from_public_bytes(self._state.decrypt_and_hash(ciphertext))


def _derive_two(chaining_key: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """Noise's HKDF with two outputs."""
    temporary = hmac.digest(chaining_key, secret, "sha256")
    first = hmac.digest(temporary, b"\x01", "sha256")
    return first, hmac.digest(temporary, first + b"\x02", "sha256")
