"""What we miss by its name, and what others miss: links to events that are not there.

A link to an event that is not there means that we missed it (thesis: NACK). On a quiet tree it
cannot happen: whoever linked to an event had it before, and along the edges of a tree it reaches
everybody before the event that links to it. After a lost edge it does. The missing event is looked
for at the neighbour that sent its child, then at the other neighbours, then in the DHT. In an
ordered topic delivery waits for it, so it is asked for at once, and with it the chain before it;
elsewhere it gets a moment to arrive by itself.

Neighbours' questions for events are answered from memory and from the log, within what one answer
may hold.

What peers brought and our disk did not take is asked for again until it is kept. An event counts as
known, and is passed on, when it is accepted; that the disk had no room for it is heard later. Then
it is unknown again: some at a time, what was lost is looked for at neighbours and in the DHT, soon
while there is room, and less and less often while there is none. Until all of it is here nothing is
compared with neighbours: a comparison would fetch everything for nothing, time and again. What the
table has no room for is found by the comparison that follows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from rumormill.core.effects import ById, Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.context import (
    GRAVE,
    BlockFound,
    Context,
    ParentTimer,
    PeerOperation,
    RefetchTimer,
)
from rumormill.protocols.pulsarcast.format.additions import Events, Fetch
from rumormill.protocols.pulsarcast.format.codec import encode_event, read_back
from rumormill.protocols.pulsarcast.format.rpc import addition
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds, unread_of
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.trees import Trees

_NEAREST: Final = 4
"""Events before a missing one that are asked for along with it while others wait for theirs. Our
choice: what was lost together."""
_ANSWER_WINDOW: Final = 60.0
"""Seconds for which a peer that was asked may send events; our choice: a long answer takes many
messages."""


class MissingParent(msgspec.Struct, frozen=True):
    """A parent of an event that we have is looked for."""


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


class Walk:
    """What a question finds: the wanted events and their ancestors, parents first."""

    def __init__(self, feed: Feed, answer: FetchAnswer, config: PulsarcastConfig) -> None:
        question = self._question = answer.question
        self._feed = feed
        self._asked = dict.fromkeys(answer.asked)
        self._read = {signed.cid: signed for signed in answer.read}
        self._most = self._left = config.fetch_batch
        self._room = config.limits.rpc_bytes // 2
        self._unread: list[bytes] = []
        self.found: dict[bytes, SignedEvent] = {}
        self.missing: list[bytes] = []
        for cid in question.wanted:
            if cid != question.topic:
                chain = list(self._chain(cid))
                if not chain and cid not in self.found:
                    self.missing.append(cid)
                self.found.update((signed.cid, signed) for signed in reversed(chain))

    def _chain(self, cid: bytes) -> Iterator[SignedEvent]:
        """An event and so many before it, as far as they are known, wanted and fit."""
        question = self._question
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
        if signed is None and cid in self._feed.timeline and cid not in self._asked:
            self._unread.append(cid)
        return signed

    def to_read(self) -> tuple[bytes, ...]:
        """What the log should be asked for: events that are known and not at hand, and where the
        chain before one is wanted, its neighbours by date, which are probably that."""
        most, asked = self._most, self._asked
        if len(asked) >= 2 * most:
            return ()
        ids = dict.fromkeys(self._unread)
        if ids and self._question.ancestors:
            ids |= dict.fromkeys(self._feed.timeline.before(self._unread[0], most))
        return tuple([cid for cid in ids if cid not in asked and cid not in self.found])[:most]


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
            # Where others wait already most of what lies before it is here, and where many
            # publish as well.
            batch = 0
            if feed.ordered:
                gap = len(feed.hold.held) <= 1
                batch = self._context.config.fetch_batch if gap else _NEAREST
            self.fetch(feed, cid, peer, now, effects, ancestors=batch)
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
        ancestors: int = 0,
    ) -> bool:
        """Look for a missing event, at its child's sender first, with so many of those before it;
        false when too much is looked for already."""
        topic = feed.topic
        sources = (peer, *self._trees.neighbours(topic))
        for each in sources:
            self.expect(topic, each, now)
        wish, known = MissingParent(), feed.tip
        return self._fetcher.seek(
            cid, topic, sources, wish, now, effects, ancestors=ancestors, known=known
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
        if feed is not None and news.about in feed.timeline:
            return  # we missed it too, and have just passed it on
        answer = Events(asked.topic, missing=(news.about,))
        if (
            feed is not None
            and isinstance(block, SignedEvent)
            and self._events.fault(feed, block, now) is None
            and self._events.refusal(news.source, block) is None
        ):
            answer = Events(asked.topic, (block,))
        self._context.send(asked.peer, addition(answer), effects)


@dataclass(eq=False)
class Refetching:
    """Gets again what could not be stored."""

    _context: Context
    _feeds: Feeds
    _missing: MissingParents

    def note(self, signed: SignedEvent, now: float, effects: Effects) -> None:
        """An event that a peer brought could not be stored."""
        feed = self._feeds.open.get(signed.event.topic)
        if feed is None:
            return
        feed.lose(signed.cid)
        if len(feed.lost) > self._context.config.max_fetches:
            del feed.lost[next(iter(feed.lost))]
        if not feed.retries:
            self._wait(feed, 1, now, effects)

    def _wait(self, feed: Feed, retries: int, now: float, effects: Effects) -> None:
        feed.retries, feed.lost_again = retries, False
        at = now + self._context.backoff(retries)
        effects.append(SetTimer(RefetchTimer(feed.topic), at))

    def on_timer(self, topic: bytes, now: float, effects: Effects) -> None:
        """Look for some of what was lost; where nothing is left, go on as before."""
        feed = self._feeds.open.get(topic)
        if feed is None:
            return
        if not feed.lost:
            feed.retries = 0
            return
        self._wait(feed, feed.retries + 1 if feed.lost_again else 1, now, effects)
        for cid in list(islice(feed.lost, self._context.config.fetch_batch)):
            if cid in feed.timeline or self._missing.fetch(
                feed, cid, self._context.id, now, effects
            ):
                del feed.lost[cid]
