"""The events of one topic at one peer: what is known, what waits, what was agreed upon.

A feed is open exactly as long as the peer stands in the topic's tree; what has to outlive that is
in the log, from which a feed is read, piece by piece, before it opens. Besides the timeline of what
is known (`timeline`) two things make it up:

- `HoldBack`: events whose parent is not in the log yet wait until it is, so that the log has every
  event behind the one that it links to.
- `Feed` itself, with the last events as they were signed, since when events concern us, and where
  we are asked to publish, which requests have become events.

When the log has changed, it is read beside the feed, into another (`Feed.next`) that gets all that
comes meanwhile as well; then the feed takes over what that one knows. What lives in memory alone,
events that wait and whom we agreed with, stays.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.bounded import remember
from rumormill.core.effects import Effects, FromOffset
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.context import Context, FeedRead
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.codec import read_back, stored
from rumormill.protocols.pulsarcast.format.descriptors import (
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.timeline import Timeline, milliseconds

_RECENT: Final = 1024
"""Events that can be handed out without reading the log; our choice: what neighbours miss is
mostly recent."""
_EARLY_BYTES: Final = 1 << 20
_EVENT_BYTES: Final = 256
"""How much may arrive while a feed is being read, and what an event takes besides its payload; our
choice: little can come, since nobody counts on us yet."""
_NEWS_DELAY: Final = 1.0
"""Seconds from what is passed on to the question whether it has arrived. Our choice: a question for
many events where there are many, and a loss is found within a second or two."""
_MOST_READING: Final = 16
"""Feeds that are read at the same time; our choice: a long one does not keep short ones waiting."""


def core_event(signed: SignedEvent) -> Event:
    """An event as applications and logs see it; made once."""
    event = signed.cached_event
    if event is None:
        event = signed.cached_event = stored(signed)
    return event


def unread_of(ids: tuple[bytes, ...], loaded: Loaded) -> tuple[bytes, ...]:
    """Of events that were asked of the log by their ids, those that one answer had no room for."""
    if not loaded.more or not loaded.events:
        return ()
    return ids[ids.index(loaded.events[-1].id) + 1 :]


class HoldBack:
    """The events of one topic that wait for an ancestor; the log gets them in order.

    Every event links to one before it, so the order is written into the events themselves. Nothing
    is held for ever: when a parent cannot be had within a given time, those behind it go on without
    it. Should it turn up after all, it is delivered late; in an ordered topic, which promises one
    chain, it is kept but not delivered, since what follows it has been.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[bytes, dict[bytes, SignedEvent]] = {}
        self._since: dict[bytes, float] = {}
        self.held: dict[bytes, bytes] = {}
        """The ids of the events that wait, and what each waits for."""
        self.overtaken: dict[bytes, None] = {}
        """Ancestors that were given up."""

    @property
    def full(self) -> bool:
        """Whether no further event can wait."""
        return len(self.held) >= self._limit

    def get(self, cid: bytes) -> SignedEvent | None:
        """An event that waits."""
        parent = self.held.get(cid)
        return None if parent is None else self._waiting[parent][cid]

    def hold(self, parent: bytes, signed: SignedEvent, now: float) -> None:
        """Let an event wait for its parent."""
        self._waiting.setdefault(parent, {})[signed.cid] = signed
        self._since.setdefault(parent, now)
        self.held[signed.cid] = parent

    def release(self, cid: bytes) -> list[SignedEvent]:
        """An event has been delivered: return what may follow it, in order."""
        ready: list[SignedEvent] = []
        settled = [cid]
        for done in settled:
            self._since.pop(done, None)
            for signed in self._waiting.pop(done, {}).values():
                del self.held[signed.cid]
                ready.append(signed)
                settled.append(signed.cid)
        return ready

    def missing(self, before: float) -> list[bytes]:
        """The ancestors that have been missing since before a time."""
        return [
            parent
            for parent, since in self._since.items()
            if since <= before and parent not in self.held
        ]

    def give_up(self, before: float) -> list[bytes]:
        """Overtake the ancestors that have been missing since before a time; return their ids."""
        missing = self.missing(before)
        for parent in missing:
            remember(self.overtaken, parent, None, self._limit)
        return missing


