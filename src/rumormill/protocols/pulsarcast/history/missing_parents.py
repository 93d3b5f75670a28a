"""Missing parents: a link to an event that is not there means that we missed it; thesis: NACK.

On a quiet tree it cannot happen: whoever linked to an event had it before, and along the edges of a
tree it reaches everybody before the event that links to it. After a lost edge it does. The missing
event is looked for at the neighbour that sent its child, then at the other neighbours, then in the
DHT. In an ordered topic delivery waits for it, so it is asked for at once, and with it the chain
before it; elsewhere it gets a moment to arrive by itself.

The other side of it is here too: neighbours' questions for events are answered from memory and from
the log, within bounds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rumormill.core.effects import ById, Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import (
    GRAVE,
    BlockFound,
    Context,
    ParentTimer,
    PeerOperation,
)
from rumormill.protocols.pulsarcast.format.additions import Events, Fetch
from rumormill.protocols.pulsarcast.format.codec import encode_event, read_back
from rumormill.protocols.pulsarcast.format.rpc import addition
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds, unread_of
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.trees import Trees

_ANSWER_WINDOW: Final = 60.0
"""Seconds for which a peer that was asked may send events; our choice: a long answer takes many
messages."""


class MissingParent(msgspec.Struct, frozen=True):
    """A parent of an event that we have is looked for."""

    topic: bytes


class ChildsQuestion(PeerOperation, frozen=True):
    """A child misses an event that we miss too: our own parent is asked for it."""

    topic: bytes


class FetchAnswer(PeerOperation, frozen=True):
    """A neighbour asks for events, and the log is read for it."""

    question: Fetch
    asking: tuple[bytes, ...] = ()
    """What the log is asked for now."""
    asked: tuple[bytes, ...] = ()
    """What it was asked for before."""
    read: tuple[SignedEvent, ...] = ()
    """What it had of that."""


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
        if cid in self._fetcher or cid in self._noted:
            return
        if feed.hold is not None or peer == self._context.id:
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

    def fetch(self, feed: Feed, cid: bytes, peer: PeerId, now: float, effects: Effects) -> None:
        """Look for a missing event, at its child's sender first."""
        topic = feed.topic
        sources = (peer, *self._trees.neighbours(topic))
        for each in sources:
            self.expect(topic, each, now)
        # A chain comes whole; elsewhere most of what lies before the event is here already.
        batch = self._context.config.fetch_batch if feed.hold is not None else 0
        self._fetcher.seek(
            cid, topic, sources, MissingParent(topic), now, effects, ancestors=batch, known=feed.tip
        )

    def _on_parent(
        self, missing: MissingParent, news: BlockFound, now: float, effects: Effects
    ) -> None:
        feed = self._feeds.open.get(missing.topic)
        if feed is not None and isinstance(news.block, SignedEvent):
            self._events.backfill(feed, news.source, news.block, now, effects)

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
        answer = FetchAnswer(answer.peer, answer.question, (), asked, read)
        self._answer(answer, now, effects)

    def _answer(self, answer: FetchAnswer, now: float, effects: Effects) -> None:
        """Answer a question with what is at hand, after reading what else it needs."""
        peer, question = answer.peer, answer.question
        feed = self._feeds.open.get(question.topic)
        found: dict[bytes, SignedEvent] = {}
        missing = [cid for cid in question.wanted if cid != question.topic]
        if feed is not None:
            walk = _Walk(feed, answer, self._context)
            found, missing = walk.found, walk.missing
            ids = walk.to_read()
            waits = FetchAnswer(peer, question, ids, answer.asked, answer.read)
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


class _Walk:
    """What a question finds: the wanted events and their ancestors, parents first."""

    def __init__(self, feed: Feed, answer: FetchAnswer, context: Context) -> None:
        self._feed = feed
        self._answer = answer
        self._read = {signed.cid: signed for signed in answer.read}
        self._most = self._left = context.config.fetch_batch
        self._room = context.config.limits.rpc_bytes // 2
        self._unread: list[bytes] = []
        self.found: dict[bytes, SignedEvent] = {}
        self.missing: list[bytes] = []
        for cid in answer.question.wanted:
            if cid != answer.question.topic:
                chain = list(self._chain(cid))
                if not chain and cid not in self.found:
                    self.missing.append(cid)
                self.found.update((signed.cid, signed) for signed in reversed(chain))

    def _chain(self, cid: bytes) -> Iterator[SignedEvent]:
        """An event and so many before it, as far as they are known, wanted and fit."""
        question = self._answer.question
        wanted: bytes | None = cid
        for _ in range(question.ancestors + 1):
            if wanted is None or wanted == question.known or self._left <= 0 or self._room <= 0:
                return
            signed = None if wanted in self.found else self._get(wanted)
            if signed is None:
                return
            yield signed
            self._left -= 1
            self._room -= len(encode_event(signed))
            wanted = signed.event.parent

    def _get(self, cid: bytes) -> SignedEvent | None:
        signed = self._feed.at_hand(cid) or self._read.get(cid)
        if signed is None and cid in self._feed.timeline and cid not in self._answer.asked:
            self._unread.append(cid)
        return signed

    def to_read(self) -> tuple[bytes, ...]:
        """What the log should be asked for: events that are known and not at hand, and where the
        chain before one is wanted, its neighbours by date, which are probably that."""
        answer, most = self._answer, self._most
        if len(answer.asked) >= 2 * most:
            return ()
        ids = dict.fromkeys(self._unread)
        if ids and answer.question.ancestors:
            ids |= dict.fromkeys(self._feed.timeline.before(self._unread[0], most))
        known = {**dict.fromkeys(answer.asked), **self.found}
        return tuple([cid for cid in ids if cid not in known])[:most]
