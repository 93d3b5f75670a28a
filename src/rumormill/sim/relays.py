"""Peers behind NATs, the relays through which they are dialled, and the circuits that these carry.

A peer behind a NAT dials public peers as everybody does, but can be dialled only through a public
peer with which it has a reservation. That gives a circuit: a connection with a second hop and a
budget of bytes and time, which the relay ends. Where it can be, it is replaced by a direct
connection, as DCUtR does: at once when the dialler is public (the listener dials back), and after
three ways over the relay when a hole can be punched, which is a property of the two peers. What is
on its way meanwhile keeps its order.

Connections are what a node has between two peers: links, letters and questions share one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol, get_args

from rumormill.core.trace import Refuse
from rumormill.sim.engine import Engine
from rumormill.sim.host import Host
from rumormill.sim.latency import LatencyModel
from rumormill.sim.link import NO_RELAY, PEER_DOWN, Circuit, Way
from rumormill.sim.mail import Correspondent
from rumormill.sim.reach import Reach, ReachClass

RESERVE_AFTER: Final = 1.0
"""Seconds until a peer that came up, or has lost a relay, has found another: our choice."""

MOST_ASKED: Final = 16
"""Public peers that are asked for a reservation before the next pause; our choice."""

RELAY_FULL: Final = "no reservation left"
SPENT: Final = "relay's budget spent"
TIME_OVER: Final = "relay's time over"
RELAY_GONE: Final = "relay gone"


class _Network(Protocol):
    """What relays need of the network that they stand in."""

    seed: int
    engine: Engine
    latency: LatencyModel
    processing_delay: float
    hosts: list[Host]

    def reachable(self, one: Host, other: Host) -> bool: ...

    def lose(self, one: Host, other: Host) -> None: ...

    def dial(self, dialler: Host, peer: bytes) -> None: ...


class _HostCircuit(Circuit):
    """A circuit between two hosts."""

    relay: Host

    def __init__(
        self,
        relays: "Relays",
        dialler: Host,
        target: Host,
        relay: Host,
        delays: Mapping[bytes, float],
        limit: int = 0,
    ) -> None:
        super().__init__(relay, delays, limit)
        self._relays = relays
        self.dialler, self.target = dialler, target

    def spend(self, sender: bytes) -> None:
        """Leave the end to those who keep account."""
        self._relays.spent(self, sender)


class Relays:
    """All reservations and circuits of a network."""

    def __init__(
        self, network: _Network, reach: Reach, classes: Sequence[ReachClass], draw: Random
    ) -> None:
        """`classes` are those of the first peers, by number; who comes behind them is public, but
        relays nothing."""
        self._network = network
        self._reach = reach
        self._draw = draw
        self._classes = classes
        self._public = [index for index, each in enumerate(classes) if each == "public"]
        behind = [index for index, each in enumerate(classes) if each != "public"]
        self._reserved: dict[int, dict[int, None]] = {index: {} for index in behind}
        """With whom each peer behind a NAT has reservations."""
        self._granted: dict[int, dict[int, None]] = {index: {} for index in self._public}
        self._circuits: dict[int, dict[_HostCircuit, None]] = {index: {} for index in self._public}
        """What goes through each relay now."""
        self._looking: dict[int, int] = {}
        """Who looks for relays, and in which session."""
        self._waiting: dict[int, dict[int, None]] = {index: {} for index in behind}
        """Whose links to a peer behind a NAT wait until that has a relay."""
        self._connections: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._carried: Counter[int] = Counter()
        self._no_relay = 0

    # Dialling.

    def connect(self, dialler: Correspondent, target: Correspondent) -> Circuit | None:
        """Open a connection, unless there is one; None is a direct one.

        A circuit that is not open means that there is no way.
        """
        for way in _ways(dialler, target, self._network.engine.now):
            if way.circuit is None or way.circuit.open:
                return way.circuit
        reserved = self._reserved.get(target.index)
        if reserved is None or dialler.index in reserved:
            self._connections["direct"] += 1
            return None
        return self._open(self._network.hosts[dialler.index], self._network.hosts[target.index])

    def _open(self, dialler: Host, target: Host) -> _HostCircuit:
        network = self._network
        relays = [network.hosts[index] for index in self._reserved[target.index]]
        usable = [
            (self._delay(dialler, relay, target), relay.index)
            for relay in relays
            if network.reachable(dialler, relay) and network.reachable(target, relay)
        ]
        if not usable:
            self._no_relay += 1
            dialler.record((network.engine.now, dialler.id, Refuse(target.id, NO_RELAY)))
            latency = network.latency
            delays = {
                dialler.id: latency(dialler.index, target.index),
                target.id: latency(target.index, dialler.index),
            }
            nowhere = _HostCircuit(self, dialler, target, dialler, delays)
            nowhere.closed_because = NO_RELAY
            return nowhere
        there, index = min(usable)
        relay = network.hosts[index]
        back = self._delay(target, relay, dialler)
        delays = {dialler.id: there, target.id: back}
        circuit = _HostCircuit(self, dialler, target, relay, delays, self._reach.circuit_bytes)
        self._circuits[index][circuit] = None
        self._connections["relayed"] += 1
        self._plan(circuit, there, back)
        return circuit

    def _delay(self, source: Host, relay: Host, target: Host) -> float:
        latency = self._network.latency
        return latency(source.index, relay.index) + latency(relay.index, target.index)

    def _plan(self, circuit: _HostCircuit, there: float, back: float) -> None:
        """Have a circuit replaced by a direct connection where it can be, and ended in time."""
        dialler, target = circuit.dialler.index, circuit.target.index
        opened, schedule = self._network.engine.now + there, self._network.engine.schedule
        directly = self._network.latency(target, dialler)
        if dialler not in self._reserved:
            schedule(opened + directly, self._replace, (circuit, "reversed"))
        elif self._can_punch(dialler, target):
            talk = back + there + back
            schedule(opened + talk + directly, self._replace, (circuit, "punched"))
        schedule(opened + self._reach.circuit_time, self._expire, circuit)

    def _can_punch(self, one: int, other: int) -> bool:
        if not self._classes[one] == self._classes[other] == "punchable":
            return False
        pair = Random(f"{self._network.seed}/punch/{min(one, other)}/{max(one, other)}")
        return pair.random() < self._reach.punch_success

    def _replace(self, replaced: tuple[_HostCircuit, str]) -> None:
        """The direct connection is there: everything moves to it."""
        circuit, kind = replaced
        dialler, target = circuit.dialler, circuit.target
        if not circuit.open or not self._network.reachable(dialler, target):
            return
        self._forget(circuit)
        circuit.direct = True
        self._connections["relayed"] -= 1
        self._connections[kind] += 1
        for way in _all_ways(dialler, target):
            if way.circuit is circuit:
                indices = (dialler.index, target.index)
                source, to = indices if way.source is dialler else indices[::-1]
                way.circuit = None
                way.latency = self._network.latency(source, to) + self._network.processing_delay

    # The ends of circuits.

    def spent(self, circuit: _HostCircuit, sender: bytes) -> None:
        """A sender has spent a circuit's budget."""
        self._refuse(circuit.relay, sender, SPENT)
        self._end(circuit, SPENT)

    def _expire(self, circuit: _HostCircuit) -> None:
        if circuit not in self._circuits[circuit.relay.index]:
            return
        used = _ways(circuit.dialler, circuit.target, self._network.engine.now)
        if any(way.circuit is circuit for way in used):
            self._refuse(circuit.relay, circuit.dialler.id, TIME_OVER)
            self._end(circuit, TIME_OVER)
        else:
            self._forget(circuit)

    def _end(self, circuit: _HostCircuit, reason: str) -> None:
        """Take down what goes over a circuit; letters find that out when they arrive."""
        self._forget(circuit)
        self._ended[reason] += 1
        circuit.closed_because = reason
        dialler, target = circuit.dialler, circuit.target
        for one, other in ((dialler, target), (target, dialler)):
            route = one.routes.get(other.id)
            if route is not None and route.circuit is circuit:
                del one.routes[other.id]
        link = dialler.links.get(target.id)
        if link is not None and link.circuit is circuit:
            self._network.lose(dialler, target)

    def _forget(self, circuit: _HostCircuit) -> None:
        self._circuits[circuit.relay.index].pop(circuit, None)
        self._carried[circuit.relay.index] += circuit.carried

    def _refuse(self, relay: Correspondent, peer: bytes, reason: str) -> None:
        relay.record((self._network.engine.now, relay.id, Refuse(peer, reason)))

    # Reservations.

    def came_up(self, host: Host) -> None:
        """A peer behind a NAT looks for relays from now on."""
        if host.index in self._reserved:
            self._look(host)

    def _look(self, host: Host) -> None:
        if self._looking.get(host.index) != host.session:
            self._looking[host.index] = host.session
            at = self._network.engine.now + RESERVE_AFTER
            self._network.engine.schedule(at, self._reserve, (host, host.session))

    def _reserve(self, seeker: tuple[Host, int]) -> None:
        host, session = seeker
        if host.session != session or not host.up:
            return
        del self._looking[host.index]
        reserved, wanted = self._reserved[host.index], min(self._reach.relays, len(self._public))
        for _ in range(MOST_ASKED):
            if len(reserved) == wanted:
                break
            relay = self._network.hosts[self._draw.choice(self._public)]
            granted = self._granted[relay.index]
            if relay.index in reserved or not self._network.reachable(host, relay):
                continue
            if len(granted) >= self._reach.reservations:
                self._refuse(relay, host.id, RELAY_FULL)
                continue
            granted[host.index] = reserved[relay.index] = None
        if len(reserved) < wanted:
            self._look(host)
        if reserved:
            diallers, self._waiting[host.index] = self._waiting[host.index], {}
            for dialler in diallers:
                self._network.dial(self._network.hosts[dialler], host.id)

    def wait(self, dialler: Host, target: Host) -> None:
        """Dial a peer behind a NAT as soon as it has a relay."""
        self._waiting[target.index][dialler.index] = None

    def went_down(self, host: Host) -> None:
        """A peer is gone, and with it all that it relayed and had reserved."""
        for circuits in list(self._circuits.values()):
            for circuit in list(circuits):
                if circuit.relay is host:
                    self._end(circuit, RELAY_GONE)
                elif host in (circuit.dialler, circuit.target):
                    circuit.closed_because = PEER_DOWN
                    self._forget(circuit)
        if host.index in self._reserved:
            for index in self._reserved[host.index]:
                del self._granted[index][host.index]
            self._reserved[host.index] = {}
        else:
            for index in list(self._granted.get(host.index, ())):
                self._lose_reservation(self._network.hosts[index], host)

    def check(self) -> None:
        """A partition has come: what it separates from its relay needs another."""
        reachable, hosts = self._network.reachable, self._network.hosts
        for index, circuits in self._circuits.items():
            relay = hosts[index]
            for circuit in list(circuits):
                ends = (circuit.dialler, circuit.target)
                if not all(reachable(end, relay) for end in ends):
                    self._end(circuit, RELAY_GONE)
            for reserved in list(self._granted[index]):
                if not reachable(hosts[reserved], relay):
                    self._lose_reservation(hosts[reserved], relay)

    def _lose_reservation(self, host: Host, relay: Host) -> None:
        del self._granted[relay.index][host.index]
        del self._reserved[host.index][relay.index]
        self._look(host)

    def figures(self) -> dict[str, Any]:
        """What became of connections, for a run's figures."""
        carried = self._carried.copy()
        for index, circuits in self._circuits.items():
            carried[index] += sum(circuit.carried for circuit in circuits)
        kinds = ("direct", "reversed", "punched", "relayed")
        return {
            "reach": {
                "peers": {each: self._classes.count(each) for each in get_args(ReachClass)},
                "connections": {kind: self._connections[kind] for kind in kinds},
                "circuits_ended": dict(sorted(self._ended.items())),
                "dials_without_relay": self._no_relay,
                "relayed_bytes": carried.total(),
                "busiest_relay_bytes": max(carried.values(), default=0),
            }
        }


def build_relays(network: _Network, reach: Reach, peers: int, draw: Random) -> Relays | None:
    """What a scenario's peers are reached through; None where everybody is public."""
    return Relays(network, reach, reach.classes(peers, draw), draw) if reach.enabled else None


def _all_ways(one: Correspondent, other: Correspondent) -> Iterator[Way]:
    """Links and routes between two peers."""
    for source, target in ((one, other), (other, one)):
        for way in (source.links.get(target.id), source.routes.get(target.id)):
            if way is not None:
                yield way


def _ways(one: Correspondent, other: Correspondent, now: float) -> Iterator[Way]:
    """Those of them that are open now."""
    return (way for way in _all_ways(one, other) if way.alive(now))
