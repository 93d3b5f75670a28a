"""What the fields of a declared message may be, how many and how long (see `schema`).

A field says under which reason it is refused, whether it may be absent, and how its values turn
into the numbers and bytes of protobuf and back. Unless it says otherwise, it is one value, an
absent one is empty or zero, and an empty one is not written.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.wire.protobuf import FIXED64, LENGTH_DELIMITED, VARINT, varint, varint_size

T = TypeVar("T")
LeftOut: TypeAlias = dict[str, int]
"""How much was left out of a message while it was read, by reason."""

UNBOUNDED: Final = 1 << 62
"""No more than the message around it allows."""
_UINT64_MAX: Final = 2**64 - 1

Put: TypeAlias = Callable[[list[bytes], Any], None]
"""Appends the parts of a value, its tag first; nothing if the value is absent."""
Measure: TypeAlias = Callable[[Any], int]
"""Tells how many bytes these parts are."""
Reading: TypeAlias = tuple[int, int, Callable[..., Any] | None]
"""A tag, how many bytes may follow it, and what makes a value of a number, or of what lies between
two positions; None where the value is that itself."""


class Codec(Protocol[T]):
    """What writes and reads a message inside another one: a schema, or something by hand."""

    def encode(self, value: T) -> bytes:
        """The bytes of a value."""

    def size(self, value: T) -> int:
        """How many there are."""

    def read(self, data: bytes, position: int, end: int, left_out: LeftOut | None) -> T:
        """The value of the bytes between two positions."""


class _Common(msgspec.Struct, frozen=True, kw_only=True):
    """What all kinds of fields declare."""

    max_count: int | None = None
    """If not None: a tuple of at most so many values."""
    counted_with: str = ""
    """Another tuple, together with which this one is counted."""
    too_many: str = "repeated-field"
    """The reason of the refusal; if empty, what is too many is left out."""
    too_long: str = "oversized"
    leave_out: bool = False
    """What cannot be read is left out, and the rest of the message stands."""
    always: bool = False
    """Written even if empty or zero."""
    optional: bool = False
    """None where it is absent; written if it is not None."""
    missing: str = ""
    """The reason why a message in which it is absent or empty is refused; always written."""

    @property
    def must(self) -> bool:
        """Whether an empty value is written too, as those in a tuple are."""
        return bool(self.always or self.optional or self.missing or self.max_count is not None)


class Number(_Common, frozen=True):
    """An integer of at most 64 bits, or what `read` makes of it and `write` turns back."""

    number: int
    most: int = _UINT64_MAX
    too_large: str = "bad-number"
    read: Callable[[int], Any] | None = None
    write: Callable[[Any], int] | None = None

    def readings(self) -> Sequence[Reading]:
        """As a varint."""
        most, too_large, convert = self.most, self.too_large, self.read

        def read(number: int) -> Any:
            if number > most:
                raise DecodeError(too_large, f"{number} is more than {most}")
            return number if convert is None else convert(number)

        return [(self.number << 3 | VARINT, 0, convert if most == _UINT64_MAX else read)]

    def writing(self) -> tuple[Put, Measure]:
        """As a varint."""
        head, convert, must = varint(self.number << 3 | VARINT), self.write, self.must
        width = len(head) + 1

        def put(parts: list[bytes], value: Any) -> None:
            if value or (must and value is not None):
                parts += (head, varint(value if convert is None else convert(value)))

        def measure(value: Any) -> int:
            if not value and (value is None or not must):
                return 0
            number = value if convert is None else convert(value)
            return width if number < 0x80 else width - 1 + varint_size(number)

        return put, measure

    def empty(self) -> Any:
        """What stands for 0."""
        return self.read(0) if self.read else 0


class Fixed(_Common, frozen=True):
    """An integer that takes 64 bits, whatever it is."""

    number: int

    def readings(self) -> Sequence[Reading]:
        """Eight bytes, the lowest first."""

        def read(data: bytes, start: int, stop: int, _: LeftOut | None) -> int:
            return int.from_bytes(data[start:stop], "little")

        return [(self.number << 3 | FIXED64, 8, read)]

    def writing(self) -> tuple[Put, Measure]:
        """Likewise."""
        head, must = varint(self.number << 3 | FIXED64), self.must

        def put(parts: list[bytes], value: int | None) -> None:
            if value or (must and value is not None):
                parts += (head, value.to_bytes(8, "little"))

        def measure(value: int | None) -> int:
            return len(head) + 8 if value or (must and value is not None) else 0

        return put, measure

    def empty(self) -> int:
        """Nothing is 0."""
        return 0


class Octets(_Common, frozen=True):
    """Bytes, or what `read` makes of them and `write` turns back."""

    number: int
    max_bytes: int
    read: Callable[[bytes], Any] | None = None
    write: Callable[[Any], bytes] | None = None

    def readings(self) -> Sequence[Reading]:
        """As a slice of the message."""
        convert = self.read

        def read(data: bytes, start: int, stop: int, _: LeftOut | None) -> Any:
            return data[start:stop] if convert is None else convert(data[start:stop])

        return [(self.number << 3 | LENGTH_DELIMITED, self.max_bytes, convert and read)]

    def writing(self) -> tuple[Put, Measure]:
        """Behind their length."""
        write = self.write
        length = (lambda value: len(write(value))) if write else len
        return _delimited(self.number, self.must, write, length)

    def empty(self) -> Any:
        """What stands for no bytes."""
        return self.read(b"") if self.read else b""


class Text(Octets, frozen=True):
    """A text in UTF-8."""

    write: Callable[[Any], bytes] | None = str.encode
    bad: str = "bad-text"

    def readings(self) -> Sequence[Reading]:
        """As a `str`, unless it is `bad`."""
        bad = self.bad

        def read(data: bytes, start: int, stop: int, _: LeftOut | None) -> str:
            try:
                return data[start:stop].decode()
            except UnicodeDecodeError:
                raise DecodeError(bad, "a text is not UTF-8") from None

        return [(self.number << 3 | LENGTH_DELIMITED, self.max_bytes, read)]

    def empty(self) -> str:
        """No text."""
        return ""


class Nested(_Common, frozen=True):
    """A message inside the message."""

    number: int
    codec: Codec[Any]

    def readings(self) -> Sequence[Reading]:
        """In place; its own schema says how long it may be."""
        return [(self.number << 3 | LENGTH_DELIMITED, UNBOUNDED, self.codec.read)]

    def writing(self) -> tuple[Put, Measure]:
        """Behind its length."""
        return _delimited(self.number, self.must, self.codec.encode, self.codec.size)

    def empty(self) -> Any:
        """What stands for no bytes."""
        return self.codec.read(b"", 0, 0, None)


class OneOf(_Common, frozen=True):
    """Values of several types, each with a number of its own."""

    kinds: Mapping[type, Nested | Octets]

    def readings(self) -> Sequence[Reading]:
        """By the numbers."""
        return [reading for field in self.kinds.values() for reading in field.readings()]

    def writing(self) -> tuple[Put, Measure]:
        """By the types; None is not written."""
        kinds = {kind: field.writing() for kind, field in self.kinds.items()}

        def put(parts: list[bytes], value: Any) -> None:
            if value is not None:
                kinds[type(value)][0](parts, value)

        return put, lambda value: 0 if value is None else kinds[type(value)][1](value)

    def empty(self) -> None:
        """None of them."""


Field: TypeAlias = Number | Fixed | Octets | Text | Nested | OneOf


def _delimited(
    number: int, must: bool, encode: Callable[[Any], bytes] | None, length: Callable[[Any], int]
) -> tuple[Put, Measure]:
    head = varint(number << 3 | LENGTH_DELIMITED)
    width = len(head) + 1

    def put(parts: list[bytes], value: Any) -> None:
        if value or (must and value is not None):
            raw = value if encode is None else encode(value)
            parts += (head, varint(len(raw)), raw)

    def measure(value: Any) -> int:
        if not value and (value is None or not must):
            return 0
        size = length(value)
        return width + size if size < 0x80 else width - 1 + varint_size(size) + size

    return put, measure


def enumeration(kind: type[IntEnum], reason: str) -> Callable[[int], IntEnum]:
    """Make a `read` for the members of an enumeration."""
    members = {int(member): member for member in kind}

    def read(number: int) -> IntEnum:
        if number not in members:
            raise DecodeError(reason, f"no {kind.__name__} has the number {number}")
        return members[number]

    return read
