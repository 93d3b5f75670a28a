"""Attacks on the overlay: sybils that want mesh links in order to do harm with them.

A `Sybil` subscribes, asks everybody it is connected to for a mesh link, asks again when the
back-off after a PRUNE is over, and forwards what its orders say. A `Battle` is a network of honest
GossipSub peers with a steady stream of messages, into which sybils come. It measures from
deliveries alone.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from rumormill.core.effects import Effects, Send, SetTimer
from rumormill.core.event import Event
from rumormill.core.inputs import (
    Input,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    Subscribe,
    TimerFired,
)
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.gossipsub.router import GossipSub
from rumormill.protocols.pubsub.messages import Control, Message, Rpc, SubOpts
from rumormill.sim.host import Host
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.latency import parse_latency
from rumormill.sim.network import Network

TOPIC = "news"
REGRAFT_AFTER = 61.0
"""The published attacks: 1 minute of back-off; a second more, so that no rule is broken."""
ON_TIME = 3.0
"""Seconds: two heartbeats of gossip and the ways there and back."""
PROMPT = 0.3
"""Seconds: ten hops at most, so over mesh links alone, without gossip."""

Orders = Callable[[Message, float], bool]
"""Whether a sybil forwards a message now."""


class _Regraft(msgspec.Struct, frozen=True):
    """The timer of the next GRAFT to a peer."""

    peer: bytes


class Sybil:
    """An attacker's machine."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._peers: dict[bytes, None] = {}
        self._links: dict[bytes, None] = {}
        self._seen: dict[bytes, None] = {}

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        if isinstance(event, Received):
            self._on_rpc(event.peer, event.message, now, effects)
        elif isinstance(event, PeerConnected):
            self._peers[event.peer] = None
            effects.append(Send(event.peer, Rpc(subscriptions=(SubOpts(True, TOPIC),))))
            self._graft(event.peer, effects)
        elif isinstance(event, PeerDisconnected):
            self._peers.pop(event.peer, None)
            self._links.pop(event.peer, None)
        elif isinstance(event, TimerFired) and isinstance(event.timer, _Regraft):
            self._graft(event.timer.peer, effects)

    def _graft(self, peer: bytes, effects: Effects) -> None:
        if peer in self._peers and peer not in self._links:
            self._links[peer] = None
            effects.append(Send(peer, Rpc(control=Control(graft=(TOPIC,)))))

    def _on_rpc(self, peer: bytes, rpc: Any, now: float, effects: Effects) -> None:
        if rpc.control is not None:
            if rpc.control.prune:
                self._links.pop(peer, None)
                effects.append(SetTimer(_Regraft(peer), now + REGRAFT_AFTER))
            if rpc.control.graft:
                self._links[peer] = None
        for message in rpc.publish:
            message_id = message.author + message.seqno
            if message_id in self._seen:
                continue
            self._seen[message_id] = None
            if self._orders(message, now):
                copy = Rpc(publish=(message,))
                effects.extend(Send(link, copy) for link in self._links if link != peer)


def drop_all(_message: Message, _now: float) -> bool:
    """Forward nothing."""
    return False


