"""The event log: open, append, read, keep, verify, close.

An event is safe when its ticket has resolved, in the sense of the log's `Durability`:

  FSYNC    it is in the database's write-ahead log, and that file has been flushed to the disk
  OS       it has been handed to the operating system: it outlives this process, not the machine
  MEMORY   it is in this process

Readers see an event at its commit, which is before its ticket resolves by the time it takes to note
the heads; in the default mode it is already on disk then. So nobody is ever shown an event that a
crash can take back, unless a weaker mode was chosen.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Self

from rumormill.core.errors import ConfigError
from rumormill.core.event import Event, Kept, Position
from rumormill.core.history import Key
from rumormill.log import check, errors, files, model, opening, reader, schema
from rumormill.log.calls import Counters, Notice, Standing, Tell, Ticket
from rumormill.log.check import State
from rumormill.log.heads import HeadsFile, Upkeep
from rumormill.log.histories import StoredHistories, Tags
from rumormill.log.indexer import Indexer
from rumormill.log.model import StoreConfig, TopicExtent, check_topic
from rumormill.log.retention import Retainer
from rumormill.log.rows import SELECT_ID, EventRow, TopicRow, row_event, row_is_whole
from rumormill.log.segments import Segments
from rumormill.log.writer import Writer

DEFAULT_CONFIG = StoreConfig()


class EventLog:
    """One store. Thread-safe: any thread may append and read; one thread inside writes.

    `EventLog(home)` opens the store in the directory `home` for writing, and creates it if there is
    none. Damage is not served around: opening raises `CorruptLogError`, whose findings name topics
    and ranges; `rumormill.log.repair` makes the store writable again.

    With `read_only=True` the store is opened beside whoever writes it, and also when it is damaged:
    `findings` then says what is wrong, and only reads that touch the damage raise.

    Without a home, with `Durability.MEMORY`, the log lives in memory.
    """

    def __init__(
        self,
        home: Path | str | None,
        config: StoreConfig = DEFAULT_CONFIG,
        *,
        read_only: bool = False,
    ) -> None:
        config.validate()
        self._in_memory = config.durability is model.Durability.MEMORY
        if (home is None) != self._in_memory and not read_only:
            raise ConfigError(
                "store.durability must be memory for a log without a directory, and only then"
            )
        self.config = config
        self.home = None if home is None else Path(home)
        self._where = "in memory" if self.home is None else str(self.home)
        self.segments: Segments | None = None
        if self.home is not None and config.segment_rows:
            self.segments = Segments(self.home, config.segment_rows)
        self.unwitnessed: int | None = None
        """Since which commit, when this log was opened, the heads file could not be written."""
        self._barred: dict[str, list[errors.Finding]] = {}
        self._epoch = 0
        self._cleanup = contextlib.ExitStack()
        self._writer: Writer | None = None
        try:
            if home is None:
                self._open_memory()
            elif read_only:
                self._open_reading(Path(home))
            else:
                self._open_writing(Path(home))
        except BaseException:
            self._cleanup.close()
            raise

    # Writing

    def append(
        self, events: Sequence[Event], *, wait: bool = True, notes: Sequence[Kept | Position] = ()
    ) -> Ticket:
        """Queue events for the next group commit; the ticket resolves when they are safe.

        All events of one call are committed together or not at all. Their `offset` is ignored: the
        ticket's result says, for each, which offset it has and whether it was there before (the
        event with this id that is already in the topic is kept, whatever else differs).

        When the queue is full the call waits; with `wait=False`, which a caller on an event loop
        wants, it raises `QueueFullError`. In asyncio, await `asyncio.wrap_future(ticket)`.
        """
        ticket: Ticket = Future()
        self.writer().submit(events, notes, ticket, wait=wait)
        return ticket

    def append_soon(
        self, events: Sequence[Event], notes: Sequence[Kept], tell: Tell, *, at_once: bool = True
    ) -> tuple[model.Appended, ...] | None:
        """The same for an event loop, which waits for nothing: `tell` hears of it later.

        Where there is no disk, little to do and nothing before it, it is done at once, in this
        thread; then nobody is told, and what a ticket would give is returned, or raised.
        """
        writer = self.writer()
        if at_once and self._in_memory:
            places = writer.commit_at_once(events, notes)
            if places is not None:
                return places
        writer.submit(events, notes, Notice(tell), wait=False)
        return None

    def retain(self, policies: Mapping[str, model.Retention], now: float) -> dict[str, int]:
        """Delete each topic's oldest events beyond its policy; return how many were deleted.

        Offsets are not touched: `first_offset` moves up. Works in small transactions between the
        appends of others, and gives the freed space back to the file system in small steps.
        """
        for policy in policies.values():
            policy.validate()
        retainer = Retainer(self.writer(), self._indexer, self.segments)
        deleted = {name: retainer.run(name, policy, now) for name, policy in policies.items()}
        for name in deleted:
            info = self.writer().topics.get(name)
            bars = self._barred.get(name, [])
            left = [bar for bar in bars if info is None or bar.end > info.first_offset]
            if left:
                self._barred[name] = left
            else:
                self._barred.pop(name, None)
        return deleted

    # Reading

    def topics(self) -> list[TopicExtent]:
        """All topics with their extents, in the order in which they were created."""
        with self.snapshot() as db:
            rows, broken = schema.get_topics(db)
        for number in broken:
            if self._writer is not None:
                detail = f"the record of topic number {number} is damaged"
                finding = errors.Finding(errors.FindingKind.UNREADABLE, detail=detail)
                raise errors.CorruptLogError(finding.sentence(), (finding,))
        infos = {row.name: self._info(row) for row in rows.values()}
        for name, bars in list(self._barred.items()):  # which retention may change meanwhile
            infos.setdefault(name, TopicExtent(name, bars[0].start, bars[-1].end, 0, b""))
        return [*infos.values()]

    def topic(self, name: str) -> TopicExtent | None:
        """One topic's extent; None if the log has never seen it."""
        with self.snapshot() as db:
            row = schema.get_topic(db, name)
        return None if row is None else self._info(row)

    def read(
        self, topic: str, start: int, limit: int = 1000, max_bytes: int = 8 * 2**20
    ) -> list[Event]:
        """Verified events from offset `start`, at most `limit` and about `max_bytes` of them.

        At least one event comes back if there is one at `start`, so a caller reads on until the
        list is empty. Damage ends the list before it; a read that starts in it raises
        `DamagedRangeError`, which says where to go on. A topic that nobody wrote to is empty.
        """
        return [row_event(row, topic) for row in self.rows(topic, start, limit, max_bytes)]

    def read_since(
        self, topic: str, since: float, limit: int = 1000, max_bytes: int = 8 * 2**20
    ) -> list[Event]:
        """The first events, by offset, that were received at `since` or later.

        To go on, `read` from behind the last one.
        """
        with self.snapshot() as db:
            row = schema.get_topic(db, topic)
            if row is None:
                return []
            position = reader.offset_before(db, row, since)
        found: list[Event] = []
        while len(found) < limit:
            position = reader.behind_loss(self.losses(topic), position)
            try:
                events = self.read(topic, position, 1000, max_bytes)
            except errors.OffsetGoneError as gone:  # deleted since we looked
                position = gone.first_offset
                continue
            if not events:
                break
            found += [event for event in events if event.received >= since]
            position = events[-1].offset + 1
            if found and sum(len(event.data) for event in found) >= max_bytes:
                break
        return found[:limit]

    def find(self, topic: str, event_id: bytes) -> Event | None:
        """The event of an id, verified; None where there is none that can be served."""
        with self.snapshot() as db:
            info = schema.get_topic(db, topic)
            if info is None:
                return None
            row = db.execute(SELECT_ID, (info.topic_id, event_id)).fetchone()
        if row is None or not row_is_whole(row, info.topic_id, topic.encode()):
            return None
        event = row_event(row, topic)
        bar = reader.next_bar(self._barred.get(topic, []), event.offset)
        return None if bar is not None and bar.start <= event.offset else event

    def chunks(
        self, topic: str, start: int | None = None, stop: int | None = None, limit: int = 1000
    ) -> Iterator[list[Event]]:
        """All events from `start` to before `stop`, in lists of at most `limit`.

        The end is fixed at the first step, so a log that grows does not keep the reader for ever.
        Between the steps nothing is held open. If retention deletes events that are still to come,
        `OffsetGoneError` says so: none is skipped in silence.
        """
        info = self.topic(topic)
        if info is None:
            return
        position = info.first_offset if start is None else start
        end = info.next_offset if stop is None else min(stop, info.next_offset)
        while position < end:
            events = self.read(topic, position, min(limit, end - position))
            if not events:
                return
            position = events[-1].offset + 1
            yield events

    @contextlib.contextmanager
    def histories(self) -> Iterator[StoredHistories]:
        """All topics' histories at one moment; indexes first what was committed before the call."""
        self.writer()
        self._indexer.catch_up()
        try:
            with self.snapshot() as db:
                yield StoredHistories(db, self._tags)
        except errors.CorruptLogError as error:
            self._indexer.distrust(error)
            raise

    def know(self, topic: str, keys: Sequence[Key]) -> None:
        """Remember keys of events that were verified and will not be stored.

        They count as known in the topic's history: of the latest 65,536 nobody is asked again.
        """
        writer = self.writer()
        if topic not in writer.names:
            check_topic(topic, self.config)
        self._indexer.know(topic, keys)

    def reconsider(self, topic: str) -> bool:
        """Forget which events were not wanted (`know`); return whether there were any."""
        self.writer()
        return self._indexer.reconsider(topic)

    def verify(self) -> model.Report:
        """Verify every row and every record; takes as long as reading the whole file."""
        with self.snapshot() as db:
            report = check.verify_all(db)
        findings = (*report.findings, *self.findings)
        return model.Report(tuple(dict.fromkeys(findings)), report.events, report.size)

    @property
    def counters(self) -> Counters:
        """What the writer has done since the log was opened."""
        return self.writer().counters

    @property
    def writable(self) -> bool:
        """Whether this log was opened for writing."""
        return self._writer is not None

    def close(self) -> None:
        """Commit what is queued, then let go of all files. May be called twice."""
        self._cleanup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Opening

    def _open_memory(self) -> None:
        db = schema.connect_writer(None, self.config)
        schema.create_schema(db, os.urandom(check.STORE_ID_BYTES))
        self.findings: tuple[errors.Finding, ...] = ()
        self._readers = reader.Readers(None, self.config.readers, shared=db)
        self._start(db, State(), None)

    def _open_writing(self, home: Path) -> None:
        schema.make_home(home)
        self._cleanup.enter_context(schema.store_lock(home))
        opened = opening.open_writing(home, self.config)
        self.findings = ()
        self._epoch = opened.epoch
        self._readers = reader.Readers(opened.path, self.config.readers)
        self._start(opened.db, opened.state, opened.heads)

    def _open_reading(self, home: Path) -> None:
        opened = opening.open_reading(home, self.config)
        self.findings = tuple(opened.state.findings)
        self.unwitnessed = opened.state.unwitnessed
        self._epoch = opened.epoch
        self._readers = reader.Readers(opened.path, self.config.readers)
        self._cleanup.callback(self._readers.close)
        self._barred = _bars([*opened.state.losses, *self.findings])

    def _start(self, db: sqlite3.Connection, state: State, heads: HeadsFile | None) -> None:
        self._cleanup.callback(db.close)
        self._barred = _bars(state.losses)
        self._writer = Writer(
            self._standing(db, state, heads),
            # Who reads a disk waits for no commit, whose flush may take as long as it likes.
            db_lock=self._readers.lock if self._in_memory else threading.RLock(),
            config=self.config,
            where=self._where,
        )
        self._cleanup.callback(self._close_connections)
        self._cleanup.callback(self._writer.close)
        self._indexer = Indexer(self._writer)
        self._writer.run(self._indexer.load).result()
        self._tags = Tags(self._writer)

    def _standing(self, db: sqlite3.Connection, state: State, heads: HeadsFile | None) -> Standing:
        topics = {row.name: row for row in state.topics.values()}
        if heads is None:
            return Standing(db, topics, state.generation, state.unwitnessed, None)
        upkeep = Upkeep(heads, self.config.durability, self.config.heads_sync_commits)
        return Standing(db, topics, heads.generation, state.unwitnessed, upkeep)

    def _close_connections(self) -> None:
        """Close the connections, the writing one last unless the disk has failed."""
        writer, path = self.writer(), self._readers.path
        if path is not None and writer.failed:
            opening.close_unfolded(writer.db, path)
        self._readers.close()
        writer.db.close()

    # Going over to another epoch

    def renew(self, build: Callable[[Path], model.Report]) -> model.Report:
        """Have `build` make another epoch of our home the valid one, and go over to it.

        Repair and restore use it. The writer does it between two groups: appends wait meanwhile,
        and reads are those of the old epoch until the new one is open. If `build` raises or changes
        nothing, nothing has happened; if it raises when the heads file is replaced already, or the
        new epoch cannot be opened, the log stops. Works also when the disk has failed under it.
        """
        if self.home is None:
            raise errors.NotAStoreError("the log is in memory: there are no files to work on")
        done: Future[model.Report]
        done = self.writer().run(partial(self._renew, build, self.home), mends=True)
        return done.result()

    def _renew(self, build: Callable[[Path], model.Report], home: Path) -> model.Report:
        writer, heads = self.writer(), home / check.HEADS_NAME
        before = files.state_of(heads)
        try:
            report = build(home)
        except BaseException as error:
            if files.state_of(heads) == before:
                raise
            raise self._stop_between(error) from error
        if files.state_of(heads) == before:
            return report
        writer.let_go()  # the heads file is another's from here on
        try:
            opened = opening.open_writing(home, self.config)
        except errors.StoreError as error:
            raise self._stop_between(error) from error
        old, left = writer.db, self._readers.path
        writer.go_on(self._standing(opened.db, opened.state, opened.heads))
        self._barred = _bars(opened.state.losses)
        self._readers.go_over(opened.path)
        self._epoch = opened.epoch
        self._indexer.begin_anew()
        assert left is not None
        opening.close_unfolded(old, left)
        return report

    def _stop_between(self, error: BaseException) -> errors.StoreError:
        """Store nothing more: another epoch counts, or will after a power cut, and is not open."""
        self.writer().let_go()
        return self.writer().stop(
            errors.StoreFailedError(
                f"the store {self.home} was to go over to another database, and that failed"
                f" (`rumormill repair`, or a restart): {error}"
            )
        )

    def _follow(self, home: Path) -> None:
        """Who only reads goes over to another epoch when it sees that the writer has."""
        epoch = check.valid_epoch(home)
        if epoch in (None, self._epoch):
            return
        opened = opening.open_reading(home, self.config)
        self._barred = _bars([*opened.state.losses, *opened.state.findings])
        self._readers.go_over(opened.path)
        self._epoch, self.findings = opened.epoch, tuple(opened.state.findings)

    # Inside

    def losses(self, topic: str) -> list[tuple[int, int]]:
        """Ranges of offsets that are recorded as lost."""
        bars = self._barred.get(topic, [])
        return [(bar.start, bar.end) for bar in bars if bar.kind is errors.FindingKind.REPAIRED]

    def bar_loss(self, topic: str, start: int, end: int) -> None:
        """Stop serving a range that was recorded as lost; for the store's own modules."""
        self._barred.setdefault(topic, []).append(
            errors.Finding(errors.FindingKind.REPAIRED, topic, start, end)
        )

    def _info(self, row: TopicRow) -> TopicExtent:
        end = row.next_offset
        bars = self._barred.get(row.name)
        if bars:
            end = max(end, bars[-1].end)
        return TopicExtent(row.name, row.first_offset, end, row.size, row.head_hash)

    def rows(self, name: str, start: int, limit: int, max_bytes: int = 8 * 2**20) -> list[EventRow]:
        """What `read` does, with the hashes; for the store's own modules."""
        found = self.within(name, start, limit, partial(reader.read_rows, max_bytes=max_bytes))
        rows, finding = found or ([], None)
        if finding is not None and not rows:
            raise errors.DamagedRangeError(finding)
        return rows

    def within(self, name: str, start: int, limit: int, read: reader.RangeReader[Any]) -> Any:
        """Have `read` read a range that may be served, in one snapshot; None if there is none."""
        if start < 0:
            raise errors.OffsetAheadError(name, start, 0)
        if limit < 1:
            raise ValueError("limit is below 1")
        bar = reader.next_bar(self._barred.get(name, []), start)
        if bar is not None and bar.start <= start:
            raise errors.DamagedRangeError(bar)
        with self.snapshot() as db:
            row = schema.get_topic(db, name)
            info = TopicExtent(name, 0, 0, 0, b"") if row is None else self._info(row)
            if start < info.first_offset:
                raise errors.OffsetGoneError(name, start, info.first_offset)
            if start > info.next_offset:
                raise errors.OffsetAheadError(name, start, info.next_offset)
            if row is None or start >= row.next_offset:
                return None
            stop = min(row.next_offset, start + limit, start + limit if bar is None else bar.start)
            return read(db, row, start, stop, prev=reader.previous_hash(db, row, start))

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A read transaction; for the store's own modules."""
        if self._writer is None and self.home is not None:
            self._follow(self.home)
        with errors.translated(self._where), self._readers.snapshot() as db:
            yield db

    def change(self, body: Callable[[sqlite3.Connection], None]) -> None:
        """Have the writer change something between two groups; for the store's own modules."""
        writer = self.writer()
        writer.run(writer.exclusively(lambda: body(writer.db))).result()

    def writer(self) -> Writer:
        """The writer of a log that was opened for writing; for the store's own modules."""
        if self._writer is None:
            raise errors.StoreReadOnlyError(f"the log {self.home} was opened for reading only")
        return self._writer


def _bars(findings: Sequence[errors.Finding]) -> dict[str, list[errors.Finding]]:
    """Ranges that must not be served, by topic, in order and without overlaps."""
    barred: dict[str, list[errors.Finding]] = {}
    for finding in sorted(findings, key=lambda finding: (finding.start, finding.end)):
        if finding.topic is None or finding.start >= finding.end:
            continue
        bars = barred.setdefault(finding.topic, [])
        if bars and bars[-1].end >= finding.end:
            continue
        bars.append(finding)
    return barred
