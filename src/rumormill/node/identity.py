"""A node's keys, in files that only their owner can read: its identity, its private network, and
those of encrypted topics; and the documents that such a key signs.

Identity and network have libp2p's formats. Files are created whole or not at all, the identity on
first use; a key file that others can read is refused, because a key that somebody else may have
keeps nobody out.
"""

import os
import secrets
import stat
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from rumormill.core.errors import DecodeError, LocalError, PeerError, RumormillError
from rumormill.core.ids import PeerId
from rumormill.libp2p.envelope import unseal_peer_record
from rumormill.libp2p.pnet import KEY_BYTES, PrivateNetwork
from rumormill.log import files
from rumormill.node.policy import Policy, read_policy
from rumormill.wire import keys, topic_cipher

_Key = TypeVar("_Key")

FORCE_PRIVATE: Final = "LIBP2P_FORCE_PNET"
"""The environment variable by which every libp2p can be kept from joining the open network."""

KEY_FILE = "identity.key"

_MAX_FILE_BYTES: Final = 16 * 1024
"""A policy with all publishers that it may name, and more than any key file has."""

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

    def passes_elsewhere(
        self, author: PeerId, public_key: bytes, payload: bytes, signature: bytes
    ) -> bool:
        """Whether honest peers may accept and pass on what `verify` refuses.

        They may know more kinds and sizes of keys than we, RSA's exponents among them, and take
        other encodings of a key than its own.
        """
        try:
            key = self._key_of(author, public_key)
        except DecodeError as error:
            return error.reason in {"unsupported-key-type", "bad-key-size", "not-canonical"}
        return key is not None and key.passes_elsewhere(payload, signature)


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


def identity_of(home: Path | None) -> NodeIdentity:
    """The identity that a home keeps; without a home, a new one."""
    if home is None:
        return NodeIdentity(keys.PrivateKey(secrets.token_bytes(32)))
    return NodeIdentity(load_or_create_key(home / KEY_FILE))


def load_or_create_key(path: Path) -> keys.PrivateKey:
    """Read a key file, or make one that only its owner can read."""
    try:
        return _load(path, "key file", keys.PrivateKey.decode)
    except FileNotFoundError:
        key = keys.PrivateKey(secrets.token_bytes(32))
    try:
        _create(path, "key file", key.encode())
    except FileExistsError:
        pass
    else:
        return key
    try:
        return _load(path, "key file", keys.PrivateKey.decode)
    except FileNotFoundError:
        raise LocalError(
            f"the key file {path} is a link to a file that is not there; bring the key back, or"
            " remove the link for a new identity"
        ) from None


def load_network(path: Path | None) -> PrivateNetwork | None:
    """Read the key file of a private network; without one, the network is open to everybody."""
    if path is None:
        if os.environ.get(FORCE_PRIVATE) == "1":
            raise LocalError(f"{FORCE_PRIVATE}=1 forbids a node without a private network's key")
        return None
    try:
        return _load(path, "network's key file", PrivateNetwork.decode)
    except FileNotFoundError:
        raise LocalError(
            f"there is no network's key file {path}; `rumormill network new` makes one"
        ) from None


def create_network(path: Path) -> PrivateNetwork:
    """Make a private network: a key file that only its owner can read, where there is no file."""
    network = PrivateNetwork(secrets.token_bytes(KEY_BYTES))
    try:
        _create(path, "network's key file", network.encode())
    except FileExistsError:
        raise LocalError(f"{path} exists; a network's key is not overwritten") from None
    return network


def load_topic_keys(path: Path) -> topic_cipher.TopicKeys:
    """Read the key file of an encrypted topic."""
    try:
        return _load(path, "topic's key file", topic_cipher.TopicKeys.decode)
    except FileNotFoundError:
        raise LocalError(
            f"there is no topic's key file {path}; `rumormill topic-key new` makes one"
        ) from None


def create_topic_key(path: Path) -> topic_cipher.TopicKeys:
    """Make a key file for a topic that only its owner can read, where there is no file."""
    made = topic_cipher.TopicKeys([secrets.token_bytes(topic_cipher.KEY_BYTES)])
    try:
        _create(path, "topic's key file", made.encode())
    except FileExistsError:
        raise LocalError(f"{path} exists; a topic's key is not overwritten") from None
    return made


def rotate_topic_key(path: Path) -> topic_cipher.TopicKeys:
    """Put a new key in front of those of a key file, which stay for what was said before; where
    there is a link, of the file that it leads to, which others use as well."""
    keys_now, path = load_topic_keys(path), path.resolve()
    made = keys_now.rotated(secrets.token_bytes(topic_cipher.KEY_BYTES))
    try:
        _write_draft(path, made.encode()).replace(path)
        files.sync_directory(path.parent)
    except OSError as error:
        raise LocalError(f"cannot write the topic's key file {path}: {error.strerror}") from error
    return made


def load_policy(path: Path) -> Policy:
    """Read a publisher policy, which is no secret, and check its signature."""
    try:
        return _load(path, "policy", read_policy, secret=False)
    except FileNotFoundError:
        raise LocalError(f"there is no policy {path}; `rumormill policy new` makes one") from None


def create_policy(path: Path, document: bytes) -> None:
    """Write a signed policy, where there is no file."""
    try:
        _create(path, "policy", document)
    except FileExistsError:
        raise LocalError(f"{path} exists; a policy is not overwritten") from None


def _load(path: Path, what: str, decode: Callable[[bytes], _Key], *, secret: bool = True) -> _Key:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if secret and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise LocalError(
                    f"the {what} {path} can be read by others; make it private: chmod 600 {path}"
                )
            encoded = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LocalError(f"cannot read the {what} {path}: {error.strerror}") from error
    if len(encoded) > _MAX_FILE_BYTES:
        raise LocalError(f"the {what} {path} is none: it has more than {_MAX_FILE_BYTES} bytes")
    try:
        return decode(encoded)
    except RumormillError as error:
        raise LocalError(f"the {what} {path} cannot be used: {error}") from None


def _write_draft(path: Path, content: bytes) -> Path:
    """Write what is to become a file beside it, to the disk."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = files.create(draft)
    try:
        files.write_all(descriptor, content)
        os.fsync(descriptor)
    except BaseException:
        draft.unlink()
        raise
    finally:
        os.close(descriptor)
    return draft


def _create(path: Path, what: str, content: bytes) -> None:
    """Write a file whole or not at all; one that exists stays as it is, and is an error."""
    try:
        files.make_folder(path.parent)
        files.keep_name(path.parent)
        draft = _write_draft(path, content)
        try:
            os.link(draft, path)
        finally:
            draft.unlink()
        files.sync_directory(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise LocalError(f"cannot create the {what} {path}: {error.strerror}") from error


def record_is_of(peer: PeerId, record: bytes) -> bool:
    """Whether a signed record is valid and belongs to the peer."""
    try:
        return bytes(unseal_peer_record(record).peer_id) == peer
    except PeerError:
        return False
