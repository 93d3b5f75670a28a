"""Peers that lie, for tests."""

from collections.abc import Sequence

from rumormill.core.effects import Answer, Effects
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Asked, Input
from rumormill.overlay.kademlia.messages import KadMessage, KadPeer, KadType, Record
from rumormill.overlay.kademlia.table import distance


class Eclipser:
    """Names accomplices only, says that it stores everything, and has nothing."""

    def __init__(self, own: PeerId, gang: Sequence[PeerId]) -> None:
        self.own = own
        self.gang = [peer for peer in gang if peer != own]

    def record(self, message: KadMessage) -> Record | None:
        """What it answers where a value is asked for."""
        return None

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        if not isinstance(event, Asked):
            return
        message = event.message
        assert isinstance(message, KadMessage)
        if message.type is KadType.PUT_VALUE:
            effects.append(Answer(event.number, message))
        elif message.type is not KadType.ADD_PROVIDER:
            near = sorted(self.gang, key=lambda peer: distance(peer, message.key))[:20]
            record = self.record(message) if message.type is KadType.GET_VALUE else None
            closer = tuple(map(KadPeer, near))
            answer = KadMessage(message.type, message.key, record, closer)
            effects.append(Answer(event.number, answer))


class Forger(Eclipser):
    """Gives a false value for every key, besides."""

    def record(self, message: KadMessage) -> Record | None:
        """Something that its key does not name."""
        return Record(message.key, b"forged", "2024-01-01T00:00:00Z")
