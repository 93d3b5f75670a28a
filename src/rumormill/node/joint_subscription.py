"""A subscription to a topic and to what belongs to it: sub-topics, and later versions.

Events of all of them come in one iteration, each with its own topic and offset; within a topic in
the order of the log, between topics as they come. Sub-topics and versions are looked for beside
that, and joined as they are found, for as long as this subscription is open. One that cannot be had
is named in `unreachable`, and costs nobody else.

Later versions are learnt from the meta topic, all of which is wanted: those count that descend from
the topic and are announced by its author.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from rumormill.core.api import Reach, TopicTree, TopicVersion
from rumormill.core.errors import LimitError, LocalError
from rumormill.core.event import VERSION, Event
from rumormill.core.ids import Topic
from rumormill.core.inputs import Subscribe
from rumormill.node.driver import Driver
from rumormill.node.journal import Journal
from rumormill.node.subscription import BATCH, Overflow, Subscription
from rumormill.node.topics import enter_topic, find_tree, making_of
from rumormill.protocols.registry import ProtocolSpec

MOST_TOPICS: Final = 1024
"""Topics of one subscription; our choice: as many as a tree lists."""


class _Part(Subscription):
    """One topic of a joint subscription, which is woken in its place."""

    joint: "JointSubscription"

    def _wake(self) -> None:
        self.joint._wake()


class JointSubscription(Subscription):
    """A subscription to several topics; see `Subscription`."""

    def __init__(self, reach: Reach, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.unreachable: dict[Topic, str] = {}
        """Topics that belong to this one and could not be joined, and why."""
        self._reach = reach
        self._parts: dict[Topic, Subscription] = {self.topic: self}
        self._merged: deque[Event] = deque()
        self._growing: asyncio.Task[None] | None = None

    @property
    def topics(self) -> list[Topic]:
        """What it takes in by now."""
        return [*self._parts]

    # Iterating.

    async def __anext__(self) -> Event:
        if self._merged or await self._fill():
            return self._merged.popleft()
        raise StopAsyncIteration

    async def batch(self, limit: int = BATCH) -> list[Event]:
        """Wait for events; return those that are there (see `Subscription.batch`)."""
        if not self._merged and not await self._fill():
            return []
        return [self._merged.popleft() for _ in range(min(max(1, limit), len(self._merged)))]

    @property
    def waiting(self) -> int:
        """Events in the buffers."""
        return len(self._merged) + sum(len(part._buffer) for part in self._parts.values())

    async def _fill(self) -> bool:
        """Wait until some topic has events; false when none will come."""
        while True:
            for part in self._parts.values():
                self._merged.extend(part._buffer)
                part._buffer.clear()
                if part is not self:
                    self.dropped, part.dropped = self.dropped + part.dropped, 0
                    self._note_failure(part)
            if self._merged:
                return True
            behind = [part for part in self._parts.values() if part._behind]
            if behind and self._failure is None and not self._closed:
                await behind[0]._catch_up()
            elif not await self._pause():
                return False

    def _note_failure(self, part: Subscription) -> None:
        if part._failure is not None:
            self.unreachable[part.topic] = str(part._failure)

    def close(self) -> None:
        """End it, with all its topics."""
        if self._growing is not None:
            self._growing.cancel()
        for part in [*self._parts.values()]:
            if part is not self:
                part.close()
        super().close()

    # Growing.

    def grow(self, growth: "Growth") -> None:
        """Look, beside everything else, for what belongs to the topic."""
        self._growing = asyncio.ensure_future(self._grow(growth))

    async def _grow(self, growth: "Growth") -> None:
        try:
            tree = await growth.look(self.topic)
            self._add_below(growth, tree)
            if self._reach.follow_versions or self._reach.tell_versions:
                await self._watch(growth, tree.root)
        except LocalError as error:
            self.unreachable[self.topic] = str(error)

    def _add_below(self, growth: "Growth", tree: TopicTree) -> None:
        if self._reach.recursive:
            for each in tree.branches:
                self._add(growth, each.topic)
            if tree.cut:
                self.unreachable[tree.root.topic] = "it has more sub-topics than are listed"

    def _add(self, growth: "Growth", topic: Topic) -> bool:
        """Join one topic more; false where it was joined before."""
        if topic in self._parts or self._closed:
            return False
        if len(self._parts) >= MOST_TOPICS:
            raise LimitError(f"a subscription takes in at most {MOST_TOPICS} topics")
        self._parts[topic] = growth.join(topic, self)
        return True

    async def _watch(self, growth: "Growth", root: TopicVersion) -> None:
        """Hear of the versions that follow one, from the first on, until the end."""
        if root.meta is None:
            return
        line = {root.topic: None}
        meta = growth.watch(root.meta)
        try:
            async for event in meta:
                version = growth.announced(event)
                if version is None or version.author != root.author or version.parent not in line:
                    continue
                line[version.topic] = None
                self._merged.append(replace(event, via=VERSION))
                self._wake()
                if self._reach.follow_versions and self._add(growth, version.topic):
                    self._add_below(growth, await growth.look(version.topic))
        finally:
            meta.close()


@dataclass(eq=False)
class Growth:
    """How a node finds and joins what belongs to a topic."""

    spec: ProtocolSpec
    driver: Driver
    journal: Journal
    told: tuple[Any, ...]
    """Whom a subscription tells of its end and of losses, and who opens events."""
    since: float | None
    start: int | None
    """From when on events are wanted, and from which offset of the log on they are given."""
    buffer: int

    def __post_init__(self) -> None:
        self.announced = making_of(self.spec, "follow_versions").announced

    async def look(self, topic: Topic) -> TopicTree:
        """A topic and its sub-topics."""
        return await find_tree(self.spec, self.driver, topic)

    def join(self, topic: Topic, joint: JointSubscription) -> Subscription:
        """Subscribe to one topic more."""
        log = self.journal.log
        part = _Part(topic, log, self.start, self.buffer, Overflow.CATCH_UP, *self.told)
        part.joint = joint
        enter_topic(self.spec, self.driver, part, self.since)
        return self.journal.add(part)

    def watch(self, meta: Topic) -> Subscription:
        """Read all of a meta topic, which is subscribed to along with its topic."""
        self.driver.feed(Subscribe(meta, since=0.0))
        policy, (_, *others) = Overflow.CATCH_UP, self.told
        log, remove = self.journal.log, self.journal.remove
        return self.journal.add(Subscription(meta, log, 0, BATCH, policy, remove, *others))
