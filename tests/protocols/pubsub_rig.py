"""A small simulated network for tests that read as stories.

`Rig` runs real routers over the simulator with the codec checked on every message. Peers are named
by their number. A `Puppet` is a peer whose part the test itself plays, RPC by RPC.
"""

import random
from collections.abc import Callable
from typing import Any

from rumormill.core.config import override
from rumormill.core.effects import Effects, Published, Send
from rumormill.core.event import Event
from rumormill.core.inputs import (
    Input,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    Subscribe,
    Unsubscribe,
)
from rumormill.core.machine import Machine
from rumormill.core.trace import TracePayload
from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.messages import Rpc
from rumormill.protocols.registry import Hooks
from rumormill.sim.host import Host
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.latency import constant
from rumormill.sim.link import LinkFaults
from rumormill.sim.network import Network
from rumormill.trace.entries import Recorder
from trace_log import TraceLog


def _through_the_codec(message: Any) -> Rpc:
    """Encode and decode a message; its id is left to the receiving router's own function."""
    return decode_rpc(encode_rpc(message))


class Puppet:
    """A peer that does nothing by itself: it remembers what it gets, and tests send for it."""

    def __init__(self) -> None:
        self.received: list[tuple[bytes, Rpc]] = []
        self.peers: dict[bytes, str] = {}

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        if isinstance(event, Received):
            rpc: Any = event.message
            self.received.append((event.peer, rpc))
        elif isinstance(event, PeerConnected):
            self.peers[event.peer] = event.protocol
        elif isinstance(event, PeerDisconnected):
            self.peers.pop(event.peer, None)


class Rig:
    """A network of routers. Latency is 1 ms unless told otherwise."""

    def __init__(
        self, *, seed: int = 1, latency: float = 0.001, faults: LinkFaults | None = None
    ) -> None:
        self.log = TraceLog()
        self.network = Network(
            seed, Recorder([self.log]), constant(latency), faults, _through_the_codec
        )
        self.randomness = random.Random(f"{seed}/rig")
        self.events: list[list[Event]] = []

    # Peers.

    def add(
        self,
        count: int = 1,
        *,
        protocols: tuple[str, ...] = PROTOCOLS,
        address: str = "",
        build: Callable[[bytes, random.Random], Machine] | None = None,
        config: GossipSubConfig | None = None,
        options: dict[str, Any] | None = None,
        **changes: Any,
    ) -> list[int]:
        """Add and start GossipSub peers; `changes` are configuration values."""
        settings = override(config or GossipSubConfig(), changes)

        def gossipsub(peer: bytes, rng: random.Random) -> Machine:
            return GossipSub(SimulatedIdentity(peer), rng, settings, Hooks(**(options or {})))

        added = []
        for _ in range(count):
            host = self.network.add_host(protocols, build or gossipsub, address)
            self.events.append([])
            host.on_event = self.events[host.index].append
            host.receipts = []
            self.network.start(host)
            added.append(host.index)
        return added

    def add_floodsub(self, count: int = 1, **changes: Any) -> list[int]:
        """Add and start FloodSub peers."""
        config = override(PubSubConfig(), changes)
        return self.add(
            count,
            protocols=(FLOODSUB,),
            build=lambda peer, rng: FloodSub(SimulatedIdentity(peer), rng, config),
        )

    def add_puppet(self, protocols: tuple[str, ...] = PROTOCOLS, address: str = "") -> int:
        """Add a peer that the test plays."""
        return self.add(protocols=protocols, address=address, build=lambda *_: Puppet())[0]

    def host(self, index: int) -> Host:
        return self.network.hosts[index]

    def router(self, index: int) -> GossipSub:
        machine: Any = self.host(index).machine
        assert isinstance(machine, GossipSub)
        return machine

    def puppet(self, index: int) -> Puppet:
        machine: Any = self.host(index).machine
        assert isinstance(machine, Puppet)
        return machine

    def id(self, index: int) -> bytes:
        return self.host(index).id

    def mesh(self, index: int, topic: str = "news") -> list[int]:
        """The mesh of a peer, as numbers."""
        links = self.router(index).mesh.links.get(topic, {})
        return [int.from_bytes(peer, "big") for peer in links]

    # Connections.

    def connect(self, dialler: int, listener: int) -> None:
        self.network.dial(self.host(dialler), self.id(listener))
        self.run(0.01)

    def disconnect(self, one: int, other: int) -> None:
        self.network.disconnect(self.host(one), self.id(other))
        self.run(0.01)

    def connect_some(self, peers: list[int], links: int) -> None:
        """Each peer dials `links` others at random, as go's tests do."""
        for peer in peers:
            for other in self.randomness.sample([p for p in peers if p != peer], links):
                self.network.dial(self.host(peer), self.id(other))
        self.run(0.01)

    def connect_sparsely(self, peers: list[int]) -> None:
        self.connect_some(peers, min(3, len(peers) - 1))

    def connect_densely(self, peers: list[int]) -> None:
        self.connect_some(peers, min(10, len(peers) - 1))

    def connect_all(self, peers: list[int]) -> None:
        for place, peer in enumerate(peers):
            for other in peers[place + 1 :]:
                self.network.dial(self.host(peer), self.id(other))
        self.run(0.01)

    # Requests.

    def subscribe(self, peers: list[int], topic: str = "news") -> None:
        for peer in peers:
            self.host(peer).handle(Subscribe(topic))

    def unsubscribe(self, peers: list[int], topic: str = "news") -> None:
        for peer in peers:
            self.host(peer).handle(Unsubscribe(topic))

    def publish(self, peer: int, data: bytes, topic: str = "news") -> Published:
        """Publish, and return the receipt."""
        host = self.host(peer)
        host.handle(Publish(topic, data))
        assert host.receipts
        return host.receipts[-1]

    def send(self, puppet: int, to: int, rpc: Rpc) -> None:
        """Let a puppet send an RPC; it arrives a latency later."""
        host = self.host(puppet)
        host.effects.append(Send(self.id(to), rpc))
        host.carry_out()

    def run(self, seconds: float) -> None:
        engine = self.network.engine
        engine.run_until(engine.now + seconds)

    # What came of it.

    def data(self, peer: int) -> list[bytes]:
        """What was delivered to a peer, in order."""
        return [event.data for event in self.events[peer]]

    def rpcs(self, puppet: int, sender: int | None = None) -> list[Rpc]:
        """What a puppet received, from one peer or all."""
        wanted = None if sender is None else self.id(sender)
        return [
            rpc for peer, rpc in self.puppet(puppet).received if wanted is None or peer == wanted
        ]

    def trace(self, kind: type[TracePayload], peer: int | None = None) -> list[Any]:
        """The trace payloads of one kind, at one peer or all."""
        self.network.engine.recorder.flush()
        wanted = None if peer is None else self.id(peer)
        return self.log.of(kind, wanted)

    def refusals(self, peer: int) -> list[str]:
        """Why a peer did not act on what it was sent."""
        from rumormill.core.trace import Refuse

        return [refusal.reason for refusal in self.trace(Refuse, peer)]
