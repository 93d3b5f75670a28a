"""HyParView alone: a machine that does nothing else, and networks of it in the simulator."""

import random
from typing import Any

import msgspec

from rumormill.core.effects import Effects
from rumormill.core.ids import no_addresses
from rumormill.core.inputs import (
    ConnectFailed,
    Input,
    PeerConnected,
    PeerDisconnected,
    Received,
    Start,
    TimerFired,
)
from rumormill.core.trace import Refuse, RpcMeta
from rumormill.overlay.hyparview.config import HyParViewConfig
from rumormill.overlay.hyparview.hyparview import HyParView
from rumormill.overlay.hyparview.messages import MEMBERSHIP, Membership
from rumormill.sim.latency import parse_latency
from rumormill.sim.network import Network

PROTOCOL = "/hyparview"


class Letter(msgspec.Struct):
    """A membership message as the simulator carries it."""

    message: Membership
    cached_meta: RpcMeta | None = None
    urgent: bool = True

    @property
    def meta(self) -> RpcMeta:
        if self.cached_meta is None:
            size = MEMBERSHIP.size(self.message)
            self.cached_meta = RpcMeta(size=size, operations=(self.message.operation,))
        return self.cached_meta


def nobody_is_told(_peer: bytes, _now: float, _effects: Effects) -> None:
    """A membership that nothing stands on."""


def view_of(peer: bytes, rng: random.Random, config: HyParViewConfig) -> HyParView:
    told = {"on_up": nobody_is_told, "on_down": nobody_is_told}
    return HyParView(peer, rng, config, wrap=Letter, addresses=no_addresses, **told)


class Member:
    """A machine that is a member and nothing else."""

    def __init__(self, peer: bytes, rng: random.Random, config: HyParViewConfig) -> None:
        self.view = view_of(peer, rng, config)

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        view = self.view
        if isinstance(event, Received):
            letter: Any = event.message
            view.on_message(event.peer, letter.message, now, effects)
        elif isinstance(event, TimerFired):
            view.on_timer(event.timer, now, effects)
        elif isinstance(event, PeerConnected):
            view.on_connected(event.peer, event.outbound, now, effects)
        elif isinstance(event, PeerDisconnected):
            view.on_disconnected(event.peer, now, effects)
        elif isinstance(event, ConnectFailed):
            view.on_connect_failed(event.peer, now, effects)
        elif isinstance(event, Start):
            view.start(now, effects)


class Overlay:
    """A simulated network of members, each joining through a random earlier one.

    Neighbours are not exchanged unless told: a network that is left alone becomes quiet.
    """

    def __init__(self, peers: int, seed: int = 1, interval: float = 0.05, **config: Any) -> None:
        settings = HyParViewConfig(**{"swap_interval": 0.0, **config})
        self.rng = random.Random(f"{seed}/overlay")
        latency = parse_latency("uniform:10ms-100ms", peers, random.Random(seed))
        self.network = Network(seed, latency=latency)
        self.engine = self.network.engine
        for index in range(peers):
            host = self.network.add_host((PROTOCOL,), lambda peer, rng: Member(peer, rng, settings))
            self.engine.schedule(index * interval, self._join, host)
        self.engine.run_until(peers * interval)

    def _join(self, host: Any) -> None:
        self.network.start(host)
        if host.index:
            contact = self.network.hosts[self.rng.randrange(host.index)]
            self.network.dial(host, contact.id)

    def run(self, seconds: float) -> None:
        self.engine.run_until(self.engine.now + seconds)

    def crash(self, share: float) -> None:
        """Crash a share of the peers that are up, all at once."""
        up = [host for host in self.network.hosts if host.up]
        for host in self.rng.sample(up, round(share * len(up))):
            self.network.crash(host)

    def views(self) -> dict[bytes, HyParView]:
        """The members that are up."""
        found = {}
        for host in self.network.hosts:
            if host.up:
                machine: Any = host.machine
                found[host.id] = machine.view
        return found

    def lopsided(self) -> list[tuple[bytes, bytes]]:
        """Pairs of which one takes the other for a neighbour, and the other does not."""
        views = self.views()
        return [
            (peer, other)
            for peer, view in views.items()
            for other in view.active
            if other not in views or peer not in views[other].active
        ]

    def giant_component(self) -> float:
        """The share of living peers that the largest connected part has."""
        views = self.views()
        largest, seen = 0, dict[bytes, None]()
        for start in views:
            if start in seen:
                continue
            seen[start] = None
            part = [start]
            for peer in part:
                for other in views[peer].active:
                    if other in views and other not in seen:
                        seen[other] = None
                        part.append(other)
            largest = max(largest, len(part))
        return largest / len(views)


class Alone:
    """One member whose surroundings the test plays."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        self.me = b"me"
        self.now = 1000.0
        self.view = view_of(self.me, random.Random(seed), HyParViewConfig(**config))
        self.effects: Effects = []
        self.view.start(self.now, self.effects)
        self.effects.clear()

    def connect(self, peer: bytes, *, outbound: bool = False) -> Effects:
        self.effects = []
        self.view.on_connected(peer, outbound, self.now, self.effects)
        return self.effects

    def receive(self, peer: bytes, message: Membership) -> Effects:
        """Take a message; return what is done about it."""
        self.effects = []
        self.view.on_message(peer, message, self.now, self.effects)
        return self.effects

    @property
    def refused(self) -> list[str]:
        """Why the last message was refused."""
        return [effect.reason for effect in self.effects if isinstance(effect, Refuse)]
