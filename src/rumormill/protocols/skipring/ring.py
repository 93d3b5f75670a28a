"""The sorted ring: Algorithms 1 (BuildList) and 2 (extended BuildRing) of one subscriber.

Each subscriber keeps its nearest neighbours in the order of labels, `left` and `right`; whoever
else it hears of is handed on towards its place (linearisation). The two ends of the list keep each
other in `ring`. A stored label may be wrong, because labels change: whoever introduces itself says
which label it believes the receiver to have, and is told the right one.

Two subscribers may believe in the same label until the supervisor has spoken. They are ordered by
their ids then, so that the order is total and one of them is the lesser: as the paper writes it,
each would take the other for its left neighbour and neither for minimal.

A step that the paper sends to the subscriber itself is taken at once.
"""

from collections.abc import Callable, Sequence

from rumormill.core.effects import Effects, Mail
from rumormill.core.ids import PeerId, Topic, no_addresses
from rumormill.protocols.skipring.labels import Label
from rumormill.protocols.skipring.messages import (
    Check,
    Flag,
    Introduce,
    Linearize,
    Reference,
    RemoveConnections,
)


def precedes(one: Reference, other: Reference) -> bool:
    """Whether one subscriber stands before another in the order of the ring."""
    if one.label == other.label:
        return one.peer < other.peer
    return one.label < other.label


