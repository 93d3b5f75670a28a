"""Verified reads: the only way by which events leave the database.

The rule of this file: a row is handed out only after its hash has been recomputed, its link to the
row before it compared, and its offset found to be the expected one. Whatever is missing, damaged or
out of line becomes a finding with its range. Every query is bounded by a count and by bytes.
"""

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rumormill.log.errors import Finding, FindingKind, StoreClosedError
from rumormill.log.model import TopicExtent
from rumormill.log.rows import (
    MARK_EVERY,
    MAX_OFFSET,
    SELECT,
    SELECT_ONE,
    UNKNOWN_HASH,
    EventRow,
    TopicRow,
    row_bytes,
    row_is_whole,
    seal_mark,
)
from rumormill.log.schema import connect_reader, rollback

Found_co = TypeVar("Found_co", covariant=True)

_CHUNK_EVENTS = 512
_CHUNK_BYTES = 8 * 2**20
"""Our choice: what a walk over a whole range has in memory at a time."""


class RangeReader(Protocol[Found_co]):
    """Reads and verifies a range of rows; `prev` is what the first must link to, if known."""

    def __call__(
        self,
        db: sqlite3.Connection,
        topic: TopicRow,
        start: int,
        stop: int,
        *,
        prev: bytes | None = None,
    ) -> Found_co:
        """Return what was found."""


