"""Rows of a log for the page: the tail as it grows, pages of history by offset and time, heads.

Read in a thread, a bounded number at a time. The rule of the tail: a row that is not shown is
counted, with the offsets between which it stands.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from rumormill.core.event import Event
from rumormill.dashboard.figures import event_row, listed, matches
from rumormill.dashboard.source import NotHere, Page
from rumormill.log.errors import DamagedRangeError, OffsetGoneError
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import behind_loss

TAIL_ROWS: Final = 200
TAIL_BYTES: Final = 12 << 10
"""Of JSON in one batch, so that a busy topic costs a viewer no more than 20 kB a second."""
_READ_BYTES: Final = 4 << 20
_LOOKED_AT: Final = 5000
"""Events in which one page looks for those that a filter wants."""

HEADS_AMONG: Final = 64
"""Events of a topic, the last ones, among which heads are looked for."""
_MOST_HEADS: Final = 16

Shower = Callable[[Event], Event]
"""An event in clear if it can be read, else as it travels."""
_encode = msgspec.json.Encoder().encode


def read_tail(
    log: EventLog, shown: Shower, topic: str, start: int | None, wanted: str
) -> dict[str, Any]:
    """The newest rows behind an offset; without one, the last ones. `more` were left out."""
    extent = log.topic(topic)
    if extent is None:
        return {"rows": [], "more": 0, "from": 0, "next": 0}
    end = extent.next_offset
    begin = max(extent.first_offset, end - TAIL_ROWS)
    after = begin if start is None else min(start, end)
    found, _ = _read(log, topic, max(begin, after), end)
    rows: list[dict[str, Any]] = []
    size = looked_at = 0
    for event in map(shown, reversed(found)):
        if matches(event, wanted):
            row = event_row(event)
            size += len(_encode(row))
            if rows and size > (TAIL_BYTES if start is not None else 4 * TAIL_BYTES):
                break
            rows.append(row)
        looked_at += 1
    rows.reverse()
    return {"rows": rows, "more": end - after - looked_at, "from": after, "next": end}


def _read(log: EventLog, topic: str, begin: int, end: int) -> tuple[list[Event], int]:
    """Events of a range, without what is lost or damaged; also where reading ended."""
    found: list[Event] = []
    position = behind_loss(log, topic, begin)
    while position < end:
        try:
            events = log.read(topic, position, end - position, _READ_BYTES)
        except DamagedRangeError as error:
            position = error.end
            continue
        except OffsetGoneError as error:  # deleted since we looked
            position = error.first_offset
            continue
        if not events:
            break
        found += events
        position = behind_loss(log, topic, events[-1].offset + 1)
    return found, position


def read_page(log: EventLog, shown: Shower, page: Page) -> dict[str, Any]:
    """A page of history; `next` is where the following one begins."""
    extent = log.topic(page.topic)
    if extent is None:
        raise NotHere("this node's log has nothing of that topic")
    end = extent.next_offset
    if page.since is not None:
        first = log.read_since(page.topic, page.since, 1)
        position = first[0].offset if first else end
    elif page.start is None:
        position = max(extent.first_offset, end - page.limit)
    else:
        position = max(extent.first_offset, min(extent.place(page.start), end))
    rows: list[dict[str, Any]] = []
    last = min(end, position + _LOOKED_AT)
    while position < last and len(rows) < page.limit:
        events, reached = _read(log, page.topic, position, min(last, position + page.limit))
        for event in map(shown, events):
            if matches(event, page.filter):
                rows.append(event_row(event))
                if len(rows) == page.limit:
                    reached = event.offset + 1
                    break
        if reached <= position:
            break  # the log ends earlier than it says
        position = reached
    more = position < end
    return {"rows": rows, "first": extent.first_offset, "next": position, "more": more}


def read_heads(log: EventLog, topic: str) -> dict[str, Any] | None:
    """The heads of a topic's last events; None where no event names another (`heads_of`)."""
    extent = log.topic(topic)
    if extent is None:
        return None
    end = extent.next_offset
    events, _ = _read(log, topic, max(extent.first_offset, end - HEADS_AMONG), end)
    return heads_of(topic, [events])


def heads_of(topic: str, logs: Iterable[Sequence[Event]]) -> dict[str, Any] | None:
    """The events that none follows, by how many of some logs say so; None without any links."""
    found: dict[str, int] = {}
    linked, most = False, 0
    for events in logs:
        followed = {parent for event in events for parent in event.parents}
        linked, most = linked or bool(followed), max(most, len(events))
        for event in reversed(events):
            if event.id not in followed:
                found[event.id.hex()] = found.get(event.id.hex(), 0) + 1
    if not linked:
        return None
    rows = sorted(found.items(), key=lambda head: -head[1])
    return {"topic": topic, "among": most, **listed([list(row) for row in rows], _MOST_HEADS)}
