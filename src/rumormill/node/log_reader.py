"""Reading the log for the machine: one piece at a time, by a thread, behind the appends before it.

A machine asks by `Load` and is answered by `Loaded`. The answer is bounded in events and bytes, so
that neither the thread nor the machine ever works through a whole history at once. What the log
cannot give back is absent in the answer: the log says why itself. To the machine that is as if it
had never been stored, and what it kept for itself it would begin anew; so that is tried again, for
a while if the disk fails, and for as long as there is no descriptor.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, TypeAlias

from rumormill.core.effects import (
    ById,
    Computation,
    Disregard,
    FromOffset,
    Load,
    Notes,
    Records,
)
from rumormill.core.event import Event, Note
from rumormill.core.history import HistoryQuery
from rumormill.core.ids import MessageId, Topic
from rumormill.core.inputs import Loaded
from rumormill.core.where import Filter
from rumormill.log.errors import (
    CorruptLogError,
    DamagedRangeError,
    NoDescriptorsError,
    OffsetAheadError,
    StoreClosedError,
    StoreError,
)
from rumormill.log.event_log import EventLog
from rumormill.log.keeping import read_on
from rumormill.log.model import TopicExtent
from rumormill.log.notes import note_keys, read_note, read_notes
from rumormill.log.records import read_records
from rumormill.log.threads import Worker

_PIECE_EVENTS: Final = 256
_PIECE_BYTES: Final = 1 << 20
"""Our choice: how much one read brings. A machine handles it in some milliseconds."""

_RULES: Final = "access/"
"""Under this and a topic's name, a note keeps by which rules its events were refused."""

_MAX_LOADS: Final = 4096
"""Reads that wait; machines bound their own questions far below it."""

_TRIES: Final = 8
_PAUSE: Final = 0.25
"""Our choice: how often, and after how many seconds, what a disk did not give is read again."""

_CHECKERS: Final = 2
"""Threads for work that needs no log. Our choice: the library that checks signatures lets other
threads run meanwhile, and with two one of them checks while the loop keeps the other waiting."""


Answer: TypeAlias = Callable[[Loaded], None]
"""Takes what was read."""