class Log(Protocol):
    """What notes and segments need of the log that they belong to."""

    def topic(self, name: str) -> TopicExtent | None:
        """A topic's extent."""

    def within(self, name: str, start: int, limit: int, read: RangeReader[Any]) -> Any:
        """Have `read` read a range that may be served, in one snapshot; None if there is none."""

    def snapshot(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A read transaction."""

    def change(self, body: Callable[[sqlite3.Connection], None]) -> None:
        """A write transaction of its own; returns when it is committed."""


class Readers:
    """A bounded pool of read connections. In memory there is only the writer's, used in turns."""

    def __init__(
        self, path: Path | None, limit: int, shared: sqlite3.Connection | None = None
    ) -> None:
        self.path = path
        self._idle: deque[sqlite3.Connection] = deque()
        self._slots = threading.BoundedSemaphore(limit)
        self._shared = shared
        self.lock = threading.RLock()
        self._closed = False

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection inside a read transaction: everything read from it is of one moment."""
        if self._shared is not None:
            with self.lock:
                self._check_open()
                yield self._shared
            return
        with self._slots:
            db, path = self._take()
            try:
                db.execute("BEGIN")
                yield db
            finally:
                rollback(db)
                self._give_back(db, path)

    def go_over(self, path: Path) -> None:
        """Read from another database from now on; who reads is let finish in the old one."""
        with self.lock:
            self.path = path
            while self._idle:
                self._idle.pop().close()

    def close(self) -> None:
        """Close the idle connections now and the others when they come back."""
        with self.lock:
            self._closed = True
            while self._idle:
                self._idle.pop().close()

    def _take(self) -> tuple[sqlite3.Connection, Path]:
        with self.lock:
            self._check_open()
            path = self.path
            assert path is not None
            if self._idle:
                return self._idle.pop(), path
        return connect_reader(path), path

    def _give_back(self, db: sqlite3.Connection, path: Path) -> None:
        with self.lock:
            if self._closed or path != self.path:
                db.close()
            else:
                self._idle.append(db)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the log is closed")


def read_rows(
    db: sqlite3.Connection,
    topic: TopicRow,
    start: int,
    stop: int,
    *,
    max_bytes: int,
    prev: bytes | None = None,
) -> tuple[list[EventRow], Finding | None]:
    """Verified rows from `start`, at most to `stop`, and the damage that ended them, if any did.

    `prev` is the hash that the first row must link to, None if it is not known. At least one row or
    a finding comes back if `start < stop`, however small `max_bytes` is.
    """
    if prev is None and start == topic.first_offset and topic.base_hash != UNKNOWN_HASH:
        prev = topic.base_hash
    taken = _Taken(topic, start, stop, max_bytes, prev)
    try:
        finding = taken.take(db.execute(SELECT, (topic.key(start), topic.key(stop - 1))))
        is_certain = finding is None or finding.kind is FindingKind.FORKED
    except sqlite3.Error:
        is_certain = False
    if not is_certain:
        # A range query stumbles over a damaged page's neighbours too; a lookup may still find them.
        finding = taken.take(_one_by_one(db, topic, taken.expected, stop))
    rows = taken.rows
    at_head = finding is None and rows and taken.expected == topic.next_offset
    if at_head and rows[-1][11] != topic.head_hash:
        last = rows.pop()[0] & MAX_OFFSET
        finding = _one(FindingKind.FORKED, topic, last, "it is not the topic's head")
    return rows, finding


class _Taken:
    """Rows that have passed the checks, and what the next one must be."""

    def __init__(
        self, topic: TopicRow, start: int, stop: int, max_bytes: int, prev: bytes | None
    ) -> None:
        self.rows: list[EventRow] = []
        self.expected = start
        self._topic = topic
        self._name = topic.name.encode()
        self._stop = stop
        self._bytes_left = max_bytes
        self._prev = prev

    def take(self, source: Iterable[EventRow]) -> Finding | None:
        """Take rows up to a limit (then return None) or up to the first damage."""
        topic, name, topic_id = self._topic, self._name, self._topic.topic_id
        for row in source:
            offset = row[0] & MAX_OFFSET
            if not self.expected <= offset < self._stop:
                return _one(FindingKind.DAMAGED, topic, self.expected, "rows are out of order")
            if offset != self.expected:
                return _missing(topic, self.expected, offset)
            if not row_is_whole(row, topic_id, name):
                return _one(FindingKind.DAMAGED, topic, offset, "its hash does not match")
            if self._prev is not None and row[10] != self._prev:
                return _one(FindingKind.FORKED, topic, offset, "the chain is broken")
            self.rows.append(row)
            self._prev = row[11]
            self.expected = offset + 1
            self._bytes_left -= row_bytes(row)
            if self._bytes_left <= 0:
                return None
        if self.expected < self._stop:
            return _missing(topic, self.expected, self._stop)
        return None


def _one_by_one(
    db: sqlite3.Connection, topic: TopicRow, start: int, stop: int
) -> Iterator[EventRow]:
    """Rows looked up each on its own; one that cannot be read comes as a row that is not whole."""
    for offset in range(start, stop):
        key = topic.key(offset)
        try:
            found = db.execute(SELECT_ONE, (key,)).fetchone()
        except sqlite3.Error:
            found = (key,) + (None,) * 11
        if found is not None:
            yield found


def walk(
    db: sqlite3.Connection,
    topic: TopicRow,
    start: int,
    stop: int,
    *,
    barred: list[Finding],
    use_rows: Callable[[list[EventRow]], None],
) -> list[Finding]:
    """Read and verify a whole range, step over all damage, and return the damage, merged.

    Ranges in `barred` (sorted) are known losses: they are stepped over without a word.
    """
    findings: list[Finding] = []
    position = start
    prev: bytes | None = None
    while position < stop:
        bar = next_bar(barred, position)
        if bar is not None and bar.start <= position:
            position, prev = bar.end, None
            continue
        end = min(stop, position + _CHUNK_EVENTS, stop if bar is None else bar.start)
        rows, finding = read_rows(db, topic, position, end, max_bytes=_CHUNK_BYTES, prev=prev)
        if rows:
            use_rows(rows)
            position += len(rows)
            prev = rows[-1][11]
        if finding is not None:
            _merge(findings, finding)
            position, prev = finding.end, None
    return findings


def next_bar(barred: list[Finding], position: int) -> Finding | None:
    """The first barred range that ends behind `position`; `barred` is sorted."""
    for bar in barred:
        if bar.end > position:
            return bar
    return None


def previous_hash(db: sqlite3.Connection, topic: TopicRow, offset: int) -> bytes | None:
    """The hash of the row before `offset`, None where there is none to be had."""
    return None if offset <= topic.first_offset else hash_at(db, topic, offset - 1)


def hash_at(db: sqlite3.Connection, topic: TopicRow, offset: int) -> bytes | None:
    """The hash of the row at `offset` as it is written there, None if there is no such row."""
    query = "SELECT hash FROM events WHERE key = ?"
    found = db.execute(query, (topic.key(offset),)).fetchone()
    return None if found is None else found[0]


def offset_before(db: sqlite3.Connection, topic: TopicRow, since: float) -> int:
    """An offset before which no event was received at `since` or later.

    The mark at offset k holds the latest receive time of all events before k, so marks never fall
    and can be searched by halves. A mark that is not whole counts as late, which only reads more.
    """
    low = topic.first_offset // MARK_EVERY
    high = topic.next_offset // MARK_EVERY
    while low < high:
        middle = (low + high + 1) // 2
        if _mark_is_before(db, topic.key(middle * MARK_EVERY), since):
            low = middle
        else:
            high = middle - 1
    return max(topic.first_offset, low * MARK_EVERY)


def _mark_is_before(db: sqlite3.Connection, key: int, since: float) -> bool:
    try:
        query = "SELECT received_max, seal FROM marks WHERE key = ?"
        found = db.execute(query, (key,)).fetchone()
    except sqlite3.Error:
        return False
    if found is None or type(found[0]) is not float:
        return False
    return bool(seal_mark(key, found[0]) == found[1] and found[0] < since)


def _missing(topic: TopicRow, start: int, end: int) -> Finding:
    return Finding(FindingKind.MISSING, topic.name, start, end, "no such rows")


def _one(kind: FindingKind, topic: TopicRow, offset: int, detail: str) -> Finding:
    return Finding(kind, topic.name, offset, offset + 1, detail)


def _merge(findings: list[Finding], new: Finding) -> None:
    """Add a finding, or lengthen the last one if it goes on there."""
    if findings:
        last = findings[-1]
        if (last.kind, last.topic, last.end) == (new.kind, new.topic, new.start):
            findings[-1] = Finding(last.kind, last.topic, last.start, new.end, last.detail)
            return
    findings.append(new)


def behind_loss(losses: Sequence[tuple[int, int]], offset: int) -> int:
    """The offset, or the end of the losses that it lies in: one may begin where another ends."""
    for start, end in losses:
        if start <= offset < end:
            offset = end
    return offset
