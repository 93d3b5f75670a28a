"""A payload with a key, headers, a content type and its author's time around it.

An envelope is a magic, whose last byte is the version, and a protobuf message (`envelope.proto`)
that ends with the payload as it is. It is the data of an event: whoever signs or encrypts that has
signed or encrypted all of it, and who knows nothing of envelopes has bytes with the payload in
them. Rules kept here: what we write is within the limits that we read, and whatever the bytes are,
they are read whole or refused under a reason.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rumormill.core.errors import DecodeError, LimitError, LocalError
from rumormill.wire.fields import UNBOUNDED, Field, Nested, Number, Octets, Text
from rumormill.wire.schema import Schema
from rumormill.wire.topic_cipher import MARK

MAGIC: Final = MARK + b"envl\x01"
"""Its last byte is the version. No text in UTF-8 begins so."""

MAX_KEY: Final = 1024
MAX_HEADERS: Final = 64
MAX_NAME: Final = 128
MAX_VALUE: Final = 4096
MAX_CONTENT_TYPE: Final = 256
MAX_HEAD: Final = 16 << 10
"""Our choice: bytes of each, and of all together; proxies of HTTP allow 8 to 16 KiB of headers."""

MAX_CREATED: Final = 2**53 - 1
"""Milliseconds that a double holds exactly."""


class Header(msgspec.Struct, frozen=True):
    """A header as it is written."""

    name: str
    value: str


class Envelope(msgspec.Struct, frozen=True):
    """What was read; `created` are milliseconds since 1970 by the author's clock, 0 if unknown."""

    key: bytes | None
    content_type: str
    created: int
    headers: dict[str, str]
    data: bytes


class _Written(msgspec.Struct, frozen=True):
    key: bytes | None
    content_type: str
    created: int
    headers: tuple[Header, ...]
    data: bytes


def _read(
    key: bytes | None, content_type: str, created: int, headers: tuple[Header, ...], data: bytes
) -> Any:
    named = {header.name: header.value for header in headers}
    if len(named) < len(headers) or "" in named:
        raise DecodeError("bad-header", "a header without a name, or a name twice")
    return Envelope(key, content_type, created, named, data)


_FIELDS: Final[dict[str, Field]] = {
    "key": Octets(1, MAX_KEY, optional=True),
    "content_type": Text(2, MAX_CONTENT_TYPE),
    "created": Number(3, most=MAX_CREATED),
    "headers": Nested(
        4,
        Schema(Header, {"name": Text(1, MAX_NAME), "value": Text(2, MAX_VALUE)}),
        max_count=MAX_HEADERS,
        too_many="too-many-headers",
    ),
    "data": Octets(5, UNBOUNDED, always=True),
}
_READING: Final = Schema(_read, _FIELDS, max_others=16)
_WRITING: Final = Schema(_Written, _FIELDS)


def is_enveloped(data: bytes) -> bool:
    """Whether a payload says that it is in an envelope."""
    return data.startswith(MAGIC)


def decode_envelope(data: bytes) -> Envelope:
    """Read an envelope."""
    if not is_enveloped(data):
        raise DecodeError("no-envelope", "it does not begin as an envelope does")
    found: Envelope = _READING.read(data, len(MAGIC), len(data), None)
    if len(data) - len(found.data) > len(MAGIC) + MAX_HEAD:
        raise DecodeError("oversized", f"over {MAX_HEAD} bytes around a payload")
    return found


def encode_envelope(
    data: bytes,
    *,
    key: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str = "",
    created: int = 0,
) -> bytes:
    """Put a payload into an envelope; `LocalError` says what cannot be."""
    if key is not None and len(key) > MAX_KEY:
        raise LimitError(f"key: at most {MAX_KEY} bytes, not {len(key)}")
    _check_text("content_type", content_type, MAX_CONTENT_TYPE)
    if not 0 <= created <= MAX_CREATED:
        raise LocalError(f"created: {created} is not a number of milliseconds since 1970")
    listed = dict(headers or {})
    if len(listed) > MAX_HEADERS:
        raise LimitError(f"headers: at most {MAX_HEADERS}, not {len(listed)}")
    for name, value in listed.items():
        _check_text("headers: a name", name, MAX_NAME)
        _check_text(f"headers: {name!r}", value, MAX_VALUE)
        if not name:
            raise LocalError("headers: a header needs a name")
    written = tuple([Header(name, value) for name, value in listed.items()])
    found = MAGIC + _WRITING.encode(_Written(key, content_type, created, written, data))
    if len(found) - len(data) > len(MAGIC) + MAX_HEAD:
        raise LimitError(f"key, headers and content type together have at most {MAX_HEAD} bytes")
    return found


def _check_text(what: str, text: object, most: int) -> None:
    if not isinstance(text, str):
        raise LocalError(f"{what} is text, not {type(text).__name__}: {text!r}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise LocalError(f"{what} is not text that UTF-8 can express") from None
    if size > most:
        raise LimitError(f"{what} has at most {most} bytes, not {size}")
