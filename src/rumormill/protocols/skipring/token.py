"""Supervision by a token: deterministic, with a supervisor that keeps little more than n.

The paper's outlook (section 6): instead of asking the supervisor by chance, subscribers pass a
token, and then the supervisor "only needs to know the number of subscribers n". The paper leaves
the protocol open; this is ours (`supervision = "token"`).

The supervisor keeps n, whom it believes to be at the label 0, and who came last: what it holds does
not grow with the ring. A newcomer is given the label l(n) and introduced to who came last, whose
label is two or three places away on the ring, and the sorted ring takes it in (Algorithm 1). A
token goes from the label 0 along the list to its end and from there to the supervisor, which sends
it off again. On its way it counts the subscribers, notes labels of SR(n) that nobody has, and gives
one of these to the next subscriber whose label is beyond n, or not above the one before it:
CHECKLABELS of Algorithm 3, in passing. A subscriber that no token has visited for some rounds, as
the last one's count has it, asks the supervisor, and so does, every few intervals, one that is the
lowest it knows of without the label 0: both are introduced to the subscriber at 0, which is how
separate components become one.

A token is held for an interval at each subscriber, or passed on at once as long as the last round
found something to repair or somebody came or went: "the supervisor may adjust the speed".

Legitimate states stay: a token that finds nothing changes nothing. Others become legitimate,
because lists that are introduced to each other become one (Lemma 4), whose subscribers the token
then counts and labels. Who crashes is noticed by its neighbours, by the runtime's word alone.
"""

from collections.abc import Callable, Sequence
from typing import Final

from rumormill.core.effects import Effects, Learn, Mail
from rumormill.core.ids import PeerId, Topic, no_addresses
from rumormill.core.trace import Refuse
from rumormill.protocols.skipring import messages, reasons
from rumormill.protocols.skipring.config import MAX_MISSING, MAX_PATIENCE, SkipRingConfig
from rumormill.protocols.skipring.labels import (
    CIRCLE,
    Label,
    label_of,
    number_of,
    ring_neighbours,
)
from rumormill.protocols.skipring.messages import Flag, Letter, Reference, Token
from rumormill.protocols.skipring.ring import precedes
from rumormill.protocols.skipring.subscriber import Subscriber

LOWEST_ASKS: Final = 4
"""After how many intervals the lowest of a list asks, if its label is not 0. Our choice: a round
trip or two."""
QUICK_HOPS: Final = 8
"""Subscribers that a quick token is expected to visit in an interval. Our choice: a tenth of a
second each; where they take longer, patience grows."""
FIRST_WAIT: Final = 64
LONGEST_WAIT: Final = 1 << 14
"""Intervals after which a subscriber asks for a token that has never come, and after which it asks
whatever a token said. Our choice: it waits twice as long each time, so that in a large ring, where
a round takes long, few ask, and in one that a fault has torn nobody waits for what is false."""


