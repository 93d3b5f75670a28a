"""A stream of several places: batches planned, cut into tasks, and read.

A plan reads the ids in the ranges of all places that answer, and asks others only about places that
are `behind` (`followed`). Tasks read each event from the first place that has it, and from another
where that one has died meanwhile. The rule: an event that a batch gives is read from whichever
place has it; if none that answers has it, that is an error or, without `failOnDataLoss`, a warning
that counts them.
"""

import contextlib
import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rumormill.core.errors import RumormillError
from rumormill.log.model import Range
from rumormill.spark import planning
from rumormill.spark.access import Access, DataLossError, read_piece
from rumormill.spark.followed import MAX_GIVEN, Followed, Ids, fingerprint, fingerprints
from rumormill.spark.options import ReadOptions
from rumormill.spark.replicas import Extents, Line, Offsets, Piece, numbered

MAX_PLANNED: Final = 131_072
"""Our choice: events of a batch at most, of all places, whose ids the driver holds."""

_CHECKED: Final = 4096
"""Events about which a place that is behind is asked at each batch whether it has them."""

_log = logging.getLogger("rumormill.spark")


class Share(Piece, frozen=True):
    """What a task reads at a place, and where to look for it if that place has died."""

    wanted: bytes = b""
    """Fingerprints, joined."""
    elsewhere: tuple[tuple[int, int], ...] = ()
    """Other places, and the offset from which on they may have it."""


