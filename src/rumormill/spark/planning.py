"""From options and extents to ranges: which offsets of which topics are read, in which pieces.

Everything here is a pure function, so that the same offsets give the same pieces: a batch that is
replayed after a crash is cut exactly as it was before.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final, TypeVar

import msgspec

from rumormill.core.config import nearest
from rumormill.core.errors import LocalError, RumormillError
from rumormill.log.event_log import DEFAULT_CONFIG
from rumormill.log.model import TopicExtent
from rumormill.spark.access import AnyRange, DataLossError
from rumormill.spark.options import EARLIEST, LATEST, ReadOptions

Offsets = dict[str, int]
"""By topic, in the order of names, the next offset to read at a place."""

Key = TypeVar("Key", str, tuple[str, int])
Since = Callable[[str, float], int | None]
"""The first offset of a topic that was received at a time or later."""

SEGMENT_ROWS: Final = DEFAULT_CONFIG.segment_rows
_ALIGNED_SEGMENTS: Final = 2
"""Parts of at least so many segments end where segments do: a segment that two tasks share is read
by both, and made by none."""

_MILLISECONDS: Final = 1000
_SHOWN: Final = 5


def fetch_first(options: ReadOptions) -> None:
    """Have the node fetch what a query wants that other nodes have; what is missing is named."""
    if options.fetch is None:
        return
    place, *others = options.places
    for topic in options.topics:
        found = None
        while found is None:
            try:
                found = place.fetch_history(topic, options.fetch)
            except RumormillError:
                if not others:
                    raise
                place = others.pop(0)
        if found.missing and not found.bounded and options.fail_on_data_loss:
            named = ", ".join(each.hex() for each in found.missing[:_SHOWN])
            raise DataLossError(
                f"topic {topic!r} of {place.where}: {len(found.missing)} events that"
                f" others link to are to be had from nobody: {named}. With failOnDataLoss=false"
                " they are passed over"
            )


def subscribed(options: ReadOptions, extents: Mapping[str, TopicExtent], where: str) -> list[str]:
    """The topics of a batch read; one that does not exist is an error."""
    found = sorted(name for name in extents if options.wants(name))
    for name in options.topics:
        if name not in extents:
            raise LocalError(f"there is no topic {name!r} in {where}; {_known(name, extents)}")
    if not found:
        raise LocalError(f"no topic in {where} matches {options.pattern!r}")
    return found


def resolve_start(
    options: ReadOptions, topic: str, extent: TopicExtent, since: Since, place: int = 0
) -> int:
    """The first offset to read of a topic at a place."""
    wanted = options.start.of(topic, place)
    if wanted is None or (wanted == EARLIEST and not options.start.is_time):
        return extent.first_offset
    if options.start.is_time:
        found = since(topic, wanted / _MILLISECONDS)
        if found is not None:
            return found
        if options.latest_if_no_later:
            return extent.next_offset
        raise LocalError(
            f"topic {topic!r} has no event received at {wanted} ms or later; with"
            " startingOffsetsByTimestampStrategy=latest reading begins at its end"
        )
    if wanted == LATEST:
        return extent.next_offset
    if wanted > extent.next_offset:
        return _beyond(options, "startingOffsets", topic, wanted, extent)
    if wanted < extent.first_offset:
        return lost(options, topic, wanted, extent.first_offset)
    return wanted


def resolve_end(
    options: ReadOptions, topic: str, extent: TopicExtent, since: Since, place: int = 0
) -> int:
    """The offset behind the last one to read of a topic at a place."""
    wanted = options.end.of(topic, place)
    if wanted is None or (wanted == LATEST and not options.end.is_time):
        return extent.next_offset
    if options.end.is_time:
        found = since(topic, wanted / _MILLISECONDS)
        return extent.next_offset if found is None else found
    if wanted > extent.next_offset:
        return _beyond(options, "endingOffsets", topic, wanted, extent)
    return wanted


def _beyond(options: ReadOptions, option: str, topic: str, wanted: int, extent: TopicExtent) -> int:
    if options.fail_on_data_loss:
        raise LocalError(
            f"{option}: offset {wanted} of topic {topic!r} is beyond its end: the next event"
            f" will have offset {extent.next_offset}"
        )
    return extent.next_offset


def lost(options: ReadOptions, topic: str, start: int, first: int) -> int:
    """Offsets up to `first` are gone: an error that names them, or reading goes on there."""
    if options.fail_on_data_loss:
        raise DataLossError(
            f"topic {topic!r}: offsets {start} to {first - 1} are gone, retention has deleted"
            f" them; the oldest kept offset is {first}. With failOnDataLoss=false reading goes on"
            " there"
        )
    return first


def latest(options: ReadOptions, start: Offsets, extents: Mapping[str, TopicExtent]) -> Offsets:
    """Where the subscribed topics end now; one that has vanished or shrunk is lost data."""
    names = sorted({*start, *options.topics, *(name for name in extents if options.wants(name))})
    ends: Offsets = {}
    for name in names:
        extent = extents.get(name, TopicExtent(name, 0, 0))
        begun = start.get(name, 0)
        if extent.next_offset < begun and options.fail_on_data_loss:
            raise DataLossError(
                f"topic {name!r} ends at offset {extent.next_offset}, but was read up to {begun}"
                " before: the store is another or an older one. With failOnDataLoss=false the"
                " stream waits until the topic has grown that far"
            )
        ends[name] = max(extent.next_offset, begun)
    return ends


def limited(start: Mapping[Key, int], end: dict[Key, int], most: int) -> dict[Key, int]:
    """At most so many events, shared over topics and places by how much each has."""
    waiting = {name: stop - start.get(name, 0) for name, stop in end.items()}
    total = sum(waiting.values())
    if total <= most:
        return end
    shares = {name: most * count // total for name, count in waiting.items()}
    left = most - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda name: (-(most * waiting[name] % total), name))
    for name in by_remainder[:left]:
        shares[name] += 1
    return {name: start.get(name, 0) + shares[name] for name in end}


def pieces(ranges: list[AnyRange], min_partitions: int, max_records: int) -> list[AnyRange]:
    """Cut ranges so that none is longer than `max_records` and there are enough of them."""
    ranges = [each for each in ranges if each.start < each.stop]
    total = sum(each.stop - each.start for each in ranges)
    cut: list[AnyRange] = []
    for each in ranges:
        size = each.stop - each.start
        parts = max(-(-size // max_records), round(min_partitions * size / total), 1)
        cut += _split(each, min(parts, size), max_records)
    while len(cut) < min(min_partitions, total):
        longest = max(range(len(cut)), key=lambda number: cut[number].stop - cut[number].start)
        cut[longest : longest + 1] = _split(cut[longest], 2, max_records)
    return cut


def _split(piece: AnyRange, parts: int, longest: int) -> list[AnyRange]:
    """About equal parts, which end where segments of the store do if they hold some each."""
    size = piece.stop - piece.start
    bounds = [piece.start + size * number // parts for number in range(parts + 1)]
    if parts > 1 and size // parts >= _ALIGNED_SEGMENTS * SEGMENT_ROWS:
        bounds[1:-1] = [
            (bound + SEGMENT_ROWS // 2) // SEGMENT_ROWS * SEGMENT_ROWS for bound in bounds[1:-1]
        ]
        if max(stop - start for start, stop in pairwise(bounds)) > longest:
            step = longest // SEGMENT_ROWS * SEGMENT_ROWS
            first = piece.start // SEGMENT_ROWS * SEGMENT_ROWS + step
            bounds[1:-1] = range(first, piece.stop, step)
    return [
        msgspec.structs.replace(piece, start=start, stop=stop) for start, stop in pairwise(bounds)
    ]


def _known(name: str, extents: Mapping[str, TopicExtent]) -> str:
    if not extents:
        return "it has no topics at all"
    if len(extents) <= _SHOWN:
        return f"it has {', '.join(map(repr, sorted(extents)))}"
    return nearest(name, sorted(extents)[:10_000])