class TokenSubscriber(Subscriber):
    """A subscriber that passes tokens on and asks nobody by chance."""

    _waited = 0
    """Intervals since a token came, or since we asked for one."""
    _patience = FIRST_WAIT
    """After how many we ask."""
    _held: Token | None = None
    _ripe = False
    """Whether the token has been here since the last interval, so that it may go."""
    _passed = False
    """A token was passed on at once in this interval: another one is held, so that none can run in
    circles faster than labels are corrected."""

    def timeout(self, effects: Effects, *, asks: bool = True) -> None:
        """TIMEOUT: as always, but what chance decided the token does."""
        super().timeout(effects, asks=False)
        own, held, self._passed = self.own, None, False
        if self._ripe:
            held, self._held = self._held, None
        self._ripe = self._held is not None
        if own is None:
            return
        if held is not None and held.seen:
            self._pass_on(held, self.right, effects)
        elif held is not None and self.left is not None:
            effects.append(Mail(self.left.peer, held))
        elif held is not None:
            self._visit(own, held, effects)
        if self.leaving:
            return
        self._waited += 1
        lowest = self.left is None and own.label and not self._waited % LOWEST_ASKS
        if lowest:
            self._request(self.id, effects)
        elif self._waited >= self._patience:
            self._waited, self._patience = 0, min(2 * self._patience, LONGEST_WAIT)
            self._request(self.id, effects)

    def receive(self, sender: PeerId, message: Letter, effects: Effects) -> None:
        """Take a letter of this topic's ring."""
        if not isinstance(message, Token):
            super().receive(sender, message, effects)
        elif sender != self.supervisor and sender not in self.ring_neighbours:
            effects.append(Refuse(sender, reasons.NOT_NEIGHBOUR, self.topic))
        elif self.own is not None:
            self._visit(self.own, message, effects)

    def _visit(self, own: Reference, token: Token, effects: Effects) -> None:
        """Let a token find the lowest, then count us, and pass it on soon."""
        left, right = self.left, self.right
        self._waited, self._patience = 0, min(8 * token.count + FIRST_WAIT, LONGEST_WAIT)
        if not token.seen and left is not None and precedes(left, own):
            self._held, self._ripe = token, False
            return
        label, before, missing = own.label, token.before, token.missing
        moves, last = False, token.last
        if number_of(label) < token.count and (before is None or label > before):
            missing = tuple([each for each in missing if each != label])
            missing += gaps(before, label, token.count)
            before = label
            last = self._addressed(own) if number_of(label) == token.count - 1 else last
        elif missing:
            moves = True
        counted = Token(
            self.topic,
            token.epoch,
            token.count,
            token.seen + 1,
            token.first if token.seen else self._addressed(own),
            last,
            before,
            missing[1:] if moves else missing[:MAX_MISSING],
            token.quick,
            token.changed or moves,
        )
        if moves or (token.quick and not self._passed):
            self._passed = True
            self._pass_on(counted, right, effects)
        else:
            self._held, self._ripe = counted, False
        if moves:
            self._move(own, missing[0], effects)

    def _move(self, own: Reference, label: Label, effects: Effects) -> None:
        """Leave our place to our neighbours, take a label, and let the list find its place."""
        left, right = self.left, self.right
        self._join_neighbours(effects)
        self.own = Reference(label, own.peer)
        self.left = self.right = self.ring = None
        for each in (left, right):
            if each is not None:
                self._linearize(each, effects)

    def _join_neighbours(self, effects: Effects) -> None:
        """Introduce to each other whom our going leaves without a neighbour."""
        if self.left is not None and self.right is not None:
            self._send_introduction(self.left.peer, self.right, Flag.LIN, effects)
            self._send_introduction(self.right.peer, self.left, Flag.LIN, effects)

    def _pass_on(self, token: Token, to: Reference | None, effects: Effects) -> None:
        """To the next of the list; from its end to the supervisor."""
        if to is not None and token.seen < messages.MAX_SEEN:
            effects.append(Mail(to.peer, token))
        else:
            token.back = True
            effects.append(Mail(self.supervisor, token))

    def _set_data(self, message: messages.SetData, effects: Effects) -> None:
        """SETDATA: what a newcomer is told, or the permission to go."""
        if message.label is None:
            if self._held is not None and self._held.seen:
                self._pass_on(self._held, self.right, effects)
            self._held = None
            self._join_neighbours(effects)
            self.left = self.right = self.ring = None
        self._waited = 0
        super()._set_data(message, effects)


def gaps(before: Label | None, label: Label, count: int) -> tuple[Label, ...]:
    """The first labels of SR(count) between two others, the lower one of which may be none."""
    found: list[Label] = []
    at = -1 if before is None else before
    while len(found) < MAX_MISSING:
        behind = 0 if at < 0 else ring_neighbours(at, count)[1]
        if not at < behind < label:
            break
        found.append(behind)
        at = behind
    return tuple(found)


