"""Events that we publish, from their signature to the tree: nobody hears of one that a crash could
take back.

An event is linked, signed and appended to the log. Only when the log says that it is stored does
it go into the tree, and after that, in a copy, into the DHT; whether that works changes nothing for
the subscribers. When it cannot be stored it has never been: nothing here remembers it.

While some wait for the disk others may follow, each linked to the one before it. The log stores an
event only with all that were appended before it, so when one of them is lost those behind it are
lost as well, and no event links to one that does not exist. The next one is then linked to the last
that does.
"""

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Append, Effects
from rumormill.core.event import Event
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.codec import encode_signatures
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.descriptors import EventLinking
from rumormill.protocols.pulsarcast.history.block_fetcher import BlockFetcher
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds, core_event
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.protocols.pulsarcast.tree.dissemination import Dissemination


class OwnEvent(msgspec.Struct, frozen=True):
    """An event of ours on its way to the disk, and whether the application is given it."""

    signed: SignedEvent
    given: bool

    @property
    def event(self) -> Event:
        """The event as the log has it."""
        return core_event(self.signed)


class OwnEvents:
    """Has events stored, and spreads those that are."""

    def __init__(
        self, context: Context, feeds: Feeds, events: Dissemination, fetcher: BlockFetcher
    ) -> None:
        self._context = context
        self._feeds = feeds
        self._events = events
        self._fetcher = fetcher

    def parent_of_next(self, feed: Feed, chosen: bytes | None) -> bytes | None:
        """Which event the next one of ours follows; `chosen` is its author's choice."""
        if feed.descriptor.event_linking is EventLinking.LAST_SEEN:
            return feed.appended or feed.last
        return chosen

    def append(self, feed: Feed, signed: SignedEvent, effects: Effects) -> OwnEvent:
        """Have an event stored: `EventStored` follows, for an operation that holds the result."""
        given = feed.subscribed or (feed.sees_own and signed.event.author == self._context.id)
        feed.appended = signed.cid
        effects.append(Append(core_event(signed), given, signed.cid))
        return OwnEvent(signed, given)

    def spread(self, own: OwnEvent, now: float, effects: Effects) -> int:
        """An event is stored: put it into the tree and the DHT; return over how many edges."""
        signed = own.signed
        feed = self._feeds.open.get(signed.event.topic)
        reached = 0
        if feed is not None:
            if feed.appended == signed.cid:
                feed.appended = None
            reached = self._events.publish(feed, signed, own.given, now, effects)
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

    def forget(self, own: OwnEvent) -> None:
        """An event is lost, and with it whatever was linked to it."""
        feed = self._feeds.open.get(own.signed.event.topic)
        if feed is not None:
            feed.appended = None