class Battle:
    """Honest peers who publish, sybils who come, and what was delivered when."""

    def __init__(
        self, config: GossipSubConfig, *, honest: int, links: int, rate: float, seed: int = 1
    ) -> None:
        self.randomness = random.Random(f"{seed}/battle")
        self.network = Network(seed, latency=parse_latency("uniform:20ms-30ms", 1000, self._rng()))
        self.config = config
        self.received: list[dict[bytes, float]] = []
        self.published: list[tuple[float, bytes]] = []
        self.honest = [self._add_honest() for _ in range(honest)]
        self.sybils: list[Host] = []
        self._publishers: list[Host] = []
        self._rate = rate
        self._links = links

    def _rng(self) -> random.Random:
        return random.Random(self.randomness.random())

    @property
    def now(self) -> float:
        return self.network.engine.now

    # The two sides.

    def _add_honest(self) -> Host:
        def build(peer: bytes, rng: random.Random) -> GossipSub:
            return GossipSub(SimulatedIdentity(peer), rng, self.config)

        host = self.network.add_host(PROTOCOLS, build)
        times: dict[bytes, float] = {}
        self.received.append(times)

        def note(event: Event) -> None:
            assert event.data not in times, "an event is delivered once"
            times[event.data] = self.network.engine.now

        host.on_event = note
        return host

    def join(self) -> None:
        """Bring the honest peers up; they do not know each other yet."""
        for host in self.honest:
            self.network.start(host)
            host.handle(Subscribe(TOPIC))

    def connect(self, publishers: list[Host] | None = None) -> None:
        """Let each honest peer dial half of its links, and soon all, or some of them, publish."""
        for host in self.honest:
            others = [other for other in self.honest if other is not host]
            for other in self.randomness.sample(others, self._links // 2):
                self.network.dial(host, other.id)
        self._publishers = publishers or self.honest
        self._schedule_publication(self.now + 5.0)

    def send_sybils(
        self,
        count: int,
        orders: Orders,
        *,
        degree: int,
        targets: list[Host] | None = None,
        addresses: int = 0,
        dialled: bool = False,
    ) -> None:
        """Let sybils come and connect, each from its own address or all from `addresses` of them.

        With `dialled` it is the honest peers who dial them, having been told wrong addresses.
        """
        victims = self.honest if targets is None else targets
        for number in range(count):
            address = f"192.0.2.{number % addresses}" if addresses else ""
            sybil = self.network.add_host(PROTOCOLS, lambda *_: Sybil(orders), address)
            self.network.start(sybil)
            self.sybils.append(sybil)
            for victim in self.randomness.sample(victims, min(degree, len(victims))):
                one, other = (victim, sybil) if dialled else (sybil, victim)
                self.network.dial(one, other.id)

    # The stream of messages.

    def _schedule_publication(self, at: float) -> None:
        self.network.engine.schedule(at, self._publish)

    def _publish(self, _argument: None) -> None:
        number = len(self.published)
        data = b"message %d" % number
        publisher = self._publishers[number % len(self._publishers)]
        self.published.append((self.now, data))
        publisher.handle(Publish(TOPIC, data))
        self._schedule_publication(self.now + 1 / self._rate)

    def run_until(self, at: float) -> None:
        self.network.engine.run_until(at)

    # What came of it.

    def delivery(
        self, begin: float, end: float, *, within: float = 1e9, of: list[int] | None = None
    ) -> float:
        """The part of (message, honest peer) pairs delivered, of messages of that time.

        What took longer than `within` does not count. `of` names the receivers.
        """
        receivers = range(len(self.honest)) if of is None else of
        pairs = arrived = 0
        for at, data in self.published:
            if begin <= at < end:
                pairs += len(receivers)
                for receiver in receivers:
                    when = self.received[receiver].get(data)
                    arrived += when is not None and when - at <= within
        assert pairs
        return arrived / pairs

    def recovered(self, attack: float, end: float, within: float) -> float:
        """Seconds from the attack to the last message that took somebody longer, or got lost."""
        worst = attack
        for at, data in self.published:
            if attack <= at < end:
                for times in self.received:
                    if times.get(data, at + 1e9) - at > within:
                        worst = at
        return worst - attack

    def sybil_links(self, host: Host | None = None) -> int:
        """Mesh links that honest peers, or one of them, have with sybils."""
        hostile = {sybil.id for sybil in self.sybils}
        hosts = self.honest if host is None else [host]
        return sum(
            peer in hostile for one in hosts for peer in one.machine.mesh.links.get(TOPIC, ())
        )

    def fewest_honest_links(self) -> int:
        """Mesh links with honest peers, of the honest peer that has fewest."""
        return min(
            len(one.machine.mesh.links.get(TOPIC, ())) - self.sybil_links(one)
            for one in self.honest
        )

    def all_links(self) -> int:
        return sum(len(one.machine.mesh.links.get(TOPIC, ())) for one in self.honest)
