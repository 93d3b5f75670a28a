"""A peer: a protocol that spreads events, and sync, which gets what it has not brought.

To its runtime it is one machine. Inputs and effects of the protocol pass through; sync takes what
is its own: questions and answers of its wire format, loads and timers that it has asked for itself.
What it fetches it gives to the protocol as `Recovered`, so there is one way into the log.

When it compares: soon after a peer has connected, after a subscription, at intervals with somebody
at random (every third time with one that we have dialled: others may have come in order to be
chosen), and when a peer offers. Who has fetched something says so to others, and so news travel in
round trips instead of intervals; an offer that was taken up is not offered back. A partner that
differs and gives nothing is left alone, the longer the more often that happens.
"""

from typing import Final

from msgspec.structs import replace

from rumormill.core import inputs, trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Ask, ById, Computation, Effects, Load, SetTimer
from rumormill.core.errors import PeerError
from rumormill.core.history import HistoryQuery, topic_tag
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Asked, Input, Loaded
from rumormill.core.machine import Machine, View
from rumormill.core.randomness import Randomness
from rumormill.protocols.recovery import Unkept
from rumormill.sync.answering import Answering, cost_of
from rumormill.sync.checking import Check, Checked, judged
from rumormill.sync.config import SyncConfig
from rumormill.sync.copies import Copies, CountCopies, Recount
from rumormill.sync.following import Following, Remember
from rumormill.sync.gaps import Gaps
from rumormill.sync.messages import MAX_TOPICS, SALT_BYTES, Body, Offer, SyncMessage
from rumormill.sync.partner import TICK, AskNow, Partner, Tick
from rumormill.sync.session import COMPLETE, EQUAL, IN_VAIN, LEFT, Arrived, Session
from rumormill.sync.under_way import MAX_ASKED
from rumormill.sync.wishes import SyncNow, Wishes

OUR_NUMBERS: Final = 1 << 48
"""Where the numbers of our own questions and loads begin; those of protocols stay below."""

NOT_KEPT: Final = "not kept"
_MAX_SESSIONS: Final = 3
_MAX_GONE: Final = 1024
_FEW: Final = 3
_FIRST_AFTER: Final = 1.0
_LATER_AFTER: Final = 10.0
"""Seconds, on average, after which a peer that has connected is asked: soon, if we have few others
and so may have been away ourselves; else when it has had time to get what it missed."""
_HEARD: Final = 1 / 2
"""The part of the time since then in which the protocol may have brought what is new: links have to
be made first. Our choice."""
_LEAVE_ALONE: Final = 15.0
"""Seconds for which a partner that gives nothing is left alone: twice this, doubled each time."""
_OFFER_PAUSE: Final = 5.0
"""Seconds between two sessions with a partner that offers; doubled for each in vain."""
_AUDITED: Final = 1 / 8
"""The share of sessions in which what a partner calls equal is looked at: our choice, at some 300
bytes each."""
_OFFERED_TO: Final = 8
"""Peers that are told of news; our choice: a mesh's degree."""


CONCERNS: Final = frozenset(
    (
        inputs.Start,
        inputs.Subscribe,
        inputs.Unsubscribe,
        inputs.PeerConnected,
        inputs.PeerDisconnected,
        inputs.TimerFired,
        inputs.Command,
        inputs.Answered,
        inputs.AskFailed,
        Asked,
        Loaded,
        inputs.LogChanged,
        inputs.NotStored,
    )
)
"""What sync must look at. Everything else, and what peers send above all, is the protocol's."""


