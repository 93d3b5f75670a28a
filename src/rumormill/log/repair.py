"""Repair: keep everything that can be proved, give up the rest by name, never reuse an offset.

A repair never writes to damaged files. It builds the next epoch's database from the rows that still
verify, records every range that is gone as a loss, and then replaces the heads file, which makes
the new epoch the valid one in a single step. A crash before that step leaves the store as it was.
The damaged files stay beside it for whoever wants to look closer. A log that is open goes over to
the new epoch by itself, between two commits.

Lost offsets stay empty for ever: a reader that comes to them is told the range.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from rumormill.log import schema
from rumormill.log.check import HEADS_NAME, State, check_kept, examine, find_witness, losses_of
from rumormill.log.errors import (
    Finding,
    FindingKind,
    NotAStoreError,
    is_damage,
    no_store,
    translated,
)
from rumormill.log.event_log import DEFAULT_CONFIG, EventLog
from rumormill.log.files import sync_directory, unfinished
from rumormill.log.heads import Head, HeadsFile, Witness
from rumormill.log.index_check import check_index
from rumormill.log.index_rows import get_record, get_refusals, likely_window
from rumormill.log.index_tree import begin_history
from rumormill.log.model import Report, StoreConfig
from rumormill.log.notes import copy_notes
from rumormill.log.positions import copy_positions
from rumormill.log.reader import walk
from rumormill.log.records import copy_records
from rumormill.log.rows import (
    INSERT,
    MARK_EVERY,
    MAX_OFFSET,
    PUT_MARK,
    UNKNOWN_HASH,
    EventRow,
    TopicRow,
    row_bytes,
    seal_mark,
)

_EVERYTHING = 2**62


def repair(place: Path | str | EventLog, config: StoreConfig = DEFAULT_CONFIG) -> Report:
    """Make a damaged store writable again; the report's findings are what was given up.

    It is a home that nobody has open, or a log that is open for writing, which goes on in the
    repaired store (`EventLog.renew`). One in which nothing is wrong is left as it is, unless the
    disk has failed under its writer: then everything is written anew. The caller decides about the
    damaged database file, which stays in the directory under its old name.
    """
    if isinstance(place, EventLog):
        return place.renew(lambda home: _repair(home, place.config, anew=place.writer().failed))
    home = Path(place)
    if not home.is_dir():
        raise no_store(home)
    with schema.store_lock(home):
        return _repair(home, config, anew=False)


def _repair(home: Path, config: StoreConfig, *, anew: bool) -> Report:
    """Build the next epoch, if there is a reason to; the caller has the right to write."""
    # What went wrong is told before anything is closed: without that, descriptors may seem left.
    with contextlib.ExitStack() as cleanup, translated(str(home)):
        witness, complaint = find_witness(home)
        epoch = witness.epoch if witness else schema.latest_epoch(home)
        if epoch == 0:
            raise no_store(home)
        source, state = _open_source(schema.database_path(home, epoch), witness, cleanup)
        if not state.findings and complaint is None and not anew:
            return Report((), 0, 0)
        return _rebuild(home, config, source, state, witness)


def _open_source(
    path: Path, witness: Witness | None, cleanup: contextlib.ExitStack
) -> tuple[sqlite3.Connection | None, State]:
    """The damaged database, if it can be read at all, and everything that is wrong with it.

    One that cannot be opened just now, for want of a descriptor or because the disk fails, is not
    damaged for that: nothing is given up, and the error is raised.
    """
    nothing = State(findings=[Finding(FindingKind.UNREADABLE, detail=f"{path.name} is unusable")])
    if not path.exists() or path.stat().st_size == 0:
        return None, nothing
    try:
        source = schema.connect_reader(path)
        cleanup.callback(source.close)
        source.execute("BEGIN")
        schema.has_schema(source)  # which opens all of its files
        state = examine(source, path, witness, _EVERYTHING)
        try:
            if schema.check_version(source, str(path)) == schema.SCHEMA_VERSION:
                state.findings += check_index(source, state.topics.values())
                state.findings += check_kept(source)
        except (sqlite3.Error, NotAStoreError) as error:
            state.findings.append(Finding(FindingKind.UNREADABLE, detail=str(error)))
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return None, nothing
    return source, state


def _rebuild(
    home: Path,
    config: StoreConfig,
    source: sqlite3.Connection | None,
    state: State,
    witness: Witness | None,
) -> Report:
    store_id = witness.store_id if witness else os.urandom(16)
    epoch = 1 + max(schema.latest_epoch(home), witness.epoch if witness else 0)
    path = schema.database_path(home, epoch)
    fresh = Witness(store_id, epoch, config.heads_sync_commits, True, heads={})
    pairs = _pairs(state, witness)
    if pairs:  # topics say which commit was the last; without one, none was
        fresh.generation = 1 + max(state.generation, witness.generation if witness else 0)
    with unfinished(path, home / HEADS_NAME):
        with contextlib.closing(_new_database(path, config)) as target, translated(str(home)):
            schema.create_schema(target, store_id)
            builder = _Builder(source, target, fresh.generation)
            for row, head in pairs:
                builder.topic(row, head, losses_of(state, row.name))
            if source is not None:
                copy_notes(source, target)
                copy_records(source, target)
                copy_positions(source, target)
            schema.put_stamp(target, fresh.generation)
            target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sync_directory(home)
        fresh.stamp = fresh.generation
        notes = HeadsFile(home / HEADS_NAME, fresh, config.durability)
        notes.note(fresh.generation, builder.rows)
        notes.close()
    findings = builder.lost + [
        finding
        for finding in state.findings
        if finding.topic is None or finding.kind is FindingKind.FORKED
    ]
    return Report(tuple(findings), builder.events, builder.size)


def _new_database(path: Path, config: StoreConfig) -> sqlite3.Connection:
    schema.secure_database(path)
    return schema.connect_writer(path, config)


class _Builder:
    """Copies topics, one transaction each, and keeps account of what could not be copied."""

    def __init__(
        self, source: sqlite3.Connection | None, target: sqlite3.Connection, generation: int
    ) -> None:
        self._source = source
        self._target = target
        self._generation = generation
        self.rows: list[TopicRow] = []
        self.lost: list[Finding] = []
        self.events = 0
        self.size = 0

    def topic(self, row: TopicRow, head: Head | None, losses: list[Finding]) -> None:
        """Copy what verifies of one topic, whose record is `row`."""
        old = _widest(row, head)
        new = old.copy()
        new.size = 0
        new.received_max = float("-inf")
        new.generation = self._generation
        last: EventRow | None = None

        def copy(rows: list[EventRow]) -> None:
            nonlocal last
            if last is None and rows[0][0] & MAX_OFFSET == new.first_offset:
                new.base_hash = rows[0][10]
            self._copy(new, rows)
            last = rows[-1]

        self._target.execute("BEGIN IMMEDIATE")
        lost = [Finding(FindingKind.UNREADABLE, old.name, old.first_offset, old.next_offset)]
        if self._source is not None:
            lost = walk(
                self._source, old, old.first_offset, old.next_offset, barred=losses, use_rows=copy
            )
        if last is not None and last[0] & MAX_OFFSET == new.next_offset - 1:
            new.head_hash = last[11]
        for loss in (*losses, *lost):
            if loss.start < loss.end:
                schema.put_loss(self._target, new.topic_id, loss.start, loss.end)
        # Numbers of our own follow the latest date, also that of an event that is given up.
        new.received_max = max(new.received_max, old.received_max)
        schema.put_topics(self._target, [new])
        window, refusals = likely_window(self._target, new), []
        if self._source is not None:
            with contextlib.suppress(sqlite3.Error):
                refusals = get_refusals(self._source, old.topic_id)
                record = get_record(self._source, old.topic_id)
                if record is not None and old.first_offset == row.first_offset:
                    window = record.window
        begin_history(self._target, new, window, refusals)
        self._target.execute("COMMIT")
        self.lost += [loss for loss in lost if loss.start < loss.end]
        self.rows.append(new)

    def _copy(self, topic: TopicRow, rows: list[EventRow]) -> None:
        INSERT.put(self._target, rows)
        for row in rows:
            offset = row[0] & MAX_OFFSET
            if offset % MARK_EVERY == 0 and offset:
                latest = topic.received_max
                PUT_MARK.put(self._target, [(row[0], latest, seal_mark(row[0], latest))])
            topic.received_max = max(topic.received_max, row[7])
            size = row_bytes(row)
            topic.size += size
            self.size += size
        self.events += len(rows)


def _pairs(state: State, witness: Witness | None) -> list[tuple[TopicRow, Head | None]]:
    """Every topic's record with its head; a topic that only has a head gets an empty record."""
    heads = {head.name: head for head in witness.heads.values()} if witness else {}
    pairs = [(row, heads.pop(row.name, None)) for row in state.topics.values()]
    taken = [row.topic_id for row, _ in pairs] + [head.topic_id for head in heads.values()]
    for head in heads.values():
        topic_id = head.topic_id
        if topic_id in state.topics:  # another topic got this number in another history
            topic_id = 1 + max(taken)
            taken.append(topic_id)
        first = head.first_offset
        pairs.append((TopicRow(topic_id, head.name, first, UNKNOWN_HASH, first), head))
    return pairs


def _widest(row: TopicRow, head: Head | None) -> TopicRow:
    """A topic's record that reaches as far as either witness has seen."""
    widest = row.copy()
    if head is not None and head.first_offset > row.first_offset:
        widest.first_offset = head.first_offset
        widest.base_hash = UNKNOWN_HASH
    if head is not None and head.next_offset > row.next_offset:
        widest.next_offset = head.next_offset
        widest.head_hash = head.head_hash
    return widest
