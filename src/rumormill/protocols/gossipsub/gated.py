"""GossipSub with the gater in front: for peers whose validation can be overloaded.

The gater is told of every message and asked about every RPC that brings some. It costs a little for
each duplicate, which is why it is a machine of its own and not a switch in the router's hot path.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rumormill.core import trace
from rumormill.core.effects import Effects
from rumormill.core.identity import Identity
from rumormill.core.ids import MessageId, PeerId
from rumormill.core.inputs import Input, PeerConnected, PeerDisconnected, Received
from rumormill.core.randomness import Randomness
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.gater import Gater, GaterParams
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.messages import Message, Rpc


class _EveryId(Mapping[MessageId, None]):
    """All message ids there could be: every duplicate matters to the gater."""

    def __contains__(self, message_id: object) -> bool:
        return True

    def __getitem__(self, message_id: MessageId) -> None:
        return None

    def __iter__(self) -> Iterator[MessageId]:
        return iter(())

    def __len__(self) -> int:
        return 0


class GatedGossipSub(GossipSub):
    """A GossipSub peer that turns messages away while it cannot validate all of them."""

    def __init__(
        self, identity: Identity, randomness: Randomness, config: GossipSubConfig, **options: Any
    ) -> None:
        super().__init__(identity, randomness, config, **options)
        self._gater = Gater(config.gater or GaterParams(), randomness)
        self._judged = _EveryId()

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input, without the messages of a peer that has to wait its turn."""
        if type(event) is Received:
            rpc: Rpc = event.message  # type: ignore[assignment]
            if rpc.publish and not self._gater.accepts(event.peer, now):
                refused = trace.Refuse(event.peer, reasons.THROTTLED, count=len(rpc.publish))
                effects.append(refused)
                self.gossip.promises.excuse(event.peer)
                event = Received(event.peer, Rpc(rpc.subscriptions, (), rpc.control))
        super().handle(event, now, effects)

    def _on_peer_connected(self, event: PeerConnected, now: float, effects: Effects) -> None:
        super()._on_peer_connected(event, now, effects)
        if event.peer in self.peers:
            self._gater.add_peer(event.peer, event.address, now)

    def _on_peer_disconnected(self, event: PeerDisconnected, now: float, effects: Effects) -> None:
        super()._on_peer_disconnected(event, now, effects)
        self._gater.remove_peer(event.peer, now)

    def _before_validation(
        self, peer: PeerId, message: Message, now: float, effects: Effects
    ) -> None:
        super()._before_validation(peer, message, now, effects)
        self._gater.validate_message()

    def _on_accepted(self, peer: PeerId, message: Message, now: float) -> None:
        super()._on_accepted(peer, message, now)
        self._gater.deliver_message(peer, message.topic)

    def _on_rejected(
        self, peer: PeerId, message: Message, reason: str, now: float, effects: Effects
    ) -> None:
        super()._on_rejected(peer, message, reason, now, effects)
        self._gater.reject_message(peer, reason, now)

    def _on_duplicate(self, peer: PeerId, message: Message, now: float) -> None:
        super()._on_duplicate(peer, message, now)
        self._gater.duplicate_message(peer)

    def _on_heartbeat(self, now: float, effects: Effects) -> None:
        self._gater.refresh(now)
        super()._on_heartbeat(now, effects)
