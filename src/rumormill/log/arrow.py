"""Ranges of a topic as Arrow record batches, every row of them verified.

Rows come from the database, proven by their chain (`bulk`), or from a sealed segment, proven by its
digests and by the hashes that the log has at both its ends (`segments`). Here they get the names
and types that readers see, and their payloads are opened (`payloads`).

Needs pyarrow and numpy, which are imported when they are used.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from rumormill.core.errors import ConfigError
from rumormill.log import bulk
from rumormill.log.bulk import Columns, libraries
from rumormill.log.errors import OffsetAheadError
from rumormill.log.event_log import EventLog
from rumormill.log.payloads import header_type, is_encrypted, known_times, opened
from rumormill.log.rows import HASH_BYTES
from rumormill.log.segments import SegmentBuilder, part
from rumormill.wire import base58
from rumormill.wire.topic_cipher import key_id_of

BATCH_ROWS: Final = 8192
"""Our choice: larger batches gain nothing, smaller ones cost a query each."""

BATCH_BYTES: Final = 8 << 20
"""What a batch may hold at most, unless a single event is larger: two of it wait per stream."""

_FIELDS: Final = {
    "key": ("data",),
    "value": ("data",),
    "topic": (),
    "partition": (),
    "offset": (),
    "timestamp": ("received",),
    "timestampType": (),
    "headers": ("data",),
    "id": ("id",),
    "author": ("author",),
    "publisher": ("author",),
    "created": ("created", "data"),
    "parents": ("parents",),
    "metadata": ("protocol", "hashes", "data"),
    "proof": ("proof",),
    "payload": ("data",),
}
"""For each column the fields of the log that it is made of."""

COLUMNS: Final = tuple(_FIELDS)
"""Every column that can be asked for. The first eight are Kafka's: a topic has one partition, and
its times are those of our log. `publisher` is the readable form of `author`; `metadata` has the
shape of headers: the protocol, the row's hash as `chain`, and of an encrypted payload the id of its
key as `encrypted`; `payload` is what travelled, which a proof is over, where it is not `value`."""

ON_DEMAND: Final = ("headers", "metadata", "proof", "payload")
"""Columns that are read only where they are named."""

TABLE: Final = tuple([name for name in COLUMNS if name not in ON_DEMAND])
"""The columns of a table unless others are asked for."""

_NULLABLE: Final = ("key", "headers", "created", "payload")
_LOG_APPEND_TIME: Final = 1
"""Kafka's number for times that are those of the log."""

_BINARY_BUFFERS: Final = 3
_MICROSECONDS: Final = 1_000_000
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
"""The years 1 to 9999: an author's clock outside them is no time, and becomes null."""

