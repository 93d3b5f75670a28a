"""The node's archive: what its log has kept, and what is on the way into it.

Machines read it in the loop's thread, so an event is found by one look into an index, and a scan
reads a bounded piece at a time. What the log cannot give back is absent here: it says why itself.
"""

from collections.abc import Iterator
from typing import Final

from rumormill.core.event import Event
from rumormill.core.ids import MessageId, Topic
from rumormill.log.errors import DamagedRangeError, OffsetGoneError, StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.model import StoredEvent

_CHUNK: Final = 256


class StoreArchive:
    """Kept events by topic and id (see `core.archive`)."""

    def __init__(self, log: EventLog) -> None:
        self.unsafe: dict[tuple[Topic, MessageId], StoredEvent] = {}
        """What is on the way into the log; the desk fills it."""
        self._log = log

    def get(self, topic: Topic, event_id: MessageId) -> Event | None:
        """Return an event, or None when it was never kept or is no longer."""
        try:
            stored = self.unsafe.get((topic, event_id)) or self._log.find(topic, event_id)
        except StoreError:
            return None
        return None if stored is None else _event(stored)

    def scan(self, topic: Topic) -> Iterator[Event]:
        """Go through all events of a topic: those of the log, then those on their way into it."""
        position = 0
        while True:
            try:
                events = self._log.read(topic, position, _CHUNK)
            except OffsetGoneError as gone:
                position = gone.first_offset
                continue
            except DamagedRangeError as damaged:
                position = damaged.end
                continue
            except StoreError:
                return
            if not events:
                break
            position = events[-1].offset + 1
            yield from map(_event, events)
        for stored in list(self.unsafe.values()):
            if stored.topic == topic:
                found = self._log.find(topic, stored.id)
                if found is None or found.offset >= position:
                    yield _event(stored)


def _event(stored: StoredEvent) -> Event:
    return Event(
        stored.topic,
        stored.data,
        stored.author,
        stored.id,
        stored.parents,
        stored.created,
        stored.proof,
    )
