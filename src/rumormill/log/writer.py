"""The one writer: a thread that commits many appends in one transaction.

Callers put whole appends in a bounded queue and get a ticket, a `concurrent.futures.Future`. The
writer takes as many appends as a group may hold, commits them together, notes the heads, and only
then resolves the tickets; appends that arrive meanwhile form the next group. An append is never
split: all of its events are in one transaction. Without a disk a caller may commit a little itself
while the thread sleeps: there is one writer all the same.

A ticket that fails promises nothing: after `DiskFullError` the log goes on and a later append may
succeed, after `StoreFailedError` it must be reopened. Appending the same events again is safe in
both cases, because an id that is already there is answered with its offset.
"""

import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from rumormill.core.event import UNASSIGNED, Event, Kept, Position
from rumormill.core.history import Deleted
from rumormill.log import errors, files
from rumormill.log.calls import Call, Counters, Notice, Queued, Standing, Ticket, checked_call
from rumormill.log.errors import StoreError
from rumormill.log.heads import Upkeep
from rumormill.log.inserts import KnownIdError, Places, Put, insert_each, insert_new
from rumormill.log.model import Appended, Durability, StoreConfig
from rumormill.log.records import put_kept
from rumormill.log.rows import PUT_MARK, Group, TopicRow
from rumormill.log.schema import put_stamp, put_topics, put_unwitnessed, rollback

_log = logging.getLogger("rumormill.log")

_Job = tuple[Callable[[], Any], Future[Any], bool]  # the last: also after a failure
Result = TypeVar("Result")
_MAX_JOBS = 64
_SPARE_EVENTS, _SPARE_SECONDS = 4096, 0.1
"""Index by itself from so many events behind, after so long a quiet: our choice. Who asks for
histories waits for fewer, which is some ten milliseconds, and who appends waits for none."""
_AT_ONCE_EVENTS, _AT_ONCE_BYTES = 256, 512 * 1024
"""What a caller may commit itself: our choice, some 3 ms. To wake another thread, and to be woken
by it, takes longer than to commit an event or two."""


