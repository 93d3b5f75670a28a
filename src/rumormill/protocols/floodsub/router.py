"""FloodSub 1.0 as a machine.

A message goes to every connected peer that subscribes to its topic, except to its author and to
the peer that it came from. Delivery is certain wherever a path of subscribers leads, and the cost
is one copy per link and direction: with n links per peer, about n - 1 copies per delivery.
"""

from rumormill.core.effects import Effects, SendAll
from rumormill.core.ids import PeerId
from rumormill.protocols.pubsub.messages import Message
from rumormill.protocols.pubsub.router import PubSubRouter

FLOODSUB = "/floodsub/1.0.0"


class FloodSub(PubSubRouter):
    """A FloodSub peer."""

    def _route(self, message: Message, received_from: PeerId, now: float, effects: Effects) -> int:
        author = message.author
        peers = tuple(
            peer
            for peer in self.topics.get(message.topic, ())
            if peer != received_from and peer != author
        )
        if peers:
            effects.append(SendAll(peers, message.alone()))
        return len(peers)
