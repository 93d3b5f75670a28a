"""Who we are and how authorship is checked, as a machine sees it.

Cryptography is computation, not input or output, so machines call it directly; but which scheme
is in use is the runtime's choice: Ed25519 keys on a network, a keyed hash in the simulator.
"""

from typing import Protocol

from rumormill.core.ids import PeerId


class Verifier(Protocol):
    """Whoever can check signatures; an `Identity` can."""

    def verify(self, author: PeerId, public_key: bytes, payload: bytes, signature: bytes) -> bool:
        """Whether `author` signed `payload`; false for anything malformed."""


class Identity(Verifier, Protocol):
    """This peer's key, and the means to check other peers' signatures."""

    def passes_elsewhere(
        self, author: PeerId, public_key: bytes, payload: bytes, signature: bytes
    ) -> bool:
        """Whether honest peers may accept and pass on what `verify` refuses."""

    @property
    def peer(self) -> PeerId:
        """The id that belongs to the key."""

    @property
    def public_key(self) -> bytes:
        """What a verifier needs besides the id; empty when the id contains the key."""

    def sign(self, payload: bytes) -> bytes:
        """Return this peer's signature over `payload`."""
