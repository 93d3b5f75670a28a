"""Messages in protobuf, each declared once: its fields, their numbers, their limits.

From the declaration come the bytes of a value (`encode`), how many there are (`size`) and, within
the limits, the value of bytes (`decode`). The rule of reading: counts and lengths are checked
before anything is sliced or built, and whatever is wrong with the bytes, the answer is a
`DecodeError` under the reason that the field declares. Fields that nobody declared are skipped, a
few of them, so that newer peers stay readable. Fields are written in the order of their numbers.

A field that comes more often than it may is refused even where protobuf would keep the last one:
no encoder writes that, and two readers that disagree on which copy counts are how forged
identities slip through. A schema may say `last_counts` for its plain values; messages inside a
message are never merged. A field of another wire type than the declared one is refused as well.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.wire.protobuf import (
    LENGTH_DELIMITED,
    MAX_FIELDS,
    VARINT,
    next_field,
    read_varint,
    varint,
    varint_size,
)

T = TypeVar("T")
LeftOut = dict[str, int]
"""How much was left out of a message while it was read, by reason."""

_UINT64_MAX: Final = 2**64 - 1
_AS_THE_MESSAGE_AROUND: Final = 1 << 62


class Codec(Protocol[T]):
    """What writes and reads a message inside another one: a `Schema`, or something by hand."""

    def encode(self, value: T) -> bytes:
        """The bytes of a value."""

    def size(self, value: T) -> int:
        """How many there are."""

    def read(self, data: bytes, position: int, end: int, left_out: LeftOut | None) -> T:
        """The value of the bytes between two positions."""


_Put = Callable[[list[bytes], Any], None]
"""Appends the parts of a value, with its tag."""
_Measure = Callable[[Any], int]
"""Tells how many bytes these parts are."""
_Reading = tuple[int, int, Callable[..., Any] | None]
"""A tag, how many bytes may follow it, and what makes a value of a number, or of what lies between
two positions; None means that the value is that itself."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """What all kinds of fields declare: one value, written unless it is empty or zero."""

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

    def readings(self) -> Sequence[_Reading]:
        """How a value is read."""
        raise NotImplementedError

    def writing(self) -> tuple[_Put, _Measure]:
        """How a value is written, unless it is absent."""
        raise NotImplementedError

    @property
    def must(self) -> bool:
        """Whether a value is written even if it is empty, as those of a tuple always are."""
        has_reason = self.always or self.optional or bool(self.missing)
        return has_reason or self.max_count is not None

    def empty(self) -> Any:
        """What an absent single value is taken for."""
        return None


class Number(Field, frozen=True):
    """An integer of at most 64 bits, or what `read` makes of it and `write` turns back."""

    number: int
    most: int = _UINT64_MAX
    too_large: str = "bad-number"
    read: Callable[[int], Any] | None = None
    write: Callable[[Any], int] | None = None

    def readings(self) -> Sequence[_Reading]:
        """A varint."""
        most, too_large, convert = self.most, self.too_large, self.read

        def read(number: int) -> Any:
            if number > most:
                raise DecodeError(too_large, f"{number} is more than {most}")
            return number if convert is None else convert(number)

        return [(self.number << 3 | VARINT, 0, convert if most == _UINT64_MAX else read)]

    def writing(self) -> tuple[_Put, _Measure]:
        """A varint."""
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


class Octets(Field, frozen=True):
    """Bytes, or what `read` makes of them and `write` turns back."""

    number: int
    max_bytes: int
    read: Callable[[bytes], Any] | None = None
    write: Callable[[Any], bytes] | None = None

    def readings(self) -> Sequence[_Reading]:
        """A slice of the message, where nothing else is made of it."""
        convert = self.read

        def read(data: bytes, start: int, stop: int, _: LeftOut | None) -> Any:
            return data[start:stop] if convert is None else convert(data[start:stop])

        return [(self.number << 3 | LENGTH_DELIMITED, self.max_bytes, convert and read)]

    def writing(self) -> tuple[_Put, _Measure]:
        """Behind their length."""
        write = self.write
        measure = (lambda value: len(write(value))) if write else len
        return _delimited(self.number, self.must, write, measure)

    def empty(self) -> Any:
        """What stands for no bytes."""
        return self.read(b"") if self.read else b""


class Text(Field, frozen=True):
    """A text in UTF-8."""

    number: int
    max_bytes: int
    bad: str = "bad-text"

    def readings(self) -> Sequence[_Reading]:
        """Refused as `bad` if it is not UTF-8."""
        bad = self.bad

        def read(data: bytes, start: int, stop: int, _: LeftOut | None) -> str:
            try:
                return data[start:stop].decode()
            except UnicodeDecodeError:
                raise DecodeError(bad, "a text is not UTF-8") from None

        return [(self.number << 3 | LENGTH_DELIMITED, self.max_bytes, read)]

    def writing(self) -> tuple[_Put, _Measure]:
        """Behind its length."""
        return _delimited(self.number, self.must, str.encode, lambda text: len(text.encode()))

    def empty(self) -> str:
        """No text."""
        return ""


class Nested(Field, frozen=True):
    """A message inside the message; where it is absent, an empty one is read."""

    number: int
    codec: Codec[Any]

    def readings(self) -> Sequence[_Reading]:
        """In place; its own schema says how long it may be."""
        tag = self.number << 3 | LENGTH_DELIMITED
        return [(tag, _AS_THE_MESSAGE_AROUND, self.codec.read)]

    def writing(self) -> tuple[_Put, _Measure]:
        """Behind its length."""
        return _delimited(self.number, self.must, self.codec.encode, self.codec.size)

    def empty(self) -> Any:
        """An empty message."""
        return self.codec.read(b"", 0, 0, None)


class OneOf(Field, frozen=True):
    """Values of several types, each with a number of its own."""

    kinds: Mapping[type, Field]

    def readings(self) -> Sequence[_Reading]:
        """By the numbers."""
        return [reading for field in self.kinds.values() for reading in field.readings()]

    def writing(self) -> tuple[_Put, _Measure]:
        """By the types."""
        kinds = {kind: field.writing() for kind, field in self.kinds.items()}

        def put(parts: list[bytes], value: Any) -> None:
            kinds[type(value)][0](parts, value)

        return put, lambda value: kinds[type(value)][1](value)


def _delimited(
    number: int, must: bool, encode: Callable[[Any], bytes] | None, length: Callable[[Any], int]
) -> tuple[_Put, _Measure]:
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


class Layout(Generic[T]):
    """Fields of a value, by the names of its attributes (`a.b` is an attribute's attribute).

    With `kept_in`, an attribute of the value, its bytes are made once and kept there.
    """

    def __init__(self, fields: Mapping[str, Field], *, kept_in: str = "") -> None:
        self.fields = fields
        self._kept_in = kept_in
        names = sorted(fields, key=lambda name: min(fields[name].readings())[0])
        self._get = attrgetter(*names) if len(names) > 1 else _few_attributes(names)
        steps = [_step(fields[name]) for name in names]
        self._puts = [put for put, _ in steps]
        self.size = _sizes(self._get, [measure for _, measure in steps])
        """How many bytes `encode` gives."""
        if kept_in:
            kept = attrgetter(kept_in)
            self.size = lambda value: len(kept(value) or self.encode(value))

    def only(self, *names: str) -> "Layout[T]":
        """Some of the fields."""
        return Layout({name: self.fields[name] for name in names})

    def encode(self, value: T) -> bytes:
        """The bytes of a value, without a tag or a length in front."""
        kept_in = self._kept_in
        if kept_in and (kept := getattr(value, kept_in)):
            return bytes(kept)
        parts: list[bytes] = []
        for index, item in enumerate(self._get(value)):
            self._puts[index](parts, item)
        encoded = b"".join(parts)
        if kept_in:
            setattr(value, kept_in, encoded)
        return encoded


def _few_attributes(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Like `attrgetter`, which gives a tuple only for two names or more."""
    return lambda value: [getattr(value, name) for name in names]


def _step(field: Field) -> tuple[_Put, _Measure]:
    """How a field is written: one value, or all of a tuple."""
    put, measure = field.writing()
    if field.max_count is None:
        return put, measure

    def put_all(parts: list[bytes], values: Sequence[Any]) -> None:
        for value in values:
            put(parts, value)

    def measure_all(values: Sequence[Any]) -> int:
        size = 0
        for value in values:
            size += measure(value)
        return size

    return put_all, measure_all


def _sizes(get: Callable[[Any], Sequence[Any]], measures: Sequence[_Measure]) -> _Measure:
    """Add up what is measured of a value.

    Written out for two and three fields: this is asked for every simulated message.
    """
    if len(measures) == 2:
        first, second = measures

        def size_of_two(value: Any) -> int:
            one, two = get(value)
            return first(one) + second(two)

        return size_of_two
    if len(measures) == 3:
        first, second, third = measures

        def size_of_three(value: Any) -> int:
            one, two, three = get(value)
            return first(one) + second(two) + third(three)

        return size_of_three

    def size(value: Any) -> int:
        total = 0
        for index, item in enumerate(get(value)):
            total += measures[index](item)
        return total

    return size


class _Place(NamedTuple):
    """Where a value goes that is read behind some tag."""

    slot: int
    counter: int
    most: int
    max_bytes: int
    read: Callable[..., Any] | None
    field: Field
    many: bool
    replaces: bool


class Schema(Layout[T]):
    """A whole message: its fields, and the limits within which it is read.

    `make` is called with the values of the fields in the order of their declaration; if it is a
    struct, this must be the order of its own first fields. It may raise `DecodeError`.
    """

    def __init__(
        self,
        make: Callable[..., T],
        fields: Mapping[str, Field],
        *,
        max_bytes: int = _AS_THE_MESSAGE_AROUND,
        too_long: str = "oversized",
        max_others: int = MAX_FIELDS,
        last_counts: bool = False,
        kept_in: str = "",
    ) -> None:
        super().__init__(fields, kept_in=kept_in)
        own = getattr(make, "__struct_fields__", tuple(fields))[: len(fields)]
        if own != tuple(fields):
            raise ValueError(f"the first fields of {make} are {own}")
        self._make = make
        self._max_bytes, self._too_long, self._max_others = max_bytes, too_long, max_others
        slots = {name: slot for slot, name in enumerate(fields)}
        self._empty: list[Any] = []
        self._places: dict[int, _Place] = {}
        for name, field in fields.items():
            many = field.max_count is not None
            has_value = not (many or field.optional or field.missing)
            self._empty.append(field.empty() if has_value else None)
            replaces = last_counts and not many and not isinstance(field, Nested)
            most = 1 if field.max_count is None else field.max_count
            counter = slots[field.counted_with or name]
            for tag, longest, read in field.readings():
                place = _Place(slots[name], counter, most, longest, read, field, many, replaces)
                self._places[tag] = place
        self._counts = [0] * len(fields)
        self._numbers = frozenset(tag >> 3 for tag in self._places)
        self._tuples = sorted({place.slot for place in self._places.values() if place.many})
        self._required = [(slots[name], field) for name, field in fields.items() if field.missing]

    def decode(self, data: bytes, left_out: LeftOut | None = None) -> T:
        """Read a whole message; count in `left_out` what is left out of it."""
        return self.read(data, 0, len(data), left_out)

    def read(self, data: bytes, position: int, end: int, left_out: LeftOut | None) -> T:
        """Read the message between two positions."""
        if end - position > self._max_bytes:
            detail = f"{end - position} bytes, allowed are {self._max_bytes}"
            raise DecodeError(self._too_long, detail)
        values, counts, others, number = self._empty.copy(), self._counts.copy(), 0, 0
        for slot in self._tuples:
            values[slot] = []
        while position < end:
            tag = data[position]
            if tag & 0x87:
                tag, start, position = next_field(data, position, end)
            else:  # a number, behind a tag of one byte
                start = position + 1
                number, position = read_varint(data, start, end)
            place = self._places.get(tag)
            if place is None:
                others = self._unknown(tag, others)
                continue
            slot, counter, most, max_bytes, read, field, many, replaces = place
            count = counts[counter]
            if count < most:
                counts[counter] = count + 1
            elif replaces:
                others = self._one_more(others)
            else:
                _surplus(place, left_out)
                continue
            try:
                if tag & 7:
                    if position - start > max_bytes:
                        detail = f"{position - start} bytes, allowed are {max_bytes}"
                        raise DecodeError(field.too_long, detail)
                    value = (
                        data[start:position]
                        if read is None
                        else read(data, start, position, left_out)
                    )
                else:
                    if tag >= 0x80:
                        number = read_varint(data, start, position)[0]
                    value = number if read is None else read(number)
            except DecodeError as error:
                _pass_over(place, error, left_out)
                counts[counter] -= not field.too_many
                continue
            if many:
                values[slot].append(value)
            else:
                values[slot] = value
        return self._make(*self._complete(values))

    def _unknown(self, tag: int, others: int) -> int:
        if not tag:
            raise DecodeError("bad-tag", "no field has the number 0")
        if tag >> 3 in self._numbers:
            raise DecodeError("bad-wire-type", f"field {tag >> 3} has another wire type")
        return self._one_more(others)

    def _one_more(self, others: int) -> int:
        """Count a field that nobody declared, or a plain value that comes again."""
        if others == self._max_others:
            raise DecodeError("too-many-fields", f"more than {others} besides those declared")
        return others + 1

    def _complete(self, values: list[Any]) -> list[Any]:
        for slot in self._tuples:
            values[slot] = tuple(values[slot])
        for slot, field in self._required:
            if values[slot] is None or values[slot] == b"":
                raise DecodeError(field.missing, "a field is absent or empty")
        return values


def _surplus(place: _Place, left_out: LeftOut | None) -> None:
    reason = place.field.too_many
    if reason:
        raise DecodeError(reason, f"allowed are {place.most}")
    _leave_out("too-many", left_out)


def _pass_over(place: _Place, error: DecodeError, left_out: LeftOut | None) -> None:
    if not place.field.leave_out:
        raise error
    _leave_out(error.reason, left_out)


def _leave_out(reason: str, left_out: LeftOut | None) -> None:
    if left_out is not None:
        left_out[reason] = left_out.get(reason, 0) + 1
