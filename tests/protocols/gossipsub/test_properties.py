"""What holds of a router whatever happens: state machines over one router.

Inputs come in any order from any peers: connections, RPCs true and forged, replays, timers, late
verdicts, dropped sends, and steps of time from nothing to a century. After each input the effects
are checked one by one, and the router's tables against the bounds of its configuration.

A failure prints the steps and a blob: `@reproduce_failure` with it replays the run.
"""

import math
import random
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocols import router_inputs as world
from protocols.router_tables import mentions, table_sizes
from rumormill.core.effects import (
    CancelTimer,
    Connect,
    Deliver,
    Keep,
    Published,
    Send,
    SendAll,
    SetTimer,
    Validate,
)
from rumormill.core.errors import LocalError
from rumormill.core.inputs import (
    Input,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    SendDropped,
    Start,
    Subscribe,
    TimerFired,
    Unsubscribe,
    Validated,
    Verdict,
)
from rumormill.core.trace import TRACE_PAYLOADS
from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.sim.identity import SimulatedIdentity
from rumormill.wire.pubsub import Message, Rpc, SubOpts
from rumormill.wire.pubsub_codec import decode_rpc, encode_rpc

CENTURY = 3.2e9
MAY_OUTLIVE_A_CONNECTION = (
    "GossipSub.mesh.backoff.",
    "GossipSub.standing.keeper._retained",
    "GossipSub.standing.keeper._deliveries.",
    "GossipSub.direct",
    "GossipSub._pending",
    "FloodSub._pending",
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
        self.sent: list[Send] = []
        self.known: list[Message] = []

    def begin(self, router: Any, config: Any) -> None:
        self.router, self.config = router, config
        self.give(Start())

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
        if isinstance(effect, SendAll):
            assert effect.peers
            for peer in effect.peers:
                self.check_send(Send(peer, effect.message))
        elif isinstance(effect, Send):
            self.check_send(effect)
        elif isinstance(effect, Deliver):
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
        elif isinstance(effect, (Published, Keep)):
            assert isinstance(cause, Publish)
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

    def check_delivery(self, effect: Deliver, cause: Input) -> None:
        """An event is delivered once, unless it comes again after its id has been forgotten."""
        event = effect.event
        assert event.topic in self.router.subscriptions
        arrived = self.now
        if isinstance(cause, Validated):
            arrived = self.validating.pop(event.id)
        before = self.delivered.get(event.id)
        if before is not None and not self.router._seen.evicted:
            assert arrived - before >= self.config.seen_ttl
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

    @rule(data=st.data(), verdict=st.sampled_from(list(Verdict)))
    def validated(self, data: st.DataObject, verdict: Verdict) -> None:
        message_id = data.draw(st.sampled_from([*self.validating, b"never asked"]))
        self.request(Validated(message_id, verdict))

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

    @rule(data=st.data())
    def drop_a_send(self, data: st.DataObject) -> None:
        if self.sent:
            send = data.draw(st.sampled_from(self.sent))
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

    @rule(data=st.data(), peer=world.peers, change=st.sampled_from(["", "data", "signature"]))
    def replay(self, data: st.DataObject, peer: bytes, change: str) -> None:
        """Send a message again, unchanged or altered on the way."""
        if self.known:
            original = data.draw(st.sampled_from(self.known))
            copy = msgspec.structs.replace(original, id=b"", encoded=b"")
            if change:
                setattr(copy, change, getattr(copy, change)[:-1] + b"!")
            self.give(Received(peer, Rpc(publish=(copy,))))

    # Time.

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 1.0, 3.0, 130.0]))
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

    @rule(seconds=st.sampled_from([4000.0, 1e6, CENTURY]))
    def sleep(self, seconds: float) -> None:
        """Wake up much later: timers fire late, and once."""
        self.now += seconds
        for timer in [timer for timer, at in self.timers.items() if at <= self.now]:
            self.fire(timer)

    def fire(self, timer: Any) -> None:
        del self.timers[timer]
        self.give(TimerFired(timer))

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
        assert len(router._seen) <= self.config.seen_limit
        assert all(peer in self.connected for peer in router._unannounced)

    @invariant()
    def nothing_is_kept_of_peers_that_are_gone(self) -> None:
        if self.router is None:
            return
        for peer in [*world.PEERS, world.STRANGER, world.SELF]:
            if peer not in self.connected:
                kept = mentions(self.router, peer)
                assert [p for p in kept if not p.startswith(MAY_OUTLIVE_A_CONNECTION)] == []


