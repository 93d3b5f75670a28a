"""The ids of messages seen lately: the first question asked of every arrival.

An id is remembered for at least `ttl` seconds, and forgotten soon after (within an eighth of that,
as long as anything is added or `sweep` is called). There are never more than `limit` ids; beyond
that the oldest are forgotten early, and counted.

It is a plain dict, `ids`, in the order in which the ids expire: the hot path asks
`message_id in cache.ids`. Old ids are removed in batches, because the oldest entry of a dict is
found only by walking over the deleted ones before it.
"""

from itertools import islice
from typing import Final

from rumormill.core.ids import MessageId

_SWEEPS_PER_TTL: Final = 8
"""Our choice: at most an eighth of the ids is remembered longer than needed."""
_BATCHES: Final = 64
"""Our choice: when the cache is full, the oldest 1/64 goes at once."""


class SeenCache:
    """Remembers an id from when it was first seen; seeing it again changes nothing.

    No time is kept per id, only how many ids each stretch of time added.
    """

    __slots__ = ("_added", "_ages", "_batch", "_limit", "_sweep_at", "_ttl", "evicted", "ids")

    def __init__(self, ttl: float, limit: int) -> None:
        self.ids: dict[MessageId, None] = {}
        self.evicted = 0
        """Ids forgotten before their time because there were too many."""
        self._ttl = ttl
        self._limit = limit
        self._batch = max(1, limit // _BATCHES)
        self._ages: list[tuple[float, int]] = []
        """When each earlier stretch ended and how many of its ids are left, oldest first: about as
        many as there are sweeps per `ttl`, and a list is a tenth of an empty deque's size."""
        self._added = 0
        self._sweep_at = float("-inf")

    def add(self, message_id: MessageId, now: float) -> bool:
        """Remember an id; true if it is new."""
        if now >= self._sweep_at:
            self.sweep(now)
        ids = self.ids
        if message_id in ids:
            return False
        if len(ids) >= self._limit:
            self._evict()
        ids[message_id] = None
        self._added += 1
        return True

    def sweep(self, now: float) -> None:
        """Forget what is old."""
        ages = self._ages
        if now >= self._sweep_at:
            if self._added:
                ages.append((self._sweep_at, self._added))
                self._added = 0
            self._sweep_at = now + self._ttl / _SWEEPS_PER_TTL
        expired = 0
        while ages and ages[0][0] + self._ttl <= now:
            expired += ages.pop(0)[1]
        self._forget_oldest(expired)

    def _evict(self) -> None:
        ages = self._ages
        left = batch = min(self._batch, len(self.ids))
        while left and ages:
            ended, count = ages[0]
            if count > left:
                ages[0] = (ended, count - left)
                left = 0
            else:
                ages.pop(0)
                left -= count
        self._added -= left
        self._forget_oldest(batch)
        self.evicted += batch

    def _forget_oldest(self, count: int) -> None:
        if count == len(self.ids):
            self.ids.clear()
        elif count:
            for message_id in list(islice(self.ids, count)):
                del self.ids[message_id]
