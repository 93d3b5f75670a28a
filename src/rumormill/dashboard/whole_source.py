"""A whole network's trace, watched: what a simulation and a file have in common.

What is shown comes from one `TraceAggregator`, which one thread feeds and another reads: a lock
stands between them. There is no log, so a tail has what was published, without payloads.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from rumormill.core.errors import LocalError
from rumormill.dashboard import trace_sections as sections
from rumormill.dashboard.figures import peer_text
from rumormill.dashboard.journeys import find_journey, message_id_of
from rumormill.dashboard.source import Look, NotHere, Page, Sections
from rumormill.dashboard.trace_figures import TraceAggregator
from rumormill.version import __version__

_TAIL_ROWS: Final = 200


class WholeSource(ABC):
    """What is known of a network from its trace."""

    kind = "trace"

    def __init__(self, title: str, about: Mapping[str, Any]) -> None:
        self._title = title
        self._about = dict(about)
        self.figures = TraceAggregator()
        self.lock = threading.Lock()
        self.views: sections.Views | None = None
        self.heads: dict[str, Any] | None = None
        self.runs: dict[str, Sections] = {}
        """Finished runs to compare with, by name."""

    @abstractmethod
    def clock(self) -> dict[str, Any]:
        """How time stands."""

    @abstractmethod
    def proceed(self, look: Look) -> None:
        """Come as far as time has, in a thread."""

    async def look(self, look: Look) -> Sections:
        """Show the wanted sections (see `source.Source`)."""
        return await asyncio.to_thread(self._look, look)

    def _look(self, look: Look) -> Sections:
        self.proceed(look)
        with self.lock:
            figures, views = self.figures, self.views
            makers: dict[str, Callable[[], Any]] = {
                "source": self._described,
                "clock": self.clock,
                "well": lambda: sections.well(figures),
                "totals": lambda: sections.totals(figures),
                "latency": lambda: sections.latency(figures),
                "series": lambda: figures.series.points(look.series_after),
                "degrees": lambda: sections.degrees(figures),
                "marks": lambda: self.marks(look.marks_after),
                "topics": lambda: sections.topics(figures, look.topic),
                "peers": lambda: sections.peers(figures),
                "links": lambda: sections.links(figures, look.topic, views),
                "recent": figures.recent_section,
                "sync": lambda: sections.sync(figures),
                "protocol": lambda: sections.protocol(self._about["protocol"], figures, views),
                "heads": lambda: self.heads,
                "compare": self._compared,
                "tail": lambda: self._tail(look),
            }
            return {name: makers[name]() for name in look.sections if name in makers}

    def marks(self, after: int) -> list[dict[str, Any]]:
        """The marks behind those that a viewer has."""
        return self.figures.marks_section(after)

    def _described(self) -> dict[str, Any]:
        told = {"kind": self.kind, "title": self._title, "version": __version__, **self._about}
        return told | ({"runs": [*self.runs, self._title]} if self.runs else {})

    def _compared(self) -> dict[str, Any]:
        runs = {**self.runs, self._title: sections.summary(self.figures)}
        return {"runs": [{"name": name, **run} for name, run in runs.items()]}

    def _tail(self, look: Look) -> dict[str, Any]:
        """What was published, newest last; a trace has no payloads, and no offsets but its own."""
        rows, count = self.figures.published_in(look.topic)
        start = count - len(rows)
        after = start if look.tail_from is None else min(look.tail_from, count)
        fresh = rows[max(0, after - start) :][-_TAIL_ROWS:]
        shown: list[dict[str, Any]] = [
            {
                "offset": count - len(fresh) + number,
                "id": message_id.hex(),
                "topic": look.topic,
                "author": peer_text(author),
                "created": None,
                "received": at,
                "size": None,
                "text": None,
            }
            for number, (at, message_id, author) in enumerate(fresh)
        ]
        shown = [row for row in shown if look.filter in row["id"] or look.filter in row["author"]]
        more = 0 if look.tail_from is None else max(0, count - after - len(fresh))
        return {"rows": shown, "more": more, "from": after, "next": count}

    async def page(self, page: Page) -> dict[str, Any]:
        """There is no log."""
        raise NotHere("a trace has no payloads, so there is no history to read")

    async def journey(self, event: str) -> dict[str, Any]:
        """The way of an event through the network."""
        wanted = message_id_of(event)
        return await asyncio.to_thread(self._journey, wanted)

    def _journey(self, wanted: bytes) -> dict[str, Any]:
        with self.lock:
            kept = self.figures.kept
            expecting = self.figures.expecting(wanted)
        found = find_journey(kept, wanted, expecting)
        if found is None:
            raise NotHere("the last entries of the trace do not speak of this event")
        return found

    async def publish(self, topic: str, data: bytes) -> dict[str, Any]:
        """Nothing can be added to what was recorded."""
        raise LocalError("only live nodes publish")
