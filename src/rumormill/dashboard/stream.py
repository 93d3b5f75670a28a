"""What a viewer is sent: a snapshot, and then each second what has changed.

Sections that are as they were are not sent again; of series, marks and tail, what is new is. A
batch has at most 64 KiB: sections that find no room wait for the next one, and a single one that is
larger goes alone. A viewer that does not read is waited for, nothing is queued for it, and if that
took long it gets a new snapshot. Streams can be begun anew at any time: numbers go on behind
`Last-Event-ID`, and the first thing is a snapshot.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from rumormill.core.errors import RumormillError
from rumormill.dashboard.guard import encode_json
from rumormill.dashboard.source import Look, Sections

INTERVAL: Final = 1.0
MAX_BATCH: Final = 64 << 10
SLOW: Final = 5.0
"""Seconds after which a viewer that did not read gets a snapshot."""
KEEP_ALIVE: Final = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the stream."""

Looking = Callable[[Look], Awaitable[Sections]]
"""A source's `look`, or what stands around it."""

_APPENDED: Final = ("series", "tail", "marks")


class Viewer:
    """What one viewer has been sent."""

    def __init__(self, see: Looking, look: Look, last_id: int = 0) -> None:
        self._see = see
        self._first = self._look = look
        self._number = last_id
        self._sent: dict[str, bytes] = {}
        self._epoch: int | None = None

    async def snapshot(self) -> bytes:
        """Everything, from the beginning."""
        self._look, self._sent = self._first, {}
        found = await self._see(self._look)
        self._note(found)
        return self._message("snapshot", self._changed(found, None))

    async def update(self) -> bytes:
        """What has changed; nothing at all if nothing has."""
        found = await self._see(self._look)
        if found.get("clock", {}).get("epoch") != self._epoch:
            return await self.snapshot()  # time went back, and what was sent is not so any more
        self._note(found)
        changed = self._changed(found, MAX_BATCH)
        return self._message("update", changed) if changed else b""

    def _note(self, found: Sections) -> None:
        """Where the next question goes on."""
        self._epoch = found.get("clock", {}).get("epoch")
        if times := found.get("series", {}).get("t"):
            self._look = replace(self._look, series_after=times[-1])
        if marks := found.get("marks"):
            self._look = replace(self._look, marks_after=self._look.marks_after + len(marks))
        if (tail := found.get("tail")) and "next" in tail:
            self._look = replace(self._look, tail_from=tail["next"])

    def _changed(self, found: Sections, most: int | None) -> dict[str, bytes]:
        chosen: dict[str, bytes] = {}
        size = 0
        for name in sorted(found, key=lambda name: name not in _APPENDED):
            if most is not None and name in _APPENDED and _is_empty(name, found[name]):
                continue
            encoded = encode_json(found[name])
            if self._sent.get(name) == encoded:
                continue
            if most is not None and size and size + len(encoded) > most:
                continue  # it is still other than what was sent, and so it comes next time
            size += len(encoded)
            chosen[name] = encoded
            if name not in _APPENDED:
                self._sent[name] = encoded
        return chosen

    def _message(self, kind: str, sections: Mapping[str, bytes]) -> bytes:
        self._number += 1
        body = b",".join(b'"%s":%s' % (name.encode(), text) for name, text in sections.items())
        return b"event: %s\nid: %d\ndata: {%s}\n\n" % (kind.encode(), self._number, body)


def _is_empty(name: str, section: Any) -> bool:
    if name == "marks":
        return not section
    if name == "series":
        return not section["t"]
    return not section["rows"] and not section["more"]


async def viewed(
    see: Looking, look: Look, last_id: int = 0, *, interval: float = INTERVAL
) -> AsyncIterator[bytes]:
    """The stream of one viewer; it is asked for the next piece when the last one has left."""
    loop = asyncio.get_running_loop()
    viewer = Viewer(see, look, last_id)
    try:
        yield b"retry: 2000\n\n" + await viewer.snapshot()
        sent = loop.time()
        while True:
            asked = loop.time()
            await asyncio.sleep(interval)
            piece = await (viewer.snapshot() if asked - sent > SLOW else viewer.update())
            if piece or loop.time() - sent > KEEP_ALIVE:
                sent = loop.time()
                yield piece or b": nothing new\n\n"
    except RumormillError as error:  # such as a node that is being closed, or is not there yet
        text = encode_json({"well": {"ok": False, "sentence": str(error)}})
        yield b"event: update\ndata: %s\n\n" % text
