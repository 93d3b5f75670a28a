"""How a peer's channel moves to another connection.

Where a connection replaces one that is most likely dead, its channel takes over at once. Where it
replaces one through a relay, that one works: it is sent to until the new channel is open, so that
there is no moment in which the peer cannot be.
"""

from rumormill.core.ids import PeerId
from rumormill.node.channel import Channel


class Moving:
    """The channels in use, and those that take their places when they are open."""

    def __init__(self, channels: dict[PeerId, Channel]) -> None:
        self._channels = channels
        self._coming: dict[PeerId, Channel] = {}

    def enter(self, channel: Channel) -> None:
        """Begin with the channel of a new connection."""
        peer = channel.peer
        old = self._channels.get(peer)
        works = old is not None and old.open and old.connection.relay
        self._coming[peer] = channel
        if not works or channel.connection.relay:
            self.settle(peer)
        channel.start()

    def settle(self, peer: PeerId) -> None:
        """Have the channel that comes take the other's place, with all that waits there."""
        channel = self._coming.pop(peer, None)
        if channel is not None:
            old = self._channels.get(peer)
            self._channels[peer] = channel
            if old is not None:
                channel.succeed(old)

    def leave(self, peer: PeerId) -> None:
        """The peer is gone."""
        for channels in (self._channels, self._coming):
            channel = channels.pop(peer, None)
            if channel is not None:
                channel.stop()
