"""Peers that name messages otherwise: who they are, and what they are told."""

import random

import pytest

from rumormill.core.effects import Effects, Send, SendAll
from rumormill.core.inputs import PeerConnected, Received, Start, Subscribe, TimerFired
from rumormill.core.trace import Penalise, Refuse
from rumormill.node.identity import NodeIdentity
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.dialects import Dialects
from rumormill.protocols.gossipsub.message_cache import MessageCache
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_3
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.codec import sign_message
from rumormill.protocols.pubsub.message_ids import NAMINGS, MessageNaming
from rumormill.protocols.pubsub.messages import Control, IHave, Message, Rpc, SubOpts
from rumormill.protocols.registry import NO_HOOKS, Hooks
from rumormill.wire.keys import PrivateKey

TOPIC = "news"
AUTHOR = PrivateKey(b"a" * 32)
RUST, JS = NAMINGS[MessageNaming.RUST], NAMINGS[MessageNaming.JS]
NO_MESH = GossipSubConfig(D=0, D_lo=0, D_hi=0, D_out=0, D_score=0)


def message(number: int, size: int = 10, topic: str = TOPIC) -> Message:
    made = Message(topic, bytes(size), bytes(AUTHOR.peer_id), number.to_bytes(8))
    sign_message(made, AUTHOR.sign, b"")
    made.id = made.author + made.seqno
    return made


@pytest.mark.parametrize("naming", [MessageNaming.RUST, MessageNaming.JS])
def test_a_peer_is_known_by_its_first_id(naming: MessageNaming) -> None:
    """One with our names, or with a function of its own, is spoken to in ours."""
    dialects = Dialects(GossipSubConfig(), Hooks(), MessageCache(5, 3))
    name = NAMINGS[naming]
    dialects.hear(b"other", (name(message(1)),))
    dialects.hear(b"ours", (message(1).id,))
    dialects.hear(b"own function", (b"digest",))
    assert dialects.names.keys() == {b"other"}
    assert dialects.names[b"other"](message(2)) == name(message(2))
    dialects.forget_peer(b"other")
    assert not dialects.names


def test_who_may_use_other_names_is_waited_for_a_while() -> None:
    """By what it says it is; not for ever, and not once it has sent an id."""
    agents = {b"js": "js-libp2p/3", b"rust": "rust-libp2p/0.57", b"go": "go-libp2p"}
    dialects = Dialects(GossipSubConfig(), Hooks(agents=agents), MessageCache(5, 3))
    waited = []
    for _ in range(4):
        waited.append({peer for peer in (*agents, b"unknown") if dialects.waits_for(peer)})
        dialects.hear(b"rust", (RUST(message(1)),))
        dialects.heartbeats += 1
    assert waited == [{b"js", b"rust"}, {b"js"}, {b"js"}, set()]


def test_what_was_agreed_on_is_not_translated() -> None:
    """A preset for a topic, or a function of the application, is everybody's."""
    agreed = GossipSubConfig(message_ids={"blocks": MessageNaming.FILECOIN})
    dialects = Dialects(agreed, Hooks(), MessageCache(5, 3))
    dialects.hear(b"peer", (RUST(message(1)),))
    blocks = message(1, topic="blocks")
    assert dialects.names[b"peer"](blocks) == blocks.id
    hooks = Hooks(message_id=lambda *_: b"", agents={b"other": "js-libp2p/1"})
    function = Dialects(GossipSubConfig(), hooks, MessageCache(5, 3))
    function.hear(b"peer", (RUST(message(1)),))
    assert not function.names
    assert not function.waits_for(b"other")


