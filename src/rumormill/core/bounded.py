"""Tables that hold no more room than they need, and those with a bound, whose oldest makes room.

A dict that entries leave keeps their room, and takes more of it when others come: of a peer's links
half would be that.
"""

from typing import Final, TypeVar

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


_FEW: Final = 42
"""Entries up to which a table is worth making anew; of more, those that are gone are few."""


def drop(table: dict[KeyT, ValueT], key: KeyT) -> ValueT | None:
    """Remove an entry of a table that lasts, if it is there, and its room."""
    value = table.pop(key, None)
    if len(table) <= _FEW:
        left = list(table.items())
        table.clear()
        table.update(left)
    return value


def take_out(table: dict[KeyT, ValueT], key: KeyT) -> ValueT | None:
    """Remove an entry, if it is there; a table that has none left gives back its room for more."""
    value = table.pop(key, None)
    if not table:
        table.clear()
    return value
