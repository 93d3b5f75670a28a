"""Pulsarcast peers to experiment with: a small simulated world, and one machine held in the hand.

In `World` every message goes through the codec, so what is tested is what travels. Peers know each
other by a ring of connections and a few chords; Kademlia finds the rest.
"""

import random
from typing import Any

from rumormill.core.effects import (
    Append,
    Effects,
    KeepNote,
    Load,
    Outcome,
    Published,
    Send,
    SendAll,
)
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import (
    Command,
    Input,
    NotStored,
    PeerConnected,
    Publish,
    Received,
    Start,
    Stored,
    Subscribe,
    Unsubscribe,
)
from rumormill.core.trace import Penalise, Refuse, RejectMessage
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.protocols.pulsarcast.commands import CreateTopic
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.context import OURS
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import rpc
from rumormill.protocols.pulsarcast.format.additions import Addition
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor, TopicDescriptor
from rumormill.protocols.pulsarcast.format.rpc import Rpc
from rumormill.protocols.pulsarcast.format.signing import SignedEvent, sign_event
from rumormill.protocols.pulsarcast.peer import PulsarcastPeer
from rumormill.protocols.pulsarcast.spec import SPEC
from rumormill.protocols.pulsarcast.tree.trees import Branch, gap
from rumormill.protocols.registry import NO_HOOKS
from rumormill.sim.host import Host
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.journal import Journal
from rumormill.sim.link import LinkFaults
from rumormill.sim.network import Network, peer_id
from rumormill.sim.simulation import round_trip_of
from rumormill.trace.entries import Batch, Recorder

SMALL_DHT = KademliaConfig(alpha=2, paths=1, k=8)
"""A DHT that costs a test little."""


def config_of(**changes: Any) -> PulsarcastConfig:
    """A configuration for small networks: no events in the DHT unless a test is about that."""
    return PulsarcastConfig(**{"store_events": False, "kademlia": SMALL_DHT, **changes})


