"""A small simulated network of peers that compare histories: real protocols, real sync, every
message through its codec. Peers are named by their numbers, and each has a disk of its own."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from rumormill.core.event import Event
from rumormill.core.inputs import Publish, Subscribe
from rumormill.core.machine import Machine
from rumormill.core.trace import Refuse, SyncEnded
from rumormill.protocols.registry import NO_HOOKS, Hooks, protocol
from rumormill.sim.host import Host
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.journal import Journal
from rumormill.sim.latency import constant
from rumormill.sim.network import Network
from rumormill.sim.simulation import round_trip_of
from rumormill.sync.config import SyncConfig
from rumormill.sync.messages import SYNC_QUERIES
from rumormill.sync.peer import SyncedPeer
from rumormill.trace.entries import Recorder
from trace_log import TraceLog


class Stage:
    """The network."""

    def __init__(self, peers: int, *, name: str = "floodsub", seed: int = 1) -> None:
        self.log = TraceLog()
        self.spec = protocol(name)
        self.config = self.spec.configure("default", {})
        self.network = Network(
            seed,
            Recorder([self.log]),
            constant(0.01),
            round_trip=round_trip_of(self.spec, self.config),
            query_round_trip=round_trip_of(SYNC_QUERIES, self.config),
        )
        self.events: list[list[Event]] = []
        for _ in range(peers):
            self.add()

    def add(
        self,
        hooks: Hooks = NO_HOOKS,
        build: Callable[[bytes, random.Random], Machine] | None = None,
        **journal: Any,
    ) -> int:
        """Add and start a peer, with a machine of its own if it is not an honest one."""

        def honest(peer: bytes, rng: random.Random) -> Machine:
            machine = self.spec.build(SimulatedIdentity(peer), rng, self.config, hooks)
            return SyncedPeer(machine, rng, SyncConfig(), self.spec.check_kept(machine))

        host = self.network.add_host(self.spec.protocol_ids, build or honest)
        host.journal = Journal(indexed=True, **journal)
        self.events.append([])
        host.on_event = self.events[host.index].append
        self.network.start(host)
        return host.index

    def host(self, peer: int) -> Host:
        return self.network.hosts[peer]

    def journal(self, peer: int) -> Journal:
        journal = self.host(peer).journal
        assert journal is not None
        return journal

    def connect(self, dialler: int, listener: int) -> None:
        self.network.dial(self.host(dialler), self.host(listener).id)

    def subscribe(self, peer: int, topic: str = "news", since: float | None = None) -> None:
        self.host(peer).handle(Subscribe(topic, since=since))

    def publish(self, peer: int, *words: str, topic: str = "news", every: float = 1.0) -> None:
        """Publish words, one in so many seconds."""
        for word in words:
            self.run(every)
            self.host(peer).handle(Publish(topic, word.encode()))

    def run(self, seconds: float) -> None:
        self.network.engine.run_until(self.network.engine.now + seconds)

    def words(self, peer: int) -> list[str]:
        """What was delivered to a peer, in order."""
        return [event.data.decode() for event in self.events[peer]]

    def sessions(self, peer: int) -> list[SyncEnded]:
        """The sessions of a peer that have ended."""
        self.network.engine.recorder.flush()
        return self.log.of(SyncEnded, self.host(peer).id)

    def refused(self, peer: int) -> dict[str, int]:
        """What a peer has refused, by reason."""
        self.network.engine.recorder.flush()
        found = self.log.of(Refuse, self.host(peer).id)
        return dict(Counter(each.reason for each in found))
