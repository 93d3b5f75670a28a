"""What neighbours in a tree exchange so that everybody has every event.

*Reconciliation.* Links find an event that others link to. Where many publish at once most events
are nobody's parent, and one that is lost with a dying peer would be missed by nobody. So every
new edge and every renewal of one compares: the child names a range of dates, how many events it has
in it, and a checksum; the parent says the same of its own. Where they differ the child lists what
it has, the parent sends what is lacking and asks for what it lacks itself, and they compare again:
nothing is agreed upon before both are equal. Events that are too young to have arrived everywhere
are left out, and so is what was agreed upon long ago, unless something of that time came late. A
parent that entered the tree later than the range begins first gets the range from its own parent:
so what a subtree missed while its relay was being replaced comes down to it. The same exchange over
all dates fetches a topic's history.

*News.* A renewal is half a minute away. So whoever passes something on tells its neighbours a
moment later how much they should have got of late, and who got less fetches it.
"""

from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec

from rumormill.core.effects import ById, CancelTimer, Effects, SendAll, SetTimer
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import (
    Context,
    NewsTimer,
    PeerOperation,
    RangeFetched,
    RangeTimer,
)
from rumormill.protocols.pulsarcast.format.additions import Events, Have, Terms
from rumormill.protocols.pulsarcast.format.cid import tail
from rumormill.protocols.pulsarcast.format.codec import encode_event, read_back
from rumormill.protocols.pulsarcast.format.rpc import addition, join
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds, unread_of
from rumormill.protocols.pulsarcast.history.missing import MissingParents
from rumormill.protocols.pulsarcast.history.timeline import milliseconds, whole
from rumormill.protocols.pulsarcast.tree.trees import Branch, Trees

_MOST_ROUNDS: Final = 8
"""Exchanges in a row after which neighbours that still differ go on as if they agreed: one of them
refuses what the other has. Our choice: links that lose a message in five fail less often."""

_LOOKED_AT: Final = 1 << 14
"""Events of ours that are looked at for one list, of at most a quarter as many: our choice, some
two milliseconds."""


class _Range(msgspec.Struct):
    """A range of dates that is being fetched from a peer."""

    peer: PeerId
    start: int
    end: int
    known: int = -1
    most: int = 0
    """How many events may be known before it is enough; 0 for no bound."""
    repeated: int = 0
    """How often the last question was repeated."""


