"""What goes through the writer's queue, and what the writer has done."""

from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future

import msgspec

from rumormill.core.event import Event, Kept, Position
from rumormill.core.histogram import Histogram
from rumormill.log.errors import StoreError
from rumormill.log.model import Appended, StoreConfig, check_event, check_topic

Ticket = Future[tuple[Appended, ...]]


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


Tell = Callable[[tuple[Appended, ...] | None, StoreError | None], None]
"""Is called by the writer's thread, with what became of the events of an append, or with why none
was stored. It raises nothing."""


class Notice:
    """What stands for a ticket where nobody waits: whoever appended is told. A ticket has a lock
    and a condition, and costs as much as all else that the queue does for an append."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def set_running_or_notify_cancel(self) -> bool:
        """Nobody can have given it up."""
        return True

    def set_result(self, places: tuple[Appended, ...]) -> None:
        """The append is safe."""
        self._tell(places, None)

    def set_exception(self, error: StoreError) -> None:
        """It is not."""
        self._tell(None, error)


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
