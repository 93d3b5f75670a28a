"""How events are printed: a format with percent signs, JSON lines, or the bare payloads."""

import argparse
import base64
import datetime
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.core.api import Receipt
from rumormill.core.event import Event
from rumormill.wire.keys import PeerId

DEFAULT_FORMAT: Final = "%s\\n"
_TOKEN = re.compile(r"%(.?)|\\(.?)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_FIELDS: Final[dict[str, Callable[[Event], bytes]]] = {
    "t": lambda event: event.topic.encode(),
    "o": lambda event: b"%d" % event.offset,
    "a": lambda event: _author(event.author).encode(),
    "s": lambda event: event.data,
    "S": lambda event: b"%d" % len(event.data),
    "T": lambda event: iso(event.received).encode(),
    "i": lambda event: event.id.hex().encode(),
    "k": lambda event: event.key or b"",
    "h": lambda event: ",".join(f"{name}={text}" for name, text in event.headers.items()).encode(),
    "c": lambda event: event.content_type.encode(),
}

Printer = Callable[[Event], bytes]


def choose_printer(options: argparse.Namespace) -> Printer:
    """The way that was typed."""
    if sum((options.raw, options.json, options.format is not None)) > 1:
        raise CommandError("choose one of --format, --json and --raw", USAGE)
    if options.raw:
        return lambda event: event.data
    if options.json:
        return lambda event: json.dumps(event_json(event)).encode() + b"\n"
    return compile_format(options.format or DEFAULT_FORMAT)


def compile_format(text: str) -> Printer:
    """Read a format once; printing then only fills it in."""
    parts: list[bytes | Callable[[Event], bytes]] = []
    end = 0
    for match in _TOKEN.finditer(text):
        parts.append(text[end : match.start()].encode())
        end = match.end()
        field, escape = match.groups()
        if field is not None:
            if field == "%":
                parts.append(b"%")
            elif field in _FIELDS:
                parts.append(_FIELDS[field])
            else:
                known = " ".join(f"%{name}" for name in _FIELDS)
                raise CommandError(f"--format: there is no %{field}; known are {known} %%", USAGE)
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape].encode())
        else:
            raise CommandError(f"--format: there is no \\{escape}; known are \\n \\t \\0", USAGE)
    parts.append(text[end:].encode())
    return lambda event: b"".join(
        part if isinstance(part, bytes) else part(event) for part in parts
    )


def event_json(event: Event) -> dict[str, Any]:
    """An event as one JSON object; a payload that is no text is in base64."""
    shown: dict[str, Any] = {
        "topic": event.topic,
        "offset": event.offset,
        "author": _author(event.author),
        "id": event.id.hex(),
        "received": event.received,
        "created": event.created,
    }
    if event.parents:
        shown["parents"] = [parent.hex() for parent in event.parents]
    parts = {"data": event.data}
    if event.head is not None:
        shown |= {"headers": event.headers, "content_type": event.content_type}
        if event.key is not None:
            parts["key"] = event.key
    for name, value in parts.items():
        try:
            shown[name] = value.decode()
        except UnicodeDecodeError:
            shown[f"{name}_base64"] = base64.b64encode(value).decode()
    return shown


def receipt_json(receipt: Receipt) -> dict[str, Any]:
    """A receipt as one JSON object."""
    shown = msgspec.structs.asdict(receipt)
    return shown | {"id": receipt.id.hex(), "requested": receipt.requested}


def write_events(events: Sequence[Event], printer: Printer) -> None:
    """Print a batch; blocks when the reader of stdout does."""
    sys.stdout.buffer.write(b"".join([printer(event) for event in events]))
    sys.stdout.buffer.flush()


def plain(text: str) -> str:
    """A name that a peer may have chosen, without what a terminal would obey."""
    return "".join(each if each.isprintable() else "�" for each in text)


def _author(author: bytes) -> str:
    return str(PeerId(author)) if author else ""


def iso(when: float) -> str:
    """A moment in UTC, to the millisecond."""
    utc = datetime.datetime.fromtimestamp(when, datetime.UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
