"""A connected peer, as `Node.peers` shows it."""

from collections.abc import Mapping

import msgspec

from rumormill.core.ids import PeerId
from rumormill.libp2p.connection import Connection
from rumormill.node.channel import Channel
from rumormill.wire.keys import PeerId as ReadablePeerId


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


def view_peers(
    connections: Mapping[PeerId, Connection],
    channels: Mapping[PeerId, Channel],
    scores: Mapping[PeerId, float],
) -> list[PeerView]:
    """Every connected peer, with what its channel has, if it has one."""
    views = []
    for peer, connection in connections.items():
        channel = channels.get(peer)
        views.append(
            PeerView(
                str(ReadablePeerId(peer)),
                connection.remote_address,
                connection.outbound,
                channel.protocol if channel is not None else "",
                channel.queued_messages if channel is not None else 0,
                channel.queued_bytes if channel is not None else 0,
                scores.get(peer),
            )
        )
    return views
