"""A history drawn with characters: newest first, a column for each branch.

An event is `*`, a parent that is missing is `?`, and branches come together at their parent:

    * the newest
    | * a branch
    |/
    * their parent
    ? what is missing before it
"""

from collections.abc import Callable, Iterator
from typing import Final

from rumormill.core.errors import LimitError
from rumormill.protocols.pulsarcast.history import EventGraph

MAX_COLUMNS: Final = 64
"""Our choice: what a wide terminal shows beside a line of text."""


def draw(graph: EventGraph, label: Callable[[bytes], str]) -> Iterator[str]:
    """The lines of the drawing; `label` says what stands beside an event or a missing parent.

    More branches side by side than there is room for are a `LimitError`.
    """
    columns: list[bytes] = []  # what comes next in each
    for cid in reversed(_with_missing(graph)):
        if cid not in columns:
            columns.append(cid)
            if len(columns) > MAX_COLUMNS:
                raise LimitError(f"more than {MAX_COLUMNS} branches side by side cannot be drawn")
        own = columns.index(cid)
        for other in range(len(columns) - 1, own, -1):
            if columns[other] == cid:
                yield _closing(len(columns), own, other)
                del columns[other]
        known = cid in graph
        marks = ["|"] * len(columns)
        marks[own] = "*" if known else "?"
        yield f"{' '.join(marks)} {label(cid)}"
        parent = graph.parent(cid) if known else None
        if parent is not None:
            columns[own] = parent
        else:
            if own + 1 < len(columns):
                yield _closing(len(columns), own, own)
            del columns[own]


def _with_missing(graph: EventGraph) -> list[bytes]:
    """The order of the history, with each missing parent before those that name it."""
    found: list[bytes] = []
    missing = dict.fromkeys(graph.missing)
    for cid in graph.order():
        parent = graph.parent(cid)
        if parent in missing:
            del missing[parent]
            found.append(parent)
        found.append(cid)
    return found


def _closing(count: int, into: int, closed: int) -> str:
    """A line in which a column ends, inside another to its left or by itself.

    Columns to the right of it move one place to the left.
    """
    line = [" "] * (2 * count)
    for column in range(count):
        if column < closed:
            line[2 * column] = "|"
            if into <= column < closed - 1:
                line[2 * column + 1] = "_"
        elif column > into:
            line[2 * column - 1] = "/"
    return "".join(line).rstrip()
