"""Comparing histories range by range: what both sides of a session work out where their logs are.

Two peers compare the hash of a range. If it is equal they have the same events there, and nothing
more is said. If not, whoever has many events in it cuts it into sixteen, by count, and the other
compares these. Where the asker has few, it fetches what it lacks, and names what it has. Each step
divides one side's events by sixteen, so a million take three steps each way; who was away lacks one
stretch, finds it in as many, and names nothing (Meyer, Range-Based Set Reconciliation, section 3).

What is compared both sides must keep and know alike: dated events that neither side's retention has
deleted, up to a moment that gossip has settled, and those whose dates are wrong and lie well ahead.
Both moments are the asker's: it knows what it waits for, and whose clock is right nobody does.
The hashes are salted anew in each session, so that who meets a collision does not meet it again.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Final

import msgspec

from rumormill.core.history import (
    AHEAD_SECONDS,
    BEGIN,
    END,
    Histories,
    History,
    HistoryQuery,
    Key,
    Summary,
    Window,
    stamp_of,
    topic_tag,
)
from rumormill.core.ids import MessageId, Topic
from rumormill.sync.messages import (
    HASH_BYTES,
    MAX_EVENTS,
    MAX_SPANS,
    SHORT_BYTES,
    Compare,
    Compared,
    Difference,
    Events,
    Fetch,
    Probe,
    ProbedTopic,
    SentEvent,
    Span,
    Spans,
    Verdict,
    Wanted,
)

PARTS: Final = 16
"""Into how many a range is cut. Our choice, as others' (negentropy): twice as many save one message
in five and cost half as many bytes again."""

LISTED: Final = 64
"""Events of the asker in a range that are named one by one instead of cutting it: at most twice the
bytes of a cut, and a step less."""

_ASKED: Final = MAX_SPANS // 2
"""Ranges in one comparison: between two of them may lie one of which nothing is said."""

_DETAILED: Final = 32
"""Topics of a verdict that are cut at once; the others are one range each."""

_YOUNGEST: Final = 60_000_000
_GROWTH: Final = 4
"""The answer to a probe is cut by age: the last minute, four, sixteen... Losses are recent, and an
hour away is found at once."""

_EVENTS_BYTES: Final = 256 << 10
"""Bytes of events in one answer; our choice: a quarter of a second at 1 MB/s."""
_FEW_EVENTS_BYTES: Final = 16 << 10
"""Likewise through a relay's limited circuit, which go and js end after 128 KiB."""

_SURELY: Final = AHEAD_SECONDS * 1_000_000
"""By how much a date must differ to be wrong, in microseconds."""

_LOOKED_AT: Final = 4 * MAX_EVENTS
"""Keys that one fetch looks at, known or not."""

Bounds = tuple[Key, Key]


def fingerprint(salt: bytes, summary: Summary) -> bytes:
    """What stands for a summary in one session."""
    return blake2b(summary.encoded, digest_size=HASH_BYTES, key=salt).digest()


def short_id(salt: bytes, event_id: MessageId) -> bytes:
    """What stands for an id in one session."""
    return blake2b(event_id, digest_size=SHORT_BYTES, key=salt).digest()


def common_ranges(one: Window, other: Window, upto: int, ahead_from: int) -> list[Bounds]:
    """The ranges that two windows have in common, from the first key on."""
    keep_from = max(one.keep_from, other.keep_from)
    ranges: list[Bounds] = []
    if one.undated and other.undated:
        ranges.append((BEGIN, Key(1, b"")))
    if keep_from < upto:
        ranges.append((Key(keep_from, b""), Key(upto, b"")))
    if one.ahead and other.ahead and ahead_from < END.stamp:
        ranges.append((Key(max(keep_from, upto, ahead_from), b""), END))
    return ranges


def _total(history: History, ranges: Iterable[Bounds]) -> Summary:
    return sum((history.summary(low, high) for low, high in ranges), start=Summary())


def _in_a_row(ranges: Iterable[tuple[Key, Key, bytes]], start: Key = BEGIN) -> Spans:
    """Ranges with their hashes as they stand in a message: what lies between says nothing."""
    spans: list[Span] = []
    end = start
    for low, high, hashed in ranges:
        if low > end:
            spans.append(Span(low))
        spans.append(Span(high, hashed))
        end = high
    return tuple(spans)


def compared(low: Key, spans: Spans) -> Iterator[tuple[Key, Key, bytes]]:
    """The ranges of a message that say something."""
    for span in spans:
        if span.hash:
            yield low, span.high, span.hash
        low = span.high


def _cut(history: History, low: Key, high: Key) -> Iterator[Bounds]:
    """The parts of a range. Where only the date tells two parts apart, only the date is said."""
    before = low
    for key in history.cut(low, high, PARTS):
        date = Key(key.stamp, b"")
        bound = date if date > before else key
        if bound > before:
            yield before, bound
            before = bound
    yield before, high


