"""A scenario, run: peers join, publish, suffer, and the trace tells what came of it.

Each source of randomness has a generator of its own, named after what it decides and seeded from
the scenario's seed, so that a change in one part of a run does not reshuffle the others.
"""

import functools
import gc
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rumormill.core import trace
from rumormill.core.config import Config, require
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Subscribe, Unsubscribe
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness
from rumormill.members.config import MembersConfig
from rumormill.members.peer import MemberPeer, queries_of, with_members
from rumormill.protocols.registry import NO_HOOKS, Begin, Hooks, ProtocolSpec, QuerySpec, protocol
from rumormill.sim.attacker import Attacker
from rumormill.sim.churn import Churn
from rumormill.sim.faults import FaultAction, expand_faults
from rumormill.sim.forming import LOOK_INTERVAL, Forming
from rumormill.sim.host import Host
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.journal import DEFAULT_LIMIT, Journal
from rumormill.sim.latency import build_bandwidth, parse_latency
from rumormill.sim.link import LinkFaults, RoundTrip
from rumormill.sim.network import Network, peer_id
from rumormill.sim.relays import build_relays
from rumormill.sim.replay import how_to_repeat
from rumormill.sim.scenario import FaultKind, Scenario
from rumormill.sim.set_up import CREATE_AT, NOT_CREATED, SUBSCRIBE_AT, SetUp
from rumormill.sim.snapshot import Given, state_of
from rumormill.sim.sync_liar import SyncLiar
from rumormill.sim.topic_table import TopicTable
from rumormill.sim.topology import build_topology
from rumormill.sim.unsubscribing import Change, Wishes, left_behind, plan_changes
from rumormill.sim.workload import PlannedPublish, build_plan
from rumormill.sync.messages import SYNC_QUERIES, SyncMessage
from rumormill.sync.peer import SyncedPeer
from rumormill.trace.entries import Observer, Recorder
from rumormill.wire.multiaddr import Multiaddr

PUBLISHER_DOWN = "publisher down"
PUBLISHER_HOSTILE = "publisher hostile"
UNFINISHED = "not published by the end"
DISK_TROUBLE: Mapping[str, str] = {
    "disk-full": "the disk is full",
    "disk-broken": "the log has failed",
}
"""Faults of disks, and what a journal says of them; the words are a node's."""

_PROGRESS_STEPS = 200
_PORT = 4001
"""The port that simulated peers name when they introduce each other: libp2p's usual one."""

_filler = functools.lru_cache(16)(bytes)
"""One payload per size, shared by all messages: a simulated message is its metadata."""


