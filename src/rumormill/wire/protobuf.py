"""The protobuf wire format, bounded: varints, tags and length-delimited fields.

rumormill reads peers' protobuf itself, for one reason: a general parser builds every object that
the bytes describe before anybody can count them. Here nothing is built from a length or a count
that has not been checked first. Values that lie inside the input are `bytes` slices of it.

Cold codecs are declared (`schema`); hot ones walk the buffer with `next_field`, or with
`read_varint` and `skip_value` where a step per field is too dear.
"""

from rumormill.core.errors import DecodeError

VARINT = 0
FIXED64 = 1
LENGTH_DELIMITED = 2
FIXED32 = 5

_MAX_VARINT_BYTES = 10
_UINT64_MAX = 2**64 - 1
_MAX_FIELD_NUMBER = 2**29 - 1
_PLAIN_TAGS = frozenset(number << 3 | LENGTH_DELIMITED for number in range(1, 16))
"""The length-delimited fields whose tag takes one byte."""

MAX_FIELDS = 16
"""Fields in one small item, such as a message, a subscription or an offered peer, and fields
besides the entries in a list of such. The largest has nine; the rest is for extensions. Our choice:
it keeps the cost of a frame in proportion to its items, where 1 MiB could hold half a million
fields."""

_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read an unsigned 64-bit varint; return it and the position behind it."""
    value = shift = 0
    stop = min(end, position + _MAX_VARINT_BYTES)
    while position < stop:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _UINT64_MAX:
                break
            return value, position
        shift += 7
    raise DecodeError("bad-varint", "a varint is cut short or longer than 64 bits")


def read_length(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read the length of a length-delimited value; return the value's start and its end."""
    length, start = read_varint(data, position, end)
    if length > end - start:
        raise DecodeError("truncated", "a field claims more bytes than there are")
    return start, start + length


def read_tag(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read a field's tag (number and wire type); return it and the position behind it."""
    tag, position = read_varint(data, position, end)
    if not 1 <= tag >> 3 <= _MAX_FIELD_NUMBER:
        raise DecodeError("bad-tag", f"no field has the number {tag >> 3}")
    return tag, position


def skip_value(data: bytes, position: int, end: int, wire_type: int) -> int:
    """Return the position behind a value that nobody here wants."""
    if wire_type == LENGTH_DELIMITED:
        return read_length(data, position, end)[1]
    if wire_type == VARINT:
        return read_varint(data, position, end)[1]
    size = _FIXED_SIZES.get(wire_type)
    if size is None:
        raise DecodeError("bad-wire-type", f"wire type {wire_type} is not in use")
    if size > end - position:
        raise DecodeError("truncated", "a fixed-width field is cut short")
    return position + size


def next_field(data: bytes, position: int, end: int) -> tuple[int, int, int]:
    """Read one field; return its tag, and where its value starts and ends.

    The value of a length-delimited field is what follows the length. A field of the wrong wire
    type has another tag than the expected one, and is thereby an unknown field, as protobuf says.
    """
    if position + 2 < end:
        # Nearly every field of every message: a tag of one byte, a length of one or two. A length
        # of more bytes shows as 0x4000 or more, because its second byte has the highest bit.
        tag, length, start = data[position], data[position + 1], position + 2
        if length >= 0x80:
            length += (data[start] << 7) - 0x80
            start += 1
        stop = start + length
        if tag in _PLAIN_TAGS and length < 0x4000 and stop <= end:
            return tag, start, stop
    tag, position = read_tag(data, position, end)
    if tag & 7 == LENGTH_DELIMITED:
        return tag, *read_length(data, position, end)
    return tag, position, skip_value(data, position, end, tag & 7)


def item_fields(
    data: bytes, position: int, end: int, max_fields: int = MAX_FIELDS
) -> list[tuple[int, int, int]]:
    """The fields of something small, each as tag, start and end of the value."""
    found: list[tuple[int, int, int]] = []
    while position < end:
        if len(found) == max_fields:
            raise DecodeError("too-many-fields", f"more than {max_fields} in one item")
        field = next_field(data, position, end)
        found.append(field)
        position = field[2]
    return found


def varint(value: int) -> bytes:
    """Encode an unsigned integer of at most 64 bits."""
    if value < 0x80:
        if value < 0:
            raise ValueError("a varint is not negative")
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value > _UINT64_MAX:
        raise ValueError("a varint has at most 64 bits")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def varint_size(value: int) -> int:
    """How many bytes `varint(value)` takes."""
    return (value.bit_length() + 6) // 7 or 1


def field_size(length: int) -> int:
    """Bytes of a length-delimited field whose value takes `length`, with a tag of one byte."""
    if length < 0x4000:  # said without a call: this is asked for every message
        return length + (2 if length < 0x80 else 3)
    return 1 + varint_size(length) + length


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode one length-delimited field."""
    return b"".join((varint(number << 3 | LENGTH_DELIMITED), varint(len(value)), value))


def string_field(number: int, value: str) -> bytes:
    """Encode one text field."""
    return bytes_field(number, value.encode())


def varint_field(number: int, value: int) -> bytes:
    """Encode one integer, boolean or enumeration field."""
    return varint(number << 3) + varint(value)
