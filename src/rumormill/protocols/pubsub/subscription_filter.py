"""Which topics we let peers tell us about, and may join ourselves.

A filter sees all subscriptions of an RPC at once. Of what it lets through, repetitions count once,
and a subscription and its end cancel out: an RPC cannot make us do the same work twice.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from rumormill.core.ids import Topic
from rumormill.protocols.pubsub.messages import SubOpts

PATTERN_TOPIC_MAX: Final = 1024
"""Our choice: longer topics are refused unread, since a pattern's cost grows with its input."""


class SubscriptionFilter(Protocol):
    """Decides which topics are of interest."""

    def allows(self, topic: Topic) -> bool:
        """Whether the topic is of interest; also asked before joining it."""
        ...

    def filter(self, subscriptions: Sequence[SubOpts]) -> list[SubOpts]:
        """The subscriptions of one RPC that are to be heeded."""
        ...


class TopicAllowList:
    """Lets the named topics through."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Iterable[Topic]) -> None:
        self._topics = frozenset(topics)

    def allows(self, topic: Topic) -> bool:
        """Whether the topic was named."""
        return topic in self._topics

    def filter(self, subscriptions: Sequence[SubOpts]) -> list[SubOpts]:
        """The subscriptions to named topics."""
        return distinct_subscriptions(subscriptions, self)


class TopicPattern:
    """Lets topics through that match a regular expression from end to end.

    The whole topic has to match, so that a forgotten anchor opens no door. The expression runs on
    text that peers choose: it should not be one that backtracks without end.
    """

    __slots__ = ("_pattern",)

    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        self._pattern = re.compile(pattern)

    def allows(self, topic: Topic) -> bool:
        """Whether the topic matches."""
        return len(topic) <= PATTERN_TOPIC_MAX and self._pattern.fullmatch(topic) is not None

    def filter(self, subscriptions: Sequence[SubOpts]) -> list[SubOpts]:
        """The subscriptions to topics that match."""
        return distinct_subscriptions(subscriptions, self)


class SubscriptionLimit:
    """Another filter, for RPCs with no more than `limit` subscriptions; of others it takes none."""

    __slots__ = ("_inner", "_limit", "refused")

    def __init__(self, inner: SubscriptionFilter, limit: int) -> None:
        self.refused = 0
        """RPCs with too many subscriptions."""
        self._inner = inner
        self._limit = limit

    def allows(self, topic: Topic) -> bool:
        """Whether the inner filter lets the topic through."""
        return self._inner.allows(topic)

    def filter(self, subscriptions: Sequence[SubOpts]) -> list[SubOpts]:
        """What the inner filter lets through, or nothing."""
        if len(subscriptions) > self._limit:
            self.refused += 1
            return []
        return self._inner.filter(subscriptions)


def distinct_subscriptions(
    subscriptions: Sequence[SubOpts], wanted: SubscriptionFilter
) -> list[SubOpts]:
    """The allowed subscriptions of an RPC, each topic at most once."""
    heeded: dict[Topic, SubOpts] = {}
    for sub in subscriptions:
        topic = sub.topic
        other = heeded.get(topic)
        if other is not None:
            if other.subscribe != sub.subscribe:
                del heeded[topic]
        elif wanted.allows(topic):
            heeded[topic] = sub
    return list(heeded.values())