class Simulation:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, observers: Sequence[Observer] = ()) -> None:
        self.scenario = scenario
        self.members = MembersConfig(enabled=scenario.topology.kind == "self-formed")
        self.forming = Forming() if self.members.enabled else None
        watching = () if self.forming is None else (self.forming,)
        self.recorder = Recorder((*observers, *watching))
        self.spec = protocol(scenario.protocol)
        self.config = self.spec.configure(scenario.preset, scenario.parameters)
        self.servers = self._appoint_servers()
        self._hosts = scenario.peers + len(self.servers)
        inspected = self.spec.inspection
        self.inspection = None if inspected is None else inspected.begin(self.config)
        self._begin = self._beginning()
        self.plan = build_plan(scenario, self._randomness("workload"))
        require(
            self.spec.reads_log or scenario.sync.enabled or not scenario.disk.retains,
            "disk",
            f"what it deletes has no meaning with {self.spec.name}, which reads nothing back, and"
            " without sync",
        )
        require(
            self.spec.recovers or not scenario.sync.enabled,
            "sync.enabled",
            f"{self.spec.name} repairs histories itself",
        )
        links, check = scenario.links, scenario.check_codec
        self.network = Network(
            scenario.seed,
            self.recorder,
            parse_latency(links.latency, self._hosts, self._randomness("latency")),
            LinkFaults(links.jitter, links.loss, links.reorder, links.queue_limit),
            round_trip_of(self.spec, self.config) if check else None,
            processing_delay=scenario.processing_delay,
            query_round_trip=self._query_round_trip() if check else None,
            redials=not self.members.enabled,
        )
        draw = self._randomness("reach")
        self.network.relays = build_relays(self.network, scenario.reach, scenario.peers, draw)
        self.given: list[Given] = []
        """What each host's machine has from us, by the host's number."""
        self._add_hosts()
        self._neighbours: list[list[tuple[int, int]]] = [[] for _ in range(self._hosts)]
        for edge in build_topology(scenario.topology, scenario.peers, self._randomness("topology")):
            for end in edge:
                self._neighbours[end].append(edge)
        require(
            self.spec.topics is not None or scenario.topic == TopicTable(),
            "topic",
            f"has no meaning with {self.spec.name}, whose topics nobody creates",
        )
        self.set_up = SetUp(self.spec.topics, self.plan, scenario.topic, self._follow)
        self._faults = expand_faults(
            scenario, self.plan, self._randomness("faults"), len(self.servers)
        )
        self.changes = plan_changes(
            scenario.unsubscribing, self.plan, self._randomness("unsubscribing")
        )
        self.wishes = Wishes(self.plan)
        self._joined: dict[int, None] = {}
        self._crashed: dict[int, None] = {}
        self._hostile: dict[int, FaultAction] = {}
        self._may_subscribe = False
        self._publications: Iterator[PlannedPublish] | None = None

    def _query_round_trip(self) -> RoundTrip:
        """The check of questions and answers: sync's, and the protocol's where it has some."""
        sync = round_trip_of(SYNC_QUERIES, self.config)
        queries = queries_of(self.spec, self.members)
        own = sync if queries is None else round_trip_of(queries, self.config)
        return lambda message: (sync if type(message) is SyncMessage else own)(message)

    def _randomness(self, purpose: str) -> random.Random:
        return random.Random(f"{self.scenario.seed}/{purpose}")

    def _add_hosts(self) -> None:
        scenario, spec = self.scenario, self.spec
        draw = self._randomness("bandwidth")
        bandwidth = build_bandwidth(scenario.links.bandwidth, scenario.peers, draw)
        hooks = Hooks(addresses=functools.cache(self._addresses_of))
        disk, sync, everybody = scenario.disk, scenario.sync, range(self._hosts)
        read_back = spec.reads_log or sync.enabled or disk.commit_delay > 0
        read_back |= any(fault.kind in DISK_TROUBLE for fault in scenario.faults)
        # What members write down is read by who comes back, and by nobody else.
        notes = self.members.enabled and (scenario.faults or scenario.churn != Churn())
        deleting = round(disk.fraction * self._hosts)
        bound = dict.fromkeys(self._randomness("retention").sample(everybody, deleting))
        for index in everybody:
            journal: Journal | None = None
            if read_back or notes:
                journal = Journal(
                    commit_delay=disk.commit_delay,
                    limit=disk.limit if index in bound else DEFAULT_LIMIT,
                    max_age=disk.max_age if index in bound else None,
                    indexed=sync.enabled,
                    sum_bits=sync.sum_bits,
                    keeps_events=read_back,
                )
            self.given.append(Given(SimulatedIdentity(peer_id(index)), hooks))
            host = self.network.add_host(spec.protocol_ids, self._build)
            host.journal, host.asks_again = journal, spec.asks_again
            if index < scenario.peers:
                host.upload = bandwidth.upload[index]
                host.download = bandwidth.download[index]

    def _build(self, peer: PeerId, randomness: Randomness) -> Machine:
        given, sync = self.given[self.network.by_id[peer].index], self.scenario.sync
        machine = self.spec.build(given.identity, randomness, self.config, given.hooks)
        draws = self.network.generators.draws
        own = draws(f"members/{peer.hex()}")
        member = with_members(self.spec, machine, peer, own, self.members, given.hooks)
        if sync.enabled:
            check = self.spec.check_kept(machine)
            member = SyncedPeer(member, draws(f"sync/{peer.hex()}"), sync, check)
        return member

    def _addresses_of(self, peer: PeerId) -> Sequence[bytes]:
        """What a peer says of another's whereabouts: nobody dials it, but it takes its bytes."""
        host = self.network.by_id.get(peer)
        return () if host is None else (Multiaddr.tcp(host.address, _PORT).encode(),)

    def run(
        self, progress: Callable[[float], None] | None = None, *, until: float | None = None
    ) -> None:
        """Run to the end, or up to a time, from where another call goes on.

        `progress` is called with the part that is done, from 0 to 1. An error that escapes carries
        the seed and the way to repeat the run.
        """
        engine, end = self.network.engine, self.plan.end
        stop = end if until is None else min(until, end)
        if self._publications is None:
            self._schedule_everything()
        try:
            with _collector_paused():
                for step in range(1, _PROGRESS_STEPS + 1):
                    engine.run_until(min(stop, end * step / _PROGRESS_STEPS))
                    if progress is not None:
                        progress(engine.now / end)
                if until is None:
                    for host in self.network.hosts:
                        host.lose_publications(UNFINISHED)
                    self.recorder.close()
        except Exception as error:
            error.add_note(f"seed {self.scenario.seed}, virtual time {engine.now:.6f}")
            error.add_note(how_to_repeat(self.scenario))
            raise

    def _schedule_everything(self) -> None:
        """Put what the scenario wants into the engine."""
        scenario, engine = self.scenario, self.network.engine
        one_by_one = scenario.join == "one-by-one" and self._begin is None
        for host in self.network.hosts[scenario.peers :]:
            engine.schedule(0.0, self._join, host)
        for index, host in enumerate(self.network.hosts[: scenario.peers]):
            at = index * scenario.join_interval if one_by_one else 0.0
            engine.schedule(at, self._join, host)
        if self.inspection is not None:
            engine.schedule(0.0, self._observe)
        if self.forming is not None:
            engine.schedule(scenario.joined_at, self._look, self.forming)
        for action in self._faults:
            engine.schedule(action.at, self._strike, action)
        for change in self.changes:
            engine.schedule(change.at, self._change, change)
        if self.set_up.waits:
            begin, warm_up = scenario.joined_at, scenario.warm_up
            engine.schedule(begin + CREATE_AT * warm_up, self.set_up.create, self.network.hosts)
            engine.schedule(begin + SUBSCRIBE_AT * warm_up, self._subscribe_all)
            versions, span = scenario.topic.versions, self.plan.last_publication - self.plan.start
            for number in range(versions):
                at = self.plan.start + (number + 1) * span / (versions + 1)
                engine.schedule(at, self._renew_topics)
        self._publications = iter(self.plan.publications)
        self._schedule_publication()

    # Servers, and the state of all machines together.

    def _appoint_servers(self) -> list[PeerId]:
        """Name the peers that the protocol needs besides the scenario's; they come behind these."""
        servers, peers = self.spec.servers, self.scenario.peers
        if servers is None:
            return []
        named = [peer_id(peers + number) for number in range(servers.count(self.config))]
        self.config = servers.appoint(self.config, tuple(named))
        return named

    def _beginning(self) -> Begin | None:
        start, inspected = self.scenario.start, self.spec.inspection
        if not start:
            return None
        known = list(inspected.starts) if inspected is not None else []
        rule = f"{self.spec.name} begins in {', '.join(known) or 'no other state'}, not in {start}"
        require(start in known, "start", rule)
        return inspected.starts[start] if inspected is not None else None

    @property
    def machines(self) -> dict[PeerId, Machine]:
        """The machines of all peers that are up and honest."""
        honest = [
            host for host in self.network.hosts if host.up and host.index not in self._hostile
        ]
        return {host.id: protocol_of(host.machine) for host in honest}

    def states(self) -> dict[str, Any]:
        """What each of these machines shows and knows, by its peer, ready for JSON."""
        return {
            peer.hex(): {
                "view": state_of(machine.view()),
                "state": state_of(machine, self.given[self.network.by_id[peer].index]),
            }
            for peer, machine in self.machines.items()
        }

    def _observe(self, _argument: None = None) -> None:
        """Begin in the wanted state, and look at all machines now and in every interval."""
        engine = self.network.engine
        if self._begin is not None and engine.now == 0:
            for sender, letter in self._begin(self.machines, self._randomness("start")):
                host = self.network.by_id[sender]
                host.effects.append(letter)
                host.carry_out()
        if self.inspection is not None and self.spec.inspection is not None:
            for peer, payload in self.inspection.look(engine.now, self.machines):
                self.recorder.record((engine.now, peer, payload))
            interval = self.spec.inspection.interval(self.config)
            engine.schedule(engine.now + interval, self._observe)

    def _look(self, forming: Forming) -> None:
        """See in every interval whether the network has formed itself, until it has."""
        self.recorder.flush()
        engine = self.network.engine
        if not forming.look(self.network.hosts[: self.scenario.peers], engine.now):
            engine.schedule(engine.now + LOOK_INTERVAL, self._look, forming)

    # The workload.

    def _join(self, host: Host) -> None:
        self._joined[host.index] = None
        self._come_up(host)

    def _come_up(self, host: Host, *, keep_state: bool = False) -> None:
        """Start a peer that is down, unless it has yet to join or a crash still lasts."""
        index = host.index
        if host.up or index not in self._joined or index in self._crashed:
            return
        if index in self._hostile:
            self.network.replace_machine(host, self._attacker(index))
        else:
            self.network.start(host, keep_state=keep_state)
            if index < self.scenario.peers:
                for topic in self._named(self.wishes.left[index]) if keep_state else ():
                    host.handle(Unsubscribe(topic))  # what it left while it was down
                self._subscribe(host)
        hosts = self.network.hosts
        for dialler, listener in self._neighbours[index]:
            self.network.dial(hosts[dialler], hosts[listener].id)

    def _named(self, topics: Iterable[str]) -> list[Topic]:
        """What some topics of the plan are called, in all their versions, if they exist."""
        versions = self.set_up.versions
        return [name for topic in topics for name in versions.get(topic, ())]

    def _renew_topics(self, _argument: None = None) -> None:
        for topic in self.plan.topics:
            follow = functools.partial(self._follow, topic)
            self.set_up.renew(topic, self.network.hosts, follow)

    def _follow(self, topic: str) -> None:
        """Whoever wants a topic takes its newest version too; the last events of the one before
        may still come. Who is down or hostile does so later."""
        newest = self.set_up.newest(topic) if self._may_subscribe else None
        for host, wanted in zip(self.network.hosts, self.wishes.wanted, strict=False):
            if newest and topic in wanted and host.up and host.index not in self._hostile:
                host.submit(Subscribe(newest))

    def _subscribe(self, host: Host) -> None:
        if self.set_up.waits and not self._may_subscribe:
            return
        wanted = self.wishes.wanted[host.index]
        for topic in self._named(wanted):
            host.handle(Subscribe(topic))
        for topic in wanted:
            if topic not in self.set_up.versions:  # it waits, and is owed what is published
                host.record((self.network.engine.now, host.id, trace.Join(topic)))

    def _change(self, change: Change) -> None:
        """Let a peer subscribe to a topic or leave it; who is down or hostile does so later."""
        self.wishes.change(change)
        host = self.network.hosts[change.peer]
        if change.peer in self._hostile:
            return
        exists = change.topic in self.set_up.versions
        for topic in self._named([change.topic]) if exists else [change.topic]:
            if host.up and exists:
                host.submit(Subscribe(topic) if change.subscribes else Unsubscribe(topic))
            elif host.up or not change.subscribes:
                kind = trace.Join if change.subscribes else trace.Leave
                host.record((self.network.engine.now, host.id, kind(topic)))

    def left_behind(self) -> dict[str, Any]:
        """What is still known of subscriptions that have ended, for the figures of such a run."""
        if not self.changes:
            return {}
        hosts, left = self.network.hosts, self.wishes.left
        gone = [(hosts[i].id, topic) for i, mine in enumerate(left) for topic in self._named(mine)]
        return left_behind(self.machines, gone)

    def _subscribe_all(self, _argument: None = None) -> None:
        self._may_subscribe = True
        for host in self.network.hosts[: self.scenario.peers]:
            if host.up and host.index not in self._hostile:
                self._subscribe(host)

    def _schedule_publication(self) -> None:
        assert self._publications is not None
        planned = next(self._publications, None)
        if planned is not None:
            self.network.engine.schedule(planned.at, self._publish, planned)

    def _publish(self, planned: PlannedPublish) -> None:
        host = self.network.hosts[planned.publisher]
        topic = self.set_up.newest(planned.topic)
        if not host.up:
            host.skip_publish(topic or planned.topic, PUBLISHER_DOWN)
        elif planned.publisher in self._hostile:
            host.skip_publish(topic or planned.topic, PUBLISHER_HOSTILE)
        elif topic is None:
            host.fail_publish(planned.topic, NOT_CREATED)
        else:
            host.publish(topic, _filler(planned.size) if planned.data is None else planned.data)
        self._schedule_publication()

    # Faults.

    def _strike(self, action: FaultAction) -> None:
        if action.kind == "partition":
            self.network.partition([list(group) for group in action.groups])
        elif action.kind == "heal":
            self.network.heal()
        else:
            for index in action.peers:
                _STRIKES[action.kind](self, self.network.hosts[index], action)

    def _crash(self, host: Host, action: FaultAction) -> None:
        self._crashed[host.index] = None
        self.network.crash(host)

    def _restart(self, host: Host, action: FaultAction) -> None:
        self._crashed.pop(host.index, None)
        self._come_up(host, keep_state=action.keep_state)

    def _turn(self, host: Host, action: FaultAction) -> None:
        """Make a peer hostile, or honest again."""
        if action.kind == "byzantine":
            self._hostile[host.index] = action
        else:
            self._hostile.pop(host.index, None)
        self.network.crash(host)
        self._come_up(host)

    def _trouble_disk(self, host: Host, action: FaultAction) -> None:
        assert host.journal is not None
        host.journal.trouble = DISK_TROUBLE.get(action.kind, "")

    def _attacker(self, index: int) -> Machine:
        action, randomness = self._hostile[index], self._randomness(f"attacker/{index}")
        topics = self._named(self.plan.topics)
        left = self._named(self.wishes.wanted[index])
        if action.lie == "junk":
            return Attacker(self.spec.junk, topics, left, action.rate, randomness)
        return SyncLiar(action.lie, topics, left, action.rate, randomness)


