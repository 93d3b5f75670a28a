"""How much one pub/sub RPC may hold.

Limits come in two kinds. Counts and sizes that the *sender* chose (subscriptions, control, the
number of messages) are refused with the whole RPC. What the *author* of a message chose travels
unchanged through honest peers, so refusing it there would let one author cut us off from
everybody who forwards. Such a message is spoilt alone: a key or signature that is too long is cut
just behind its limit, where its check fails, and a message of too many fields comes out with an
empty topic, which nobody can subscribe to. Its `encoded` is what arrived all the same.
"""

import msgspec

from rumormill.core.config import Config, require


class PubsubLimits(Config, frozen=True, kw_only=True):
    """How much one RPC may hold. All counts are per RPC unless they say otherwise."""

    rpc_bytes: int = 1 << 20
    """go-libp2p-pubsub, DefaultMaxMessageSize: 1 MiB."""
    subscriptions: int = 5000
    """js-libp2p-gossipsub, decodeRpcLimits, its answer to CVE-2026-46679."""
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
        for field in msgspec.structs.fields(self):
            require(getattr(self, field.name) >= 0, field.name, "must not be negative")
        require(self.rpc_bytes > 0, "rpc_bytes", "must be positive")
        require(self.topic_bytes > 0, "topic_bytes", "must be positive")
        require(self.control_bytes <= self.rpc_bytes, "control_bytes", "must not exceed rpc_bytes")


DEFAULT_LIMITS = PubsubLimits()
