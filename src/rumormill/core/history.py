"""The order of a topic's history, and what can be asked of it where it is stored.

Peers compare what they have of a topic as sets of keys in one order, the same at every peer: by the
author's date, then by id. Nobody on the way can change a date that an author has signed, and who
was away lacks one stretch of it. A set is known by its count and the sum of its keys' hashes: sums
of neighbouring ranges add up, so a store can keep them, and 4,096 bits are too long for anybody to
make two sets with one sum (Meyer, Range-Based Set Reconciliation, section V).

A runtime answers a `HistoryQuery` where the log is: the query is a value, and says itself what it
wants of the histories.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from rumormill.core.event import NEW, Event
from rumormill.core.ids import MessageId, PeerId, Topic

UNDATED: Final = 0
"""The stamp of an event whose author has signed no date: such events are ordered by their ids."""

STEP: Final = 1000
"""Nanoseconds that an author's numbers are apart at least: a stamp has microseconds, and two events
of one stamp could not be told apart by who has deleted one of them."""

AHEAD_SECONDS: Final = 60
"""By how much clocks may differ: our choice. What is dated later when it comes has a wrong date."""

_SEQNO_BYTES: Final = 8
_LATEST: Final = 1e12
"""Seconds since 1970 that are no date any more, but a mistake or a joke."""
_MAX_AUTHORS: Final = 1024
"""Authors of a topic of whom it is known what was deleted; our choice."""
_TELL_NOTHING: Final = -1
_COUNT_BYTES: Final = 8
SUM_BITS: Final = 4096
"""Bits of a sum of hashes."""
_SUM_BYTES: Final = SUM_BITS // 8
_MODULUS: Final = 1 << SUM_BITS


class Key(NamedTuple):
    """An event's place in its topic's history: the author's date in microseconds, and its id."""

    stamp: int
    id: MessageId


BEGIN: Final = Key(0, b"")
END: Final = Key(2**63 - 1, b"")
"""Before the first key, and behind the last."""


def stamp_of(event: Event) -> int:
    """The date that an event's author has signed, in microseconds; `UNDATED` where there is none.

    Where the id is the author and eight bytes (GossipSub, FloodSub, radius), these are a date in
    nanoseconds. They are taken as they are: what others number otherwise has a date that is wrong,
    and wrong in the same way at every peer.
    """
    author, event_id = event.author, event.id
    if len(event_id) == len(author) + _SEQNO_BYTES and author and event_id.startswith(author):
        return int.from_bytes(event_id[-_SEQNO_BYTES:], "big") // 1000
    created = event.created
    if created is None or not 0 < created < _LATEST:
        return UNDATED
    return round(created * 1e6)


def is_ahead(stamp: int, now: float) -> bool:
    """Whether a date lies so far ahead that it is wrong."""
    return stamp > 1e6 * (now + AHEAD_SECONDS)


class Summary(msgspec.Struct, frozen=True, gc=False):
    """How many keys a range holds, and the sum of their hashes."""

    count: int = 0
    total: int = 0

    def __add__(self, other: "Summary") -> "Summary":
        """Both ranges together."""
        return Summary(self.count + other.count, (self.total + other.total) % _MODULUS)

    def __sub__(self, other: "Summary") -> "Summary":
        """What is left without a part."""
        return Summary(self.count - other.count, (self.total - other.total) % _MODULUS)

    @property
    def encoded(self) -> bytes:
        """Both numbers as bytes: what a fingerprint covers, and what a store keeps."""
        return self.count.to_bytes(_COUNT_BYTES, "big") + self.total.to_bytes(_SUM_BYTES, "big")

    @classmethod
    def decoded(cls, encoded: bytes) -> "Summary":
        """The opposite of `encoded`; `ValueError` if it is not of that length."""
        if len(encoded) != _COUNT_BYTES + _SUM_BYTES:
            raise ValueError(f"a summary has {_COUNT_BYTES + _SUM_BYTES} bytes")
        both = int.from_bytes(encoded, "big")
        return cls(both >> SUM_BITS, both % _MODULUS)


