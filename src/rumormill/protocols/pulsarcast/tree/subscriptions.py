"""What the application subscribes to, and in which topics it is about to publish.

Subscribing needs the topic's descriptor, because it names the author towards whom the tree grows;
then we enter the tree (`membership`). The meta topic, in which new versions of a topic are
announced, is subscribed to and left along with it unless told otherwise.
"""

from dataclasses import dataclass

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Effects, Outcome, SetTimer
from rumormill.core.errors import LimitError
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import Context
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.history.feed import Feeds
from rumormill.protocols.pulsarcast.operations import (
    SubscribeTimer,
    TopicFound,
    TreeEntered,
    WayFound,
)
from rumormill.protocols.pulsarcast.tree.known_topics import KnownTopics
from rumormill.protocols.pulsarcast.tree.membership import TreeMembership
from rumormill.protocols.pulsarcast.tree.trees import Trees


class Subscription(msgspec.Struct, frozen=True):
    """The application subscribed, and we are not in the tree yet."""

    topic: bytes
    since: float
    """When it did: an earlier wish that was taken back is another one."""
    meta: bool
    attempts: int = 0


class Arrival(msgspec.Struct, frozen=True):
    """A command waits until there is a way to the root."""

    command: int


class StandBy(msgspec.Struct, frozen=True):
    """The application wants to publish in a topic soon."""


@dataclass(eq=False)
class Subscriptions:
    """The application's wishes."""

    _context: Context
    _trees: Trees
    _feeds: Feeds
    _topics: KnownTopics
    _membership: TreeMembership

    def __post_init__(self) -> None:
        self._operations = self._context.operations
        self._since = self._membership.subscriptions
        self._publish_only = self._membership.publish_only
        self._context.operations.steps |= {
            (Subscription, TopicFound): self._on_topic,
            (Subscription, SubscribeTimer): self._on_subscribe_timer,
            (Subscription, TreeEntered): self._on_subscribed,
            (Arrival, WayFound): self._on_arrival,
            (StandBy, TopicFound): self._on_wanted_topic,
            (StandBy, TreeEntered): self._on_standing_by,
        }

    def subscribe(self, cid: bytes, now: float, effects: Effects, *, meta: bool = True) -> None:
        """Subscribe to a topic."""
        if cid in self._since:
            return
        if len(self._since) >= self._context.config.max_topics:
            raise LimitError("no further subscription fits (max_topics)")
        self._publish_only.pop(cid, None)
        self._since[cid] = now
        effects.append(trace.Join(cids.text(cid)))
        self._topics.find(cid, Subscription(cid, now, meta), now, effects)

    def _on_topic(self, wish: Subscription, news: TopicFound, now: float, effects: Effects) -> None:
        if self._since.get(wish.topic) != wish.since:
            return
        if news.topic is None:
            self._look_again(wish, now, effects)
        else:
            self._membership.enter(news.topic, wish, now, effects)

    def _look_again(self, wish: Subscription, now: float, effects: Effects) -> None:
        """A topic could not be found: it may be so new that the DHT does not have it yet."""
        cid, attempts = wish.topic, wish.attempts
        again = Subscription(cid, wish.since, wish.meta, attempts + 1)
        if attempts < self._context.config.subscribe_retries and self._operations.wait(
            SubscribeTimer, cid, again
        ):
            wait = self._context.config.subscribe_retry_delay * 2**attempts
            effects.append(SetTimer(SubscribeTimer(cid), now + wait))
        else:
            self._roll_back(cid, reasons.NO_SUCH_TOPIC, now, effects)

    def _on_subscribe_timer(
        self, wish: Subscription, _: SubscribeTimer, now: float, effects: Effects
    ) -> None:
        if self._since.get(wish.topic) == wish.since:
            self._topics.find(wish.topic, wish, now, effects)

    def _roll_back(self, cid: bytes, reason: str, now: float, effects: Effects) -> None:
        """A subscription cannot be: forget it, so that a later attempt is a new one."""
        del self._since[cid]
        effects.append(trace.Leave(cids.text(cid)))
        self._operations.tell(WayFound(cid, reason), now, effects)

    def _on_subscribed(
        self, wish: Subscription, news: TreeEntered, now: float, effects: Effects
    ) -> None:
        cid = wish.topic
        if self._since.get(cid) != wish.since:
            return
        if news.error:
            self._roll_back(cid, news.error, now, effects)
            return
        feed, branch = self._feeds.open[cid], self._trees.branches[cid]
        self._topics.keep(feed.descriptor, now, effects)
        self._membership.want(branch, feed)
        self._membership.on_wish(branch, now, effects)
        meta = feed.descriptor.meta
        if not wish.meta or meta is None:
            return
        try:
            self.subscribe(meta, now, effects, meta=False)
        except LimitError:
            effects.append(trace.Refuse(self._context.id, reasons.BRANCHES_FULL, cids.text(meta)))

    def announce_arrival(self, command: int, cid: bytes, now: float, effects: Effects) -> None:
        """Answer a command when there is a way to a topic's root."""
        self._membership.wait_for_way(cid, Arrival(command), now, effects)

    def _on_arrival(self, arrival: Arrival, news: WayFound, now: float, effects: Effects) -> None:
        result = None if news.error else self._topics.get(news.about)
        effects.append(Outcome(arrival.command, result, reasons.sentence(news.error)))

    def unsubscribe(self, cid: bytes, now: float, effects: Effects, *, meta: bool = True) -> None:
        """End a subscription."""
        self._publish_only.pop(cid, None)
        if self._since.pop(cid, None) is None:
            return
        effects.append(trace.Leave(cids.text(cid)))
        self._operations.tell(WayFound(cid, reasons.UNSUBSCRIBED), now, effects)
        feed, branch = self._feeds.open.get(cid), self._trees.branches.get(cid)
        if feed is not None and branch is not None:
            feed.subscribed = False
            branch.wanted = False
            self._membership.step_out(branch, now, effects)
        descriptor = self._topics.get(cid)
        if descriptor is None or descriptor.meta is None or not meta:
            return
        # Another version of the same topic needs its meta topic.
        if not any(version.cid in self._since for version in self._topics.versions(descriptor)):
            self.unsubscribe(descriptor.meta, now, effects, meta=False)

    def stand_by(self, cid: bytes, now: float, effects: Effects) -> None:
        """Be ready to publish in a topic, if there is such a one and it fits."""
        self._publish_only[cid] = None
        self._topics.find(cid, StandBy(), now, effects, patiently=True)

    def _on_wanted_topic(
        self, wish: StandBy, news: TopicFound, now: float, effects: Effects
    ) -> None:
        if news.topic is not None and news.about in self._publish_only:
            self._membership.enter(news.topic, wish, now, effects)

    def _on_standing_by(self, _: StandBy, news: TreeEntered, now: float, effects: Effects) -> None:
        if not news.error and news.about in self._publish_only:
            self._membership.stay_to_publish(news.about, now, effects)

    def resume(self, now: float, effects: Effects) -> None:
        """We come back with our state: everything but the application's wishes is gone."""
        meta = self._context.config.subscribe_to_meta
        for cid, since in list(self._since.items()):
            self._topics.find(cid, Subscription(cid, since, meta), now, effects)
        for cid in list(self._publish_only):
            self.stand_by(cid, now, effects)
