"""A node of this process, watched.

The rule: without a viewer nothing is done and nothing is kept. Who looks has an observer attached
to the node's trace, and a minute after the last look it is gone again. What the node counts anyway
is read from its metrics, at most once for all who look in the same second; of the log only rows
that are shown are read, in a thread.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from rumormill.core.event import Event
from rumormill.dashboard import node_sections as sections
from rumormill.dashboard.aggregate import Aggregator
from rumormill.dashboard.figures import peer_text
from rumormill.dashboard.journeys import find_journey, message_id_of
from rumormill.dashboard.log_pages import read_heads, read_page, read_tail
from rumormill.dashboard.source import Live, Look, NotHere, Page, Sections
from rumormill.dashboard.watched import Reading, WatchedNode
from rumormill.version import __version__

FORGET_AFTER: Final = 60.0
"""Seconds after the last look until nothing is kept any more."""
_FRESH: Final = 0.9
"""Seconds for which what was read of the node is good enough."""


class NodeSource(Live):
    """One node."""

    def __init__(self, node: WatchedNode, protocol: str) -> None:
        self._node = node
        self._protocol = protocol
        self._forget_after = FORGET_AFTER
        self._aggregator: Aggregator | None = None
        self._began = 0.0
        self._reading: Reading | None = None
        self._forgetting: asyncio.TimerHandle | None = None
        self._troubles: dict[str, float] = {}
        self._heads_at: tuple[str, int] | None = None
        self._heads_read: dict[str, Any] | None = None

    @property
    def attached(self) -> bool:
        """Whether the node's trace is being looked at."""
        return self._aggregator is not None

    def _attach(self) -> Aggregator:
        loop = asyncio.get_running_loop()
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = loop.call_later(self._forget_after, self._detach)
        if self._aggregator is None:
            self._began = time.time()
            self._aggregator = Aggregator()
            self._aggregator.sample = self._sample
            self._node.add_observer(self._aggregator)
        return self._aggregator

    def _detach(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None
        if self._aggregator is not None:
            self._node.remove_observer(self._aggregator)
            self._aggregator = self._reading = None
            self._troubles.clear()

    async def close(self) -> None:
        """Forget everything."""
        self._detach()

    def _read(self) -> Reading:
        now = time.time()
        reading = self._reading
        if reading is None or not 0 <= now - reading.at < _FRESH:
            reading = self._reading = Reading(self._node, now, reading)
            self._attach().advance(now)
        return reading

    def _sample(self) -> dict[str, float | None]:
        return {} if self._reading is None else sections.sampled(self._reading)

    async def look(self, look: Look) -> Sections:
        """Show the wanted sections (see `source.Source`)."""
        aggregator = self._attach()
        reading = self._read()
        makers = self._makers(look, aggregator, reading)
        found = {name: makers[name]() for name in look.sections if name in makers}
        if "tail" in look.sections and look.topic:
            log, shown = self._node.log, self._node.access.shown
            found["tail"] = await asyncio.to_thread(
                read_tail, log, shown, look.topic, look.tail_from, look.filter
            )
        if "heads" in look.sections:
            found["heads"] = await self._heads(look.topic, reading)
        return found

    async def _heads(self, topic: str, reading: Reading) -> dict[str, Any] | None:
        """Of the topic that is looked at, or else of the longest that has a tree; read anew when
        it has grown."""
        rows = self._node.log.writer().topics
        ends = {
            name: row.next_offset
            for name in (topic, *reading.view.links.get("child", ()))
            if (row := rows.get(name)) is not None
        }
        topic = topic or max(ends, key=lambda name: ends[name], default="")
        at = (topic, ends.get(topic, 0))
        if at != self._heads_at:
            self._heads_at = at
            self._heads_read = await asyncio.to_thread(read_heads, self._node.log, topic)
        return self._heads_read

    def _makers(
        self, look: Look, aggregator: Aggregator, reading: Reading
    ) -> dict[str, Callable[[], Any]]:
        """What makes each section."""
        node, view = self._node, reading.view
        return {
            "source": self._described,
            "clock": lambda: sections.clock(self._began, reading.at),
            "well": lambda: sections.well(reading, self._troubles),
            "totals": lambda: sections.totals(reading, aggregator),
            "latency": lambda: sections.latency(reading),
            "process": lambda: sections.process(reading),
            "series": lambda: aggregator.series.points(look.series_after),
            "degrees": lambda: sections.degrees(view),
            "marks": lambda: aggregator.marks_section(look.marks_after),
            "topics": lambda: sections.topics(node.log, reading, aggregator, look.topic),
            "peers": lambda: sections.peers(node.id, node.peers, aggregator),
            "links": lambda: sections.links(node.peers, view, look.topic),
            "recent": aggregator.recent_section,
            "sync": lambda: sections.sync(reading, aggregator, node.completeness),
            "reach": lambda: sections.reach(reading, node.reachability, node.tickets),
            "protocol": lambda: sections.protocol(self._protocol, node.id, view),
        }

    def _described(self) -> dict[str, Any]:
        title = peer_text(self._node.id)
        about = {"kind": "node", "title": title, "protocol": self._protocol}
        return about | {"version": __version__}

    async def page(self, page: Page) -> dict[str, Any]:
        """Rows of the log (see `source.Source`)."""
        return await asyncio.to_thread(read_page, self._node.log, self._node.access.shown, page)

    async def journey(self, event: str) -> dict[str, Any]:
        """What this node saw of an event, in what is kept of its trace, and in its log."""
        aggregator = self._attach()
        self._node.metrics()  # hands on what was recorded and not seen yet
        wanted = message_id_of(event)
        kept = aggregator.kept
        found = await asyncio.to_thread(find_journey, kept, wanted)
        if found is None:
            found = await asyncio.to_thread(self._logged, wanted)
        return found

    def _logged(self, wanted: bytes) -> dict[str, Any]:
        """What the log alone says of an event: that it came, and when."""
        for extent in self._node.log.topics():
            event: Event | None = self._node.log.find(extent.name, wanted)
            if event is not None:
                return sections.journey_of(event, self._node.id)
        raise NotHere("nothing is known of this event any more, and the log does not have it")

    async def publish(self, topic: str, data: bytes) -> dict[str, Any]:
        """Publish an event; its receipt."""
        (receipt,) = await self._node.publish_many(topic, [data], parents=())
        return {"id": receipt.id.hex(), "offset": receipt.offset, "peers": receipt.peers}
