"""Where the writer begins, what goes through its queue, and what it has done."""

import sqlite3
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future

import msgspec

from rumormill.core.event import Event, Kept, Position
from rumormill.core.histogram import Histogram
from rumormill.log.errors import DiskFullError, StoreError
from rumormill.log.heads import Upkeep
from rumormill.log.model import Appended, StoreConfig, check_event, check_topic
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
    """One append."""

    events: Sequence[Event]
    sizes: Sequence[int]
    """What each of them takes (`rows.row_bytes`)."""
    size: int
    notes: Sequence[Kept | Position]


def checked_call(
    events: Sequence[Event],
    notes: Sequence[Kept | Position],
    config: StoreConfig,
    names: Container[str],
) -> tuple[Call, list[str]]:
    """An append that can be stored, and those of its topics that are not among the names."""
    sizes = [check_event(event, config) for event in events]
    new_topics: dict[str, None] = {}
    for event in events:
        if event.topic not in names and event.topic not in new_topics:
            check_topic(event.topic, config)
            new_topics[event.topic] = None
    return Call(events, sizes, sum(sizes), notes), [*new_topics]


Outcome = tuple[Appended, ...] | StoreError
"""What became of the events of an append, or why none was stored."""
Tell = Callable[[Outcome], None]
"""Is called by the writer's thread, and raises nothing."""


class Notice:
    """What stands for a ticket where nobody waits: whoever appended is told. A ticket has a lock
    and a condition, and costs as much as all else that the queue does for an append."""

    __slots__ = ("set_exception", "set_result")

    def __init__(self, tell: Tell) -> None:
        self.set_result = self.set_exception = tell

    def set_running_or_notify_cancel(self) -> bool:
        """Nobody can have given it up."""
        return True


Queued = tuple[Call, Ticket | Notice]
"""An append that waits for the writer's thread, and who is to hear of it."""


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

    def add_failed(self, events: int, error: StoreError) -> None:
        """So many events were not stored."""
        self.failed += events
        self.full |= isinstance(error, DiskFullError)