class Merger:
    """Plans the batches of a stream."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._read: dict[Range, Ids] = {}
        """What was read for the last plan; the tasks are mostly cut right after it."""

    def plan(
        self, start: Mapping[str, Followed], ends: Offsets, live: Extents, most: int
    ) -> dict[str, Followed]:
        """How far the next batch goes, at most to these ends and by so many events."""
        begun = _by_line(start)
        for topic, number in ends:
            if (topic, number) not in begun and topic in live.get(number, {}):
                begun[topic, number] = live[number][topic].first_offset if number else 0
        found = self._plan(start, planning.limited(begun, ends, min(most, MAX_PLANNED)), live)
        if _new(start, found) > MAX_GIVEN:  # then with so few that all of them can be kept
            found = self._plan(start, planning.limited(begun, ends, MAX_GIVEN), live)
        if sum(len(own.given) for own in found.values()) > MAX_GIVEN:
            found = {
                topic: own.newest_only(start.get(topic, Followed()).joined(own.offsets))
                for topic, own in found.items()
            }
        return found

    def _plan(
        self, start: Mapping[str, Followed], ends: Offsets, live: Extents
    ) -> dict[str, Followed]:
        self._read.clear()
        found = {}
        for topic in sorted({topic for topic, _ in ends}):
            begun = start.get(topic, Followed())
            stops = {number: stop for (name, number), stop in ends.items() if name == topic}
            new = [number for number in stops if number not in begun.offsets]
            begun = begun.joined(stops)
            ranges = self._ranges(topic, begun.offsets, stops, live, new)
            for number in stops:
                if number not in ranges:  # it has died since it was asked for its topics
                    stops[number] = begun.offsets[number]
            told = self._told(topic, begun, ranges, live)
            own = begun.after(stops, ranges, told)
            own.behind = self._still_behind(topic, begun, live)
            found[topic] = own
        return found

    def _ranges(
        self,
        topic: str,
        starts: Mapping[int, int],
        stops: Mapping[int, int],
        live: Extents,
        new: Sequence[int],
    ) -> dict[int, Ids]:
        """The events between two offsets of all places that answer."""
        found: dict[int, Ids] = {}
        for number, stop in stops.items():
            if number not in live:
                continue
            extent = live[number].get(topic)
            start = starts[number]
            if extent is not None and start < min(extent.first_offset, stop):
                if number and number in new:  # what it had before is nobody's loss
                    start = extent.first_offset
                else:
                    start = planning.lost(self._options, topic, start, extent.first_offset)
            with _passing_over():
                found[number] = self._ids(number, Range(topic, start, max(start, stop)))
        return found

    def _ids(self, number: int, wanted: Range) -> Ids:
        key = Piece(wanted.topic, wanted.start, wanted.stop, number)
        if key not in self._read:
            found: Ids = {}
            place, fail = self._options.places[number], self._options.fail_on_data_loss
            for batch in read_piece(place, wanted, ["offset", "id"], fail_on_data_loss=fail):
                offsets, ids = (batch.column(name).to_pylist() for name in ("offset", "id"))
                some = zip(offsets, ids, strict=True)
                found |= {fingerprint(each): (offset, each) for offset, each in some}
            self._read[key] = found
        return self._read[key]

    def _told(
        self, topic: str, begun: Followed, ranges: Mapping[int, Ids], live: Extents
    ) -> dict[bytes, None]:
        """What nobody gave before, of what only places have that are behind."""
        found: dict[bytes, None] = {}
        for number, doubtful in begun.doubtful(ranges).items():
            asked = [each for each in doubtful if each not in found]
            unsure = False
            for other, (first, _) in begun.behind[number].items():
                extent = live.get(other, {}).get(topic)
                unsure = unsure or extent is None or extent.first_offset > first
                if extent is None or not asked:
                    continue
                ids = [ranges[number][each][1] for each in asked]
                places: list[int | None] = [None] * len(ids)
                try:
                    with self._options.places[other].connect() as source:
                        places = source.places(topic, ids)
                except RumormillError as error:
                    _log.warning("passed over: %s", error)
                    unsure = True
                was = begun.offsets[other]
                some = zip(asked, places, strict=True)
                asked = [each for each, place in some if place is None or place >= was]
            if asked and unsure:
                _log.warning(
                    "topic %r: %d events of %s may come a second time: places that may have given"
                    " them do not answer, or have deleted them",
                    topic, len(asked), self._options.places[number].where,
                )  # fmt: skip
            found |= dict.fromkeys(asked)
        return found

    def _still_behind(
        self, topic: str, begun: Followed, live: Extents
    ) -> dict[int, dict[int, tuple[int, int]]]:
        """Places that are behind, and those ranges of others that they are not known to have."""
        behind: dict[int, dict[int, tuple[int, int]]] = {}
        for number, spans in begun.behind.items():
            for other, (start, stop) in spans.items():
                first, extent = start, live.get(other, {}).get(topic)
                if number in live and extent is not None:
                    first = max(start, min(extent.first_offset, stop))
                    if first > start:  # nobody can be asked about these
                        _log.warning(
                            "topic %r: of %d given events that %s has deleted those come again that"
                            " %s gets after all",
                            topic, first - start,
                            *(self._options.places[each].where for each in (other, number)),
                        )  # fmt: skip
                    with _passing_over():
                        span = Range(topic, first, min(first + _CHECKED, stop))
                        first = self._known(number, begun.offsets[number], other, span)
                if first < stop:
                    behind.setdefault(number, {})[other] = first, stop
        return behind

    def _known(self, number: int, read: int, other: int, span: Range) -> int:
        """How far a place has what another has in a range, among what was read of it."""
        ids = self._ids(other, span)
        with self._options.places[number].connect() as source:
            places = source.places(span.topic, [each for _, each in ids.values()])
        for (offset, _), place in zip(ids.values(), places, strict=True):
            if place is None or place >= read:
                return offset
        return span.stop

    def tasks(
        self, start: Mapping[str, Followed], end: Mapping[str, Followed], live: Extents
    ) -> list[Share]:
        """What a batch gives, by place, in pieces."""
        options = self._options
        shares: list[Share] = []
        lost: list[Share] = []
        wanted: dict[Line, list[tuple[int, bytes]]] = {}
        for topic, own in end.items():
            before = start.get(topic, Followed())
            new = [number for number in own.offsets if number not in before.offsets]
            begun = before.joined(own.offsets)
            ranges = self._ranges(topic, begun.offsets, own.offsets, live, new)
            left = begun.fresh(ranges, own.given)
            elsewhere = tuple(begun.offsets.items())
            for number, ids in sorted(ranges.items()):
                taken = [(ids[each][0], each) for each in ids if each in left]
                if taken:
                    wanted[topic, number] = taken
                    first, last = taken[0][0], taken[-1][0]
                    shares.append(Share(topic, first, last + 1, number, elsewhere=elsewhere))
                for _, each in taken:
                    del left[each]
            if left:  # a place that had them has died
                gone = (each for each in own.offsets if each not in ranges)
                number = next(gone, 0)
                offset, stop = begun.offsets[number], own.offsets[number]
                joined = b"".join(left)
                lost.append(Share(topic, offset, stop, number, (), joined, elsewhere))
        cut = planning.pieces(shares, options.min_partitions, options.max_records)
        return [share for each in cut if (share := _filled(each, wanted)).wanted] + lost


def _filled(share: Share, wanted: Mapping[Line, list[tuple[int, bytes]]]) -> Share:
    """A piece with those of its place's events that stand between its ends."""
    own = wanted[share.topic, share.partition]
    low, high = (bisect_left(own, (bound, b"")) for bound in (share.start, share.stop))
    joined = b"".join([each for _, each in own[low:high]])
    return Share(share.topic, share.start, share.stop, share.partition, (), joined, share.elsewhere)


