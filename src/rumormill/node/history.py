"""Reading a topic's past from the log, in pieces, beside the event loop."""

import asyncio
from typing import Final

from rumormill.core.event import ReceivedEvent
from rumormill.core.ids import Topic
from rumormill.log.event_log import EventLog
from rumormill.log.model import received_event

_CHUNK: Final = 500


async def read_history(
    log: EventLog, topic: Topic, since_offset: int, since: float | None, limit: int | None
) -> list[ReceivedEvent]:
    """Return the events of a topic from an offset and a time of reception on, at most `limit`."""
    found: list[ReceivedEvent] = []
    info = log.topic(topic)
    if info is None or (limit is not None and limit < 1):
        return found
    start = max(since_offset, info.first_offset)
    if since is not None:
        first = await asyncio.to_thread(log.read_since, topic, since, 1)
        start = max(start, first[0].offset if first else info.next_offset)
    while start < info.next_offset and (limit is None or len(found) < limit):
        want = _CHUNK if limit is None else min(_CHUNK, limit - len(found))
        events = await asyncio.to_thread(log.read, topic, start, want)
        if not events:
            break
        found.extend(received_event(event, event.offset) for event in events)
        start = events[-1].offset + 1
    return found