class GossipSubRouter(Router):
    """GossipSub with any valid configuration."""

    def configure(self, config: GossipSubConfig, seed: int, judged: bool, scored: bool) -> None:
        router = GossipSub(
            SimulatedIdentity(world.SELF),
            random.Random(seed),
            config,
            validator=world.validator if judged else None,
            application_score=(lambda peer: float(peer[-1] - ord("4"))) if scored else None,
            check_record=lambda _peer, record: record == b"r",
        )
        self.begin(router, config)

    @initialize(
        config=world.gossipsub_configs(),
        seed=st.integers(0, 9),
        judged=st.booleans(),
        scored=st.booleans(),
    )
    def start(self, config: GossipSubConfig, seed: int, judged: bool, scored: bool) -> None:
        self.configure(config, seed, judged, scored)

    @rule(peer=world.peers)
    def add_direct_peer(self, peer: bytes) -> None:
        effects: list[Any] = []
        self.router.add_direct_peer(peer, self.now, effects)
        for effect in effects:
            self.check(effect, Start())

    @rule(peer=world.peers)
    def remove_direct_peer(self, peer: bytes) -> None:
        self.router.remove_direct_peer(peer)

    @invariant()
    def mesh_links_are_connected_subscribers(self) -> None:
        router = self.router
        if router is None:
            return
        config = self.config
        assert list(router.mesh.links) == list(router.subscriptions), "own topics and no others"
        for topic, links in router.mesh.links.items():
            for peer in links:
                assert peer in self.connected
                assert topic in router.peers[peer].topics
                assert router.peers[peer].protocol != FLOODSUB
                assert peer not in router.direct
            forced = [peer for peer in links if not router.peers[peer].outbound]
            assert len(forced) <= config.D_hi + config.D_out + config.opportunistic_graft_peers

    @invariant()
    def fanout_peers_are_connected_subscribers(self) -> None:
        router = self.router
        if router is None:
            return
        fanout = router.fanout
        assert list(fanout.peers) == [t for t in fanout.peers if t in fanout.last_published]
        assert len(fanout.peers) == len(fanout.last_published)
        for topic, peers in fanout.peers.items():
            assert topic not in router.subscriptions
            assert len(peers) <= self.config.D
            for peer in peers:
                assert topic in router.peers[peer].topics
                assert router.peers[peer].protocol != FLOODSUB

    @invariant()
    def bounds_hold(self) -> None:
        router, config = self.router, self.config
        if router is None:
            return
        sizes = table_sizes(router)
        backoff, gossip = "GossipSub.mesh.backoff", "GossipSub.gossip"
        assert len(router.mesh.backoff) <= config.max_backoffs
        assert sizes[f"{backoff}._per_peer"] <= config.max_backoffs
        promised = sizes[f"{gossip}.promises._by_id"]
        assert len(router.gossip.promises) <= config.max_promises
        assert promised <= 2 * config.max_promises, "ids, and who owes them"
        per_heartbeat = config.max_idontwant_messages * config.max_idontwant_length
        for unwanted in router.gossip.unwanted.values():
            assert 0 < len(unwanted) <= per_heartbeat * config.idontwant_ttl
        for asked in router.gossip._ids_asked.values():
            assert asked <= config.max_ihave_length
        if not config.history_length:
            assert len(router.gossip.cache) == 0
        if config.scoring:
            keeper, score = "GossipSub.standing.keeper", config.score
            known = sizes[f"{keeper}._active"] + sizes[f"{keeper}._retained"]
            assert known <= score.peers_max
            assert sizes[f"{keeper}._deliveries.records"] <= max(score.delivery_records_max, 1) * 9

    @invariant()
    def the_heartbeat_goes_on(self) -> None:
        if self.router is not None:
            beats = [at for timer, at in self.timers.items() if "Heartbeat" in type(timer).__name__]
            [beat] = beats
            assert beat <= self.now + 3 * self.config.heartbeat_interval


class DefaultGossipSubRouter(GossipSubRouter):
    """GossipSub as it comes, and with the hardening preset: deeper runs, fewer settings."""

    @initialize(config=st.sampled_from(list(PRESETS.values())), seed=st.integers(0, 9))
    def start(self, config: GossipSubConfig, seed: int) -> None:
        self.configure(config, seed, judged=True, scored=False)


class FloodSubRouter(Router):
    """FloodSub with any valid configuration."""

    @initialize(config=world.pubsub_configs, judged=st.booleans())
    def start(self, config: PubSubConfig, judged: bool) -> None:
        router = FloodSub(
            SimulatedIdentity(world.SELF),
            random.Random(0),
            config,
            validator=world.validator if judged else None,
        )
        self.begin(router, config)


class TestGossipSub(GossipSubRouter.TestCase):  # type: ignore[name-defined,misc]
    """Any valid configuration."""

    settings = settings(stateful_step_count=40)


class TestDefaultGossipSub(DefaultGossipSubRouter.TestCase):  # type: ignore[name-defined,misc]
    """The presets."""

    settings = settings(stateful_step_count=60, max_examples=30)


class TestFloodSub(FloodSubRouter.TestCase):  # type: ignore[name-defined,misc]
    """FloodSub."""

    settings = settings(stateful_step_count=30, max_examples=30)
