"""Gaps: a parent link to an event that is not there means that we missed it (the thesis's NACK).

On a quiet tree it cannot happen: whoever linked to an event had it before, and along the edges of a
tree it reaches everybody before the event that links to it. After a lost edge it does. The missing
event is looked for at the neighbour that sent its child, then at the other neighbours, then in the
DHT. In an ordered topic delivery waits for it, so it is asked for at once, and with it the chain
before it; elsewhere it gets a moment to arrive by itself.

The other side of it is here too: neighbours' questions for events are answered from memory and
archive, within bounds.
"""

from rumormill.core.effects import Effects, SetTimer
from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import GRAVE, Context
from rumormill.protocols.pulsarcast.dissemination import Dissemination
from rumormill.protocols.pulsarcast.feed import Feed
from rumormill.protocols.pulsarcast.forest import Forest
from rumormill.protocols.pulsarcast.hunting import Found, Hunting
from rumormill.protocols.pulsarcast.rpc import Events, Fetch, addition, encode_event
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.protocols.pulsarcast.timers import GapTimer

_ANSWER_WINDOW = 60.0
"""Seconds for which a peer that was asked may send events; our choice: a long answer takes many
messages."""


class Gaps:
    """Finds what is missing, and gives others what they miss."""

    def __init__(
        self, context: Context, forest: Forest, events: Dissemination, hunting: Hunting
    ) -> None:
        self._context = context
        self._forest = forest
        self._events = events
        self._hunting = hunting
        self._noted: dict[bytes, PeerId] = {}
        self._asked: dict[tuple[bytes, PeerId], float] = {}

    def reset(self) -> None:
        """Forget what was waited for; comparing with the parent will find it."""
        self._noted.clear()
        self._asked.clear()

    # What we miss.

    def note(self, feed: Feed, cid: bytes, peer: PeerId, now: float, effects: Effects) -> None:
        """An event that `peer` sent links to one that is not there."""
        if cid in self._hunting or cid in self._noted:
            return
        if feed.hold is not None or peer == self._context.id:
            self.fill(feed, cid, peer, now, effects)
        elif len(self._noted) < self._context.config.max_fetches:
            self._noted[cid] = peer
            timer = GapTimer(feed.topic, cid)
            effects.append(SetTimer(timer, now + self._context.config.gap_delay))

    def on_timer(self, timer: GapTimer, now: float, effects: Effects) -> None:
        """It had time enough to arrive by itself."""
        peer = self._noted.pop(timer.cid, None)
        feed = self._events.feeds.get(timer.topic)
        if peer is not None and feed is not None and timer.cid not in feed.timeline:
            self.fill(feed, timer.cid, peer, now, effects)

    def fill(self, feed: Feed, cid: bytes, peer: PeerId, now: float, effects: Effects) -> None:
        """Look for a missing event, at its child's sender first."""
        branch = self._forest.branches.get(feed.topic)
        sources = [peer, *(() if branch is None else branch.neighbours)]
        topic = feed.topic

        def done(found: Found, source: PeerId, now: float, effects: Effects) -> None:
            current = self._events.feeds.get(topic)
            if current is not None and isinstance(found, SignedEvent):
                self._events.backfill(current, source, found, now, effects)

        for each in sources:
            self.expect(topic, each, now)
        # A chain comes whole; elsewhere most of what lies before the event is here already.
        batch = self._context.config.fetch_batch if feed.hold is not None else 0
        self._hunting.seek(cid, topic, sources, done, now, effects, ancestors=batch, known=feed.tip)

    def expect(self, topic: bytes, peer: PeerId, now: float) -> None:
        """A peer is about to be asked for events of a topic."""
        if len(self._asked) >= self._context.config.max_fetches:
            self._asked = {key: until for key, until in self._asked.items() if until > now}
        self._asked[topic, peer] = now + _ANSWER_WINDOW

    def on_events(self, peer: PeerId, answer: Events, now: float, effects: Effects) -> None:
        """A peer sent events that we missed."""
        topic = answer.topic
        if self._asked.get((topic, peer), 0.0) <= now:
            self._context.refuse(peer, reasons.NOT_ASKED_FOR, topic, 0.0, now, effects)
            return
        for signed in answer.events:
            if signed.event.topic != topic:
                self._context.refuse(peer, reasons.WRONG_CID, topic, GRAVE, now, effects)
            elif not self._hunting.found(signed.cid, signed, peer, now, effects):
                feed = self._events.feeds.get(topic)
                if feed is not None:
                    self._events.backfill(feed, peer, signed, now, effects)
        self._hunting.on_missing(peer, answer, now, effects)

    # What others miss.

    def on_fetch(self, peer: PeerId, question: Fetch, now: float, effects: Effects) -> None:
        """A peer asks for events."""
        found: dict[bytes, SignedEvent] = {}
        missing: list[bytes] = []
        feed = self._events.feeds.get(question.topic)
        left = self._context.config.fetch_batch
        room = self._context.config.limits.rpc_bytes // 2
        for cid in question.wanted:
            if cid == question.topic:
                continue
            chain: list[SignedEvent] = []
            wanted: bytes | None = cid
            while wanted not in (None, question.known) and left > 0 and room > 0:
                assert wanted is not None
                if wanted in found:
                    break
                signed = None if feed is None else feed.find(wanted, self._context.archive)
                if signed is None:
                    break
                chain.append(signed)
                left -= 1
                room -= len(encode_event(signed))
                wanted = signed.event.parent if len(chain) <= question.ancestors else None
            if (
                not chain
                and cid not in found
                and not self._ask_above(peer, question, cid, now, effects)
            ):
                missing.append(cid)
            found.update((signed.cid, signed) for signed in reversed(chain))
        if found or missing:
            answer = Events(question.topic, tuple(found.values()), tuple(missing))
            self._context.send(peer, addition(answer), effects)

    def _ask_above(
        self, peer: PeerId, question: Fetch, cid: bytes, now: float, effects: Effects
    ) -> bool:
        """A child misses what we miss too: get it from our own parent, and answer then.

        Whatever came is judged before it is passed on: the child holds us to account for it.
        """
        topic = question.topic
        branch = self._forest.branches.get(topic)
        if branch is None or peer not in branch.children or branch.parent is None:
            return False

        def done(found: Found, _: PeerId, now: float, effects: Effects) -> None:
            feed = self._events.feeds.get(topic)
            answer = Events(topic, missing=(cid,))
            if (
                feed is not None
                and isinstance(found, SignedEvent)
                and self._events.fault(feed, found, now) is None
            ):
                answer = Events(topic, (found,))
            self._context.send(peer, addition(answer), effects)

        self.expect(topic, branch.parent, now)
        sources = (branch.parent,)
        return self._hunting.seek(cid, topic, sources, done, now, effects, everywhere=False)
