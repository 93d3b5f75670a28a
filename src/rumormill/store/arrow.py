"""Ranges of a topic as Arrow record batches, verified in bulk.

The rule is the reader's: nothing leaves that is not proven. A row's hash covers the hash of the row
before it, so a range is proven by following the chain: from the hash that its first row links to,
hash after hash is computed from the content that is about to be served, and the last one must be
the hash that the database has for the last row. That needs neither the links nor the hashes of the
rows between, and the content is assembled in columns, which is where the time goes. Whatever does
not come out right is read again row by row, by the reader that finds out what is wrong and where.

Needs pyarrow and numpy, which are imported when they are used.
"""

from __future__ import annotations

import sqlite3
from functools import cache, partial
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rumormill.core.errors import ConfigError
from rumormill.store.errors import MissingExtraError, OffsetAheadError
from rumormill.store.reader import read_rows
from rumormill.store.rows import HASH_BYTES, UNKNOWN_HASH, unpack_parents
from rumormill.wire import base58

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rumormill.store.log import EventLog
    from rumormill.store.rows import TopicRow

COLUMNS: Final = (
    "topic",
    "offset",
    "id",
    "key",
    "value",
    "created",
    "received",
    "parents",
    "publisher",
    "metadata",
    "proof",
)
"""Every column that can be asked for. `key` is the author's peer id, `publisher` its readable form;
`metadata` has the shape of Kafka's headers: the protocol, and the row's hash as `chain`."""

BATCH_ROWS: Final = 8192
"""Our choice: larger batches gain nothing, smaller ones cost a query each."""

BATCH_BYTES: Final = 8 << 20
"""What a batch may hold at most, unless a single event is larger: two of it wait per stream."""

_MICROSECONDS: Final = 1_000_000
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
"""The years 1 to 9999: an author's clock outside them is no time, and becomes null."""

_LONGEST_PEER_ID: Final = 64
"""Longer authors are none, and base58 takes the square of the length."""

_WHERE: Final = "FROM events WHERE key BETWEEN ? AND ?"
_COUNT: Final = f"SELECT count(*), max(length(data) + length(parents) + length(proof)) {_WHERE}"
_SUM: Final = f"SELECT sum(length(data) + length(parents) + length(proof)) {_WHERE}"
_ENDS: Final = (
    "SELECT prev, hash, author, protocol, parents, created FROM events WHERE key IN (?, ?)"
    " ORDER BY key"
)
_ALWAYS: Final = ("received", "id", "data", "proof")
_GUESSED: Final = ("author", "protocol", "parents", "created")
"""Fields that are often the same in all rows, in the order of `_ENDS`."""


class Guesses(msgspec.Struct):
    """Which fields are worth guessing to be those of the range's ends. A wrong guess breaks the
    chain: it costs a second look, and is not made again."""

    fields: tuple[str, ...] = _GUESSED