def _by_line(start: Mapping[str, Followed]) -> Offsets:
    return {
        (topic, number): offset
        for topic, own in start.items()
        for number, offset in own.offsets.items()
    }


def _new(start: Mapping[str, Followed], end: Mapping[str, Followed]) -> int:
    """How many events a batch adds to those that places lack."""
    known = {topic: own.given for topic, own in start.items()}
    return sum(each not in known.get(topic, {}) for topic in end for each in end[topic].given)


@contextlib.contextmanager
def _passing_over() -> Iterator[None]:
    """A place that does not answer costs its own part; lost data is the caller's to hear of."""
    try:
        yield
    except DataLossError:
        raise
    except RumormillError as error:
        _log.warning("passed over: %s", error)


def read_share(
    places: Sequence[Access], share: Share, columns: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator[Any]:
    """Verified Arrow batches of the events of a share, from its place or from others."""
    import pyarrow as arrow  # noqa: PLC0415

    needed = [*columns, *(["id"] if "id" not in columns else [])]
    left = dict.fromkeys(fingerprints(share.wanted))
    others = dict(share.elsewhere)
    others.pop(share.partition, None)
    failures = []
    for number, since in ((share.partition, None), *others.items()):
        if not left:
            return
        place = places[number]
        try:
            piece = Range(share.topic, share.start, share.stop)
            if since is not None:
                extent = place.extents().get(share.topic)
                if extent is None:
                    continue
                start = max(since, extent.first_offset)
                piece = Range(share.topic, start, max(start, extent.next_offset))
            for batch in read_piece(place, piece, needed, fail_on_data_loss=False):
                own = [fingerprint(each) in left for each in batch.column("id").to_pylist()]
                found = batch if all(own) else batch.filter(arrow.array(own, arrow.bool_()))
                for each in found.column("id").to_pylist():
                    del left[fingerprint(each)]
                yield numbered(found.select(list(columns)), number)
                if not left:
                    return
        except RumormillError as error:
            failures.append(str(error))
    if not left:
        return
    problem = (
        f"topic {share.topic!r}: {len(left)} events, read of {places[share.partition].where} when"
        f" the batch was planned, are now in no place that answers: {'; '.join(failures)}"
    )
    if fail_on_data_loss:
        raise DataLossError(
            f"{problem}. Start the query again when the place is back; with failOnDataLoss=false"
            " they are passed over"
        )
    _log.warning("%s; they are passed over", problem)
