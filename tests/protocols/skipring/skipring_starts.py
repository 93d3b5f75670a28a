"""Arbitrary initial states: everything that a transient fault may have left behind.

A `Start` is a few numbers and switches; the world that it describes follows from them alone, so a
start that fails can be made smaller and repeated.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec
from skipring_world import SUPERVISOR, TOPIC, Pace, World, make_peers

from rumormill.core.ids import PeerId
from rumormill.protocols.skipring.config import SkipRingConfig
from rumormill.protocols.skipring.labels import CIRCLE, Label, label_of
from rumormill.protocols.skipring.messages import (
    Acknowledge,
    Check,
    Flag,
    GetConfiguration,
    Introduce,
    IntroduceShortcut,
    Linearize,
    Reference,
    RemoveConnections,
    SetData,
    Subscribe,
    Unsubscribe,
)


class Start(msgspec.Struct, frozen=True):
    """Which arbitrary state to begin in."""

    n: int
    seed: int = 0
    wrong_labels: bool = False
    """Subscribers have any label, also the same, very long ones, or none; else none has a label."""
    edges: bool = False
    """Subscribers store any references under any labels; else none."""
    connected: bool = False
    """A random tree of edges makes the graph weakly connected."""
    components: int = 1
    """Into how many parts the edges fall."""
    recorded: bool = False
    """The database holds some of the subscribers; else it is empty."""
    empty_tuples: bool = False
    """Corruption (i)."""
    copies: bool = False
    """Corruption (ii)."""
    missing: bool = False
    """Corruption (iii)."""
    beyond: bool = False
    """Corruption (iv)."""
    index: bool = False
    """The index from subscribers to labels is arbitrary as well."""
    junk: int = 0
    """So many arbitrary messages are in each channel."""
    dead: int = 0
    """So many ids of nodes that do not exist are in use."""
    held_back: float = 0.05
    uneven: float = 2.0
    lockstep: bool = False
    """How the scheduler treats them: see `Pace`."""
    token: bool = False
    """Supervision by a token; what is wrong at the supervisor is its count and whom it knows."""

    def limit(self) -> int:
        """Within how many intervals a world of this size must have become legitimate.

        The proof of Lemma 11 needs two rounds of configurations, of n intervals of the supervisor
        each, after everybody is recorded. The rest is ample.
        """
        return 200 + 40 * (self.n + self.dead)


def build(start: Start) -> World:
    """Make the world that a start describes."""
    return _Builder(start).world


class _Builder:
    def __init__(self, start: Start) -> None:
        self.start = start
        self.rng = rng = random.Random(start.seed)
        everybody = make_peers(start.n + start.dead, rng)
        self.peers, dead = everybody[: start.n], everybody[start.n :]
        pace = Pace(held_back=start.held_back, uneven=start.uneven, lockstep=start.lockstep)
        config = SkipRingConfig(
            patience=8 if start.dead else 0,
            tuples_per_timeout=rng.choice((1, 2, 64) if start.n < 100 else (64,)),
            supervision="token" if start.token else "database",
        )
        self.world = World(self.peers, rng, pace, config)
        self.known = {
            peer: [*self._component(place), *dead] for place, peer in enumerate(self.peers)
        }
        self.dead = dead
        for peer in self.peers:
            self._corrupt_subscriber(peer)
        if start.connected:
            self._connect()
        if start.token:
            self._corrupt_count()
        else:
            self._corrupt_database()
        for peer in [*self.peers, SUPERVISOR]:
            for _ in range(start.junk):
                self._junk(peer)

    def _component(self, place: int) -> list[PeerId]:
        parts = self.start.components
        return [peer for other, peer in enumerate(self.peers) if other % parts == place % parts]

    def label(self) -> Label:
        """Any label: one of this ring, of a larger one, or one that no ring has."""
        rng, n = self.rng, self.start.n
        kind = rng.randrange(4)
        if kind == 0:
            return rng.randrange(CIRCLE)
        if kind == 1:
            return label_of(rng.randrange(8 * n))
        return label_of(rng.randrange(n))

    def reference(self, peer: PeerId) -> Reference:
        """Any reference that a subscriber may have got hold of."""
        other = self.rng.choice(self.known[peer])
        subscriber = self.world.subscribers.get(other)
        if subscriber is not None and subscriber.own is not None and self.rng.random() < 0.5:
            return subscriber.own
        return Reference(self.label(), other)

    def believed(self) -> Label:
        """The label that a message says its receiver has: half of them are right."""
        subscriber = self.world.subscribers.get(self.receiver)
        if subscriber is not None and subscriber.own is not None and self.rng.random() < 0.5:
            return subscriber.own.label
        return self.label()

    def _corrupt_subscriber(self, peer: PeerId) -> None:
        subscriber, rng = self.world.subscribers[peer], self.rng
        if self.start.wrong_labels and rng.random() < 0.8:
            subscriber.own = Reference(self.label(), peer)
        if self.start.edges:
            for name in ("left", "right", "ring"):
                if rng.random() < 0.6:
                    setattr(subscriber, name, self.reference(peer))
            for _ in range(rng.randrange(4)):
                subscriber.shortcuts[self.label()] = rng.choice([None, *self.known[peer]])

    def _connect(self) -> None:
        for place, peer in enumerate(self.peers[1:], 1):
            other = self.world.subscribers[self.rng.choice(self.peers[:place])]
            reference = Reference(self.label(), peer)
            setattr(other, self.rng.choice(("left", "right", "ring")), reference)

    def _corrupt_database(self) -> None:
        start, rng, supervisor = self.start, self.rng, self.world.supervisor
        database = supervisor.database
        recorded = [*self.peers, *self.dead]
        rng.shuffle(recorded)
        if not start.recorded:
            recorded = []
        for number, peer in enumerate(recorded[: rng.randint(0, len(recorded))]):
            database[label_of(number)] = peer
            supervisor.index[peer] = label_of(number)
        labels = list(database)
        if start.missing and labels:
            for at in rng.sample(labels, rng.randint(1, len(labels))):
                del database[at]
        if start.empty_tuples:
            for _ in range(rng.randint(1, 3)):
                database[self.label()] = None
        if start.copies:
            for _ in range(rng.randint(1, 4)):
                database[self.label()] = rng.choice(self.peers)
        if start.beyond:
            for _ in range(rng.randint(1, 4)):
                database[rng.randrange(CIRCLE)] = rng.choice(self.peers)
        if start.index:
            supervisor.index.clear()
            for peer in self.peers:
                if rng.random() < 0.7:
                    supervisor.index[peer] = self.label()
        supervisor.next = rng.randrange(1000)

    def _corrupt_count(self) -> None:
        rng, supervisor = self.rng, self.world.supervisor
        anybody = [None, *self.peers, *self.dead]
        supervisor.first = rng.choice(anybody)
        last = rng.choice(anybody)
        supervisor.last = None if last is None else Reference(self.label(), last)
        supervisor.count = rng.choice((0, rng.randrange(4 * self.start.n), self.start.n))

    def _junk(self, receiver: PeerId) -> None:
        """Put an arbitrary message into a channel."""
        rng = self.rng
        sender = rng.choice(self.peers)
        self.receiver = receiver
        if receiver == SUPERVISOR:
            message = rng.choice(_TO_SUPERVISOR)(self, sender)
        elif rng.random() < 0.3:
            sender = SUPERVISOR
            message = self._configuration(receiver)
        else:
            message = rng.choice(_TO_SUBSCRIBER)(self, sender)
        self.world.post(sender, receiver, message)

    def _configuration(self, peer: PeerId) -> SetData:
        rng = self.rng
        if rng.random() < 0.3:
            return SetData(TOPIC, None, None, None)
        pred, succ = (rng.choice((None, self.reference(peer))) for _ in range(2))
        return SetData(TOPIC, pred, self.label(), succ)


_TO_SUPERVISOR: list[Callable[[_Builder, PeerId], Any]] = [
    lambda b, sender: Subscribe(TOPIC),
    lambda b, sender: Unsubscribe(TOPIC),
    lambda b, sender: Acknowledge(TOPIC),
    lambda b, sender: GetConfiguration(TOPIC, b.rng.choice(b.known[sender])),
]
_TO_SUBSCRIBER: list[Callable[[_Builder, PeerId], Any]] = [
    lambda b, sender: Check(
        TOPIC, Reference(b.label(), sender), b.believed(), Flag(b.rng.randrange(2))
    ),
    lambda b, sender: Introduce(TOPIC, b.reference(sender), Flag(b.rng.randrange(2))),
    lambda b, sender: Linearize(TOPIC, b.reference(sender)),
    lambda b, sender: IntroduceShortcut(TOPIC, b.reference(sender), b.believed()),
    lambda b, sender: RemoveConnections(TOPIC),
    lambda b, sender: SetData(TOPIC, b.reference(sender), b.label(), None),
    lambda b, sender: Subscribe(TOPIC),
]
