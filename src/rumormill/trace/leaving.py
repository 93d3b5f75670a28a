"""Leaving: what still reaches peers that have unsubscribed, computed from the trace alone.

A peer has left a topic from its LEAVE to its next JOIN. A delivery in between is an error; a copy
is what unsubscribing costs until everybody knows, or what a peer carries for others.
"""

from collections.abc import Iterable

from rumormill.core.ids import PeerId, Topic
from rumormill.core.trace import MessageMeta


class Leaving:
    """Who has left which topics, and what came to them afterwards."""

    def __init__(self) -> None:
        self.gone: dict[PeerId, dict[Topic, None]] = {}
        """The topics that each peer has left, as long as there are any."""
        self._left = self._deliveries = self._copies = 0

    def leave(self, peer: PeerId, topic: Topic) -> None:
        """A peer leaves a topic."""
        self._left += 1
        self.gone.setdefault(peer, {})[topic] = None

    def join(self, peer: PeerId, topic: Topic) -> None:
        """A peer joins a topic, perhaps again."""
        left = self.gone.get(peer)
        if left is not None:
            left.pop(topic, None)
            if not left:
                del self.gone[peer]

    def deliver(self, peer: PeerId, topic: Topic) -> None:
        """Something is delivered to a peer."""
        self._deliveries += topic in self.gone.get(peer, ())

    def receive(self, peer: PeerId, messages: Iterable[MessageMeta]) -> None:
        """Copies reach a peer that has left something."""
        left = self.gone[peer]
        self._copies += sum(message.topic in left for message in messages)

    def figures(self) -> dict[str, int]:
        """How often peers left, and what was delivered and sent to them after that."""
        return {"left": self._left, "deliveries": self._deliveries, "copies": self._copies}
