"""What an application publishes, as it travels and as it is handed out again.

Data travels as it is. With a key, headers or a content type it travels in an envelope
(`wire.envelope`), and so does data that begins like one, so that whatever was published comes out
as it went in. What cannot be read as an envelope was none, and is handed out as it came.
"""

import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from rumormill.core.api import Message
from rumormill.core.errors import DecodeError, LocalError
from rumormill.core.event import Event, Head
from rumormill.wire.envelope import MAGIC, decode_envelope, encode_envelope, is_enveloped


def payload(
    data: bytes | str,
    key: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
) -> bytes:
    """What travels of an event."""
    data = data if type(data) is bytes else as_bytes("data", data)
    plain = key is None and headers is None and content_type is None
    if plain and not data.startswith(MAGIC):
        return data
    if headers is not None and not isinstance(headers, Mapping):
        raise LocalError(f"headers: give a dict of text by name, not {type(headers).__name__}")
    return encode_envelope(
        data,
        key=None if key is None else as_bytes("key", key),
        headers=headers,
        content_type="" if content_type is None else content_type,
        created=max(0, int(time.time() * 1000)),
    )


_NOT_SEVERAL: Final = (bytes, bytearray, memoryview, str, Message, Mapping, AbstractSet)
"""One event, or several without an order or with something beside them."""


def payloads(items: Iterable[bytes | str | Message]) -> list[bytes]:
    """What travels of several."""
    if isinstance(items, _NOT_SEVERAL) or not isinstance(items, Iterable):
        raise LocalError(
            f"items: give a list of events, not {type(items).__name__}; `publish` takes one"
        )
    return [
        payload(item.data, item.key, item.headers, item.content_type)
        if isinstance(item, Message)
        else payload(item)
        for item in items
    ]


def as_bytes(what: str, given: object) -> bytes:
    """Bytes as they are, and text in UTF-8."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise LocalError(f"{what}: {given[:40]!r} is not text that UTF-8 can express") from None
    raise LocalError(f"{what}: give bytes or text, not {type(given).__name__}")


def unwrapped(event: Event) -> Event:
    """An event in clear, as it is handed out."""
    if not is_enveloped(event.data):
        return event
    try:
        found = decode_envelope(event.data)
    except DecodeError:
        return event
    created = event.created
    if created is None and found.created:
        created = found.created / 1000
    head = Head(found.key, found.headers, found.content_type)
    return msgspec.structs.replace(event, data=found.data, created=created, head=head)
