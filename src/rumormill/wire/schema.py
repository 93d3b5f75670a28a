"""Peers' small protobuf messages, read against a table of what they may contain.

A codec states once which fields it knows, how long each may be and how often it may come; `read`
refuses everything beyond that before it slices a value. A field that comes more often than its
table allows is refused even where protobuf would keep the last one: no encoder writes that, and
two readers that disagree on which copy counts are how forged identities slip through. Fields that
the table does not name are skipped, so that newer peers stay readable.
"""

from collections.abc import Mapping

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.wire.protobuf import (
    LENGTH_DELIMITED,
    VARINT,
    read_length,
    read_varint,
    skip_value,
)

_MAX_UNKNOWN_FIELDS = 16


class Number(msgspec.Struct, frozen=True):
    """An integer or enumeration field; comes at most once."""

    max_count: int = 1


class Octets(msgspec.Struct, frozen=True):
    """A bytes or embedded-message field."""

    max_bytes: int
    max_count: int = 1


class Text(msgspec.Struct, frozen=True):
    """A string field; must be UTF-8."""

    max_bytes: int
    max_count: int = 1


Schema = Mapping[int, Number | Octets | Text]


class Message:
    """The fields of one message, by number; each getter asks for the kind the schema declares."""

    __slots__ = ("_numbers", "_octets", "_texts")

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._octets: dict[int, list[bytes]] = {}
        self._texts: dict[int, list[str]] = {}

    def number(self, field: int) -> int | None:
        """Return the integer of a field, or None where the message has none."""
        return self._numbers.get(field)

    def octets(self, field: int) -> bytes | None:
        """Return the bytes of a field that comes at most once."""
        values = self._octets.get(field)
        return values[0] if values else None

    def text(self, field: int) -> str | None:
        """Return the text of a field that comes at most once."""
        values = self._texts.get(field)
        return values[0] if values else None

    def all_octets(self, field: int) -> tuple[bytes, ...]:
        """Return every value of a repeated bytes field, in order."""
        return tuple(self._octets.get(field, ()))

    def all_texts(self, field: int) -> tuple[str, ...]:
        """Return every value of a repeated string field, in order."""
        return tuple(self._texts.get(field, ()))


def read(data: bytes, schema: Schema, *, max_bytes: int) -> Message:
    """Read one message of at most `max_bytes`; raise DecodeError where it breaks its schema."""
    end = len(data)
    if end > max_bytes:
        raise DecodeError("oversized", f"a message of {end} bytes; {max_bytes} are allowed")
    message = Message()
    counts: dict[int, int] = {}
    unknown = position = 0
    while position < end:
        tag, position = read_varint(data, position, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise DecodeError("bad-tag", "field number 0 is not in use")
        kind = schema.get(number)
        if kind is None:
            unknown += 1
            if unknown > _MAX_UNKNOWN_FIELDS:
                raise DecodeError("too-many-fields", "too many fields that nobody knows")
            position = skip_value(data, position, end, wire_type)
            continue
        count = counts[number] = counts.get(number, 0) + 1
        if count > kind.max_count:
            raise DecodeError("repeated-field", f"field {number} comes more than {kind.max_count}×")
        if isinstance(kind, Number):
            if wire_type != VARINT:
                raise DecodeError("bad-wire-type", f"field {number} is not an integer")
            message._numbers[number], position = read_varint(data, position, end)
            continue
        if wire_type != LENGTH_DELIMITED:
            raise DecodeError("bad-wire-type", f"field {number} is not a byte string")
        start, position = read_length(data, position, end)
        if position - start > kind.max_bytes:
            raise DecodeError("oversized", f"field {number} is longer than {kind.max_bytes} bytes")
        if isinstance(kind, Octets):
            message._octets.setdefault(number, []).append(data[start:position])
        else:
            message._texts.setdefault(number, []).append(_text(number, data[start:position]))
    return message


def _text(number: int, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DecodeError("bad-text", f"field {number} is not UTF-8") from None
