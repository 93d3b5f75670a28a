"""Where the writer begins, what goes through its queue, and what it has done."""

import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future

import msgspec

from rumormill.core.event import Event, Kept, Position
from rumormill.core.histogram import Histogram
from rumormill.log.heads import Upkeep
from rumormill.log.model import Appended
from rumormill.log.rows import TopicRow

Ticket = Future[tuple[Appended, ...]]


class Standing(msgspec.Struct):
    """Where a writer begins: a database that was checked, and what is in it."""

    db: sqlite3.Connection
    topics: dict[str, TopicRow]
    generation: int
    unwitnessed: int | None
    upkeep: Upkeep | None


class Call(msgspec.Struct):
    """One append on its way through the queue."""

    events: Sequence[Event]
    sizes: Sequence[int]
    """What each of them takes (`rows.row_bytes`)."""
    size: int
    notes: Sequence[Kept | Position]
    ticket: Ticket = msgspec.field(default_factory=Future)


class Counters(msgspec.Struct):
    """What the writer has done since it started."""

    appended: int = 0
    duplicates: int = 0
    commits: int = 0
    failed: int = 0
    refused: int = 0
    heads_failed: int = 0
    gone: int = 0
    """Events that were not kept because retention has deleted what was before their date."""
    indexes_rebuilt: int = 0
    full: bool = False
    """Whether the last append found no room."""
    commit_seconds: Histogram = msgspec.field(default_factory=Histogram)
    """How long SQLite took to write and flush each group."""
