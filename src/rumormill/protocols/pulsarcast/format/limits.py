"""How much one Pulsarcast RPC may hold.

What the *sender* chose (counts, answers, addresses) fails the whole RPC, whose sender is to blame.
What the *author* of an event chose travels through honest peers, so it spoils that event alone.
"""

import msgspec

from rumormill.core.config import Config, require


class RpcLimits(Config, frozen=True, kw_only=True):
    """How much one RPC may hold; counts are per RPC or per part of it, as they say."""

    rpc_bytes: int = 2 << 20
    """Our choice: an event of 1 MiB, and an answer of several smaller ones."""
    messages: int = 64
    """Messages and additions. Our choice: the original sends one, we batch a few."""
    payload_bytes: int = 1 << 20
    """Our choice: GossipSub's customary limit of 1 MiB for the whole message."""
    peer_id_bytes: int = 64
    """Our choice: the longest libp2p peer id has 44."""
    version_bytes: int = 128
    """Our choice: the only version there is has 17."""
    name_bytes: int = 1024
    """Of a topic and of each of its sub-topics, as for the topics of other protocols."""
    sub_topics: int = 2048
    """Our choice: what a topic descriptor of 256 KiB can hold."""
    tree_peers: int = 256
    """Neighbours in an UPDATE. Our choice: nobody sends any."""
    peers: int = 32
    """Peers that a LEAVE or an answer to a JOIN recommends. Our choice: more than Kademlia's k."""
    addresses: int = 16
    """Addresses of each. Our choice: as many as identify usually tells."""
    address_bytes: int = 256
    """Our choice: a relayed address of a long name."""
    reason_bytes: int = 256
    """Our choice: a sentence."""
    cids: int = 4096
    """CIDs in one list. Our choice: 160 kB, and 4096 events are behind them."""
    events: int = 1024
    """Events in one answer. Our choice: what fits 1 MiB at a kilobyte each."""
    key_bytes: int = 1100
    """An RSA key of 8192 bits, the largest that is accepted."""
    signature_bytes: int = 1024
    """The signature of such a key."""
    other_fields: int = 16
    """Fields that nobody knows, in each part. Our choice: room for extensions."""

    def validate(self) -> None:
        """Refuse limits under which nothing could be received."""
        for field in msgspec.structs.fields(self):
            require(getattr(self, field.name) >= 0, field.name, "must not be negative")
        require(self.rpc_bytes > 0, "rpc_bytes", "must be positive")
        require(self.messages > 0, "messages", "must be positive")
        require(self.payload_bytes < self.rpc_bytes, "payload_bytes", "must be below rpc_bytes")


DEFAULT_LIMITS = RpcLimits()
