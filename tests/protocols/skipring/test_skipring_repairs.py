"""Where the paper's pseudocode, taken by the letter, does not do what its theorems say.

Each test shows a state from which the printed algorithm goes on for ever, or asserts what replaces
it. The reasons are in docs/skipring.md.
"""

import random

from skipring_starts import Start, build
from skipring_world import EVEN, SUPERVISOR, TOPIC, World, make_peers

from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId
from rumormill.protocols.skipring.labels import Label, label_of
from rumormill.protocols.skipring.messages import (
    Check,
    Flag,
    IntroduceShortcut,
    Reference,
    RemoveConnections,
)
from rumormill.protocols.skipring.subscriber import Subscriber

FALSEHOODS = tuple(
    Start(
        n=12, seed=seed, wrong_labels=True, edges=True, recorded=True, copies=True, junk=1,
        held_back=0.0, uneven=1.0, lockstep=True,
    )
    for seed in (7, 10, 11, 30)
)  # fmt: skip
"""States full of false labels, under a schedule that repeats itself exactly."""


class AsPrinted(Subscriber):
    """INTRODUCESHORTCUT as Algorithm 4 prints it: no check of labels, and what is displaced or
    unexpected goes to LINEARIZE."""

    def _introduce_shortcut(
        self, sender: PeerId, subject: Reference, believed: Label, effects: Effects
    ) -> None:
        own = self.own
        if own is None:
            self._send_removal(sender, effects)
            return
        if subject.peer == self.id:
            return
        label = subject.label
        if label in self.shortcuts:
            known = self.shortcuts[label]
            self.shortcuts[label] = subject.peer
            if known is not None and known != subject.peer:
                self._linearize(Reference(label, known), effects)
        else:
            self._linearize(subject, effects)


def as_printed(world: World) -> World:
    """The same world, with the printed algorithm in the place of ours."""
    for subscriber in world.subscribers.values():
        subscriber.__class__ = AsPrinted
    return world


def still_false(world: World, intervals: int) -> bool:
    """Whether a world is never legitimate within so many intervals."""
    for _ in range(intervals):
        world.run(1)
        if not world.faults():
            return False
    return True


def test_false_shortcuts_keep_each_other_alive_as_printed() -> None:
    """Lemma 12 assumes that the ring is and stays correct; but as printed, a shortcut that is
    displaced enters the ring under a label that may be false, and the ring's neighbours are what
    shortcuts are introduced from. Under an even schedule the falsehood goes round for ever: we
    watch it for 40 times as many intervals as there are subscribers, from states that ours leaves
    within four times as many."""
    stuck = 0
    for start in FALSEHOODS:
        assert build(start).stabilise(start.limit()) <= 4 * start.n
        stuck += still_false(as_printed(build(start)), 40 * start.n)
    assert stuck >= 1


def test_two_subscribers_with_one_label_do_not_take_each_other_for_lesser() -> None:
    """Algorithm 1 compares labels alone: with u.label = v.label each would be the other's left
    neighbour, neither would think itself minimal, and with a label of 62 bits neither would ever
    ask the supervisor."""
    rng = random.Random(1)
    one, other = peers = make_peers(2, rng)
    world = World(peers, rng, EVEN)
    label = (1 << 61) | 1
    for own, neighbour in ((one, other), (other, one)):
        subscriber = world.subscribers[own]
        subscriber.own = Reference(label, own)
        subscriber.left = Reference(label, neighbour)
    world.stabilise(200)


def test_somebody_without_a_label_answers_a_check_with_a_request_to_forget_it() -> None:
    """Algorithm 1, CHECK, would introduce u with the label ⊥; the proof of Lemma 6 says that u
    "answers all incoming introduction messages [...] with the request to delete the connection"."""
    subscriber = Subscriber(TOPIC, b"u", SUPERVISOR, random.Random(0))
    for message in (
        Check(TOPIC, Reference(label_of(3), b"v"), label_of(1), Flag.LIN),
        IntroduceShortcut(TOPIC, Reference(label_of(3), b"w"), label_of(1)),
    ):
        effects: Effects = []
        subscriber.receive(b"v", message, effects)
        (mail,) = effects
        assert mail.peer == b"v"
        assert mail.message == RemoveConnections(TOPIC)


def test_a_reference_to_oneself_is_forgotten() -> None:
    """The paper's initial states may store it; nobody would ever correct it."""
    rng = random.Random(1)
    world = World(make_peers(3, rng), rng, EVEN)
    for peer, subscriber in world.subscribers.items():
        subscriber.own = Reference(label_of(5), peer)
        subscriber.left = subscriber.right = subscriber.ring = Reference(label_of(2), peer)
        subscriber.shortcuts = {label_of(1): peer}
    world.stabilise(200)
