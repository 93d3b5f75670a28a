"""The events of one topic at one peer: what is known, what came last, what was agreed upon.

A feed lives exactly as long as the peer's branch in the topic's tree; what has to outlive it is in
the archive, from which a feed is filled when it opens.
"""

from functools import lru_cache
from itertools import islice

from rumormill.core.archive import Archive
from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dates
from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.descriptors import EventLinking, TopicDescriptor
from rumormill.protocols.pulsarcast.order import HoldBack
from rumormill.protocols.pulsarcast.proof import from_stored, stored
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.protocols.pulsarcast.timeline import Timeline

_RECENT = 1024
"""Events that can be handed out without reading the archive; our choice: what neighbours miss is
mostly recent."""


@lru_cache(maxsize=65536)
def date_of(created: str) -> int:
    """A normal date in milliseconds. Every hop asks for the same few, hence the memory."""
    return round(dates.seconds(created) * 1000)


def core_event(signed: SignedEvent) -> Event:
    """An event as applications and archives see it; made once."""
    event = signed.cached_event
    if event is None:
        event = signed.cached_event = stored(signed)
    return event


class Feed:
    """What a peer knows of one topic's events."""

    def __init__(self, descriptor: TopicDescriptor, config: PulsarcastConfig, now: int) -> None:
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
        self.synced = now
        """Up to which date our parent and we have agreed on what there is."""
        self.last: bytes | None = None
        """The event that was seen last."""
        self.tip: bytes | None = None
        """The event of an ordered topic that was delivered last."""
        self.hold: HoldBack | None = None
        if is_ordered(descriptor):
            self.hold = HoldBack(config.hold_limit)
        allowed = descriptor.allowed_publishers
        self.allowed = None if allowed is None else dict.fromkeys(allowed)
        self.recent: dict[bytes, SignedEvent] = {}

    def fill(self, archive: Archive, since: float | None) -> None:
        """Take in what was kept of the topic before: a peer that returns goes on where it was.

        `since` is when it first had to do with the topic. It may not have got any event by then,
        and still is to get what was published while it was away.
        """
        newest = oldest = None if since is None else round(since * 1000)
        for event in archive.scan(self.text):
            date = round((event.created or 0.0) * 1000)
            self.timeline.add(event.id, date)
            self.last = event.id
            newest = date if newest is None else max(newest, date)
            oldest = date if oldest is None else min(oldest, date)
        if newest is not None and oldest is not None:
            self.synced = min(self.synced, newest)
            self.horizon = self.cover = min(self.horizon, oldest)
            self.tip = None if self.hold is None else self.last

    def add(self, signed: SignedEvent, date: int, *, live: bool) -> bool:
        """Remember an event; false when it is known or too old to be judged."""
        cid = signed.cid
        last = self.last
        if not self.timeline.add(cid, date):
            return False
        if live or last is None or date > self.timeline.dates.get(last, 0):
            self.last = cid
        recent = self.recent
        recent[cid] = signed
        if len(recent) > _RECENT:
            for old in list(islice(recent, _RECENT // 8)):
                del recent[old]
        return True

    def find(self, cid: bytes, archive: Archive) -> SignedEvent | None:
        """An event as it was signed, from memory or from the archive."""
        signed = self.recent.get(cid)
        if signed is None and cid in self.timeline:
            kept = archive.get(self.text, cid)
            if kept is not None:
                try:
                    signed = from_stored(kept)
                except DecodeError:
                    return None
        return signed


def is_ordered(descriptor: TopicDescriptor) -> bool:
    """Whether a topic promises one chain: its author alone publishes and links to the last."""
    only: tuple[PeerId, ...] = (descriptor.author,)
    linking = descriptor.event_linking
    return descriptor.allowed_publishers == only and linking is EventLinking.LAST_SEEN
