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


class _Form(NamedTuple):
    """How values behind one tag are read and written.

    `read` makes a value of a number, or of what lies between two positions of the message;
    `encode` makes a number or bytes of a value. None means that the value is that itself.
    `measure` gives the number, or how many bytes it would be.
    """

    tag: int
    max_bytes: int
    read: Callable[..., Any] | None
    encode: Callable[[Any], Any] | None
    measure: Callable[[Any], int] | None


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

    def forms(self) -> Mapping[type, _Form]:
        """How it is read and written, by the type of the value; `object` for any."""
        raise NotImplementedError

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

    def forms(self) -> Mapping[type, _Form]:
        """A varint."""
        most, too_large, convert = self.most, self.too_large, self.read

        def read(number: int) -> Any:
            if number > most:
                raise DecodeError(too_large, f"{number} is more than {most}")
            return number if convert is None else convert(number)

        bounded = convert if most == _UINT64_MAX else read
        return {object: _Form(self.number << 3 | VARINT, 0, bounded, self.write, self.write)}

    def empty(self) -> Any:
        """What stands for 0."""
        return self.read(0) if self.read else 0


class Octets(Field, frozen=True):
    """Bytes, or what `read` makes of them and `write` turns back."""

    number: int
    max_bytes: int
    read: Callable[[bytes], Any] | None = None
    write: Callable[[Any], bytes] | None = None

    def forms(self) -> Mapping[type, _Form]:
        """A slice of the message, where nothing else is made of it."""
        tag, convert, write = self.number << 3 | LENGTH_DELIMITED, self.read, self.write

        def read(data: bytes, start: int, stop: int, _: LeftOut | None) -> Any:
            return data[start:stop] if convert is None else convert(data[start:stop])

        measure = (lambda value: len(write(value))) if write else len
        return {object: _Form(tag, self.max_bytes, convert and read, write, measure)}

    def empty(self) -> Any:
        """What stands for no bytes."""
        return self.read(b"") if self.read else b""


class Text(Field, frozen=True):
    """A text in UTF-8."""

    number: int
    max_bytes: int
    bad: str = "bad-text"

    def forms(self) -> Mapping[type, _Form]:
        """Refused as `bad` if it is not UTF-8."""
        tag, bad = self.number << 3 | LENGTH_DELIMITED, self.bad

        def read(data: bytes, start: int, stop: int, _: LeftOut | None) -> str:
            try:
                return data[start:stop].decode()
            except UnicodeDecodeError:
                raise DecodeError(bad, "a text is not UTF-8") from None

        return {
            object: _Form(tag, self.max_bytes, read, str.encode, lambda text: len(text.encode()))
        }

    def empty(self) -> str:
        """No text."""
        return ""


class Nested(Field, frozen=True):
    """A message inside the message; where it is absent, an empty one is read."""

    number: int
    codec: Codec[Any]

    def forms(self) -> Mapping[type, _Form]:
        """Read in place; its own schema says how long it may be."""
        tag, codec = self.number << 3 | LENGTH_DELIMITED, self.codec
        return {object: _Form(tag, _AS_THE_MESSAGE_AROUND, codec.read, codec.encode, codec.size)}

    def empty(self) -> Any:
        """An empty message."""
        return self.codec.read(b"", 0, 0, None)


class OneOf(Field, frozen=True):
    """Values of several types, each with a number of its own."""

    kinds: Mapping[type, Field]

    def forms(self) -> Mapping[type, _Form]:
        """Those of each type."""
        return {kind: field.forms()[object] for kind, field in self.kinds.items()}


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
        forms = {name: field.forms() for name, field in fields.items()}
        names = sorted(fields, key=lambda name: min(form.tag for form in forms[name].values()))
        self._get = attrgetter(*names) if len(names) > 1 else _few_attributes(names)
        self._writers = [_step(fields[name], _writer) for name in names]
        self._measures = [_step(fields[name], _measure) for name in names]

    def only(self, *names: str) -> "Layout[T]":
        """Some of the fields."""
        return Layout({name: self.fields[name] for name in names})

    def encode(self, value: T) -> bytes:
        """The bytes of a value, without a tag or a length in front."""
        kept_in = self._kept_in
        if kept_in and (kept := getattr(value, kept_in)):
            return bytes(kept)
        parts: list[bytes] = []
        for item, (must, many, kinds, way) in zip(self._get(value), self._writers):  # noqa: B905
            if not item and (item is None or not must):
                continue
            for each in item if many else (item,):
                head, delimited, encode = way if kinds is None else kinds[type(each)]
                raw = each if encode is None else encode(each)
                if delimited:
                    parts += (head, varint(len(raw)), raw)
                else:
                    parts += (head, varint(raw))
        encoded = b"".join(parts)
        if kept_in:
            setattr(value, kept_in, encoded)
        return encoded

    def size(self, value: T) -> int:
        """How many bytes `encode` gives."""
        if self._kept_in:
            return len(getattr(value, self._kept_in) or self.encode(value))
        size = 0
        for item, (must, many, kinds, way) in zip(self._get(value), self._measures):  # noqa: B905
            if not item and (item is None or not must):
                continue
            for each in item if many else (item,):
                head, delimited, measure = way if kinds is None else kinds[type(each)]
                number = each if measure is None else measure(each)
                size += head + number if delimited else head
                if number >= 0x80:
                    size += varint_size(number) - 1
        return size


def _few_attributes(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Like `attrgetter`, which gives a tuple only for two names or more."""
    return lambda value: [getattr(value, name) for name in names]


_Way = tuple[Any, bool, Callable[[Any], Any] | None]
_Step = tuple[bool, bool, Mapping[type, _Way] | None, _Way]


def _step(field: Field, way: Callable[[_Form], _Way]) -> _Step:
    """Whether a field is written if empty, whether it is a tuple, and the ways of its types."""
    must = field.always or field.optional or bool(field.missing)
    ways = {kind: way(form) for kind, form in field.forms().items()}
    return (
        must,
        field.max_count is not None,
        ways if len(ways) > 1 else None,
        next(iter(ways.values())),
    )


def _writer(form: _Form) -> _Way:
    return varint(form.tag), form.tag & 7 == LENGTH_DELIMITED, form.encode


def _measure(form: _Form) -> _Way:
    return len(varint(form.tag)) + 1, form.tag & 7 == LENGTH_DELIMITED, form.measure


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
            for tag, longest, read, _, _ in field.forms().values():
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
