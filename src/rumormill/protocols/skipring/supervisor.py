"""The supervisor of one topic, Algorithm 3, and which of several supervisors a topic has.

The database maps labels to subscribers. Sound, it holds exactly the labels l(0), ..., l(n-1), each
subscriber once; then the neighbours of any label follow from n alone, and every operation touches a
constant number of tuples. The supervisor sends one subscriber per TIMEOUT its configuration, in
turn, and answers requests.

The database may be corrupt in any way (section 3.1): tuples without subscriber, subscribers with
several labels, labels missing, labels beyond n. The paper checks all of it in every TIMEOUT. Here a
TIMEOUT checks a bounded number of tuples, going round: each is either sound, removed, or moved to a
label that is missing, so after one round for every fault nothing is left to repair, and a TIMEOUT
costs the same whether there are ten subscribers or 100,000. `index`, which finds a subscriber's
label, is checked in the same way, because it may be corrupt too.

The failure detector (section 3.3) is here and nowhere else. A subscriber acknowledges each
configuration. One that does not, or that the runtime cannot reach, is sent its configuration again;
after some misses in a row it is removed. When somebody who was removed for its silence proves to
have been alive, the detector's patience doubles: however slow the network, it is right in the end.
A SUBSCRIBE proves nothing of the kind: who sends it has no label, because it has started again or
knows by now that it was removed. An acknowledgement that came late does.

Several supervisors share the topics by consistent hashing, as the end of section 1.3 proposes.
Supervisors and topics are hashed to points of a circle, a supervisor to many; a topic belongs to
the supervisor whose point is the next one. So everybody who knows the same supervisors agrees, and
one that joins or leaves changes the supervisor of its own share of the topics and of no other.
"""

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from rumormill.core.bounded import remember
from rumormill.core.effects import Effects, Learn, Mail
from rumormill.core.ids import PeerId, Topic, no_addresses
from rumormill.core.trace import Refuse
from rumormill.protocols.skipring import reasons
from rumormill.protocols.skipring.config import MAX_PATIENCE, SkipRingConfig
from rumormill.protocols.skipring.labels import Label, label_of, number_of, ring_neighbours
from rumormill.protocols.skipring.messages import (
    Acknowledge,
    GetConfiguration,
    Letter,
    Reference,
    SetData,
    Subscribe,
    Unsubscribe,
)

POINTS: Final = 128
"""Points of one supervisor. Our choice: shares then differ by a tenth or so."""


class _Silence(msgspec.Struct):
    """A subscriber that owes an acknowledgement."""

    due: int
    """The TIMEOUT at which it counts as missed."""
    misses: int = 0


