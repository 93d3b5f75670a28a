"""Filters that the source takes over from Spark: on topic, offset and time.

Filters on topic and offset decide which ranges are read at all; one on `received` moves the start
of a range forward by the store's time marks. All are then applied to the Arrow batches, so that
they need not be evaluated again.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from rumormill.log.model import Range

_COMPARISONS: Final = {
    "EqualTo": "equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
}
_TYPES: Final = {"topic": str, "offset": int, "received": datetime, "created": datetime}


class Condition(msgspec.Struct, frozen=True):
    """A column compared with a value, or with several."""

    column: str
    comparison: str
    """A function of `pyarrow.compute`, or `in`."""
    value: Any


def condition_of(pushed: Any) -> Condition | None:
    """What a filter of Spark's means here; None if it is left to Spark."""
    kind = type(pushed).__name__
    column, *inner = getattr(pushed, "attribute", ("",))
    if inner or column not in _TYPES:
        return None
    if kind == "IsNotNull" and column != "created":
        return Condition(column, "any", None)
    if kind == "StringStartsWith" and column == "topic":
        return Condition(column, "starts_with", pushed.value)
    if kind == "In":
        values = [_value(column, each) for each in pushed.value]
        return None if None in values or not values else Condition(column, "in", tuple(values))
    if kind not in _COMPARISONS:
        return None
    value = _value(column, pushed.value)
    return None if value is None else Condition(column, _COMPARISONS[kind], value)


def _value(column: str, value: Any) -> Any:
    """The value if it is of the column's type."""
    if not isinstance(value, _TYPES[column]) or isinstance(value, bool):
        return None
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def wants_topic(conditions: Iterable[Condition], topic: str) -> bool:
    """Whether a topic can have rows under the conditions."""
    import pyarrow as arrow  # noqa: PLC0415

    name = arrow.array([topic])
    own = [each for each in conditions if each.column == "topic" and each.comparison != "any"]
    return all(_mask(name, each)[0].as_py() for each in own)


def narrowed(
    piece: Range, conditions: Iterable[Condition], since: Callable[[str, float], int | None]
) -> Range:
    """The part of a range that can have rows under the conditions."""
    start, stop = piece.start, piece.stop
    for each in conditions:
        if each.column == "offset":
            values = each.value if each.comparison == "in" else (each.value,)
            if each.comparison in _LOWEST:
                start = max(start, min(values) + _LOWEST[each.comparison])
            if each.comparison in _BEHIND:
                stop = min(stop, max(values) + _BEHIND[each.comparison])
        elif each.column == "received" and each.comparison in _AFTER:
            found = since(piece.topic, each.value.timestamp() - _ROUNDING)
            start = max(start, stop if found is None else found)
    return Range(piece.topic, start, max(start, stop))


_LOWEST: Final = {"equal": 0, "in": 0, "greater": 1, "greater_equal": 0}
_BEHIND: Final = {"equal": 1, "in": 1, "less": 0, "less_equal": 1}
"""How far from a value the lowest offset is, and the one behind the highest."""

_AFTER: Final = ("equal", "greater", "greater_equal")
_ROUNDING: Final = 1e-6
"""A time of the log is rounded to a microsecond in the column that Spark sees."""


def apply(batch: Any, conditions: Iterable[Condition]) -> Any:
    """Only the rows of a batch under the conditions."""
    for each in conditions:
        if each.column != "topic" and each.comparison != "any":  # decided for the whole range
            batch = batch.filter(_mask(batch.column(each.column), each))
    return batch


def _mask(column: Any, condition: Condition) -> Any:
    import pyarrow as arrow  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    if condition.comparison == "in":
        return compute.is_in(column, value_set=arrow.array(condition.value, column.type))
    if condition.comparison == "starts_with":
        return compute.starts_with(column, condition.value)
    scalar = arrow.scalar(condition.value, column.type)
    return getattr(compute, condition.comparison)(column, scalar)
