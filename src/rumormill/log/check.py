"""What is wrong with a store: the checks on open and the full verification.

On open, in this order: the heads file and the database belong together; every topic's own record is
whole; no topic is behind, or beside, what the heads file has seen; the database file itself, read
without its write-ahead log, is not older than the heads file knows it to be; and the newest rows
of every topic are whole and linked. A small database is read completely, a large one only in its
tails: what lies before is verified by every read and by `verify_all`.

A damaged store gets one error, whose findings name topics and ranges. The rule of this file: it
only looks. It changes nothing that is there and serves nothing.
"""

import errno
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rumormill.log import errors
from rumormill.log.errors import Finding, FindingKind
from rumormill.log.heads import Head, HeadsDamagedError, HeadsFile, Witness, read_epoch, read_heads
from rumormill.log.index_check import check_index
from rumormill.log.model import Report, StoreConfig
from rumormill.log.notes import check_notes
from rumormill.log.positions import check_positions
from rumormill.log.reader import hash_at, walk
from rumormill.log.rows import MAX_OFFSET, UNKNOWN_HASH, EventRow, TopicRow, row_bytes
from rumormill.log.schema import (
    get_file_stamp,
    get_losses,
    get_store,
    get_topics,
    get_unwitnessed,
    latest_epoch,
)

HEADS_NAME = "heads"
STORE_ID_BYTES = 16
_ROW_GUESS_BYTES = 512
_MAX_SQLITE_COMPLAINTS = 20


class State(msgspec.Struct):
    """What the checks on open have found the store to be."""

    topics: dict[int, TopicRow] = {}
    losses: list[Finding] = []
    findings: list[Finding] = []
    generation: int = 0
    unwitnessed: int | None = None
    """Since which commit the heads file could not be kept up, as the database knows."""


def find_witness(home: Path) -> tuple[Witness | None, Finding | None]:
    """The store's heads file, or what is wrong with it."""
    try:
        witness = read_heads(home / HEADS_NAME)
    except HeadsDamagedError as error:
        return None, Finding(FindingKind.HEADS, detail=f"the heads file is unusable: {error}")
    if witness is None and latest_epoch(home) > 0:
        return None, Finding(FindingKind.HEADS, detail="the heads file is missing")
    return witness, None


def valid_epoch(home: Path) -> int | None:
    """The epoch whose database counts; None where the heads file does not tell."""
    return read_epoch(home / HEADS_NAME)


def damaged(home: Path, findings: Sequence[Finding]) -> errors.CorruptLogError:
    """The one sentence about a store that cannot be opened for writing."""
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return errors.CorruptLogError(
        f"the store {home} is damaged: {findings[0].sentence()}{more}; "
        "`rumormill restore` a good copy, or `rumormill repair` it",
        findings,
    )


def refuse_damage(home: Path, complaint: Finding | None, state: State) -> None:
    """Raise if the heads file or the database is not as it should be."""
    findings = ([] if complaint is None else [complaint]) + state.findings
    if findings:
        raise damaged(home, findings)


def opening_error(
    home: Path, witness: Witness | None, error: sqlite3.Error | OSError | errors.NotAStoreError
) -> errors.StoreError:
    """What to tell about a database that cannot be opened."""
    if isinstance(error, errors.NotAStoreError):
        if witness is None or witness.generation == 0:
            return error
    elif isinstance(error, OSError):
        return errors.from_os(error, str(home))
    elif errors.has_no_room(error, home):
        return errors.from_os(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), str(home))
    elif not errors.is_corruption(error):
        return errors.from_sqlite(error, str(home))
    return damaged(home, all_lost(witness, str(error)).findings)


def new_witness(home: Path, config: StoreConfig) -> Witness:
    """Begin a new store: the heads file comes first, so that no database is ever without one."""
    witness = Witness(os.urandom(STORE_ID_BYTES), 1, config.heads_sync_commits, True, heads={})
    HeadsFile(home / HEADS_NAME, witness, config.durability).close()
    return witness


