"""A topic's history in memory: keys in their order, in blocks that know their sums."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from rumormill.core.event import Event
from rumormill.core.history import Key, Summary, Window, stamp_of, summary_of
from rumormill.core.ids import MessageId, Topic

BLOCK: Final = 64


@lru_cache(1 << 15)
def _one(topic: Topic, key: Key) -> Summary:
    """One key's hash; all peers of a run ask for the same."""
    return summary_of(topic, (key,))


class MemoryHistory:
    """One topic's keys (see `core.history.History`)."""

    def __init__(
        self, topic: Topic, find: Callable[[MessageId], Event | None], sum_bits: int
    ) -> None:
        self.window = Window()
        self._topic, self._find, self._modulus = topic, find, 1 << sum_bits
        self._blocks: list[list[Key]] = [[]]
        self._firsts: list[Key] = [Key(0, b"")]
        self._sums: list[Summary] = [Summary()]

    def add(self, key: Key) -> None:
        """Enter a key, unless it is there."""
        at = self._block_of(key)
        block = self._blocks[at]
        place = bisect_left(block, key)
        if place < len(block) and block[place] == key:
            return
        insort(block, key)
        self._sums[at] += _one(self._topic, key)
        if len(block) > 2 * BLOCK:
            behind = block[BLOCK:]
            del block[BLOCK:]
            self._blocks.insert(at + 1, behind)
            self._firsts.insert(at + 1, behind[0])
            other = self._sum(behind)
            self._sums[at] -= other
            self._sums.insert(at + 1, other)

    def delete(self, event: Event) -> None:
        """Retention takes an event: what is as old is not asked for any more."""
        key = Key(stamp_of(event), event.id)
        at = self._block_of(key)
        if key in self._blocks[at]:
            self._blocks[at].remove(key)
            self._sums[at] -= _one(self._topic, key)
        self.window = self.window.without(key.stamp, event.received)

    def _block_of(self, key: Key) -> int:
        at = bisect_left(self._firsts, key)
        return at if at < len(self._firsts) and self._firsts[at] == key else at - 1

    def _sum(self, keys: Sequence[Key]) -> Summary:
        topic = self._topic
        return Summary() + Summary(len(keys), sum(_one(topic, key).total for key in keys))

    def _pieces(self, low: Key, high: Key) -> Iterator[tuple[int, int, int]]:
        """The blocks that a range touches, with the places in each."""
        at = max(self._block_of(low), 0)
        while at < len(self._blocks) and self._firsts[at] < high:
            block = self._blocks[at]
            start, stop = bisect_left(block, low), bisect_left(block, high)
            if start < stop:
                yield at, start, stop
            at += 1

    def summary(self, low: Key, high: Key) -> Summary:
        """What a range holds."""
        total = Summary()
        for at, start, stop in self._pieces(low, high):
            whole = stop - start == len(self._blocks[at])
            total += self._sums[at] if whole else self._sum(self._blocks[at][start:stop])
        return Summary(total.count, total.total % self._modulus)

    def _walk(self, low: Key, high: Key) -> Iterator[Key]:
        for at, start, stop in self._pieces(low, high):
            yield from self._blocks[at][start:stop]

    def cut(self, low: Key, high: Key, parts: int) -> list[Key]:
        """Cut a range into parts of the same count."""
        keys = list(self._walk(low, high))
        return [keys[len(keys) * part // parts] for part in range(1, min(parts, len(keys)))]

    def keys(self, low: Key, high: Key, limit: int) -> list[Key]:
        """The first keys of a range."""
        return list(islice(self._walk(low, high), limit))

    def events(self, keys: Sequence[Key], max_bytes: int) -> list[Event]:
        """The events of these keys that are stored."""
        found: list[Event] = []
        for key in keys:
            event = self._find(key.id)
            if event is not None and max_bytes > 0:
                max_bytes -= len(event.data) + len(event.proof)
                found.append(event)
        return found
