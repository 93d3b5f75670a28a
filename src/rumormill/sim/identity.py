"""Signatures for simulated peers: a keyed hash that costs a microsecond.

Simulated peers share a secret that only this module knows, so a signature can be forged by nobody
who does not call it. That is all a simulation needs: forged and altered messages fail, true ones
pass, and no time goes into elliptic curves.
"""

import hashlib

from rumormill.core.ids import PeerId

_SIGNATURE_SIZE = 64
"""As long as an Ed25519 signature, so that message sizes are those of a real network."""


def _signature(author: PeerId, payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_SIGNATURE_SIZE, key=author[:64]).digest()


class SimulatedIdentity:
    """The identity of a simulated peer."""

    __slots__ = ("peer",)

    public_key = b""

    def __init__(self, peer: PeerId) -> None:
        self.peer = peer

    def sign(self, payload: bytes) -> bytes:
        """Return this peer's signature."""
        return _signature(self.peer, payload)

    def verify(self, author: PeerId, public_key: bytes, payload: bytes, signature: bytes) -> bool:
        """Whether `author` signed `payload`."""
        return 0 < len(author) <= 64 and _signature(author, payload) == signature
