"""Events on their way into the log, and what is said of those that it does not take."""

from collections.abc import Hashable
from typing import Final

import msgspec

from rumormill.core.effects import Append
from rumormill.core.event import Event, Note
from rumormill.log.errors import DiskFullError, EventRefusedError, QueueFullError, StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.model import check_event, check_topic

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
    note: Note | None = None
    """What whoever publishes it keeps with it: both are in the log, or neither."""

    @staticmethod
    def followers(lost: "list[Taken]", waiting: "list[Taken]") -> "list[Taken]":
        """Those of the waiting that say that one of the lost was stored, or one that says so:
        linked to it as their parent, or with a later note under the same key."""
        ids = {taken.event.id: None for taken in lost}
        keys = {taken.note.key: None for taken in lost if taken.note is not None}
        found = []
        for taken in waiting:
            is_noted = taken.note is not None and taken.note.key in keys
            if is_noted or any(parent in ids for parent in taken.event.parents):
                ids[taken.event.id] = None
                if taken.note is not None:
                    keys[taken.note.key] = None
                found.append(taken)
        return found


def misfits(batch: list[Taken], log: EventLog) -> list[Taken]:
    """Those of a refused batch that the log refuses by themselves; one alone is."""
    if len(batch) == 1:
        return batch
    return [taken for taken in batch if _is_refused(taken.event, log)]


def _is_refused(event: Event, log: EventLog) -> bool:
    config, names = log.config, log.writer().names
    try:
        check_event(event, config)
        if event.topic not in names:
            check_topic(event.topic, config)
    except EventRefusedError:
        return True
    return event.topic not in names and len(names) >= config.max_topics


def regrets(batch: list[Taken], error: StoreError) -> tuple[str, tuple[Hashable, ...]]:
    """Why events were not kept, and what the machine hears of them: of peers' ones nothing where
    the log will never take them."""
    final = isinstance(error, EventRefusedError)
    heard = [
        append.if_lost if append.barrier is None else append.barrier
        for append in (taken.append for taken in batch)
        if append.barrier is not None or (append.if_lost is not None and not final)
    ]
    return _REASONS.get(type(error), LOG_FAILED), tuple(heard)


def halves(batch: list[Taken]) -> list[list[Taken]]:
    """A batch as two."""
    return [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
