"""The payloads of a range, opened: what their publishers gave, and what they said besides.

The rule is that of `node.payloads`: an envelope is opened, what cannot be read as one was none, and
everything else is its publisher's data as it is. Nothing is decrypted: what is encrypted has no
value here. Payloads that are neither are not looked at one by one, and envelopes as we write them
are read all at once, column by column; where a single one is written otherwise, a batch is read
one by one by `wire.envelope`, which knows everything that may be.

Needs pyarrow and numpy, which are imported when they are used.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.log.bulk import libraries
from rumormill.wire import topic_cipher
from rumormill.wire.envelope import (
    MAGIC,
    MAX_CONTENT_TYPE,
    MAX_CREATED,
    MAX_HEAD,
    MAX_HEADERS,
    MAX_KEY,
    MAX_NAME,
    MAX_VALUE,
    Envelope,
    decode_envelope,
)

CONTENT_TYPE: Final = b"content-type"
"""The header that stands for an event's content type, as in CloudEvents' binding for Kafka."""

_KEY, _TYPE, _CREATED, _HEADER, _DATA = 0x0A, 0x12, 0x18, 0x22, 0x2A
_NAME, _VALUE = 0x0A, 0x12
"""Tags of fields: in an envelope, and in a header of it."""

_MAX_HEADER: Final = MAX_NAME + MAX_VALUE + 8
_PADDING: Final = 16
_MILLISECONDS: Final = 1000.0


class Opened(msgspec.Struct):
    """Columns of a range. Keys and headers are null where there are none, and `payload`, what
    travelled, where it is the value itself. `created` are milliseconds, 0 if nothing is known.
    """

    value: Any
    key: Any
    headers: Any
    payload: Any
    created: Any = None


def header_type() -> Any:
    """Headers as Kafka's: names and bytes."""
    arrow, _ = libraries()
    fields = [("key", arrow.string()), ("value", arrow.binary())]
    header = arrow.struct([arrow.field(*each, nullable=False) for each in fields])
    return arrow.list_(arrow.field("element", header, nullable=False))


def is_encrypted(data: Any) -> Any:
    """Which payloads are encrypted."""
    from pyarrow import compute  # noqa: PLC0415

    return compute.starts_with(data, topic_cipher.MAGIC)


def opened(data: Any) -> Opened:
    """Open the payloads of rows."""
    arrow, numpy = libraries()
    from pyarrow import compute  # noqa: PLC0415

    binary, count = arrow.binary(), len(data)
    none, no_headers = arrow.nulls(count, binary), arrow.nulls(count, header_type())
    if not compute.starts_with(data, topic_cipher.MARK).true_count:
        return Opened(data, none, no_headers, none)
    encrypted, enveloped = is_encrypted(data), compute.starts_with(data, MAGIC)
    found = Opened(compute.if_else(encrypted, b"", data), none, no_headers, none)
    if enveloped.true_count:
        within = data.filter(enveloped)
        heads = _read_at_once(within) or _read_one_by_one(within)
        mask = enveloped.to_numpy(zero_copy_only=False)
        places = arrow.array(numpy.cumsum(mask) - 1, mask=~mask)
        found.value = compute.replace_with_mask(found.value, enveloped, heads.value)
        found.key, found.headers = heads.key.take(places), heads.headers.take(places)
        found.created = numpy.zeros(count, "<i8")
        found.created[mask] = heads.created
    same = compute.equal(found.value, data)
    found.payload = compute.if_else(same, arrow.scalar(None, binary), data)
    return found


def known_times(seconds: Any, found: Opened | None) -> Any:
    """The authors' clocks in seconds: the protocol's, or else the envelope's; NaN for none."""
    _, numpy = libraries()
    if found is None or found.created is None:
        return seconds
    own = numpy.where(found.created > 0, found.created / _MILLISECONDS, numpy.nan)
    return own if seconds is None else numpy.where(numpy.isnan(seconds), own, seconds)


def _read_one_by_one(data: Any) -> Opened:
    arrow, numpy = libraries()
    found = [_read(each) for each in data.to_pylist()]
    headers = [list(_headers(each)) or None for each in found]
    return Opened(
        arrow.array([each.data for each in found], arrow.binary()),
        arrow.array([each.key for each in found], arrow.binary()),
        arrow.array(headers, header_type()),
        None,
        numpy.array([each.created for each in found], "<i8"),
    )


def _read(data: bytes) -> Envelope:
    try:
        return decode_envelope(data)
    except DecodeError:
        return Envelope(None, "", 0, {}, data)


def _headers(found: Envelope) -> Iterator[tuple[str, bytes]]:
    if found.content_type:
        yield CONTENT_TYPE.decode(), found.content_type.encode()
    for name, value in found.headers.items():
        yield name, value.encode()


