"""The two views: how peers become neighbours, notice that they are not, and who is in reserve.

"p is a neighbour of q" holds for both or for neither. Whoever wants a neighbour connects and asks
(NEIGHBOR, or JOIN where it has none and a contact is there); the one who is asked becomes a
neighbour when it says yes, the other when it hears so. Both directions of a connection keep their
order, so a later DISCONNECT finds both sides agreed. What goes wrong beyond that is mended by
beats: a sign of life to each neighbour, which carries the size estimate. A beat from somebody who
is no neighbour is answered by DISCONNECT; a neighbour without beats is given up.

A neighbour that is lost is replaced from the passive view. Who has no neighbour left asks with
high priority, and must not be refused; who is refused otherwise rests, a little longer each time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Connect, Disconnect, Effects, Learn, Send, SendAll, SetTimer
from rumormill.core.ids import PeerId
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness
from rumormill.core.rate_limit import RateLimit
from rumormill.overlay.address_groups import network_of
from rumormill.overlay.hyparview import reasons
from rumormill.overlay.hyparview.config import HyParViewConfig
from rumormill.overlay.hyparview.messages import Kind, Membership, PeerInfo
from rumormill.overlay.hyparview.size_estimate import SizeEstimate

Change: TypeAlias = Callable[[PeerId, float, Effects], None]

BEAT: Final = "beat"
"""The timer of signs of life and of everything that is looked after at intervals."""
SWAP: Final = "swap"
"""The timer at which one neighbour is exchanged."""

NO_LONGER_USED: Final = "not a neighbour for some time"
SILENT: Final = "neighbour is silent"

_LONGEST_REST: Final = 15
"""Beats that a peer waits at most before it asks again for neighbours that it lacks, having been
refused. Our choice: where everybody else has enough, asking more often changes nothing."""

_REPLY_TIMEOUT: Final = 5.0
"""Seconds that a peer has to answer a JOIN or NEIGHBOR, connecting included. Our choice."""

_LINGER: Final = 30.0
"""Seconds of silence after which a connection that was opened to ask a peer, and is not in use for
a neighbour, is closed. Our choice: letters may follow each other on it."""

MAX_CONTACTS: Final = 16
"""Peers remembered for joining again. Our choice."""

_NEWCOMER_RATE: Final = 50.0
_NEWCOMER_BURST: Final = 500.0
"""Newcomers per second, and at once, that may push a neighbour out of a full active view, all peers
together. Our choice: a flood of JOINs must not keep the view in turmoil."""

_PUSH_RATE: Final = 0.1
_PUSH_BURST: Final = 3.0
_MAX_PUSHERS: Final = 1024
"""How often one of them may, per second and at once, and of how many that is remembered. Our
choice: who comes, crashes and comes back does so a few times; one that comes and goes all the time
must not have our neighbours change with it."""

_SHARE: Final = 10
"""One group of addresses has so much of the passive view: a tenth, 3 of 30. Our choice."""

_OFFERED: Final = 8
"""Peers offered to somebody who is turned away. Our choice: as many as a shuffle names."""


class _Request(msgspec.Struct):
    """A JOIN or NEIGHBOR of ours that has no answer yet."""

    until: float
    insist: bool
    """Whether an answer of yes may push a neighbour out of our own view."""
    urgent: bool
    """Whether the other side is to say yes though its view is full."""
    sent: bool = False


class PassiveView:
    """Peers in reserve, never more than `size`, forgotten at random.

    One group of addresses has a tenth of it: who names many of its own pushes out those. Who must
    not be in it is the business of the active view.
    """

    __slots__ = ("_peers", "_randomness", "_size")

    def __init__(self, randomness: Randomness, size: int) -> None:
        self._randomness = randomness
        self._size = size
        self._peers: dict[PeerId, str] = {}
        """With the group of each."""

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._peers

    def __iter__(self) -> Iterator[PeerId]:
        return iter(self._peers)

    def add(self, peer: PeerId, group: str = "") -> None:
        """Take a peer in; when there is no room, another one drawn at random leaves."""
        if peer in self._peers:
            return
        same = [other for other, its in self._peers.items() if group and its == group]
        if len(same) >= max(1, self._size // _SHARE):
            del self._peers[self._randomness.choice(same)]
        elif len(self._peers) >= self._size:
            del self._peers[self._randomness.choice(list(self._peers))]
        self._peers[peer] = group

    def discard(self, peer: PeerId) -> None:
        """Forget a peer, if it is there."""
        self._peers.pop(peer, None)

    def make_room(self, leaving: list[PeerId]) -> None:
        """When full, forget one of `leaving`, which shrinks, as long as it names anybody here."""
        while leaving and len(self._peers) >= self._size:
            self.discard(leaving.pop())

    def sample(self, count: int, without: Sequence[PeerId] = ()) -> list[PeerId]:
        """Draw up to `count` peers."""
        peers = [peer for peer in self._peers if peer not in without]
        return self._randomness.sample(peers, min(count, len(peers)))


class ActiveView:
    """The neighbours of one peer, and the peers in reserve."""

    def __init__(
        self,
        peer: PeerId,
        randomness: Randomness,
        config: HyParViewConfig,
        *,
        wrap: Callable[[Membership], WireMessage],
        addresses: Callable[[PeerId], Sequence[bytes]],
        on_up: Change,
        on_down: Change,
    ) -> None:
        self.id = peer
        self.active: dict[PeerId, float] = {}
        """The neighbours in the order in which they came, each with its last sign of life."""
        self.passive = PassiveView(randomness, config.passive_size)
        self.estimate = SizeEstimate(randomness, config.minima, config.epoch)
        self._randomness = randomness
        self._config = config
        self._wrap = wrap
        self._addresses = addresses
        self._on_up = on_up
        self._on_down = on_down
        self._connected: dict[PeerId, float] = {}
        """Peers that can be talked to, each with when that was last made use of."""
        self._dialled: dict[PeerId, None] = {}
        """Those of them that we had dialled to ask them."""
        self._contacts: dict[PeerId, None] = {}
        self._requests: dict[PeerId, _Request] = {}
        self._tried: dict[PeerId, None] = {}
        self._rest = self._rested = 0
        self._has_swapped = False
        self._uninformed: dict[PeerId, None] = {}
        self._newcomers = RateLimit(_NEWCOMER_RATE, _NEWCOMER_BURST)
        self._pushers: dict[PeerId, RateLimit] = {}

    @property
    def size(self) -> float:
        """How many peers there are, as far as is known."""
        return self.estimate.size

    # Connections.

    def start(self, now: float, effects: Effects) -> None:
        """Begin; nothing is connected yet."""
        self.estimate.advance(now)
        delay = self._randomness.random() * self._config.beat_interval
        effects.append(SetTimer(BEAT, now + delay))

    def on_connected(self, peer: PeerId, outbound: bool, now: float, effects: Effects) -> None:
        """A peer can be talked to; who has no neighbour asks the first one, whoever dialled."""
        self._connected[peer] = now
        if peer in self._requests:
            if outbound:
                self._dialled[peer] = None
            self._send_request(peer, now, effects)
            return
        if outbound:
            remember(self._contacts, peer, None, MAX_CONTACTS)
            self._add_passive(peer)
        if not self.active and not self._requests:
            self._ask(peer, now, effects)

    def on_disconnected(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A peer is gone; where it was a neighbour, another takes its place."""
        self._connected.pop(peer, None)
        self._dialled.pop(peer, None)
        asked = self._requests.pop(peer, None)
        if peer in self.active:
            self._remove(peer, now, effects)
            self.passive.discard(peer)
        elif asked is not None:
            self.passive.discard(peer)
        else:
            return
        self._repair(now, effects)

    def on_connect_failed(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A peer of the passive view turned out to be gone."""
        self.passive.discard(peer)
        if self._requests.pop(peer, None) is not None:
            self._repair(now, effects)

    def touch(self, peer: PeerId, now: float) -> None:
        """A connection is in use, by whatever message."""
        if peer in self._connected:
            self._connected[peer] = now

    # Becoming neighbours.

    def _ask(
        self,
        peer: PeerId,
        now: float,
        effects: Effects,
        *,
        insist: bool = False,
        urgent: bool = False,
    ) -> None:
        """Ask a peer to be our neighbour, once it is connected."""
        self._requests[peer] = _Request(now + _REPLY_TIMEOUT, insist, urgent)
        if peer in self._connected:
            self._send_request(peer, now, effects)
        else:
            effects.append(Connect(peer))

    def _send_request(self, peer: PeerId, now: float, effects: Effects) -> None:
        request = self._requests[peer]
        if request.sent:
            return
        request.sent = True
        alone = not self.active
        newcomer = not len(self.passive) or peer in self._contacts
        if alone and newcomer:
            message = Membership(Kind.JOIN, peers=self._infos((self.id,)))
        else:
            message = Membership(Kind.NEIGHBOR, yes=alone or request.urgent)
        self._send(peer, message, effects)

    def _on_neighbor(self, peer: PeerId, message: Membership, now: float, effects: Effects) -> None:
        self._take_in(peer, message.yes, now, effects)

    def _take_in(self, peer: PeerId, must: bool, now: float, effects: Effects) -> bool:
        """Make a peer our neighbour if there is room or it must be; tell it; say whether it is new.

        What it asked of us and what we asked of it are the same thing: a request of ours is over.
        """
        known = peer in self.active
        if not known and len(self.active) >= self._config.active_size:
            reason = None if must else reasons.VIEW_FULL
            if must and not self._may_push(peer, now):
                reason = reasons.TOO_MANY_NEWCOMERS
            if reason is not None:
                effects.append(trace.Refuse(peer, reason))
                offered = self._sample([*self.active, *self.passive], _OFFERED, peer)
                refusal = Membership(Kind.NEIGHBOR_REPLY, peers=self._infos(offered))
                self._send(peer, refusal, effects)
                return False
            self._evict(now, effects)
        self._send(peer, Membership(Kind.NEIGHBOR_REPLY, yes=True), effects)
        if not known:
            self._requests.pop(peer, None)
            self._add(peer, now, effects)
        return not known

    def _may_push(self, peer: PeerId, now: float) -> bool:
        """Whether a peer may push a neighbour out of a full view."""
        limit = self._pushers.get(peer) or RateLimit(_PUSH_RATE, _PUSH_BURST)
        remember(self._pushers, peer, limit, _MAX_PUSHERS)
        return limit.take(now) and self._newcomers.take(now)

    def _on_neighbor_reply(
        self, peer: PeerId, message: Membership, now: float, effects: Effects
    ) -> None:
        request = self._requests.pop(peer, None)
        if request is None:
            if message.yes and peer not in self.active:
                effects.append(trace.Refuse(peer, reasons.UNASKED_REPLY))
                self._send(peer, Membership(Kind.DISCONNECT), effects)
            return
        if message.yes:
            full = len(self.active) >= self._config.active_size
            if full and not request.insist:
                self._send(peer, Membership(Kind.DISCONNECT), effects)
                self._add_passive(peer)
                return
            if full:
                self._evict(now, effects)
            self._add(peer, now, effects)
            return
        for info in message.peers[:_OFFERED]:
            self._learn(info, effects)
            self._add_passive(info.peer, info.addresses)
        self._tried[peer] = None
        self._rest = min(2 * self._rest + 1, _LONGEST_REST)
        self._repair(now, effects)

    def _on_disconnect(
        self, peer: PeerId, message: Membership, now: float, effects: Effects
    ) -> None:
        if peer in self.active:
            self._remove(peer, now, effects)
            self._add_passive(peer)
            self._tried[peer] = None
            self._repair(now, effects)

    def _add(self, peer: PeerId, now: float, effects: Effects) -> None:
        self.passive.discard(peer)
        self.active[peer] = now
        self._uninformed[peer] = None
        self._on_up(peer, now, effects)

    def _remove(self, peer: PeerId, now: float, effects: Effects) -> None:
        del self.active[peer]
        self._uninformed.pop(peer, None)
        self._rest = self._rested = 0
        self._on_down(peer, now, effects)

    def _evict(self, now: float, effects: Effects) -> None:
        """Make room for a neighbour."""
        peer = self._randomness.choice(list(self.active))
        self._remove(peer, now, effects)
        self._add_passive(peer)
        self._send(peer, Membership(Kind.DISCONNECT), effects)

    def _repair(self, now: float, effects: Effects) -> None:
        """Ask peers of the passive view until the active view would be full."""
        missing = self._config.active_size - len(self.active) - len(self._requests)
        if missing <= 0:
            return
        for peer in self.passive.sample(missing, (*self._requests, *self._tried)):
            self._tried[peer] = None
            self._ask(peer, now, effects)

    def _swap(self, now: float, effects: Effects) -> None:
        """Exchange a neighbour for somebody in reserve, or for a contact.

        Where all views are full nothing else ever changes them: two halves that a partition left
        behind, each of them whole, would never find together again. The first exchange is as
        likely one for a contact as not: what leads from everybody to the contact of its contact
        holds a network together in which many joined at one moment, whatever circles they closed.
        """
        if len(self.active) < self._config.active_size:
            return
        busy = {**self.active, **self._requests}
        free = [
            peer for peer in dict.fromkeys((*self.passive, *self._contacts)) if peer not in busy
        ]
        contacts = [peer for peer in self._contacts if peer not in busy]
        if contacts and not self._has_swapped and self._randomness.random() < 0.5:
            free = contacts
        self._has_swapped = True
        if free:
            self._ask(self._randomness.choice(free), now, effects, insist=True, urgent=True)

    # Beats.

    def _beat(self, now: float, effects: Effects) -> None:
        config = self._config
        silent = now - config.silent_beats * config.beat_interval
        for peer in [peer for peer, heard in self.active.items() if heard < silent]:
            self._remove(peer, now, effects)
            self.passive.discard(peer)
            effects.append(Disconnect(peer, SILENT))
        for peer in [peer for peer, asked in self._requests.items() if asked.until <= now]:
            del self._requests[peer]
            self.passive.discard(peer)
        self._close_unused(now, effects)
        self._rested += 1
        if self._rested > self._rest or not self.active:
            self._rested = 0
            self._tried.clear()
            self._repair(now, effects)
        if not self.active and not self._requests and (self._contacts or self._connected):
            # Nobody is left to ask: go to a contact, or to whoever is connected.
            known = list(self._contacts) or list(self._connected)
            self._ask(self._randomness.choice(known), now, effects)
        if self.estimate.advance(now):
            self._uninformed = dict.fromkeys(self.active)
        self._send_beats(effects)

    def _send_beats(self, effects: Effects) -> None:
        """Tell neighbours that we live, and the minima to those that may not have them.

        One that should have them gets them all the same, each time another: news may be lost.
        """
        informed = [peer for peer in self.active if peer not in self._uninformed]
        if informed:
            again = informed.pop(self._randomness.randrange(len(informed)))
            self._uninformed[again] = None
        if informed:
            effects.append(SendAll(tuple(informed), self._wrap(Membership(Kind.BEAT))))
        if self._uninformed:
            estimate = self.estimate
            news = Membership(Kind.BEAT, epoch=estimate.epoch, minima=estimate.minima)
            effects.append(SendAll(tuple(self._uninformed), self._wrap(news)))
            self._uninformed = {}

    def _on_beat(self, peer: PeerId, message: Membership, now: float, effects: Effects) -> None:
        if peer not in self.active:
            if peer not in self._requests:
                effects.append(trace.Refuse(peer, reasons.NOT_NEIGHBOUR))
                self._send(peer, Membership(Kind.DISCONNECT), effects)
            return
        self.active[peer] = now
        if not message.minima:
            return
        estimate = self.estimate
        before = estimate.minima
        reason = estimate.merge(message.epoch, message.minima, now)
        if reason is not None:
            effects.append(trace.Refuse(peer, reason))
        elif estimate.minima != before:
            self._uninformed = dict.fromkeys(self.active)
        if message.epoch == estimate.epoch and message.minima == estimate.minima:
            self._uninformed.pop(peer, None)

    def _close_unused(self, now: float, effects: Effects) -> None:
        """Close what we had dialled for nothing; other connections are others' to close."""
        unused = now - _LINGER
        for peer in self._dialled:
            used = self._connected[peer]
            if used < unused and peer not in self.active and peer not in self._requests:
                effects.append(Disconnect(peer, NO_LONGER_USED))

    # Small parts.

    def _add_passive(self, peer: PeerId, addresses: Sequence[bytes] = ()) -> None:
        """Keep a peer in reserve; somebody may have said where it is."""
        if peer and peer != self.id and peer not in self.active:
            self.passive.add(peer, network_of(addresses or self._addresses(peer)))

    def _sample(self, peers: list[PeerId], count: int, without: PeerId = b"") -> list[PeerId]:
        if without:
            peers = [peer for peer in peers if peer != without]
        return self._randomness.sample(peers, min(count, len(peers)))

    def _infos(self, peers: Sequence[PeerId]) -> tuple[PeerInfo, ...]:
        return tuple([PeerInfo(peer, tuple(self._addresses(peer))) for peer in peers])

    def _learn(self, info: PeerInfo, effects: Effects) -> None:
        if info.addresses and info.peer and info.peer != self.id:
            effects.append(Learn(info.peer, info.addresses))

    def _send(self, peer: PeerId, message: Membership, effects: Effects) -> None:
        effects.append(Send(peer, self._wrap(message)))
