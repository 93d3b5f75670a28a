"""Setting topics up, for protocols in which a topic must be created before it can be used.

The plan names topics as people do; on the network a topic has the name that its creation gave it.
Every topic's author is the peer that publishes most in it (of several the first), or else its first
subscriber. Authors create their topics when a quarter of the warm-up is over, and at its half the
others subscribe: what the creation stored has had time to arrive. In a topic that could not be
created nobody publishes. Protocols without creation use the plan's names, and nobody waits.
"""

import functools
from collections import Counter
from typing import Final

from rumormill.core.api import NO_OPTIONS
from rumormill.core.effects import Outcome
from rumormill.core.ids import Topic
from rumormill.protocols.registry import TopicMaking
from rumormill.sim.host import Host
from rumormill.sim.workload import Plan

CREATE_AT: Final = 0.25
SUBSCRIBE_AT: Final = 0.5
"""Shares of the warm-up; our choice, see above."""

NOT_CREATED: Final = "topic not created"


class SetUp:
    """Creates a plan's topics and knows what they are called."""

    def __init__(self, making: TopicMaking | None, plan: Plan) -> None:
        self._making = making
        self.names: dict[str, Topic] = {}
        """The names on the network of the topics that exist, by the plan's names."""
        self.authors: dict[str, int] = {}
        """Who creates each topic."""
        if making is None:
            self.names = dict(zip(plan.topics, plan.topics, strict=True))
        else:
            self.authors = _authors(plan)

    @property
    def waits(self) -> bool:
        """Whether topics must be created first."""
        return self._making is not None

    def create(self, hosts: list[Host]) -> None:
        """Let every author that is up create its topics."""
        making = self._making
        if making is None:
            return
        for name, author in self.authors.items():
            if hosts[author].up:
                created = functools.partial(self._created, name, making)
                hosts[author].command(making.command(name, NO_OPTIONS), created)

    def _created(self, name: str, making: TopicMaking, outcome: Outcome) -> None:
        if not outcome.error:  # else its author went down, or has no room on its disk
            self.names[name] = making.topic_of(outcome.result)


def _authors(plan: Plan) -> dict[str, int]:
    published: dict[str, Counter[int]] = {topic: Counter() for topic in plan.topics}
    for event in plan.publications:
        published[event.topic][event.publisher] += 1
    authors = {}
    for topic in plan.topics:
        subscribers = [index for index, mine in enumerate(plan.subscriptions) if topic in mine]
        counts = published[topic]
        most = max(counts.values(), default=0)
        busiest = [peer for peer, count in counts.items() if count == most]
        authors[topic] = min(busiest or subscribers[:1] or [0])
    return authors
