"""What belongs to a created topic: sub-topics, and later versions, which a subscription takes in.

They are looked for beside the iteration, and entered as they are found, for as long as the
subscription is open. One that cannot be had is named in `Subscription.unreachable`, and costs
nobody else.

Later versions are learnt from the meta topic, all of which is wanted: those count that descend from
the topic and are announced by its author.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from rumormill.core.api import TopicTree, TopicVersion
from rumormill.core.errors import LocalError
from rumormill.core.event import VERSION, Event
from rumormill.core.ids import Topic
from rumormill.core.inputs import Subscribe
from rumormill.node.driver import Driver
from rumormill.node.journal import Journal
from rumormill.node.subscription import Overflow, Subscription
from rumormill.node.topics import find_tree, making_of
from rumormill.protocols.registry import ProtocolSpec

MOST_TOPICS: Final = 1024
"""Topics of one subscription, and versions that it is told of; our choice: as many as a tree
lists."""
_BUFFER: Final = 256


@dataclass(eq=False)
class Kin:
    """What a node needs to find what belongs to a topic."""

    spec: ProtocolSpec
    driver: Driver
    journal: Journal
    on_lost: Callable[[Event, str], None]
    opened: Callable[[Event], Event | None]

    async def look(self, topic: Topic) -> TopicTree:
        """A topic and its sub-topics."""
        return await find_tree(self.spec, self.driver, topic)

    def announced(self, event: Event) -> TopicVersion | None:
        """The version that an event of a meta topic announces."""
        return making_of(self.spec, "follow_versions").announced(event)

    def watch(self, meta: Topic) -> Subscription:
        """Read all of a meta topic, which is subscribed to along with its topic."""
        journal = self.journal

        def ended(_: Subscription) -> None:
            journal.remove(meta, watching)

        rest = (ended, self.on_lost, self.opened)
        watching = Subscription(
            meta, journal.log, _BUFFER, Overflow.CATCH_UP, None, *rest, reads_log=True
        )
        watching.enter(meta, 0)
        journal.add(meta, watching)
        self.driver.feed(Subscribe(meta, since=0.0))
        return watching


async def join_kin(subscription: Subscription, kin: Kin, enter: Callable[[Topic], None]) -> None:
    """Have a subscription take in what belongs to its topic, until it is closed."""
    topic, reach = subscription.topic, subscription.reach

    def take(found: Topic) -> None:
        if found in subscription.topics:
            return
        if len(subscription.topics) < MOST_TOPICS:
            try:
                enter(found)
            except LocalError as error:
                subscription.unreachable[found] = str(error)
        else:
            subscription.unreachable[found] = f"{MOST_TOPICS} topics are taken in already"

    def take_below(tree: TopicTree) -> None:
        if reach.recursive:
            for each in tree.branches:
                take(each.topic)
            if tree.cut:
                subscription.unreachable[tree.root.topic] = "it has more sub-topics than are listed"

    try:
        tree = await kin.look(topic)
        take_below(tree)
        if reach.versions and tree.root.meta is not None:
            line = {topic: None}
            with_meta = kin.watch(tree.root.meta)
            async with with_meta as announcements:
                async for event in announcements:
                    version = kin.announced(event)
                    if version is None or not _follows(version, tree.root, line):
                        continue
                    line[version.topic] = None
                    subscription.tell(replace(event, via=VERSION))
                    if reach.follow_versions:
                        take(version.topic)
                        take_below(await kin.look(version.topic))
    except LocalError as error:
        subscription.unreachable[topic] = str(error)


def _follows(version: TopicVersion, root: TopicVersion, line: dict[Topic, None]) -> bool:
    """Whether a version descends from those before it, by their author, and there is room."""
    by_author = version.author == root.author and version.topic not in line
    return by_author and version.parent in line and len(line) < MOST_TOPICS