class Ours:
    """A node of ours, and what it does about what peers send."""

    def __init__(self, config: GossipSubConfig = NO_MESH, hooks: Hooks = NO_HOOKS) -> None:
        self.now = 1.0
        key = PrivateKey(b"o" * 32)
        self.router = GossipSub(NodeIdentity(key), random.Random(1), config, hooks)
        self.give(Start(0.0))
        self.give(Subscribe(TOPIC))

    def give(self, event: object) -> Effects:
        effects: Effects = []
        self.router.handle(event, self.now, effects)  # type: ignore[arg-type]
        return effects

    def meet(self, peer: bytes) -> None:
        self.give(PeerConnected(peer, GOSSIPSUB_1_3, False, "10.0.0.1"))
        self.give(Received(peer, Rpc(subscriptions=(SubOpts(True, TOPIC),))))

    def receive(self, peer: bytes, *messages: Message) -> Effects:
        return self.give(Received(peer, Rpc(publish=messages)))

    def control(self, peer: bytes, **control: object) -> Effects:
        return self.give(Received(peer, Rpc(control=Control(**control))))  # type: ignore[arg-type]

    def beat(self) -> Effects:
        self.now += 1
        return self.give(TimerFired("heartbeat"))


def told(effects: Effects, peer: bytes) -> list[Rpc]:
    """What a peer is sent."""
    rpcs = [each.message for each in effects if isinstance(each, Send) and each.peer == peer]
    rpcs += [each.message for each in effects if isinstance(each, SendAll) and peer in each.peers]
    return rpcs  # type: ignore[return-value]


@pytest.mark.parametrize("peer", [b"go", b"rust"])
def test_a_peer_is_not_told_of_what_it_does_not_take(peer: bytes) -> None:
    """In whichever names: it would ask for what it cannot be given, and hold that against us."""
    hooks = Hooks()
    ours = Ours(hooks=hooks)
    for each in (b"go", b"rust", b"author"):
        ours.meet(each)
    ours.control(b"rust", ihave=(IHave(TOPIC, (RUST(message(9)),)),))
    small, large = message(1), message(2, size=70_000)
    ours.receive(b"author", small, large)
    hooks.limits[peer] = 65_536
    (gossip,) = told(ours.beat(), peer)
    assert gossip.control is not None
    assert gossip.control.ihave[0].message_ids == (small.id if peer == b"go" else RUST(small),)
    hooks.limits[peer] = 10
    assert not told(ours.beat(), peer)


def test_gossip_with_a_rust_peer_is_in_its_names() -> None:
    """It is asked for what we lack and nothing else, told of what we have, and answered."""
    ours = Ours()
    for peer in (b"go", b"rust"):
        ours.meet(peer)
    had, lacked, later = message(1), message(2), message(3)
    ours.receive(b"go", had)
    offered = (RUST(had), RUST(lacked))
    (asked,) = told(ours.control(b"rust", ihave=(IHave(TOPIC, offered),)), b"rust")
    assert asked.control is not None
    assert asked.control.iwant == (RUST(lacked),)
    ours.receive(b"rust", lacked)
    ours.receive(b"go", later)
    again = ours.control(b"rust", ihave=(IHave(TOPIC, (*offered, RUST(later))),))
    assert not told(again, b"rust")
    beat = ours.beat()
    names = {b"go": {had.id, lacked.id, later.id}, b"rust": {*offered, RUST(later)}}
    for peer, expected in names.items():
        (gossip,) = told(beat, peer)
        assert gossip.control is not None
        assert set(gossip.control.ihave[0].message_ids) == expected
    (answer,) = told(ours.control(b"rust", iwant=(RUST(later),)), b"rust")
    assert answer.publish == (later,)
    for _ in range(5):
        assert not [each for each in ours.beat() if isinstance(each, Penalise | Refuse)]


def test_a_rust_peer_is_spared_what_it_has() -> None:
    """Its IDONTWANT is understood, and so is ours."""
    ours = Ours(GossipSubConfig(D=2, D_lo=1, D_out=0))
    for peer in (b"go", b"rust"):
        ours.meet(peer)
        ours.control(peer, graft=(TOPIC,))
    large, other = message(1, 2000), message(2, 2000)
    ours.control(b"rust", idontwant=(RUST(large),))
    effects = ours.receive(b"go", large)
    (said,) = told(effects, b"rust")
    assert said == Rpc(control=Control(idontwant=(RUST(large),)))
    effects = ours.receive(b"rust", other)
    assert Rpc(control=Control(idontwant=(other.id,))) in told(effects, b"go")