class LogReader:
    """The reads of one node, first come, first served."""

    def __init__(self, log: EventLog) -> None:
        self.refused = 0
        """Reads that were answered with nothing because too many waited."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, Load, Answer]] = deque()
        self._thread = Worker("rumormill-reader")
        self._checkers = [Worker("rumormill-checker") for _ in range(_CHECKERS)]
        self._computing: deque[tuple[Answer, Future[Loaded]]] = deque()
        self._busy = False
        self._closed = False
        self._over = threading.Event()
        self._disregarded = 0
        self._settled = 0

    def load(self, load: Load, answer: Answer, *, behind: int) -> None:
        """Take a read that must see so many events, counted from the first that was ever taken."""
        if isinstance(load.query, Computation):
            self._compute(load, answer)
        elif len(self._waiting) < _MAX_LOADS:
            self._waiting.append((behind, load, answer))
        else:
            self.refused += 1
            self._loop.call_soon(answer, Loaded(load.number))

    def go_on(self, settled: int) -> None:
        """So many events are in the log, or lost: read what waited for that."""
        self._settled = settled
        if self._closed or self._busy or not self._waiting or self._waiting[0][0] > settled:
            return
        self._busy = True
        _, load, answer = self._waiting.popleft()
        self._thread.submit(lambda: self._read(load)).add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._on_read, answer, done)
        )

    def _compute(self, load: Load, answer: Answer) -> None:
        """Have work done that needs no log, beside the reads; answers keep the order of asking."""
        if self._closed:
            return
        checker = self._checkers[0]
        self._checkers.append(self._checkers.pop(0))
        working = checker.submit(lambda: self._read(load))
        self._computing.append((answer, working))
        working.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._on_computed))

    def _on_computed(self) -> None:
        while self._computing and self._computing[0][1].done() and not self._closed:
            answer, working = self._computing.popleft()
            answer(working.result())

    def know(self, effect: Disregard) -> None:
        """Have the log know an event that is not wanted, behind what is being read.

        If it cannot, or too many wait, the event is asked for and refused once more.
        """
        if self._disregarded < _MAX_LOADS and not self._closed:
            self._disregarded += 1
            self._thread.submit(lambda: self._know(effect))

    def _know(self, effect: Disregard) -> None:
        self._disregarded -= 1
        with contextlib.suppress(StoreError):
            self._log.know(effect.topic, (effect.key,))

    def follow(self, rules: Mapping[Topic, bytes], changed: Callable[[], None]) -> None:
        """Have the log follow rules, each told apart by what it is: of topics with another than
        before, what was refused is not known any more. Tell if that is anything."""
        if not self._closed:
            self._thread.submit(lambda: self._follow(rules)).add_done_callback(
                lambda done: done.result() and self._loop.call_soon_threadsafe(changed)
            )

    def _follow(self, rules: Mapping[Topic, bytes]) -> bool:
        found = False
        with contextlib.suppress(StoreError):
            before = [key.removeprefix(_RULES) for key in note_keys(self._log, _RULES)]
            for topic in dict.fromkeys([*before, *rules]):
                key, rule = _RULES + topic, rules.get(topic, b"")
                if (read_note(self._log, key) or b"") != rule:
                    found |= self._log.reconsider(topic)
                    self._log.append([], notes=[Note(key, rule)]).result()
        return found

    def close(self) -> None:
        """Read nothing more: who is still answered may ask on, and hears nothing."""
        self._closed = True
        self._over.set()
        self._waiting.clear()
        for worker in (self._thread, *self._checkers):
            worker.close()

    def join(self) -> None:
        """Wait until what is being read is read; not on the event loop."""
        for worker in (self._thread, *self._checkers):
            worker.join()

    def _on_read(self, answer: Answer, reading: "Future[Loaded]") -> None:
        self._busy = False
        answer(reading.result())
        self.go_on(self._settled)

    def _read(self, load: Load) -> Loaded:
        tries = _TRIES if isinstance(load.query, Notes | Records | FromOffset) else 0
        while True:
            try:
                return self._read_once(load)
            except (CorruptLogError, StoreClosedError):
                return Loaded(load.number)
            except StoreError as error:
                if not isinstance(error, NoDescriptorsError):
                    tries -= 1
                if tries <= 0 or self._log.writer().failed or self._over.wait(_PAUSE):
                    return Loaded(load.number)

    def _read_once(self, load: Load) -> Loaded:
        log, query = self._log, load.query
        if isinstance(query, Computation):
            return Loaded(load.number, answer=query.work_out())
        if isinstance(query, Notes):
            notes = read_notes(log, query.prefix, query.after, _PIECE_EVENTS + 1)
            more = len(notes) > _PIECE_EVENTS
            return Loaded(load.number, (), more, tuple(notes[:_PIECE_EVENTS]))
        if isinstance(query, Records):
            records, more = read_records(log, query.after, _PIECE_EVENTS, _PIECE_BYTES)
            return Loaded(load.number, more=more, records=tuple(records))
        if isinstance(query, HistoryQuery):
            with log.histories() as histories:
                return Loaded(load.number, answer=query.work_out(histories))
        if isinstance(query, ById):
            events, more = _read_ids(log, load.topic, query.ids)
        else:
            events, more = _read_on(log, load.topic, query.offset)
        return Loaded(load.number, tuple(events), more)


def _read_on(log: EventLog, topic: Topic, offset: int) -> tuple[list[Event], bool]:
    """The next events from an offset on, over what is deleted or damaged."""
    while True:
        try:
            _, events = read_on(log, topic, offset, _PIECE_EVENTS, _PIECE_BYTES)
            break
        except DamagedRangeError as damaged:
            offset = damaged.end
    extent = log.topic(topic)
    more = bool(events) and extent is not None and events[-1].offset + 1 < extent.next_offset
    return events, more


def _read_ids(log: EventLog, topic: Topic, ids: tuple[MessageId, ...]) -> tuple[list[Event], bool]:
    found: list[Event] = []
    size = looked_at = 0
    for event_id in ids[:_PIECE_EVENTS]:
        event = log.find(topic, event_id)
        if event is not None:
            size += len(event.data)
            if found and size > _PIECE_BYTES:
                break
            found.append(event)
        looked_at += 1
    return found, looked_at < len(ids)


async def read_history(
    log: EventLog,
    topic: Topic,
    since_offset: int,
    since: float | None,
    limit: int | None,
    opened: Callable[[Event], Event | None],
    where: Filter | None,
) -> list[Event]:
    """Return the events of a topic from an offset and a time of reception on, at most `limit`.

    `opened` gives each as it is handed out, and None for those that are not; of these, the filter
    chooses.
    """
    found: list[Event] = []
    if limit is not None and limit < 1:
        return found
    extent = log.topic(topic) or TopicExtent(topic, 0, 0)
    if since_offset > extent.next_offset:
        raise OffsetAheadError(topic, since_offset, extent.next_offset)
    start = max(extent.place(since_offset), extent.first_offset)
    if since is not None:
        first = await asyncio.to_thread(log.read_since, topic, since, 1)
        start = max(start, first[0].offset if first else extent.next_offset)
    while start < extent.next_offset and (limit is None or len(found) < limit):
        want = _PIECE_EVENTS
        if limit is not None and where is None:
            want = min(want, limit - len(found))
        start, events = await asyncio.to_thread(read_on, log, topic, start, want)
        if not events:
            break
        readable = [*filter(None, map(opened, events))]
        found += readable if where is None else await asyncio.to_thread(where.matching, readable)
        start = events[-1].offset + 1
    return found[:limit]
