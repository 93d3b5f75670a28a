"""Retention: delete the oldest events of a topic, never anything else.

The rule of this file: the deleted events are always a prefix, `first_offset` moves to behind them,
and the hash of the last deleted row becomes the topic's base, so that the first remaining row still
has something to link to. Offsets are never touched. Every transaction deletes a bounded number of
rows, so that appends wait for milliseconds at most, and the space goes back in bounded steps.
"""

import contextlib
from collections.abc import Callable
from functools import partial

from rumormill.core.history import Deleted
from rumormill.log.errors import DiskFullError
from rumormill.log.indexer import Gone, Indexer
from rumormill.log.model import Durability, Retention
from rumormill.log.rows import ROW_BYTES_SQL, UNKNOWN_HASH, Group, TopicRow
from rumormill.log.schema import limit_pages
from rumormill.log.segments import Segments
from rumormill.log.writer import Result, Writer

_STEP_EVENTS = 512
"""Most rows deleted in one transaction: a few milliseconds."""
_STEP_PAGES = 512
"""Most pages given back in one step: 2 MiB."""
_SPARE_BYTES = 32 * 2**20
"""What deleting may take of a full database before it gives back; our choice, a checkpoint's."""
_ROWS = f"SELECT received, {ROW_BYTES_SQL}, prev, id, author, created FROM events WHERE key = ?"


class Retainer:
    """Applies policies, as jobs of the log's writer."""

    def __init__(self, writer: Writer, indexer: Indexer, segments: Segments | None) -> None:
        self._writer = writer
        self._indexer = indexer
        self._segments = segments

    def run(self, topic: str, policy: Retention, now: float) -> int:
        """Delete until the policy holds; return how many events went."""
        deleted = 0
        step = _with_spare_room(
            self._writer, partial(self._indexer.attempt, partial(self._step, topic, policy, now))
        )
        while count := self._writer.run(step).result():
            deleted += count
        if deleted:
            with contextlib.suppress(DiskFullError):  # then the space comes back later
                give_back(self._writer)
                self._writer.run(self._writer.checkpoint).result()
        row = self._writer.topics.get(topic)
        if self._segments is not None and row is not None:
            self._segments.prune(topic, row.first_offset)
        return deleted

    def _step(self, topic: str, policy: Retention, now: float) -> int:
        row = self._writer.topics.get(topic)
        if row is None or row.first_offset == row.next_offset:
            return 0
        deleted = 0
        known = Deleted()

        def body(group: Group) -> None:
            nonlocal deleted, known
            changed = group.topic(topic)
            gone, left = self._beyond(changed, policy, now)
            deleted = len(gone)
            if deleted:
                known = self._indexer.forget(changed, gone)
                self._delete(changed, changed.first_offset + deleted, left)
                group.changed[topic] = changed

        self._writer.transact(body)
        if deleted:
            self._writer.deleted[topic] = known
        self._writer.wrote_pages(2 * deleted)
        return deleted

    def _beyond(
        self, row: TopicRow, policy: Retention, now: float
    ) -> tuple[list[Gone | None], int]:
        """The oldest events that must go, None for each that was lost, and the size of the rest."""
        gone: list[Gone | None] = []
        left = row.size
        for offset in range(row.first_offset, row.next_offset)[:_STEP_EVENTS]:
            found = self._writer.db.execute(_ROWS, (row.key(offset),)).fetchone()
            received, size = (None, 0) if found is None else found[:2]
            if not _is_beyond(policy, now, row.next_offset - offset, left, received):
                break
            left -= size
            gone.append(None if found is None else Gone(found[0], *found[3:]))
        return gone, left

    def _delete(self, row: TopicRow, position: int, left: int) -> None:
        """Delete what is before an offset; the rest has so many bytes."""
        db = self._writer.db
        first = row.first_offset
        row.first_offset = position
        row.size = left
        row.base_hash = self._base(row, position)
        db.execute("DELETE FROM events WHERE key BETWEEN ? AND ?", _span(row, first, position))
        db.execute("DELETE FROM marks WHERE key BETWEEN ? AND ?", _span(row, first, position))
        db.execute("DELETE FROM losses WHERE topic_id = ? AND end <= ?", (row.topic_id, position))

    def _base(self, row: TopicRow, first: int) -> bytes:
        if first == row.next_offset:
            return row.head_hash
        found = self._writer.db.execute(_ROWS, (row.key(first),)).fetchone()
        return UNKNOWN_HASH if found is None else found[2]


def give_back(writer: Writer) -> None:
    """Give free pages back to the file system, some at a time between the appends of others."""
    tidy = _with_spare_room(writer, writer.exclusively(partial(_give_back_pages, writer)))
    while writer.run(tidy).result():
        pass


def _with_spare_room(writer: Writer, job: Callable[[], Result]) -> Callable[[], Result]:
    """A job that makes room, which takes some first: it may go beyond the database's limit."""
    in_memory = writer.config.durability is Durability.MEMORY

    def limit(spare: int = 0) -> None:
        limit_pages(writer.db, writer.config, in_memory=in_memory, spare=spare)

    def spared() -> Result:
        writer.exclusively(partial(limit, _SPARE_BYTES))()
        try:
            return job()
        finally:
            writer.exclusively(limit)()

    return spared


def _give_back_pages(writer: Writer) -> bool:
    """Give back some; say whether more are left, and can be."""
    (free,) = writer.db.execute("PRAGMA freelist_count").fetchone()
    if free == 0:
        return False
    # Each step of this statement frees one page. Python takes it for one without results, and
    # runs only its first step, except in a script.
    writer.db.executescript(f"PRAGMA incremental_vacuum({_STEP_PAGES})")
    writer.wrote_pages(2 * min(free, _STEP_PAGES))
    (left,) = writer.db.execute("PRAGMA freelist_count").fetchone()
    return bool(0 < left < free)  # a file that was made without this keeps its pages


def _is_beyond(
    policy: Retention, now: float, events: int, size: int, received: float | None
) -> bool:
    """Whether the oldest event must go; `received` is None for an offset that was lost."""
    if policy.max_events is not None and events > policy.max_events:
        return True
    if policy.max_bytes is not None and size > policy.max_bytes:
        return True
    if received is None:
        return False
    return policy.max_age_seconds is not None and received < now - policy.max_age_seconds


def _span(row: TopicRow, start: int, end: int) -> tuple[int, int]:
    return row.key(start), row.key(end) - 1
