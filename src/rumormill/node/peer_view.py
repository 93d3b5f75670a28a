"""Who is connected: the peers of a node as its application is shown them."""

from collections.abc import Mapping

from rumormill.core.api import PeerView
from rumormill.core.ids import PeerId
from rumormill.libp2p.connection import Connection
from rumormill.node.driver import Driver
from rumormill.wire.keys import PeerId as ReadablePeerId


def view_peers(connections: Mapping[PeerId, Connection], driver: Driver) -> list[PeerView]:
    """Every connected peer, with what its channel and the machine have of it, if anything."""
    channels, scores = driver.channels, driver.machine.view().scores
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
