"""What a router holds: every container inside it, found by walking its attributes.

Tests count tables with this instead of naming them one by one, so that a table which is added to a
router later is counted too.
"""

import functools
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from rumormill.core.config import Config

_OWN = ("rumormill.protocols.", "rumormill.wire.")

_NOTHING, _TEXT, _TABLE, _OBJECT = range(4)


@functools.cache
def _kind(of: type) -> int:
    """What a thing of this type is to the walk."""
    if issubclass(of, Config):
        return _NOTHING
    if issubclass(of, (bytes, str)):
        return _TEXT
    if issubclass(of, (dict, list, tuple, set, frozenset, deque)):
        return _TABLE
    return _OBJECT if of.__module__.startswith(_OWN) else _NOTHING


@functools.cache
def _names(of: type) -> tuple[str, ...]:
    """The attributes of a type that are in no `__dict__`."""
    if issubclass(of, msgspec.Struct):
        return of.__struct_fields__
    return tuple(name for each in of.__mro__ for name in each.__dict__.get("__slots__", ()))


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for name in _names(type(thing)):
        if (value := getattr(thing, name, None)) is not None:
            yield name, value


def _children(table: Any) -> Iterator[Any]:
    return itertools.chain(table, table.values()) if isinstance(table, dict) else iter(table)


def _walk(root: Any, least: int = _TABLE) -> Iterator[tuple[str, Any]]:
    """Yield every table in a router, and every text if wanted, each object once."""
    known: dict[int, Any] = {}
    waiting = [("", root)]
    while waiting:
        path, value = waiting.pop()
        if id(value) in known:
            continue
        known[id(value)] = value
        kind = _kind(type(value))
        if kind == _OBJECT:
            inner = path or type(value).__name__
            inside = [
                (f"{inner}.{name}", each)
                for name, each in _attributes(value)
                if _kind(type(each)) >= least
            ]
        else:
            yield path, value
            if kind == _TEXT:
                continue
            inside = [(path, each) for each in _children(value) if _kind(type(each)) >= least]
        waiting += reversed(inside)


def table_sizes(router: Any) -> dict[str, int]:
    """How many entries each table of a router has; tables inside a table are counted together."""
    sizes: dict[str, int] = {}
    for path, value in _walk(router):
        sizes[path] = sizes.get(path, 0) + len(value)
    return sizes


def size_of(table: Any) -> int:
    """How many entries one table has, together with those of tables in it."""
    return table_sizes(table)[""]


def entries(router: Any) -> int:
    """All entries of all tables."""
    return sum(table_sizes(router).values())


def held_bytes(router: Any) -> int:
    """The bytes of all names, ids and data that a router holds."""
    return sum(len(value) for _, value in _walk(router, _TEXT) if isinstance(value, (bytes, str)))


def mentions(router: Any, *peers: bytes) -> list[str]:
    """The tables of a router in which any of some peers occurs, as a key or as a value."""
    found: dict[str, None] = {}
    for path, value in _walk(router):
        if isinstance(value, dict):
            hit = any(peer in value for peer in peers)
        else:
            hit = any(peer in peers for peer in value if isinstance(peer, bytes))
        if hit:
            found[path] = None
    return sorted(found)
