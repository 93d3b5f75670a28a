"""HyParView as a pure object: a small active view that is used, a larger passive view in reserve.

A peer talks to few neighbours, and "p is a neighbour of q" holds for both or for neither. A
newcomer asks a contact to JOIN; the contact takes it in and sends its name on random walks
(FORWARD_JOIN) whose last stations become neighbours too. When a neighbour is lost, a peer of
the passive view takes its place: it is connected to and asked (NEIGHBOR), with high priority when
no neighbour is left, and then it must say yes, pushing out another (DISCONNECT). Passive views are
stirred by shuffles, random walks at whose end two peers exchange samples. With views of 5 and 30
the overlay stays connected when most of its peers crash at once (J. Leitão, J. Pereira,
L. Rodrigues, DSN 2007).

This module has the walks and the way in; `active_view` has the views, and what passes between two
neighbours.

Whoever owns the object feeds it with the inputs of its machine, and is told of neighbours gained
and lost (`on_up`, `on_down`). Connections are the runtime's; one that is no longer used is closed
after a while, not at once, because letters may be under way on it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Effects, Mail, SendAll, SetTimer
from rumormill.core.ids import PeerId
from rumormill.core.randomness import Randomness
from rumormill.core.rate_limit import RateLimit
from rumormill.overlay.hyparview import reasons
from rumormill.overlay.hyparview.active_view import BEAT, SWAP, ActiveView
from rumormill.overlay.hyparview.config import HyParViewConfig
from rumormill.overlay.hyparview.messages import Kind, Membership, PeerInfo

SHUFFLE: Final = "shuffle"
"""The timer of shuffles."""

_OPEN_SHUFFLES: Final = 4
"""Shuffles that may still be answered, the latest. Our choice: answers come within seconds, and
shuffles are seconds apart."""

_MESSAGE_RATE: Final = 50.0
MESSAGE_BURST: Final = 500.0
"""Membership messages per second, and at once, that one peer may send. Our choice: beats, walks and
shuffles of five neighbours are fewer than three; a contact passes on the newcomers of a busy
moment."""


class HyParView(ActiveView):
    """One peer's membership. `active` is the answer to GetNeighbors."""

    def __init__(
        self, peer: PeerId, randomness: Randomness, config: HyParViewConfig, **options: Any
    ) -> None:
        super().__init__(peer, randomness, config, **options)
        self._shuffles: dict[int, Sequence[PeerId]] = {}
        """What was named in each shuffle of ours that is still open, by its number."""
        self._rate_limits: dict[PeerId, RateLimit] = {}
        self._handlers: dict[int, Callable[[PeerId, Membership, float, Effects], None]] = {
            Kind.JOIN: self._on_join,
            Kind.FORWARD_JOIN: self._on_forward_join,
            Kind.NEIGHBOR: self._on_neighbor,
            Kind.NEIGHBOR_REPLY: self._on_neighbor_reply,
            Kind.DISCONNECT: self._on_disconnect,
            Kind.SHUFFLE: self._on_shuffle,
            Kind.SHUFFLE_REPLY: self._on_shuffle_reply,
            Kind.BEAT: self._on_beat,
        }

    def start(self, now: float, effects: Effects) -> None:
        """Begin; nothing is connected yet."""
        super().start(now, effects)
        config, draw = self._config, self._randomness.random
        effects.append(SetTimer(SHUFFLE, now + draw() * config.shuffle_interval))
        if config.swap_interval:
            # The first one soon: newcomers that came at the same moment may have closed their
            # circle among themselves.
            effects.append(SetTimer(SWAP, now + (0.1 + 0.2 * draw()) * config.swap_interval))

    def on_disconnected(self, peer: PeerId, now: float, effects: Effects) -> None:
        """A peer is gone; where it was a neighbour, another takes its place."""
        self._rate_limits.pop(peer, None)
        super().on_disconnected(peer, now, effects)

    def on_timer(self, timer: object, now: float, effects: Effects) -> bool:
        """Do what is due; false when the timer is not ours."""
        if timer == BEAT:
            effects.append(SetTimer(BEAT, now + self._config.beat_interval))
            self._beat(now, effects)
        elif timer == SHUFFLE:
            effects.append(SetTimer(SHUFFLE, now + self._config.shuffle_interval))
            self._shuffle(effects)
        elif timer == SWAP:
            effects.append(SetTimer(SWAP, now + self._config.swap_interval))
            self._swap(now, effects)
        else:
            return False
        return True

    def on_message(self, peer: PeerId, message: Membership, now: float, effects: Effects) -> None:
        """A peer sent a membership message."""
        limit = self._rate_limits.get(peer)
        if limit is None:
            if peer not in self._connected:
                # An answer to a shuffle may come as a letter, of which there is one per shuffle.
                if message.kind == Kind.SHUFFLE_REPLY:
                    self._on_shuffle_reply(peer, message, now, effects)
                else:
                    effects.append(trace.Refuse(peer, reasons.NOT_CONNECTED))
                return
            limit = RateLimit(_MESSAGE_RATE, MESSAGE_BURST)
            self._rate_limits[peer] = limit
        if not limit.take(now):
            effects.append(trace.Refuse(peer, reasons.TOO_MANY_MESSAGES))
            return
        handler = self._handlers.get(message.kind)
        if handler is None:
            effects.append(trace.Refuse(peer, reasons.UNKNOWN_KIND))
        else:
            handler(peer, message, now, effects)

    # Newcomers.

    def _on_join(self, peer: PeerId, message: Membership, now: float, effects: Effects) -> None:
        if message.peers and message.peers[0].peer == peer:
            self._learn(message.peers[0], effects)
        if not self._take_in(peer, True, now, effects):
            return
        others = tuple(other for other in self.active if other != peer)
        if others:
            hops, newcomer = self._config.active_walk - 1, self._infos((peer,))
            walk = Membership(Kind.FORWARD_JOIN, hops, peers=newcomer)
            effects.append(SendAll(others, self._wrap(walk)))

    def _on_forward_join(
        self, peer: PeerId, message: Membership, now: float, effects: Effects
    ) -> None:
        newcomer = self._walker(peer, message, effects)
        if newcomer is None or newcomer.peer in self.active or newcomer.peer in self._requests:
            return
        hops = self._clamped(peer, message.hops, effects)
        if hops == self._config.passive_walk:
            self._learn(newcomer, effects)
            self._add_passive(newcomer.peer, newcomer.addresses)
        onward = self._next_step(peer, newcomer.peer)
        if hops == 0 or onward is None:
            self._learn(newcomer, effects)
            self._ask(newcomer.peer, now, effects, insist=True)
        else:
            walk = Membership(Kind.FORWARD_JOIN, hops=hops - 1, peers=(newcomer,))
            self._send(onward, walk, effects)

    # Shuffles.

    def _shuffle(self, effects: Effects) -> None:
        if not self.active:
            return
        config = self._config
        target = self._randomness.choice(list(self.active))
        named = self._sample(list(self.active), config.shuffle_active, target)
        named += self.passive.sample(config.shuffle_passive)
        # Drawn at random, so that only somebody who saw the shuffle can answer it.
        number = int.from_bytes(self._randomness.randbytes(8), "big")
        remember(self._shuffles, number, named, _OPEN_SHUFFLES)
        peers = self._infos((self.id, *named))
        walk = Membership(Kind.SHUFFLE, hops=config.active_walk - 1, number=number, peers=peers)
        self._send(target, walk, effects)

    def _on_shuffle(self, peer: PeerId, message: Membership, now: float, effects: Effects) -> None:
        origin = self._walker(peer, message, effects)
        if origin is None:
            return
        hops = self._clamped(peer, message.hops, effects)
        onward = self._next_step(peer, origin.peer)
        if hops and onward is not None:
            walk = Membership(Kind.SHUFFLE, hops - 1, False, message.number, message.peers)
            self._send(onward, walk, effects)
            return
        self._learn(origin, effects)
        named = message.peers[: 1 + self._config.shuffle_active + self._config.shuffle_passive]
        answer = self.passive.sample(len(named), (origin.peer,))
        reply = Membership(Kind.SHUFFLE_REPLY, number=message.number, peers=self._infos(answer))
        effects.append(Mail(origin.peer, self._wrap(reply)))
        self._integrate(named, answer, effects)

    def _on_shuffle_reply(
        self, peer: PeerId, message: Membership, now: float, effects: Effects
    ) -> None:
        sent = self._shuffles.pop(message.number, None)
        if sent is None:
            effects.append(trace.Refuse(peer, reasons.UNASKED_REPLY))
            return
        self._integrate(message.peers[: 1 + len(sent)], sent, effects)

    def _integrate(
        self, named: Sequence[PeerInfo], given: Sequence[PeerId], effects: Effects
    ) -> None:
        """Take peers into the passive view; those that we gave away make room first."""
        leaving = [peer for peer in given if peer in self.passive]
        for info in named:
            peer = info.peer
            if not peer or peer == self.id or peer in self.active or peer in self.passive:
                continue
            self._learn(info, effects)
            self.passive.make_room(leaving)
            self._add_passive(peer, info.addresses)

    # Walks.

    def _walker(self, peer: PeerId, message: Membership, effects: Effects) -> PeerInfo | None:
        """Whom a walk is about, unless it is ourselves or the walk is not to be joined."""
        if peer not in self.active:
            effects.append(trace.Refuse(peer, reasons.NOT_NEIGHBOUR))
            return None
        if not message.peers or not message.peers[0].peer:
            effects.append(trace.Refuse(peer, reasons.NO_PEER))
            return None
        walker = message.peers[0]
        return None if walker.peer == self.id else walker

    def _next_step(self, came_from: PeerId, walker: PeerId) -> PeerId | None:
        others = [peer for peer in self.active if peer != came_from and peer != walker]
        return self._randomness.choice(others) if others else None

    def _clamped(self, peer: PeerId, hops: int, effects: Effects) -> int:
        limit = self._config.active_walk
        if hops <= limit:
            return hops
        effects.append(trace.Refuse(peer, reasons.HOPS_CLAMPED))
        return limit
