"""The way of an event: judged at every hop, remembered, delivered, passed on along the tree.

An event goes from wherever it arises to all tree neighbours but the one it came from: up to the
root and down every branch, over each edge once. Whoever has seen its CID drops a further copy, so
a cycle could not make it circle. Nobody passes on what he has not judged: is its publisher allowed
to publish, may its author have others publish for him, is it dated in the future, do the signatures
over its CID hold. So a forged event dies at the forger's first honest neighbour, which knows whom
to blame.

Forwarding waits for nothing: whoever published the event has it on disk, and the DHT gets its copy
afterwards, from the publisher alone; whether that works changes nothing for the subscribers.
Delivery waits: an event whose parent is not in the log is held back, and goes there when its turn
comes, so that a subscriber has every event behind the one that it links to.

Nobody hears of an event of ours that a crash could take back: it is linked, signed and appended to
the log, and goes into the tree when the log says that it is stored. When it cannot be stored it has
never been. While some wait for the disk others may follow, each linked to the one before it. The
log stores an event only with those it is linked to, so when one is lost those behind it are lost as
well, and no event links to one that does not exist. The next one is linked to the last that does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Append, ById, Effects, SendAll, SetTimer, Validate
from rumormill.core.errors import LocalError
from rumormill.core.ids import MessageId, PeerId
from rumormill.core.inputs import Loaded, Validated, Verdict
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import (
    GRAVE,
    BlockFound,
    Context,
    HoldTimer,
    NewsTimer,
    ParentSettled,
)
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import rpc
from rumormill.protocols.pulsarcast.format.codec import encode_signatures, read_back
from rumormill.protocols.pulsarcast.format.dates import date_of
from rumormill.protocols.pulsarcast.format.descriptors import EventLinking, is_foreign
from rumormill.protocols.pulsarcast.format.rpc import Rpc
from rumormill.protocols.pulsarcast.format.signing import UNSIGNED, SignedEvent, fault_of
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds, core_event, unread_of
from rumormill.protocols.pulsarcast.tree.known_topics import KnownTopics
from rumormill.protocols.pulsarcast.tree.trees import Branch, Trees

_NANOSECONDS = 1_000_000
"""In a millisecond, in which dates are written."""
_MOST_PENDING = 1024
"""Events that wait for the application's verdict; our choice."""
_MOST_UNSENT = 4096
"""Events that wait for a parent, per topic; our choice. Neighbours compare what they have anyway
once there is one."""
_RESENT_TOGETHER = 128
"""Of those, how many are read from the log together; our choice."""


_Arrival: TypeAlias = tuple[Feed, PeerId, SignedEvent, Rpc | None, bool]
"""Into which feed an event came and from whom, in what, if it came alone, and whether it came along
the tree, not because we missed it."""


class Resending(msgspec.Struct, frozen=True):
    """Events that a new parent lacks are read from the log."""

    topic: bytes
    parent: PeerId
    ids: tuple[bytes, ...]


class OwnEvent(msgspec.Struct, frozen=True):
    """An event of ours on its way to the disk, and whether the application is given it."""

    signed: SignedEvent
    given: bool