_LONGEST_PEER_ID: Final = 64
"""Longer authors are none, and base58 takes the square of the length."""


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Refuse a column that there is not."""
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(f"there is no column {name!r}: choose of {', '.join(COLUMNS)}")
    return tuple(names)


def event_schema(columns: Sequence[str]) -> Any:
    """The Arrow schema of these columns."""
    arrow, _ = libraries()
    text, time = arrow.string(), arrow.timestamp("us", tz="UTC")
    kinds = {
        "topic": text,
        "partition": arrow.int32(),
        "offset": arrow.int64(),
        "timestamp": time,
        "timestampType": arrow.int32(),
        "headers": header_type(),
        "publisher": text,
        "created": time,
        "parents": bulk.parents_type(),
        "metadata": header_type(),
    }
    return arrow.schema(
        [
            arrow.field(name, kinds.get(name, arrow.binary()), nullable=name in _NULLABLE)
            for name in check_columns(columns)
        ]
    )


def read_batches(
    log: EventLog,
    topic: str,
    start: int,
    stop: int,
    columns: Sequence[str] = TABLE,
    *,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Any]:
    """Exactly the events `start` to `stop - 1` of a topic, as verified record batches.

    Between batches nothing is held open. What retention deletes meanwhile, what is damaged and what
    is not there yet raises the store's own error with its range: a range never ends early.
    """
    schema = event_schema(columns)
    fields = tuple(dict.fromkeys(field for name in columns for field in _FIELDS[name]))
    position = start
    read = partial(bulk.read_columns, batch_bytes=batch_bytes, guesses=bulk.Guesses())
    segments = log.segments
    gathering = None if segments is None else SegmentBuilder(segments, log, topic, stop)
    tried = -1
    while position < stop:
        limit = min(batch_rows, stop - position)
        sealed: Columns | None = None
        if segments is not None:
            number, place = divmod(position, segments.rows)
            limit = min(limit, segments.rows - place)
            if number != tried:
                tried = number
                sealed = segments.columns(log, topic, position, stop, fields)
        if sealed is not None:
            for begin, end in _cuts(sealed, batch_rows, batch_bytes):
                yield _record_batch(schema, topic, part(sealed, begin, end))
            position += sealed.count
            continue
        found: Columns | None = log.within(topic, position, limit, read)
        if found is None:
            raise OffsetAheadError(topic, stop - 1, position)
        if found.count == 0:
            # Not proven: the careful reader says what is wrong, or that somebody was faster.
            log.rows(topic, position, limit, batch_bytes)
            continue
        yield _record_batch(schema, topic, found)
        if gathering is not None:
            gathering.add(found)
        position += found.count


def _cuts(found: Columns, batch_rows: int, batch_bytes: int) -> Iterator[tuple[int, int]]:
    """Where to cut columns so that no batch is too long or, unless it is one event, too large."""
    _, numpy = libraries()
    ends = numpy.zeros(found.count + 1, dtype="<i8")
    for values in (found.data, found.proof, found.parents):
        if values is not None and not isinstance(values, bytes):
            ends += _ends(values)
    begin = 0
    while begin < found.count:
        fits = int(numpy.searchsorted(ends, ends[begin] + batch_bytes, "right")) - 1
        end = max(begin + 1, min(fits, begin + batch_rows, found.count))
        yield begin, end
        begin = end


def _ends(values: Any) -> Any:
    """Where each row's bytes begin, and where the last ones end, in a column's own buffer."""
    _, numpy = libraries()
    buffers = values.buffers()
    ends = numpy.frombuffer(buffers[1], "<i4")[values.offset : values.offset + len(values) + 1]
    return ends if len(buffers) == _BINARY_BUFFERS else numpy.frombuffer(buffers[3], "<i4")[ends]


def _record_batch(schema: Any, topic: str, found: Columns) -> Any:
    arrow, numpy = libraries()
    count = found.count
    data = None if found.data is None else opened(found.data)
    makers: dict[str, Callable[[Any], Any]] = {
        "topic": lambda _: bulk.repeated(topic, count),
        "partition": lambda kind: arrow.repeat(arrow.scalar(0, kind), count),
        "offset": lambda _: arrow.array(numpy.arange(found.start, found.start + count)),
        "timestamp": lambda kind: _times(found.received, count, kind),
        "timestampType": lambda kind: arrow.repeat(arrow.scalar(_LOG_APPEND_TIME, kind), count),
        "id": lambda _: found.id,
        "author": lambda _: bulk.repeated(found.author, count),
        "publisher": lambda _: _publishers(found.author, count),
        "created": lambda kind: _times(known_times(found.created, data), count, kind),
        "parents": lambda _: bulk.listed_parents(found.parents, count),
        "metadata": lambda kind: _metadata(found, kind),
        "proof": lambda _: found.proof,
    }
    arrays = [
        makers[field.name](field.type) if field.name in makers else getattr(data, field.name)
        for field in schema
    ]
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _times(seconds: Any, count: int, kind: Any) -> Any:
    """Seconds as microseconds; what is outside of the calendar is null, as what is not known."""
    arrow, numpy = libraries()
    if seconds is None:
        return arrow.nulls(count, kind)
    with numpy.errstate(invalid="ignore"):
        outside = ~((seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND))
        whole = numpy.rint(numpy.where(outside, 0.0, seconds) * _MICROSECONDS).astype("<i8")
    return arrow.array(whole, mask=outside if outside.any() else None).cast(kind)


def _publishers(authors: Any, count: int) -> Any:
    """Peer ids as people read them; there are few of them in a batch."""
    arrow, _ = libraries()
    if isinstance(authors, bytes):
        return bulk.repeated(_readable(authors), count)
    coded = authors.dictionary_encode()
    if len(coded.dictionary) > count:
        coded = coded.dictionary_decode().dictionary_encode()
    names = [_readable(each) for each in coded.dictionary.to_pylist()]
    return arrow.array(names, arrow.string()).take(coded.indices)


@lru_cache(maxsize=4096)
def _readable(author: bytes) -> str:
    return base58.encode(author) if len(author) <= _LONGEST_PEER_ID else author.hex()


def _metadata(found: Columns, kind: Any) -> Any:
    arrow, numpy = libraries()
    protocol = bulk.repeated(found.protocol, found.count)
    encrypted = is_encrypted(found.data)
    names: list[str] = []
    values: list[bytes] = []
    rows = zip(protocol.to_pylist(), encrypted.to_pylist(), strict=True)
    for number, (name, hidden) in enumerate(rows):
        place = number * HASH_BYTES
        names += ("protocol", "chain")
        values += (name.encode(), found.hashes[place : place + HASH_BYTES])
        if hidden:
            names.append("encrypted")
            values.append(key_id_of(found.data[number].as_py()).encode())
    pairs = arrow.StructArray.from_arrays(
        [arrow.array(names, arrow.string()), arrow.array(values, arrow.binary())],
        fields=list(kind.value_type),
    )
    ends = numpy.arange(0, 2 * found.count + 1, 2, dtype="<i4")
    ends[1:] += numpy.cumsum(encrypted.to_numpy(zero_copy_only=False), dtype="<i4")
    return arrow.ListArray.from_arrays(arrow.array(ends), pairs, type=kind)
