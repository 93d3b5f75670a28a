"""What holds of a router whatever happens: state machines over one router.

The inputs and the checks of every effect are `router_machine`'s; here are the rules of GossipSub's
own tables, and the runs. A storm is a long run of inputs that are likely to meet, made from a seed.

A failure prints the steps and a blob: `@reproduce_failure` with it replays the run.
"""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from protocols import router_inputs as world
from protocols.router_machine import Router
from protocols.router_tables import size_of
from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.gossipsub import trunk_missing
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.config import PubSubConfig, SignPolicy
from rumormill.protocols.registry import Hooks
from rumormill.sim.identity import SimulatedIdentity


class GossipSubRouter(Router):
    """GossipSub with any valid configuration."""

    def configure(
        self, config: GossipSubConfig, seed: int, judged: bool, scored: bool, populated: bool
    ) -> None:
        router = GossipSub(
            SimulatedIdentity(world.SELF),
            random.Random(seed),
            config,
            Hooks(
                validator=world.validator if judged else None,
                application_score=(lambda peer: float(peer[-1] - ord("4"))) if scored else None,
                check_record=lambda _peer, record: record == b"r",
            ),
        )
        self.begin(router, config, populated)

    @initialize(
        config=world.gossipsub_configs(),
        seed=st.integers(0, 9),
        judged=st.booleans(),
        scored=st.booleans(),
        populated=st.sampled_from([True, True, True, False]),
    )
    def start(
        self, config: GossipSubConfig, seed: int, judged: bool, scored: bool, populated: bool
    ) -> None:
        self.configure(config, seed, judged, scored, populated)

    def look(self) -> None:
        super().look()
        self.mesh_links_are_connected_subscribers()
        self.fanout_peers_are_connected_subscribers()
        self.bounds_hold()
        self.trees_are_bounded_and_lead_to_connected_peers()
        self.the_heartbeat_goes_on()

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
        assert len(router.mesh.backoff) <= config.max_backoffs
        assert size_of(router.mesh.backoff._per_peer) <= config.max_backoffs
        promised = size_of(router.gossip.promises._by_id)
        assert router.gossip.promises.count <= config.max_promises
        assert promised <= 2 * config.max_promises, "ids, and who owes them"
        per_heartbeat = config.max_idontwant_messages * config.max_idontwant_length
        for unwanted in router.gossip.unwanted.values():
            assert 0 < len(unwanted) <= per_heartbeat * config.idontwant_ttl
        for asked in router.gossip._ids_asked.values():
            assert asked <= config.max_ihave_length
        if not config.history_length:
            assert len(router.gossip.cache.messages) == 0
        if config.scoring:
            keeper, score = router._score, config.score
            assert size_of(keeper._active) + size_of(keeper._retained) <= score.peers_max
            records = size_of(keeper._deliveries.records)
            assert records <= max(score.delivery_records_max, 1) * 9

    @invariant()
    def trees_are_bounded_and_lead_to_connected_peers(self) -> None:
        if self.router is None or self.router.trunk is None:
            return
        trunk = self.router.trunk
        sources = list(trunk.sources.every())
        assert {each.tag: each for each in sources} == trunk.sources.by_tag
        assert all((*trunk.sources.by_topic.values(), *trunk.sources.foretold.values()))
        for topic in trunk.sources.by_topic.keys() | trunk.sources.foretold.keys():
            assert len(list(trunk.sources.of(topic))) <= self.config.trunk_sources
        for source in sources:
            ways = {
                *source.eager,
                *source.choked,
                *(source.shunned or ()),
                source.parent,
                *source.backups,
            }
            assert all(peer in self.connected for peer in ways if peer)
            assert source.parent not in source.choked
        assert all(peer in self.connected for peer in trunk.speakers)
        assert len(trunk.wanting._missing) <= trunk_missing.MISSING_MAX

    @invariant()
    def the_heartbeat_goes_on(self) -> None:
        if self.router is not None:
            beats = [at for timer, at in self.timers.items() if timer == "heartbeat"]
            [beat] = beats
            assert beat <= self.now + 3 * self.config.heartbeat_interval


class DefaultGossipSubRouter(GossipSubRouter):
    """GossipSub as it comes, and with the hardening preset: deeper runs, fewer settings."""

    @initialize(config=st.sampled_from(list(PRESETS.values())), seed=st.integers(0, 9))
    def start(self, config: GossipSubConfig, seed: int) -> None:
        self.configure(config, seed, judged=True, scored=False, populated=True)


class FloodSubRouter(Router):
    """FloodSub with any valid configuration."""

    @initialize(
        config=world.pubsub_configs,
        judged=st.booleans(),
        populated=st.sampled_from([True, True, True, False]),
    )
    def start(self, config: PubSubConfig, judged: bool, populated: bool) -> None:
        self.configure(config, judged, populated)

    def configure(self, config: PubSubConfig, judged: bool, populated: bool) -> None:
        router = FloodSub(
            SimulatedIdentity(world.SELF),
            random.Random(0),
            config,
            Hooks(validator=world.validator if judged else None),
        )
        self.begin(router, config, populated)


class TestGossipSub(GossipSubRouter.TestCase):  # type: ignore[name-defined,misc]
    """Any valid configuration."""

    settings = settings(stateful_step_count=40, max_examples=40)


class TestDefaultGossipSub(DefaultGossipSubRouter.TestCase):  # type: ignore[name-defined,misc]
    """The presets."""

    settings = settings(stateful_step_count=50, max_examples=20)


@settings(max_examples=30)
@given(config=world.gossipsub_configs(), seed=st.integers(0, 2**32), judged=st.booleans())
def test_gossipsub_in_a_storm(config: GossipSubConfig, seed: int, judged: bool) -> None:
    """Three hundred inputs that are likely to meet, with any valid configuration."""
    machine = GossipSubRouter()
    machine.configure(config, seed, judged, scored=False, populated=True)
    machine.storm(seed, 300)


@settings(max_examples=10)
@given(config=world.gossipsub_configs(), seed=st.integers(0, 2**32))
def test_trees_in_a_storm(config: GossipSubConfig, seed: int) -> None:
    """The same with trees, among peers of whom most speak of them."""
    machine = GossipSubRouter()
    config = msgspec.structs.replace(config, trunk=True, sign_policy=SignPolicy.STRICT_SIGN)
    machine.configure(config, seed, judged=False, scored=False, populated=True)
    machine.storm(seed, 300)


@settings(max_examples=10)
@given(preset=st.sampled_from(sorted(PRESETS)), seed=st.integers(0, 2**32), judged=st.booleans())
def test_a_preset_in_a_storm(preset: str, seed: int, judged: bool) -> None:
    """The same with the presets, whose limits are wide, so that much is going on at once."""
    machine = GossipSubRouter()
    machine.configure(PRESETS[preset], seed, judged, scored=True, populated=True)
    machine.storm(seed, 400)


@settings(max_examples=10)
@given(config=world.pubsub_configs, seed=st.integers(0, 2**32), judged=st.booleans())
def test_floodsub_in_a_storm(config: PubSubConfig, seed: int, judged: bool) -> None:
    """The same with FloodSub."""
    machine = FloodSubRouter()
    machine.configure(config, judged, populated=True)
    machine.storm(seed, 300)


class TestFloodSub(FloodSubRouter.TestCase):  # type: ignore[name-defined,misc]
    """FloodSub."""

    settings = settings(stateful_step_count=30, max_examples=20)
