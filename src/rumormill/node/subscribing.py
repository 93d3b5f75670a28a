"""How a node subscribes: to topics and patterns, for a while or under a name.

The part of `Node` that makes subscriptions, and ends them.
"""

import functools
from typing import Literal, TypedDict

from rumormill.core.api import GroupView, Reach
from rumormill.core.errors import LocalError
from rumormill.core.ids import Topic as TopicName
from rumormill.core.inputs import Unsubscribe
from rumormill.core.patterns import is_pattern
from rumormill.core.where import Filter
from rumormill.log.model import TopicExtent, check_topic
from rumormill.node import synced, topics
from rumormill.node.groups import NamedSubscription
from rumormill.node.kin import Kin, join_kin
from rumormill.node.life import NodeLife
from rumormill.node.subscription import NAMELESS, Overflow, Subscription


class SubscribeOptions(TypedDict, total=False):
    """What `Node.subscribe` takes besides the topic, for those who pass it on."""

    name: str | None
    auto_ack: bool
    ack_within: float | None
    history: Literal["missed", "all", "none"] | None
    since: float | None
    since_offset: int | None
    buffer: int
    overflow: Overflow | str
    follow: bool
    where: str | None
    recursive: bool
    tell_versions: bool
    follow_versions: bool
    subscribe_to_meta: bool | None
    unsubscribe_from_meta: bool | None


