"""A connected peer, as `Node.peers` shows it."""

import msgspec


class PeerView(msgspec.Struct, frozen=True):
    """A connected peer, as `Node.peers` shows it."""

    id: str
    address: str
    outbound: bool
    protocol: str
    queued_messages: int
    queued_bytes: int
    score: float | None = None
    """What the protocol thinks of it, where it keeps scores (GossipSub)."""
