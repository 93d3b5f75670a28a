"""A node's identity: an Ed25519 key in a file that only its owner can read.

The file has libp2p's key format. It is created on first use, whole or not at all; a file that
others can read is refused, because a key that somebody else may have is no identity.
"""

import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path

from rumormill.core.errors import DecodeError, LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p.envelope import unseal_peer_record
from rumormill.log import files
from rumormill.wire import keys

KEY_FILE = "identity.key"

_KNOWN_AUTHORS = 4096
"""Our choice: public keys kept decoded, about 1 KB each."""


class SignatureVerifier:
    """Verifies anybody's signature, and has no key of its own."""

    def __init__(self) -> None:
        self._key_of = lru_cache(maxsize=_KNOWN_AUTHORS)(_author_key)

    def verify(self, author: PeerId, public_key: bytes, payload: bytes, signature: bytes) -> bool:
        """Whether `author` signed `payload`."""
        try:
            key = self._key_of(author, public_key)
        except DecodeError:
            return False
        return key is not None and key.verify(payload, signature)


class NodeIdentity(SignatureVerifier):
    """Signs with the node's key and verifies anybody's signature (`core.identity.Identity`)."""

    public_key = b""
    """An Ed25519 peer id contains its key, so messages need not carry it."""

    def __init__(self, key: keys.PrivateKey) -> None:
        super().__init__()
        self.key = key
        self.peer: PeerId = bytes(key.peer_id)

    def sign(self, payload: bytes) -> bytes:
        """Return this node's signature."""
        return self.key.sign(payload)


def _author_key(author: PeerId, public_key: bytes) -> keys.PublicKey | None:
    """Find the key of an author: inside its id, or beside the message if it matches the id."""
    peer = keys.PeerId.from_bytes(author)
    embedded = peer.public_key()
    if not public_key:
        return embedded
    key = keys.PublicKey.decode(public_key)
    return key if key.peer_id() == peer else None


def load_or_create_key(path: Path) -> keys.PrivateKey:
    """Read a key file, or make one that only its owner can read."""
    try:
        return _load_key(path)
    except FileNotFoundError:
        return _create_key(path)
    except OSError as error:
        raise LocalError(f"cannot read the key file {path}: {error.strerror}") from error


def _load_key(path: Path) -> keys.PrivateKey:
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise LocalError(
                f"the key file {path} can be read by others; make it private: chmod 600 {path}"
            )
        encoded = file.read(4096)
    try:
        return keys.PrivateKey.decode(encoded)
    except LocalError as error:
        raise LocalError(f"the key file {path} cannot be used: {error}") from None


def _create_key(path: Path) -> keys.PrivateKey:
    key = keys.PrivateKey(secrets.token_bytes(32))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        files.make_folder(path.parent)
        with open(files.create(draft), "wb") as file:
            file.write(key.encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return _load_key(path)
        finally:
            draft.unlink()
        files.sync_directory(path.parent)
    except OSError as error:
        raise LocalError(f"cannot create the key file {path}: {error.strerror}") from error
    return key


def record_is_of(peer: PeerId, record: bytes) -> bool:
    """Whether a signed record is valid and belongs to the peer."""
    try:
        return bytes(unseal_peer_record(record).peer_id) == peer
    except PeerError:
        return False
