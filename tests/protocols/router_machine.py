"""One router under arbitrary inputs: a hypothesis state machine, for any pub/sub router.

Inputs come in any order from any peers: connections, RPCs true and forged, replays, timers, late
verdicts, dropped sends, and steps of time from nothing to a century. After each input the effects
are checked one by one, and the router's tables against each other and the configuration.
"""

import math
import random
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocols import router_inputs as world
from protocols.router_tables import mentions
from rumormill.core.effects import (
    Append,
    CancelTimer,
    Connect,
    Published,
    Send,
    SendAll,
    SetTimer,
    Validate,
)
from rumormill.core.errors import LocalError
from rumormill.core.inputs import (
    Input,
    NotStored,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    SendDropped,
    Start,
    Stored,
    Subscribe,
    TimerFired,
    Unsubscribe,
    Validated,
    Verdict,
)
from rumormill.core.trace import TRACE_PAYLOADS
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc
from rumormill.protocols.pubsub.messages import Control, Message, Prune, Rpc, SubOpts

CENTURY = 3.2e9
STEPS = [0.0, 0.001, 0.3, 1.0, 3.0, 130.0]
SLEEPS = [4000.0, 1e6, CENTURY]
CHANGES = ["", "data", "signature"]
MAY_OUTLIVE_A_CONNECTION = (
    "GossipSub.mesh.backoff.",
    "GossipSub._score._retained",
    "GossipSub._score._deliveries.",
    "GossipSub.direct",
    "GossipSub._pending",
    "FloodSub._pending",
    # Authors, who need not be connected, and who said what of messages of the last seconds.
    "GossipSub.mesh.trunk.sources.by_topic",
    "GossipSub.mesh.trunk.probes._sources",
    "GossipSub.mesh.trunk._recent",
    "GossipSub.mesh.trunk._older",
    "GossipSub.mesh.trunk.wanting._missing",
)


