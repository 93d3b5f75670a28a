"""PlumTree on HyParView as a contestant of `bench/trunk.py`: one tree for everybody who publishes.

Neighbours are those of HyParView's active view, and each is eager or lazy. A message goes to the
eager ones in full, and its name to the lazy ones. A copy that comes second makes its link lazy on
both sides (PRUNE); a name whose message does not come makes one eager, and fetches the message by
it (GRAFT). What is left of eager links is one tree, for all publishers, in the shape that the first
messages gave it (J. Leitão, J. Pereira, L. Rodrigues, "Epidemic Broadcast Trees", SRDS 2007).

Times are those of iroh-gossip: a name is waited for 80 ms, then each next neighbour 40 ms, and
names are gathered for 5 ms. Names are kinder than there: trunk's, of eight bytes. The tree is not
improved by counting hops: there the bar is seven, which few paths of a hundred peers differ by.
Subscriptions, messages, signatures and the log are those of FloodSub. One overlay serves all
topics, so it is for loads of one topic.
"""

from typing import Any, Final

import msgspec

from rumormill.core import inputs
from rumormill.core.effects import CancelTimer, Effects, Send, SendAll, SetTimer
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Received
from rumormill.core.randomness import Randomness
from rumormill.core.trace import IWANT, RpcMeta
from rumormill.overlay.hyparview.config import HyParViewConfig
from rumormill.overlay.hyparview.hyparview import HyParView
from rumormill.overlay.hyparview.messages import MEMBERSHIP, Membership
from rumormill.protocols.floodsub.spec import SPEC as FLOODSUB
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.messages import Control, Message, Prune, Rpc
from rumormill.protocols.pubsub.router import PubSubRouter
from rumormill.protocols.pubsub.trunk_part import TrunkPart, key_of, mark_of, tag_of
from rumormill.protocols.registry import NO_HOOKS, Hooks

GRAFT_AFTER: Final = 0.08
GRAFT_NEXT: Final = 0.04
GATHER: Final = 0.005
KEPT: Final = 30.0
"""Seconds: iroh-gossip's defaults; the last is how long a message can be fetched."""
FRAME: Final = 2
"""Bytes that frame a membership message in an RPC."""

TELL: Final = "tell"
FORGET: Final = "forget"


class Letter(msgspec.Struct):
    """A membership message on its way."""

    body: Membership
    cached_meta: RpcMeta | None = None
    urgent: bool = True

    @property
    def meta(self) -> RpcMeta:
        if self.cached_meta is None:
            size = FRAME + len(MEMBERSHIP.encode(self.body))
            self.cached_meta = RpcMeta((), (), None, size, 0, operations=(self.body.operation,))
        return self.cached_meta


class Late(msgspec.Struct, frozen=True):
    """The timer of a message that is announced and not here."""

    key: bytes


