"""A subscriber of one topic: Algorithm 4 on top of the sorted ring.

The supervisor's configuration is the truth about our label and ring neighbours. Between
configurations the ring keeps itself in order, and shortcuts grow from it: from the labels of its
two ring neighbours a subscriber computes the labels of all its shortcuts, and the subscriber that
stands midway between two ends of a shortcut introduces them to each other (section 3.2.2), so
shortcuts are established from the ring upwards.

Whoever has no label asks the supervisor for one. Whoever has one asks for its configuration so
rarely that the supervisor expects less than one request per interval (Theorem 5), or often when it
believes itself minimal, because then it may be the end of a component that the supervisor does not
know. A neighbour that a configuration displaces may be unknown to the supervisor, or dead: we name
it to the supervisor and let it go (action (iii), section 3.3).

What departs from the letter of the paper, and why, is in docs/skipring.md.
"""

from collections.abc import Callable, Sequence

from rumormill.core.effects import Effects, Learn, Mail
from rumormill.core.ids import PeerId, Topic, no_addresses
from rumormill.core.randomness import Randomness
from rumormill.core.trace import Refuse
from rumormill.protocols.skipring import messages, reasons
from rumormill.protocols.skipring.labels import Label, chain, length_of
from rumormill.protocols.skipring.messages import Flag, Letter, Reference
from rumormill.protocols.skipring.ring import RingNode, precedes

MINIMAL_REQUEST = 0.5
"""Section 3.2.1, action (iv)."""


def request_probability(label: Label) -> float:
    """How likely a subscriber asks for its configuration in one interval, by its label.

    Section 3.2.1, action (ii): 1/(2^k·k²) for a label of length k. The proof of Theorem 5 counts
    2^(k-1) labels of length k, but there are two of length 1 (f(k) in the proof of Lemma 3). With
    f(k) in its place, 1/(2·f(k)·k²), each length adds what the proof says: the two labels of length
    1 ask with probability 1/4, and all others as the paper says.
    """
    length = length_of(label)
    return 0.25 if length == 1 else 1 / ((1 << length) * length * length)