class Router(RuleBasedStateMachine):
    """One router and everything that its runtime and its peers may do to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        self.router: Any = None
        self.config: Any = None
        self.connected: dict[bytes, None] = {}
        self.timers: dict[Any, float] = {}
        self.validating: dict[bytes, float] = {}
        self.delivered: dict[bytes, float] = {}
        self.unsafe: list[Any] = []
        self.sent: list[Send] = []
        self.known: list[Message] = []

    def begin(self, router: Any, config: Any, populated: bool) -> None:
        """Start, alone or amidst peers of whom all kinds subscribe to what we subscribe to."""
        self.router, self.config = router, config
        self.give(Start())
        if populated:
            for topic in world.TOPICS[:2]:
                self.request(Subscribe(topic))
            for number, peer in enumerate(world.PEERS):
                protocol = world.PROTOCOLS[max(0, number - len(world.PEERS) + 4)]
                self.connect(peer, protocol, number % 2 == 1, "10.0.0.1")
                subs = tuple(SubOpts(True, topic) for topic in world.TOPICS[:3])
                self.give(Received(peer, Rpc(subscriptions=subs)))
            self.pass_time(3.0)

    # The runtime.

    def give(self, event: Input) -> list[Any]:
        effects: list[Any] = []
        self.router.handle(event, self.now, effects)
        for effect in effects:
            self.check(effect, event)
        dials = [effect for effect in effects if isinstance(effect, Connect)]
        assert len(dials) <= 100, "one input makes us dial only so many peers"
        return effects

    def check(self, effect: Any, cause: Input) -> None:
        if isinstance(effect, Send):
            self.check_send(effect)
        elif isinstance(effect, SendAll):
            assert effect.peers
            for peer in effect.peers:
                self.check_send(Send(peer, effect.message))
        elif isinstance(effect, Append):
            if effect.barrier is not None:
                assert isinstance(cause, Publish)
                self.unsafe.append(effect.barrier)
            if effect.deliver:
                self.check_delivery(effect, cause)
        elif isinstance(effect, Validate):
            self.validating[effect.event.id] = self.now
        elif isinstance(effect, SetTimer):
            assert self.now <= effect.at < math.inf
            self.timers[effect.timer] = effect.at
        elif isinstance(effect, CancelTimer):
            self.timers.pop(effect.timer, None)
        elif isinstance(effect, Connect):
            assert effect.peer not in self.connected
            assert effect.peer != world.SELF
        elif isinstance(effect, Published):
            assert isinstance(cause, (Publish, Stored, NotStored))
            assert (effect.event is None) == bool(effect.error)
        else:
            assert isinstance(effect, TRACE_PAYLOADS)

    def check_send(self, send: Send) -> None:
        assert send.peer in self.connected
        rpc: Any = send.message
        assert rpc.subscriptions or rpc.publish or rpc.control
        encoded = encode_rpc(rpc)
        assert len(encoded) == rpc.meta.size <= self.config.max_rpc_size
        decode_rpc(encoded)
        self.sent.append(send)
        del self.sent[:-8]

    def check_delivery(self, effect: Append, cause: Input) -> None:
        """An event is delivered once, unless it comes again after its id has been forgotten.

        Of our own, which may be said twice before the log has the first, the log delivers one. A
        verdict may take so long that the message came again meanwhile: arrivals count.
        """
        event = effect.event
        assert event.topic in self.router.subscriptions
        if isinstance(cause, Publish):
            return
        arrived = self.now
        if isinstance(cause, Validated):
            arrived = self.validating.pop(event.id)
        before = self.delivered.get(event.id)
        if before is not None and not self.router._seen.evicted:
            assert abs(arrived - before) >= self.config.seen_ttl
        self.delivered[event.id] = arrived

    def request(self, event: Input) -> None:
        try:
            self.give(event)
        except LocalError:
            self.refused = event

    # What the application does.

    @rule(topic=st.one_of(world.any_topic, st.sampled_from(["", "x" * 2000])))
    def subscribe(self, topic: str) -> None:
        self.request(Subscribe(topic))

    @rule(topic=world.any_topic)
    def unsubscribe(self, topic: str) -> None:
        self.request(Unsubscribe(topic))

    @rule(topic=world.any_topic, data=world.payloads)
    def publish(self, topic: str, data: bytes) -> None:
        self.request(Publish(topic, data))

    @rule(count=st.integers(1, 9), safe=st.booleans())
    def disk(self, count: int, safe: bool) -> None:
        """What was appended becomes safe in its order, or is lost."""
        barriers, self.unsafe = tuple(self.unsafe[:count]), self.unsafe[count:]
        if barriers:
            self.give(Stored(barriers) if safe else NotStored(barriers, "the disk is full"))

    @rule(place=st.integers(0, 99), verdict=st.sampled_from(list(Verdict)))
    def validated(self, place: int, verdict: Verdict) -> None:
        asked = [*self.validating, b"never asked"]
        self.request(Validated(asked[place % len(asked)], verdict))

    # What the network does.

    @rule(
        peer=st.one_of(world.peers, st.just(world.SELF)),
        protocol=world.protocols,
        outbound=st.booleans(),
        address=world.addresses,
    )
    def connect(self, peer: bytes, protocol: str, outbound: bool, address: str) -> None:
        if peer != world.SELF:
            self.connected[peer] = None
        self.give(PeerConnected(peer, protocol, outbound, address))

    @rule(topic=world.topics, outbound=st.booleans())
    def connect_subscribers(self, topic: str, outbound: bool) -> None:
        for peer in world.PEERS:
            if peer not in self.connected:
                self.connect(peer, world.PROTOCOLS[0], outbound, "10.0.0.1")
            self.give(Received(peer, Rpc(subscriptions=(SubOpts(True, topic),))))

    @rule(peer=world.peers)
    def disconnect(self, peer: bytes) -> None:
        self.connected.pop(peer, None)
        self.give(PeerDisconnected(peer))

    @rule(place=st.integers(0, 99))
    def drop_a_send(self, place: int) -> None:
        if self.sent:
            send = self.sent[place % len(self.sent)]
            self.give(SendDropped(send.peer, send.message, "queue full"))

    # What peers do.

    @rule(peer=st.one_of(world.peers, st.just(world.STRANGER)), rpc=world.rpcs)
    def receive(self, peer: bytes, rpc: Rpc) -> None:
        self.give(Received(peer, rpc))

    @rule(peer=world.peers, rpc=world.rpcs)
    def receive_decoded(self, peer: bytes, rpc: Rpc) -> None:
        self.give(Received(peer, decode_rpc(encode_rpc(rpc))))

    @rule(peer=world.peers, message=world.true_messages)
    def receive_true_message(self, peer: bytes, message: Message) -> None:
        self.known.append(message)
        self.give(Received(peer, Rpc(publish=(message,))))

    @rule(place=st.integers(0, 99), peer=world.peers, change=st.sampled_from(CHANGES))
    def replay(self, place: int, peer: bytes, change: str) -> None:
        """Send a message again, unchanged or altered on the way."""
        if self.known:
            original = self.known[place % len(self.known)]
            copy = msgspec.structs.replace(original, id=b"", encoded=b"")
            if change:
                setattr(copy, change, getattr(copy, change)[:-1] + b"!")
            self.give(Received(peer, Rpc(publish=(copy,))))

    @rule(peer=world.peers, topic=world.topics, subscribe=st.booleans())
    def announce(self, peer: bytes, topic: str, subscribe: bool) -> None:
        self.give(Received(peer, Rpc(subscriptions=(SubOpts(subscribe, topic),))))

    @rule(peer=world.peers, topic=world.topics, backoff=st.sampled_from(world.EXTREMES))
    def prune_and_graft(self, peer: bytes, topic: str, backoff: int) -> None:
        self.give(Received(peer, Rpc(control=Control(prune=(Prune(topic, (), backoff),)))))
        self.give(Received(peer, Rpc(control=Control(graft=(topic,)))))

    # Time.

    @rule(seconds=st.sampled_from(STEPS))
    def pass_time(self, seconds: float) -> None:
        """Let time pass as it does: every timer fires when it is due."""
        end = self.now + seconds
        for _ in range(20):
            due = min(self.timers.items(), key=lambda timer: timer[1], default=None)
            if due is None or due[1] > end:
                break
            self.now = max(self.now, due[1])
            self.fire(due[0])
        self.now = max(self.now, end)

    @rule(seconds=st.sampled_from(SLEEPS))
    def sleep(self, seconds: float) -> None:
        """Wake up much later: timers fire late, and once."""
        self.now += seconds
        for timer in [timer for timer, at in self.timers.items() if at <= self.now]:
            self.fire(timer)

    def fire(self, timer: Any) -> None:
        del self.timers[timer]
        self.give(TimerFired(timer))

    # All of it, fast: a seed stands for a long run of inputs that are likely to meet.

    @rule(seed=st.integers(0, 10**9), length=st.integers(1, 60))
    def storm(self, seed: int, length: int) -> None:
        rng = random.Random(seed)
        for _ in range(length):
            kind = rng.choice(world.STORM)
            peer, topic = rng.choice(world.PEERS), rng.choice(world.TOPICS[:3])
            self.act_as_peer(kind, peer, topic, rng)
            self.act_at_home(kind, peer, topic, rng)
            self.look()

    def act_as_peer(self, kind: str, peer: bytes, topic: str, rng: random.Random) -> None:
        place = rng.randrange(99)
        if kind == "message":
            author, seqno = rng.choice([*world.PEERS, world.SELF]), (1 + place).to_bytes(8, "big")
            data = rng.choice(world.PAYLOADS)
            self.receive_true_message(peer, world.signed(topic, data, author, seqno))
        elif kind == "replay":
            self.replay(place, peer, rng.choice(CHANGES))
        elif kind == "control":
            self.give(Received(peer, world.storm_rpc(rng, self.known, topic)))
        elif kind == "graft":
            self.give(Received(peer, Rpc(control=Control(graft=(topic,)))))
        elif kind == "announce":
            self.announce(peer, topic, rng.random() < 0.7)
        elif kind == "peer" and peer in self.connected and rng.random() < 0.5:
            self.disconnect(peer)
        elif kind == "peer":
            self.connect(peer, rng.choice(world.PROTOCOLS), rng.random() < 0.5, "10.0.0.1")
            self.announce(peer, topic, True)

    def act_at_home(self, kind: str, peer: bytes, topic: str, rng: random.Random) -> None:
        place = rng.randrange(99)
        if kind == "topic":
            self.request(rng.choice([Subscribe, Subscribe, Unsubscribe])(topic))
        elif kind == "publish":
            self.publish(topic, rng.choice(world.PAYLOADS))
        elif kind == "time":
            self.pass_time(rng.choice(STEPS))
        elif kind == "sleep":
            self.sleep(rng.choice(SLEEPS))
        elif kind == "verdict":
            self.validated(place, rng.choice(list(Verdict)))
        elif kind == "drop":
            self.drop_a_send(place)

    def look(self) -> None:
        self.tables_agree()
        self.nothing_is_kept_of_peers_that_are_gone()

    # What always holds.

    @invariant()
    def tables_agree(self) -> None:
        router = self.router
        if router is None:
            return
        assert list(router.peers) == [p for p in router.peers if p in self.connected]
        assert len(router.peers) == len(self.connected)
        for peer, state in router.peers.items():
            assert len(state.topics) <= self.config.max_subscriptions_per_peer
            assert all(peer in router.topics[topic] for topic in state.topics)
        for topic, subscribers in router.topics.items():
            assert subscribers, "no empty tables are kept"
            assert all(topic in router.peers[peer].topics for peer in subscribers)
        assert len(router.subscriptions) <= self.config.max_subscriptions
        assert len(router._pending) <= self.config.max_pending_validations
        assert len(router._seen.ids) <= self.config.seen_limit
        assert all(peer in self.connected for peer in router._unannounced)

    @invariant()
    def nothing_is_kept_of_peers_that_are_gone(self) -> None:
        if self.router is None:
            return
        everybody = [*world.PEERS, world.STRANGER, world.SELF]
        kept = mentions(self.router, *[peer for peer in everybody if peer not in self.connected])
        assert [path for path in kept if not path.startswith(MAY_OUTLIVE_A_CONNECTION)] == []
