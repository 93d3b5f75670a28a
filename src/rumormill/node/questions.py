"""What a node can be asked of its protocol: topics that were created, what others have, commands.

Only some protocols have an answer; the others say so in one sentence.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rumormill.core.api import FetchedHistory, TopicTree, TopicVersion
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.ids import MessageId
from rumormill.core.ids import Topic as TopicName
from rumormill.log.model import check_topic
from rumormill.node import fetching, topics
from rumormill.node.life import NodeLife


class NodeQuestions(NodeLife):
    """The part of `Node` that asks its protocol."""

    async def describe_topic(self, topic: TopicName) -> dict[str, Any]:
        """Find out what is known of a topic that was created, ready for JSON.

        Of a Pulsarcast topic: its `cid`, its descriptor (`readable`), and name and date of its
        `sub_topics` and of its `versions`, the oldest first.
        """
        self._check_running()
        return await topics.describe_topic(self._spec, self._driver, topic)

    async def versions(self, topic: TopicName) -> list[TopicVersion]:
        """Find all versions of a created topic that are known here, the oldest first."""
        self._check_running()
        return await topics.list_versions(self._spec, self._driver, topic)

    async def topic_tree(self, topic: TopicName) -> TopicTree:
        """Find all sub-topics of a created topic, theirs, and so on."""
        self._check_running()
        return await topics.find_tree(self._spec, self._driver, topic)

    def version_of(self, event: Event) -> TopicVersion:
        """Read the version of a topic that an event announces whose `via` is "version"."""
        return topics.version_of(self._spec, event)

    async def fetch_history(
        self,
        topic: TopicName,
        *,
        start: Iterable[str | MessageId] = (),
        since: float = 0.0,
        most: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
        progress: Callable[[int], None] | None = None,
    ) -> FetchedHistory:
        """Get a topic's history beyond this node's log into the log, where `history` reads it.

        In Pulsarcast neighbours and the author are asked, then links are followed through the DHT,
        from what is known and what `start` names, back to a time (`since`) or until `most` came; 0
        for all. Elsewhere it is `sync`. `progress` hears every second how many came.
        """
        self._check_running()
        check_topic(topic, self._store_config)
        wish = (topic, tuple(start), since, most, timeout, progress)
        return await fetching.fetch_history(self._spec, self._driver, self._log, *wish)

    async def fetch(
        self,
        event: str | MessageId,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109 (a sentence instead of a bare TimeoutError)
    ) -> Event:
        """Get an event by its CID alone (Pulsarcast), from here or from the DHT.

        Its author need not be there, and the topic need not be followed. The event was verified:
        its CID, its signatures, and where the topic can be found, that its publisher may publish
        there. It is not kept. `LocalError` when it is not to be had, or not in time.
        """
        self._check_running()
        found = await fetching.fetch_event(self._spec, self._driver, event, timeout)
        if not self.access.admits(found, self.id):
            raise LocalError(f"the policy or key of topic {found.topic!r} here refuses the event")
        opened = self.access.opened(found)
        if opened is None:
            raise LocalError(f"no key of this node reads the events of topic {found.topic!r}")
        return opened

    async def command(self, body: object) -> Any:
        """Ask the protocol for something that only it offers; return what came of it.

        `body` is a request type of the protocol, which says how long it may take. `LocalError`
        tells why there is no result, also when the node is closed meanwhile.
        """
        self._check_running()
        return await self._driver.command(body)

    async def set_supervisors(self, tickets: Sequence[str]) -> None:
        """Name all supervisors anew; with `supervises`, this node stays one of them."""
        self._check_running()
        servers = topics.servers_of(self._spec)
        named = topics.named_peers(tickets, self._swarm.book, self._ourselves)
        await self._driver.command(servers.command(named))
