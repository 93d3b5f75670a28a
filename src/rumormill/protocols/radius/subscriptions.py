"""The subscribing half of radius gossip: SUB and UNSUB, ours and others'.

Our own subscriptions stand in a map of their own. Each is announced with a date at which it ends,
and announced anew, with a later date, when a fifth of its time is left: by a timer set for that
moment, so no period has to be right. What others announce is kept and passed on as far as it may
travel. Interests that are to be passed on wait a moment for each other and go to each neighbour
in one frame, without those that the neighbour itself brought.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Effects, Send, SendAll, SetTimer
from rumormill.core.identity import Identity
from rumormill.core.ids import PeerId, Topic
from rumormill.core.randomness import Randomness
from rumormill.core.rate_limit import RateLimit
from rumormill.protocols.radius import reasons
from rumormill.protocols.radius.config import RadiusConfig
from rumormill.protocols.radius.interest_table import FAR, Entry, InterestTable
from rumormill.protocols.radius.messages import (
    DEFAULT_LIMITS,
    Frame,
    Interest,
    Spread,
    is_signed,
    sign,
    spread_size,
)
from rumormill.protocols.radius.radii import Radii

GATHER: Final = "gather"
"""The timer at which waiting interests are passed on."""
RENEW: Final = "renew"
"""The timer at which the first of our subscriptions is to be renewed."""

GREET_RETRY: Final = 1.0
"""Seconds until interests that could not be sent to a neighbour are sent again. Our choice."""

_GREETED: Final = (20_000.0, 100_000.0)
"""Interests that new neighbours are told, a second and at once. Our choice: twenty neighbours in a
network of 5,000 subscriptions; who comes and goes all the time waits for the others."""

_HOPS_IN_TIME: Final = 16
"""A renewal that each hop keeps as long as it may is everywhere in time after so many hops. Our
choice: the diameter of 10^6 peers."""

_EARLY: Final = 0.05
"""What is to be renewed within this part of a `ttl` is renewed together. Our choice."""


class Greet(msgspec.Struct, frozen=True):
    """The timer at which a neighbour is told interests that could not be sent to it."""

    peer: PeerId


def _onward(entry: Entry) -> Spread:
    """An interest as a neighbour is told it."""
    return Spread(entry.interest, entry.hops - 1, min(entry.distance + 1, FAR))


class Subscriptions:
    """Who wants what, as far as this peer was told, and the spreading of it."""

    def __init__(
        self,
        identity: Identity,
        randomness: Randomness,
        config: RadiusConfig,
        *,
        neighbours: Mapping[PeerId, float],
        radii: Radii,
        may_verify: Callable[[PeerId, float], bool],
        may_introduce: Callable[[PeerId, float], bool],
        addresses: Callable[[PeerId], Sequence[bytes]],
    ) -> None:
        self.own: dict[Topic, Entry] = {}
        """Our subscriptions."""
        self._renewal_at = 0.0
        self.interests = InterestTable(config)
        self._identity = identity
        self._randomness = randomness
        self._config = config
        self._neighbours = neighbours
        self._radii = radii
        self._may_verify = may_verify
        self._may_introduce = may_introduce
        self._addresses = addresses
        self._sequence = 0
        self._ended: dict[Topic, Entry] = {}
        self._waiting: dict[Entry, tuple[PeerId, ...]] = {}
        """What is to be passed on, each with the neighbours that know it already."""
        self._flushes_at = inf
        self._greetings = RateLimit(*_GREETED)

    def start(self, hops: int, now: float, effects: Effects) -> None:
        """Begin, or go on with what was known before: timers are gone then."""
        if self._waiting:
            self._flushes_at = now + self._config.gather
            effects.append(SetTimer(GATHER, self._flushes_at))
        self.renew(hops, now, effects)

    # Our own.

    def subscribe(self, topic: Topic, hops: int, now: float, effects: Effects) -> None:
        """Announce a subscription, or renew one."""
        known = self.own.pop(topic, None)
        for earlier in (known, self._ended.pop(topic, None)):
            if earlier is not None:
                self._waiting.pop(earlier, None)
        expires = int((now + self._lasting()) * 1e6)
        entry = Entry(self._word(topic, expires, now), hops, known.since if known else now)
        self.own[topic] = entry
        self._pass_on(entry, (), now, effects, known.interest.expires if known else 0)
        if len(self.own) == 1 or self._renewal(entry) < self._renewal_at:
            self._set_renewal(now, effects)

    def _lasting(self) -> float:
        """How long a subscription lasts: the longer, the more of them everybody hears of."""
        config = self._config
        return min(config.max_ttl, max(config.ttl, len(self.interests) / config.renew_rate))

    def unsubscribe(self, topic: Topic, hops: int, now: float, effects: Effects) -> None:
        """Withdraw a subscription: until its date, whoever hears of it must know that."""
        known = self.own.pop(topic)
        self._waiting.pop(known, None)
        farewell = self._word(topic, known.interest.expires, now, withdrawn=True)
        entry = Entry(farewell, hops, now)
        remember(self._ended, topic, entry, self._config.max_subscriptions)
        self._pass_on(entry, (), now, effects)

    def _word(self, topic: Topic, expires: int, now: float, *, withdrawn: bool = False) -> Interest:
        identity = self._identity
        self._sequence = max(self._sequence + 1, int(now * 1e6))
        addresses = () if withdrawn else tuple(self._addresses(identity.peer))
        interest = Interest(identity.peer, topic, self._sequence, expires, withdrawn, addresses)
        sign(interest, identity)
        return interest

    def renew(self, hops: int, now: float, effects: Effects) -> None:
        """Renew the subscriptions that are due, and set the timer for the next."""
        due = now + _EARLY * self._config.ttl
        for topic in [topic for topic, entry in self.own.items() if self._renewal(entry) <= due]:
            self.subscribe(topic, hops, now, effects)
        if self.own:
            self._set_renewal(now, effects)

    def _renewal(self, entry: Entry) -> float:
        """When a subscription of ours is to be renewed."""
        config, expires = self._config, entry.interest.expires
        lasts = max(config.ttl * 1e6, expires - entry.interest.sequence)
        return (expires - config.renew_left * lasts) / 1e6

    def _set_renewal(self, now: float, effects: Effects) -> None:
        self._renewal_at = max(now, min(map(self._renewal, self.own.values())))
        effects.append(SetTimer(RENEW, self._renewal_at))

    def widen(self, hops: int, now: float, effects: Effects) -> None:
        """The network turned out to be larger: announce again what has not travelled so far."""
        for entry in (*self.own.values(), *self._ended.values()):
            if entry.hops < hops:
                entry.hops = hops
                self._pass_on(entry, (), now, effects)

    # Others'.

    def on_spreads(
        self, peer: PeerId, spreads: tuple[Spread, ...], now: float, effects: Effects
    ) -> None:
        """A peer passed on interests."""
        find, limit, me = self.interests.find, self._config.max_hops, self._identity.peer
        waiting, enough = self._waiting, self._radii.enough
        refused: dict[str, int] = {}
        for spread in spreads:
            interest, hops, distance = spread.interest, spread.hops, spread.distance or FAR
            if hops > limit:
                refused[reasons.HOPS_CLAMPED] = refused.get(reasons.HOPS_CLAMPED, 0) + 1
                hops = limit
            owner = interest.owner
            if owner == me:
                continue  # our own words come back: every flood returns to its origin
            entry = find(interest.topic, owner)
            if entry is not None and interest.sequence == entry.interest.sequence:
                if hops > entry.hops and entry.hops < enough:
                    self.interests.bring_closer(entry, hops, distance)
                    self._pass_on(entry, (peer,), now, effects)
                elif peer not in waiting.get(entry, (peer,)) and hops + 1 >= min(
                    entry.hops - 1, enough
                ):
                    waiting[entry] += (peer,)
                continue
            reason = self._refusal(peer, interest, entry, now)
            if reason is not None:
                refused[reason] = refused.get(reason, 0) + 1
                continue
            until = 0 if entry is None or entry.lost else entry.interest.expires
            entry = self.interests.put(interest, hops, now, self._informant(peer), distance)
            if hops:
                self._pass_on(entry, (peer,), now, effects, until if entry.since < now else 0)
        for reason, count in refused.items():
            effects.append(trace.Refuse(peer, reason, count=count))

    def _refusal(
        self, peer: PeerId, interest: Interest, entry: Entry | None, now: float
    ) -> str | None:
        """Why an interest is not taken in; the signature is looked at last, since it costs most."""
        config = self._config
        if entry is not None and interest.sequence < entry.interest.sequence:
            return reasons.SUPERSEDED
        if not interest.topic:
            return reasons.NO_TOPIC
        if interest.expires <= now * 1e6:
            return reasons.EXPIRED
        latest = now + config.clock_skew
        if interest.expires > (latest + config.max_ttl) * 1e6 or interest.sequence > latest * 1e6:
            return reasons.TOO_FAR_AHEAD
        if entry is None:
            owner = interest.owner
            full = self.interests.no_room(interest.topic, owner, self._informant(peer))
            if full is not None:
                return full
            new = owner != peer and owner not in self.interests.owners
            if new and not self._may_introduce(peer, now):
                return reasons.TOO_MANY_OWNERS
        if not self._may_verify(peer, now):
            return reasons.TOO_MANY_NEW
        if not is_signed(interest, self._identity):
            return reasons.INVALID_SIGNATURE
        return None

    def _informant(self, peer: PeerId) -> PeerId:
        """Who answers for what a peer said: a neighbour for itself, strangers together."""
        return peer if peer in self._neighbours else b""

    # Spreading.

    def _pass_on(
        self,
        entry: Entry,
        known_to: tuple[PeerId, ...],
        now: float,
        effects: Effects,
        until: int = 0,
    ) -> None:
        """Have an interest passed on soon; a renewal when there is company, or some time has gone.

        `until` that date, in microseconds, others know the subscription by its earlier word: if
        each hop takes its part of the time that is left, the later word is everywhere before it.
        """
        gather, left = self._config.gather, until / 1e6 - now
        patient = gather > 0 and left > 0 and not entry.interest.withdrawn
        at = now + (max(gather, left / _HOPS_IN_TIME) if patient else gather)
        if at < self._flushes_at:
            self._flushes_at = at
            effects.append(SetTimer(GATHER, at))
        self._waiting[entry] = known_to

    def flush(self, effects: Effects) -> None:
        """Pass on what waits, to the neighbours that there are now."""
        waiting, self._waiting, self._flushes_at = self._waiting, {}, inf
        spreads = [(_onward(entry), known) for entry, known in waiting.items() if entry.hops > 0]
        peers = self.chosen()
        if not spreads or not peers:
            return
        knowing = {peer: None for _, known in spreads for peer in known}
        alike = tuple([peer for peer in peers if peer not in knowing])
        if alike:
            for frame in self._frames([spread for spread, _ in spreads]):
                effects.append(SendAll(alike, frame))
        for peer in peers:
            if peer in knowing:
                some = [spread for spread, known in spreads if peer not in known]
                effects.extend(Send(peer, frame) for frame in self._frames(some))

    def chosen(self, without: PeerId = b"") -> tuple[PeerId, ...]:
        """The neighbours that a message goes to: all, or a draw of them; never where it is from."""
        peers = [peer for peer in self._neighbours if peer != without]
        fanout = self._config.fanout
        if fanout and len(peers) > fanout:
            peers = self._randomness.sample(peers, fanout)
        return tuple(peers)

    def greet(self, peer: PeerId, now: float, effects: Effects) -> None:
        """Tell a new neighbour everything that may travel on to it, when so much may be told."""
        if wait := self._greetings.wait(now, 1):
            effects.append(SetTimer(Greet(peer), now + max(wait, GREET_RETRY)))
            return
        spreads = [
            _onward(entry)
            for entry in (*self.own.values(), *self._ended.values(), *self.interests.all())
            if entry.hops > 0
        ]
        self._greetings.owe(len(spreads))
        effects.extend(Send(peer, frame) for frame in self._frames(spreads))

    def _frames(self, spreads: list[Spread]) -> list[Frame]:
        """Cut a list of interests into frames that others accept."""
        most, room = DEFAULT_LIMITS.interests, self._config.max_message
        if 0 < len(spreads) <= most:
            frame = Frame(tuple(spreads))
            if frame.meta.size <= room:
                return [frame]
        frames: list[Frame] = []
        begin = size = 0
        for place, spread in enumerate(spreads):
            more = spread_size(spread)
            if size + more > room or place - begin == most:
                frames.append(Frame(tuple(spreads[begin:place])))
                begin, size = place, 0
            size += more
        if begin < len(spreads):
            frames.append(Frame(tuple(spreads[begin:])))
        return frames

    def clean(self, now: float) -> None:
        """Remove what has expired (CleanExpiredSubs)."""
        self.interests.clean(now)
        date = now * 1e6
        for topic in [t for t, entry in self._ended.items() if entry.interest.expires <= date]:
            del self._ended[topic]
