"""Signatures for simulated peers: a keyed hash that costs a microsecond.

A peer signs with a hash that is keyed by its own id. So altered messages fail, and messages in
another's name fail unless their sender makes that hash himself, which no simulated attacker does.
It is no cryptography, stays inside the simulator, and spends no time on elliptic curves.
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

    def passes_elsewhere(self, *_: bytes) -> bool:
        """Simulated peers all check alike."""
        return False