class Watch:
    """An observer that keeps the whole trace."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, PeerId, Any]] = []

    def observe(self, batch: Batch) -> None:
        """Keep a batch."""
        self.entries += batch

    def close(self) -> None:
        """Nothing is left to do."""


class World:
    """A simulated network of Pulsarcast peers, number 0 to `count` - 1."""

    def __init__(
        self,
        count: int,
        seed: int = 1,
        faults: LinkFaults | None = None,
        commit_delay: float = 0.0,
        **changes: Any,
    ) -> None:
        self.config = config_of(**changes)
        self._commit_delay = commit_delay
        self.watch = Watch()
        self.recorder = Recorder([self.watch])
        queries = SPEC.queries
        assert queries is not None
        self.network = Network(
            seed,
            self.recorder,
            faults=faults,
            round_trip=round_trip_of(SPEC, self.config),
            query_round_trip=round_trip_of(queries, self.config),
        )
        self.events: list[list[Event]] = [[] for _ in range(count)]
        self.outcomes: list[Outcome] = []
        for index in range(count):
            self._add(index)
        for host in self.network.hosts:
            self.network.start(host)
        self.wire(range(count))
        self.run(3.0)

    def _add(self, index: int) -> None:
        journal = Journal(commit_delay=self._commit_delay)
        host = self.network.add_host(
            SPEC.protocol_ids, lambda peer, rng: self.build(peer, rng, journal)
        )
        host.journal = journal
        host.on_event = self.events[index].append

    def build(self, peer: PeerId, rng: random.Random, journal: Journal) -> PulsarcastPeer:
        """Make a peer's machine; its journal is shown to those who want to look."""
        return PulsarcastPeer(SimulatedIdentity(peer), rng, self.config)

    def wire(self, peers: Any) -> None:
        """Connect peers in a ring, and each to the third after it."""
        members = list(peers)
        for place, index in enumerate(members):
            for step in (1, 3):
                other = members[(place + step) % len(members)]
                self.network.dial(self.host(index), peer_id(other))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.network.engine.run_until(self.network.engine.now + seconds)

    @property
    def now(self) -> float:
        """The time."""
        return self.network.engine.now

    def host(self, index: int) -> Host:
        """A peer's host."""
        return self.network.hosts[index]

    def journal(self, index: int) -> Journal:
        """A peer's disk."""
        journal = self.host(index).journal
        assert journal is not None
        return journal

    def machine(self, index: int) -> PulsarcastPeer:
        """A peer's machine."""
        machine = self.host(index).machine
        assert isinstance(machine, PulsarcastPeer)
        return machine

    # What peers are asked to do.

    def command(self, index: int, body: object, wait: float = 3.0) -> Outcome:
        """Put a command to a peer and wait for its outcome."""
        found: list[Outcome] = []
        self.host(index).command(body, found.append)
        self.run(wait)
        assert found, f"{body} has no outcome"
        return found[0]

    def create(self, author: int, name: str = "news", **options: Any) -> Topic:
        """Create a topic and wait until it can be found."""
        outcome = self.command(author, CreateTopic(name=name, **options))
        assert isinstance(outcome.result, TopicDescriptor), outcome.error
        return cids.text(outcome.result.cid)

    def subscribe(self, topic: Topic, *peers: int, wait: float = 3.0) -> None:
        """Let peers subscribe."""
        for index in peers:
            self.host(index).handle(Subscribe(topic))
        self.run(wait)

    def unsubscribe(self, topic: Topic, *peers: int, wait: float = 3.0) -> None:
        """Let peers end their subscriptions."""
        for index in peers:
            self.host(index).handle(Unsubscribe(topic))
        self.run(wait)

    def publish(self, topic: Topic, index: int, data: bytes, wait: float = 2.0) -> None:
        """Let a peer publish."""
        self.host(index).handle(Publish(topic, data))
        self.run(wait)

    def say(
        self, index: int, topic: Topic, data: bytes, *parents: bytes, wait: float = 3.0
    ) -> Published:
        """Let a peer publish, behind other events perhaps, and wait for what it is told."""
        told: list[Published] = []
        self.host(index).receipts = told
        self.host(index).handle(Publish(topic, data, 7, parents=parents))
        self.run(wait)
        self.host(index).receipts = None
        (receipt,) = [each for each in told if each.number == 7]
        return receipt

    def crash(self, *peers: int) -> None:
        """Let peers die without a word."""
        for index in peers:
            self.network.crash(self.host(index))

    # What came of it.

    def data(self, index: int, topic: Topic) -> list[bytes]:
        """What a peer was given of a topic, in order."""
        return [event.data for event in self.events[index] if event.topic == topic]

    def branch(self, index: int, topic: Topic) -> Branch | None:
        """A peer's place in a topic's tree."""
        return self.machine(index).trees.branches.get(cids.parse(topic))

    def members(self, topic: Topic) -> dict[PeerId, Branch]:
        """Everybody who is up and stands in a topic's tree."""
        cid = cids.parse(topic)
        found = {}
        for host in self.network.hosts:
            if host.up and isinstance(host.machine, PulsarcastPeer):
                branch = host.machine.trees.branches.get(cid)
                if branch is not None:
                    found[host.id] = branch
        return found

    def traced(self, kind: type) -> list[tuple[PeerId, Any]]:
        """All payloads of a kind so far, with the peers where they arose."""
        self.recorder.flush()
        return [(peer, each) for _, peer, each in self.watch.entries if type(each) is kind]

    def check_tree(self, topic: Topic) -> PeerId:
        """Check that a quiet topic's tree is one tree, agreed on by both ends; return its root."""
        members = self.members(topic)
        roots = [peer for peer, branch in members.items() if branch.parent is None]
        assert len(roots) == 1, f"{len(roots)} roots"
        for peer, branch in members.items():
            assert branch.candidate is None
            if branch.parent is not None:
                assert peer in members[branch.parent].children
                assert gap(branch.parent, branch.author) < gap(peer, branch.author)
            for child in branch.children:
                assert members[child].parent == peer
            assert branch.needed(self.now)
            steps, above = 0, branch.parent
            while above is not None:
                steps += 1
                assert steps <= len(members), "a cycle"
                above = members[above].parent
        return roots[0]


