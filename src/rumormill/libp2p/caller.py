"""A connection that is made for one thing, and then let go: with a key of its own, so that whoever
is called does not take it for the connection that it has with us.
"""

import secrets
from collections.abc import Collection

from rumormill.core.ids import PeerId
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.stream import Stream
from rumormill.libp2p.swarm import Swarm
from rumormill.wire import keys


class Caller:
    """Holds such a connection."""

    def __init__(self, swarm: Swarm) -> None:
        self.key = keys.PrivateKey(secrets.token_bytes(32))
        self.config, self.network, self.turns = swarm.config, swarm.network, swarm.turns
        self.services: Collection[str] = ()
        self.count = swarm.count

    def connection(self, peer: PeerId) -> Connection:
        """Make it, to a peer."""
        return Connection(self, outbound=True, expected_peer=keys.PeerId(peer))

    def blame(self, peer: PeerId, reason: str, points: float = 1.0) -> None:
        """It is over soon."""

    def admit(self, connection: Connection) -> bool:
        """We have made it."""
        return True

    def serve(self, connection: Connection, stream: Stream) -> None:
        """Nothing is served."""

    def on_ready(self, connection: Connection) -> None:
        """Whoever dialled knows."""

    def on_closed(self, connection: Connection) -> None:
        """Likewise."""

    def on_lost(self, connection: Connection) -> None:
        """Likewise."""