def examine(
    db: sqlite3.Connection, path: Path, witness: Witness | None, budget_bytes: int
) -> State:
    """Load the topics and check the store as on open, reading about `budget_bytes` of rows."""
    state = State()
    findings = state.findings
    store_id = None
    try:
        _, store_id = get_store(db)
    except sqlite3.Error as error:
        findings.append(Finding(FindingKind.UNREADABLE, detail=str(error)))
    try:
        state.topics, broken = get_topics(db)
        state.losses = get_losses(db, state.topics)
        state.unwitnessed = get_unwitnessed(db)
    except sqlite3.Error as error:
        return all_lost(witness, str(error))
    state.generation = max((row.generation for row in state.topics.values()), default=0)
    for topic_id in broken:
        head = None if witness is None else witness.heads.get(topic_id)
        findings.append(_unreadable(head, "the topic's own record is damaged"))
    findings += [loss for loss in state.losses if loss.kind is not FindingKind.REPAIRED]
    state.losses = [loss for loss in state.losses if loss.kind is FindingKind.REPAIRED]
    if witness is not None:
        if store_id is not None and witness.store_id != store_id:
            detail = "the heads file belongs to another store"
            findings.append(Finding(FindingKind.HEADS, detail=detail))
        else:
            findings += _compare_heads(db, state, witness, broken)
            findings += _check_stamp(path, witness)
    whole = _database_bytes(db) <= budget_bytes or any(
        finding.kind is FindingKind.OLD_COPY for finding in findings
    )
    findings += _check_rows(db, state, None if whole else budget_bytes).findings
    if whole:
        findings += _sqlite_check(db)
    return state


def verify_all(db: sqlite3.Connection) -> Report:
    """Verify every row, every record and SQLite's own trees, in one snapshot."""
    state = State()
    try:
        state.topics, broken = get_topics(db)
        state.losses = get_losses(db, state.topics)
    except sqlite3.Error as error:
        return Report((Finding(FindingKind.UNREADABLE, detail=str(error)),), 0, 0)
    findings = [_unreadable(None, f"record of topic number {number}") for number in broken]
    findings += [loss for loss in state.losses if loss.kind is not FindingKind.REPAIRED]
    state.losses = [loss for loss in state.losses if loss.kind is FindingKind.REPAIRED]
    report = _check_rows(db, state, None)
    findings += (*report.findings, *_sqlite_check(db), *check_index(db, state.topics.values()))
    findings += check_kept(db)
    return Report(tuple(findings), report.events, report.size)


def check_kept(db: sqlite3.Connection) -> list[Finding]:
    """What is damaged of what is kept beside events, and would be missed."""
    findings: list[Finding] = []
    for check in (check_notes, check_positions):
        try:
            findings += check(db)
        except sqlite3.Error as error:
            findings.append(Finding(FindingKind.UNREADABLE, detail=f"what is noted: {error}"))
    return findings


def all_lost(witness: Witness | None, detail: str) -> State:
    """The state of a store whose database cannot be read at all, by what the heads file knows."""
    heads = [] if witness is None else list(witness.heads.values())
    return State(findings=[_unreadable(head, detail) for head in heads or (None,)])


def losses_of(state: State, topic: str) -> list[Finding]:
    """The recorded losses of one topic, in order."""
    return [loss for loss in state.losses if loss.topic == topic]


def _compare_heads(
    db: sqlite3.Connection, state: State, witness: Witness, broken: list[int]
) -> list[Finding]:
    findings = []
    for head in witness.heads.values():
        if head.topic_id in broken:
            continue
        row = state.topics.get(head.topic_id)
        if row is None or row.name != head.name:
            findings.append(_lost(head, head.first_offset))
        elif row.next_offset < head.next_offset:
            findings.append(_lost(head, max(row.next_offset, head.first_offset)))
        elif row.first_offset < head.first_offset:
            detail = "retention had deleted these events: the database is an older copy"
            gone = (row.first_offset, head.first_offset)
            findings.append(Finding(FindingKind.OLD_COPY, head.name, *gone, detail))
        elif not _head_matches(db, row, head, losses_of(state, head.name)):
            last = head.next_offset - 1
            detail = "the heads file has seen another event here"
            findings.append(Finding(FindingKind.FORKED, head.name, last, last + 1, detail))
    if state.generation < witness.generation and not findings and not broken:
        detail = f"commit {state.generation}, but commit {witness.generation} was made"
        findings.append(Finding(FindingKind.OLD_COPY, detail=detail))
    is_old = witness.flushed and state.generation > witness.generation + witness.slack + 1
    if is_old and (state.unwitnessed is None or witness.generation < state.unwitnessed):
        detail = (
            f"the heads file ends at commit {witness.generation}, the database at "
            f"{state.generation}: the heads file is an older copy"
        )
        findings.append(Finding(FindingKind.HEADS, detail=detail))
    return findings


