"""Notes and records on their way into the log, beside the events of their batch.

What a protocol notes of itself is little, and is written at once, as are records of our own. Other
records are what peers ask us to hold, and nobody waits for them: they go with the next batch, or
without one after a tenth of a second. So many go with a batch at most, because its events wait for
them, and so many wait at most. Beyond that one is lost, and counted, as are those that the log
could not take. Whoever gave it to us has given it to others, and puts it again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rumormill.core.event import Kept, KeptRecord
from rumormill.log.errors import StoreError

_MOST_BYTES: Final = 16 << 20
"""Our choice: sixteen of the largest records, or some ten thousand small ones."""
_BATCH_RECORDS: Final = 256
_BATCH_BYTES: Final = 1 << 20
"""Our choice: some milliseconds of the log's thread."""
_DELAY: Final = 0.1
"""Seconds; our choice: in a busy node events come before, and a record costs no commit."""
_RECORD_BYTES: Final = 256
"""What a record takes besides its value."""


class WaitingNotes:
    """What waits for the next batches."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        """Has a batch made up soon."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.lost = 0
        """Records that were not written."""
        self.trouble: StoreError | None = None
        """Why the log did not take some, when that happened last."""
        self._notes: list[Kept] = []
        self._records: deque[KeptRecord] = deque()
        self._bytes = 0
        self._due = False

    @property
    def pressing(self) -> bool:
        """Whether there is something to write at once."""
        return bool(self._notes) or self._due or len(self._records) >= _BATCH_RECORDS

    def press(self) -> None:
        """Have all written now."""
        self._timer, self._due = None, bool(self._records)
        if self.pressing:
            self._write()

    def __len__(self) -> int:
        return len(self._notes) + len(self._records)

    def add(self, note: Kept) -> int:
        """Take one; how many notes more what is read from now on must wait for."""
        if not isinstance(note, KeptRecord):
            self._notes.append(note)
            self._write()
            return 1
        size = _size(note)
        if self._bytes + size > _MOST_BYTES:
            self.lost += 1
        else:
            self._bytes += size
            self._records.append(note)
            if note.own:
                self.press()
            elif len(self._records) == _BATCH_RECORDS:
                self._write()
            elif self._timer is None:
                self._timer = self._loop.call_later(_DELAY, self.press)
        return 0

    def take(self) -> list[Kept]:
        """What goes with the next batch."""
        batch, self._notes = self._notes, []
        records, left = self._records, _BATCH_BYTES
        for _ in range(min(len(records), _BATCH_RECORDS)):
            left -= _size(records[0])
            batch.append(records.popleft())
            if left <= 0:
                break
        self._bytes -= sum(_size(each) for each in batch if isinstance(each, KeptRecord))
        self._due = self._due and bool(records)
        return batch

    def put_back(self, batch: Sequence[Kept]) -> None:
        """Let notes and records wait that were taken and did not get through."""
        records = [each for each in batch if isinstance(each, KeptRecord)]
        self._notes[:0] = [each for each in batch if not isinstance(each, KeptRecord)]
        self._records.extendleft(reversed(records))
        self._due = self._due or bool(records)  # their time may have been over
        self._bytes += sum(map(_size, records))

    def lose(self, batch: Sequence[Kept], error: StoreError) -> int:
        """Count the records that the log could not take; return how many notes were `awaited`."""
        self.trouble = error if batch else self.trouble
        notes = awaited(batch)
        self.lost += len(batch) - notes
        return notes


def awaited(batch: Iterable[Kept]) -> int:
    """How many of a batch reads wait for: a machine's own notes, and not what it holds for others,
    which it reads when it starts and at no other time."""
    return sum(not isinstance(each, KeptRecord) for each in batch)


def _size(record: KeptRecord) -> int:
    return _RECORD_BYTES + len(record.value or b"")
