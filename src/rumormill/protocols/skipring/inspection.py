"""The skip ring as a whole: is it legitimate, how well is it linked, and how may a run begin.

No peer can see this. It is for simulators: they show the machines of all peers that are up, once
per interval. A topic is legitimate when its supervisor's database holds exactly the peers that take
part in its ring, under the labels l(0) to l(n-1), and the variables of each of them are those of
SR(n) (Definition 2).
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rumormill.core.effects import Mail
from rumormill.core.ids import PeerId, Topic
from rumormill.core.machine import Machine
from rumormill.core.randomness import Randomness
from rumormill.core.trace import Stabilised, TracePayload
from rumormill.protocols.skipring.config import SkipRingConfig
from rumormill.protocols.skipring.junk import junk_letter
from rumormill.protocols.skipring.labels import CIRCLE, Label, chain, label_of, ring_neighbours
from rumormill.protocols.skipring.messages import Reference
from rumormill.protocols.skipring.peer import AnySupervisor, Member, SkipRing
from rumormill.protocols.skipring.ring import RingNode
from rumormill.protocols.skipring.subscriber import Subscriber
from rumormill.protocols.skipring.token import TokenSupervisor

Rings: TypeAlias = dict[Topic, dict[PeerId, Member]]


def rings_of(machines: Mapping[PeerId, Machine]) -> Rings:
    """Who takes part in which topic."""
    rings: Rings = {}
    for peer, machine in machines.items():
        if isinstance(machine, SkipRing):
            for topic, member in machine.members.items():
                rings.setdefault(topic, {})[peer] = member
    return rings


def supervisor_of(machines: Mapping[PeerId, Machine], topic: Topic) -> AnySupervisor | None:
    """The topic's supervisor, where it is up and has a database for it."""
    for machine in machines.values():
        if isinstance(machine, SkipRing) and topic in machine.supervised:
            return machine.supervised[topic]
    return None


def settled(label: Label, at: Mapping[Label, PeerId]) -> tuple[RingNode, dict[Label, PeerId]]:
    """The place and the shortcuts that the subscriber at a label has in the legitimate state."""
    peer = at[label]
    node = RingNode("", peer)
    own = node.own = Reference(label, peer)
    before, behind = ring_neighbours(label, len(at))
    if before == label:
        return node, {}
    node.adopt(own, Reference(before, at[before]), Reference(behind, at[behind]))
    links = [*chain(label, before)[1:], *chain(label, behind)[1:]]
    return node, {link: at[link] for link in links if link != label}


def is_legitimate(supervisor: AnySupervisor | None, ring: Mapping[PeerId, Member]) -> bool:
    """Whether a topic's explicit edges form SR(n), and its database says so."""
    if supervisor is None:
        return not ring
    count = len(ring)
    if isinstance(supervisor, TokenSupervisor):
        recorded = supervisor.count
        labels = {each.subscriber.label: peer for peer, each in ring.items()}
        database: Mapping[Any, PeerId | None] = labels
    else:
        recorded, database = len(supervisor.database), supervisor.database
    if recorded != count:
        return False
    at: dict[Label, PeerId] = {}
    for number in range(count):
        label = label_of(number)
        peer = database.get(label)
        if peer is None or peer not in ring or ring[peer].subscriber.label != label:
            return False
        at[label] = peer
    for label, peer in at.items():
        model, shortcuts = settled(label, at)
        found = ring[peer].subscriber
        edges = (found.left, found.right, found.ring, found.shortcuts)
        if edges != (model.left, model.right, model.ring, shortcuts):
            return False
    return len(dict.fromkeys(at.values())) == count


