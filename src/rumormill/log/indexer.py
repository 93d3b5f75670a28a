"""Keeps the index of histories up with the events, outside the way of appends.

An append writes no index. Each topic's record says up to which offset it is indexed, and the writer
goes on from there in bounded pieces between two groups: when somebody asks for histories, and by
itself when it is idle and far behind. Keys, sums and record of a piece are one transaction, so that
no crash can leave them apart. What leaves the log leaves the index in the same transaction.

The rule of this file: a damaged index harms nothing but itself. It is made anew from the events; if
even that fails, there are no histories until a repair, and events are served and taken as before.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from rumormill.core.event import Note
from rumormill.core.history import Deleted, Key, Window
from rumormill.log.errors import (
    CorruptLogError,
    Finding,
    FindingKind,
    RecordDamagedError,
    is_corruption,
)
from rumormill.log.index_rows import (
    INDEX_TABLES,
    Entry,
    Record,
    drop_keys,
    first_refusal,
    get_record,
    get_refusals,
    last_refusal,
    likely_window,
    put_keys,
    put_record,
    put_refusals,
    stored_key,
)
from rumormill.log.index_tree import Tree, begin_history
from rumormill.log.notes import DELETED, get_note, put_notes
from rumormill.log.rows import MAX_OFFSET, Group, TopicRow
from rumormill.log.writer import Writer

MAX_REFUSALS: Final = 65_536
"""Ids of a topic that are known and not stored: our choice, about 10 MB."""

_PIECE_EVENTS: Final = 512
"""Most events indexed in one transaction: some milliseconds, as in retention."""
_EVENTS: Final = "SELECT key, id, author, created FROM events WHERE key BETWEEN ? AND ?"

Result = TypeVar("Result")
_log = logging.getLogger("rumormill.log")


class IndexDamagedError(Exception):
    """The index is not what was written; inside the store only."""


class Gone(NamedTuple):
    """What must be known of an event that is deleted."""

    received: float
    id: bytes
    author: bytes
    created: float | None


class Indexer:
    """The index's part of the log's writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._is_distrusted = False
        writer.spare_work = self._work_when_idle

    # Called from any thread.

    def catch_up(self) -> None:
        """Return when everything is indexed that was committed before the call."""
        if not self._writer.unindexed:
            return
        ends = self._writer.run(self._ends).result()
        while ends:
            self._writer.run(partial(self.attempt, partial(self._piece, ends))).result()

    def know(self, topic: str, keys: Sequence[Key]) -> None:
        """Remember ids that are known and will not be stored, the latest `MAX_REFUSALS`."""
        self.catch_up()
        self._writer.admit([topic])
        for start in range(0, len(keys), _PIECE_EVENTS):
            body = partial(self._know, topic, keys[start : start + _PIECE_EVENTS])
            self._writer.run(partial(self.attempt, partial(self._transact, body))).result()

    def reconsider(self, topic: str) -> bool:
        """Forget which ids of a topic are known and not stored; return whether there were any."""
        found, more = False, True

        def body(_: Group) -> None:
            nonlocal found, more
            row = self._writer.topics.get(topic)
            first = None if row is None else first_refusal(self._db, row.topic_id)
            if more := row is not None and first is not None:
                found = True
                self._drop_refusals(row, first + _PIECE_EVENTS - 1)

        while more:
            self._writer.run(partial(self.attempt, partial(self._transact, body))).result()
        return found

    def distrust(self, reason: CorruptLogError) -> None:
        """Somebody met damage while reading histories: make them anew, once."""
        if not self._is_distrusted:
            self._is_distrusted = True
            self._writer.run(partial(self.attempt, partial(self._rebuild, reason))).result()

    # Called by the writer's thread only.

    @property
    def _db(self) -> sqlite3.Connection:
        return self._writer.db

    def begin_anew(self) -> None:
        """The writer has gone over to another database."""
        self._is_distrusted = False
        self.load()

    def attempt(self, job: Callable[[], Result]) -> Result:
        """Do a job; if the index is damaged, make it anew and try once more."""
        try:
            try:
                return job()
            except IndexDamagedError as error:
                self._rebuild(error)
                return job()
        except IndexDamagedError as error:
            finding = Finding(FindingKind.INDEX, detail=f"no histories until a repair: {error}")
            raise CorruptLogError(finding.sentence(), (finding,)) from error

    def load(self) -> None:
        """Learn at the opening how far each topic is indexed."""
        with contextlib.suppress(CorruptLogError):
            self.attempt(self._writer.exclusively(self._load))

    def forget(self, topic: TopicRow, gone: Sequence[Gone | None]) -> Deleted:
        """Let go of a topic's first events; None stands for one that was lost before.

        Part of the transaction that deletes them; `topic` is as it was before. What is deleted then
        is returned, for when the transaction is safe.
        """
        with _guarded():
            self._advance(topic, topic.first_offset + len(gone), len(gone))
            record = self._record(topic)
            window, deleted = record.window, _deleted(self._db, topic.name, record.window)
            entries, dates = [], []
            for offset, event in enumerate(gone, topic.first_offset):
                key = event and stored_key(topic, event.id, event.author, event.created)
                if event and key:
                    window = window.without(key.stamp, event.received)
                    entries.append(Entry(key, offset))
                    dates.append((event.author, key.stamp, event.received))
            Tree(self._db, topic).remove(drop_keys(self._db, topic.topic_id, sorted(entries)))
            put_record(self._db, msgspec.structs.replace(record, window=window))
            deleted.add(dates)
            put_notes(self._db, (Note(DELETED + topic.name, msgspec.msgpack.encode(deleted)),))
        return deleted

    def _load(self) -> None:
        writer = self._writer
        with _guarded():
            for topic in writer.topics.values():
                record = get_record(self._db, topic.topic_id)
                if record is not None and record.window != Window():
                    writer.deleted[topic.name] = _deleted(self._db, topic.name, record.window)
                self._expect(topic, topic.first_offset if record is None else record.indexed_to)

    def _expect(self, topic: TopicRow, indexed_to: int) -> None:
        """There are events of a topic to be indexed, if there are."""
        behind = topic.next_offset - max(indexed_to, topic.first_offset)
        if behind > 0:
            self._writer.unindexed[topic.name] = None
            self._writer.backlog += behind

    def _ends(self) -> dict[str, int]:
        """Where the topics end that have events to be indexed."""
        topics = self._writer.topics
        return {name: topics[name].next_offset for name in self._writer.unindexed}

    def _work_when_idle(self) -> None:
        try:
            self.attempt(partial(self._piece, self._ends()))
        except BaseException:
            self._writer.backlog = 0  # the next try comes when there is as much to do again
            raise

    def _piece(self, ends: dict[str, int]) -> None:
        """Index some events, of topics up to their ends; those that get there are taken out."""
        writer = self._writer
        done: list[str] = []
        left = _PIECE_EVENTS
        for name in [each for each in ends if each not in writer.topics]:  # a repair gave it up
            del ends[name]

        def body(_: Group) -> None:
            nonlocal left
            for name, end in ends.items():
                taken, is_done = self._advance(writer.topics[name], end, left)
                left -= max(taken, 1)
                if is_done:
                    done.append(name)
                if left <= 0:
                    break

        self._transact(body)
        writer.wrote_pages(_PIECE_EVENTS - left)
        writer.backlog -= _PIECE_EVENTS - left
        for name in done:
            if writer.topics[name].next_offset <= ends.pop(name):
                writer.unindexed.pop(name, None)
        if not writer.unindexed:
            writer.backlog = 0

    def _advance(self, topic: TopicRow, end: int, limit: int) -> tuple[int, bool]:
        """Index at most so many events up to an offset; return how many, and whether all are."""
        record = self._record(topic)
        start = max(record.indexed_to, topic.first_offset)
        stop = min(end, start + limit)
        if start < stop:
            entries = self._entries(topic, start, stop)
            Tree(self._db, topic).add(put_keys(self._db, topic.topic_id, entries))
            put_record(self._db, msgspec.structs.replace(record, indexed_to=stop))
        return max(stop - start, 0), stop >= end

    def _record(self, topic: TopicRow) -> Record:
        """A topic's record, made if there is none, with the sums of nothing."""
        record = get_record(self._db, topic.topic_id)
        if record is None:
            record = begin_history(self._db, topic, likely_window(self._db, topic))
        return record

    def _entries(self, topic: TopicRow, start: int, stop: int) -> list[Entry]:
        """The entries of stored events in the order of their keys, without what is damaged."""
        try:
            rows = self._db.execute(_EVENTS, (topic.key(start), topic.key(stop - 1))).fetchall()
        except sqlite3.Error:
            rows = []
            for offset in range(start, stop):
                with contextlib.suppress(sqlite3.Error):
                    rows += self._db.execute(_EVENTS, (topic.key(offset),) * 2).fetchall()
        found: dict[Key, int] = {}
        for row, *fields in rows:
            key = stored_key(topic, *fields)
            if key is not None:
                found[key] = row & MAX_OFFSET
        return [Entry(*item) for item in sorted(found.items())]

    def _know(self, name: str, keys: Sequence[Key], group: Group) -> None:
        topic = group.topic(name)
        if name not in self._writer.topics:
            group.changed[name] = topic
        number = topic.topic_id
        self._record(topic)
        query = "SELECT 1 FROM history_keys WHERE topic_id = ? AND stamp = ? AND id = ?"
        new = [
            key
            for key in dict.fromkeys(keys)
            if not self._db.execute(query, (number, *key)).fetchone()
        ]
        last = last_refusal(self._db, number)
        refusals = [Entry(key, -place) for place, key in enumerate(new, last + 1)]
        put_refusals(self._db, number, refusals)
        Tree(self._db, topic).add(put_keys(self._db, number, sorted(refusals)))
        self._drop_refusals(topic, last + len(new) - MAX_REFUSALS)

    def _drop_refusals(self, topic: TopicRow, upto: int) -> None:
        """Ids up to a number are not known any more."""
        number = topic.topic_id
        refusals = sorted(get_refusals(self._db, number, upto))
        Tree(self._db, topic).remove(drop_keys(self._db, number, refusals))
        self._db.execute("DELETE FROM refusals WHERE topic_id = ? AND number <= ?", (number, upto))

    def _rebuild(self, reason: Exception) -> None:
        """Make keys and sums anew, and what is not whole of the records; the events come later."""
        _log.warning("the index of histories is damaged and made anew: %s", reason)
        writer = self._writer
        self._transact(self._empty)
        writer.counters.indexes_rebuilt += 1
        writer.unindexed.clear()
        writer.backlog = 0
        self._load()

    def _empty(self, _: Group) -> None:
        for name, statement in INDEX_TABLES.items():
            if name in ("history_keys", "history_sums"):
                self._db.execute(f"DROP TABLE IF EXISTS {name}")
                self._db.execute(statement)
        for topic in self._writer.topics.values():
            window = likely_window(self._db, topic)
            with contextlib.suppress(RecordDamagedError):
                record = get_record(self._db, topic.topic_id)
                window = window if record is None else record.window
            refusals = get_refusals(self._db, topic.topic_id)
            self._db.execute("DELETE FROM refusals WHERE topic_id = ?", (topic.topic_id,))
            begin_history(self._db, topic, window, refusals)

    def _transact(self, body: Callable[[Group], None]) -> None:
        """A transaction that changes no topic's own record, and is kept nevertheless."""

        def guarded(group: Group) -> None:
            with _guarded():
                body(group)
            group.noted = True

        self._writer.transact(guarded)


def _deleted(db: sqlite3.Connection, topic: str, window: Window) -> Deleted:
    """What was deleted when retention last ran; all before the window, where no note tells."""
    with contextlib.suppress(CorruptLogError, msgspec.DecodeError):
        kept = get_note(db, DELETED + topic)
        if kept is not None:
            return msgspec.msgpack.decode(kept, type=Deleted)
    return Deleted(others=window.keep_from - 1)


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Tell damage of the index from damage of the log."""
    try:
        yield
    except sqlite3.Error as error:
        if is_corruption(error):
            raise IndexDamagedError(str(error)) from error
        raise