class Writer:
    """Owns the writing connection and the heads file; everything that changes the log runs here."""

    def __init__(
        self, standing: Standing, *, db_lock: threading.RLock, config: StoreConfig, where: str
    ) -> None:
        self.names: dict[str, None] = {}
        self.config = config
        self.counters = Counters()
        self.unindexed: dict[str, None] = {}
        """Topics that may have events that are not in the index of histories."""
        self.backlog = 0
        """About how many such events there are."""
        self.deleted: dict[str, Deleted] = {}
        """What retention has deleted of topics."""
        self.spare_work: Callable[[], None] | None = None
        """What to do about the backlog when there is nothing else to do."""
        self._db_lock = db_lock
        self._where = where
        self._calls: deque[Queued] = deque()
        self._jobs: deque[_Job] = deque()
        self._queued_events = self._queued_bytes = self._short_of_room = 0
        """What is queued, and how many callers wait until that is less."""
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._closing = False
        self.is_idle = self._is_quiet = self._was_beside = False
        """Whether the thread waits for work, nobody has appended for a while, and callers have
        committed beside it since it began to wait."""
        self.go_on(standing)
        self._thread = threading.Thread(target=self._run, name="rumormill-store", daemon=True)
        self._thread.start()

    # Called from any thread.

    def submit(
        self,
        events: Sequence[Event],
        notes: Sequence[Kept | Position],
        ticket: Ticket | Notice,
        *,
        wait: bool,
    ) -> None:
        """Queue an append; without room, wait or refuse."""
        call, new_topics = checked_call(events, notes, self.config, self.names)
        count, size, config = len(events), call.size, self.config
        if count > config.queue_events or size > config.queue_bytes:
            self.counters.refused += count
            raise errors.EventRefusedError(
                f"one append of {count} events and {size} bytes is above the queue's limits of "
                f"{config.queue_events} events and {config.queue_bytes} bytes"
            )
        with self._lock:
            self._check_open()
            self._admit_topics(new_topics)
            most = config.queue_events - count, config.queue_bytes - size
            while self._queued_events > most[0] or self._queued_bytes > most[1]:
                if not wait:
                    self.counters.refused += count
                    raise errors.QueueFullError(
                        f"the log's queue is full with {self._queued_events} events: "
                        "wait for earlier tickets"
                    )
                self._short_of_room += 1
                self._room.wait()
                self._short_of_room -= 1
                self._check_open()
            self._calls.append((call, ticket))
            self._queued_events += count
            self._queued_bytes += size
            if self.is_idle or self.config.linger_seconds:
                self._work.notify()

    def commit_at_once(
        self, events: Sequence[Event], notes: Sequence[Kept]
    ) -> tuple[Appended, ...] | None:
        """Commit in this thread while the writer's sleeps, for a log in memory; None if that is
        busy, or there is too much to do."""
        call, new_topics = checked_call(events, notes, self.config, self.names)
        with self._lock:
            self._check_open()
            self._admit_topics(new_topics)
            if (
                not self.is_idle
                or self._calls
                or self._jobs
                or len(call.events) > _AT_ONCE_EVENTS
                or call.size > _AT_ONCE_BYTES
                or not self._db_lock.acquire(blocking=False)
            ):
                return None
            try:
                backlog = self.backlog
                (places,) = self._store([call])
            except StoreError as error:
                self.counters.add_failed(len(events), error)
                raise
            finally:
                self._db_lock.release()
            self._is_quiet, self._was_beside = False, True
            if backlog < _SPARE_EVENTS <= self.backlog:
                self._work.notify()
        return places

    def admit(self, names: Sequence[str]) -> None:
        """Make sure that there is room for these topics."""
        with self._lock:
            self._admit_topics([name for name in names if name not in self.names])

    def names_from(self, start: int) -> list[str]:
        """All names but the first so many."""
        with self._lock:
            return list(islice(self.names, start, None))

    def run(self, job: Callable[[], Any], *, mends: bool = False) -> Future[Any]:
        """Have a job run between two groups; one that `mends`, after a failure too."""
        future: Future[Any] = Future()
        with self._lock:
            self._check_open(mends=mends)
            if len(self._jobs) >= _MAX_JOBS:
                raise errors.QueueFullError(
                    "too many maintenance jobs are waiting for the log's writer"
                )
            self._jobs.append((job, future, mends))
            self._work.notify()
        return future

    def close(self) -> None:
        """Commit what is queued, refuse what comes after, and end the thread."""
        with self._lock:
            self._closing = True
            self._work.notify()
            self._room.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # Called by the writer's thread only.

    def go_on(self, standing: Standing) -> None:
        """Write to this database from now on."""
        self.db, self.topics, self._upkeep = standing.db, standing.topics, standing.upkeep
        self._generation, self._unwitnessed = standing.generation, standing.unwitnessed
        self._next_topic_id = 1 + max((row.topic_id for row in self.topics.values()), default=0)
        self._failure: StoreError | None = None
        self._pages_since_checkpoint = self.backlog = 0
        self.unindexed.clear()
        self.deleted.clear()
        with self._lock:
            self.names.update(dict.fromkeys(self.topics))

    def let_go(self) -> None:
        """Touch the heads file no more."""
        if (upkeep := self._upkeep) is not None:
            upkeep.heads.let_go()
            self._upkeep = None

    def stop(self, error: StoreError) -> StoreError:
        """Store nothing more, for this reason, which is returned."""
        if self._failure is None:
            _log.error("nothing more is stored: %s", error)
        self._failure = error
        return error

    def commit(self, changed: Iterable[TopicRow]) -> None:
        """End the open transaction: write the topics' records, commit, note the heads, publish."""
        rows = list(changed)
        generation = self._generation + 1
        for row in rows:
            row.generation = generation
        put_topics(self.db, rows)
        behind = None if self._upkeep is None else self._upkeep.behind
        if behind != self._unwitnessed:
            put_unwitnessed(self.db, behind)
        begun = time.perf_counter()
        self.db.execute("COMMIT")
        self.counters.commit_seconds.add(time.perf_counter() - begun)
        self.counters.commits += 1
        self._generation, self._unwitnessed = generation, behind
        for row in rows:
            name, known = row.name, self.topics.get(row.name)
            end = row.first_offset if known is None else known.next_offset
            self.backlog += row.next_offset - end
            self.unindexed[name] = None
            self.topics[name] = row
            if known is None:
                self._next_topic_id = max(self._next_topic_id, row.topic_id + 1)
        if self._upkeep is not None:
            self._upkeep.heads.note(generation, rows)
            self._keep_heads(self._upkeep)

    def transact(self, body: Callable[[Group], None]) -> None:
        """Run `body` in a transaction and commit what it changed; undo everything if it fails."""
        with self._db_lock:
            group = Group(self.topics, self._next_topic_id)
            try:
                self.db.execute("BEGIN IMMEDIATE")
                body(group)
                if not group.changed:  # notes alone change no topic's record
                    self.db.execute("COMMIT" if group.noted else "ROLLBACK")
                    return
                if group.marks:
                    PUT_MARK.put(self.db, group.marks)
                self.commit(group.changed.values())
            except (sqlite3.Error, OSError) as error:
                rollback(self.db)
                raise self._ours(error) from error
            except BaseException:
                rollback(self.db)
                raise

    def exclusively(self, job: Callable[[], Result]) -> Callable[[], Result]:
        """A job that has the connection for itself and raises the store's errors."""

        def guarded() -> Result:
            with self._db_lock, self._translated():
                return job()

        return guarded

    def wrote_pages(self, most: int) -> None:
        """Count at most so many pages towards the next checkpoint."""
        self._pages_since_checkpoint += most

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the database file and note how far the file has come.

        After a failure nobody knows what of the file is on the disk: the next open folds it all.
        """
        self._pages_since_checkpoint = 0
        if self._upkeep is None or self._failure is not None:
            return
        stamp = self._generation
        with self._translated():
            put_stamp(self.db, stamp)
            busy, logged, folded = self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._upkeep.heads.note_stamp(stamp if not busy and logged == folded else None)
        self._keep_heads(self._upkeep)

    @property
    def failed(self) -> bool:
        """Whether the disk failed under the writer, so that the log must be reopened."""
        return self._failure is not None

    def _run(self) -> None:
        while True:
            calls, job, done = self._next()
            if done:
                break
            if job is not None:
                self._run_job(*job)
            if calls:
                self._commit_calls(calls)
            if self._pages_since_checkpoint >= self.config.checkpoint_pages:
                self._quietly(self.checkpoint)
            if self._upkeep is not None and self._upkeep.wait(time.monotonic()) == 0:
                self._keep_heads(self._upkeep)
        self._quietly(self.checkpoint)
        if self._upkeep is not None:
            self._quietly(self._upkeep.heads.close)
        self._fail_leftovers()

    def _next(self) -> tuple[list[Queued], _Job | None, bool]:
        """Wait for work; return a group of appends, a job, or that all is done."""
        with self._lock:
            while not self._calls and not self._jobs:
                if self._closing:
                    return [], None, True
                pause = None if self._upkeep is None else self._upkeep.wait(time.monotonic())
                spare = None
                if self.spare_work is not None and self.backlog >= _SPARE_EVENTS:
                    spare = (self.spare_work, Future[Any](), False)
                    pause = 0 if self._is_quiet else _SPARE_SECONDS
                self.is_idle = True
                called = self._work.wait(pause)
                self.is_idle = False
                if self._was_beside:
                    self._was_beside = False
                elif not called and pause is not None:
                    self._is_quiet = True
                    return [], spare, False
            self._is_quiet = False
            if self.config.linger_seconds and not self._closing:
                self._linger()
            job = self._jobs.popleft() if self._jobs else None
            return self._take_group(), job, False

    def _linger(self) -> None:
        deadline = time.monotonic() + self.config.linger_seconds
        while (
            self._queued_events < self.config.group_events
            and self._queued_bytes < self.config.group_bytes
            and not self._closing
        ):
            left = deadline - time.monotonic()
            if left <= 0 or not self._work.wait(left):
                break

    def _take_group(self) -> list[Queued]:
        calls: list[Queued] = []
        events = size = 0
        while self._calls:
            call, ticket = self._calls[0]
            events += len(call.events)
            size += call.size
            if calls and (events > self.config.group_events or size > self.config.group_bytes):
                break
            self._calls.popleft()
            self._queued_events -= len(call.events)
            self._queued_bytes -= call.size
            if ticket.set_running_or_notify_cancel():
                calls.append((call, ticket))
        if self._short_of_room:
            self._room.notify_all()
        return calls

    def _commit_calls(self, queued: list[Queued]) -> None:
        try:
            stored = self._store([call for call, _ in queued])
        except errors.DiskFullError as error:
            if len(queued) == 1:
                self._fail(queued, error)
            else:
                for each in queued:  # what is too much together may fit one by one
                    self._commit_calls([each])
        except StoreError as error:
            self._fail(queued, error)
        else:
            for (_, ticket), places in zip(queued, stored, strict=True):
                ticket.set_result(places)

    def _store(self, calls: list[Call]) -> list[tuple[Appended, ...]]:
        """Commit appends together; return what became of the events of each."""
        if self._failure is not None:
            raise self._failure
        found: list[Places] = []
        notes = [note for call in calls for note in call.notes]

        def insert(group: Group, put: Put = insert_new) -> None:
            self._check_room()
            found[:] = put(self.db, self.deleted, group, calls)
            if notes:
                put_kept(self.db, notes)
                group.noted = True

        counters = self.counters
        try:
            try:
                self.transact(insert)
            except KnownIdError:
                self.transact(partial(insert, put=insert_each))
        except StoreError:
            raise
        except Exception as error:
            self._failure = errors.StoreFailedError(f"the log's writer failed: {error!r}")
            raise self._failure from error
        durable = time.time() if self.config.durability is Durability.FSYNC else None
        counters.full = False
        self.wrote_pages(4 + sum([len(call.events) + call.size // 4096 for call in calls]))
        stored: list[tuple[Appended, ...]] = []
        for offsets, known in found:
            counters.appended += len(offsets) - len(known)
            if known:
                gone = offsets.count(UNASSIGNED)
                counters.gone += gone
                counters.duplicates += len(known) - gone
            stored.append(
                tuple([Appended(at, n in known, durable) for n, at in enumerate(offsets)])
            )
        return stored

    def _check_room(self) -> None:
        """Keep appends out of the room that retention and checkpoints need to make more of it."""
        reserve = 0 if self._upkeep is None else self.config.reserve_bytes
        if reserve and files.spare_bytes(self._where, reserve) < 0:
            raise errors.DiskFullError(
                f"no room left for the store {self._where} but what retention needs"
                " (store.reserve_bytes): free some space and try again"
            )

    def _run_job(self, job: Callable[[], Any], future: Future[Any], mends: bool) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            if self._failure is not None and not mends:
                raise self._failure
            result = job()
        except BaseException as error:  # noqa: BLE001 - whoever asked for the job gets its error
            future.set_exception(error)
        else:
            future.set_result(result)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._ours(error) from error

    def _ours(self, raised: sqlite3.Error | OSError) -> StoreError:
        """SQLite's or the system's error as the store's; after a broken disk nothing is stored."""
        if isinstance(raised, sqlite3.Error):
            error = errors.from_sqlite(raised, self._where)
        else:
            error = errors.from_os(raised, self._where)
        passes = isinstance(error, (errors.DiskFullError, errors.StoreLockedError))
        return error if passes else self.stop(error)

    def _quietly(self, action: Callable[[], None]) -> None:
        """Upkeep whose failure loses nothing: it is tried again later, or on the next open."""
        with contextlib.suppress(StoreError, OSError):
            action()

    def _keep_heads(self, upkeep: Upkeep) -> None:
        """Upkeep of the heads file: what is committed is safe, whatever becomes of it."""
        self.counters.heads_failed += not upkeep.keep(time.monotonic())

    def _fail(self, queued: list[Queued], error: StoreError) -> None:
        for call, ticket in queued:
            self.counters.add_failed(len(call.events), error)
            ticket.set_exception(error)

    def _fail_leftovers(self) -> None:
        """After the end nothing may wait for ever."""
        with self._lock:
            self._closing = True
            calls, jobs = list(self._calls), list(self._jobs)
            self._calls.clear()
            self._jobs.clear()
            self._room.notify_all()
        error = errors.StoreClosedError("the log was closed")
        self._fail([each for each in calls if each[1].set_running_or_notify_cancel()], error)
        for _, future, _ in jobs:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def _admit_topics(self, names: Sequence[str]) -> None:
        if len(self.names) + len(names) > self.config.max_topics:
            raise errors.EventRefusedError(
                f"the log is at its limit of {self.config.max_topics} topics"
            )
        self.names.update(dict.fromkeys(names))

    def _check_open(self, *, mends: bool = False) -> None:
        if self._failure and not mends:
            raise self._failure
        if self._closing:
            raise errors.StoreClosedError("the log is closed")
