"""The fields of one protobuf message, found without copying, counted, by their tags."""

from rumormill.core.errors import DecodeError
from rumormill.wire.protobuf import item_fields

# Tags as they appear on the wire: the field number, then the wire type in the lowest three bits.
FIELD_1, FIELD_2, FIELD_3, FIELD_4, FIELD_5, FIELD_6 = 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32
BOOL_1 = 0x08


def split(data: bytes, most: int) -> list[tuple[int, int, int]]:
    """Every field as its tag and the start and end of its value; more than `most` is an error."""
    return item_fields(data, 0, len(data), most)


def text_of(data: bytes, most: int) -> str:
    """A text of at most `most` bytes."""
    if len(data) > most:
        raise DecodeError("text-too-long", f"{len(data)} bytes, allowed are {most}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DecodeError("bad-text", "a text is not UTF-8") from None