def _head_matches(db: sqlite3.Connection, row: TopicRow, head: Head, losses: list[Finding]) -> bool:
    """Whether the row that the heads file saw last is still that row."""
    last = head.next_offset - 1
    if row.next_offset == head.next_offset:
        return row.head_hash == head.head_hash
    if last < row.first_offset or any(loss.start <= last < loss.end for loss in losses):
        return True
    try:
        found = hash_at(db, row, last)
    except sqlite3.Error:
        return True  # an unreadable row is for the row checks to report
    return found is None or found == head.head_hash


def _check_stamp(path: Path, witness: Witness) -> list[Finding]:
    """Compare the database file as it is, without its write-ahead log, with the heads file.

    A newer write-ahead log over an older database file looks right at the tail and lacks rows in
    the middle; the stamp tells without reading them.
    """
    stamp = get_file_stamp(path, witness.stamp)
    if witness.stamp == 0 or (stamp is not None and stamp >= witness.stamp):
        return []
    detail = f"the database file is of commit {stamp}, it had already reached {witness.stamp}"
    return [Finding(FindingKind.OLD_COPY, detail=detail)]


def _check_rows(db: sqlite3.Connection, state: State, budget_bytes: int | None) -> Report:
    """Verify rows: all of them, or the newest of every topic within a budget."""
    events = size = 0
    findings: list[Finding] = []

    def count(rows: list[EventRow]) -> None:
        nonlocal events, size
        events += len(rows)
        size += sum(map(row_bytes, rows))

    share = MAX_OFFSET
    if budget_bytes is not None:
        share = max(1, budget_bytes // _ROW_GUESS_BYTES // max(1, len(state.topics)))
    for row in state.topics.values():
        tail = share
        if budget_bytes is not None and row.next_offset > row.first_offset:
            mean = max(1, row.size // (row.next_offset - row.first_offset))
            tail = max(1, budget_bytes // mean // len(state.topics))
        start = max(row.first_offset, row.next_offset - tail)
        losses = losses_of(state, row.name)
        findings += walk(db, row, start, row.next_offset, barred=losses, use_rows=count)
        findings += _stray_rows(db, row)
        is_empty = row.next_offset == row.first_offset and row.base_hash != UNKNOWN_HASH
        if is_empty and row.head_hash != row.base_hash:
            detail, at = "the empty topic's two ends differ", row.next_offset
            findings.append(Finding(FindingKind.FORKED, row.name, at, at, detail))
    return Report(tuple(findings), events, size)


def _stray_rows(db: sqlite3.Connection, row: TopicRow) -> list[Finding]:
    """Rows outside the topic's extent: never served, but a sign that its record is an old one."""
    query = "SELECT min(key), max(key) FROM events WHERE key BETWEEN ? AND ?"
    findings = []
    for start, end in ((0, row.first_offset), (row.next_offset, MAX_OFFSET)):
        try:
            low, high = db.execute(query, (row.key(start), row.key(end) - 1)).fetchone()
        except sqlite3.Error:
            continue
        if low is not None:
            first, last = low & MAX_OFFSET, high & MAX_OFFSET
            detail = "rows outside the topic's extent"
            findings.append(Finding(FindingKind.OLD_COPY, row.name, first, last + 1, detail))
    return findings


def _sqlite_check(db: sqlite3.Connection) -> list[Finding]:
    try:
        complaints = [
            str(found[0])
            for found in db.execute(f"PRAGMA integrity_check({_MAX_SQLITE_COMPLAINTS})")
            if found[0] != "ok"
        ]
    except sqlite3.Error as error:
        complaints = [str(error)]
    if not complaints:
        return []
    more = f" and {len(complaints) - 1} more" if len(complaints) > 1 else ""
    return [Finding(FindingKind.INDEX, detail=complaints[0] + more)]


def _database_bytes(db: sqlite3.Connection) -> int:
    try:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        (page,) = db.execute("PRAGMA page_size").fetchone()
    except sqlite3.Error:
        return 0
    return int(pages) * int(page)


def _lost(head: Head, start: int) -> Finding:
    detail = "these events were committed, the database does not have them"
    return Finding(FindingKind.LOST_TAIL, head.name, start, head.next_offset, detail)


def _unreadable(head: Head | None, detail: str) -> Finding:
    if head is None:
        return Finding(FindingKind.UNREADABLE, detail=detail)
    return Finding(FindingKind.UNREADABLE, head.name, head.first_offset, head.next_offset, detail)
