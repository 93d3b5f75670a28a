"""CloudEvents 1.0 and events, both ways: the JSON format of one, the key and headers of the other.

An attribute of a CloudEvent is the header `ce_` and its name, as in CloudEvents' binding for Kafka;
`datacontenttype` is the content type, and the extension `partitionkey` the key. An event without
such headers is given what every CloudEvent has: its id, its author as the source, the type
`rumormill.event`, its topic as the subject, and its author's time or else that of its reception.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from rumormill.core.api import Message
from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.node.arguments import checked
from rumormill.wire.keys import PeerId

_PREFIX: Final = "ce_"
_REQUIRED: Final = ("specversion", "id", "source", "type")
_NAME: Final = re.compile(r"[a-z0-9]{1,20}")
_JSON: Final = re.compile(r"[^;]*[/+]json\s*(;.*)?", re.IGNORECASE)
_OWN: Final = ("datacontenttype", "partitionkey", "data", "data_base64")


@checked
def to_cloudevent(event: Event) -> dict[str, Any]:
    """An event that was handed out, as a CloudEvent ready for JSON."""
    headers = event.headers
    found: dict[str, Any] = {
        name.removeprefix(_PREFIX): value
        for name, value in headers.items()
        if name.startswith(_PREFIX)
    }
    if "specversion" not in found:
        found = {name: value for name, value in headers.items() if _NAME.fullmatch(name)}
        found |= {
            "specversion": "1.0",
            "id": event.id.hex(),
            "source": f"/rumormill/{PeerId(event.author) if event.author else ''}",
            "type": "rumormill.event",
            "subject": event.topic,
            "time": _time(event),
        }
    found = {name: value for name, value in found.items() if name not in _OWN}
    if event.content_type:
        found["datacontenttype"] = event.content_type
    if event.key is not None:
        found["partitionkey"] = event.key.decode(errors="replace")
    return found | _data(event)


def _time(event: Event) -> str:
    """When it was said, or else received: the author's clock may be beyond every calendar."""
    said = event.received if event.created is None else event.created
    try:
        when = datetime.fromtimestamp(said, UTC)
    except (OverflowError, ValueError):
        when = datetime.fromtimestamp(event.received, UTC)
    return when.isoformat().replace("+00:00", "Z")


def _data(event: Event) -> dict[str, Any]:
    """The payload: as JSON or text where it says that it is, and else in base64."""
    try:
        if _JSON.fullmatch(event.content_type):
            return {"data": msgspec.json.decode(event.data)}
        if event.content_type.startswith("text/"):
            return {"data": event.data.decode()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    return {"data_base64": base64.b64encode(event.data).decode()}


@checked
def from_cloudevent(given: Mapping[str, Any]) -> Message:
    """What to publish for a CloudEvent; its JSON stays the same value, not the same bytes."""
    for name in _REQUIRED:
        if not isinstance(given.get(name), str) or not given[name]:
            raise LocalError(f"a CloudEvent has the attribute {name!r}, as text that is not empty")
    headers: dict[str, str] = {}
    for name, value in given.items():
        if name in _OWN or value is None:
            continue
        if not _NAME.fullmatch(name) or not isinstance(value, str | int):
            raise LocalError(f"a CloudEvent has no attribute {name!r} with the value {value!r}")
        headers[_PREFIX + name] = str(value).lower() if isinstance(value, bool) else str(value)
    kind = given.get("datacontenttype")
    return Message(_bytes(given, kind), given.get("partitionkey"), headers, kind)


def _bytes(given: Mapping[str, Any], kind: object) -> bytes:
    if "data_base64" in given:
        try:
            return base64.b64decode(given["data_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise LocalError("a CloudEvent's data_base64 is not base64") from None
    if "data" not in given:
        return b""
    data = given["data"]
    if isinstance(data, str) and kind is not None and not _JSON.fullmatch(str(kind)):
        return data.encode()
    return msgspec.json.encode(data)
