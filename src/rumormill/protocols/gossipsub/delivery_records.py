"""Who brought which message: the memory behind P3 and P4.

A record opens when a message enters validation. Copies that arrive meanwhile are noted, and share
the message's fate when the verdict comes; copies that arrive later are judged by the verdict.
Records live for a fixed time and there are never more than a fixed number of them.
"""

from typing import Final

import msgspec

from rumormill.core.ids import MessageId, PeerId

UNKNOWN: Final = 0
"""Being validated."""
VALID: Final = 1
INVALID: Final = 2
IGNORED: Final = 3
"""The validator wants it neither delivered nor held against anybody."""
THROTTLED: Final = 4
"""This peer was too busy to find out."""


class DeliveryRecord(msgspec.Struct, gc=False):
    """What is known of one message."""

    created: float
    status: int = UNKNOWN
    sender: PeerId = b""
    """Who was first; filled in on delivery."""
    validated: float = 0.0
    peers: dict[PeerId, None] | None = None
    """Who else brought it, as far as that still matters."""


class DeliveryRecords:
    """Records by message id, oldest first."""

    __slots__ = ("_batch", "_limit", "_ttl", "evicted", "records")

    def __init__(self, ttl: float, limit: int) -> None:
        self.records: dict[MessageId, DeliveryRecord] = {}
        self.evicted = 0
        """Records forgotten before their time because there were too many."""
        self._ttl = ttl
        self._limit = limit
        self._batch = max(1, limit // 64)

    def open(self, message_id: MessageId, now: float) -> DeliveryRecord:
        """The record of a message, a new one if there is none."""
        record = self.records.get(message_id)
        if record is None:
            if len(self.records) >= self._limit:
                self._evict()
            record = self.records[message_id] = DeliveryRecord(now)
        return record

    def _evict(self) -> None:
        # In batches, because finding the oldest entry of a dict costs a walk over deleted ones.
        oldest = [
            message_id for message_id, _ in zip(self.records, range(self._batch), strict=False)
        ]
        for message_id in oldest:
            del self.records[message_id]
        self.evicted += len(oldest)

    def sweep(self, now: float) -> None:
        """Forget records whose time is over."""
        horizon = now - self._ttl
        expired = []
        for message_id, record in self.records.items():
            if record.created >= horizon:
                break
            expired.append(message_id)
        for message_id in expired:
            del self.records[message_id]