_STRIKES: Mapping[FaultKind, Callable[[Simulation, Host, FaultAction], None]] = {
    "crash": Simulation._crash,
    "restart": Simulation._restart,
    "pause": lambda _, host, _action: host.pause(),
    "resume": lambda _, host, _action: host.resume(),
    "slow-reader": lambda _, host, action: host.read_slowly(action.rate),
    "normal-reader": lambda _, host, _action: host.read_slowly(0.0),
    "byzantine": Simulation._turn,
    "honest": Simulation._turn,
    "disk-full": Simulation._trouble_disk,
    "disk-freed": Simulation._trouble_disk,
    "disk-broken": Simulation._trouble_disk,
    "disk-mended": Simulation._trouble_disk,
}
"""What befalls one peer, by the kind of fault."""


def protocol_of(machine: Machine) -> Machine:
    """The protocol of a peer, with or without membership and sync."""
    while isinstance(machine, SyncedPeer | MemberPeer):
        machine = machine.protocol
    return machine


def round_trip_of(spec: ProtocolSpec | QuerySpec, config: Config) -> RoundTrip:
    """Return a check that sends every message through a protocol's codec.

    The receiver gets what was decoded, and decoding must lose nothing. The metadata stays the
    sender's, because bytes carry no message ids: the check does not change the trace.
    """

    decode = spec.decoder(config) if isinstance(spec, QuerySpec) else spec.decoder(config, NO_HOOKS)

    def round_trip(message: WireMessage) -> WireMessage:
        encoded = spec.encode(message)
        decoded = decode(encoded)
        if spec.encode(decoded) != encoded or len(encoded) != message.meta.size:
            raise AssertionError(
                f"the codec of {spec.protocol_ids[0]} altered a message: {message!r}"
            )
        decoded.cached_meta = message.meta
        return decoded

    return round_trip


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the cycle collector from walking millions of long-lived objects again and again.

    Simulated peers make almost no cycles; what they make is collected when the run ends.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
