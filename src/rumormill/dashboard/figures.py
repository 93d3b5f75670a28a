"""Small figures of the dashboard: percentiles of boxes, names of peers, rows of events.

The rule: what a peer has chosen, such as a topic's name or a payload, is cut to a bound here before
it is shown, and what was cut is said.
"""

import base64
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.wire.keys import PeerId as ReadablePeerId

SHOWN_BYTES: Final = 4096
"""Of a payload. Longer ones are cut; the row says how long it is."""
_SHOWN_HEADERS: Final = 32
_SHOWN_TEXT: Final = 256

LATENCIES: Final = tuple(
    round(digit * 10.0**power, 7) for power in range(-4, 2) for digit in (1, 1.5, 2, 3, 5, 7)
)
"""Upper bounds of the boxes that percentiles are read from: each less than half above the last."""


def percentile(counts: Sequence[int], part: float) -> float | None:
    """A percentile of values that are counted by `LATENCIES`: its box's upper bound."""
    wanted, seen = part * sum(counts), 0
    for index, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return LATENCIES[min(index, len(LATENCIES) - 1)]
    return None


def boxed(counts: Sequence[int]) -> list[list[float | None]]:
    """The boxes that are not empty: upper bound, and how many values; the last has no bound."""
    bounds = [*LATENCIES, None]
    return [[bounds[index], count] for index, count in enumerate(counts) if count]


def percentile_of_boxes(boxes: Mapping[str, float], part: float) -> float | None:
    """A percentile of a histogram as metrics have it: how many values are not above each bound."""
    total = boxes.get("+Inf", 0.0)
    for bound, count in boxes.items():
        if total and bound not in ("sum", "+Inf") and count >= part * total:
            return float(bound)
    return None


@functools.lru_cache(8192)
def peer_text(peer: PeerId) -> str:
    """A peer's id as people write it; one that is none of libp2p's in hexadecimal."""
    try:
        return str(ReadablePeerId.from_bytes(bytes(peer)))
    except DecodeError:
        return peer.hex()


def listed(rows: Sequence[Any], most: int) -> dict[str, Any]:
    """A table of at most so many rows, which says how many it leaves out."""
    return {"rows": rows[:most], "left_out": max(0, len(rows) - most)}


def ranked(counts: Mapping[str, float], most: int = 32) -> dict[str, float]:
    """Counts by reason, the largest first; the others are one."""
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    found = {cut(name): count for name, count in ordered[:most]}
    if rest := sum(count for _, count in ordered[most:]):
        found["(other)"] = rest
    return found


def cut(text: str, most: int = _SHOWN_TEXT) -> str:
    """A text that fits."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def event_row(event: Event) -> dict[str, Any]:
    """An event of a log as a row of a tail; see `rumormill sub --json` for the whole of it."""
    shown = event.data[:SHOWN_BYTES]
    row: dict[str, Any] = {
        "offset": event.offset,
        "id": event.id.hex(),
        "topic": event.topic,
        "author": peer_text(event.author) if event.author else "",
        "created": event.created,
        "received": event.received,
        "size": len(event.data),
        "text": as_text(shown),
    }
    if row["text"] is None:
        row["base64"] = base64.b64encode(shown).decode()
    if len(shown) < len(event.data):
        row["cut"] = len(event.data) - len(shown)
    if event.via:
        row["via"] = event.via
    if event.head is not None:
        key = as_text((event.key or b"")[:_SHOWN_TEXT])
        row["key"] = (event.key or b"")[:_SHOWN_TEXT].hex() if key is None else key
        headers = list(event.headers.items())[:_SHOWN_HEADERS]
        row["headers"] = {cut(name): cut(text) for name, text in headers}
        row["content_type"] = cut(event.content_type)
    return row


def as_text(data: bytes) -> str | None:
    """UTF-8 as text, also where a cut went through a character; None where it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if len(data) < SHOWN_BYTES or error.start < len(data) - 3:
            return None
        return data[: error.start].decode()


def matches(event: Event, text: str) -> bool:
    """Whether a filter's plain text is in an event: its payload, key, author, headers or offset."""
    if not text:
        return True
    wanted = text.encode()
    return (
        wanted in event.data
        or (event.key is not None and wanted in event.key)
        or text == str(event.offset)
        or (bool(event.author) and text in peer_text(event.author))
        or text in event.id.hex()
        or any(text in name or text in value for name, value in event.headers.items())
    )


def counted(values: Iterable[int]) -> list[list[int]]:
    """How often each of some whole numbers is there, by number."""
    found: dict[int, int] = {}
    for value in values:
        found[value] = found.get(value, 0) + 1
    return [[value, found[value]] for value in sorted(found)]