class SyncedPeer:
    """The machine of a protocol together with sync."""

    def __init__(
        self,
        protocol: Machine,
        randomness: Randomness,
        config: SyncConfig,
        check: Check | None,
    ) -> None:
        self.protocol = protocol
        self._check = check
        """How the protocol checks what was fetched; None if it repairs histories itself."""
        self._copies = Copies(randomness, config.timeout)
        self._randomness = randomness
        self._config = config
        self._following = Following(OUR_NUMBERS)
        self._gaps = Gaps()
        self._partners: dict[PeerId, Partner] = {}
        self._gone: dict[PeerId, Partner] = {}
        """Those that went; who comes back is not new."""
        self._sessions: dict[PeerId, Session] = {}
        self._numbers: dict[int, PeerId] = {}
        """Whose session waits for the answer with this number."""
        self._wishes = Wishes()
        self._answering = Answering()
        self._last_number = OUR_NUMBERS
        self._next_round = 0.0
        self._rounds = 0
        self._tick_at = float("inf")

    def view(self) -> View:
        """Show the protocol, and what sync knows of its topics (see `core.machine`)."""
        known = self._gaps.known
        return replace(
            self.protocol.view(),
            compared=dict(self._gaps.compared),
            lacking={topic: gap.since for topic, gap in known.items()},
            backlog={topic: gap.events for topic, gap in known.items()},
        )

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input (see `core.machine`)."""
        if type(event) not in CONCERNS:
            self.protocol.handle(event, now, effects)
        elif not self._handle_own(event, now, effects):
            refusable = type(event) is inputs.Subscribe  # by an error of the protocol
            if not refusable:
                self._overhear(event, now, effects)
            self.protocol.handle(event, now, effects)
            if refusable:
                self._overhear(event, now, effects)

    def _handle_own(self, event: Input, now: float, effects: Effects) -> bool:
        """Take an input of sync's own; false for what is the protocol's."""
        match event:
            case inputs.TimerFired(timer=Tick()):
                self._tick_at = float("inf")
                self._on_tick(now, effects)
            case inputs.TimerFired(timer=AskNow(number=number)):
                if (session := self._waiting(number)) is not None:
                    self._put(session, number, now, effects)
            case inputs.TimerFired(timer=Recount() as timer):
                partners = list(self._partners)
                self._last_number += self._copies.recount(
                    timer, partners, self._last_number + 1, effects
                )
            case inputs.Command(number=number, body=CountCopies() | Remember() | SyncNow() as body):
                self._on_command(number, body, now, effects)
            case Loaded(number=number) if number >= OUR_NUMBERS:
                self._on_loaded(event, now, effects)
            case inputs.LogChanged():
                self._following.keep_again(effects)
                self._gaps.compared.clear()
                self._compare_soon(now, effects)
                return self._check is not None  # who repairs histories itself hears of it
            case inputs.NotStored():
                self._on_not_stored(event, now, effects)
            case Asked(message=SyncMessage(body=Offer() as offer)):
                if self._answering.affords(event, offer, now, effects):
                    self._on_offer(event.peer, offer.tags, now, effects)
            case Asked(message=SyncMessage()):
                asker, topics = self._partners.get(event.peer), self._following.tags
                limited = asker is not None and asker.limited
                self._answering.take(event, self._number(), now, topics, effects, limited=limited)
            case inputs.Answered(number=number, message=SyncMessage(body=body)):
                self._on_answered(event.peer, number, body, now, effects)
            case inputs.AskFailed(number=number) if number > OUR_NUMBERS:
                self._on_ask_failed(event, now, effects)
            case _:
                return False
        return True

    def _on_command(
        self, number: int, body: CountCopies | Remember | SyncNow, now: float, effects: Effects
    ) -> None:
        if isinstance(body, CountCopies):
            self._copies.begin(number, body, now, effects)
        elif isinstance(body, Remember):
            self._following.remember(self._number(), number, body.topic, effects)
        else:
            self._wish(number, body.topics, now, effects)

    def _overhear(self, event: Input, now: float, effects: Effects) -> None:
        """Note what the protocol hears and sync must know as well."""
        match event:
            case inputs.Start():
                # A machine may be started again as it was; its timers and questions are gone.
                self._tick_at = float("inf")
                self._sessions.clear()
                self._following.begin(effects)
                self._next_round = self._after_interval(now)
                self._wake(self._next_round, effects)
            case inputs.PeerConnected(peer=peer, outbound=outbound, limited=limited):
                soon = _FIRST_AFTER if len(self._partners) < _FEW else _LATER_AFTER
                partner = self._partners[peer] = self._gone.pop(peer, Partner(outbound))
                partner.outbound, partner.limited, partner.unheard = outbound, limited, now
                partner.held = 0
                at = now + soon * (0.5 + self._randomness.random())
                self._schedule(partner, max(at, partner.rests_until(_OFFER_PAUSE)), effects)
                self._copies.wake(now, effects)
            case inputs.PeerDisconnected(peer=peer):
                left = self._partners.pop(peer, None)
                if left is not None:
                    left.due, left.offered = float("inf"), {}
                    remember(self._gone, peer, left, _MAX_GONE)
                self._end(peer, "partner gone", now, effects)
                self._wishes.let_go(peer, effects)
            case inputs.Subscribe(topic=topic, publish_only=False, since=since):
                if self._following.subscribe(topic, since, now, effects):
                    self._compare_soon(now, effects)
            case inputs.Unsubscribe(topic=topic):
                self._following.unsubscribe(topic)
                self._gaps.forget(topic)
            case _:
                pass

    # When, and with whom.

    def _compare_soon(self, now: float, effects: Effects) -> None:
        """Compare with everybody, because there are topics that nobody was asked about."""
        for number, partner in enumerate(self._partners.values()):
            soon = _FIRST_AFTER if number < _FEW else _LATER_AFTER
            partner.unheard = now
            self._schedule(partner, now + soon * (0.5 + self._randomness.random()), effects)

    def _after_interval(self, now: float) -> float:
        return now + self._config.interval * (0.5 + self._randomness.random())

    def _wake(self, at: float, effects: Effects) -> None:
        if at < self._tick_at:
            self._tick_at = at
            effects.append(SetTimer(TICK, at, patient=not self._hurries()))

    def _hurries(self) -> bool:
        """Whether somebody waits, or something is known to be missing."""
        offers = [partner for partner in self._partners.values() if partner.offered]
        return bool(self._wishes or self._gaps.known or offers)

    def _on_tick(self, now: float, effects: Effects) -> None:
        if now >= self._next_round:
            self._next_round = self._after_interval(now)
            self._choose(now)
        if self._check and self._following.since and (self._config.enabled or self._wishes):
            due = [each for each in self._partners.items() if each[1].due <= now]
            due.sort(key=lambda each: each[1].ended)  # or a few who offer always would have it all
            for peer, partner in due:
                if len(self._sessions) < _MAX_SESSIONS:
                    self._begin(peer, partner, now, effects)
        later = [each.due for each in self._partners.values() if each.due > now]
        self._wake(min([*later, self._next_round]), effects)

    def _choose(self, now: float) -> None:
        """Choose somebody at random for this round."""
        self._rounds += 1
        able = [
            partner
            for partner in self._partners.values()
            if not partner.in_vain or partner.rests_until(_LEAVE_ALONE) <= now
        ]
        dialled = [partner for partner in able if partner.outbound]
        if dialled and not self._rounds % 3:
            able = dialled
        if able:
            chosen = self._randomness.choice(able)
            chosen.due = min(chosen.due, now)

    def _begin(self, peer: PeerId, partner: Partner, now: float, effects: Effects) -> None:
        if peer in self._sessions:
            return
        partner.due = float("inf")
        followed = self._following.since
        offered = [topic for topic in partner.offered if topic in followed]
        partner.offered = {}
        names = offered or list(followed)
        settle = min(self._config.settle, (now - partner.unheard) * _HEARD)
        wished, wishes = self._wishes.topics_of(peer, MAX_TOPICS)
        if wishes:
            names, settle = [topic for topic in wished if topic in followed], 0.0
        if len(names) > MAX_TOPICS:
            names = self._randomness.sample(names, MAX_TOPICS)
        topics = tuple([(topic, followed[topic]) for topic in names])
        salt = self._randomness.randbytes(SALT_BYTES)
        audit = self._randomness.randrange(1 << 32) if self._randomness.random() < _AUDITED else -1
        session = self._sessions[peer] = Session(
            peer,
            topics,
            salt,
            settle,
            offered=bool(offered),
            audit=audit,
            wishes=wishes,
            most=1 if partner.limited else MAX_ASKED,  # what is cut off was carried for nothing
        )
        self._go_on(session, now, effects)

    def _on_offer(
        self, peer: PeerId, tags: tuple[bytes, ...], now: float, effects: Effects
    ) -> None:
        partner = self._partners.get(peer)
        found = [self._following.tags[tag] for tag in tags if tag in self._following.tags]
        if partner is not None and found:
            partner.offered.update(dict.fromkeys(found))
            self._schedule(partner, max(now, partner.rests_until(_OFFER_PAUSE)), effects)

    def _schedule(self, partner: Partner, at: float, effects: Effects) -> None:
        partner.due = min(partner.due, at)
        self._wake(at, effects)

    def _wish(self, number: int, topics: tuple[Topic, ...], now: float, effects: Effects) -> None:
        followed = self._following.since
        wanted = [topic for topic in topics or followed if topic in followed]
        partners = list(self._partners if self._check and wanted else ())
        self._wishes.begin(number, wanted, partners, effects)
        for peer in partners:
            self._schedule(self._partners[peer], now, effects)

    # A session's steps.

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _go_on(self, session: Session, now: float, effects: Effects) -> None:
        """Do what a session wants, until it waits for something or is over."""
        self._gaps.note(session, now)
        while self._sessions.get(session.peer) is session:
            number = self._last_number + 1
            step = session.next(now, number)
            if step is None:
                if not session.is_waiting:
                    self._end(session.peer, session.outcome, now, effects)
                return
            if isinstance(step, HistoryQuery):
                self._load(session, step, effects)
            elif isinstance(step, Arrived):
                assert self._check is not None
                self._load(session, step.to_check(self._check), effects)
            else:
                self._put(session, self._number(), now, effects)

    def _load(
        self, session: Session, query: HistoryQuery | ById | Computation, effects: Effects
    ) -> None:
        number = self._number()
        self._numbers[number] = session.peer
        effects.append(Load(number, "", query))

    def _put(self, session: Session, number: int, now: float, effects: Effects) -> None:
        """Put a question, as soon as the partner works it out."""
        self._numbers[number] = session.peer
        body = session.under_way.asked[number].question
        wait = self._partners[session.peer].wait(body, now)
        if wait:
            effects.append(SetTimer(AskNow(number), now + wait))
        else:
            message = SyncMessage(body)
            effects.append(Ask(session.peer, number, message, self._config.timeout))

    def _hand_on(self, session: Session, fetched: Checked, now: float, effects: Effects) -> None:
        """Give events to the protocol, which judges and appends them."""
        try:
            session.note_stored(*judged(self.protocol, session.peer, fetched, now, effects), now)
        except PeerError as error:
            self._blame(session.peer, error, now, effects)
        else:
            self._load(session, ById(()), effects)  # answered when they are stored

    def _on_loaded(self, loaded: Loaded, now: float, effects: Effects) -> None:
        if loaded.number == OUR_NUMBERS:
            if self._following.on_notes(loaded, effects):
                self._compare_soon(now, effects)
            return
        ours = self._answering.on_loaded(loaded, effects)
        if ours or self._following.on_read_back(loaded, effects):
            return
        session = self._waiting(loaded.number)
        if session is None:
            return
        if isinstance(loaded.answer, Checked):
            self._hand_on(session, loaded.answer, now, effects)
        elif loaded.number != session.query:
            session.storing -= 1
        elif loaded.answer is None:
            self._end(session.peer, "log not read", now, effects)
        else:
            session.on_worked_out(loaded.answer)
        self._go_on(session, now, effects)

    def _on_not_stored(self, event: inputs.NotStored, now: float, effects: Effects) -> None:
        """If the disk is full: who went on fetching would fetch the same again and again."""
        for each in event.barriers:
            if not isinstance(each, Unkept):
                continue
            self._gaps.lose(each.topic, now)
            for peer, session in list(self._sessions.items()):
                if each.topic in session.unequal:
                    self._end(peer, NOT_KEPT, now, effects)
        others = tuple([each for each in event.barriers if not isinstance(each, Unkept)])
        if others:
            self.protocol.handle(inputs.NotStored(others, event.reason), now, effects)

    def _waiting(self, number: int) -> Session | None:
        """The session that waits for an answer, unless it is over."""
        peer = self._numbers.pop(number, None)
        return None if peer is None else self._sessions.get(peer)

    def _on_answered(
        self, peer: PeerId, number: int, body: Body, now: float, effects: Effects
    ) -> None:
        if self._copies.on_answer(peer, number, body, now, effects):
            return
        session = self._waiting(number)
        if session is None:
            return
        partner = self._partners[peer]
        partner.let_go(session.under_way.asked[number].question, now)
        try:
            session.on_answered(number, body, now)
        except PeerError as error:
            self._blame(peer, error, now, effects)
            return
        others = [each for each in self._sessions.values() if each is not session]
        for topic in list(session.doubtful):
            if any(other.looks_after(topic, now) for other in others):
                session.leave_out(topic)
                partner.offered[topic] = None
                self._schedule(partner, now + _OFFER_PAUSE, effects)
        self._go_on(session, now, effects)

    def _on_ask_failed(self, event: inputs.AskFailed, now: float, effects: Effects) -> None:
        if self._copies.on_answer(event.peer, event.number, None, now, effects):
            return
        session = self._waiting(event.number)
        if session is None:
            return
        body = session.under_way.asked[event.number].question
        self._partners[event.peer].let_go(body, now)
        if session.under_way.unanswered(event.number) and event.reason == inputs.NO_ANSWER:
            self._go_on(session, now, effects)
        else:
            self._end(event.peer, event.reason, now, effects)

    def _blame(self, peer: PeerId, error: PeerError, now: float, effects: Effects) -> None:
        effects.append(trace.Refuse(peer, error.reason))
        self._end(peer, error.reason, now, effects)

    def _end(self, peer: PeerId, outcome: str, now: float, effects: Effects) -> None:
        session = self._sessions.pop(peer, None)
        if session is None:
            return
        self._numbers = {number: other for number, other in self._numbers.items() if other != peer}
        effects.append(
            trace.SyncEnded(
                peer, outcome, len(session.topics), len(session.unequal), session.events
            )
        )
        good = outcome in (EQUAL, COMPLETE)
        partner = self._partners.get(peer)
        if partner is not None:
            partner.let_go(None, now)
            partner.ended = now
            if outcome not in (LEFT, NOT_KEPT):
                partner.in_vain = 0 if good or session.events else partner.in_vain + 1
        self._gaps.end(session, now, good=good)
        self._wishes.count(session.events)
        if session.wishes and not session.left_out:
            if good or outcome == IN_VAIN:
                self._wishes.advance(peer, session.wishes, effects)
            else:
                self._wishes.let_go(peer, effects)
        if partner is not None and not self._wishes.wait_for(peer):
            partner.due = max(partner.due, partner.rests_until(_OFFER_PAUSE))
        elif partner is not None and not session.left_out:
            partner.due = now
        self._offer(session, effects)
        self._wake(now, effects)

    def _offer(self, session: Session, effects: Effects) -> None:
        """Tell the partner of what differed, unless it said so, and others of what is new here."""
        told = [] if session.offered or session.peer not in self._partners else [session.peer]
        if session.events:
            others = [peer for peer in self._partners if peer not in self._sessions]
            others = [peer for peer in others if peer != session.peer]
            told += self._randomness.sample(others, min(len(others), _OFFERED_TO))
        offer = Offer(tuple([topic_tag(topic) for topic in session.unequal]))
        for peer in told if offer.tags else ():
            self._partners[peer].budget.owe(cost_of(offer))
            message = SyncMessage(offer)
            effects.append(Ask(peer, self._number(), message, self._config.timeout, one_way=True))
