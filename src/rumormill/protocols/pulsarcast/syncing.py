"""Reconciliation: a child and its parent see to it that they have the same events.

Links find an event that others link to. Where many publish at once most events are nobody's
parent, and one that is lost with a dying peer would be missed by nobody. So every renewal of an
edge compares: the child names a range of dates, how many events it has in it, and a checksum; the
parent says the same of its own. Where they differ the child lists what it has, the parent sends
what is lacking and asks for what it lacks itself. Events that are too young to have arrived
everywhere are left out, and so is what was agreed upon long ago.

A parent that entered the tree later than the range begins first gets the range from its own parent:
so what a subtree missed while its relay was being replaced comes down to it. The same exchange over
all dates fetches a topic's history.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from rumormill.core.effects import CancelTimer, Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import letters
from rumormill.protocols.pulsarcast.branch import Branch
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.dissemination import Dissemination
from rumormill.protocols.pulsarcast.feed import Feed
from rumormill.protocols.pulsarcast.forest import Forest
from rumormill.protocols.pulsarcast.gaps import Gaps
from rumormill.protocols.pulsarcast.rpc import (
    Events,
    Fetch,
    Have,
    Terms,
    addition,
    encode_event,
)
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.protocols.pulsarcast.timeline import milliseconds, whole
from rumormill.protocols.pulsarcast.timers import PullTimer

Pulled: TypeAlias = Callable[[bool, float, Effects], None]
"""Hears whether everything that the peer has is here now."""


class _Pull(msgspec.Struct):
    """A range of dates that is being fetched from a peer."""

    peer: PeerId
    start: int
    end: int
    done: Pulled
    known: int


class Syncing:
    """Compares and exchanges ranges of events."""

    def __init__(self, context: Context, forest: Forest, events: Dissemination, gaps: Gaps) -> None:
        self._context = context
        self._forest = forest
        self._events = events
        self._gaps = gaps
        self._pulls: dict[bytes, _Pull] = {}

    # Comparing.

    def refresh(self, branch: Branch, now: float, effects: Effects) -> None:
        """Renew the edge to the parent, and say what we have."""
        assert branch.parent is not None
        branch.told_silent = branch.silent
        terms = self._terms(branch, now)
        branch.comparing = terms.end > terms.start
        self._context.send(branch.parent, letters.join(branch.topic, terms, now), effects)

    def _terms(self, branch: Branch, now: float) -> Terms:
        feed = self._events.feeds[branch.topic]
        config = self._context.config
        agreed = feed.synced - milliseconds(config.sync_margin)
        start = whole(max(feed.cover, agreed, feed.timeline.start))
        end = whole(milliseconds(now - config.sync_settle))
        if branch.silent or start >= end:
            return Terms(branch.topic, branch.silent)
        return Terms(branch.topic, False, start, end, *feed.timeline.digest(start, end))

    def answer_child(
        self, branch: Branch, terms: Terms, now: float, effects: Effects
    ) -> Terms | None:
        """What we have of the range that a child names; None while we cannot tell."""
        feed = self._events.feeds[branch.topic]
        start, end = terms.start, terms.end
        if start >= end or start < feed.timeline.start:
            return None
        if start < whole(feed.cover):
            feed.cover = start
            feed.synced = min(feed.synced, start)
            if branch.parent is not None:
                if not self._context.is_original(branch.parent):
                    self.refresh(branch, now, effects)
                return None
        return Terms(branch.topic, False, start, end, *feed.timeline.digest(start, end))

    def on_parent_terms(
        self, branch: Branch, peer: PeerId, terms: Terms, now: float, effects: Effects
    ) -> None:
        """What our parent has of the range that we named."""
        if peer != branch.parent or terms.start >= terms.end:
            return
        feed = self._events.feeds[branch.topic]
        if feed.timeline.digest(terms.start, terms.end) == (terms.count, terms.checksum):
            feed.synced = max(feed.synced, terms.end)
        elif branch.topic not in self._pulls:

            def done(complete: bool, _: float, __: Effects) -> None:
                if complete:
                    feed.synced = max(feed.synced, terms.end)

            self.pull(feed, peer, terms.start, terms.end, done, now, effects)

    # Fetching a range.

    def pull(
        self,
        feed: Feed,
        peer: PeerId,
        start: int,
        end: int,
        done: Pulled,
        now: float,
        effects: Effects,
    ) -> None:
        """Get from a peer what it has of a range and we have not, and the other way round."""
        earlier = self._pulls.get(feed.topic)
        if earlier is not None:
            earlier.done(False, now, effects)
        pull = self._pulls[feed.topic] = _Pull(peer, whole(start), whole(end), done, -1)
        self._ask(feed, pull, now, effects)

    def _ask(self, feed: Feed, pull: _Pull, now: float, effects: Effects) -> None:
        most = self._context.config.limits.cids
        start, end = pull.start, pull.end
        ids = feed.timeline.between(start, end)
        while len(ids) > most and end - start > 1000:
            end = whole((start + end) // 2)
            end = max(end, start + 1000)
            ids = feed.timeline.between(start, end)
        pull.known = len(feed.timeline)
        self._gaps.expect(feed.topic, pull.peer, now)
        question = Have(feed.topic, start, end, tuple(ids[:most]))
        self._context.send(pull.peer, addition(question), effects)
        timer = PullTimer(feed.topic)
        effects.append(SetTimer(timer, now + self._context.config.fetch_timeout))

    def on_have(self, peer: PeerId, have: Have, now: float, effects: Effects) -> None:
        """A peer lists what it has of a range: send what it lacks, and ask for what we lack."""
        feed = self._events.feeds.get(have.topic)
        config = self._context.config
        if feed is None:
            answer = Events(have.topic, start=have.start, end=have.end)
            self._context.send(peer, addition(answer), effects)
            return
        theirs = dict.fromkeys(have.cids)
        events: list[SignedEvent] = []
        end, room = have.end, config.limits.rpc_bytes // 2
        for cid in feed.timeline.between(have.start, have.end):
            if cid in theirs:
                continue
            signed = feed.find(cid, self._context.archive)
            if signed is None:
                continue
            if len(events) >= config.fetch_batch or room <= 0:
                end = whole(feed.timeline.dates[cid])
                break
            events.append(signed)
            room -= len(encode_event(signed))
        answer = Events(have.topic, tuple(events), (), have.start, end)
        self._context.send(peer, addition(answer), effects)
        branch = self._forest.branches.get(have.topic)
        if branch is not None and peer in branch.children:
            lacking = [cid for cid in have.cids if cid not in feed.timeline]
            self._gaps.expect(have.topic, peer, now)
            for first in range(0, len(lacking), config.fetch_batch):
                wanted = tuple(lacking[first : first + config.fetch_batch])
                self._context.send(peer, addition(Fetch(have.topic, wanted)), effects)

    def on_answer(self, peer: PeerId, answer: Events, now: float, effects: Effects) -> None:
        """A peer's answer to our list has been taken in: go on with the rest of the range."""
        pull = self._pulls.get(answer.topic)
        feed = self._events.feeds.get(answer.topic)
        if pull is None or pull.peer != peer or feed is None or answer.start != pull.start:
            return
        advanced = answer.end > pull.start or len(feed.timeline) > pull.known
        pull.start = min(max(answer.end, pull.start), pull.end)
        if pull.start >= pull.end or not advanced:
            self._finish(answer.topic, pull.start >= pull.end, now, effects)
        else:
            self._ask(feed, pull, now, effects)

    def on_timer(self, topic: bytes, now: float, effects: Effects) -> None:
        """A peer has not answered."""
        self._finish(topic, False, now, effects)

    def _finish(self, topic: bytes, complete: bool, now: float, effects: Effects) -> None:
        pull = self._pulls.pop(topic, None)
        if pull is not None:
            effects.append(CancelTimer(PullTimer(topic)))
            pull.done(complete, now, effects)

    def forget(self, topic: bytes, now: float, effects: Effects) -> None:
        """We have left the topic."""
        self._finish(topic, False, now, effects)