class _Cursors:
    """A place in each of many rows of bytes, which are read in step; `good` is false when a row is
    not what we write."""

    def __init__(self, octets: Any, starts: Any, ends: Any) -> None:
        _, self._numpy = libraries()
        self._octets = octets
        self.at, self.ends = starts, ends
        self.good = True

    def number(self, tag: int, most: int) -> tuple[Any, Any]:
        """Read a number where this tag stands; the numbers, and where they were."""
        here = (self.at < self.ends) & (self._octets[self.at] == tag)
        numbers, behind = self._varints(self.at + 1, here)
        self.at = self._numpy.where(here, behind, self.at)
        self.good &= bool(((numbers <= most) & (self.at <= self.ends)).all())
        return numbers, here

    def span(self, tag: int, most: int) -> tuple[Any, Any, Any]:
        """Read bytes where this tag stands: their beginnings and ends, and where they were."""
        lengths, here = self.number(tag, most)
        begin, self.at = self.at, self.at + lengths
        self.good &= bool((self.at <= self.ends).all())
        self.at = self._numpy.minimum(self.at, self.ends)
        return begin, self.at, here

    def _varints(self, at: Any, going: Any) -> tuple[Any, Any]:
        numbers = self._numpy.zeros(len(at), "<i8")
        for shift in range(0, 56, 7):
            octets = self._octets[at].astype("<i8")
            numbers |= self._numpy.where(going, (octets & 127) << shift, 0)
            at = at + going
            going = going & (octets >= 128)
        self.good &= not bool(going.any())
        return numbers, at


def _read_at_once(data: Any) -> Opened | None:
    """Envelopes with their fields in order, each once; None if one is not so."""
    arrow, numpy = libraries()
    _, bounds, content = data.buffers()
    ends = numpy.frombuffer(bounds, "<i4")[data.offset : data.offset + len(data) + 1].astype("<i8")
    blob = content.to_pybytes() + CONTENT_TYPE + bytes(_PADDING)
    octets = numpy.frombuffer(blob, "u1")
    cursors = _Cursors(octets, ends[:-1] + len(MAGIC), ends[1:])
    key = cursors.span(_KEY, MAX_KEY)
    content_type = cursors.span(_TYPE, MAX_CONTENT_TYPE)
    created, _ = cursors.number(_CREATED, MAX_CREATED)
    spans = [_of_rows(content_type[2] & (content_type[1] > content_type[0]), *content_type[:2])]
    for _ in range(MAX_HEADERS):
        begin, end, here = cursors.span(_HEADER, _MAX_HEADER)
        if not here.any():
            break
        spans.append(_of_rows(here, begin, end))
    begin, end, here = cursors.span(_DATA, len(blob))
    whole = here.all() and (end == ends[1:]).all()
    if not cursors.good or not whole or (begin - ends[:-1] > len(MAGIC) + MAX_HEAD).any():
        return None
    headers = _read_headers(octets, blob, spans, len(data))
    if headers is None:
        return None
    keys = zip(key[0].tolist(), key[1].tolist(), key[2].tolist(), strict=True)
    values = zip(begin.tolist(), end.tolist(), strict=True)
    return Opened(
        arrow.array([blob[begin:end] for begin, end in values], arrow.binary()),
        arrow.array([blob[begin:end] if is_there else None for begin, end, is_there in keys],
                    arrow.binary()),
        headers, None, created,
    )  # fmt: skip


def _of_rows(here: Any, begin: Any, end: Any) -> tuple[Any, Any, Any]:
    _, numpy = libraries()
    rows = numpy.flatnonzero(here)
    return rows, begin[rows], end[rows]


def _read_headers(octets: Any, blob: bytes, spans: list[Any], count: int) -> Any:
    """Content types and headers as one column; None if a header is not as we write it."""
    arrow, numpy = libraries()
    of_types = spans[0]
    rows, begin, end = (numpy.concatenate([each[place] for each in spans]) for place in range(3))
    if not len(rows):
        return arrow.nulls(count, header_type())
    typed = len(of_types[0])
    cursors = _Cursors(octets, begin[typed:], end[typed:])
    name, value = cursors.span(_NAME, MAX_NAME), cursors.span(_VALUE, MAX_VALUE)
    whole = (cursors.at == cursors.ends).all() and (name[1] > name[0]).all()
    if not cursors.good or not whole:
        return None
    order = numpy.argsort(rows, kind="stable")
    type_begin = numpy.full(typed, len(blob) - _PADDING - len(CONTENT_TYPE))
    names = _slices(blob, type_begin, type_begin + len(CONTENT_TYPE), name, order)
    values = _slices(blob, of_types[1], of_types[2], value, order)
    try:
        texts = names.cast(arrow.string())
        values.cast(arrow.string())
    except arrow.ArrowInvalid:
        return None  # not UTF-8
    codes = texts.dictionary_encode().indices.to_numpy()[numpy.argsort(order)][typed:]
    if len(numpy.unique(rows[typed:] * (int(codes.max(initial=0)) + 1) + codes)) < len(codes):
        return None  # a name twice
    held = numpy.bincount(rows, minlength=count)
    ends = numpy.concatenate(([0], numpy.cumsum(held))).astype("<i4")
    kind = header_type()
    pairs = arrow.StructArray.from_arrays([texts, values], fields=list(kind.value_type))
    found = arrow.ListArray.from_arrays(arrow.array(ends), pairs, type=kind)
    present = arrow.array(numpy.arange(count), mask=held == 0)
    return found.take(present)


def _slices(blob: bytes, begin: Any, end: Any, more: Any, order: Any) -> Any:
    """Pieces of a blob, and more of them, in an order."""
    arrow, numpy = libraries()
    begins = numpy.concatenate((begin, more[0]))[order].tolist()
    ends = numpy.concatenate((end, more[1]))[order].tolist()
    pieces = [blob[begin:end] for begin, end in zip(begins, ends, strict=True)]
    return arrow.array(pieces, arrow.binary())
