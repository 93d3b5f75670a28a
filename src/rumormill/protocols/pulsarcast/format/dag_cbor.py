"""dag-cbor: the one encoding of a value, so that its hash can be its name.

The rule: whatever `decode` accepts, `encode` writes back byte for byte. Shortest heads, no
indefinite lengths, map keys in the order of their length and then of their bytes, no tag but 42
(a link), 64-bit floats only, nothing behind the value. Everything else is a `DecodeError`, and no
count or length from outside is believed before it is compared with what is there.

Our own code instead of a library: descriptors need a tenth of what libraries offer, and those
disagree on what they let through (duplicate keys, long heads), which here would be two names for
one thing.
"""

import math
import struct
from collections.abc import Mapping
from typing import Final, TypeAlias, Union

import msgspec

from rumormill.core.errors import DecodeError

MAX_DEPTH: Final = 16
"""Our choice: a topic descriptor nests four deep."""

MAX_ITEMS: Final = 1 << 16
"""Values in one block, our choice: a topic of 10,000 sub-topics has 30,000."""

MAX_BYTES: Final = 4 << 20
"""Our choice: a payload of a few MiB, and four times what libp2p blocks usually hold."""

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _LIST, _MAP, _TAG, _SIMPLE = range(8)
_LINK_TAG = 42
_LINK_HEAD = b"\xd8\x2a"
_FALSE, _TRUE, _NULL, _FLOAT64 = 0xF4, 0xF5, 0xF6, 0xFB
_LONG_HEADS = {24: (1, 24), 25: (2, 1 << 8), 26: (4, 1 << 16), 27: (8, 1 << 32)}


class Link(msgspec.Struct, frozen=True, gc=False):
    """A reference to another block by its CID."""

    cid: bytes


Value: TypeAlias = Union[
    bool,
    int,
    float,
    bytes,
    str,
    Link,
    "list[Value]",
    "tuple[Value, ...]",
    "Mapping[str, Value]",
    None,
]


def head(major: int, argument: int) -> bytes:
    """The shortest head of a value: its major type and a length, count or number."""
    kind = major << 5
    if argument < 24:
        return bytes((kind | argument,))
    if argument < 1 << 8:
        return bytes((kind | 24, argument))
    if argument < 1 << 16:
        return bytes((kind | 25,)) + argument.to_bytes(2)
    if argument < 1 << 32:
        return bytes((kind | 26,)) + argument.to_bytes(4)
    return bytes((kind | 27,)) + argument.to_bytes(8)


def text(value: str) -> bytes:
    """Encode a text."""
    data = value.encode()
    return head(_TEXT, len(data)) + data


def octets(value: bytes) -> bytes:
    """Encode a byte string."""
    return head(_BYTES, len(value)) + value


def link(cid: bytes) -> bytes:
    """Encode a link: tag 42 and the CID behind a zero byte (multibase identity)."""
    return b"".join((_LINK_HEAD, head(_BYTES, len(cid) + 1), b"\0", cid))


def encode(value: Value) -> bytes:
    """Write a value; what dag-cbor cannot hold is a `ValueError`."""
    parts: list[bytes] = []
    try:
        _write(value, parts, MAX_DEPTH)
    except UnicodeEncodeError:
        raise ValueError("a text holds half a surrogate pair") from None
    return b"".join(parts)


