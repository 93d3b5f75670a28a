"""Stored histories as peers compare them, read in one snapshot.

A range is summed over the largest nodes that lie in it, then over smaller ones at its two ends, and
at last over single keys, of at most half a chunk at each end: of a chunk that lies in the range by
more than half, the rest is hashed and taken away.
"""

import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias

from rumormill.core.event import Event
from rumormill.core.history import Key, Summary, Window, summary_of, topic_tag
from rumormill.core.ids import Topic
from rumormill.log.index_rows import (
    LEVELS,
    count_keys,
    following,
    get_keys,
    get_nodes,
    get_record,
    node_at,
)
from rumormill.log.rows import COLUMNS, OFFSET_BITS, TopicRow, row_event, row_is_whole
from rumormill.log.schema import get_topic
from rumormill.log.writer import Writer

_Leaf: TypeAlias = Callable[[Key, Key], Summary]
"""Sums up keys that lie in one chunk."""
_EVENT = f"""SELECT {", ".join(f"events.{name}" for name in COLUMNS.split(", "))}
    FROM history_keys JOIN events ON events.key = history_keys.topic_id << {OFFSET_BITS} | place
    WHERE history_keys.topic_id = ? AND stamp = ? AND history_keys.id = ? AND place >= 0"""


class StoredHistory:
    """One topic's keys; of use as long as the snapshot is."""

    def __init__(self, db: sqlite3.Connection, topic: TopicRow) -> None:
        record = get_record(db, topic.topic_id)
        self.window = Window() if record is None else record.window
        self._db = db
        self._topic = topic
        self._number = topic.topic_id

    def summary(self, low: Key, high: Key) -> Summary:
        """What a range holds."""
        return self._fold(LEVELS - 1, low, high, self._hash)

    def cut(self, low: Key, high: Key, parts: int) -> list[Key]:
        """Cut a range into parts of about the same count.

        At the largest nodes that give parts of at most twice the mean; else at single keys.
        """
        count = self._count(LEVELS - 1, low, high)
        for level in reversed(range(LEVELS)):
            nodes = get_nodes(self._db, self._number, level, low, high)
            if nodes and nodes[0].first == low:
                del nodes[0]
            if not nodes:
                continue
            sizes = [self._count(level - 1, low, nodes[0].first)]
            sizes += [node.summary.count for node in nodes[:-1]]
            chosen = _nearest(list(accumulate(sizes)), count, parts)
            if chosen is not None:
                return [nodes[at].first for at in chosen]
        places = sorted({number * count // parts for number in range(parts)})
        keys = self.keys(low, high, count)
        return [keys[place] for place in places[1:]]

    def keys(self, low: Key, high: Key, limit: int) -> list[Key]:
        """The first keys of a range, at most so many."""
        return get_keys(self._db, self._number, low, high, limit)

    def events(self, keys: Sequence[Key], max_bytes: int) -> list[Event]:
        """The events of these keys, verified, without those that are known but not stored.

        The list ends behind the event with which its data and proofs reach `max_bytes`.
        """
        name, encoded = self._topic.name, self._topic.name.encode()
        found: list[Event] = []
        for key in keys:
            row = self._db.execute(_EVENT, (self._number, *key)).fetchone()
            if row is None or row[2] != key.id or not row_is_whole(row, self._number, encoded):
                continue
            event = row_event(row, name)
            found.append(event)
            max_bytes -= len(event.data) + len(event.proof)
            if max_bytes <= 0:
                break
        return found

    def _fold(self, level: int, low: Key, high: Key, leaf: _Leaf) -> Summary:
        """Add up what lies in a range, by the nodes of a level and of those below."""
        if low >= high:
            return Summary()
        if level < 0:
            return leaf(low, high)
        nodes = get_nodes(self._db, self._number, level, low, high)
        if not nodes:
            return self._fold(level - 1, low, high, leaf)
        inner = sum((node.summary for node in nodes[:-1]), Summary())
        before = self._fold(level - 1, low, nodes[0].first, leaf)
        return before + inner + self._fold(level - 1, nodes[-1].first, high, leaf)

    def _hash(self, low: Key, high: Key) -> Summary:
        """The sum of keys that lie in one chunk; they, or the others of it, are read and hashed."""
        count = count_keys(self._db, self._number, low, high)
        if not count:
            return Summary()
        first, chunk = node_at(self._db, self._number, 0, low)
        if 2 * count <= chunk.count:
            return summary_of(self._topic.name, self.keys(low, high, count))
        end = following(self._db, self._number, 0, first)
        others = self.keys(first, low, -1) + self.keys(high, end, -1)
        return chunk - summary_of(self._topic.name, others)

    def _count(self, level: int, low: Key, high: Key) -> int:
        def leaf(low: Key, high: Key) -> Summary:
            return Summary(count_keys(self._db, self._number, low, high))

        return self._fold(level, low, high, leaf).count


def _nearest(ends: list[int], count: int, parts: int) -> list[int] | None:
    """Which of some places, with so many keys before them, cut best; None if none does well."""
    chosen = []
    last = most = 0
    for number in range(1, parts):
        wanted = number * count / parts
        at = bisect_left(ends, wanted)
        if at and (at == len(ends) or wanted - ends[at - 1] < ends[at] - wanted):
            at -= 1
        if last < ends[at] < count:
            chosen.append(at)
            most = max(most, ends[at] - last)
            last = ends[at]
    return chosen if parts * max(most, count - last) <= 2 * count else None


class Tags:
    """Which topic has which tag; names only come, so each is hashed once."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._topics: dict[bytes, Topic] = {}
        self._known = 0
        self._lock = threading.Lock()

    def named(self, tag: bytes) -> Topic | None:
        """The topic whose name has this tag."""
        if self._known != len(self._writer.names):
            with self._lock:
                names = self._writer.names_from(self._known)
                self._known += len(names)
                for name in names:
                    self._topics.setdefault(topic_tag(name), name)
        return self._topics.get(tag)


class StoredHistories:
    """All topics of a log, in one snapshot."""

    def __init__(self, db: sqlite3.Connection, tags: Tags) -> None:
        self._db = db
        self.named = tags.named

    def history(self, topic: Topic) -> StoredHistory | None:
        """A topic's history; None if nothing was ever stored of it."""
        row = get_topic(self._db, topic)
        return None if row is None else StoredHistory(self._db, row)
