"""How the events of a group become rows, each at the end of its topic.

Nearly always all ids are new, and the rows go in together. If one is known, nothing has happened
yet, and the group is inserted again one by one, which finds out what is known. The rule: an id has
one offset for ever, and what retention has deleted does not come back.
"""

import sqlite3
from collections.abc import Callable, Mapping
from typing import TypeAlias

from rumormill.core.event import UNASSIGNED, Event
from rumormill.core.history import Deleted
from rumormill.log.calls import Call
from rumormill.log.rows import INSERT, MAX_OFFSET, EventRow, Group, TopicRow, make_row
from rumormill.log.schema import put_events

Places: TypeAlias = tuple[list[int], dict[int, None]]
"""The offsets of an append's events, and which of the events were there before."""
Put: TypeAlias = Callable[
    [sqlite3.Connection, Mapping[str, Deleted], Group, list[Call]], list[Places]
]
"""Inserts the events of some appends, in a transaction that is open."""
_NONE_KNOWN: dict[int, None] = {}


class KnownIdError(Exception):
    """The fast path met an id that the log already has."""


def insert_new(
    db: sqlite3.Connection, gone: Mapping[str, Deleted], group: Group, calls: list[Call]
) -> list[Places]:
    """Insert events whose ids are all new, in one go; `KnownIdError` if one is not."""
    rows: list[EventRow] = []
    results: list[Places] = []
    name, topic, encoded, deleted = "", None, b"", None
    for call in calls:
        offsets: list[int] = []
        for event, size in zip(call.events, call.sizes, strict=True):
            if topic is None or event.topic != name:
                name = event.topic
                topic, encoded = group.topic(name), group.encoded[name]
                deleted = gone.get(name)
            if deleted is not None and deleted.has(event):
                raise KnownIdError
            offset = topic.next_offset
            row = make_row(event, topic.topic_id, encoded, offset, topic.head_hash)
            group.add(topic, row, size)
            rows.append(row)
            offsets.append(offset)
        results.append((offsets, _NONE_KNOWN))
    if put_events(db, rows) != len(rows):
        raise KnownIdError
    return results


def insert_each(
    db: sqlite3.Connection, gone: Mapping[str, Deleted], group: Group, calls: list[Call]
) -> list[Places]:
    """Insert events of which some may be known; those keep the offset they have.

    What retention would have deleted by its date is taken for known, whether it was or not.
    """
    results: list[Places] = []
    for call in calls:
        offsets: list[int] = []
        known: dict[int, None] = {}
        for event, size in zip(call.events, call.sizes, strict=True):
            topic = group.topic(event.topic)
            if event.topic in gone and gone[event.topic].has(event):
                known[len(offsets)] = None
                offsets.append(_offset_of(db, topic, event))
                continue
            offset, encoded = topic.next_offset, group.encoded[event.topic]
            row = make_row(event, topic.topic_id, encoded, offset, topic.head_hash)
            if db.execute(INSERT.one, row).rowcount == 1:
                group.add(topic, row, size)
            else:
                offset = _offset_of(db, topic, event)
                known[len(offsets)] = None
            offsets.append(offset)
        results.append((offsets, known))
    return results


def _offset_of(db: sqlite3.Connection, topic: TopicRow, event: Event) -> int:
    query = "SELECT key FROM events WHERE topic_id = ? AND id = ?"
    found = db.execute(query, (topic.topic_id, event.id)).fetchone()
    return UNASSIGNED if found is None else found[0] & MAX_OFFSET