class RingInspection:
    """Watches the rings of all topics in one run."""

    def __init__(self, config: SkipRingConfig) -> None:
        self._interval = config.interval
        self._legitimate: dict[Topic, bool] = {}
        self._since: int | None = None
        self._looks = 0
        self._requests = self._calm = 0
        self._seen: dict[PeerId, tuple[Machine, int]] = {}
        self._degrees: list[int] = []
        """How many edges each subscriber has."""

    def look(
        self, now: float, machines: Mapping[PeerId, Machine]
    ) -> Sequence[tuple[PeerId, TracePayload]]:
        """Judge every topic, count requests, and say what changed."""
        was_legitimate = self._since is not None
        requests = self._new_requests(machines)
        rings = rings_of(machines)
        changes: list[tuple[PeerId, TracePayload]] = []
        for topic in dict.fromkeys((*self._legitimate, *rings)):
            legitimate = is_legitimate(supervisor_of(machines, topic), rings.get(topic, {}))
            if legitimate != self._legitimate.get(topic, False):
                changes.append((_speaker(machines, topic), Stabilised(topic, legitimate)))
            self._legitimate[topic] = legitimate
        if not all(self._legitimate.values()):
            self._since = None
        elif self._since is None:
            self._since = self._looks
        elif was_legitimate:
            self._requests += requests
            self._calm += 1
        self._looks += 1
        members = [member for ring in rings.values() for member in ring.values()]
        self._degrees = [len(member.subscriber.neighbours) for member in members]
        return changes

    def _new_requests(self, machines: Mapping[PeerId, Machine]) -> int:
        """Requests that all supervisors got since the last look."""
        total = 0
        for peer, machine in machines.items():
            if isinstance(machine, SkipRing) and peer in machine.supervisors:
                known, before = self._seen.get(peer, (machine, 0))
                total += machine.requests - (before if known is machine else 0)
                self._seen[peer] = (machine, machine.requests)
        return total

    def figures(self) -> dict[str, Any]:
        """What the run came to.

        `intervals_to_legitimate` counts from the start of the run to the moment from which on all
        topics were legitimate; requests are those of intervals that began and ended legitimate.
        """
        degrees = self._degrees
        return {
            "legitimate": self._since is not None,
            "intervals_to_legitimate": self._since,
            "average_degree": sum(degrees) / len(degrees) if degrees else None,
            "max_degree": max(degrees, default=None),
            "supervisor_requests_per_interval": (
                self._requests / self._calm if self._calm else None
            ),
        }


def _speaker(machines: Mapping[PeerId, Machine], topic: Topic) -> PeerId:
    """Under whose name a topic's changes are traced: its supervisor's."""
    for machine in machines.values():
        if isinstance(machine, SkipRing):
            return machine.supervisors.of(topic) or b""
    return b""


# How a run may begin.


def begin_legitimate(
    machines: Mapping[PeerId, Machine], randomness: Randomness
) -> Sequence[tuple[PeerId, Mail]]:
    """Every topic's ring is SR(n), with labels given out in an arbitrary order."""
    for topic, ring in rings_of(machines).items():
        peers = list(ring)
        randomness.shuffle(peers)
        at = {label_of(number): peer for number, peer in enumerate(peers)}
        supervisor = _new_supervisor(machines, topic)
        for label, peer in at.items():
            supervisor.record(label, peer)
            subscriber = ring[peer].subscriber
            model, shortcuts = settled(label, at)
            subscriber.own, subscriber.ring = model.own, model.ring
            subscriber.left, subscriber.right = model.left, model.right
            subscriber.shortcuts = {**shortcuts}
    return ()


def begin_arbitrary(
    machines: Mapping[PeerId, Machine], randomness: Randomness
) -> Sequence[tuple[PeerId, Mail]]:
    """Labels, edges, databases and letters under way are whatever chance makes them."""
    letters: list[tuple[PeerId, Mail]] = []
    for topic, ring in rings_of(machines).items():
        peers = list(ring)
        for peer in peers:
            _corrupt(ring[peer].subscriber, peers, randomness)
        supervisor = _new_supervisor(machines, topic)
        for _ in peers:
            # All four corruptions come of this: empty, double, missing and excessive labels.
            who = None if randomness.random() < 0.1 else randomness.choice(peers)
            supervisor.record(_any_label(len(peers), randomness), who)
        for receiver in peers:
            sender = randomness.choice(peers)
            letters.append((sender, Mail(receiver, junk_letter(randomness, peers, [topic]))))
    return letters


def _new_supervisor(machines: Mapping[PeerId, Machine], topic: Topic) -> AnySupervisor:
    machine = machines[_speaker(machines, topic)]
    assert isinstance(machine, SkipRing)
    return machine.supervise(topic)


def _any_label(count: int, randomness: Randomness) -> Label:
    if randomness.random() < 0.25:
        return randomness.randrange(CIRCLE)
    return label_of(randomness.randrange(2 * count))


def _corrupt(subscriber: Subscriber, peers: list[PeerId], randomness: Randomness) -> None:
    count = len(peers)

    def anybody() -> Reference | None:
        if randomness.random() < 0.3:
            return None
        return Reference(_any_label(count, randomness), randomness.choice(peers))

    if randomness.random() < 0.9:
        subscriber.own = Reference(_any_label(count, randomness), subscriber.id)
    subscriber.left, subscriber.right, subscriber.ring = anybody(), anybody(), anybody()
    for _ in range(randomness.randrange(4)):
        label = _any_label(count, randomness)
        subscriber.shortcuts[label] = randomness.choice(peers)
