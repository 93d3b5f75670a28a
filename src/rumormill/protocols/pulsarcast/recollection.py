"""Recollection: a topic's events as far back as they go, complete and verified.

What is asked for is first fetched from tree neighbours, in batches over all dates (`syncing`). Then
the links are walked: every event's parent must be there, and one that is not is looked for at the
neighbours and in the DHT, which leads to its own parent in turn. At the end every event is checked
once more as if a stranger had brought it: its CID against its bytes, its publisher against the
topic, its signatures. The order is that of the links, so it is the same for everybody.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from rumormill.core.effects import Effects
from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import dates, reasons
from rumormill.protocols.pulsarcast.commands import History, ReadHistory
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.dissemination import Dissemination
from rumormill.protocols.pulsarcast.feed import Feed, core_event
from rumormill.protocols.pulsarcast.history import EventGraph
from rumormill.protocols.pulsarcast.hunting import Found, Hunting
from rumormill.protocols.pulsarcast.library import Library
from rumormill.protocols.pulsarcast.membership import Membership, cid_of
from rumormill.protocols.pulsarcast.proof import from_stored
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.protocols.pulsarcast.syncing import Syncing
from rumormill.protocols.pulsarcast.timeline import milliseconds

Finished: TypeAlias = Callable[[object, str, float, Effects], None]

_SOURCES = 2
"""Neighbours that are asked for everything; our choice: the second one catches what the first
missed."""


class _Reading(msgspec.Struct):
    """A call for history under way."""

    topic: bytes
    wish: ReadHistory
    finished: Finished
    sources: list[PeerId]
    lost: dict[bytes, None]


class Histories:
    """Answers calls for history."""

    def __init__(
        self,
        context: Context,
        library: Library,
        membership: Membership,
        events: Dissemination,
        syncing: Syncing,
        hunting: Hunting,
    ) -> None:
        self._context = context
        self._library = library
        self._membership = membership
        self._events = events
        self._syncing = syncing
        self._hunting = hunting

    def read(self, wish: ReadHistory, finished: Finished, now: float, effects: Effects) -> None:
        """Get a topic's history."""
        cid = cid_of(wish.topic)

        def with_topic(found: TopicDescriptor | None, now: float, effects: Effects) -> None:
            if found is None:
                finished(None, reasons.NO_SUCH_TOPIC, now, effects)
                return
            if self._membership.publish_for_a_while(found, now, effects) is None:
                finished(None, reasons.BRANCHES_FULL, now, effects)
                return
            self._membership.when_ready(cid, in_place, now, effects)

        def in_place(_: str, now: float, effects: Effects) -> None:
            sources = list(self._membership.neighbours(cid)[:_SOURCES])
            reading = _Reading(cid, wish, finished, sources, {})
            self._fetch(reading, now, effects)

        self._library.find_patiently(cid, with_topic, now, effects)

    def _fetch(self, reading: _Reading, now: float, effects: Effects) -> None:
        """Get everything that the next neighbour has."""
        feed = self._events.feeds.get(reading.topic)
        if feed is None:
            reading.finished(None, reasons.NOT_SERVED, now, effects)
            return
        while reading.sources:
            peer = reading.sources.pop(0)
            if peer in self._context.connected and not self._context.is_original(peer):

                def done(_: bool, now: float, effects: Effects) -> None:
                    self._fetch(reading, now, effects)

                end = milliseconds(now + self._context.config.max_clock_skew)
                self._syncing.pull(feed, peer, 0, end, done, now, effects)
                return
        self._walk(reading, feed, now, effects)

    def _walk(self, reading: _Reading, feed: Feed, now: float, effects: Effects) -> None:
        """Look for the first parent that is not there; when none is left, finish."""
        kept, refused = self._kept(feed)
        for signed in kept.values():
            parent = signed.event.parent
            if parent is not None and parent not in kept and parent not in reading.lost:
                if self._look_for(reading, parent, now, effects):
                    return
                reading.lost[parent] = None
        self._finish(reading, feed, kept, refused, now, effects)

    def _look_for(self, reading: _Reading, cid: bytes, now: float, effects: Effects) -> bool:
        def done(found: Found, source: PeerId, now: float, effects: Effects) -> None:
            feed = self._events.feeds.get(reading.topic)
            if feed is None:
                reading.finished(None, reasons.NOT_SERVED, now, effects)
                return
            if not isinstance(found, SignedEvent) or not self._events.backfill(
                feed, source, found, now, effects
            ):
                reading.lost[cid] = None
            self._walk(reading, feed, now, effects)

        sources = self._membership.neighbours(reading.topic)
        batch = self._context.config.fetch_batch
        return self._hunting.seek(cid, reading.topic, sources, done, now, effects, ancestors=batch)

    def _kept(self, feed: Feed) -> tuple[dict[bytes, SignedEvent], int]:
        """Everything that is kept of a topic, and how much of it is not what its id says."""
        kept: dict[bytes, SignedEvent] = {}
        refused = 0
        for event in self._context.archive.scan(feed.text):
            try:
                kept[event.id] = from_stored(event)
            except DecodeError:
                refused += 1
        kept.update(feed.recent)
        return kept, refused

    def _finish(
        self,
        reading: _Reading,
        feed: Feed,
        kept: dict[bytes, SignedEvent],
        refused: int,
        now: float,
        effects: Effects,
    ) -> None:
        graph = EventGraph(max(len(kept), 1))
        unsigned = 0
        for cid, signed in kept.items():
            if self._events.fault(feed, signed, now) is None:
                event = signed.event
                graph.add(cid, event.parent, dates.seconds(event.created))
                unsigned += not signed.publisher_signature
            else:
                refused += 1
        ordered = [core_event(kept[cid]) for cid in graph.order()]
        limit = reading.wish.limit
        if limit:
            ordered = ordered[-limit:]
        if reading.wish.backwards:
            ordered.reverse()
        history = History(tuple(ordered), graph.missing, unsigned, refused)
        reading.finished(history, "", now, effects)