class NewsFetch(msgspec.Struct, frozen=True):
    """What a neighbour has passed on and we have not got is fetched from it."""


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
            (NewsFetch, RangeFetched): self._on_news_fetched,
            (HaveAnswer, Loaded): self._on_loaded,
        }

    def clear(self) -> None:
        """Forget what is being fetched."""
        self._ranges.clear()

    # Comparing.

    def refresh(self, branch: Branch, now: float, effects: Effects) -> None:
        """Renew the edge to the parent, and say what we have."""
        assert branch.parent is not None
        self.join(branch, branch.parent, self._context.config.sync_settle, now, effects)

    def join(
        self, branch: Branch, peer: PeerId, settle: float, now: float, effects: Effects
    ) -> None:
        """Ask a peer to be our parent, or to remain it, and say what we have that is so old.

        A new parent is told of everything: there is no edge yet over which anything is on its way.
        """
        branch.told_silent = branch.silent
        terms = self._terms(branch, now - settle)
        branch.comparing = terms.end > terms.start
        self._context.send(peer, join(branch.topic, terms, now), effects)

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

    def _terms(self, branch: Branch, until: float) -> Terms:
        feed = self._feeds.open[branch.topic]
        config = self._context.config
        agreed = feed.synced - milliseconds(config.sync_margin)
        start = whole(max(feed.cover, agreed, feed.timeline.start))
        end = whole(milliseconds(until))
        if branch.silent or start >= end or feed.retries:
            return Terms(branch.topic, branch.silent)
        return Terms(branch.topic, False, start, end, *feed.timeline.digest(start, end))

    def answer_child(
        self, branch: Branch, terms: Terms, now: float, effects: Effects
    ) -> Terms | None:
        """What we have of the range that a child names, as far back as we remember; None while we
        cannot tell."""
        feed = self._feeds.open[branch.topic]
        start, end = max(min(terms.start, feed.late(now)), feed.timeline.start), terms.end
        if terms.start >= end or feed.retries:
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
        """What our parent has of the range that we named, or of one that begins earlier because
        something of that time has come to it late."""
        if peer != branch.parent or terms.start >= terms.end:
            return
        feed = self._feeds.open[branch.topic]
        start, ours = max(terms.start, whole(feed.cover)), feed.timeline.digest
        if start == terms.start and ours(start, terms.end) == (terms.count, terms.checksum):
            feed.agree(terms.end)
            feed.catching_up, branch.rounds = False, 0
        elif branch.topic not in self._ranges:
            agreement = Agreement(terms.end)
            self.fetch(feed, peer, start, terms.end, agreement, now, effects)

    def _on_agreement(
        self, agreement: Agreement, news: RangeFetched, now: float, effects: Effects
    ) -> None:
        """All that the parent has is here. What it lacks itself it has asked us for, but whether
        that arrived only another comparison can tell: until then nothing is agreed upon."""
        feed = self._feeds.open.get(news.about)
        branch = self._trees.branches.get(news.about)
        if not news.complete or feed is None or branch is None:
            return
        feed.catching_up = False
        branch.rounds += 1
        if branch.rounds >= _MOST_ROUNDS:
            feed.agree(agreement.end)
            branch.rounds = 0
        elif branch.parent is not None and branch.candidate is None:
            soon = min(self._context.config.sync_settle, self._context.config.refresh_interval)
            self._trees.arm(branch, min(branch.due, now + soon), effects)

    def compare_from(self, feed: Feed, date: int, now: float, effects: Effects) -> None:
        """What we have since a date is another than we said: compare it, with the parent if there
        is one that can, else with a child; the others see it when they compare."""
        branch = self._trees.branches[feed.topic]
        if branch.silent:
            return
        above = branch.parent is not None and not self._context.is_original(branch.parent)
        if above or branch.candidate is not None:
            feed.catching_up = True
            self.tell_wish(branch, now, effects)
            return
        for peer, child in branch.children.items():
            if not child.silent and not child.original:
                end = milliseconds(now + self._context.config.max_clock_skew)
                self.fetch(feed, peer, date, end, NewsFetch(), now, effects)
                return

    def look_below(self, branch: Branch, now: float, effects: Effects) -> None:
        """A child has come to a root whose disk lost something: it may have that."""
        feed = self._feeds.open[branch.topic]
        if feed.lost_from is not None and branch.parent is None and not branch.silent:
            date, feed.lost_from = feed.lost_from, None
            self.compare_from(feed, date, now, effects)

    # What was passed on.

    def on_news_timer(self, topic: bytes, now: float, effects: Effects) -> None:
        """Tell neighbours what they should have got from us since we told them last, and once more
        what they should have got before: a lost event is not always followed by one that links to
        it, and the next renewal is far away."""
        branch, feed = self._trees.branches.get(topic), self._feeds.open.get(topic)
        if branch is None or feed is None:
            return
        dates = [date for date in (branch.news, branch.news_before) if date is not None]
        branch.news, branch.news_before = None, branch.news
        if not dates:
            return
        effects.append(SetTimer(NewsTimer(topic), now + feed.news_delay))
        targets = branch.neighbours
        if branch.parent is not None and not branch.news_up:
            targets = targets[1:]
        branch.news_up = max(branch.news_up - 1, 0)
        targets = tuple([peer for peer in targets if not self._context.is_original(peer)])
        end = whole(milliseconds(now - feed.settle)) + (0 if feed.settle else 1000)
        start = whole(max(min(dates), self._oldest_news(now), feed.timeline.start))
        if targets and start < end:
            told = Terms(topic, False, start, end, *feed.timeline.digest(start, end))
            effects.append(SendAll(targets, addition(told)))

    def _oldest_news(self, now: float) -> int:
        return milliseconds(now - self._context.config.sync_margin)

    def on_news(self, peer: PeerId, terms: Terms, now: float, effects: Effects) -> None:
        """A neighbour tells what it has passed on of late: fetch what has not arrived."""
        topic = terms.topic or b""
        branch, feed = self._trees.branches.get(topic), self._feeds.open.get(topic)
        if branch is None or feed is None or peer not in (branch.parent, *branch.children):
            self._context.refuse(peer, reasons.NOT_ASKED_FOR, topic, 0.0, now, effects)
            return
        busy = topic in self._ranges or feed.catching_up or feed.retries or branch.silent
        # Twice the margin: their clock is not ours.
        reaches = terms.start >= max(2 * self._oldest_news(now) - milliseconds(now), feed.cover)
        if busy or not reaches or terms.start >= terms.end:
            return
        if feed.timeline.digest(terms.start, terms.end) != (terms.count, terms.checksum):
            self.fetch(feed, peer, terms.start, terms.end, NewsFetch(), now, effects)

    def _on_news_fetched(
        self, _: NewsFetch, news: RangeFetched, now: float, effects: Effects
    ) -> None:
        """What came has been taken in; what has not, the neighbour tells once more."""

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
        tails = tuple([tail(cid) for cid in ids[:most]])
        question = Have(feed.topic, start, end, tails)
        self._context.send(wanted.peer, addition(question), effects)
        timer = RangeTimer(feed.topic)
        wait = self._context.patience(wanted.repeated, self._context.config.fetch_timeout)
        effects.append(SetTimer(timer, now + wait))

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
        lacking = _not_among(feed, have, skipped, self._context.config.fetch_batch)
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
        lacking = _not_among(feed, have, answer.skipped, config.fetch_batch + 1)
        after = answer.skipped + config.fetch_batch
        events: list[SignedEvent] = []
        room = config.limits.rpc_bytes // 2
        for cid in lacking[: config.fetch_batch]:
            signed = feed.at_hand(cid) or read.get(cid)
            if room <= 0 or (signed is None and cid not in read):
                left = [cid]
                break
            if signed is not None:
                events.append(signed)
                room -= len(encode_event(signed))
        else:
            left = lacking[config.fetch_batch :]
            if left and not events:
                self._read(feed, peer, have, after, now, effects)
                return
        end = whole(feed.timeline.dates[left[0]]) if left else have.end
        told = Events(have.topic, tuple(events), (), have.start, end)
        self._context.send(peer, addition(told), effects)
        self._ask_back(feed, peer, have, now, effects)

    def _ask_back(self, feed: Feed, peer: PeerId, have: Have, now: float, effects: Effects) -> None:
        """Get from a child what it has and we have not, unless we are getting something else, or
        have too much to look at: then the next comparison finds it."""
        branch = self._trees.branches.get(have.topic)
        if branch is None or peer not in branch.children or have.topic in self._ranges:
            return
        lacking, ours = dict.fromkeys(have.tails), feed.timeline.walk(have.start, have.end)
        for cid in islice(ours, _LOOKED_AT if lacking else 0):
            lacking.pop(tail(cid), None)
        if lacking and next(ours, None) is None:
            self.fetch(feed, peer, have.start, have.end, NewsFetch(), now, effects)

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
        wanted.repeated = 0
        enough = wanted.most and len(feed.timeline) >= wanted.most
        if wanted.start >= wanted.end or not advanced or enough:
            self.end(answer.topic, now, effects, complete=wanted.start >= wanted.end)
        else:
            self._ask(feed, wanted, now, effects)

    def on_timer(self, topic: bytes, now: float, effects: Effects) -> None:
        """A peer has not answered: ask once more, or give up."""
        wanted, feed = self._ranges.get(topic), self._feeds.open.get(topic)
        retries = self._context.config.connect_retries
        if wanted is None or feed is None or wanted.repeated >= retries:
            self.end(topic, now, effects)
        else:
            wanted.repeated += 1
            self._ask(feed, wanted, now, effects)

    def end(self, topic: bytes, now: float, effects: Effects, *, complete: bool = False) -> None:
        """A range is here, or its peer has not answered, or we have left the topic."""
        if self._ranges.pop(topic, None) is not None:
            effects.append(CancelTimer(RangeTimer(topic)))
            self._context.operations.tell(RangeFetched(topic, complete), now, effects)


def _not_among(feed: Feed, have: Have, skipped: int, most: int) -> list[bytes]:
    """The events of a range that a peer did not list, so many of them, and no more looked at."""
    theirs = dict.fromkeys(have.tails)
    ours = feed.timeline.walk(have.start, have.end)
    return [*islice((cid for cid in ours if tail(cid) not in theirs), skipped, skipped + most)]