def _by_age(history: History, low: Key, high: Key) -> Iterator[Bounds]:
    """The parts of a range by age, the oldest first, as far back as there is anything."""
    first = history.keys(low, high, 1)
    bounds = [high]
    age = _YOUNGEST
    while first and (bound := Key(high.stamp - age, b"")) > max(low, first[0]):
        bounds.append(bound)
        age *= _GROWTH
    bounds.append(low)
    return ((bounds[at], bounds[at - 1]) for at in range(len(bounds) - 1, 0, -1))


def _hashed(
    history: History, salt: bytes, parts: Iterable[Bounds]
) -> Iterator[tuple[Key, Key, bytes]]:
    """Parts that are not empty, with their hashes."""
    for low, high in parts:
        if (own := history.summary(low, high)).count:
            yield low, high, fingerprint(salt, own)


# The asker's questions to its own log.


class MakeProbe(HistoryQuery, frozen=True):
    """What there is of some topics: the beginning of a session."""

    salt: bytes
    upto: int
    ahead_from: int
    topics: tuple[tuple[Topic, int], ...]
    """Each with the date from which on its events are wanted."""

    def work_out(self, histories: Histories) -> Probe:
        """Make the probe."""
        probed = []
        for topic, since in self.topics:
            history, window, own = histories.history(topic), Window(max(since, 1)), Summary()
            if history is not None:
                kept = history.window
                window = Window(_wanted_from(history, since), kept.undated, kept.ahead)
                own = _total(history, common_ranges(window, window, self.upto, self.ahead_from))
            probed.append(ProbedTopic(topic_tag(topic), fingerprint(self.salt, own), window))
        return Probe(self.salt, self.upto, self.ahead_from, tuple(probed))


def _wanted_from(history: History, since: int) -> int:
    """The date from which on what `since` means is wanted.

    Others number events from when they were started, or at random. What they publish may then seem
    older than the subscription, and what is missing of it as well. If one is here that came long
    after its date, no date tells what is wanted; clocks that differ a little move the beginning.
    """
    kept = history.window.keep_from
    early = history.keys(Key(kept, b""), Key(since, b""), LISTED)
    events = (event for key in early for event in history.events([key], 1))
    if any(stamp_of(event) < event.received * 1e6 - _SURELY for event in events):
        return kept
    near = history.keys(Key(max(kept, since - _SURELY), b""), Key(since, b""), 1)
    return near[0].stamp if near else max(since, kept)


class Unequal(msgspec.Struct, frozen=True, gc=False):
    """What is left to do about ranges that differ: cut ones to compare, others to fetch."""

    cuts: tuple[tuple[Key, Spans], ...] = ()
    wanted: tuple[Wanted, ...] = ()
    count: int = 0
    """How many events we have in all the ranges that were looked at."""


def _named(history: History | None, salt: bytes, low: Key, high: Key) -> Wanted:
    """A range whose events are wanted, without those that are here."""
    known = () if history is None else history.keys(low, high, LISTED)
    return Wanted(low, high, b"".join([short_id(salt, key.id) for key in known]))


class Cut(msgspec.Struct, frozen=True):
    """Ranges of a topic, to be compared by the partner, or by us when it has answered."""

    topic: Topic
    low: Key
    spans: Spans


class FindUnequal(HistoryQuery, frozen=True):
    """What to do about the ranges of some answers."""

    salt: bytes
    cuts: tuple[Cut, ...]

    def work_out(self, histories: Histories) -> tuple[Unequal, ...]:
        """Find what differs, and what to do about it."""
        return tuple([self._find(histories.history(cut.topic), cut) for cut in self.cuts])

    def _find(self, history: History | None, cut: Cut) -> Unequal:
        wanted: list[Wanted] = []
        parts: list[tuple[Key, Key, bytes]] = []
        count = 0
        for low, high, hashed in compared(cut.low, cut.spans):
            own = Summary() if history is None else history.summary(low, high)
            count += own.count
            if fingerprint(self.salt, own) == hashed:
                continue
            if history is None or own.count <= LISTED:
                found = _named(history, self.salt, low, high)
                if not found.known and wanted and wanted[-1].high == low and not wanted[-1].known:
                    found = Wanted(wanted.pop().low, high)
                wanted.append(found)
            else:
                parts += self._all_parts(history, low, high)
        return Unequal(_comparisons(parts), tuple(wanted), count)

    def _all_parts(self, history: History, low: Key, high: Key) -> Iterator[tuple[Key, Key, bytes]]:
        """The parts of a range with their hashes, empty ones too: the other may have something."""
        for part_low, part_high in _cut(history, low, high):
            own = history.summary(part_low, part_high)
            yield part_low, part_high, fingerprint(self.salt, own)


def _comparisons(parts: Sequence[tuple[Key, Key, bytes]]) -> tuple[tuple[Key, Spans], ...]:
    """Ranges as they stand in comparisons, each of which begins at a key."""
    cuts = []
    for first in range(0, len(parts), _ASKED):
        asked = parts[first : first + _ASKED]
        low = asked[0][0]
        cuts.append((low, _in_a_row(asked, low)))
    return tuple(cuts)


