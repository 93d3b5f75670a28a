"""Gossip by keys: what peers outside the mesh, who speak the extension, are told of (trunk).

It is for those whose whole mesh is bad. So everybody is told of everything, each once, and in four
bytes: who has a message knows it by them, and who has not asks.
"""

from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.gossipsub.trunk_missing import tell
from rumormill.protocols.pubsub.trunk_part import NAMES_MAX, TrunkPart


class Outsiders:
    """What is to be told in this heartbeat, and who was told when."""

    __slots__ = ("_beat", "_told", "_untold")

    def __init__(self) -> None:
        self._beat = 0
        self._untold: dict[PeerId, list[bytes]] = {}
        self._told: dict[Topic, dict[PeerId, int]] = {}
        """The heartbeat at which a peer was last told of a topic."""

    def heartbeat(self) -> None:
        """A heartbeat begins."""
        self._beat += 1

    def tell(self, peer: PeerId, keys: list[bytes]) -> None:
        """Tell a peer of messages, with what else it is told in this heartbeat."""
        if keys:
            self._untold.setdefault(peer, []).extend(keys)

    def windows_untold(self, peer: PeerId, topic: Topic) -> int:
        """In how many of the last heartbeats a peer was not told of a topic; now it is."""
        told = self._told.setdefault(topic, {})
        last = told.get(peer, 0)
        told[peer] = self._beat
        return self._beat - last

    def send(self, effects: Effects) -> None:
        """Send what there is to tell."""
        untold, self._untold = self._untold, {}
        for peer, keys in untold.items():
            for at in range(0, len(keys), NAMES_MAX):
                tell(peer, TrunkPart(gossip=tuple(keys[at : at + NAMES_MAX])), effects)

    def forget_peer(self, peer: PeerId) -> None:
        """A peer is gone."""
        self._untold.pop(peer, None)
        for told in self._told.values():
            told.pop(peer, None)

    def leave(self, topic: Topic) -> None:
        """We have left a topic."""
        self._told.pop(topic, None)
