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
    return all(_holds(each, topic) for each in conditions if each.column == "topic")


def _holds(condition: Condition, value: str) -> bool:
    match condition.comparison:
        case "equal":
            return bool(value == condition.value)
        case "in":
            return value in condition.value
        case "starts_with":
            return value.startswith(condition.value)
        case "greater":
            return bool(value.encode() > condition.value.encode())
        case "greater_equal":
            return bool(value.encode() >= condition.value.encode())
        case "less":
            return bool(value.encode() < condition.value.encode())
        case "less_equal":
            return bool(value.encode() <= condition.value.encode())
        case _:
            return True


def narrowed(
    piece: Range, conditions: Iterable[Condition], since: Callable[[str, float], int | None]
) -> Range:
    """The part of a range that can have rows under the conditions."""
    start, stop = piece.start, piece.stop
    for each in conditions:
        if each.column == "offset":
            low, high = _offsets(each)
            start, stop = max(start, low), stop if high is None else min(stop, high)
        elif each.column == "received" and each.comparison in _AFTER:
            found = since(piece.topic, each.value.timestamp() - _ROUNDING)
            start = max(start, stop if found is None else found)
    return Range(piece.topic, start, max(start, stop))


_AFTER: Final = ("equal", "greater", "greater_equal")
_ROUNDING: Final = 1e-6
"""A time of the log is rounded to a microsecond in the column that Spark sees."""


def _offsets(condition: Condition) -> tuple[int, int | None]:
    """The lowest offset and the one behind the highest."""
    value = condition.value
    match condition.comparison:
        case "equal":
            return value, value + 1
        case "in":
            return min(value), max(value) + 1
        case "greater":
            return value + 1, None
        case "greater_equal":
            return value, None
        case "less":
            return 0, value
        case "less_equal":
            return 0, value + 1
        case _:
            return 0, None


def apply(batch: Any, conditions: Iterable[Condition]) -> Any:
    """Only the rows of a batch under the conditions."""
    import pyarrow as arrow  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    for each in conditions:
        if each.column == "topic" or each.comparison == "any":
            continue  # decided for the whole range
        column = batch.column(each.column)
        if each.comparison == "in":
            mask = compute.is_in(column, value_set=arrow.array(each.value, column.type))
        else:
            scalar = arrow.scalar(each.value, column.type)
            mask = getattr(compute, each.comparison)(column, scalar)
        batch = batch.filter(mask)
    return batch
