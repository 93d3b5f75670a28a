"""What neighbours in a tree exchange so that everybody has every event.

*Missing parents.* A link to an event that is not there means that we missed it (thesis: NACK). On a
quiet tree it cannot happen: whoever linked to an event had it before, and along the edges of a tree
it reaches everybody before the event that links to it. After a lost edge it does. The missing event
is looked for at the neighbour that sent its child, then at the other neighbours, then in the DHT.
In an ordered topic delivery waits for it, so it is asked for at once, and with it the chain before
it; elsewhere it gets a moment to arrive by itself. Neighbours' questions for events are answered
from memory and from the log, within bounds.

*Reconciliation.* Links find an event that others link to. Where many publish at once most events
are nobody's parent, and one that is lost with a dying peer would be missed by nobody. So every
renewal of an edge compares: the child names a range of dates, how many events it has in it, and a
checksum; the parent says the same of its own. Where they differ the child lists what it has, the
parent sends what is lacking and asks for what it lacks itself. Events that are too young to have
arrived everywhere are left out, and so is what was agreed upon long ago. A parent that entered the
tree later than the range begins first gets the range from its own parent: so what a subtree missed
while its relay was being replaced comes down to it. The same exchange over all dates fetches a
topic's history.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from rumormill.core.effects import ById, CancelTimer, Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import (
    GRAVE,
    BlockFound,
    Context,
    ParentTimer,
    PeerOperation,
    RangeFetched,
    RangeTimer,
)
from rumormill.protocols.pulsarcast.format.additions import Events, Fetch, Have, Terms
from rumormill.protocols.pulsarcast.format.codec import encode_event, read_back
from rumormill.protocols.pulsarcast.format.rpc import addition, join
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher
from rumormill.protocols.pulsarcast.history.feed import (
    Feed,
    Feeds,
    FetchAnswer,
    Walk,
    unread_of,
)
from rumormill.protocols.pulsarcast.history.timeline import milliseconds, whole
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.trees import Branch, Trees

_ANSWER_WINDOW: Final = 60.0
"""Seconds for which a peer that was asked may send events; our choice: a long answer takes many
messages."""


class MissingParent(msgspec.Struct, frozen=True):
    """A parent of an event that we have is looked for."""


class ChildsQuestion(PeerOperation, frozen=True):
    """A child misses an event that we miss too: our own parent is asked for it."""

    topic: bytes


@dataclass(eq=False)
class MissingParents:
    """Finds what is missing, and gives others what they miss."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _events: Dissemination
    _fetcher: BlockFetcher
    _noted: dict[bytes, tuple[bytes, PeerId]] = field(default_factory=dict)
    _expected: dict[tuple[bytes, PeerId], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._events.on_missing = self.note
        self._context.operations.steps |= {
            (MissingParent, BlockFound): self._on_parent,
            (ChildsQuestion, BlockFound): self._on_childs_event,
            (FetchAnswer, Loaded): self._on_loaded,
        }

    def clear(self) -> None:
        """Forget what was waited for; comparing with the parent will find it."""
        self._noted.clear()
        self._expected.clear()

    # What we miss.

    def note(self, feed: Feed, cid: bytes, peer: PeerId, now: float, effects: Effects) -> None:
        """An event that `peer` sent links to one that is not there."""
        branch = self._trees.branches[feed.topic]
        above = branch.parent is not None and not self._context.is_original(branch.parent)
        if cid in self._fetcher or cid in self._noted or (feed.catching_up and above):
            return  # it is on its way already, alone or with all others
        if feed.ordered or peer == self._context.id or len(feed.timeline) == 1:
            # Of a first event the parent is probably older than our subscription.
            self.fetch(feed, cid, peer, now, effects)
        elif len(self._noted) < self._context.config.max_fetches:
            self._noted[cid] = (feed.topic, peer)
            effects.append(SetTimer(ParentTimer(cid), now + self._context.config.gap_delay))

    def on_timer(self, cid: bytes, now: float, effects: Effects) -> None:
        """It had time enough to arrive by itself."""
        topic, peer = self._noted.pop(cid, (b"", b""))
        feed = self._feeds.open.get(topic)
        if feed is not None and cid not in feed.timeline:
            self.fetch(feed, cid, peer, now, effects)

    def fetch(
        self,
        feed: Feed,
        cid: bytes,
        peer: PeerId,
        now: float,
        effects: Effects,
        *,
        chain: bool = True,
    ) -> bool:
        """Look for a missing event, at its child's sender first, with the chain before it where
        the topic is one; false when too much is looked for already."""
        topic = feed.topic
        sources = (peer, *self._trees.neighbours(topic))
        for each in sources:
            self.expect(topic, each, now)
        # Elsewhere most of what lies before the event is here already.
        batch = self._context.config.fetch_batch if chain and feed.ordered else 0
        return self._fetcher.seek(
            cid, topic, sources, MissingParent(), now, effects, ancestors=batch, known=feed.tip
        )

    def _on_parent(self, _: MissingParent, news: BlockFound, now: float, effects: Effects) -> None:
        self._events.on_found(news, now, effects)

    def expect(self, topic: bytes, peer: PeerId, now: float) -> None:
        """A peer is about to be asked for events of a topic."""
        if len(self._expected) >= self._context.config.max_fetches:
            self._expected = {key: until for key, until in self._expected.items() if until > now}
        self._expected[topic, peer] = now + _ANSWER_WINDOW

    def on_events(self, peer: PeerId, answer: Events, now: float, effects: Effects) -> None:
        """A peer sent events that we missed."""
        topic = answer.topic
        if self._expected.get((topic, peer), 0.0) <= now:
            self._context.refuse(peer, reasons.NOT_ASKED_FOR, topic, 0.0, now, effects)
            return
        for signed in answer.events:
            if signed.event.topic != topic:
                self._context.refuse(peer, reasons.WRONG_CID, topic, GRAVE, now, effects)
            elif not self._fetcher.found(signed, peer, now, effects):
                feed = self._feeds.open.get(topic)
                if feed is not None:
                    self._events.backfill(feed, peer, signed, now, effects)
        self._fetcher.on_missing(peer, answer, now, effects)

    # What others miss.

    def on_fetch(self, peer: PeerId, question: Fetch, now: float, effects: Effects) -> None:
        """A peer asks for events."""
        self._answer(FetchAnswer(peer, question), now, effects)

    def _on_loaded(self, answer: FetchAnswer, loaded: Loaded, now: float, effects: Effects) -> None:
        left = unread_of(answer.asking, loaded)
        asked = answer.asked + answer.asking[: len(answer.asking) - len(left)]
        read = answer.read + tuple(read_back(loaded.events))
        self._answer(replace(answer, asking=(), asked=asked, read=read), now, effects)

    def _answer(self, answer: FetchAnswer, now: float, effects: Effects) -> None:
        """Answer a question with what is at hand, after reading what else it needs."""
        peer, question = answer.peer, answer.question
        feed = self._feeds.open.get(question.topic)
        found: dict[bytes, SignedEvent] = {}
        missing = [cid for cid in question.wanted if cid != question.topic]
        if feed is not None:
            walk = Walk(feed, answer, self._context.config)
            found, missing = walk.found, walk.missing
            ids = walk.to_read()
            waits = replace(answer, asking=ids)
            if ids and self._context.load(waits, feed.text, ById(ids), effects):
                return
        lacking = [cid for cid in missing if not self._ask_above(peer, question, cid, now, effects)]
        if found or lacking:
            told = Events(question.topic, tuple(found.values()), tuple(lacking))
            self._context.send(peer, addition(told), effects)

    def _ask_above(
        self, peer: PeerId, question: Fetch, cid: bytes, now: float, effects: Effects
    ) -> bool:
        """A child misses what we miss too: get it from our own parent, and answer then.

        Whatever came is judged before it is passed on: the child holds us to account for it.
        """
        topic = question.topic
        branch = self._trees.branches.get(topic)
        if branch is None or peer not in branch.children or branch.parent is None:
            return False
        self.expect(topic, branch.parent, now)
        sources, asks = (branch.parent,), ChildsQuestion(peer, topic)
        return self._fetcher.seek(cid, topic, sources, asks, now, effects, everywhere=False)

    def _on_childs_event(
        self, asked: ChildsQuestion, news: BlockFound, now: float, effects: Effects
    ) -> None:
        feed, block = self._feeds.open.get(asked.topic), news.block
        answer = Events(asked.topic, missing=(news.about,))
        if (
            feed is not None
            and isinstance(block, SignedEvent)
            and self._events.fault(feed, block, now) is None
        ):
            answer = Events(asked.topic, (block,))
        self._context.send(asked.peer, addition(answer), effects)


class _Range(msgspec.Struct):
    """A range of dates that is being fetched from a peer."""

    peer: PeerId
    start: int
    end: int
    known: int = -1
    most: int = 0
    """How many events may be known before it is enough; 0 for no bound."""


class Agreement(msgspec.Struct, frozen=True):
    """Once a range is complete, our parent and we agree up to a date."""

    end: int


class HaveAnswer(PeerOperation, frozen=True):
    """A neighbour says what it has, and the log is read for what it lacks."""

    have: Have
    skipped: int
    """How many events that it lacks the log no longer has."""
    asking: tuple[bytes, ...]


@dataclass(eq=False)
class Reconciliation:
    """Compares and exchanges ranges of events."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _missing: MissingParents
    _ranges: dict[bytes, _Range] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._context.operations.steps |= {
            (Agreement, RangeFetched): self._on_agreement,
            (HaveAnswer, Loaded): self._on_loaded,
        }

    def clear(self) -> None:
        """Forget what is being fetched."""
        self._ranges.clear()

    # Comparing.

    def refresh(self, branch: Branch, now: float, effects: Effects) -> None:
        """Renew the edge to the parent, and say what we have."""
        assert branch.parent is not None
        branch.told_silent = branch.silent
        terms = self._terms(branch, now)
        branch.comparing = terms.end > terms.start
        self._context.send(branch.parent, join(branch.topic, terms, now), effects)

    def tell_wish(self, branch: Branch, now: float, effects: Effects) -> None:
        """Tell the parent if we want events now and did not before, or the other way round; and
        compare at once if we want all that there ever was."""
        if branch.parent is None or branch.candidate is not None:
            return
        feed = self._feeds.open[branch.topic]
        behind = feed.catching_up and branch.topic not in self._ranges
        if (branch.silent != branch.told_silent or behind) and not self._context.is_original(
            branch.parent
        ):
            self.refresh(branch, now, effects)

    def _terms(self, branch: Branch, now: float) -> Terms:
        feed = self._feeds.open[branch.topic]
        config = self._context.config
        agreed = feed.synced - milliseconds(config.sync_margin)
        start = whole(max(feed.cover, agreed, feed.timeline.start))
        end = whole(milliseconds(now - config.sync_settle))
        if branch.silent or start >= end or feed.retries:
            return Terms(branch.topic, branch.silent)
        return Terms(branch.topic, False, start, end, *feed.timeline.digest(start, end))

    def answer_child(
        self, branch: Branch, terms: Terms, now: float, effects: Effects
    ) -> Terms | None:
        """What we have of the range that a child names, as far back as we remember; None while we
        cannot tell."""
        feed = self._feeds.open[branch.topic]
        start, end = max(terms.start, feed.timeline.start), terms.end
        if start >= end or feed.retries:
            return None
        above = branch.parent is not None and not self._context.is_original(branch.parent)
        if start < whole(feed.cover):
            feed.cover = start
            feed.synced = min(feed.synced, start)
            if above:
                feed.catching_up = True
                self.refresh(branch, now, effects)
        if feed.catching_up and above:
            return None
        return Terms(branch.topic, False, start, end, *feed.timeline.digest(start, end))

    def on_parent_terms(
        self, branch: Branch, peer: PeerId, terms: Terms, now: float, effects: Effects
    ) -> None:
        """What our parent has of the range that we named."""
        if peer != branch.parent or terms.start >= terms.end:
            return
        feed = self._feeds.open[branch.topic]
        if feed.timeline.digest(terms.start, terms.end) == (terms.count, terms.checksum):
            feed.agree(terms.end)
        elif branch.topic not in self._ranges:
            agreement = Agreement(terms.end)
            self.fetch(feed, peer, terms.start, terms.end, agreement, now, effects)

    def _on_agreement(
        self, agreement: Agreement, news: RangeFetched, now: float, effects: Effects
    ) -> None:
        feed = self._feeds.open.get(news.about)
        if news.complete and feed is not None:
            feed.agree(agreement.end)

    # Fetching a range.

    def fetch(
        self,
        feed: Feed,
        peer: PeerId,
        start: int,
        end: int,
        operation: msgspec.Struct,
        now: float,
        effects: Effects,
        *,
        most: int = 0,
    ) -> None:
        """Get from a peer what it has of a range and we have not, and the other way round.

        `RangeFetched` follows. There is one range per topic: a new one ends the earlier. With
        `most`, it ends when so many events are known.
        """
        self.end(feed.topic, now, effects)
        self._context.operations.hold(RangeFetched, feed.topic, operation)
        wanted = self._ranges[feed.topic] = _Range(peer, whole(start), whole(end), most=most)
        self._ask(feed, wanted, now, effects)

    def _ask(self, feed: Feed, wanted: _Range, now: float, effects: Effects) -> None:
        most = self._context.config.limits.cids
        start, end = wanted.start, wanted.end
        ids = feed.timeline.between(start, end)
        while len(ids) > most and end - start > 1000:
            end = whole((start + end) // 2)
            end = max(end, start + 1000)
            ids = feed.timeline.between(start, end)
        wanted.known = len(feed.timeline)
        self._missing.expect(feed.topic, wanted.peer, now)
        question = Have(feed.topic, start, end, tuple(ids[:most]))
        self._context.send(wanted.peer, addition(question), effects)
        timer = RangeTimer(feed.topic)
        effects.append(SetTimer(timer, now + self._context.config.fetch_timeout))

    def on_have(self, peer: PeerId, have: Have, now: float, effects: Effects) -> None:
        """A peer lists what it has of a range: send what it lacks, and ask for what we lack."""
        feed = self._feeds.open.get(have.topic)
        if feed is None:  # an answer that lacks the topic itself: we know nothing of it
            missing = (have.topic,)
            answer = Events(have.topic, missing=missing, start=have.start, end=have.end)
            self._context.send(peer, addition(answer), effects)
        else:
            self._read(feed, peer, have, 0, now, effects)

    def _read(
        self, feed: Feed, peer: PeerId, have: Have, skipped: int, now: float, effects: Effects
    ) -> None:
        """Read the next events that a peer lacks and that are not at hand; then answer."""
        lacking = _not_among(feed, have)[skipped : skipped + self._context.config.fetch_batch]
        ids = tuple([cid for cid in lacking if feed.at_hand(cid) is None])
        answer = HaveAnswer(peer, have, skipped, ids)
        if ids:
            self._context.load(answer, feed.text, ById(ids), effects)
        else:
            self._answer(feed, answer, {}, now, effects)

    def _on_loaded(self, answer: HaveAnswer, loaded: Loaded, now: float, effects: Effects) -> None:
        feed = self._feeds.open.get(answer.have.topic)
        if feed is None:
            return
        read: dict[bytes, SignedEvent | None] = dict.fromkeys(answer.asking)
        for cid in unread_of(answer.asking, loaded):
            del read[cid]
        read.update((signed.cid, signed) for signed in read_back(loaded.events))
        self._answer(feed, answer, read, now, effects)

    def _answer(
        self,
        feed: Feed,
        answer: HaveAnswer,
        read: dict[bytes, SignedEvent | None],
        now: float,
        effects: Effects,
    ) -> None:
        """Send what a peer lacks, as much as fits; `read` has None for what the log has lost."""
        peer, have, config = answer.peer, answer.have, self._context.config
        lacking = _not_among(feed, have)
        after = answer.skipped + config.fetch_batch
        events: list[SignedEvent] = []
        room = config.limits.rpc_bytes // 2
        for cid in lacking[answer.skipped : after]:
            signed = feed.at_hand(cid) or read.get(cid)
            if room <= 0 or (signed is None and cid not in read):
                left = [cid]
                break
            if signed is not None:
                events.append(signed)
                room -= len(encode_event(signed))
        else:
            left = lacking[after : after + 1]
            if left and not events:
                self._read(feed, peer, have, after, now, effects)
                return
        end = whole(feed.timeline.dates[left[0]]) if left else have.end
        told = Events(have.topic, tuple(events), (), have.start, end)
        self._context.send(peer, addition(told), effects)
        self._ask_back(feed, peer, have, now, effects)

    def _ask_back(self, feed: Feed, peer: PeerId, have: Have, now: float, effects: Effects) -> None:
        """Ask a child for what it has and we have not."""
        branch = self._trees.branches.get(have.topic)
        if branch is None or peer not in branch.children:
            return
        lacking = [cid for cid in have.cids if cid not in feed.timeline]
        batch = self._context.config.fetch_batch
        self._missing.expect(have.topic, peer, now)
        for first in range(0, len(lacking), batch):
            wanted = tuple(lacking[first : first + batch])
            self._context.send(peer, addition(Fetch(have.topic, wanted)), effects)

    def on_answer(self, peer: PeerId, answer: Events, now: float, effects: Effects) -> None:
        """A peer's answer to our list has been taken in: go on with the rest of the range."""
        wanted = self._ranges.get(answer.topic)
        feed = self._feeds.open.get(answer.topic)
        if wanted is None or wanted.peer != peer or feed is None or answer.start != wanted.start:
            return
        if answer.topic in answer.missing:
            self.end(answer.topic, now, effects)
            return
        advanced = answer.end > wanted.start or len(feed.timeline) > wanted.known
        wanted.start = min(max(answer.end, wanted.start), wanted.end)
        enough = wanted.most and len(feed.timeline) >= wanted.most
        if wanted.start >= wanted.end or not advanced or enough:
            self.end(answer.topic, now, effects, complete=wanted.start >= wanted.end)
        else:
            self._ask(feed, wanted, now, effects)

    def end(self, topic: bytes, now: float, effects: Effects, *, complete: bool = False) -> None:
        """A range is here, or its peer has not answered, or we have left the topic."""
        if self._ranges.pop(topic, None) is not None:
            effects.append(CancelTimer(RangeTimer(topic)))
            self._context.operations.tell(RangeFetched(topic, complete), now, effects)


def _not_among(feed: Feed, have: Have) -> list[bytes]:
    """The events of a range that a peer did not list."""
    theirs = dict.fromkeys(have.cids)
    return [cid for cid in feed.timeline.between(have.start, have.end) if cid not in theirs]
