"""Running nodes, watched: one over its control socket as it is, several as one picture.

Each is asked for the same sections that its own dashboard would show, and those are put together:
counts are added, tables merged by name, and the journey of an event is what all of them saw of it.
A node that does not answer is left out and said to be away; that it went and came back is a mark.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from rumormill.core.errors import LocalError, RumormillError
from rumormill.daemon import home_sections as merged
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_messages import ControlError, socket_path
from rumormill.dashboard.figures import cut
from rumormill.dashboard.node_sections import clock
from rumormill.dashboard.series import Series
from rumormill.dashboard.source import Live, Look, NotHere, Page, Sections, Source

MAX_HOMES: Final = 64
MAX_MARKS: Final = 256
_FRESH: Final = 0.9
"""Seconds for which what the nodes said is good enough."""
_COMPLETE_AFTER: Final = 3.0
"""Seconds after which a point of the series is made of what has come of it."""
_LONGEST_TITLE: Final = 80
_PATIENCE: Final = 4.0
"""Seconds in which a node answers, or is away for this time."""

_Found = TypeVar("_Found")


class HomeSource(Live):
    """The node of one home, as its own dashboard would show it: connected to when it is asked, and
    again when it was away."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._client: ControlClient | None = None
        self._asking = asyncio.Lock()

    async def look(self, look: Look) -> Sections:
        """Show the wanted sections (see `source.Source`)."""
        found = await self._ask(lambda client: client.watch(look=look))
        found["source"]["title"] = str(self._home)
        return found

    async def page(self, page: Page) -> dict[str, Any]:
        """Rows of its log."""
        return await self._ask(lambda client: client.watch(page=page))

    async def journey(self, event: str) -> dict[str, Any]:
        """What it saw of an event."""
        return await self._ask(lambda client: client.watch(journey=event))

    async def publish(self, topic: str, data: bytes) -> dict[str, Any]:
        """Have it publish an event; its receipt."""
        (receipt,) = await self._ask(lambda client: client.publish(topic, [data]))
        return {"id": receipt.id.hex(), "offset": receipt.offset, "peers": receipt.peers}

    async def close(self) -> None:
        """Hang up."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(self, question: Callable[[ControlClient], Awaitable[_Found]]) -> _Found:
        """Ask the node; an error if it is not there or refuses."""
        async with self._asking:
            try:
                async with asyncio.timeout(_PATIENCE):
                    if self._client is None:
                        self._client = await ControlClient.connect(socket_path(self._home))
                    return await question(self._client)
            except ControlError as error:
                if error.code in ("gone", "not-understood"):
                    await self.close()
                raise
            except (OSError, TimeoutError) as error:
                await self.close()
                raise LocalError(f"the node in {self._home} does not answer") from error
            except asyncio.CancelledError:
                await self.close()  # or its answer would be taken for that to the next question
                raise


class Member(NamedTuple):
    """One of several."""

    name: str
    source: Source


class HomesSource(Live):
    """The nodes of several homes, and of dashboards elsewhere, as one network."""

    def __init__(self, members: Mapping[str, Source], *, notes_absence: bool = True) -> None:
        """With `notes_absence` there is a mark where a node has gone or is back; otherwise whoever
        kills them says so (`mark`)."""
        self._notes_absence = notes_absence
        self._epoch = 0
        self._looking = asyncio.Lock()
        self._members: list[Member] = []
        self._left: list[Member] = []
        self.turn_to(members)

    def turn_to(self, members: Mapping[str, Source], title: str = "") -> None:
        """Show other nodes from now on."""
        self._left += self._members
        self._members = [Member(*each) for each in list(members.items())[:MAX_HOMES]]
        self._title = title or cut(", ".join(members), _LONGEST_TITLE)
        self._epoch += 1
        self._series = Series()
        self._cursors: dict[str, float] = {}
        self._points: dict[float, list[dict[str, float | None]]] = {}
        self._marks: deque[dict[str, Any]] = deque(maxlen=MAX_MARKS)
        self._marks_seen = 0
        self._began = time.time()
        self._last: tuple[float, Look, dict[str, Sections]] | None = None
        self._away: dict[str, str] = {}
        self._there: dict[str, None] = {}
        """Those who answered when they were asked last."""

    def mark(self, kind: str, peer: str | None, text: str) -> None:
        """Note something for the charts, now."""
        self._marks.append({"t": time.time(), "kind": kind, "peer": peer, "text": text})
        self._marks_seen += 1

    async def look(self, look: Look) -> Sections:
        """Show the wanted sections (see `source.Source`)."""
        found = await self._asked(look)
        sections: Sections = {
            name: maker(found)
            for name in look.sections
            if (maker := merged.MAKERS.get(name)) is not None
        }
        there = {name: each for name, each in found.items() if "well" in each}
        now = time.time()
        own: dict[str, Callable[[], Any]] = {
            "source": lambda: merged.source(self._title, there),
            "well": lambda: merged.well(there, self._away),
            "clock": lambda: clock(self._began, now) | {"epoch": self._epoch},
            "series": lambda: self._series.points(look.series_after),
            "marks": lambda: self._fresh_marks(look.marks_after),
        }
        sections |= {name: own[name]() for name in look.sections if name in own}
        if "tail" in look.sections and look.topic:
            wanted = replace(look, sections=("source", "tail"))
            holder = self._holder(look.topic, found)
            if holder is not None:
                with contextlib.suppress(RumormillError):  # of one who has gone just now
                    sections["tail"] = (await holder.look(wanted)).get("tail")
        return sections

    def _fresh_marks(self, after: int) -> list[dict[str, Any]]:
        fresh = self._marks_seen - after
        return list(self._marks)[-fresh:] if fresh > 0 else []

    async def _asked(self, look: Look) -> dict[str, Sections]:
        """What each node shows; those who look in the same second share the answers."""
        async with self._looking:
            await self._hang_up()
            wanted = replace(
                look, series_after=None, marks_after=0, tail_from=None, filter="",
                sections=tuple(dict.fromkeys([*look.sections, "series", "peers"])),
            )  # fmt: skip
            wanted = replace(wanted, sections=tuple(s for s in wanted.sections if s != "tail"))
            if self._last is not None:
                at, before, found = self._last
                if before == wanted and time.time() - at < _FRESH:
                    return found
            members = self._members
            answers = await asyncio.gather(*[self._ask(member, wanted) for member in members])
            found = {
                member.name: each
                for member, each in zip(members, answers, strict=True)
                if each is not None
            }
            self._take_points(found)
            self._last = (time.time(), wanted, found)
            return found

    async def _ask(self, member: Member, look: Look) -> Sections | None:
        name = member.name
        look = replace(look, series_after=self._cursors.get(name, self._began - 1))
        try:
            found = await member.source.look(look)
        except RumormillError as error:
            self._away[name] = str(error)
            if name in self._there and self._notes_absence:
                self.mark("kill", name, f"{name} is gone")
            self._there.pop(name, None)
            return None
        if self._away.pop(name, None) is not None and self._notes_absence:
            self.mark("start", name, f"{name} is there")
        self._there[name] = None
        return found

    def _take_points(self, found: Mapping[str, Sections]) -> None:
        """Put the points of all nodes together, when all of them can have come."""
        for name, each in found.items():
            series = each.get("series", {})
            times = series.get("t", [])
            for index, at in enumerate(times):
                point = {key: column[index] for key, column in series.items() if key != "t"}
                self._points.setdefault(at, []).append(point)
            if times:
                self._cursors[name] = times[-1]
        for at in sorted(self._points):
            if at <= time.time() - _COMPLETE_AFTER:
                self._series.add(at, merged.point(self._points.pop(at)))

    def _holder(self, topic: str, found: Mapping[str, Sections]) -> Source | None:
        """The first node whose log has something of a topic."""
        for member in self._members:
            rows = found.get(member.name, {}).get("topics", {}).get("rows", [])
            if any(row["name"] == topic and row.get("next") for row in rows):
                return member.source
        return None

    async def page(self, page: Page) -> dict[str, Any]:
        """Rows of the first log that has the topic."""
        failed: RumormillError = NotHere("no node's log has anything of that topic")
        for member in self._members:
            try:
                return await member.source.page(page)
            except NotHere:
                continue
            except RumormillError as error:  # it may have it, and has not answered
                failed = error
        raise failed

    async def journey(self, event: str) -> dict[str, Any]:
        """What all of them saw of an event, in the order of time."""
        asked = [self._journey(member.source, event) for member in self._members]
        found = [each for each in await asyncio.gather(*asked) if each is not None]
        if not found:
            raise NotHere("no node knows this event any more")
        return merged.journey(found)

    async def _journey(self, source: Source, event: str) -> dict[str, Any] | None:
        try:
            return await source.journey(event)
        except RumormillError:
            return None

    async def publish(self, topic: str, data: bytes) -> dict[str, Any]:
        """Have the first node that is there publish an event."""
        for name, source in self._members:
            if name in self._there:
                return await source.publish(topic, data)
        raise LocalError("no node is there")

    async def _hang_up(self) -> None:
        """Let those go that are not shown any more."""
        left, self._left = self._left, []
        for member in left:
            await member.source.close()

    async def close(self) -> None:
        """Hang up on all."""
        await self._hang_up()
        for member in self._members:
            await member.source.close()
