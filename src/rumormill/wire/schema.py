"""Messages in protobuf, each declared once: its fields, their numbers, their limits.

From the declaration come the bytes of a value (`encode`), how many there are (`size`) and, within
the limits, the value of bytes (`decode`). The rule of reading: counts and lengths are checked
before anything is sliced or built, and whatever is wrong with the bytes, the answer is a
`DecodeError` under the reason that the field declares. Fields that nobody declared are skipped, a
few of them, so that newer peers stay readable. Fields are written in the order of their numbers.

To declare a message, name the fields of a struct in their order, each with its kind (see `fields`),
its number and its limits:

    class Greeting(msgspec.Struct, frozen=True):
        peer: bytes
        words: tuple[str, ...] = ()

    GREETING = Schema(
        Greeting,
        {"peer": Octets(1, 64, missing="no-peer"), "words": Text(2, 256, max_count=16)},
        max_bytes=8192,
    )
    assert GREETING.decode(GREETING.encode(Greeting(b"me"))) == Greeting(b"me")

A field that comes more often than it may is refused even where protobuf would keep the last one:
no encoder writes that, and two readers that disagree on which copy counts are how forged
identities slip through. A schema may say `last_counts` for its plain values; messages inside a
message are never merged. A field of another wire type than the declared one is refused as well.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from rumormill.core.errors import DecodeError
from rumormill.wire.fields import UNBOUNDED, Field, LeftOut, Measure, Nested, Put
from rumormill.wire.protobuf import MAX_FIELDS, next_field, read_varint

T = TypeVar("T")


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


def _step(field: Field) -> tuple[Put, Measure]:
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


def _sizes(get: Callable[[Any], Sequence[Any]], measures: Sequence[Measure]) -> Measure:
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
        max_bytes: int = UNBOUNDED,
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