class Subscriber(RingNode):
    """One topic's subscriber."""

    def __init__(
        self,
        topic: Topic,
        peer: PeerId,
        supervisor: PeerId,
        randomness: Randomness,
        addresses: Callable[[PeerId], Sequence[bytes]] = no_addresses,
    ) -> None:
        super().__init__(topic, peer, addresses)
        self.supervisor = supervisor
        self.shortcuts: dict[Label, PeerId | None] = {}
        """Who stands at each label that we have a shortcut to; None while nobody told us."""
        self.leaving = False
        """We want to unsubscribe and wait for the supervisor's permission."""
        self.gone = False
        """The permission has come."""
        self.confirmed = True
        """The supervisor that we have now has sent us a configuration, as far as we must know."""
        self._randomness = randomness

    @property
    def neighbours(self) -> dict[PeerId, None]:
        """Everybody that we have a ring edge or a shortcut to, once each."""
        everybody = dict.fromkeys((*self.ring_neighbours, *self.shortcuts.values()))
        return {peer: None for peer in everybody if peer is not None and peer != self.id}

    @property
    def ring_neighbours(self) -> list[PeerId]:
        """Our direct ring neighbours, once each."""
        found = [each.peer for each in (self.left, self.right, self.ring) if each is not None]
        return list(dict.fromkeys(found))

    def serve_under(self, supervisor: PeerId) -> None:
        """Take another supervisor; our place in the ring stays until it says otherwise."""
        self.supervisor = supervisor
        self.confirmed = False

    # TIMEOUT.

    def timeout(self, effects: Effects, *, asks: bool = True) -> None:
        """TIMEOUT: tend the ring and the shortcuts, and ask the supervisor where need be.

        In an interval in which another topic has its turn nothing is asked by chance.
        """
        own = self.own
        if own is None:
            self._drop_everybody(effects)
        else:
            self._ring_timeout(own, effects)
            self._shortcut_timeout(own, effects)
        if self.gone:
            return
        if self.leaving:
            self.leave(effects)
        elif own is None or not self.confirmed:
            self.subscribe(effects)
        elif asks and self._randomness.random() < self._request_probability(own):
            self._request(self.id, effects)

    def subscribe(self, effects: Effects) -> None:
        """Ask the supervisor to record us."""
        letter = messages.Subscribe(self.topic, tuple(self._addresses(self.id)))
        effects.append(Mail(self.supervisor, letter))

    def leave(self, effects: Effects) -> None:
        """Ask the supervisor to forget us, now and in every TIMEOUT until it has."""
        self.leaving = True
        effects.append(Mail(self.supervisor, messages.Unsubscribe(self.topic)))

    def stay(self) -> None:
        """Take back a wish to leave; the supervisor may have heard of it."""
        self.leaving = self.confirmed = False

    def _request_probability(self, own: Reference) -> float:
        # The label 0 is minimal in every ring; it asks often enough as it is.
        minimal = own.label and (self.left is None or self.left.peer == self.id)
        return MINIMAL_REQUEST if minimal else request_probability(own.label)

    def _drop_everybody(self, effects: Effects) -> None:
        """Without a label we are nobody's neighbour (Algorithm 2, lines 5 to 7)."""
        for peer in self.neighbours:
            self._send_removal(peer, effects)
        self.left = self.right = self.ring = None
        self.shortcuts.clear()

    def _request(self, subject: PeerId, effects: Effects) -> None:
        letter = messages.GetConfiguration(self.topic, subject, tuple(self._addresses(subject)))
        effects.append(Mail(self.supervisor, letter))

    # Shortcuts.

    def _sides(self, own: Reference) -> tuple[Reference | None, Reference | None]:
        """The neighbours before and behind us on the ring, `ring` in its place."""
        left, right, ring = self.left, self.right, self.ring
        if ring is not None:
            if left is None and precedes(own, ring):
                left = ring
            if right is None and precedes(ring, own):
                right = ring
        return left, right

    def _update_shortcuts(self, own: Reference) -> tuple[Reference | None, Reference | None]:
        """Keep shortcuts to the labels that we should have, and to no others.

        Returns our two neighbours in the ring of labels no longer than ours, as far as known.
        """
        left, right = self._sides(own)
        before = [] if left is None else chain(own.label, left.label)
        behind = [] if right is None else chain(own.label, right.label)
        wanted = dict.fromkeys([*before[1:], *behind[1:]])
        wanted.pop(own.label, None)
        shortcuts = self.shortcuts
        if shortcuts.keys() != wanted.keys():
            self.shortcuts = {label: shortcuts.get(label) for label in wanted}
        return self._at(before, left), self._at(behind, right)

    def _at(self, links: list[Label], neighbour: Reference | None) -> Reference | None:
        """Whom the last link of one side leads to."""
        if len(links) <= 1:
            return neighbour
        label = links[-1]
        peer = self.shortcuts.get(label)
        return None if peer is None else Reference(label, peer)

    def _shortcut_timeout(self, own: Reference, effects: Effects) -> None:
        """Introduce our two neighbours on our own level to each other."""
        one, other = self._update_shortcuts(own)
        if one is None or other is None or one.label == other.label or one.peer == other.peer:
            return
        self._send_shortcut(one, other, effects)
        self._send_shortcut(other, one, effects)

    def _send_shortcut(self, receiver: Reference, subject: Reference, effects: Effects) -> None:
        if receiver.peer != self.id:
            subject = self._addressed(subject)
            letter = messages.IntroduceShortcut(self.topic, subject, receiver.label)
            effects.append(Mail(receiver.peer, letter))

    # What others say.

    def receive(self, sender: PeerId, message: Letter, effects: Effects) -> None:
        """Take a letter of this topic's ring."""
        if isinstance(message, messages.Check):
            if message.sender.peer != sender:
                effects.append(Refuse(sender, reasons.FOREIGN_SENDER, self.topic))
                return
            known = _learned(message.sender, effects)
            self._correct_shortcuts(known)
            self._check(known, message.label, message.flag, effects)
        elif isinstance(message, messages.IntroduceShortcut):
            subject = _learned(message.subject, effects)
            self._introduce_shortcut(sender, subject, message.label, effects)
        elif isinstance(message, messages.Linearize):
            self._linearize(_learned(message.subject, effects), effects)
        elif isinstance(message, messages.Introduce):
            subject = _learned(message.subject, effects)
            if subject.peer == sender:
                self._correct_shortcuts(subject)
                if message.flag is Flag.LIN and sender not in self.ring_neighbours:
                    # A correction of what we believed; by now we know the sender no more.
                    return
            self._introduce(subject, message.flag, effects)
        elif isinstance(message, messages.SetData):
            if sender != self.supervisor:
                effects.append(Refuse(sender, reasons.NOT_SUPERVISOR, self.topic))
                return
            self._set_data(message, effects)
        elif isinstance(message, messages.RemoveConnections):
            self.remove(sender)
        else:
            effects.append(Refuse(sender, reasons.NOT_RESPONSIBLE, self.topic))

    def _correct_shortcuts(self, owner: Reference) -> None:
        """A subscriber told us its label: it stands at no other one."""
        peer, label = owner.peer, owner.label
        for at, stored in self.shortcuts.items():
            if stored == peer and at != label:
                self.shortcuts[at] = None

    def _introduce_shortcut(
        self, sender: PeerId, subject: Reference, believed: Label, effects: Effects
    ) -> None:
        """INTRODUCESHORTCUT: the newest word on who stands at a label holds.

        A sender that is mistaken about our label is told so, as in CHECK. Whom we have no shortcut
        for, or no longer, is not handed to the ring: what a third party says of its label may be
        false, and the ring would hand the falsehood back to the shortcuts.
        """
        own = self.own
        if own is None:
            self._send_removal(sender, effects)
            return
        if own.label != believed:
            self._send_introduction(sender, own, Flag.LIN, effects)
            return
        if subject.peer == self.id:
            return
        self._update_shortcuts(own)
        if subject.label in self.shortcuts:
            self.shortcuts[subject.label] = subject.peer

    def remove(self, peer: PeerId) -> bool:
        """REMOVECONNECTIONS: forget a peer; true when we knew it."""
        known = self._forget(peer)
        for label, stored in self.shortcuts.items():
            if stored == peer:
                self.shortcuts[label] = None
                known = True
        return known

    def unreachable(self, peer: PeerId, effects: Effects) -> None:
        """The runtime cannot reach a peer: stop naming it, and let the supervisor look at it.

        The supervisor alone decides who is dead (section 3.3); this makes it look sooner.
        """
        if peer != self.supervisor and self.remove(peer):
            self._request(peer, effects)

    # The supervisor's word.

    def _set_data(self, message: messages.SetData, effects: Effects) -> None:
        """SETDATA: the configuration replaces what we believed."""
        self.confirmed = True
        displaced = self.ring_neighbours
        self.left = self.right = self.ring = None
        if message.label is None:
            self.own = None
            self.shortcuts.clear()
            self.gone = self.leaving
            kept = {self.id}
        else:
            own = self.own = Reference(message.label, self.id)
            pred = None if message.pred is None else _learned(message.pred, effects)
            succ = None if message.succ is None else _learned(message.succ, effects)
            self.adopt(own, pred, succ)
            kept = {self.id, *(each.peer for each in (pred, succ) if each is not None)}
        for peer in displaced:
            if peer not in kept:
                self._request(peer, effects)
        if message.label is not None:
            effects.append(Mail(self.supervisor, messages.Acknowledge(self.topic)))


def _learned(reference: Reference, effects: Effects) -> Reference:
    """The reference as it is stored; the runtime is told where the peer can be reached."""
    if not reference.addresses:
        return reference
    effects.append(Learn(reference.peer, reference.addresses))
    return Reference(reference.label, reference.peer)