class NodeSubscriptions(NodeLife):
    """A node and those who read from it."""

    async def subscribe(
        self,
        topic: TopicName,
        *,
        name: str | None = None,
        auto_ack: bool = True,
        ack_within: float | None = None,
        history: Literal["missed", "all", "none"] | None = None,
        since: float | None = None,
        since_offset: int | None = None,
        buffer: int = 1024,
        overflow: Overflow | str = Overflow.CATCH_UP,
        follow: bool = True,
        where: str | None = None,
        recursive: bool = False,
        tell_versions: bool = False,
        follow_versions: bool = False,
        subscribe_to_meta: bool | None = None,
        unsubscribe_from_meta: bool | None = None,
    ) -> Subscription:
        """Subscribe to a topic: an async iterator of events, from now on.

        When this returns, a later life of this node, also of one that was killed, knows of it.
        Events that this node has missed since it first subscribed to the topic, because it was
        away or they were lost, are fetched from other nodes and come as well (`Event.via` is
        "sync"). `history="all"` fetches whatever they keep, `"none"` nothing, and `since` what was
        published from a time on (seconds since 1970).

        With a `name`, the position is remembered: the next subscription of that name, also in a
        later life, goes on behind what was acknowledged, and several at a time share the events.
        Asking for the next event acknowledges those before; without `auto_ack` only `ack` does.
        What is not acknowledged `ack_within` so many seconds is given to the next who asks, as it
        is when this subscription is closed; None waits for ever. Late acknowledgements count too.

        With `since_offset`, it is given this node's log from there on, below 0 from the end, what
        is fetched late included; 0 means `history="all"` unless something else is said. A name
        begins there once. `buffer` and `overflow` say how many events may wait and what happens
        when more come. Closing the subscription does not leave the topic: `unsubscribe` does, or
        with `follow=False` the end of the last subscription, unless it is followed.

        `where` is a filter on what events say, such as `data.celsius > 30`: others are not handed
        out (see `core.where`). A pattern of names, `news/*` or `news/#`, subscribes to every such
        topic that this node knows, and to others when they become known (see `node.patterns`).

        `recursive` and what follows are for topics that were created: see `core.api.Reach`.
        """
        self._check_running()
        check_topic(topic, self._store_config)
        if since_offset == 0 and since is None:
            history = history or "all"
        wanted = synced.wanted_since(history, since)
        metas = (subscribe_to_meta, unsubscribe_from_meta)
        reach = Reach(recursive, tell_versions, follow_versions, *metas)
        topics.check_reach(self._spec, reach)
        how = (topic, buffer, overflow, where, reach, wanted, follow)
        if name is not None:
            return await self._join(name, auto_ack, ack_within, *how, since_offset)
        if ack_within is not None:
            raise LocalError(f"ack_within: {NAMELESS}")
        return await self._open(*how, since_offset)

    async def _join(
        self,
        name: str,
        auto_ack: bool,
        ack_within: float | None,
        topic: TopicName,
        buffer: int,
        overflow: Overflow | str,
        where: str | None,
        reach: Reach,
        wanted: float | None,
        follow: bool,
        start: int | None,
    ) -> NamedSubscription:
        """Become a consumer of a name; the first one subscribes for all."""
        if is_pattern(topic) or reach.joint:
            raise LocalError(
                f"name: {name!r} is the name of a subscription to one topic, without patterns,"
                " sub-topics and versions"
            )
        if Overflow(overflow) is not Overflow.CATCH_UP:
            raise LocalError("overflow: a named subscription drops nothing; leave it out")
        info = self._log.topic(topic) or TopicExtent(topic, 0, 0)
        start = info.next_offset if start is None else info.place(start)
        feed = functools.partial(self._open, topic, buffer, overflow, where, reach, wanted, follow)
        return await self._groups.join(topic, name, auto_ack, ack_within, where, start, feed)

    async def _open(
        self,
        topic: TopicName,
        buffer: int,
        overflow: Overflow | str,
        where: str | None,
        reach: Reach,
        wanted: float | None,
        follow: bool,
        since_offset: int | None,
    ) -> Subscription:
        """Subscribe, enter what that is to, and look for what belongs to it."""
        chosen = None if where is None else Filter(where)
        told = (self._on_closed, self._on_lost, self.access.opened)
        reads = since_offset is not None
        subscription = Subscription(
            topic, self._log, buffer, overflow, chosen, *told, reads_log=reads
        )
        subscription.reach = reach
        enter = functools.partial(self._enter, subscription, wanted)
        if is_pattern(topic):
            topics.check_pattern(topic, self._spec, since_offset)
        else:
            enter(follow, topic, since_offset)
        try:
            if is_pattern(topic):
                follows = functools.partial(enter, follow)
                await self._patterns.add(subscription, since_offset, follows)
            for each in subscription.topics:
                await synced.remembered(self._driver, each, followed=follow)
        except BaseException:
            for each in subscription.topics if follow and self._running else ():
                self._take_back(each)
            subscription.close()
            raise
        if reach.joint:
            start = None if since_offset else since_offset
            kin = Kin(self._spec, self._driver, self._journal, self._on_lost, self.access.opened)
            subscription.grow(join_kin(subscription, kin, lambda each: enter(False, each, start)))
        return subscription

    async def unsubscribe(
        self, topic: TopicName, *, unsubscribe_from_meta: bool | None = None
    ) -> None:
        """Leave a topic and end its subscriptions; of a pattern, leave every topic of theirs that
        has no other subscription. `unsubscribe_from_meta` as in `subscribe`."""
        self._check_running()
        reach = Reach(unsubscribe_from_meta=unsubscribe_from_meta)
        topics.check_reach(self._spec, reach)
        given = self._journal.all_subscriptions()
        ended = [each for each in [*given, *self._patterns] if each.topic == topic]
        for subscription in ended:
            subscription.reach = reach
            subscription.close()
        left = [topic]
        if is_pattern(topic):
            kept = {name for each in self._journal.all_subscriptions() for name in each.topics}
            left = [name for each in ended for name in each.topics if name not in kept]
        for name in left:
            self._forget(name)
            self._driver.feed(Unsubscribe(name, unsubscribe_from_meta))

    def groups(self) -> list[GroupView]:
        """All named subscriptions, open or not: where they are, what is pending, how far behind."""
        self._check_running()
        return self._groups.views()

    async def forget_group(self, topic: TopicName, name: str) -> None:
        """Forget the position of a named subscription that nobody has open."""
        self._check_running()
        await self._groups.forget(topic, name)
