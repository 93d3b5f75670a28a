"""Notes and records on their way into the log, beside the events of their batch.

What a protocol notes of itself is little. Records are what other peers ask us to hold, so they are
bounded: beyond it one is lost, and counted, as are those that the log could not take. Whoever gave
it to us has given it to others, and puts it again.
"""

from collections.abc import Sequence
from typing import Final

from rumormill.core.event import Kept, KeptRecord
from rumormill.log.errors import StoreError

_MOST_BYTES: Final = 16 << 20
"""Our choice: sixteen of the largest records, or some ten thousand small ones."""
_RECORD_BYTES: Final = 256
"""What a record takes besides its value."""


class WaitingNotes:
    """What waits for the next batch."""

    def __init__(self) -> None:
        self.lost = 0
        """Records that were not written."""
        self.trouble: StoreError | None = None
        """Why the log did not take the last ones; None if it did."""
        self._waiting: list[Kept] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, note: Kept) -> bool:
        """Take one; false where it is lost."""
        size = _size(note)
        if self._bytes + size > _MOST_BYTES:
            self.lost += 1
            return False
        self._bytes += size
        self._waiting.append(note)
        return True

    def take(self) -> list[Kept]:
        """All that waits."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        return waiting

    def put_back(self, notes: Sequence[Kept]) -> None:
        """Let notes wait that were taken and did not get through."""
        self._waiting[:0] = notes
        self._bytes += sum(map(_size, notes))

    def lose(self, notes: Sequence[Kept], error: StoreError) -> int:
        """Count those that the log could not take; return how many notes and records they were."""
        self.trouble = error if notes else self.trouble
        self.lost += sum(isinstance(note, KeptRecord) for note in notes)
        return len(notes)


def _size(note: Kept) -> int:
    """What counts against the bound; the protocol's own notes do not."""
    return _RECORD_BYTES + len(note.value or b"") if isinstance(note, KeptRecord) else 0
