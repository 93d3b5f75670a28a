"""What peers brought and our disk did not take: it is asked for again until it is kept.

An event counts as known, and is passed on, when it is accepted; that the disk had no room for it is
heard later. Then it is unknown again: some at a time, what was lost is looked for at neighbours and
in the DHT, soon while there is room, and less and less often while there is none. Until all of it
is here nothing is compared with neighbours: a comparison would fetch everything for nothing, time
and again. What the table has no room for is found by the comparison that follows.
"""

from dataclasses import dataclass
from itertools import islice

from rumormill.core.effects import Effects, SetTimer
from rumormill.protocols.pulsarcast.context import Context, RefetchTimer
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds
from rumormill.protocols.pulsarcast.history.missing import MissingParents


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
