"""After the log has changed: it is read again beside what we know, and then is what we know.

A log changes otherwise than by our appends when it is repaired, restored or added to. Its topics
are read again in pieces, as before their feeds were opened; trees, edges and what waits stay as
they are, and what arrives meanwhile is taken as always. Only what is to be linked to the last
event, or depends on what was granted, waits. Where the log has other events than we knew, those
above and below us are compared with from there on: so what is gone comes again, and what has come
goes on. What retention has deleted is not gone: it stays known.
"""

from dataclasses import dataclass

import msgspec

from rumormill.core.effects import Effects
from rumormill.core.history import Histories, HistoryQuery
from rumormill.core.ids import Topic
from rumormill.core.inputs import Loaded
from rumormill.protocols.pulsarcast.context import Context, FeedRead, FeedRenewed
from rumormill.protocols.pulsarcast.history.exchange import Reconciliation
from rumormill.protocols.pulsarcast.history.feed import Feed, Feeds


class KeptFrom(HistoryQuery, frozen=True):
    """From which date on, in microseconds, retention has deleted nothing of a topic."""

    topic: Topic

    def work_out(self, histories: Histories) -> int:
        """Ask the topic's history."""
        history = histories.history(self.topic)
        return 0 if history is None else history.window.keep_from


class Renewal(msgspec.Struct, frozen=True):
    """A feed is being read again; the number is that of the read."""

    topic: bytes
    number: int


@dataclass(eq=False)
class Rereading:
    """Reads feeds again."""

    _context: Context
    _feeds: Feeds
    _reconciliation: Reconciliation

    def __post_init__(self) -> None:
        self._context.operations.steps |= {
            (Renewal, FeedRead): self._on_read,
            (Renewal, Loaded): self._on_kept_from,
        }

    def begin(self, effects: Effects) -> None:
        """The log has changed."""
        self._feeds.read_anew(effects)
        for topic, feed in self._feeds.open.items():
            assert feed.next is not None
            renewal = Renewal(topic, feed.next.reading)
            self._context.operations.hold(FeedRead, topic, renewal)

    def _feed_of(self, renewal: Renewal) -> Feed | None:
        """The feed that is renewed, unless the log has changed once more, or we have left."""
        feed = self._feeds.open.get(renewal.topic)
        if feed is None or feed.next is None or feed.next.reading != renewal.number:
            return None
        return feed

    def _on_read(self, renewal: Renewal, _: FeedRead, now: float, effects: Effects) -> None:
        feed = self._feed_of(renewal)
        if feed is not None and not self._context.load(
            renewal, feed.text, KeptFrom(feed.text), effects
        ):
            self._settle(feed, 0, now, effects)

    def _on_kept_from(self, renewal: Renewal, loaded: Loaded, now: float, effects: Effects) -> None:
        feed = self._feed_of(renewal)
        if feed is not None:
            date = loaded.answer if isinstance(loaded.answer, int) else 0
            self._settle(feed, date, now, effects)

    def _settle(self, feed: Feed, kept_from: int, now: float, effects: Effects) -> None:
        changed = feed.take_over(-(-kept_from // 1000), now)
        self._reconciliation.end(feed.topic, now, effects)  # it was about the log as it was
        if changed is not None:
            self._reconciliation.compare_from(feed, changed, now, effects)
        self._context.operations.tell(FeedRenewed(feed.topic), now, effects)
