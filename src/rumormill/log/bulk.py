"""A range of rows as columns, proven in bulk.

The rule is the reader's: nothing leaves that is not proven. A row's hash covers the hash of the row
before it, so a range is proven by following the chain: from the hash that its first row links to,
hash after hash is computed from the content that is about to be served, and the last one must be
the hash that the database has for the last row. That needs neither the links nor the hashes of the
rows between, and the content is assembled in columns, which is where the time goes. Whatever does
not come out right is read again row by row, by the reader that finds out what is wrong and where.

Needs pyarrow and numpy, which are imported when they are used.
"""

import sqlite3
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

import msgspec

from rumormill.log.errors import import_extra
from rumormill.log.reader import read_rows
from rumormill.log.rows import HASH_BYTES, UNKNOWN_HASH, TopicRow, unpack_parents

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
    """The verified content of a range, each field as an Arrow array or, if all are equal, alone.

    Times are numpy arrays of seconds; in `created` NaN stands for an author without a clock, and
    None for nothing but such. A segment has authors in a dictionary. `parents` are packed as in the
    database, or an Arrow list. `prev` is the hash that the first row links to; `hashes` are those
    of all rows, one behind the other.
    """

    start: int
    count: int
    received: Any = None
    created: Any = None
    id: Any = None
    author: Any = b""
    data: Any = None
    parents: Any = b""
    protocol: Any = ""
    proof: Any = None
    prev: bytes = UNKNOWN_HASH
    hashes: bytes = b""

    def size(self) -> int:
        """About how many bytes the rows have."""
        fields = (self.id, self.author, self.data, self.parents, self.protocol, self.proof)
        return sum(each.nbytes for each in fields if not isinstance(each, bytes | str | None))


def read_columns(
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
    # What can be proven row by row, up to the first damage: nothing, if that is at `start`.
    rows, _ = read_rows(db, topic, start, stop, max_bytes=batch_bytes, prev=prev)
    fields = list(zip(*rows, strict=True)) or [()] * 12
    names = ("id", "author", "data", "parents", "created", "received", "protocol", "proof")
    found = _columns(start, dict(zip(names, fields[2:10], strict=True)))
    if rows:
        found.prev, found.hashes = rows[0][10], b"".join(fields[11])
    return found


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
    if created is not None:
        # None becomes NaN, which is no time that an event can have.
        created = None if created.count(None) == len(created) else numpy.array(created, "<f8")
    return Columns(
        start,
        len(fields["id"]),
        numpy.array(fields["received"], dtype="<f8"),
        created,
        column("id", arrow.binary()),
        column("author", arrow.binary()),
        column("data", arrow.binary()),
        column("parents", arrow.binary()),
        column("protocol", arrow.string()),
        column("proof", arrow.binary()),
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
    hashes = [
        head := blake2b(head + content[begin:end], digest_size=HASH_BYTES).digest()
        for begin, end in pairwise(ends)
    ]
    found.prev, found.hashes = first_prev, b"".join(hashes)
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
        has_created = ~numpy.isnan(found.created)
        heads["has_created"] = has_created
        heads["created"] = numpy.where(has_created, found.created, 0.0)
    heads["received"] = found.received
    protocol = found.protocol
    protocol = protocol.encode() if isinstance(protocol, str) else protocol.cast(arrow.binary())
    pieces = (topic, found.id, found.author, found.data, found.parents, protocol, found.proof)
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


def joined(pieces: list[Columns]) -> Columns:
    """Pieces of a range, one behind the other, as one, with lists of parents."""
    arrow, numpy = libraries()
    count = sum(piece.count for piece in pieces)
    whole = Columns(pieces[0].start, count, prev=pieces[0].prev)
    whole.hashes = b"".join(piece.hashes for piece in pieces)
    whole.received = numpy.concatenate([piece.received for piece in pieces])
    if any(piece.created is not None for piece in pieces):
        nothing = [
            numpy.full(piece.count, numpy.nan) if piece.created is None else piece.created
            for piece in pieces
        ]
        whole.created = numpy.concatenate(nothing)
    for name in ("id", "author", "data", "parents", "protocol", "proof"):
        values = [getattr(piece, name) for piece in pieces]
        one = values[0]
        if all(isinstance(each, bytes | str) and each == one for each in values):
            setattr(whole, name, one)
            continue
        make = listed_parents if name == "parents" else repeated
        arrays = [make(each, piece.count) for each, piece in zip(values, pieces, strict=True)]
        setattr(whole, name, arrow.concat_arrays(arrays))
    return whole


def repeated(values: Any, count: int) -> Any:
    """A column, also of one value for all rows."""
    arrow, _ = libraries()
    if isinstance(values, bytes):
        return arrow.repeat(arrow.scalar(values, arrow.binary()), count)
    if isinstance(values, str):
        return arrow.repeat(arrow.scalar(values, arrow.string()), count)
    if isinstance(values, arrow.DictionaryArray):
        return values.dictionary_decode()
    return values


@cache
def parents_type() -> Any:
    """A row's parents in Arrow."""
    arrow, _ = libraries()
    return arrow.list_(arrow.field("element", arrow.binary(), nullable=False))


def listed_parents(parents: Any, count: int) -> Any:
    """A column of lists of parents, of packed ones, also of the same for all rows."""
    arrow, numpy = libraries()
    if parents == b"":
        offsets = arrow.array(numpy.zeros(count + 1, dtype="<i4"))
        return arrow.ListArray.from_arrays(
            offsets, arrow.array([], arrow.binary()), type=parents_type()
        )
    if isinstance(parents, bytes):
        return arrow.array([unpack_parents(parents)] * count, parents_type())
    if parents.type == parents_type():
        return parents
    return arrow.array([unpack_parents(each) for each in parents.to_pylist()], parents_type())


@cache
def libraries() -> tuple[Any, ...]:
    """Arrow and numpy, or one sentence about how to get them."""
    sentence = "Arrow batches need pyarrow and numpy: run pip install rumormill[arrow]"
    return import_extra(sentence, "pyarrow", "numpy")