class PickAudited(HistoryQuery, frozen=True):
    """A few neighbouring events of some ranges, which depend on a number."""

    salt: bytes
    topic: Topic
    ranges: tuple[Bounds, ...]
    place: int

    def work_out(self, histories: Histories) -> Wanted | Unequal:
        """Find a small range that is not empty, and name its events."""
        history = histories.history(self.topic)
        parts = list(self.ranges)
        while history is not None:
            counts = [history.summary(*part).count for part in parts]
            if not any(counts):
                break
            at = bisect_right(list(accumulate(counts)), self.place % sum(counts))
            if counts[at] <= LISTED:
                return _named(history, self.salt, *parts[at])
            parts = list(_cut(history, *parts[at]))
        return Unequal()


# The answerer's questions to its own log.


def _tagged(histories: Histories, tag: bytes) -> History | None:
    topic = histories.named(tag)
    return None if topic is None else histories.history(topic)


class AnswerProbe(HistoryQuery, frozen=True):
    """The answer to a probe."""

    probe: Probe

    def work_out(self, histories: Histories) -> Verdict:
        """Compare each topic."""
        differences: list[Difference] = []
        unknown: list[int] = []
        for place, probed in enumerate(self.probe.topics):
            history = _tagged(histories, probed.tag)
            found = None if history is None else self._judge(history, probed, len(differences))
            if found is None:
                unknown.append(place)
            elif found[1]:
                differences.append(Difference(place, *found))
        return Verdict(tuple(differences), tuple(unknown))

    def _judge(
        self, history: History, probed: ProbedTopic, others: int
    ) -> tuple[int, Spans] | None:
        """How many events there are in common ranges, and where they differ; None if none are."""
        probe, window = self.probe, probed.window
        ranges = common_ranges(history.window, window, probe.upto, probe.ahead_from)
        own = _total(history, ranges)
        if not own.count:
            return None
        alike = ranges == common_ranges(window, window, probe.upto, probe.ahead_from)
        if alike and fingerprint(probe.salt, own) == probed.hash:
            return own.count, ()
        parts: list[Bounds] = []
        for low, high in ranges:
            if alike and others < _DETAILED and low.stamp and high != END:
                parts += _by_age(history, low, high)
            else:
                parts.append((low, high))
        return own.count, _in_a_row(_hashed(history, probe.salt, parts))


class AnswerCompare(HistoryQuery, frozen=True):
    """The answer to a comparison."""

    question: Compare

    def work_out(self, histories: Histories) -> Compared:
        """Compare each range, and cut what differs."""
        question = self.question
        history = _tagged(histories, question.tag)
        if history is None:
            return Compared()
        found: list[tuple[Key, Key, bytes]] = []
        for low, high, hashed in compared(question.low, question.spans):
            own = history.summary(low, high)
            mine = fingerprint(question.salt, own)
            if mine == hashed or not own.count:
                continue
            if len(found) + PARTS > _ASKED:
                return Compared(_in_a_row(found, question.low), low)
            if own.count <= LISTED:
                found.append((low, high, mine))
            else:
                found += _hashed(history, question.salt, _cut(history, low, high))
        return Compared(_in_a_row(found, question.low))


class AnswerFetch(HistoryQuery, frozen=True):
    """The answer to a fetch."""

    question: Fetch
    limited: bool = False
    """Whether the answer goes through a relay that carries only so much: then in small pieces, each
    of which is worth something when the next is cut off."""

    def work_out(self, histories: Histories) -> Events:
        """Find the events that are not known."""
        question = self.question
        history = _tagged(histories, question.tag)
        if history is None:
            return Events()
        found: list[SentEvent] = []
        room, left = _FEW_EVENTS_BYTES if self.limited else _EVENTS_BYTES, _LOOKED_AT
        for place, wanted in enumerate(question.wanted):
            known = frozenset(_pieces(wanted.known))
            most = MAX_EVENTS - len(found)
            limit = min(left, len(known) + most + 1)  # behind the last that is sent, one more
            keys = history.keys(wanted.low, wanted.high, limit)
            left -= len(keys)
            unknown = keys
            if known:
                unknown = [key for key in keys if short_id(question.salt, key.id) not in known]
            events = history.events(unknown[:most], room)
            found += [SentEvent(each.author, each.id, each.data, each.proof) for each in events]
            room -= sum(len(event.data) + len(event.proof) for event in events)
            rest = None
            all_sent = len(events) == len(unknown) and len(keys) < limit
            if room <= 0 and not (all_sent and wanted is question.wanted[-1]):
                rest = _behind(Key(stamp_of(events[-1]), events[-1].id))
            elif len(unknown) > most:
                rest = unknown[most]
            elif len(keys) == limit:
                rest = _behind(keys[-1])
            if rest is not None:
                return Events(tuple(found), rest, place)
        return Events(tuple(found))


def _behind(key: Key) -> Key:
    """The first key behind another."""
    return Key(key.stamp, key.id + b"\0")


def _pieces(short_ids: bytes) -> list[bytes]:
    return [short_ids[at : at + SHORT_BYTES] for at in range(0, len(short_ids), SHORT_BYTES)]
