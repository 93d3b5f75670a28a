"""What the conformance tests share: messages that must reach everybody, and peers that react."""

from collections.abc import Callable
from typing import Any

from protocols.pubsub_rig import Puppet, Rig
from rumormill.core.effects import Effects, Send
from rumormill.core.inputs import Input, Received
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.gossipsub.score_params import TopicScoreParams
from rumormill.protocols.pubsub.control_codec import MAX_ID_BYTES
from rumormill.protocols.pubsub.messages import Control, Rpc, SubOpts

Reaction = Callable[[Rpc], Rpc | None]

TOPIC_OFF = TopicScoreParams(
    topic_weight=0.0,
    time_in_mesh_weight=0.0,
    first_message_deliveries_weight=0.0,
    invalid_message_deliveries_weight=0.0,
)
"""Nothing counts: what a test is about is switched on with `msgspec.structs.replace`."""

MESH_ONLY: dict[str, Any] = {"flood_publish": False}
"""go's default: own messages go to the mesh, not to every subscriber."""


def publish_and_check(
    rig: Rig,
    publishers: list[int],
    subscribers: list[int],
    count: int = 100,
    topic: str = "news",
    *,
    pause: float = 0.05,
    settle: float = 2.0,
) -> None:
    """Publish from random peers; every subscriber must get every message exactly once.

    Each message has a moment to travel before the next, and gossip has some heartbeats at the end.
    """
    before = {peer: len(rig.events[peer]) for peer in subscribers}
    sent = [f"{number} in {topic} at {rig.network.engine.now}".encode() for number in range(count)]
    for data in sent:
        rig.publish(rig.randomness.choice(publishers), data, topic)
        rig.run(pause)
    rig.run(settle)
    for peer in subscribers:
        got = [event.data for event in rig.events[peer][before[peer] :] if event.topic == topic]
        assert sorted(got) == sorted(sent), f"peer {peer} got {len(got)} of {count}"


class Actor(Puppet):
    """A peer that answers RPCs as the test says."""

    def __init__(self, react: Reaction) -> None:
        super().__init__()
        self.react = react

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        super().handle(event, now, effects)
        if isinstance(event, Received):
            rpc: Any = event.message
            answer = self.react(rpc)
            if answer is not None:
                effects.append(Send(event.peer, answer))


def add_actor(rig: Rig, react: Reaction, protocols: tuple[str, ...] = PROTOCOLS) -> int:
    """Add a peer that answers RPCs as the test says."""
    return rig.add(protocols=protocols, build=lambda *_: Actor(react))[0]


def subscribes(rpc: Rpc, topic: str = "news") -> bool:
    """Whether an RPC announces a subscription to the topic."""
    return SubOpts(True, topic) in rpc.subscriptions


def subscribe_and(topic: str = "news", **control: Any) -> Rpc:
    """An RPC that subscribes to the topic and says something more."""
    return Rpc(subscriptions=(SubOpts(True, topic),), control=Control(**control))


def controls(rpcs: list[Rpc]) -> list[Control]:
    """The control parts of RPCs."""
    return [rpc.control for rpc in rpcs if rpc.control is not None]


def idontwants(rpcs: list[Rpc]) -> list[bytes]:
    """All ids of IDONTWANTs in RPCs."""
    return [message_id for control in controls(rpcs) for message_id in control.idontwant]


def ihaves(rpcs: list[Rpc]) -> list[bytes]:
    """All ids of IHAVEs in RPCs."""
    return [
        message_id
        for control in controls(rpcs)
        for ihave in control.ihave
        for message_id in ihave.message_ids
    ]


def datas(rpcs: list[Rpc]) -> list[bytes]:
    """The data of all messages in RPCs."""
    return [message.data for rpc in rpcs for message in rpc.publish]


def by_data(_topic: str, data: bytes, _author: bytes, _seqno: bytes) -> bytes:
    """Name a message by what it says, or by as much of it as an id may hold."""
    return data[:MAX_ID_BYTES]
