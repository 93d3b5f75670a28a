"""Notes and records on their way into the log, beside the events of their batch.

What a protocol notes of itself is little. Records are what other peers ask us to hold, so they are
bounded: beyond it one is lost, and counted, as are those that the log could not take. Whoever gave
it to us has given it to others, and puts it again.
"""

from collections.abc import Sequence
from typing import Final

from rumormill.core.event import Kept, KeptRecord

_MOST_BYTES: Final = 16 << 20
"""Our choice: sixteen of the largest records, or some ten thousand small ones."""
_RECORD_BYTES: Final = 256
"""What a record takes besides its value."""


class WaitingNotes:
    """What waits for the next batch."""

    def __init__(self) -> None:
        self.lost = 0
        """Records that were not written."""
        self._waiting: list[Kept] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, note: Kept) -> None:
        """Take one."""
        if isinstance(note, KeptRecord):
            self._bytes += _RECORD_BYTES + len(note.value or b"")
            if self._bytes > _MOST_BYTES:
                self._bytes -= _RECORD_BYTES + len(note.value or b"")
                self.lost += 1
                return
        self._waiting.append(note)

    def take(self) -> list[Kept]:
        """All that waits."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        return waiting

    def put_back(self, notes: Sequence[Kept]) -> None:
        """Let notes wait that were taken and did not get through."""
        later = self.take()
        for note in (*notes, *later):
            self.add(note)

    def lose(self, notes: Sequence[Kept]) -> None:
        """Count those that the log could not take."""
        self.lost += sum(isinstance(note, KeptRecord) for note in notes)
