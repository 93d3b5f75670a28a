"""Publisher policies: who may publish in a topic, said and signed by the topic's owner.

A policy is a libp2p envelope, signed by the key of its owner's node. It says nothing of who owns a
topic: that is what whoever runs a node decides by giving it the file. Rules kept here: a later
version replaces an earlier one of the same owner, and nobody else's replaces it.
"""

from typing import Final

import msgspec

from rumormill.core.errors import LocalError
from rumormill.core.ids import PeerId, Topic
from rumormill.libp2p.envelope import MAX_ENVELOPE_BYTES, seal, unseal
from rumormill.wire import keys
from rumormill.wire.fields import Number, Octets, Text
from rumormill.wire.schema import Schema

NOT_A_PUBLISHER: Final = "not-a-publisher"

MAX_PUBLISHERS: Final = 256
"""Our choice: fits an envelope. A topic in which more may publish is open to everybody."""

_DOMAIN: Final = "rumormill-topic-policy"
_TYPE: Final = b"/rumormill/topic-policy/1"


class _Said(msgspec.Struct, frozen=True):
    """What is signed."""

    topic: Topic
    publishers: tuple[PeerId, ...]
    version: int
    created: int


class Policy(_Said, frozen=True):
    """Who may publish in a topic; `created` is the owner's clock in seconds."""

    owner: PeerId

    def replaces(self, other: "Policy") -> bool:
        """Whether it stands instead of another one of the topic; `LocalError` if it may not."""
        if self.owner != other.owner:
            owners = f"{keys.PeerId(other.owner)} and {keys.PeerId(self.owner)}"
            raise LocalError(f"topic {self.topic!r} has policies of two owners, {owners}")
        if self.version == other.version and self != other:
            raise LocalError(f"topic {self.topic!r} has two policies of version {self.version}")
        return self.version > other.version


_SAID: Final = Schema(
    _Said,
    {
        "topic": Text(1, 1024, missing="policy-without-topic"),
        "publishers": Octets(
            2,
            keys.MAX_PEER_ID_BYTES,
            max_count=MAX_PUBLISHERS,
            read=lambda data: bytes(keys.PeerId.from_bytes(data)),
        ),
        "version": Number(3, always=True),
        "created": Number(4, always=True),
    },
    max_bytes=MAX_ENVELOPE_BYTES,
)


def sign_policy(
    key: keys.PrivateKey, topic: Topic, publishers: tuple[PeerId, ...], version: int, created: int
) -> bytes:
    """A policy as a signed document."""
    if not 0 < len(publishers) <= MAX_PUBLISHERS:
        raise LocalError(f"a policy names 1 to {MAX_PUBLISHERS} publishers, not {len(publishers)}")
    said = _Said(topic, publishers, version, created)
    return seal(key, _DOMAIN, _TYPE, _SAID.encode(said))


def read_policy(data: bytes) -> Policy:
    """Read a document; `PeerError` unless its signature holds."""
    envelope = unseal(data, _DOMAIN, _TYPE)
    said = _SAID.decode(envelope.payload)
    owner = bytes(envelope.signer.peer_id())
    return Policy(said.topic, said.publishers, said.version, said.created, owner)
