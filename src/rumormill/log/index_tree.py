"""The sums over a topic's keys, kept up as keys come and go.

Keys come sorted. Those that belong behind all others make chunks of their own, and nothing is
hashed twice. One that belongs between others is added to its chunk; a chunk that gets too many is
cut, which hashes its keys once more. What a chunk has gained, the nodes above it gain as well, and
one with too many children is cut like a chunk, by adding up.

A node is deleted when it is empty, unless one above it begins at the same key: that one must go
first, and takes it along. So a node always begins where one of the level below does.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from rumormill.core.history import BEGIN, Key, Summary, Window, summary_of
from rumormill.log.errors import RecordDamagedError
from rumormill.log.index_rows import (
    LEVELS,
    Entry,
    Node,
    Record,
    count_keys,
    drop_node,
    following,
    get_keys,
    get_nodes,
    node_at,
    put_keys,
    put_node,
    put_record,
    put_refusals,
)
from rumormill.log.rows import TopicRow

Item = TypeVar("Item")

CHUNK_KEYS: Final = 64
"""Most keys of a chunk: half as many are hashed for the end of a range, 0.1 ms."""
_CHILDREN: Final = 32
"""A node above is cut when it has twice as many children."""


class _Change(NamedTuple):
    """What a node has gained, and whether there are new nodes behind it."""

    first: Key
    gained: Summary
    is_cut: bool


class Tree:
    """The sums of one topic, inside a transaction of the log's writer."""

    def __init__(self, db: sqlite3.Connection, topic: TopicRow) -> None:
        self._db = db
        self._topic = topic
        self._number = topic.topic_id

    def add(self, keys: Sequence[Key]) -> None:
        """Take account of keys that were not there; sorted, their rows written."""
        changes = [self._grow(chunk, end, part) for chunk, end, part in self._split(keys)]
        self._climb(1, changes)

    def remove(self, keys: Sequence[Key]) -> None:
        """Take account of keys that were there; sorted, their rows deleted."""
        changes = []
        for chunk, _, part in self._split(keys):
            is_all = len(part) == chunk.summary.count
            gone = chunk.summary if is_all else self._sum(part)
            self._put(0, Node(chunk.first, chunk.summary - gone))
            changes.append(_Change(chunk.first, Summary() - gone, is_cut=False))
        self._climb(1, changes)

    def _split(self, keys: Sequence[Key]) -> Iterator[tuple[Node, Key, Sequence[Key]]]:
        """Keys by chunk, each with the chunk and where that ends."""
        at = 0
        while at < len(keys):
            chunk = node_at(self._db, self._number, 0, keys[at])
            end = following(self._db, self._number, 0, chunk.first)
            stop = bisect_left(keys, end, at)
            yield chunk, end, keys[at:stop]
            at = stop

    def _grow(self, chunk: Node, end: Key, part: Sequence[Key]) -> _Change:
        first, before = chunk
        room = CHUNK_KEYS - before.count
        if len(part) <= room:
            gained = self._sum(part)
            self._put(0, Node(first, before + gained))
            return _Change(first, gained, is_cut=False)
        if count_keys(self._db, self._number, first, part[0]) == before.count:
            pieces = [part[at : at + CHUNK_KEYS] for at in range(room, len(part), CHUNK_KEYS)]
            after = before + self._sum(part[:room])
            self._put(0, Node(first, after))
        else:
            rows = get_keys(self._db, self._number, first, end)
            own, *pieces = _evenly(rows, len(rows) // CHUNK_KEYS + 1)
            after = self._sum(own)
            self._put(0, Node(first, after))
        for piece in pieces:
            summary = self._sum(piece)
            self._put(0, Node(piece[0], summary))
            after += summary
        return _Change(first, after - before, is_cut=True)

    def _climb(self, level: int, changes: list[_Change]) -> None:
        """Bring the changes of the level below to this one, and on."""
        above: list[_Change] = []
        while changes:
            node = node_at(self._db, self._number, level, changes[0].first)
            end = following(self._db, self._number, level, node.first)
            mine = [change for change in changes if change.first < end]
            changes = changes[len(mine) :]
            gained = sum((change.gained for change in mine), Summary())
            is_cut = any(change.is_cut for change in mine) and self._cut(level, node.first, end)
            if not is_cut:
                self._put(level, Node(node.first, node.summary + gained))
            above.append(_Change(node.first, gained, is_cut))
        if above and level + 1 < LEVELS:
            self._climb(level + 1, above)

    def _cut(self, level: int, first: Key, end: Key) -> bool:
        """Cut a node that has too many children; return whether it had."""
        children = get_nodes(self._db, self._number, level - 1, first, end)
        if len(children) <= 2 * _CHILDREN:
            return False
        for part in _evenly(children, len(children) // _CHILDREN):
            total = sum((child.summary for child in part), Summary())
            self._put(level, Node(part[0].first, total))
        return True

    def _put(self, level: int, node: Node) -> None:
        first, summary = node
        if summary.count < 0:
            raise RecordDamagedError(f"the sums of topic {self._topic.name!r} are damaged")
        if summary.count or self._begins_above(level, first):
            put_node(self._db, self._number, level, node)
            return
        for below in range(level + 1):
            drop_node(self._db, self._number, below, first)

    def _begins_above(self, level: int, first: Key) -> bool:
        """Whether a node of the next level begins at the same key."""
        if level + 1 == LEVELS:
            return first == BEGIN
        return node_at(self._db, self._number, level + 1, first).first == first

    def _sum(self, keys: Sequence[Key]) -> Summary:
        return summary_of(self._topic.name, keys)


def begin_history(
    db: sqlite3.Connection, topic: TopicRow, window: Window, refusals: Sequence[Entry] = ()
) -> Record:
    """Begin the index of a topic of which nothing is indexed, with what is known otherwise."""
    record = Record(topic.topic_id, topic.first_offset, window)
    put_record(db, record)
    for level in range(LEVELS):
        put_node(db, topic.topic_id, level, Node(BEGIN, Summary()))
    put_refusals(db, topic.topic_id, refusals)
    Tree(db, topic).add(put_keys(db, topic.topic_id, sorted(refusals)))
    return record


def _evenly(items: Sequence[Item], parts: int) -> list[Sequence[Item]]:
    ends = [number * len(items) // parts for number in range(parts + 1)]
    return [items[start:end] for start, end in pairwise(ends)]
