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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Self

from rumormill.core.errors import ConfigError
from rumormill.core.event import Event, Kept, Position
from rumormill.core.history import Key
from rumormill.log import check, errors, model, reader, schema
from rumormill.log.calls import Counters, Notice, Tell, Ticket
from rumormill.log.check import State
from rumormill.log.heads import HeadsFile, Upkeep, Witness, head_of
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
            bars = self._barred.get(name)
            if info is not None and bars:
                self._barred[name] = [bar for bar in bars if bar.end > info.first_offset]
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
        for name, bars in self._barred.items():
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
            events = self.read(topic, position, 1000, max_bytes)
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
        self._cleanup.callback(db.close)
        schema.create_schema(db, os.urandom(check.STORE_ID_BYTES))
        self.findings: tuple[errors.Finding, ...] = ()
        self._readers = reader.Readers(None, self.config.readers, shared=db)
        self._start(db, State(), None)

    def _open_writing(self, home: Path) -> None:
        schema.make_home(home)
        self._cleanup.enter_context(schema.store_lock(home))
        with errors.translated(self._where):
            witness, complaint = check.find_witness(home)
            if witness is None and complaint is None and schema.latest_epoch(home) == 0:
                witness = check.new_witness(home, self.config)
            path = schema.database_path(
                home, witness.epoch if witness else schema.latest_epoch(home)
            )
            is_new = not path.exists() or path.stat().st_size == 0
            if is_new and witness is not None and witness.generation > 0:
                detail = f"{path.name} is missing or empty"
                raise check.damaged(home, check.all_lost(witness, detail).findings)
            if is_new:
                # Leftovers of a database that is gone must not be played into the new one.
                for suffix in ("-wal", "-shm"):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
            if witness is not None or not is_new:
                half_folded = witness is not None and witness.half_folded
                schema.secure_database(path, half_folded=half_folded)
        state = self._open_database(home, path, witness, complaint)
        self.findings = ()
        if witness is None:
            raise AssertionError("a store without heads has a finding")
        # What the database has, and has flushed, is what the new heads file begins with. Its lag
        # after a power cut must not add to that of the next.
        witness.generation = max(witness.generation, state.generation)
        witness.half_folded = False
        witness.heads = {row.topic_id: head_of(row) for row in state.topics.values()}
        witness.slack = self.config.heads_sync_commits
        with errors.translated(self._where):
            heads = HeadsFile(home / check.HEADS_NAME, witness, self.config.durability)
        self._readers = reader.Readers(path, self.config.readers)
        self._start(self._db, state, heads)

    def _open_database(
        self, home: Path, path: Path, witness: Witness | None, complaint: errors.Finding | None
    ) -> State:
        """Check, connect, and raise if anything is wrong.

        The check reads only. A writing connection that is closed again would fold the write-ahead
        log into the database, and with it hide from the next open what this one has found.
        """
        state: State | None = None
        try:
            if path.exists() and path.stat().st_size > 0:
                with contextlib.closing(schema.connect_reader(path)) as db:
                    state = self._examine(db, home, path, witness)
                if state is not None:
                    check.refuse_damage(home, complaint, state)
            self._db = schema.connect_writer(path, self.config)
            self._cleanup.callback(self._db.close)
            if witness is not None and not schema.has_schema(self._db):
                schema.create_schema(self._db, witness.store_id)
            schema.migrate(self._db, schema.check_version(self._db, str(home)))
            if state is None:
                state = check.examine(self._db, path, witness, self.config.open_verify_bytes)
                check.refuse_damage(home, complaint, state)
        except (sqlite3.Error, OSError, errors.NotAStoreError) as error:
            raise check.opening_error(home, witness, error) from error
        return state

    def _examine(
        self, db: sqlite3.Connection, home: Path, path: Path, witness: Witness | None
    ) -> State | None:
        """What is in a database; None if it must be created."""
        if not schema.has_schema(db):
            if witness is None or witness.generation > 0:
                raise check.damaged(home, check.all_lost(witness, f"{path.name} is empty").findings)
            return None
        schema.check_version(db, str(home))
        db.execute("BEGIN")
        return check.examine(db, path, witness, self.config.open_verify_bytes)

    def _open_reading(self, home: Path) -> None:
        with errors.translated(self._where):
            # The heads are read first: the database, read later, must not be behind them.
            witness, complaint = check.find_witness(home)
            epoch = witness.epoch if witness else schema.latest_epoch(home)
            path = schema.database_path(home, epoch)
            if witness is None and complaint is None and epoch == 0:
                raise errors.NotAStoreError(f"there is no rumormill store in {home}")
        try:
            if not path.exists():
                raise check.damaged(
                    home, check.all_lost(witness, f"{path.name} is missing").findings
                )
            with contextlib.closing(schema.connect_reader(path)) as db:
                state = self._examine(db, home, path, witness)
                if state is None or schema.get_store(db)[0] != schema.SCHEMA_VERSION:
                    raise errors.StoreVersionError(
                        f"the store {home} has an older version: open it for writing once"
                    )
        except (sqlite3.Error, OSError, errors.NotAStoreError) as error:
            raise check.opening_error(home, witness, error) from error
        findings = ([] if complaint is None else [complaint]) + state.findings
        self.findings = tuple(findings)
        self.unwitnessed = state.unwitnessed
        self._readers = reader.Readers(path, self.config.readers)
        self._cleanup.callback(self._readers.close)
        self._bar([*state.losses, *findings])

    def _start(self, db: sqlite3.Connection, state: State, heads: HeadsFile | None) -> None:
        self._cleanup.callback(self._close_connections, db)
        self._bar(state.losses)
        topics = {row.name: row for row in state.topics.values()}
        generation, upkeep = state.generation, None
        if heads is not None:
            generation = heads.generation
            upkeep = Upkeep(heads, self.config.durability, self.config.heads_sync_commits)
        self._writer = Writer(
            db,
            db_lock=self._readers.lock,
            upkeep=upkeep,
            unwitnessed=state.unwitnessed,
            topics=topics,
            generation=generation,
            config=self.config,
            where=self._where,
        )
        self._cleanup.callback(self._writer.close)
        self._indexer = Indexer(self._writer)
        self._writer.run(self._indexer.load).result()
        self._tags = Tags(self._writer)

    def _close_connections(self, db: sqlite3.Connection) -> None:
        """Close the connections, the writing one last unless the disk has failed."""
        path = self._readers.path
        if path is not None and self._writer is not None and self._writer.failed:
            schema.close_unfolded(db, path)
        self._readers.close()
        db.close()

    # Inside

    def _bar(self, findings: Sequence[errors.Finding]) -> None:
        """Remember ranges that must not be served, in order and without overlaps."""
        for finding in sorted(findings, key=lambda finding: (finding.start, finding.end)):
            if finding.topic is None or finding.start >= finding.end:
                continue
            bars = self._barred.setdefault(finding.topic, [])
            if bars and bars[-1].end >= finding.end:
                continue
            bars.append(finding)

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
