"""Settings of the pub/sub layer, common to FloodSub and GossipSub, and how much an RPC may hold.

Limits of an RPC come in two kinds. Counts and sizes that the *sender* chose (subscriptions,
control, the number of messages) are refused with the whole RPC. What the *author* of a message
chose travels unchanged through honest peers, so refusing it there would let one author cut us off
from everybody who forwards. Such a message is spoilt alone: a key or signature that is too long is
cut just behind its limit, where its check fails, and a message of too many fields comes out with an
empty topic, which nobody can subscribe to. Its `encoded` is what arrived all the same.
"""

from enum import Enum
from typing import Final

import msgspec

from rumormill.core.config import AT_LEAST_ONE, NOT_NEGATIVE, Config, Rule, require, require_all
from rumormill.protocols.pubsub.message_ids import MessageNaming

ENDLESS: Final = 2**63
"""No time and no count is this large: back-offs travel as 64-bit numbers of seconds."""

FINITE: Final = Rule(lambda value: 0 < value < ENDLESS, "must be positive and finite")


class SignPolicy(Enum):
    """Whether messages carry an author, a sequence number and a signature (pubsub README)."""

    STRICT_SIGN = "strict-sign"
    """Every message is signed; unsigned or wrongly signed ones are rejected."""
    STRICT_NO_SIGN = "strict-no-sign"
    """No message may carry author, sequence number, signature or key."""


class PubSubConfig(Config, frozen=True, kw_only=True):
    """Settings of the pub/sub layer."""

    sign_policy: SignPolicy = SignPolicy.STRICT_SIGN
    """The specification's recommended policy and go's default."""

    message_id: MessageNaming = MessageNaming.LIBP2P
    """What messages are called: `libp2p`, `js`, `rust`, `ethereum` or `filecoin`. The first is the
    specification's and go's default."""

    message_ids: dict[str, MessageNaming] = msgspec.field(default_factory=dict)
    """The same for single topics, by name."""

    seen_ttl: float = 120.0
    """Seconds for which a message id is remembered. GossipSub 1.0, `seen_ttl`: 2 minutes."""

    seen_limit: int = 1_000_000
    """Ids remembered at most; the oldest go first. Our choice: at 8,000 messages per second the
    two minutes of `seen_ttl` fill it, which is what one core can verify."""

    max_rpc_size: int = 1 << 20
    """Bytes of an RPC at most, so of a message too; larger RPCs are split, a larger message
    cannot be published. go's `DefaultMaxMessageSize`: 1 MiB."""

    max_topic_length: int = 1024
    """Bytes of a topic name at most. Our choice: names stay readable and tables small."""

    max_subscriptions: int = 5000
    """Own subscriptions at most. Our choice: what one hello RPC may announce to a peer."""

    max_subscriptions_per_peer: int = 1024
    """Topics remembered per peer at most. nim's limit; rust's default of 100 would refuse
    honest peers of applications with a topic per document."""

    max_pending_validations: int = 8192
    """Messages that wait for a deferred verdict at most. go's global validation throttle."""

    def validate(self) -> None:
        """Refuse impossible values."""
        require_all(self, _RULES)
        rule = "must be at least 1024, or control messages do not fit"
        require(self.max_rpc_size >= 1024, "max_rpc_size", rule)


_RULES: Final = {
    FINITE: ("seen_ttl",),
    AT_LEAST_ONE: (
        "seen_limit",
        "max_topic_length",
        "max_subscriptions",
        "max_subscriptions_per_peer",
    ),
    NOT_NEGATIVE: ("max_pending_validations",),
}


MAX_NAMES: Final = 1 << 17
"""Characters of the topics remembered of one peer; our choice: 1,024 of them may have 128 each. Of
as many peers as a node has places for that is 64 MiB, and not eight times as much."""


class PubsubLimits(Config, frozen=True, kw_only=True):
    """How much one RPC may hold. All counts are per RPC unless they say otherwise."""

    rpc_bytes: int = 1 << 20
    """go-libp2p-pubsub, DefaultMaxMessageSize: 1 MiB."""
    subscriptions: int = 5000
    """js-libp2p-gossipsub, decodePubsubLimits, its answer to CVE-2026-46679."""
    messages: int = 5000
    """rust-libp2p: at most 5000 published messages are decoded."""
    control_bytes: int = 1 << 20
    """Our choice: go sends IHAVE of up to 5000 ids of 46 to 47 bytes (an author's peer id and eight
    bytes) for each topic, which take 240 to 245 kB. rust's 16 KiB would refuse honest go peers."""
    id_lists: int = 1000
    """IHAVE, IWANT and IDONTWANT together. Our choice, as for GRAFT: senders make one IHAVE per
    topic that two peers share, and one of each other list."""
    ihave_ids: int = 20_000
    """Our choice: four topics of go's GossipSubMaxIHaveLength (5000) in one RPC, which is what
    fits 1 MiB. How many of them are heeded is the router's business."""
    iwant_ids: int = 5000
    """As many as IHAVE can offer."""
    idontwant_ids: int = 5000
    """As many as one RPC can publish."""
    grafts: int = 1000
    """Our choice: two peers share no more topics than that in a mesh."""
    prunes: int = 1000
    """As for GRAFT."""
    peers_per_prune: int = 64
    """Our choice: four times what go offers (GossipSubPrunePeers, 16)."""
    record_bytes: int = 8 << 10
    """go-libp2p reads at most 8 KiB of an identify message that carries such a record."""
    topic_bytes: int = 1024
    """Our choice: a name, not a payload. A peer sends only topics that it or we subscribe to."""
    key_bytes: int = 2048
    """go-libp2p takes RSA keys of up to 8192 bits (its answer to CVE-2023-39533), which is 1.1 kB
    encoded. A longer key or signature
    does not fail the RPC: the field is cut one byte behind the limit, and the message alone fails
    its signature check."""
    signature_bytes: int = 1024
    """The signature of such a key."""
    other_fields: int = 100
    """Control parts and unknown fields. Our choice: there is one control part, and one field for
    each extension."""

    def validate(self) -> None:
        """Refuse limits under which nothing could be received."""
        require_all(self, {NOT_NEGATIVE: self.__struct_fields__})
        require(self.rpc_bytes > 0, "rpc_bytes", "must be positive")
        require(self.topic_bytes > 0, "topic_bytes", "must be positive")
        require(self.control_bytes <= self.rpc_bytes, "control_bytes", "must not exceed rpc_bytes")


DEFAULT_LIMITS = PubsubLimits()

SENT_LIMITS: Final = PubsubLimits(
    rpc_bytes=56 << 10, subscriptions=100, messages=500, control_bytes=(16 << 10) - 16
)
"""How much we put into one RPC, unless a single message is larger. These are rust-libp2p's
defaults, the lowest: subscriptions count as control there, and 8 of its 64 KiB may hold the
beginning of the next RPC. Who is sent more than it takes ends the stream."""
