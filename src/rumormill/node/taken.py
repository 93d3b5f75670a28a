"""Events on their way into the log, and what is said of those that it does not take."""

from collections.abc import Hashable, Iterator
from typing import Final

import msgspec

from rumormill.core.effects import Append
from rumormill.core.event import Event
from rumormill.log.errors import DiskFullError, EventRefusedError, QueueFullError, StoreError

LOG_BUSY: Final = "the log is busy"
LOG_FAILED: Final = "the log has failed"
DISK_FULL: Final = "the disk is full"
EVENT_REFUSED: Final = "the log refuses the event"
"""Why an event was not kept, and so not handed out."""

_REASONS: Final[dict[type[StoreError], str]] = {
    DiskFullError: DISK_FULL,
    EventRefusedError: EVENT_REFUSED,
    QueueFullError: LOG_BUSY,
}


class Taken(msgspec.Struct, frozen=True, gc=False):
    """An event on its way into the log: one that we publish, or one that peers brought."""

    event: Event
    append: Append
    own: bool

    @staticmethod
    def followers(lost: "list[Taken]", waiting: "list[Taken]") -> "list[Taken]":
        """Those of the waiting that are linked to one of the lost, or to one that is."""
        ids = {taken.event.id: None for taken in lost}
        found = []
        for taken in waiting:
            if any(parent in ids for parent in taken.event.parents):
                ids[taken.event.id] = None
                found.append(taken)
        return found


def reason_of(error: StoreError) -> str:
    """Why an event was not kept."""
    return _REASONS.get(type(error), LOG_FAILED)


def regrets(batch: list[Taken], error: StoreError) -> Iterator[Hashable]:
    """What the machine hears of lost events; of peers' ones unless the log will never take them."""
    final = isinstance(error, EventRefusedError)
    for append in (taken.append for taken in batch):
        if append.barrier is not None or (append.if_lost is not None and not final):
            yield append.if_lost if append.barrier is None else append.barrier


def halves(batch: list[Taken]) -> list[list[Taken]]:
    """A batch as two."""
    return [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