class Feed:
    """What a peer knows of one topic's events.

    `since` is when it first had to do with the topic, if that is known. It may not have got any
    event by then, and still is to get what was published while it was away. A negative date means
    that the application wants all events that there ever were.
    """

    lost_from: int | None = None
    """The date from which on the log lacks what it once had, as gaps in its offsets tell."""
    _next_offset = _date_before = 0
    """Where the log's next event stands if none is lost, and the date of the one before it."""

    def __init__(
        self,
        descriptor: TopicDescriptor,
        config: PulsarcastConfig,
        own: PeerId,
        now: int,
        since: float | None,
    ) -> None:
        self.descriptor = descriptor
        self.topic = descriptor.cid
        self.text: Topic = cids.text(descriptor.cid)
        self.timeline = Timeline(config.timeline_limit)
        self.subscribed = False
        self.sees_own = False
        """Publish-only: the application is given what it publishes itself, and nothing else."""
        self.horizon = now
        """From which date on events concern the application: what is older is kept, but not
        delivered, when it comes by way of back-fill."""
        self.cover = now
        """From which date on we answer for completeness towards our children."""
        self.passed_on = now
        """From which date on what we are given late is sent on: what is older is for those who ask
        for it, others would take it for news."""
        self.synced = now
        """Up to which date our parent and we have agreed on what there is."""
        self.last: bytes | None = None
        """The event that was seen last: of those in the log, not of those that wait."""
        self.appended: bytes | None = None
        """The event of ours that came after it and is on its way to the disk."""
        self.tip: bytes | None = None
        """The event of an ordered topic that was delivered last."""
        self.ordered = is_ordered(descriptor)
        self.hold = HoldBack(config.hold_limit)
        self._config = config
        allowed = descriptor.allowed_publishers
        self.allowed = None if allowed is None else dict.fromkeys(allowed)
        self._granted: dict[bytes, bytes] = {}
        """Requests to publish that became events, and which: so one that is repeated, be it to a
        publisher's next life or to another publisher, is answered and not granted again."""
        asked = descriptor.request_to_publish is not None and own in (allowed or ())
        self._most_granted = config.max_requests if asked else 0
        self._own = own
        self.recent: dict[bytes, SignedEvent] = {}
        self.lost: dict[bytes, None] = {}
        """What our disk did not take, and is not being looked for."""
        self.lost_again = False
        """Whether it has lost something since it was last looked for."""
        self.retries = 0
        """How often in a row it has, while there is something to be looked for."""
        self.early: list[tuple[PeerId, SignedEvent]] = []
        """What arrived before the feed was open, and how much more of it may wait."""
        self.early_room = _EARLY_BYTES
        self.catching_up = False
        """Whether older events are wanted, and our parent and we have not agreed on them yet."""
        self._whole = since is not None and since < 0
        self._newest = self._oldest = None if since is None or self._whole else round(since * 1000)
        self._first_offset: int | None = None
        self.reading, self._made = 0, (now, since)
        """The number of the read that fills it, and since when it is there."""
        self.next: Feed | None = None
        """The same feed as the log has it now, while that is being read."""

    def anew(self) -> "Feed":
        """The same feed as it was before anything was read."""
        feed = Feed(self.descriptor, self._config, self._own, *self._made)
        feed.early, feed.early_room = self.early, self.early_room
        return feed

    def take(self, events: Sequence[Event]) -> None:
        """Take in what was kept of the topic before: a peer that returns goes on where it was."""
        newest, oldest = self._newest, self._oldest
        if events and self._first_offset is None:
            self._first_offset = self._next_offset = events[0].offset
        for event in events:
            date = round((event.created or 0.0) * 1000)
            if event.offset > self._next_offset:
                self.lost_from = min(self.lost_from or date, self._date_before)
            self._next_offset, self._date_before = event.offset + 1, date
            self.timeline.add(event.id, date)
            self.last = event.id
            newest = date if newest is None else max(newest, date)
            oldest = date if oldest is None else min(oldest, date)
            if self._most_granted and event.author != self._own:
                for signed in read_back((event,)):
                    self._note_request(signed)
        self._newest, self._oldest = newest, oldest

    def open(self) -> None:
        """All that was kept has been taken in."""
        if self._newest is not None and self._oldest is not None:
            self.synced = min(self.synced, self._newest, self.lost_from or self._newest)
            self._reach_back(self._newest, self._oldest)
            self.tip = self.last if self.ordered else None
        if self._whole:
            self.want_all()

    def _reach_back(self, newest: int, oldest: int) -> None:
        """What the log has concerns us, and those below us."""
        self.horizon, self.cover = min(self.horizon, oldest), min(self.cover, oldest)
        self.passed_on = min(self.passed_on, newest if self._whole else oldest)

    def take_over(self, kept_from: int, now: float) -> int | None:
        """Know what the log has now, which has been read into `next`.

        Return the first date of which that is not what we knew, as far as it concerns us: from
        there on all is to be compared. What is dated before `kept_from` retention has deleted: it
        is still known, so that nobody is asked for it.
        """
        fresh, before = self.next, self.timeline
        assert fresh is not None
        timeline = fresh.timeline
        for cid, date in before.dates.items():
            if date < kept_from or cid in self.hold.held:
                timeline.add(cid, date)
        if fresh._newest is not None and fresh._oldest is not None:
            self._reach_back(fresh._newest, fresh._oldest)
        since = max(self.cover, before.start, timeline.start)
        changed = timeline.first_difference(before, since)
        self.timeline, self.next = timeline, None
        timeline.late = before.late
        if changed is not None:
            self.synced = min(self.synced, changed)
            timeline.note_late(changed, now)
        self._granted, self._first_offset = fresh._granted, fresh._first_offset
        self.recent = {cid: each for cid, each in self.recent.items() if cid in timeline.dates}
        if self.last not in timeline.dates:
            self.last = fresh.last
        if self.ordered and self.tip not in timeline.dates:
            self.tip = fresh.last
        return changed

    def want_all(self) -> None:
        """The application wants all that there ever was, but not again what the log has deleted."""
        self.horizon = self.cover = 0
        if not self._first_offset:
            self.synced, self.catching_up = 0, True

    def agree(self, end: int) -> None:
        """Our parent and we have the same events up to a date."""
        self.synced = max(self.synced, end)

    @property
    def patience(self) -> float:
        """How long events wait for an ancestor."""
        return self._config.hold_timeout if self.ordered else self._config.link_timeout

    @property
    def settle(self) -> float:
        """How old an event must be to be everywhere, for all we know. In an ordered topic events
        only go down: who got a comparison from above got before what it is about."""
        return 0.0 if self.ordered else self._config.sync_settle

    @property
    def news_delay(self) -> float:
        """Seconds until neighbours are asked whether what was passed on has arrived."""
        return _NEWS_DELAY + self.settle

    def late(self, now: float) -> int:
        """The date of the oldest event that came not long ago, and that neighbours with whom we
        agreed before may not have."""
        late, config = self.timeline.late, self._config
        oldest = now - config.refresh_interval * config.missed_refreshes
        while late and next(iter(late.values())) < oldest:
            del late[next(iter(late))]
        return min(late, default=milliseconds(now))

    def add(self, signed: SignedEvent, date: int, now: float) -> None:
        """Remember an event. One that comes late and is passed on is compared with the parent once
        more, and for a while with all children: what was agreed upon without it no longer holds."""
        cid = signed.cid
        if self.next is not None:
            self.next.add(signed, date, now)
        if not self.timeline.add(cid, date):
            return
        if self.passed_on <= date < self.synced:
            self.synced = date
            self.timeline.note_late(date, now)
        if self._most_granted and signed.event.author != self._own:
            self._note_request(signed)
        recent = self.recent
        recent[cid] = signed
        if len(recent) > _RECENT:
            for old in list(islice(recent, _RECENT // 8)):
                del recent[old]

    def see(self, cid: bytes, *, live: bool) -> None:
        """An event that is remembered goes into the log: what we publish next may follow it."""
        dates, last = self.timeline.dates, self.last
        if live or last is None or dates.get(cid, 0) > dates.get(last, 0):
            self.last = cid

    def is_settled(self, cid: bytes) -> bool:
        """Whether an event is known and waits for nothing."""
        return cid in self.timeline.dates and cid not in self.hold.held

    def lose(self, cid: bytes) -> None:
        """An event could not be stored: it is not known, and there is something to be compared."""
        self.synced = min(self.synced, self.timeline.dates.get(cid, self.synced))
        self.timeline.remove(cid)
        if self.next is not None:
            self.next.timeline.remove(cid)
        self.recent.pop(cid, None)
        self.lost[cid] = None
        self.lost_again = True

    def _note_request(self, signed: SignedEvent) -> None:
        """Remember from which request an event was made, if from any."""
        event = signed.event
        if event.author != event.publisher:
            self._granted[self._request_of(event)] = signed.cid
            if len(self._granted) > self._most_granted:
                del self._granted[next(iter(self._granted))]

    def _request_of(self, event: EventDescriptor) -> bytes:
        """The name of the request that an event was made from, and of a request itself."""
        custom = self.descriptor.event_linking is EventLinking.CUSTOM
        return event.request(event.parent if custom else None).cid

    def granted(self, request: SignedEvent) -> bytes | None:
        """The event that a request to publish has become."""
        return self._granted.get(self._request_of(request.event)) if self._granted else None

    def in_memory(self) -> list[SignedEvent]:
        """The last events, and those that wait for their turn and are not in the log yet."""
        held = [self.hold.get(cid) for cid in self.hold.held]
        return [*self.recent.values(), *(signed for signed in held if signed is not None)]

    def at_hand(self, cid: bytes) -> SignedEvent | None:
        """An event as it was signed, if it need not be read from the log."""
        return self.recent.get(cid) or self.hold.get(cid)


def is_ordered(descriptor: TopicDescriptor) -> bool:
    """Whether a topic promises one chain: its author alone publishes and links to the last."""
    only: tuple[PeerId, ...] = (descriptor.author,)
    linking = descriptor.event_linking
    return descriptor.allowed_publishers == only and linking is EventLinking.LAST_SEEN


class FeedReading(msgspec.Struct, frozen=True):
    """A feed is being read from the log."""

    topic: bytes
    number: int


class Feeds:
    """The feeds of the topics in whose trees we stand, and those that are about to open."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.open: dict[bytes, Feed] = {}
        self.opening: dict[bytes, Feed] = {}
        """What is being read: the feeds that are about to open, and the next of open ones."""
        self._reads = 0
        context.operations.steps[FeedReading, Loaded] = self._on_loaded

    def read(
        self, descriptor: TopicDescriptor, since: float | None, now: float, effects: Effects
    ) -> None:
        """Read what the log has of a topic; `FeedRead` follows."""
        config, own = self._context.config, self._context.id
        self._begin(Feed(descriptor, config, own, milliseconds(now), since), effects)

    def read_anew(self, effects: Effects) -> None:
        """The log has changed: read again what is open, and what was being read."""
        feeds = {**self.opening, **self.open}
        self.opening.clear()
        for topic, feed in feeds.items():
            fresh = feed.anew()
            if topic in self.open:
                feed.next = fresh
            self._begin(fresh, effects)

    def _begin(self, feed: Feed, effects: Effects) -> None:
        self._reads += 1
        feed.reading = self._reads
        self.opening[feed.topic] = feed
        if len(self.opening) <= _MOST_READING:
            self._load(feed, 0, effects)

    def _load(self, feed: Feed, offset: int, effects: Effects) -> None:
        reading = FeedReading(feed.topic, feed.reading)
        self._context.load(reading, feed.text, FromOffset(offset), effects)

    def _on_loaded(
        self, reading: FeedReading, loaded: Loaded, now: float, effects: Effects
    ) -> None:
        feed = self.opening.get(reading.topic)
        if feed is None or feed.reading != reading.number:
            return  # of the log as it was, or of a tree that we have left
        feed.take(loaded.events)
        if loaded.more and loaded.events:
            self._load(feed, loaded.events[-1].offset + 1, effects)
            return
        self._end_reading(reading.topic, effects)
        if reading.topic not in self.open:
            feed.open()
            self.open[reading.topic] = feed
        self._context.operations.tell(FeedRead(reading.topic), now, effects)

    def _end_reading(self, topic: bytes, effects: Effects) -> None:
        """A feed need not be read any more: the next one may."""
        place = list(self.opening).index(topic)
        del self.opening[topic]
        if place < _MOST_READING:
            for following in islice(self.opening.values(), _MOST_READING - 1, _MOST_READING):
                self._load(following, 0, effects)

    def close(self, topic: bytes, effects: Effects) -> Feed | None:
        """We leave a tree: what we knew of the topic is in the log."""
        if topic in self.opening:
            self._end_reading(topic, effects)
        return self.open.pop(topic, None)

    def take_early(self, peer: PeerId, signed: SignedEvent, effects: Effects) -> None:
        """An event came for a topic whose feed is not open: it waits for that, or is refused."""
        feed = self.opening.get(signed.event.topic)
        if feed is None:
            effects.append(trace.Refuse(peer, reasons.NOT_SERVED))
        elif feed.early_room <= 0:
            effects.append(trace.Refuse(peer, reasons.WAITING_FULL, feed.text))
        else:
            feed.early.append((peer, signed))
            feed.early_room -= _EVENT_BYTES + len(signed.event.payload)

    def clear(self) -> None:
        """Forget all feeds: the log has what counts."""
        self.open.clear()
        self.opening.clear()