class Lone:
    """One machine, fed by hand; peers around it are whatever a test claims.

    Its log answers at once, unless `slow` is set: then `commit` and `lose` say when and what.
    """

    def __init__(self, index: int = 0, now: float = 1000.0, **changes: Any) -> None:
        self.now = now
        self.identity = SimulatedIdentity(peer_id(index))
        self.journal = Journal()
        self.slow = False
        self._loads: list[Load] = []
        config = config_of(**changes)
        self.machine = PulsarcastPeer(self.identity, random.Random(index), config)
        self.effects: Effects = []
        self.feed(Start())

    def feed(self, event: Input) -> Effects:
        """Give the machine an input; return what it does about it, and about the log's answers."""
        effects = self.handle(event)
        return effects if self.slow else effects + self.commit()

    def handle(self, event: Input) -> Effects:
        """Give the machine one input."""
        effects: Effects = []
        self.machine.handle(event, self.now, effects)
        for effect in effects:
            if isinstance(effect, Append | KeepNote):
                self.journal.append(effect)
            elif isinstance(effect, Load):
                self._loads.append(effect)
        self.effects += effects
        return effects

    def commit(self) -> Effects:
        """Let the log store what waits and answer what was asked, until nothing is left."""
        effects: Effects = []
        while self.journal._waiting or self._loads:
            appends, _ = self.journal.commit(self.now)
            barriers = tuple(each.barrier for each in appends if each.barrier is not None)
            if barriers:
                effects += self.handle(Stored(barriers))
            loads, self._loads = self._loads, []
            for load in loads:
                effects += self.handle(self.journal._read(load))
        return effects

    def answer_one(self) -> Effects:
        """Let the log answer the next question alone."""
        return self.handle(self.journal._read(self._loads.pop(0)))

    def lose(self, reason: str = "the disk is full") -> Effects:
        """Let the log lose what waits."""
        appends, _ = self.journal.crash()
        told = [each.if_lost if each.barrier is None else each.barrier for each in appends]
        return self.handle(NotStored(tuple(each for each in told if each is not None), reason))

    def meet(self, *peers: PeerId, protocol: str = OURS) -> None:
        """Connect peers."""
        for peer in peers:
            self.feed(PeerConnected(peer, protocol))

    def receive(self, peer: PeerId, message: Rpc) -> Effects:
        """Let a message arrive, by way of its bytes."""
        decode = SPEC.decoder(config_of(), NO_HOOKS)
        return self.feed(Received(peer, decode(SPEC.encode(message))))

    def create(self, name: str = "news", **options: Any) -> TopicDescriptor:
        """Let the machine create a topic."""
        for effect in self.feed(Command(1, CreateTopic(name=name, **options))):
            if isinstance(effect, Outcome):
                assert isinstance(effect.result, TopicDescriptor), effect.error
                return effect.result
        raise AssertionError("no outcome")


def event_by(
    index: int, topic: bytes, data: bytes, created: str, parent: bytes | None = None
) -> SignedEvent:
    """An event that a peer wrote, published and signed itself."""
    peer = peer_id(index)
    return sign_event(
        EventDescriptor(topic, peer, data, created, peer, parent), SimulatedIdentity(peer)
    )


def delivered(effects: Effects) -> list[bytes]:
    """What the application is given."""
    return [each.event.data for each in effects if isinstance(each, Append) and each.deliver]


def sent(effects: Effects) -> list[tuple[PeerId, Rpc]]:
    """What was sent to whom."""
    found: list[tuple[PeerId, Any]] = []
    for effect in effects:
        if isinstance(effect, Send):
            found.append((effect.peer, effect.message))
        elif isinstance(effect, SendAll):
            found += [(peer, effect.message) for peer in effect.peers]
    return found


def additions(effects: Effects, kind: type) -> list[Addition]:
    """The additions of a kind that were sent."""
    return [
        each for _, message in sent(effects) for each in message.additions if type(each) is kind
    ]


def refusals(effects: Effects) -> list[str]:
    """Why what arrived was refused."""
    return [each.reason for each in effects if isinstance(each, Refuse | RejectMessage)]


def penalties(effects: Effects) -> list[str]:
    """What peers were blamed for."""
    return [each.reason for each in effects if isinstance(each, Penalise)]


def publication(signed: SignedEvent, now: float = 1000.0) -> Rpc:
    """The RPC in which an event travels."""
    return rpc.publish(signed, now)
