"""The simulated network: hosts, connections between them, and what can go wrong with those.

Connections are mutual. Opening one takes the dialler's latency to the listener, and both sides
learn of it at the same moment; when one ends, each side learns of it when the news can have
reached it, and in any case before it hears of a new connection to the same peer. A partition
breaks the connections that cross it and lets no new ones through; what it cut or kept from being
dialled is dialled when it ends. A machine that asked for a connection itself is told when there is
none, and has to ask again.
"""

import random
from collections.abc import Callable

from rumormill.core.bounded import drop, take_out
from rumormill.core.ids import PeerId
from rumormill.core.inputs import ConnectFailed, PeerConnected, PeerDisconnected, Start
from rumormill.core.machine import Machine
from rumormill.core.randomness import Randomness
from rumormill.sim.draws import Generators
from rumormill.sim.engine import Engine
from rumormill.sim.host import Host
from rumormill.sim.latency import LatencyModel, constant
from rumormill.sim.link import NO_RELAY, PEER_DOWN, Circuit, Link, LinkFaults, RoundTrip
from rumormill.sim.mail import UNKNOWN_AFTER, UNKNOWN_PEER, UNREACHABLE, Correspondent, Post
from rumormill.sim.relays import Relays
from rumormill.trace.entries import Recorder

CRASHED = "crash"
NO_COMMON_PROTOCOL = "no common protocol"

REDIAL_AFTER = 1.0
"""Seconds until a link is dialled again that a relay has ended; our choice."""


def peer_id(index: int) -> PeerId:
    """The id of the host with this number."""
    return index.to_bytes(4, "big")