class Supervisor:
    """One topic's database and what is done with it."""

    def __init__(
        self,
        topic: Topic,
        config: SkipRingConfig,
        addresses: Callable[[PeerId], Sequence[bytes]] = no_addresses,
    ) -> None:
        self.topic = topic
        self.database: OrderedDict[Label, PeerId | None] = OrderedDict()
        self.index: OrderedDict[PeerId, Label] = OrderedDict()
        self.next = 0
        """The number of the subscriber that was last sent its configuration in turn."""
        self.patience = config.patience
        """For how many TIMEOUTs an acknowledgement is waited for."""
        self._config = config
        self._addresses = addresses
        self._clock = 0
        self._gap = 0
        self._silent: OrderedDict[PeerId, _Silence] = OrderedDict()
        self._removed: OrderedDict[PeerId, None] = OrderedDict()
        self._asked: dict[PeerId, int] = {}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to supervise."""
        return not self.database

    # TIMEOUT.

    def timeout(self, effects: Effects, *, configures: bool = True) -> None:
        """TIMEOUT: check some tuples, send one configuration, look after those who are silent.

        In an interval in which another topic has its turn no configuration is sent.
        """
        self._clock += 1
        self._asked.clear()
        self._check_labels()
        self._check_index()
        self._check_silence(effects)
        count = len(self.database)
        if count and configures:
            self.next = (self.next + 1) % count
            peer = self.database.get(label_of(self.next))
            if peer is not None:
                self._configure(peer, effects)

    def _check_labels(self) -> None:
        """CHECKLABELS for the next few tuples of the round."""
        database = self.database
        for _ in range(min(self._config.tuples_per_timeout, len(database))):
            label, peer = next(iter(database.items()))
            if peer is None or self._is_copy(label, peer):
                self._remove(label)
            elif number_of(label) < len(database):
                database.move_to_end(label)
            elif (missing := self._missing_label()) is None:
                return
            else:
                del database[label]
                self.record(missing, peer)

    def _is_copy(self, label: Label, peer: PeerId) -> bool:
        """CHECKMULTIPLECOPIES: whether the subscriber has another label, which is lower.

        A subscriber that the index does not know at this label is entered there.
        """
        other = self.index.get(peer)
        if other is None or self.database.get(other) != peer:
            self.index[peer] = label
            return False
        if other == label:
            return False
        if number_of(other) < number_of(label):
            return True
        self.index[peer] = label
        self._remove(other, but=label)
        return False

    def _missing_label(self) -> Label | None:
        """A label below n that nobody has; there are as many as labels beyond n.

        The search goes on where it ended; None when it has found nothing within its bound.
        """
        database = self.database
        for _ in range(self._config.tuples_per_timeout):
            self._gap = (self._gap + 1) % len(database)
            label = label_of(self._gap)
            if label not in database:
                return label
        return None

    def _check_index(self) -> None:
        """Forget who is in the index and not in the database, a few per TIMEOUT."""
        index, database = self.index, self.database
        for _ in range(min(self._config.tuples_per_timeout, len(index))):
            peer, label = next(iter(index.items()))
            if database.get(label) == peer:
                index.move_to_end(peer)
            else:
                del index[peer]

    # The database.

    def label(self, peer: PeerId) -> Label | None:
        """The label of a subscriber, where it is recorded."""
        label = self.index.get(peer)
        return label if label is not None and self.database.get(label) == peer else None

    def record(self, label: Label, peer: PeerId | None) -> None:
        """Enter a tuple as it is, sound or not."""
        self.database[label] = peer
        if peer is not None:
            self.index[peer] = label

    def _remove(self, label: Label, but: Label | None = None) -> PeerId | None:
        """Take a tuple out and give its label to the subscriber with the last one.

        Returns who was given the label. Labels beyond n, and one that is `but` not to be touched,
        are left to the check.
        """
        database = self.database
        peer = database.pop(label)
        if peer is not None and self.index.get(peer) == label:
            del self.index[peer]
        last = label_of(len(database))
        heir = database.get(last)
        if heir is None or last == but or number_of(label) >= len(database):
            return None
        del database[last]
        database[label] = heir
        if self.label(heir) is None:
            self.index[heir] = label
        return heir

    def _reference(self, label: Label) -> Reference | None:
        peer = self.database.get(label)
        return None if peer is None else Reference(label, peer, tuple(self._addresses(peer)))

    # Configurations.

    def _configure(self, peer: PeerId, effects: Effects) -> None:
        """GETCONFIGURATION: send a subscriber its label and neighbours.

        Who is not recorded is told so, and subscribes again if it is a subscriber. As long as the
        database lacks a neighbour's label, the configuration waits for its repair.
        """
        label = self.label(peer)
        if label is None:
            effects.append(Mail(peer, SetData(self.topic, None, None, None)))
            return
        before, behind = ring_neighbours(label, len(self.database))
        pred = succ = None
        if before != label:
            pred, succ = self._reference(before), self._reference(behind)
            if pred is None or succ is None:
                return
        effects.append(Mail(peer, SetData(self.topic, pred, label, succ)))
        if self.patience and peer not in self._silent:
            self._silent[peer] = _Silence(self._clock + self.patience)

    # Requests.

    def receive(self, sender: PeerId, message: Letter, effects: Effects) -> None:
        """Take a letter to the supervisor."""
        self._alive(sender, message)
        if isinstance(message, Acknowledge):
            return
        asked = self._asked.get(sender, 0)
        crowded = not asked and len(self._asked) >= self._config.max_subscribers
        if crowded or asked >= self._config.requests_per_interval:
            effects.append(Refuse(sender, reasons.TOO_MANY_REQUESTS, self.topic))
            return
        self._asked[sender] = asked + 1
        if isinstance(message, Subscribe):
            self._subscribe(sender, message, effects)
        elif isinstance(message, GetConfiguration):
            if message.addresses:
                effects.append(Learn(message.subject, message.addresses))
            self._configure(message.subject, effects)
        elif isinstance(message, Unsubscribe):
            self._forget(sender, effects)
            # Said even if it was not known.
            effects.append(Mail(sender, SetData(self.topic, None, None, None)))
        else:
            effects.append(Refuse(sender, reasons.NOT_SUBSCRIBED, self.topic))

    def _subscribe(self, peer: PeerId, message: Subscribe, effects: Effects) -> None:
        """SUBSCRIBE: record a subscriber under the next label."""
        if message.addresses:
            effects.append(Learn(peer, message.addresses))
        if self.label(peer) is None:
            database = self.database
            if len(database) >= self._config.max_subscribers:
                effects.append(Refuse(peer, reasons.TOO_MANY_SUBSCRIBERS, self.topic))
                return
            label: Label | None = label_of(len(database))
            if label in database:
                label = self._missing_label()  # somebody has a label beyond n
            if label is None:
                return  # the subscriber asks again
            self.record(label, peer)
        self._configure(peer, effects)

    def _forget(self, peer: PeerId, effects: Effects) -> None:
        """Remove a subscriber, and configure those whose neighbourhood changes by that.

        The paper configures the heir alone; the neighbours of both places would learn of it in
        their turn, or when the ring has closed the gap over as many hops as there are subscribers.
        """
        self._silent.pop(peer, None)
        label = self.label(peer)
        if label is None:
            return
        last = label_of(len(self.database) - 1)
        self._remove(label)
        changed = {label: None, **dict.fromkeys(self._around(label) + self._around(last))}
        for place in changed:
            neighbour = self.database.get(place)
            if neighbour is not None:
                self._configure(neighbour, effects)

    def _around(self, label: Label) -> tuple[Label, ...]:
        """The labels before and behind a place that may be taken or not."""
        count = len(self.database)
        if number_of(label) < count:
            return ring_neighbours(label, count)
        return ring_neighbours(label, count + 1) if number_of(label) == count else ()

    # The failure detector.

    def _alive(self, peer: PeerId, message: Letter) -> None:
        self._silent.pop(peer, None)
        if peer in self._removed:
            del self._removed[peer]
            if not isinstance(message, Subscribe):
                self.patience = min(2 * self.patience, MAX_PATIENCE)

    def unreachable(self, peer: PeerId) -> None:
        """The runtime could not reach a subscriber: do not wait for its acknowledgement."""
        silence = self._silent.get(peer)
        if silence is not None:
            silence.due = self._clock
            self._silent.move_to_end(peer, last=False)

    def _check_silence(self, effects: Effects) -> None:
        """Ask those again who are overdue, and remove who has missed too often."""
        silent = self._silent
        for _ in range(self._config.probes_per_timeout):
            peer, silence = next(iter(silent.items()), (b"", None))
            if silence is None or silence.due > self._clock:
                return
            del silent[peer]
            if silence.misses + 1 >= self._config.misses:
                remember(self._removed, peer, None, self._config.max_subscribers)
                self._forget(peer, effects)
            elif self.label(peer) is not None:
                self._configure(peer, effects)
                again = silent.get(peer)
                if again is not None:
                    again.misses = silence.misses + 1


def _point(kind: bytes, name: bytes) -> int:
    return int.from_bytes(hashlib.sha256(kind + name).digest()[:8], "big")


class Supervisors:
    """The supervisors that share all topics."""

    def __init__(self, peers: Iterable[PeerId]) -> None:
        self.peers: dict[PeerId, None] = dict.fromkeys(peers)
        points = [
            (_point(b"supervisor", number.to_bytes(2, "big") + peer), peer)
            for peer in self.peers
            for number in range(POINTS)
        ]
        points.sort()
        self._points = [point for point, _ in points]
        self._owners = [peer for _, peer in points]

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self.peers

    def of(self, topic: Topic) -> PeerId | None:
        """The supervisor of a topic; None when there is no supervisor at all."""
        if not self._points:
            return None
        place = bisect_left(self._points, _point(b"topic", topic.encode()))
        return self._owners[place % len(self._owners)]