def _write(value: Value, parts: list[bytes], depth: int) -> None:
    if depth < 0:
        raise ValueError(f"a value nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        parts.append(text(value))
    elif isinstance(value, bytes):
        parts.append(octets(value))
    elif isinstance(value, Link):
        parts.append(link(value.cid))
    elif isinstance(value, Mapping):
        _write_map(value, parts, depth)
    elif isinstance(value, list | tuple):
        parts.append(head(_LIST, len(value)))
        for item in value:
            _write(item, parts, depth - 1)
    elif value is None:
        parts.append(bytes((_NULL,)))
    elif isinstance(value, bool):
        parts.append(bytes((_TRUE if value else _FALSE,)))
    elif isinstance(value, int):
        if not -(1 << 64) <= value < 1 << 64:
            raise ValueError("an integer has at most 64 bits")
        parts.append(head(_UNSIGNED, value) if value >= 0 else head(_NEGATIVE, -1 - value))
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number that is not finite")
        parts.append(struct.pack(">Bd", _FLOAT64, value))
    else:
        raise ValueError(f"dag-cbor cannot hold a {type(value).__name__}")


def _write_map(value: Mapping[str, Value], parts: list[bytes], depth: int) -> None:
    keys: list[tuple[int, bytes, str]] = []
    for key in value:
        if not isinstance(key, str):
            raise ValueError("the keys of a map are texts")
        raw = key.encode()
        keys.append((len(raw), raw, key))
    keys.sort()
    parts.append(head(_MAP, len(keys)))
    for length, raw, key in keys:
        parts.append(head(_TEXT, length))
        parts.append(raw)
        _write(value[key], parts, depth - 1)


def decode(data: bytes, *, max_bytes: int = MAX_BYTES, max_items: int = MAX_ITEMS) -> Value:
    """Read the one value that `data` is the encoding of."""
    if len(data) > max_bytes:
        raise DecodeError("oversized", f"a block of {len(data)} bytes; {max_bytes} are allowed")
    reader = _Reader(data, max_items)
    value = reader.read(MAX_DEPTH)
    if reader.position != len(data):
        raise DecodeError("bad-dag-cbor", "there is something behind the value")
    return value


class _Reader:
    """A walk over one block."""

    __slots__ = ("data", "items", "position")

    def __init__(self, data: bytes, max_items: int) -> None:
        self.data = data
        self.items = max_items
        self.position = 0

    def read(self, depth: int) -> Value:
        """Read one value with everything in it."""
        if depth < 0:
            raise DecodeError("too-deep", f"a value nested deeper than {MAX_DEPTH}")
        first = self._first()
        major = first >> 5
        if major == _SIMPLE:
            return self._simple(first)
        argument = self._argument(first & 31)
        if major == _BYTES:
            return self._take(argument)
        if major == _TEXT:
            return self._text(argument)
        if major == _MAP:
            return self._map(argument, depth)
        if major == _LIST:
            self._check_count(argument)
            return [self.read(depth - 1) for _ in range(argument)]
        if major == _TAG:
            return self._link(argument)
        return argument if major == _UNSIGNED else -1 - argument

    def _first(self) -> int:
        position = self.position
        if position >= len(self.data):
            raise DecodeError("truncated", "a value is cut short")
        self.items -= 1
        if self.items < 0:
            raise DecodeError("too-many-items", "more values than one block may hold")
        self.position = position + 1
        return self.data[position]

    def _argument(self, low: int) -> int:
        if low < 24:
            return low
        if low not in _LONG_HEADS:
            raise DecodeError("bad-dag-cbor", "an indefinite or reserved length")
        width, least = _LONG_HEADS[low]
        argument = int.from_bytes(self._take(width))
        if argument < least:
            raise DecodeError("not-canonical", "a head is longer than it must be")
        return argument

    def _take(self, count: int) -> bytes:
        start = self.position
        if count > len(self.data) - start:
            raise DecodeError("truncated", "a value claims more bytes than there are")
        self.position = start + count
        return self.data[start : self.position]

    def _check_count(self, count: int) -> None:
        if count > len(self.data) - self.position:
            raise DecodeError("truncated", "a list or map claims more values than there are")
        if count > self.items:
            raise DecodeError("too-many-items", "more values than one block may hold")

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise DecodeError("bad-text", "a text is not UTF-8") from None

    def _map(self, count: int, depth: int) -> dict[str, Value]:
        self._check_count(count)
        found: dict[str, Value] = {}
        before = (-1, b"")
        for _ in range(count):
            first = self._first()
            if first >> 5 != _TEXT:
                raise DecodeError("bad-dag-cbor", "the keys of a map are texts")
            length = self._argument(first & 31)
            start = self.position
            key = self._text(length)
            order = (length, self.data[start : self.position])
            if order <= before:
                raise DecodeError("not-canonical", "map keys are out of order or repeated")
            before = order
            found[key] = self.read(depth - 1)
        return found

    def _link(self, tag: int) -> Link:
        first = self._first()
        if tag != _LINK_TAG or first >> 5 != _BYTES:
            raise DecodeError("bad-dag-cbor", "the only tag is 42, a link")
        raw = self._take(self._argument(first & 31))
        if len(raw) < 2 or raw[0]:
            raise DecodeError("bad-link", "a link is a zero byte and a CID")
        return Link(raw[1:])

    def _simple(self, first: int) -> Value:
        if first == _NULL:
            return None
        if first in (_FALSE, _TRUE):
            return first == _TRUE
        if first != _FLOAT64:
            raise DecodeError("bad-dag-cbor", "neither true, false, null nor a 64-bit float")
        number: float = struct.unpack(">d", self._take(8))[0]
        if not math.isfinite(number):
            raise DecodeError("bad-dag-cbor", "a number that is not finite")
        return number
