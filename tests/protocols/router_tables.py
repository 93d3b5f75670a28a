"""What a router holds: every container inside it, found by walking its attributes.

Tests count tables with this instead of naming them one by one, so that a table which is added to a
router later is counted too.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rumormill.core.config import Config

_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_OWN = "rumormill.protocols."


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, msgspec.Struct):
        for name in thing.__struct_fields__:
            yield name, getattr(thing, name)
        return
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        for name in kind.__dict__.get("__slots__", ()):
            if hasattr(thing, name):
                yield name, getattr(thing, name)


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    else:
        yield from value


def _walk(value: Any, path: str, known: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every container and every text below `value`, each object once."""
    if id(value) in known or isinstance(value, Config):
        return
    if isinstance(value, (bytes, str)):
        known[id(value)] = value
        yield path, value
    elif isinstance(value, _CONTAINERS):
        known[id(value)] = value
        yield path, value
        for child in _children(value):
            yield from _walk(child, path, known)
    elif type(value).__module__.startswith((_OWN, "rumormill.wire.")):
        known[id(value)] = value
        inner = path or type(value).__name__
        for name, attribute in _attributes(value):
            yield from _walk(attribute, f"{inner}.{name}", known)


def table_sizes(router: Any) -> dict[str, int]:
    """How many entries each table of a router has; tables inside a table are counted together."""
    sizes: dict[str, int] = {}
    for path, value in _walk(router, "", {}):
        if not isinstance(value, (bytes, str)):
            sizes[path] = sizes.get(path, 0) + len(value)
    return sizes


def entries(router: Any) -> int:
    """All entries of all tables."""
    return sum(table_sizes(router).values())


def held_bytes(router: Any) -> int:
    """The bytes of all names, ids and data that a router holds."""
    return sum(len(value) for _, value in _walk(router, "", {}) if isinstance(value, (bytes, str)))


def mentions(router: Any, *peers: bytes) -> list[str]:
    """The tables of a router in which any of some peers occurs, as a key or as a value."""
    found: dict[str, None] = {}
    for path, value in _walk(router, "", {}):
        if isinstance(value, (bytes, str)):
            continue
        if isinstance(value, dict):
            hit = any(peer in value for peer in peers)
        else:
            hit = any(peer in peers for peer in value if isinstance(peer, bytes))
        if hit:
            found[path] = None
    return sorted(found)
