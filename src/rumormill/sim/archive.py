"""A simulated peer's archive: what it kept, as long as there is room.

It stands for the peer's disk, so it belongs to the host and not to the machine: a crash loses
nothing of it. When it is full the event that was kept first is deleted, as a log's retention
would do.
"""

from collections.abc import Iterator
from typing import Final

from rumormill.core.event import Event
from rumormill.core.ids import MessageId, Topic

DEFAULT_LIMIT: Final = 100_000
"""Events that one peer keeps; our choice: more than the runs that we ship publish."""


class MemoryArchive:
    """Events by topic and id (see `core.archive`)."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._topics: dict[Topic, dict[MessageId, Event]] = {}
        self._order: dict[tuple[Topic, MessageId], None] = {}

    def __len__(self) -> int:
        return len(self._order)

    def keep(self, event: Event) -> None:
        """Keep an event, unless it is kept already."""
        key = (event.topic, event.id)
        if key in self._order:
            return
        if len(self._order) >= self._limit:
            topic, event_id = oldest = next(iter(self._order))
            del self._order[oldest], self._topics[topic][event_id]
            if not self._topics[topic]:
                del self._topics[topic]
        self._order[key] = None
        self._topics.setdefault(event.topic, {})[event.id] = event

    def get(self, topic: Topic, event_id: MessageId) -> Event | None:
        """Return an event, or None when it was never kept or is no longer."""
        return self._topics.get(topic, {}).get(event_id)

    def scan(self, topic: Topic) -> Iterator[Event]:
        """Go through the events of a topic, in the order in which they were kept.

        What is kept or deleted meanwhile does not disturb it.
        """
        return iter(list(self._topics.get(topic, {}).values()))
