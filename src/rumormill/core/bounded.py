"""Tables with a bound, in which the newest entries stand last and the oldest makes room."""

from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def remember(table: dict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> KeyT | None:
    """Enter a value as the newest of at most so many; return the key that made room, if one did."""
    table.pop(key, None)
    oldest = None
    if len(table) >= most:
        oldest = next(iter(table))
        del table[oldest]
    table[key] = value
    return oldest
