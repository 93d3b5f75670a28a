"""Setting topics up, for protocols in which a topic must be created before it can be used.

The plan names topics as people do; on the network a topic has the name that its creation gave it,
and another one in each version. Every topic's author is the peer that publishes most in it (of
several the first), or else its first subscriber. Authors create their topics when a quarter of the
warm-up is over, those first that others have as sub-topics, and at its half the others subscribe:
what the creation stored has had time to arrive. A topic that takes longer is followed when it
exists; in one that could not be created nobody publishes. A new version is its author's as well;
what is planned from then on is published there. Protocols without creation use the plan's names,
and nobody waits.
"""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Final

from rumormill.core.api import TopicOptions
from rumormill.core.effects import Outcome
from rumormill.core.ids import Topic
from rumormill.protocols.registry import TopicMaking
from rumormill.sim.host import Host
from rumormill.sim.network import peer_id
from rumormill.sim.topic_table import TopicTable
from rumormill.sim.workload import Plan

CREATE_AT: Final = 0.25
SUBSCRIBE_AT: Final = 0.5
"""Shares of the warm-up; our choice, see above."""

NOT_CREATED: Final = "topic not created"


class SetUp:
    """Creates a plan's topics and knows what they are called."""

    def __init__(
        self,
        making: TopicMaking | None,
        plan: Plan,
        table: TopicTable,
        follow: Callable[[str], None],
    ) -> None:
        """`follow` is told of each topic when it has been created."""
        self._making = making
        self._follow = follow
        self._table = table
        self.versions: dict[str, list[Topic]] = {}
        """The names on the network of the topics that exist, the newest version last."""
        self.metas: dict[Topic, str] = {}
        """What people would call the topics in which new versions are announced."""
        self.publishers: dict[str, list[int]] = {}
        """Who creates each topic, and who else publishes there, those first who do so most."""
        self._topics = plan.topics
        self._unsettled: dict[int, int] = {}
        """How many sub-topics of the topic at each place are neither created nor given up."""
        if making is None:
            self.versions = {topic: [topic] for topic in plan.topics}
        else:
            self.publishers = _publishers(plan)

    @property
    def waits(self) -> bool:
        """Whether topics must be created first."""
        return self._making is not None

    def newest(self, topic: str) -> Topic | None:
        """What a topic of the plan is called now, if it exists."""
        return self.versions[topic][-1] if topic in self.versions else None

    def create(self, hosts: list[Host]) -> None:
        """Let every author that is up create its topics, each when its sub-topics are settled."""
        places = range(len(self._topics))
        self._unsettled = {place: len(self._below(place)) for place in places}
        for place in places:
            if not self._unsettled[place]:
                self._create(place, hosts)

    def renew(self, name: str, hosts: list[Host], then: Callable[[], None]) -> None:
        """Let a topic's author make a new version of it, if both are there; `then` is told."""
        if name in self.versions:
            self._make(name, hosts, then)

    def _below(self, place: int) -> tuple[str, ...]:
        """The sub-topics of the topic at a place."""
        most = self._table.sub_topics
        return self._topics[place * most + 1 : (place + 1) * most + 1]

    def _create(self, place: int, hosts: list[Host]) -> None:
        self._make(self._topics[place], hosts, functools.partial(self._settled, place, hosts))

    def _settled(self, place: int, hosts: list[Host]) -> None:
        """A topic exists, or never will: the one above it may have waited for that."""
        self._follow(self._topics[place])
        if place and self._table.sub_topics:
            above = (place - 1) // self._table.sub_topics
            self._unsettled[above] -= 1
            if not self._unsettled[above]:
                self._create(above, hosts)

    def _make(self, name: str, hosts: list[Host], then: Callable[[], None]) -> None:
        """Have a topic created, or the next version of one."""
        assert self._making is not None
        author = hosts[self.publishers[name][0]]
        command = self._making.command(name, self._options(name))
        author.command(command, functools.partial(self._made, name, self._making, then))

    def _made(
        self, name: str, making: TopicMaking, then: Callable[[], None], outcome: Outcome
    ) -> None:
        if not outcome.error:  # else its author is down, or has no room on its disk
            self.versions.setdefault(name, []).append(making.topic_of(outcome.result))
            if (meta := making.meta_of(outcome.result)) is not None:
                self.metas[meta] = f"versions of {name}"
        then()

    def _options(self, name: str) -> TopicOptions:
        table = self._table
        below = self._below(self._topics.index(name))
        return TopicOptions(
            allowed_publishers=table.publishers([peer_id(each) for each in self.publishers[name]]),
            request_to_publish=table.request_to_publish,
            linking=table.linking,
            sub_topics={each: self.versions[each][-1] for each in below if each in self.versions},
            parent=self.newest(name),
        )


def _publishers(plan: Plan) -> dict[str, list[int]]:
    """Everybody who publishes in a topic, the busiest first, of several the first; if there is
    nobody, the first subscriber."""
    published: dict[str, Counter[int]] = {topic: Counter() for topic in plan.topics}
    for event in plan.publications:
        published[event.topic][event.publisher] += 1
    found = {}
    for topic in plan.topics:
        counts = published[topic]
        busiest = sorted(counts, key=lambda peer: (-counts[peer], peer))
        subscribers = [index for index, mine in enumerate(plan.subscriptions) if topic in mine]
        found[topic] = busiest or subscribers[:1] or [0]
    return found