class PlumTree(PubSubRouter):
    """A PlumTree peer."""

    def __init__(
        self,
        identity: Identity,
        randomness: Randomness,
        config: PubSubConfig,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        super().__init__(identity, randomness, config, hooks)
        self.overlay = HyParView(
            identity.peer,
            randomness,
            HyParViewConfig(),
            wrap=Letter,
            addresses=hooks.addresses,
            on_up=self._on_up,
            on_down=self._on_down,
        )
        self._lazy: dict[Topic, dict[PeerId, None]] = {}
        self._missing: dict[bytes, list[PeerId]] = {}
        self._messages: dict[bytes, Message] = {}
        self._older: dict[bytes, Message] = {}
        self._untold: dict[PeerId, list[bytes]] = {}
        self._judged: Any = self._seen_ids

    def handle(self, event: inputs.Input, now: float, effects: Effects) -> None:
        if type(event) is Received and isinstance(event.message, Letter):
            self.overlay.on_message(event.peer, event.message.body, now, effects)
        else:
            super().handle(event, now, effects)

    # Neighbours.

    def _on_start(self, event: inputs.Start, now: float, effects: Effects) -> None:
        super()._on_start(event, now, effects)
        self.overlay.start(now, effects)
        effects.append(SetTimer(FORGET, now + KEPT))

    def _on_peer_connected(self, event: inputs.PeerConnected, now: float, effects: Effects) -> None:
        known = event.peer in self.peers
        super()._on_peer_connected(event, now, effects)
        if not known and event.peer in self.peers:
            self.overlay.on_connected(event.peer, event.outbound, now, effects)

    def _on_peer_disconnected(
        self, event: inputs.PeerDisconnected, now: float, effects: Effects
    ) -> None:
        if event.peer in self.peers:
            super()._on_peer_disconnected(event, now, effects)
            self.overlay.on_disconnected(event.peer, now, effects)

    def _on_connect_failed(self, event: inputs.ConnectFailed, now: float, effects: Effects) -> None:
        self.overlay.on_connect_failed(event.peer, now, effects)

    def _on_send_dropped(self, event: inputs.SendDropped, now: float, effects: Effects) -> None:
        if isinstance(event.message, Rpc):
            super()._on_send_dropped(event, now, effects)

    def _on_up(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A new neighbour is eager."""
        self._on_down(peer, now, effects)

    def _on_down(self, peer: PeerId, now: float, effects: Effects) -> None:
        for lazy in self._lazy.values():
            lazy.pop(peer, None)
        self._untold.pop(peer, None)

    # The way of a message.

    def _route(self, message: Message, received_from: PeerId, now: float, effects: Effects) -> int:
        name = tag_of(message.topic, message.author) + mark_of(message.seqno)
        key = key_of(name)
        self._messages[key] = message
        if self._missing.pop(key, None) is not None:
            effects.append(CancelTimer(Late(key)))
        lazy = self._lazy.setdefault(message.topic, {})
        lazy.pop(received_from, None)
        subscribers = self.topics.get(message.topic, {})
        others = [
            peer for peer in self.overlay.active if peer in subscribers and peer != received_from
        ]
        eager = tuple([peer for peer in others if peer not in lazy])
        if eager:
            effects.append(SendAll(eager, message.alone()))
        if not self._untold:
            effects.append(SetTimer(TELL, now + GATHER))
        for peer in others:
            if peer in lazy:
                self._untold.setdefault(peer, []).append(name)
        return len(others)

    def _on_duplicate(self, peer: PeerId, message: Message, now: float, effects: Effects) -> None:
        lazy = self._lazy.setdefault(message.topic, {})
        if peer in self.overlay.active and peer not in lazy:
            lazy[peer] = None
            effects.append(Send(peer, Rpc(control=Control(prune=(Prune(message.topic),)))))

    def _on_control(self, peer: PeerId, control: Control, now: float, effects: Effects) -> None:
        for prune in control.prune:
            self._lazy.setdefault(prune.topic, {})[peer] = None
        for topic in control.graft:
            self._lazy.setdefault(topic, {}).pop(peer, None)
        if control.trunk is None:
            return
        for name in control.trunk.have:
            self._on_have(peer, key_of(name), now, effects)
        wanted = [self._messages.get(key) or self._older.get(key) for key in control.trunk.want]
        found = tuple([message for message in wanted if message is not None])
        if found:
            effects.append(Send(peer, Rpc(publish=found, cause=IWANT)))

    def _on_have(self, peer: PeerId, key: bytes, now: float, effects: Effects) -> None:
        if key in self._messages or key in self._older:
            return
        announcers = self._missing.get(key)
        if announcers is None:
            self._missing[key] = [peer]
            effects.append(SetTimer(Late(key), now + GRAFT_AFTER))
        else:
            announcers.append(peer)

    # Time passes.

    def _on_timer(self, event: inputs.TimerFired, now: float, effects: Effects) -> None:
        timer = event.timer
        if isinstance(timer, Late):
            self._graft(timer, now, effects)
        elif timer == TELL:
            untold, self._untold = self._untold, {}
            for peer, names in untold.items():
                part = TrunkPart(have=tuple(names))
                effects.append(Send(peer, Rpc(control=Control(trunk=part))))
        elif timer == FORGET:
            self._messages, self._older = {}, self._messages
            effects.append(SetTimer(FORGET, now + KEPT))
        elif not self.overlay.on_timer(timer, now, effects):
            super()._on_timer(event, now, effects)

    def _graft(self, late: Late, now: float, effects: Effects) -> None:
        """Ask the next announcer for a message, and for all that follow."""
        announcers = self._missing.get(late.key)
        if not announcers:
            self._missing.pop(late.key, None)
            return
        peer = announcers.pop(0)
        effects.append(SetTimer(late, now + GRAFT_NEXT))
        if peer in self.peers:
            topics = tuple([topic for topic, lazy in self._lazy.items() if peer in lazy])
            for topic in topics:
                del self._lazy[topic][peer]
            asked = Control(graft=topics, trunk=TrunkPart(want=(late.key,)))
            effects.append(Send(peer, Rpc(control=asked)))


SPEC = msgspec.structs.replace(
    FLOODSUB, name="plumtree", protocol_ids=("/bench/plumtree/1.0.0",), build=PlumTree
)
"""Only what a simulation asks of a protocol: membership messages have no place in its RPCs, so its
codec is not to be checked."""
