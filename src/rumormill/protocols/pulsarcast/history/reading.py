"""Reading a topic's history: its events as far back as they go, complete and verified.

What is asked for is first fetched from tree neighbours, in batches over all dates
(`reconciliation`), and from the topic's author, wherever that is: only its answer tells that there
is nothing more than what was found. Then the log is read, piece by piece, and every event in it
checked once more as if a stranger had brought it: its CID against its bytes, its publisher against
the topic, its signatures. Every event's parent must be there; one that is not is looked for at the
neighbours and in the DHT, which leads to its own parent in turn. What that brings stands at the end
of the log, where reading goes on. The order is that of the links, so it is the same for everybody.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from rumormill.core.effects import Effects, FromOffset, Outcome
from rumormill.core.errors import LimitError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import (
    History,
    ReadHistory,
    cid_of,
    event_cid_of,
)
from rumormill.protocols.pulsarcast.context import (
    BlockFound,
    Context,
    RangeFetched,
    TopicFound,
    TreeEntered,
    WayFound,
)
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.codec import read_back
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher
from rumormill.protocols.pulsarcast.history.exchange import Reconciliation
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds, core_event
from rumormill.protocols.pulsarcast.history.graph import EventGraph
from rumormill.protocols.pulsarcast.history.timeline import milliseconds
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination
from rumormill.protocols.pulsarcast.tree.known_topics import KnownTopics, PatientLook
from rumormill.protocols.pulsarcast.tree.membership import TreeMembership
from rumormill.protocols.pulsarcast.tree.trees import Trees

_SOURCES: Final = 2
"""Neighbours that are asked for everything; our choice: the second one catches what the first
missed."""


class Reading(msgspec.Struct, frozen=True):
    """A call for history; `HistoryReading` knows how far it has come."""

    command: int


class _Progress(msgspec.Struct):
    """What has been read for one call."""

    topic: bytes
    wish: ReadHistory
    sources: list[PeerId] = []
    """Who is still to be asked, and who is being asked."""
    asked: PeerId = b""
    answered: int = 0
    vouched: bool = False
    wanted: dict[bytes, None] = {}
    """Events that are looked for though none that we have links to them."""
    before: int = 0
    """How many events were known before."""
    offset: int = 0
    """From where on the log is to be read."""
    graph: EventGraph = msgspec.field(default_factory=EventGraph)
    events: dict[bytes, Event | None] = {}
    unsigned: int = 0
    refused: dict[bytes, None] = {}
    """Events that are not what they should be."""
    lost: dict[bytes, None] = {}
    """Parents that were looked for."""


@dataclass(eq=False)
class HistoryReading:
    """Answers calls for history."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _topics: KnownTopics
    _membership: TreeMembership
    _events: Dissemination
    _reconciliation: Reconciliation
    _fetcher: BlockFetcher
    _open: dict[int, _Progress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._context.operations.steps |= {
            (Reading, TopicFound): self._on_topic,
            (Reading, TreeEntered): self._on_tree,
            (Reading, WayFound): self._on_way,
            (Reading, RangeFetched): self._on_range,
            (Reading, Loaded): self._on_loaded,
            (Reading, BlockFound): self._on_parent,
        }

    def clear(self) -> None:
        """Forget all calls: who made them is gone."""
        self._open.clear()

    def begin(self, command: int, wish: ReadHistory, now: float, effects: Effects) -> None:
        """Get a topic's history."""
        cid, reading = cid_of(wish.topic), Reading(command)
        wanted = dict.fromkeys(event_cid_of(event) for event in wish.start)
        self._open[command] = _Progress(cid, wish, wanted=wanted)
        self._topics.find(cid, PatientLook(reading), now, effects)

    def _end(
        self, reading: Reading, history: History | None, reason: str, effects: Effects
    ) -> None:
        del self._open[reading.command]
        effects.append(Outcome(reading.command, history, reasons.sentence(reason)))

    def _on_topic(self, reading: Reading, news: TopicFound, now: float, effects: Effects) -> None:
        if news.topic is None:
            self._end(reading, None, reasons.NO_SUCH_TOPIC, effects)
        else:
            self._membership.enter(news.topic, reading, now, effects)

    def _on_tree(self, reading: Reading, news: TreeEntered, now: float, effects: Effects) -> None:
        topic = news.about
        if news.error or self._membership.stay_to_publish(topic, now, effects) is None:
            self._end(reading, None, news.error or reasons.NOT_SERVED, effects)
        else:
            self._membership.wait_for_way(topic, reading, now, effects)

    def _on_way(self, reading: Reading, news: WayFound, now: float, effects: Effects) -> None:
        progress = self._open[reading.command]
        feed = self._feeds.open.get(progress.topic)
        if feed is not None:
            author = feed.descriptor.author
            progress.before = len(feed.timeline)
            progress.vouched = author == self._context.id
            near = self._trees.neighbours(progress.topic)[:_SOURCES]
            progress.sources = list(dict.fromkeys((*near, author)))
        self._fetch(reading, now, effects)

    def _on_range(self, reading: Reading, news: RangeFetched, now: float, effects: Effects) -> None:
        progress = self._open[reading.command]
        feed = self._feeds.open.get(progress.topic)
        if news.complete and feed is not None:
            progress.answered += 1
            progress.vouched |= progress.asked == feed.descriptor.author
        self._fetch(reading, now, effects)

    def _fetch(self, reading: Reading, now: float, effects: Effects) -> None:
        """Get everything that the next peer has; after the last one, read the log."""
        progress = self._open[reading.command]
        feed = self._feeds.open.get(progress.topic)
        while feed is not None and progress.sources and not self._is_enough(progress, feed):
            peer = progress.asked = progress.sources.pop(0)
            if peer != self._context.id and not self._context.is_original(peer):
                start = milliseconds(max(progress.wish.since, 0.0))
                end = milliseconds(now + self._context.config.max_clock_skew)
                most = progress.wish.most and progress.before + progress.wish.most
                self._reconciliation.fetch(feed, peer, start, end, reading, now, effects, most=most)
                return
        self._read_on(reading, effects)

    def _is_wanted(self, progress: _Progress, cid: bytes) -> bool:
        """Whether an event is not there, and new enough, as far as one can tell."""
        graph = progress.graph
        return cid not in graph and graph.latest_child(cid) >= progress.wish.since

    def _is_enough(self, progress: _Progress, feed: Feed) -> bool:
        """Whether so many events were fetched that no more may be."""
        most = progress.wish.most
        return most > 0 and len(feed.timeline) - progress.before >= most

    def _read_on(self, reading: Reading, effects: Effects) -> None:
        progress = self._open[reading.command]
        feed = self._feeds.open.get(progress.topic)
        query = FromOffset(progress.offset)
        if feed is None:
            self._end(reading, None, reasons.NOT_SERVED, effects)
        elif not self._context.load(reading, feed.text, query, effects):
            self._end(reading, None, reasons.WAITING_FULL, effects)

    def _on_loaded(self, reading: Reading, loaded: Loaded, now: float, effects: Effects) -> None:
        progress = self._open[reading.command]
        feed = self._feeds.open.get(progress.topic)
        if feed is None:
            self._end(reading, None, reasons.NOT_SERVED, effects)
            return
        read = read_back(loaded.events)
        if len(read) < len(loaded.events):
            sound = {signed.cid: None for signed in read}
            progress.refused |= {each.id: None for each in loaded.events if each.id not in sound}
        if loaded.events:
            progress.offset = loaded.events[-1].offset + 1
        try:
            self._take(progress, feed, read, now)
            if not loaded.more:
                self._take(progress, feed, feed.in_memory(), now)
        except LimitError:
            self._end(reading, None, reasons.TOO_LARGE, effects)
            return
        if loaded.more:
            self._read_on(reading, effects)
        else:
            self._look_for_parent(reading, progress, now, effects)

    def _take(self, progress: _Progress, feed: Feed, found: list[SignedEvent], now: float) -> None:
        """Check events and take them up, each once."""
        for signed in found:
            cid, event = signed.cid, signed.event
            if cid in progress.events or cid in progress.refused:
                continue
            if self._events.fault(feed, signed, now) is not None:
                progress.refused[cid] = None
                continue
            progress.graph.add(cid, event.parent, dates.seconds(event.created))
            progress.events[cid] = None if progress.wish.bare else core_event(signed)
            progress.unsigned += not signed.publisher_signature

    def _look_for_parent(
        self, reading: Reading, progress: _Progress, now: float, effects: Effects
    ) -> None:
        """Look for the first parent that is not there; when none is left, finish."""
        topic, graph = progress.topic, progress.graph
        feed = self._feeds.open.get(topic)
        sources = self._trees.neighbours(topic)
        batch = self._context.config.fetch_batch
        if feed is None or self._is_enough(progress, feed):
            self._finish(reading, progress, effects)
            return
        if progress.wish.most:
            batch = min(batch, progress.wish.most)
        for cid in (*progress.wanted, *graph.missing):
            if cid not in progress.lost and self._is_wanted(progress, cid):
                if self._fetcher.seek(cid, topic, sources, reading, now, effects, ancestors=batch):
                    return
                progress.lost[cid] = None
        self._finish(reading, progress, effects)

    def _on_parent(self, reading: Reading, news: BlockFound, now: float, effects: Effects) -> None:
        progress = self._open[reading.command]
        self._events.on_found(news, now, effects)
        progress.lost[news.about] = None  # unless it is there when we have read on
        self._read_on(reading, effects)

    def _finish(self, reading: Reading, progress: _Progress, effects: Effects) -> None:
        wish, graph = progress.wish, progress.graph
        found = [progress.events[cid] for cid in graph.order()]
        ordered = [event for event in found if event is not None]
        if wish.limit:
            ordered = ordered[-wish.limit :]
        if wish.backwards:
            ordered.reverse()
        refused = len(progress.refused)
        answered, vouched = progress.answered, progress.vouched
        missing = dict.fromkeys((*progress.wanted, *graph.missing))
        named = [cid for cid in missing if self._is_wanted(progress, cid)]
        feed = self._feeds.open.get(progress.topic)
        fetched = 0 if feed is None else len(feed.timeline) - progress.before
        bounded = feed is not None and self._is_enough(progress, feed)
        history = History(
            tuple(ordered),
            tuple(named),
            progress.unsigned,
            refused,
            answered,
            vouched,
            fetched,
            bounded,
        )
        self._end(reading, history, "", effects)