@dataclass(eq=False)
class Dissemination:
    """Takes events in and passes them on."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _topics: KnownTopics
    _fetcher: BlockFetcher
    on_missing: Callable[[Feed, bytes, PeerId, float, Effects], None] = field(init=False)
    """Hears of a parent link to an event that is not there; `history.exchange` sets it."""
    _pending: dict[MessageId, _Arrival] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._validator = self._context.hooks.validator
        self._context.operations.steps[Resending, Loaded] = self._on_loaded

    def clear(self) -> None:
        """Forget what waits for a verdict."""
        self._pending.clear()

    # Arrival.

    def receive(
        self, peer: PeerId, signed: SignedEvent, message: Rpc | None, now: float, effects: Effects
    ) -> None:
        """An event came along the tree; `message` is what it came in, if it came alone."""
        feed = self._feeds.open.get(signed.event.topic)
        if feed is None:
            self._feeds.take_early(peer, signed, effects)
            return
        cid = signed.cid
        if cid in feed.timeline.dates:
            effects.append(trace.DuplicateMessage(cid, peer, feed.text))
            return
        self._judge((feed, peer, signed, message, True), now, effects)

    def backfill(
        self, feed: Feed, peer: PeerId, signed: SignedEvent, now: float, effects: Effects
    ) -> None:
        """An event came because we missed it."""
        if signed.cid not in feed.timeline.dates:
            self._judge((feed, peer, signed, None, False), now, effects)

    def on_found(self, news: BlockFound, now: float, effects: Effects) -> Feed | None:
        """An event that we missed was looked for; return into which feed it came, if it did."""
        if not isinstance(news.block, SignedEvent):
            return None
        feed = self._feeds.open.get(news.block.event.topic)
        if feed is not None:
            self.backfill(feed, news.source, news.block, now, effects)
        return feed

    def _judge(self, arrival: _Arrival, now: float, effects: Effects) -> None:
        feed, peer, signed, _, _ = arrival
        fault = self.fault(feed, signed, now)
        if fault is not None:
            effects.append(trace.RejectMessage(signed.cid, peer, fault, feed.text))
            points = self.weight(fault, signed, now)
            if peer != self._context.id and points:
                self._context.penalties.penalise(peer, fault, points, now, effects)
            return
        if date_of(signed.event.created) < feed.timeline.start:
            effects.append(trace.RejectMessage(signed.cid, peer, reasons.TOO_OLD, feed.text))
            return
        self._on_verdict(arrival, self._verdict(peer, signed), now, effects)

    def _verdict(self, peer: PeerId, signed: SignedEvent) -> Verdict:
        validator = self._validator
        return Verdict.ACCEPT if validator is None else validator(core_event(signed), peer)

    def refusal(self, peer: PeerId, signed: SignedEvent) -> str | None:
        """Why the application has an event neither published on request nor given to who misses
        it. What it would say of an event later is not waited for."""
        return _VERDICTS.get(self._verdict(peer, signed))

    def fault(self, feed: Feed, signed: SignedEvent, now: float) -> str | None:
        """Why an event must not be passed on, or None."""
        event, publisher = signed.event, signed.event.publisher
        if publisher is None:
            return reasons.NO_PUBLISHER
        if feed.allowed is not None and publisher not in feed.allowed:
            return reasons.NOT_ALLOWED
        if event.author != publisher and not feed.descriptor.may_request(event.author):
            return reasons.AUTHOR_NOT_ALLOWED
        fault = self.fault_of_content(signed, now)
        return reasons.NOT_SIGNED if fault == UNSIGNED else fault

    def weight(self, fault: str, signed: SignedEvent, now: float) -> float:
        """What a fault costs who sent the event: one whose clock is as wrong as clocks may be has
        passed on what is too early for us alone."""
        far = self._is_ahead(signed, now, 2 * self._context.config.max_clock_skew)
        return GRAVE if far or fault != reasons.FUTURE_DATE else 0.0

    def _is_ahead(self, signed: SignedEvent, now: float, seconds: float) -> bool:
        return date_of(signed.event.created) > (now + seconds) * 1000

    def fault_of_content(self, signed: SignedEvent, now: float) -> str | None:
        """What is wrong with an event, or a request for one, whatever the topic's rules."""
        config = self._context.config
        if self._is_ahead(signed, now, config.max_clock_skew):
            return reasons.FUTURE_DATE
        if len(signed.event.payload) > config.limits.payload_bytes:
            return reasons.TOO_LARGE
        if is_foreign(signed.event.protocol_version):
            return reasons.OTHER_VERSION
        return fault_of(signed, self._context.identity, required=config.require_signatures)

    def _on_verdict(
        self, arrival: _Arrival, verdict: Verdict, now: float, effects: Effects
    ) -> None:
        feed, peer, signed, _, live = arrival
        cid = signed.cid
        if verdict is Verdict.ACCEPT:
            self._accept(arrival, now, effects)
        elif verdict is Verdict.DEFER and len(self._pending) < _MOST_PENDING:
            self._pending[cid] = (feed, peer, signed, None, live)
            effects.append(Validate(core_event(signed), peer))
        else:
            reason = _VERDICTS.get(verdict, reasons.VALIDATION_THROTTLED)
            # Nobody is to blame for what we missed: who gave it took it by rules of its own, or by
            # ours as they were.
            giver = peer if live else self._context.id
            effects.append(trace.RejectMessage(cid, giver, reason, feed.text))
            if verdict is Verdict.REJECT and live:
                self._context.penalties.penalise(peer, reason, GRAVE, now, effects)

    def on_validated(self, event: Validated, now: float, effects: Effects) -> None:
        """The application's verdict on an event that waited for it."""
        if event.verdict is Verdict.DEFER:
            raise LocalError("a deferred validation must end in accept, ignore or reject")
        waiting = self._pending.pop(event.message_id, None)
        if waiting is None:
            return
        feed = waiting[0]
        if self._feeds.open.get(feed.topic) is feed and event.message_id not in feed.timeline.dates:
            self._on_verdict(waiting, event.verdict, now, effects)

    # Acceptance.

    def _accept(self, arrival: _Arrival, now: float, effects: Effects) -> None:
        feed, peer, signed, message, live = arrival
        date = date_of(signed.event.created)
        known = feed.timeline.dates
        parent = signed.event.parent
        feed.add(signed, date, now)
        if feed.subscribed and (live or date >= feed.horizon):
            self._deliver_or_hold(feed, peer, signed, now, effects)
        else:
            effects.append(Append(core_event(signed), if_lost=signed))
            self._release(feed, signed.cid, peer, now, effects)
        if signed.cid not in feed.hold.held:
            feed.see(signed.cid, live=live)
            if live:
                feed.appended = None  # what we publish next follows this one
        if live or date >= feed.passed_on:
            self._forward(feed, peer, signed, message, now, effects)
            if parent is not None and parent not in known and feed.subscribed:
                self.on_missing(feed, parent, peer, now, effects)

    def _forward(
        self,
        feed: Feed,
        source: PeerId,
        signed: SignedEvent,
        message: Rpc | None,
        now: float,
        effects: Effects,
    ) -> int:
        """Send an event over all edges but the one it came over; return over how many."""
        branch = self._trees.branches.get(feed.topic)
        if branch is None:
            return 0
        if not branch.in_place and len(branch.unsent) < _MOST_UNSENT:
            branch.unsent[signed.cid] = None
        targets = branch.neighbours
        if source in targets:
            targets = tuple([peer for peer in targets if peer != source])
        if targets:
            if message is None:
                message = rpc.publish(signed, now)
            effects.append(SendAll(targets, message))
            self._note_news(feed, branch, signed, now, effects, up=targets[0] == branch.parent)
        return len(targets)

    def _note_news(
        self,
        feed: Feed,
        branch: Branch,
        signed: SignedEvent,
        now: float,
        effects: Effects,
        *,
        up: bool,
    ) -> None:
        """Something was passed on: neighbours are soon asked whether it has arrived."""
        date = date_of(signed.event.created)
        if branch.news is None and branch.news_before is None:
            effects.append(SetTimer(NewsTimer(feed.topic), now + feed.news_delay))
        branch.news = date if branch.news is None else min(branch.news, date)
        if up:
            branch.news_up = 2

    def on_parent(self, branch: Branch, now: float, effects: Effects) -> None:
        """There is a parent again: it gets what arose while there was none."""
        unsent, branch.unsent = branch.unsent, {}
        feed = self._feeds.open.get(branch.topic)
        if branch.parent is None or feed is None:
            return
        unread: list[bytes] = []
        for cid in unsent:
            signed = feed.at_hand(cid)
            if signed is not None:
                effects.append(SendAll((branch.parent,), rpc.publish(signed, now)))
            elif cid in feed.timeline.dates:
                unread.append(cid)
        self._resend(feed, Resending(feed.topic, branch.parent, tuple(unread)), effects)

    def _resend(self, feed: Feed, resending: Resending, effects: Effects) -> None:
        """Read what a parent lacks, some at a time."""
        ids = resending.ids[:_RESENT_TOGETHER]
        if ids:
            self._context.load(resending, feed.text, ById(ids), effects)

    def _on_loaded(
        self, resending: Resending, loaded: Loaded, now: float, effects: Effects
    ) -> None:
        branch = self._trees.branches.get(resending.topic)
        feed = self._feeds.open.get(resending.topic)
        if branch is None or feed is None or branch.parent != resending.parent:
            return  # it is the next parent's turn, which compares what we have with its own
        for signed in read_back(loaded.events):
            effects.append(SendAll((resending.parent,), rpc.publish(signed, now)))
        asked, later = resending.ids[:_RESENT_TOGETHER], resending.ids[_RESENT_TOGETHER:]
        rest = unread_of(asked, loaded) + later
        self._resend(feed, Resending(resending.topic, resending.parent, rest), effects)

    # Delivery.

    def _deliver(self, feed: Feed, peer: PeerId, signed: SignedEvent, effects: Effects) -> None:
        self._delivered(feed, peer, signed, effects)
        effects.append(Append(core_event(signed), deliver=True, if_lost=signed))

    def _delivered(self, feed: Feed, peer: PeerId, signed: SignedEvent, effects: Effects) -> None:
        effects.append(trace.DeliverMessage(signed.cid, feed.text, peer))
        if feed.ordered:
            feed.tip = signed.cid
        event = signed.event
        self._topics.hear(feed.descriptor, event.author, event.payload, effects)

    def _deliver_or_hold(
        self, feed: Feed, peer: PeerId, signed: SignedEvent, now: float, effects: Effects
    ) -> None:
        hold, cid, parent = feed.hold, signed.cid, signed.event.parent
        if hold.overtaken.pop(cid, cid) is None and feed.ordered:
            effects.append(Append(core_event(signed), if_lost=signed))
            effects.append(trace.RejectMessage(cid, peer, reasons.OVERTAKEN, feed.text))
        elif parent is None or feed.is_settled(parent) or parent in hold.overtaken or hold.full:
            self._deliver(feed, peer, signed, effects)
            self._release(feed, cid, peer, now, effects)
        else:
            if not hold.held:
                effects.append(SetTimer(HoldTimer(feed.topic), now + feed.patience / 2))
            hold.hold(parent, signed, now)

    def _release(self, feed: Feed, cid: bytes, peer: PeerId, now: float, effects: Effects) -> None:
        """An event is settled: what waited for it goes into the log, or is published."""
        released = feed.hold.release(cid) if feed.hold.held else []
        for signed in released:
            if feed.subscribed:
                self._deliver(feed, peer, signed, effects)
            else:
                effects.append(Append(core_event(signed), if_lost=signed))
            feed.see(signed.cid, live=False)
        for settled in (cid, *[signed.cid for signed in released]):
            if self._context.operations.awaits(ParentSettled, settled):
                self._context.operations.tell(ParentSettled(settled), now, effects)

    def on_hold_timer(self, topic: bytes, now: float, effects: Effects) -> None:
        """Events have waited for an ancestor: ask for it once more, or go on without it."""
        feed, own = self._feeds.open.get(topic), self._context.id
        if feed is None:
            return
        # What our own full disk lost can be had: it is asked for until there is room.
        for missing in () if feed.retries else feed.hold.give_up(now - feed.patience):
            self._release(feed, missing, own, now, effects)
        for missing in feed.hold.missing(now - feed.patience / 2):
            self.on_missing(feed, missing, own, now, effects)
        if feed.hold.held:
            effects.append(SetTimer(HoldTimer(topic), now + feed.patience / 2))

    # What arises here.

    def parent_of_next(self, feed: Feed, chosen: bytes | None) -> bytes | None:
        """Which event the next one of ours follows; `chosen` is its author's choice."""
        if feed.descriptor.event_linking is EventLinking.LAST_SEEN:
            return feed.appended or feed.last
        return chosen

    def append(self, feed: Feed, signed: SignedEvent, effects: Effects) -> OwnEvent:
        """Have an event stored: `EventStored` follows, for an operation that holds the result."""
        given = feed.subscribed or (feed.sees_own and signed.event.author == self._context.id)
        feed.appended = signed.cid
        own = signed.event.author == self._context.id
        used = date_of(signed.event.created) * _NANOSECONDS if own else 0
        effects.append(Append(core_event(signed), given, signed.cid, None, used, new=True))
        return OwnEvent(signed, given)

    def forget(self, own: OwnEvent) -> Feed | None:
        """An event is no longer on its way to the disk; return its feed, if that is still open.

        If it is lost, whatever is linked to it is lost with it, and says so itself.
        """
        feed = self._feeds.open.get(own.signed.event.topic)
        if feed is not None and feed.appended == own.signed.cid:
            feed.appended = None
        return feed

    def publish(self, own: OwnEvent, now: float, effects: Effects) -> int:
        """An event is stored: put it into the tree and the DHT; return over how many edges."""
        signed, reached = own.signed, 0
        feed = self.forget(own)
        if feed is not None:
            feed.add(signed, date_of(signed.event.created), now)
            feed.see(signed.cid, live=True)
            effects.append(trace.PublishMessage(signed.cid, feed.text))
            if own.given:
                # What another asked us to publish came from him, as far as our application goes.
                self._delivered(feed, signed.event.author, signed, effects)
            reached = self._forward(feed, self._context.id, signed, None, now, effects)
        if self._context.config.store_events:
            self._offer(signed, now, effects)
        return reached

    def _offer(self, signed: SignedEvent, now: float, effects: Effects) -> None:
        dag = signed.event.dag()
        if len(dag) <= self._context.config.kademlia.limits.value_bytes:
            proof = encode_signatures(signed)
            self._fetcher.offer(signed.cid, dag, now, effects, proof=proof)
        else:
            topic = cids.text(signed.event.topic)
            effects.append(trace.Refuse(self._context.id, reasons.TOO_LARGE, topic))


_VERDICTS = {
    Verdict.REJECT: reasons.VALIDATION_FAILED,
    Verdict.IGNORE: reasons.VALIDATION_IGNORED,
}