class Columns(msgspec.Struct):
    """The verified content of a range, each field as an Arrow array or, if all are equal, alone."""

    start: int
    count: int
    received: Any
    created: Any
    id: Any
    author: Any
    data: Any
    parents: Any
    protocol: Any
    proof: Any
    hashes: list[bytes]


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Refuse a column that there is not."""
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(f"there is no column {name!r}: choose of {', '.join(COLUMNS)}")
    return tuple(names)


def event_schema(columns: Sequence[str]) -> Any:
    """The Arrow schema of these columns."""
    arrow, _ = libraries()
    binary, text, time = arrow.binary(), arrow.string(), arrow.timestamp("us", tz="UTC")
    header = arrow.struct(
        [arrow.field("key", text, nullable=False), arrow.field("value", binary, nullable=False)]
    )
    kinds = {
        "topic": text,
        "offset": arrow.int64(),
        "created": time,
        "received": time,
        "parents": arrow.list_(arrow.field("element", binary, nullable=False)),
        "publisher": text,
        "metadata": arrow.list_(arrow.field("element", header, nullable=False)),
    }
    return arrow.schema(
        [
            arrow.field(name, kinds.get(name, binary), nullable=name == "created")
            for name in check_columns(columns)
        ]
    )


def read_batches(
    log: EventLog,
    topic: str,
    start: int,
    stop: int,
    columns: Sequence[str] = COLUMNS[:9],
    *,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Any]:
    """Exactly the events `start` to `stop - 1` of a topic, as verified record batches.

    Between batches nothing is held open. What retention deletes meanwhile, what is damaged and what
    is not there yet raises the store's own error with its range: a range never ends early.
    """
    schema = event_schema(columns)
    position = start
    read = partial(_read, batch_bytes=batch_bytes, guesses=Guesses())
    while position < stop:
        found: Columns | None = log.within(topic, position, min(batch_rows, stop - position), read)
        if found is None:
            raise OffsetAheadError(topic, stop - 1, position)
        if found.count == 0:
            # Not proven: the careful reader says what is wrong, or that somebody was faster.
            log.rows(topic, position, min(batch_rows, stop - position), batch_bytes)
            continue
        yield _record_batch(schema, topic, found)
        position += found.count


def _read(
    db: sqlite3.Connection,
    topic: TopicRow,
    start: int,
    stop: int,
    *,
    prev: bytes | None = None,
    batch_bytes: int,
    guesses: Guesses,
) -> Columns:
    """Read a range in bulk; where it cannot be proven so, as far as the careful reader gets."""
    try:
        found = _fetch(db, topic, start, stop, prev, batch_bytes, guesses)
    except (sqlite3.Error, TypeError, ValueError, OverflowError):
        found = None  # a flipped type code gives values that fit nowhere
    if found is not None:
        return found
    return _fetch_carefully(db, topic, start, stop, prev, batch_bytes)


def _fetch(
    db: sqlite3.Connection,
    topic: TopicRow,
    start: int,
    stop: int,
    prev: bytes | None,
    batch_bytes: int,
    guesses: Guesses,
) -> Columns | None:
    """The range, or so much of it as `batch_bytes` lets in; None if it is not proven."""
    while True:
        keys = topic.key(start), topic.key(stop - 1)
        count, largest = db.execute(_COUNT, keys).fetchone()
        if count != stop - start:
            return None
        if count == 1 or count * largest <= batch_bytes:
            break
        (size,) = db.execute(_SUM, keys).fetchone()
        if size <= batch_bytes:
            break
        stop = start + max(1, min(count - 1, count * batch_bytes // size))
    ends = db.execute(_ENDS, keys).fetchall()
    first, last = ends[0], ends[-1]
    guessed = {
        name: one
        for name, one, other in zip(_GUESSED, first[2:], last[2:], strict=True)
        if name in guesses.fields and one == other and (name != "created" or one is None)
    }
    read = [name for name in _GUESSED if name not in guessed]
    query = f"SELECT {', '.join((*_ALWAYS, *read))} {_WHERE} ORDER BY key"
    fields = dict(
        zip((*_ALWAYS, *read), zip(*db.execute(query, keys).fetchall(), strict=True), strict=True)
    )
    found = _columns(start, fields | guessed)
    if _is_proven(found, topic, first[0], last[1], prev):
        return found
    if not guessed:
        return None
    guesses.fields = tuple(name for name in guesses.fields if name not in guessed)
    return _fetch(db, topic, start, stop, prev, batch_bytes, guesses)


def _columns(start: int, fields: Mapping[str, Any]) -> Columns:
    """Fields that are tuples become columns; one that is the same in all rows stays as it is."""
    arrow, numpy = libraries()

    def column(name: str, kind: Any) -> Any:
        values = fields[name]
        return arrow.array(values, kind) if isinstance(values, tuple) else values

    created = fields["created"]
    if created is not None and created.count(None) == len(created):
        created = None
    return Columns(
        start,
        len(fields["id"]),
        numpy.array(fields["received"], dtype="<f8"),
        created,
        column("id", arrow.binary()),
        column("author", arrow.binary()),
        column("data", arrow.binary()),
        fields["parents"],
        column("protocol", arrow.string()),
        column("proof", arrow.binary()),
        [],
    )


def _is_proven(
    found: Columns, topic: TopicRow, first_prev: bytes, last_hash: bytes, prev: bytes | None
) -> bool:
    """Follow the chain through the content; fill in the hashes."""
    if prev is None and found.start == topic.first_offset and topic.base_hash != UNKNOWN_HASH:
        prev = topic.base_hash
    if len(first_prev) != HASH_BYTES or (prev is not None and first_prev != prev):
        return False
    messages = _messages(found, topic.name.encode())
    content = messages.buffers()[2].to_pybytes()
    _, numpy = libraries()
    ends = numpy.frombuffer(messages.buffers()[1], "<i4", found.count + 1).tolist()
    head = first_prev
    found.hashes = [
        head := blake2b(head + content[begin:end], digest_size=HASH_BYTES).digest()
        for begin, end in pairwise(ends)
    ]
    at_head = found.start + found.count == topic.next_offset
    return head == last_hash and (not at_head or head == topic.head_hash)


def _messages(found: Columns, topic: bytes) -> Any:
    """For every row what its hash covers, behind the hash of the row before."""
    arrow, numpy = libraries()
    from pyarrow import compute  # noqa: PLC0415

    count = found.count
    heads = numpy.zeros(count, dtype=_head_type())
    heads["offset"] = numpy.arange(found.start, found.start + count)
    if found.created is not None:
        heads["has_created"] = [each is not None for each in found.created]
        heads["created"] = [0.0 if each is None else each for each in found.created]
    heads["received"] = found.received
    protocol, parents = found.protocol, found.parents
    protocol = protocol.encode() if isinstance(protocol, str) else protocol.cast(arrow.binary())
    if not isinstance(parents, bytes):
        parents = arrow.array(parents, arrow.binary())
    pieces = (topic, found.id, found.author, found.data, parents, protocol, found.proof)
    for number, piece in enumerate(pieces):
        is_one = isinstance(piece, bytes)
        heads["lengths"][:, number] = len(piece) if is_one else compute.binary_length(piece)
    fixed = arrow.binary(heads.dtype.itemsize)
    head = arrow.FixedSizeBinaryArray.from_buffers(
        fixed, count, [None, arrow.py_buffer(heads.tobytes())]
    ).cast(arrow.binary())
    scalars = [
        arrow.scalar(piece, arrow.binary()) if isinstance(piece, bytes) else piece
        for piece in pieces
    ]
    nothing = arrow.scalar(b"", arrow.binary())
    return compute.binary_join_element_wise(head, *scalars, nothing)


@cache
def _head_type() -> Any:
    """The fixed part of what a hash covers, as `rows` packs it."""
    _, numpy = libraries()
    return numpy.dtype(
        [
            ("offset", "<u8"),
            ("has_created", "u1"),
            ("created", "<f8"),
            ("received", "<f8"),
            ("lengths", "<u4", 7),
        ]
    )


def _fetch_carefully(
    db: sqlite3.Connection,
    topic: TopicRow,
    start: int,
    stop: int,
    prev: bytes | None,
    batch_bytes: int,
) -> Columns:
    """What can be proven row by row, up to the first damage: nothing, if that is at `start`."""
    rows, _ = read_rows(db, topic, start, stop, max_bytes=batch_bytes, prev=prev)
    fields = list(zip(*rows, strict=True)) or [()] * 12
    names = ("id", "author", "data", "parents", "created", "received", "protocol", "proof")
    found = _columns(start, dict(zip(names, fields[2:10], strict=True)))
    found.hashes = list(fields[11])
    return found


def _record_batch(schema: Any, topic: str, found: Columns) -> Any:
    arrow, _ = libraries()
    arrays = [_column(field, topic, found) for field in schema]
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _column(field: Any, topic: str, found: Columns) -> Any:
    arrow, numpy = libraries()
    match field.name:
        case "topic":
            return _repeated(topic, found.count)
        case "offset":
            return arrow.array(numpy.arange(found.start, found.start + found.count))
        case "id":
            return found.id
        case "key":
            return _repeated(found.author, found.count)
        case "value":
            return found.data
        case "created":
            if found.created is None:
                return arrow.nulls(found.count, field.type)
            times = numpy.array([numpy.nan if each is None else each for each in found.created])
            return _times(times, field.type)
        case "received":
            return _times(found.received, field.type)
        case "parents":
            if found.parents == b"":
                offsets = arrow.array(numpy.zeros(found.count + 1, dtype="<i4"))
                values = arrow.array([], arrow.binary())
                return arrow.ListArray.from_arrays(offsets, values, type=field.type)
            blobs = found.parents
            blobs = [blobs] * found.count if isinstance(blobs, bytes) else blobs
            return arrow.array([unpack_parents(each) for each in blobs], field.type)
        case "publisher":
            return _publishers(found.author, found.count)
        case "metadata":
            return _metadata(found, field.type)
        case _:
            return found.proof


def _times(seconds: Any, kind: Any) -> Any:
    """Seconds as microseconds; what is outside of the calendar is null."""
    arrow, numpy = libraries()
    with numpy.errstate(invalid="ignore"):
        outside = ~((seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND))
        whole = numpy.rint(numpy.where(outside, 0.0, seconds) * _MICROSECONDS).astype("<i8")
    return arrow.array(whole, mask=outside if outside.any() else None).cast(kind)


def _repeated(values: Any, count: int) -> Any:
    """A column, also of one value for all rows."""
    arrow, _ = libraries()
    if isinstance(values, bytes):
        return arrow.repeat(arrow.scalar(values, arrow.binary()), count)
    if isinstance(values, str):
        return arrow.repeat(arrow.scalar(values, arrow.string()), count)
    return values


def _publishers(authors: Any, count: int) -> Any:
    """Peer ids as people read them; there are few of them in a batch."""
    arrow, _ = libraries()
    if isinstance(authors, bytes):
        return _repeated(_readable(authors), count)
    coded = authors.dictionary_encode()
    names = [_readable(each) for each in coded.dictionary.to_pylist()]
    return arrow.array(names, arrow.string()).take(coded.indices)


def _readable(author: bytes) -> str:
    return base58.encode(author) if len(author) <= _LONGEST_PEER_ID else author.hex()


def _metadata(found: Columns, kind: Any) -> Any:
    arrow, numpy = libraries()
    protocol = _repeated(found.protocol, found.count)
    values: list[bytes] = []
    for name, digest in zip(protocol.to_pylist(), found.hashes, strict=True):
        values += (name.encode(), digest)
    keys = arrow.array(["protocol", "chain"] * found.count, arrow.string())
    pairs = arrow.StructArray.from_arrays(
        [keys, arrow.array(values, arrow.binary())], fields=list(kind.value_type)
    )
    offsets = arrow.array(numpy.arange(0, 2 * found.count + 1, 2, dtype="<i4"))
    return arrow.ListArray.from_arrays(offsets, pairs, type=kind)


@cache
def libraries() -> tuple[Any, Any]:
    """Arrow and numpy, or one sentence about how to get them."""
    try:
        import numpy  # noqa: PLC0415
        import pyarrow  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(
            "Arrow batches need pyarrow and numpy: run pip install rumormill[arrow]"
        ) from None
    return pyarrow, numpy
