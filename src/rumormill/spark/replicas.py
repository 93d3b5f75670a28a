"""Several homes or nodes that hold the same topics, read as one table.

Each place has a log of its own, in the order in which events came to it. So a place is a partition,
as Kafka has them: its number in the option is the row's `partition`, and `offset` is the offset in
its log. An event that several places have is one row. The rules:

A batch read gives every event that is in the range of at least one place, once: from the first
place in whose range it is, which is decided by asking the others where they have it. A stream gives
an event with the first batch that reaches it in any place (`merging`). A place that does not answer
is passed over, and in a stream goes on where it was when it is back.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rumormill.core.errors import LocalError, RumormillError
from rumormill.log.model import Range, TopicExtent
from rumormill.spark.access import Access, Condition, read_piece

Line: TypeAlias = tuple[str, int]
"""A topic at a place, by the place's number."""
Offsets: TypeAlias = dict[Line, int]
"""By topic and place, in their order, the next offset to read."""
Extents: TypeAlias = dict[int, dict[str, TopicExtent]]
"""The topics of each place that answers."""

_log = logging.getLogger("rumormill.spark")


class Piece(Range, frozen=True):
    """A range of a topic at a place. `others` are places, each with the range of offsets in which
    an event counts as theirs."""

    partition: int = 0
    others: tuple[tuple[int, int, int], ...] = ()


def reach(places: Sequence[Access]) -> Extents:
    """Ask every place for its topics; it is an error if none answers."""
    found: Extents = {}
    failures: list[RumormillError] = []
    for number, place in enumerate(places):
        try:
            found[number] = place.extents()
        except RumormillError as error:
            failures.append(error)
    if not found:
        if len(failures) == 1:
            raise failures[0]
        raise LocalError(f"no place can be read: {'; '.join(map(str, failures))}")
    for failure in failures:
        _log.warning("passed over: %s", failure)
    return found


def lines_of(extents: Extents) -> dict[Line, TopicExtent]:
    """Every topic at every place that answers."""
    return {
        (topic, number): extent
        for number, topics in extents.items()
        for topic, extent in topics.items()
    }


def as_json(offsets: Mapping[Line, int], places: int) -> dict[str, Any]:
    """Offsets as a checkpoint keeps them: by topic, and by place if there are several."""
    if places == 1:
        return {topic: offsets[topic, number] for topic, number in sorted(offsets) if number == 0}
    found: dict[str, dict[str, int]] = {}
    for topic, number in sorted(offsets):
        found.setdefault(topic, {})[str(number)] = offsets[topic, number]
    return found


def from_json(kept: Mapping[str, Any]) -> Offsets:
    """The opposite; what one place wrote is understood when it has become the first of several, and
    what else a stream of several keeps is left out."""
    found: Offsets = {}
    for topic, value in kept.items():
        by_place = value if isinstance(value, Mapping) else {"0": value}
        found |= {(topic, int(name)): by_place[name] for name in by_place if name.isdigit()}
    return found


def batch_others(ranges: Mapping[Line, Range]) -> dict[Line, tuple[tuple[int, int, int], ...]]:
    """For the ranges of a batch read: what is left out of each, because an earlier one has it."""
    return {
        (topic, number): tuple(
            (other, each.start, each.stop)
            for (name, other), each in ranges.items()
            if name == topic and other < number and each.start < each.stop
        )
        for topic, number in ranges
    }


def read_line(
    places: Sequence[Access],
    piece: Piece,
    columns: Sequence[str],
    conditions: Sequence[Condition] = (),
    *,
    fail_on_data_loss: bool = True,
) -> Iterator[Any]:
    """Verified Arrow batches of a piece, without the events that count as another place's."""
    needed = [*columns, *(["id"] if piece.others and "id" not in columns else [])]
    place = places[piece.partition]
    found = read_piece(place, piece, needed, conditions, fail_on_data_loss=fail_on_data_loss)
    with contextlib.ExitStack() as stack:
        asked: list[tuple[Any, int, int]] = [
            (stack.enter_context(places[number].connect()), low, high)
            for number, low, high in piece.others
        ]
        for batch in found:
            own = batch
            for source, low, high in asked:
                own = _without(own, piece.topic, source, low, high)
            yield numbered(own.select(list(columns)), piece.partition)


def _without(batch: Any, topic: str, source: Any, low: int, high: int) -> Any:
    """The events of a batch that another place does not have in this range."""
    import pyarrow as arrow  # noqa: PLC0415

    offsets = source.places(topic, batch.column("id").to_pylist())
    own = [each is None or not low <= each < high for each in offsets]
    return batch if all(own) else batch.filter(arrow.array(own, arrow.bool_()))


def numbered(batch: Any, partition: int) -> Any:
    """A batch with the number of its place."""
    place = batch.schema.get_field_index("partition")
    if not partition or place < 0:
        return batch
    import pyarrow as arrow  # noqa: PLC0415

    field = batch.schema.field(place)
    return batch.set_column(
        place, field, arrow.repeat(arrow.scalar(partition, field.type), batch.num_rows)
    )
