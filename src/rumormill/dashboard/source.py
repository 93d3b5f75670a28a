"""What is watched, as the dashboard's server sees it: a `Source`, and what it is asked.

A source keeps nothing for a viewer. A viewer's place in what is appended to (series, marks, tail)
is part of each question, so that a stream can begin anew at any time, and a question can travel to
another process.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from rumormill.core.errors import LocalError

Sections = dict[str, Any]
"""What is shown, by section; ready for JSON."""

PLAYABLE: Final = ("trace", "simulation")
"""Kinds of sources whose clock can be moved."""

ALWAYS: Final = ("source", "clock", "well", "totals", "topics", "marks")
VIEWS: Final = {
    "overview": ("latency", "process", "series", "degrees"),
    "overlay": ("peers", "links", "recent", "degrees", "protocol"),
    "topic": ("latency", "tail"),
    "event": ("recent", "peers"),
    "history": ("sync", "peers", "series"),
    "reach": ("reach", "peers"),
    "lake": ("lake",),
    "protocol": ("protocol", "peers", "links", "heads"),
    "compare": ("compare",),
}
"""The sections of each view; a section's own name is a view as well."""
SECTIONS: Final = tuple(
    dict.fromkeys([*ALWAYS, *(each for all_ in VIEWS.values() for each in all_)])
)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer wants to see now."""

    sections: tuple[str, ...]
    topic: str = ""
    filter: str = ""
    """Plain text that rows of the tail must have."""
    series_after: float | None = None
    """The last point that the viewer has; without one, all are wanted."""
    marks_after: int = 0
    """How many marks it has."""
    tail_from: int | None = None
    """The offset behind the last row that it has; without one, the last rows are wanted."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a topic's history are wanted: from an offset, from a time, or the last."""

    topic: str
    start: int | None = None
    since: float | None = None
    limit: int = 200
    filter: str = ""


class NotHere(LocalError):  # noqa: N818 (the status is called not found)
    """What was asked for is not there, or not to be had of this source."""


class Source(Protocol):
    """Something to watch."""

    async def look(self, look: Look) -> Sections:
        """Show the wanted sections as they are now; of what is appended to, what is new."""

    async def page(self, page: Page) -> dict[str, Any]:
        """Rows of a topic's history: `rows`, `first`, `next` and whether there are `more`."""

    async def journey(self, event: str) -> dict[str, Any]:
        """The way of an event, as far as it is known."""

    async def publish(self, topic: str, data: bytes) -> dict[str, Any]:
        """Publish an event; its receipt."""

    async def play(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Move the clock of what can be played; how it stands."""

    async def close(self) -> None:
        """Nobody will look again."""


class Live:
    """What sources have in common that show what is so now."""

    async def play(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Their time cannot be moved."""
        raise LocalError("live nodes' time cannot be moved")


def wanted_sections(views: Iterable[str]) -> tuple[str, ...]:
    """The sections of some views, each once."""
    found = [
        each for view in views for each in VIEWS.get(view, (view,) if view in SECTIONS else ())
    ]
    return tuple(dict.fromkeys([*ALWAYS, *found]))