class TokenSupervisor:
    """One topic's count and what is done with it."""

    def __init__(
        self,
        topic: Topic,
        config: SkipRingConfig,
        addresses: Callable[[PeerId], Sequence[bytes]] = no_addresses,
    ) -> None:
        self.topic = topic
        self.count = 0
        """n."""
        self.first: PeerId | None = None
        """Whom we believe to be at the label 0."""
        self.last: Reference | None = None
        """Who came last, and whom newcomers are introduced to."""
        self._config = config
        self._addresses = addresses
        self._epoch = 0
        self._doubt = 0
        """What the last round counted."""
        self._out = 0
        """Intervals since we sent the token off."""
        self._patience = 4
        """So many times the usual time of a round we wait for it."""
        self._lost = 0
        """Tokens in a row that have not come back."""
        self._moved = True
        """Somebody came, went or missed something since we sent it off."""
        self._quick = False
        """Whether it is passed on at once."""
        self._asked: dict[PeerId, int] = {}
        self._came: dict[PeerId, Label] = {}
        self._came_before: dict[PeerId, Label] = {}
        """Who subscribed in this interval and in the last: it may ask again before it is told."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to supervise."""
        return not self.count and self.first is None

    def record(self, label: Label, peer: PeerId | None) -> None:
        """Count a subscriber that a simulated run begins with."""
        self.count += 1
        if not label:
            self.first = peer

    def timeout(self, effects: Effects, *, configures: bool = True) -> None:
        """TIMEOUT: send a token off when the last has not come back, or is too slow by now."""
        self._asked.clear()
        self._came, self._came_before = {}, self._came
        self._out += 1
        usual = (self.count // QUICK_HOPS if self._quick else self.count) + 4
        overdue = self._out >= self._patience * usual
        if self.first is None or not (overdue or (self._moved and not self._quick)):
            return
        self._lost += overdue
        if self._lost > self._config.misses:
            self.first = self.last = None  # whoever asks next is our contact
            self._lost = 0
        else:
            self._send(Token(self.topic, 0, self.count, quick=True), effects)

    def _send(self, token: Token, effects: Effects) -> None:
        """Send a token to the beginning of the list."""
        if self.first is not None:
            self._epoch = token.epoch = (self._epoch + 1) % messages.MAX_EPOCH
            self._out = 0
            self._moved = False
            self._quick = token.quick
            effects.append(Mail(self.first, token))

    def _reference(self, label: Label, peer: PeerId) -> Reference:
        return Reference(label, peer, tuple(self._addresses(peer)))

    # Letters.

    def receive(self, sender: PeerId, message: Letter, effects: Effects) -> None:
        """Take a letter to the supervisor."""
        if isinstance(message, Token):
            self._come_back(sender, message, effects)
            return
        if isinstance(message, messages.Acknowledge):
            return
        asked = self._asked.get(sender, 0)
        crowded = not asked and len(self._asked) >= self._config.max_subscribers
        if crowded or asked >= self._config.requests_per_interval:
            effects.append(Refuse(sender, reasons.TOO_MANY_REQUESTS, self.topic))
            return
        self._asked[sender] = asked + 1
        if isinstance(message, messages.Subscribe):
            self._subscribe(sender, message, effects)
        elif isinstance(message, messages.GetConfiguration):
            self._introduce(sender, message, effects)
        elif isinstance(message, messages.Unsubscribe):
            self.unreachable(sender)
            self.count = max(self.count - 1, 0)
            self._moved = True
            effects.append(Mail(sender, messages.SetData(self.topic, None, None, None)))
        else:
            effects.append(Refuse(sender, reasons.NOT_SUBSCRIBED, self.topic))

    def _subscribe(self, peer: PeerId, message: messages.Subscribe, effects: Effects) -> None:
        """SUBSCRIBE: the next label, and the neighbour of that label that we know."""
        if message.addresses:
            effects.append(Learn(peer, message.addresses))
        label = self._came.get(peer, self._came_before.get(peer))
        if label is None:
            if self.count >= self._config.max_subscribers:
                effects.append(Refuse(peer, reasons.TOO_MANY_SUBSCRIBERS, self.topic))
                return
            label = label_of(self.count)
            self.count += 1
            self._moved = True
        known = self._contact(label, peer)
        self._came[peer] = label
        self.last = Reference(label, peer)
        if self.first is None:
            self.first = peer
        effects.append(Mail(peer, messages.SetData(self.topic, known, label, None)))

    def _contact(self, label: Label, peer: PeerId) -> Reference | None:
        """Somebody near a label: who came last stands before it, unless a new level begins."""
        last, first = self.last, self.first
        if last is not None and last.label < label and last.peer != peer:
            return self._reference(last.label, last.peer)
        return None if first is None or first == peer else self._reference(0, first)

    def _introduce(
        self, sender: PeerId, message: messages.GetConfiguration, effects: Effects
    ) -> None:
        """GETCONFIGURATION: let the subject know the subscriber at 0, in whatever list it is."""
        subject = message.subject
        if message.addresses:
            effects.append(Learn(subject, message.addresses))
        self.first = self.first or sender
        self._moved = True
        # Who is at 0 ignores this; if it is dead we are told so.
        lowest = self._reference(0, self.first)
        effects.append(Mail(subject, messages.Introduce(self.topic, lowest, Flag.LIN)))

    def _come_back(self, sender: PeerId, token: Token, effects: Effects) -> None:
        """A token has been everywhere: believe its count when it comes twice, and send it again."""
        if token.epoch != self._epoch:
            if self._lost:
                self._patience = min(2 * self._patience, MAX_PATIENCE)
            effects.append(Refuse(sender, reasons.STALE_TOKEN, self.topic))
            return
        self._lost = 0
        if token.first is not None:
            self.first = token.first.peer
        if token.last is not None and not self._moved:
            self.last = Reference(token.last.label, token.last.peer)
        wrong = token.seen != self.count
        if wrong and not self._moved and token.seen == self._doubt:
            self.count = token.seen
        self._doubt = token.seen
        missing = token.missing + gaps(token.before, CIRCLE, max(self.count, 1))
        quick = wrong or self._moved or token.changed
        kept = tuple([each for each in missing if number_of(each) < self.count])
        again = Token(self.topic, 0, self.count, missing=kept[:MAX_MISSING], quick=quick)
        self._send(again, effects)

    def unreachable(self, peer: PeerId) -> None:
        """Somebody is gone: it is no contact any more."""
        if self.first == peer:
            self.first = None
        if self.last is not None and self.last.peer == peer:
            self.last = None
