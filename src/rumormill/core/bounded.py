"""Tables that hold no more room than they need, and those with a bound, whose oldest makes room."""

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


def take_out(table: dict[KeyT, ValueT], key: KeyT) -> ValueT | None:
    """Remove an entry, if it is there; a table that has none left gives back its room for more."""
    value = table.pop(key, None)
    if not table:
        table.clear()
    return value