class RingNode:
    """A subscriber's place in the sorted ring of one topic."""

    def __init__(
        self,
        topic: Topic,
        peer: PeerId,
        addresses: Callable[[PeerId], Sequence[bytes]] = no_addresses,
    ) -> None:
        self.topic = topic
        self.id = peer
        self.own: Reference | None = None
        """Ourselves under our label; None while we have none."""
        self.left: Reference | None = None
        self.right: Reference | None = None
        self.ring: Reference | None = None
        self._addresses = addresses

    @property
    def label(self) -> Label | None:
        """Our label, where we have one."""
        return None if self.own is None else self.own.label

    def _addressed(self, reference: Reference) -> Reference:
        """The reference as it is sent: with what we know of where the peer can be reached."""
        addresses = self._addresses(reference.peer)
        if not addresses:
            return reference
        return Reference(reference.label, reference.peer, tuple(addresses))

    def adopt(self, own: Reference, pred: Reference | None, succ: Reference | None) -> None:
        """Take the configuration's neighbours; one on the far side of the circle is `ring`."""
        if pred is not None and pred.peer != self.id:
            if precedes(pred, own):
                self.left = pred
            else:
                self.ring = pred
        if succ is not None and succ.peer != self.id:
            if precedes(own, succ):
                self.right = succ
            else:
                self.ring = succ

    # TIMEOUT.

    def _ring_timeout(self, own: Reference, effects: Effects) -> None:
        """BUILDRINGTIMEOUT of a subscriber that has a label."""
        self._forget(self.id)
        ring, left, right = self.ring, self.left, self.right
        if ring is None:
            end = right if left is None else left if right is None else None
            if end is not None:
                self._send_introduction(end.peer, own, Flag.CYC, effects)
        else:
            inwards = left if precedes(own, ring) else right
            if inwards is not None:
                # We are no end of the list on that side: the end lies that way.
                self._send_introduction(inwards.peer, ring, Flag.CYC, effects)
                self.ring = None
            else:
                self._send_check(ring, own, Flag.CYC, effects)
        self._list_timeout(own, effects)

    def _list_timeout(self, own: Reference, effects: Effects) -> None:
        """BUILDLISTTIMEOUT: introduce ourselves to both neighbours, unless one is misplaced."""
        left, right = self.left, self.right
        if left is not None and precedes(left, own):
            self._send_check(left, own, Flag.LIN, effects)
        elif left is not None:
            self.left = None
            self._linearize(left, effects)
        if right is None or right is not self.right:
            return
        if precedes(own, right):
            self._send_check(right, own, Flag.LIN, effects)
        else:
            self.right = None
            self._linearize(right, effects)

    def _forget(self, peer: PeerId) -> bool:
        """Drop the edges to a peer; true when there was one."""
        edges = (self.left, self.right, self.ring)
        kept = [None if each is None or each.peer == peer else each for each in edges]
        self.left, self.right, self.ring = kept
        return kept != [*edges]

    def _send_check(
        self, receiver: Reference, own: Reference, flag: Flag, effects: Effects
    ) -> None:
        sender = self._addressed(own)
        effects.append(Mail(receiver.peer, Check(self.topic, sender, receiver.label, flag)))

    def _send_introduction(
        self, receiver: PeerId, subject: Reference, flag: Flag, effects: Effects
    ) -> None:
        if receiver != subject.peer:
            message = Introduce(self.topic, self._addressed(subject), flag)
            effects.append(Mail(receiver, message))

    def _send_linearize(self, receiver: PeerId, subject: Reference, effects: Effects) -> None:
        effects.append(Mail(receiver, Linearize(self.topic, self._addressed(subject))))

    def _send_removal(self, receiver: PeerId, effects: Effects) -> None:
        effects.append(Mail(receiver, RemoveConnections(self.topic)))

    # What others say.

    def _check(self, sender: Reference, believed: Label, flag: Flag, effects: Effects) -> None:
        """CHECK: tell the sender our label when it is mistaken, else get to know it."""
        own = self.own
        if own is None:
            self._send_removal(sender.peer, effects)
        elif own.label != believed:
            self._send_introduction(sender.peer, own, flag, effects)
        else:
            self._introduce(sender, flag, effects)

    def _introduce(self, subject: Reference, flag: Flag, effects: Effects) -> None:
        """INTRODUCE: first correct what `ring` says of the subject, then find it a place."""
        own = self.own
        if own is None:
            self._send_removal(subject.peer, effects)
            return
        if subject.peer == self.id:
            return
        ring = self.ring
        if ring is not None and ring.peer == subject.peer and ring.label != subject.label:
            same_side = precedes(subject, own) == precedes(ring, own)
            self.ring = subject if same_side else None
        if flag is Flag.CYC:
            self._close_ring(own, subject, effects)
        else:
            self._linearize(subject, effects)

    def _close_ring(self, own: Reference, subject: Reference, effects: Effects) -> None:
        """The part of INTRODUCE for CYC: the subject may be the other end of the list."""
        ring = self.ring
        before = precedes(subject, own)
        if ring is None:
            outwards = self.right if before else self.left
            if outwards is None:
                self.ring = subject
            else:
                self._send_introduction(outwards.peer, subject, Flag.CYC, effects)
        elif ring.peer == subject.peer:
            return
        elif precedes(ring, own) == before:
            farther = precedes(subject, ring) == before
            self.ring = subject if farther else ring
            self._linearize(ring if farther else subject, effects)
        else:
            self.ring = None
            self._linearize(subject, effects)
            self._linearize(ring, effects)

    def _linearize(self, subject: Reference, effects: Effects) -> None:
        """LINEARIZE: keep the subject when it is nearer than what we have, else hand it on."""
        own = self.own
        if own is None:
            self._send_removal(subject.peer, effects)
            return
        if subject.peer == self.id or self._relabelled(own, subject):
            return
        before = precedes(subject, own)
        nearest = self.left if before else self.right
        if nearest is not None and precedes(nearest, subject) != before:
            self._send_linearize(nearest.peer, subject, effects)
            return
        if nearest is not None:
            self._send_linearize(subject.peer, nearest, effects)
        if before:
            self.left = subject
        else:
            self.right = subject

    def _relabelled(self, own: Reference, subject: Reference) -> bool:
        """Correct the label of a neighbour; true when the subject needs no other place."""
        before = precedes(subject, own)
        left, right = self.left, self.right
        placed = False
        if left is not None and left.peer == subject.peer:
            placed = before or left.label == subject.label
            self.left = subject if placed else None
        if right is not None and right.peer == subject.peer:
            stays = not before or right.label == subject.label
            self.right = subject if stays else None
            placed = placed or stays
        return placed