def summary_of(topic: Topic, keys: Sequence[Key]) -> Summary:
    """The summary of some keys of a topic."""
    name = topic.encode()
    prefix = hashlib.shake_128(len(name).to_bytes(4, "big") + name)
    total = 0
    for stamp, event_id in keys:
        hashed = prefix.copy()
        hashed.update(stamp.to_bytes(8, "big") + event_id)
        total += int.from_bytes(hashed.digest(_SUM_BYTES), "big")
    return Summary(len(keys), total % _MODULUS)


class Window(msgspec.Struct, frozen=True):
    """What of a history is all there, as far as retention goes.

    Dated events from `keep_from` on are; earlier ones may have been deleted. `undated` and `ahead`
    say that no event was deleted that has no date, or one that lay ahead when it came.
    """

    keep_from: int = UNDATED + 1
    undated: bool = True
    ahead: bool = True

    def without(self, stamp: int, received: float) -> "Window":
        """What is left when retention has deleted an event of this date that came at this time."""
        if stamp == UNDATED:
            return Window(self.keep_from, undated=False, ahead=self.ahead)
        if is_ahead(stamp, received):
            return Window(self.keep_from, undated=self.undated, ahead=False)
        return Window(max(self.keep_from, stamp + 1), undated=self.undated, ahead=self.ahead)


class Deleted(msgspec.Struct):
    """What retention has deleted of a topic, as far as dates tell: that is not stored again.

    Each author's own dates tell, whatever others' are: who numbers from its start, as go-libp2p
    does, or has a clock that is late, says new things with old dates.
    """

    latest: dict[PeerId, int] = {}
    """The latest date of deleted events by author, of whom one was deleted last stands last;
    `_TELL_NOTHING` of one who has dated ahead."""
    others: int = UNDATED
    """The latest of all authors that are forgotten, because they were too many."""

    def add(self, gone: Iterable[tuple[PeerId, int, float]]) -> None:
        """Note authors and dates of deleted events, and when these came."""
        latest = self.latest
        for author, stamp, received in gone:
            if not author or stamp == UNDATED:
                continue
            before = latest.pop(author, UNDATED)
            wrong = before == _TELL_NOTHING or is_ahead(stamp, received)
            latest[author] = _TELL_NOTHING if wrong else max(stamp, before)
            if len(latest) > _MAX_AUTHORS:
                self.others = max(self.others, latest.pop(next(iter(latest))))

    def has(self, event: Event) -> bool:
        """Whether an event that comes now is one of those.

        Of an author who is not known, what comes soon after its date is new.
        """
        if event.offset == NEW:
            return False
        stamp, latest = stamp_of(event), self.latest.get(event.author)
        if latest is None:
            latest = min(self.others, int(1e6 * (event.received - AHEAD_SECONDS)))
        return UNDATED < stamp <= latest


class History(Protocol):
    """One topic's stored keys in their order. Ranges hold `low` and not `high`."""

    window: Window

    def summary(self, low: Key, high: Key) -> Summary:
        """What a range holds."""

    def cut(self, low: Key, high: Key, parts: int) -> list[Key]:
        """Cut a range into at most so many parts of about the same count, where that costs least;
        return the keys at which parts begin, without the first.
        """

    def keys(self, low: Key, high: Key, limit: int) -> list[Key]:
        """The first keys of a range, at most so many."""

    def events(self, keys: Sequence[Key], max_bytes: int) -> list[Event]:
        """The events of these keys, without those that are known but not stored.

        The list ends behind the event with which its data and proofs reach `max_bytes`.
        """


class Histories(Protocol):
    """All topics of a store, as they are at one moment."""

    def history(self, topic: Topic) -> History | None:
        """A topic's history; None if nothing was ever stored of it."""

    def named(self, tag: bytes) -> Topic | None:
        """The topic whose name has this `topic_tag`."""


class HistoryQuery(msgspec.Struct, frozen=True):
    """A question about stored histories, worked out where they are."""

    def work_out(self, histories: Histories) -> object:
        """Find the answer; each kind of question says how."""
        return None


def topic_tag(topic: Topic) -> bytes:
    """Eight bytes that stand for a topic's name: who does not know the name learns nothing."""
    return hashlib.sha256(topic.encode()).digest()[:8]
