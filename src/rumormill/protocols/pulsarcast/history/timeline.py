"""Which events of a topic are known, by their dates: the memory behind dedup and reconciliation."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from typing import Final

from rumormill.protocols.pulsarcast.format.cid import tail

BUCKET: Final = 1000
"""Milliseconds per bucket; our choice: a range's ends are as exact as settling times need."""


_END: Final = 1 << 63
"""After all dates."""


class Timeline:
    """The ids of one topic's events, by date in milliseconds.

    Two neighbours find out whether they have the same events by comparing a count and a checksum
    (the exclusive or of the ids' last eight bytes) over a range of dates. Dates are the authors',
    part of the hashed descriptor, so both sides put an event into the same place whenever and in
    whatever order it arrived. Ids are kept in buckets of one second and ranges are whole buckets,
    so that a comparison adds up a few numbers and never looks at an id.

    The memory is bounded: when it is full the oldest bucket is forgotten, and `start` says from
    which date on it is complete.
    """

    __slots__ = ("_buckets", "_limit", "_order", "_sums", "dates", "late", "start")

    def __init__(self, limit: int) -> None:
        self.dates: dict[bytes, int] = {}
        """Every remembered id and its date; hot paths look ids up in here."""
        self.start = 0
        """Events dated before this may have been forgotten."""
        self.late: dict[int, float] = {}
        """Buckets of which an event came after others had agreed on them, and when."""
        self._limit = limit
        self._buckets: dict[int, list[bytes]] = {}
        self._sums: dict[int, int] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self.dates)

    def __contains__(self, cid: bytes) -> bool:
        return cid in self.dates

    def add(self, cid: bytes, date: int) -> bool:
        """Remember an id; false if it is known, or older than what the memory holds."""
        if cid in self.dates or date < self.start:
            return False
        self.dates[cid] = date
        number = date // BUCKET
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = [cid]
            self._sums[number] = int.from_bytes(tail(cid))
            if not self._order or number > self._order[-1]:
                self._order.append(number)
            else:
                insort(self._order, number)
        else:
            bucket.append(cid)
            self._sums[number] ^= int.from_bytes(tail(cid))
        if len(self.dates) > self._limit:
            self._forget_oldest()
        return True

    def remove(self, cid: bytes) -> None:
        """Forget an id, if it is known."""
        date = self.dates.pop(cid, None)
        if date is not None:
            self._buckets[date // BUCKET].remove(cid)
            self._sums[date // BUCKET] ^= int.from_bytes(tail(cid))

    def note_late(self, date: int, now: float) -> None:
        """Others may have agreed with us on a date, of which something has come or gone since."""
        self.late.pop(whole(date), None)
        self.late[whole(date)] = now

    def first_difference(self, other: "Timeline", since: int) -> int | None:
        """The first bucket, from that of a date on, of which another has other events."""
        numbers = dict.fromkeys((*self._numbers(since, _END), *other._numbers(since, _END)))
        for number in sorted(numbers):
            if self._sums.get(number, 0) != other._sums.get(number, 0):
                return number * BUCKET
        return None

    def _forget_oldest(self) -> None:
        oldest = self._order.pop(0)
        for cid in self._buckets.pop(oldest):
            del self.dates[cid]
        del self._sums[oldest]
        self.start = (oldest + 1) * BUCKET

    def digest(self, start: int, end: int) -> tuple[int, int]:
        """How many events are dated within whole buckets from `start` to before `end`, and their
        checksum."""
        count = checksum = 0
        for number in self._numbers(start, end):
            count += len(self._buckets[number])
            checksum ^= self._sums[number]
        return count, checksum

    def between(self, start: int, end: int) -> list[bytes]:
        """The ids of that range, by bucket, and within a bucket in the order of arrival."""
        return [*self.walk(start, end)]

    def walk(self, start: int, end: int) -> Iterator[bytes]:
        """The same, one after the other; the timeline must not change meanwhile."""
        return chain.from_iterable(map(self._buckets.__getitem__, self._numbers(start, end)))

    def before(self, cid: bytes, most: int) -> list[bytes]:
        """The ids of the bucket of a known event and of those before it, the nearest first."""
        found: list[bytes] = []
        place = bisect_left(self._order, self.dates[cid] // BUCKET)
        while place >= 0 and len(found) < most:
            found += reversed(self._buckets[self._order[place]])
            place -= 1
        return found[:most]

    def _numbers(self, start: int, end: int) -> list[int]:
        order = self._order
        first = bisect_left(order, start // BUCKET)
        return order[first : bisect_left(order, end // BUCKET)]


def whole(date: int) -> int:
    """The beginning of the bucket in which a date lies."""
    return date - date % BUCKET


def milliseconds(seconds: float) -> int:
    """A time as dates count it."""
    return int(seconds * 1000)