class Network:
    """All hosts of a simulation and the connections between them."""

    def __init__(
        self,
        seed: int,
        recorder: Recorder | None = None,
        latency: LatencyModel | None = None,
        faults: LinkFaults | None = None,
        round_trip: RoundTrip | None = None,
        processing_delay: float = 0.0,
        query_round_trip: RoundTrip | None = None,
        *,
        redials: bool = True,
    ) -> None:
        self.seed = seed
        self.engine = Engine(Recorder() if recorder is None else recorder)
        self.latency = latency or constant(0.05)
        self.faults = faults or LinkFaults()
        self.inbox_limit = self.faults.queue_limit
        self.round_trip = round_trip
        self.query_round_trip = query_round_trip
        self.processing_delay = processing_delay
        self._redials = redials
        """Whether what a partition has cut is dialled when it ends; else that is up to the
        machines."""
        self.hosts: list[Host] = []
        self.by_id: dict[PeerId, Host] = {}
        self.generators = Generators(seed)
        self.link_randomness = random.Random(f"{seed}/links")
        self._dialling: dict[tuple[int, int], None] = {}
        self._cut: dict[tuple[int, int], None] = {}
        self._group_of: dict[int, int] = {}
        self._incarnations: dict[int, int] = {}
        self.relays: Relays | None = None
        """What peers behind NATs are reached through; None where everybody is public."""
        self.post = Post(self)

    def add_host(
        self,
        protocols: tuple[str, ...],
        build: Callable[[PeerId, Randomness], Machine],
        address: str = "",
    ) -> Host:
        """Add a peer that is not up yet."""
        index = len(self.hosts)
        peer = peer_id(index)
        where = address or f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}"
        host = Host(self, index, peer, where, protocols, build)
        self.hosts.append(host)
        self.by_id[peer] = host
        return host

    # Peers come and go.

    def start(self, host: Host, *, keep_state: bool = False) -> None:
        """Bring a host up, with a new machine or the one that it had."""
        if host.up:
            return
        if keep_state and self._incarnations.get(host.index):
            machine = host.machine
        else:
            incarnation = self._incarnations.get(host.index, 0) + 1
            self._incarnations[host.index] = incarnation
            draws = self.generators.draws(f"peer/{host.index}/{incarnation}")
            machine = host.build(host.id, draws)
        self._bring_up(host, machine)

    def _bring_up(self, host: Host, machine: Machine) -> None:
        host.start(machine)
        if self.relays is not None:
            self.relays.came_up(host)
        host.handle(Start())

    def replace_machine(self, host: Host, machine: Machine) -> None:
        """Put another machine on a host; it goes down for a moment to take it in."""
        self.crash(host)
        self._incarnations[host.index] = self._incarnations.get(host.index, 0) + 1
        self._bring_up(host, machine)

    def crash(self, host: Host) -> None:
        """Take a host down without a word; its peers learn of it a latency later."""
        if not host.up:
            return
        lost = [self.by_id[peer] for peer in host.links]
        for target in lost:
            self._close(host, target, tell_first=False, lost=True)
        host.stop(CRASHED)
        if self.relays is not None:
            self.relays.went_down(host)
        # A machine that comes back with its state must not believe in connections that are gone.
        untold, host.disconnects = host.disconnects, {}
        for peer in (*untold, *(target.id for target in lost)):
            host.machine.handle(PeerDisconnected(peer), self.engine.now, [])

    # Connections.

    def reachable(self, one: Host, other: Host) -> bool:
        """Whether both are up and no partition stands between them."""
        return one.up and other.up and not self.separated(one, other)

    def find(self, peer: PeerId) -> Host | None:
        """The host with this id."""
        return self.by_id.get(peer)

    def separated(self, one: Correspondent, other: Correspondent) -> bool:
        """Whether a partition stands between two hosts."""
        group = self._group_of
        return bool(group) and group.get(one.index, -1) != group.get(other.index, -1)

    def dial(self, dialler: Host, peer: PeerId) -> None:
        """Open a connection; a peer that is unknown or out of reach cannot be dialled."""
        listener = self.by_id.get(peer)
        if listener is None or listener is dialler or not (dialler.up and listener.up):
            return
        if self.separated(dialler, listener):
            self._cut[dialler.index, listener.index] = None
            return
        pair = _pair(dialler, listener)
        if peer in dialler.links or pair in self._dialling:
            return
        circuit = None if self.relays is None else self.relays.connect(dialler, listener)
        if circuit is not None and not circuit.open:
            self._no_relay(dialler, listener)
            return
        self._dialling[pair] = None
        if circuit is None:
            latency = self.latency(dialler.index, listener.index)
        else:
            latency = circuit.delay(dialler.id)
        dialled = (dialler, listener, circuit)
        self.engine.schedule(self.engine.now + latency, self._establish, dialled)

    def connect(self, host: Host, peer: PeerId) -> None:
        """Open a connection at the wish of a machine, which is told when that fails."""
        if peer in host.links:
            return
        other = self.by_id.get(peer)
        if other is None or other is host:
            self._report_failure(host, peer, UNKNOWN_AFTER, UNKNOWN_PEER)
        elif not self.reachable(host, other):
            there, back = (
                self.latency(host.index, other.index),
                self.latency(other.index, host.index),
            )
            self._report_failure(host, peer, there + back, _why(other))
        else:
            host.connecting[peer] = None
            self.dial(host, peer)

    def _report_failure(self, host: Host, peer: PeerId, delay: float, reason: str) -> None:
        host.connecting[peer] = None
        news = (host, host.session, ConnectFailed(peer, reason))
        self.engine.schedule(self.engine.now + delay, self._tell_failed, news)

    def _tell_failed(self, news: tuple[Host, int, ConnectFailed]) -> None:
        host, session, failed = news
        if host.session == session and failed.peer in host.connecting:
            take_out(host.connecting, failed.peer)
            host.notify(failed)

    def _fail(self, dialler: Host, listener: Host, reason: str) -> None:
        """A dial came to nothing: tell whoever wanted it, when that can be known."""
        for one, other in ((dialler, listener), (listener, dialler)):
            if other.id in one.connecting:
                latency = self.latency(other.index, one.index)
                self._report_failure(one, other.id, latency, reason)

    def _no_relay(self, dialler: Host, listener: Host) -> None:
        """Tell whoever wanted a connection that there is none; other links wait for a relay."""
        if listener.id in dialler.connecting or dialler.id in listener.connecting:
            self._fail(dialler, listener, NO_RELAY)
        elif self.relays is not None:
            self.relays.wait(dialler, listener)

    def _establish(self, dialled: tuple[Host, Host, Circuit | None]) -> None:
        dialler, listener, circuit = dialled
        del self._dialling[_pair(dialler, listener)]
        if not self.reachable(dialler, listener):
            if listener.id in dialler.connecting or dialler.id in listener.connecting:
                self._fail(dialler, listener, _why(listener if dialler.up else dialler))
            elif self.separated(dialler, listener):
                self._cut[dialler.index, listener.index] = None
            return
        if circuit is not None and not circuit.open:
            self._no_relay(dialler, listener)
            return
        spoken = next((p for p in dialler.protocols if p in listener.protocols), None)
        if spoken is None:
            self._fail(dialler, listener, NO_COMMON_PROTOCOL)
            return
        if circuit is not None and circuit.direct:
            circuit = None
        for one, other, outbound in ((dialler, listener, True), (listener, dialler, False)):
            latency = self.latency(one.index, other.index)
            if circuit is not None:
                latency = circuit.delay(one.id)
            if self.processing_delay:  # else one number for all links, where all are alike
                latency += self.processing_delay
            link = Link(one, other, latency, self.faults, self.link_randomness, circuit)
            link.outbound = outbound
            one.links[other.id] = link
        for one, other, outbound in ((dialler, listener, True), (listener, dialler, False)):
            take_out(one.connecting, other.id)
            if take_out(one.disconnects, other.id) is not None:
                one.notify(PeerDisconnected(other.id))
            one.notify(PeerConnected(other.id, spoken, outbound, other.address))

    def disconnect(self, host: Host, peer: PeerId) -> None:
        """Close a connection at the wish of one side."""
        other = self.by_id.get(peer)
        if other is None:
            return
        if peer in host.routes or host.warm.since(other.index) >= 0:
            self.post.close_routes(host, other)
        if peer in host.links:
            self._close(host, other)

    def lose(self, one: Host, other: Host) -> None:
        """Close a connection that a relay has ended; both learn of it, and it is dialled again."""
        outbound = one.links[other.id].outbound
        dialler, listener = (one, other) if outbound else (other, one)
        self._close(dialler, listener, lost=True)
        if self._redials:
            at = self.engine.now + REDIAL_AFTER
            self.engine.schedule(at, self._redial, (dialler, listener))

    def _redial(self, pair: tuple[Host, Host]) -> None:
        dialler, listener = pair
        self.dial(dialler, listener.id)

    def _close(
        self, host: Host, other: Host, *, tell_first: bool = True, lost: bool = False
    ) -> None:
        forth, back = drop(host.links, other.id), drop(other.links, host.id)
        assert forth is not None
        assert back is not None
        forth.open = back.open = False
        now = self.engine.now
        if tell_first:
            self._announce_disconnect(host, other.id, lost, now)
        self._announce_disconnect(other, host.id, lost, now + forth.latency)

    def _announce_disconnect(self, host: Host, peer: PeerId, lost: bool, at: float) -> None:
        number = host.disconnects[peer] = self.engine.next_order()
        news = (host, PeerDisconnected(peer, lost), number)
        self.engine.schedule(at, self._tell_disconnected, news)

    def _tell_disconnected(self, news: tuple[Host, PeerDisconnected, int]) -> None:
        host, gone, number = news
        if host.disconnects.get(gone.peer) == number:
            take_out(host.disconnects, gone.peer)
            host.notify(gone)

    # Partitions.

    def partition(self, groups: list[list[int]]) -> list[tuple[int, int]]:
        """Separate groups of hosts; return the (dialler, listener) pairs that were cut."""
        self._group_of = {index: number for number, group in enumerate(groups) for index in group}
        cut: list[tuple[int, int]] = []
        for host in self.hosts:
            for peer, link in list(host.links.items()):
                other = self.by_id[peer]
                if link.outbound and not self.reachable(host, other):
                    cut.append((host.index, other.index))
                    self._close(host, other, lost=True)
        if self.relays is not None:
            self.relays.check()
        self._dial_again()
        self._cut.update(dict.fromkeys(cut))
        return cut

    def heal(self) -> None:
        """End all partitions and dial again what they cut."""
        self._group_of = {}
        self._dial_again()

    def _dial_again(self) -> None:
        """Dial what an earlier partition cut; what is still cut is noted again by `dial`."""
        cut, self._cut = self._cut if self._redials else {}, {}
        for dialler, listener in cut:
            self.dial(self.hosts[dialler], self.hosts[listener].id)


def _why(other: Host) -> str:
    return UNREACHABLE if other.up else PEER_DOWN


def _pair(one: Host, other: Host) -> tuple[int, int]:
    return (min(one.index, other.index), max(one.index, other.index))
