"""Traces as Parquet, and as Arrow columns: a flat row per entry, made for Spark and its like.

The rule: columns have libp2p's names and mean the same for every kind; what a kind does not have
is null. Four names need a word: `event` is the kind's name beside its number `type`; `timestamp`
is in nanoseconds as a plain 64-bit integer, because Spark reads no nanosecond time stamps;
`remotePeer` is the other peer of the event (`receivedFrom`, `sendTo` or the payload's `peerID`);
`ihave` to `idontwant` are null if an RPC had no control part, and empty lists if it had an empty
one.

Entries of one kind have the same fields, so each kind becomes columns by itself, and the kinds are
put back in order by Arrow. What many peers send and receive is one object in a simulation: the
columns of an RPC are made once for each object.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from rumormill.core import trace
from rumormill.trace.entries import Batch, Entry, TraceError, to_nanoseconds, to_seconds, writing
from rumormill.trace.ndjson import PAYLOAD_TYPES, TYPE_NAMES
from rumormill.trace.shapes import COLUMNS, SHAPES, FieldShape, column_of
from rumormill.trace.writers import TraceWriter

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import compute as pc
except ModuleNotFoundError as error:
    raise TraceError(
        "Parquet needs pyarrow, which is not installed: pip install 'rumormill[arrow]'"
    ) from error

ROW_GROUP = 65_536
"""Rows that are collected before they are written: our choice, some tens of megabytes."""

_READ_ROWS = 4096

_EVENT_NAMES: Final = {number: name for name, number in reversed(TYPE_NAMES.items())}
_ARROW_TYPES: Final[dict[Any, Any]] = {
    bytes: pa.binary(),
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
}


def _arrow_type(field: FieldShape) -> Any:
    if field.nested:
        inner = [(inside.name, _arrow_type(inside)) for inside in SHAPES[field.holds]]
        kind = pa.struct(inner)
    else:
        kind = _ARROW_TYPES[field.holds]
    return pa.list_(kind) if field.repeated else kind


_ENVELOPE: Final = {
    "type": pa.int32(),
    "event": pa.string(),
    "peerID": pa.binary(),
    "timestamp": pa.int64(),
}
_PAYLOADS: Final = {name: _arrow_type(field) for name, field in COLUMNS.items()}
SCHEMA: Final = pa.schema(list((_ENVELOPE | _PAYLOADS).items()))


def table_of(entries: Sequence[Entry]) -> Any:
    """Entries as a table with the columns of `SCHEMA`, in their order."""
    kinds: dict[Any, list[int]] = {}
    for number, entry in enumerate(entries):
        kinds.setdefault(type(entry[2]), []).append(number)
    if not kinds:
        return SCHEMA.empty_table()
    tables = [_of_one_kind([entries[row] for row in rows]) for rows in kinds.values()]
    if len(tables) == 1:
        return tables[0]
    rows = pa.array(chain.from_iterable(kinds.values()), pa.int64())
    return pa.concat_tables(tables).combine_chunks().take(pc.sort_indices(rows))


def _of_one_kind(entries: Sequence[Entry]) -> Any:
    payloads = [entry[2] for entry in entries]
    number = payloads[0].kind
    columns: dict[str, Any] = {
        "type": pa.repeat(pa.scalar(number, pa.int32()), len(entries)),
        "event": pa.repeat(_EVENT_NAMES[number], len(entries)),
        "peerID": pa.array(map(itemgetter(1), entries), pa.binary()),
        "timestamp": pa.array([to_nanoseconds(entry[0]) for entry in entries], pa.int64()),
    }
    for field in SHAPES[type(payloads[0])]:
        values = list(map(attrgetter(field.attribute), payloads))
        if field.holds is trace.RpcMeta:
            columns |= _of_rpcs(values)
        else:
            columns[column_of(field)] = _array(values, field)
    return pa.Table.from_arrays(
        [
            columns[each.name] if each.name in columns else pa.nulls(len(entries), each.type)
            for each in SCHEMA
        ],
        schema=SCHEMA,
    )


def _of_rpcs(metas: Sequence[trace.RpcMeta]) -> dict[str, Any]:
    """The columns of RPCs; of an object that is there several times they are made once."""
    unique = {id(meta): meta for meta in metas}
    places = {key: place for place, key in enumerate(unique)}
    found: dict[str, Any] = {}
    for field in SHAPES[trace.RpcMeta]:
        values = [getattr(meta, field.attribute) for meta in unique.values()]
        if field.holds is not trace.ControlMeta:
            found[field.name] = _array(values, field)
            continue
        for inner in SHAPES[trace.ControlMeta]:
            parts = [None if each is None else getattr(each, inner.attribute) for each in values]
            found[inner.name] = _array(parts, inner)
    if len(unique) == len(metas):
        return found
    taken = pa.array([places[id(meta)] for meta in metas], pa.int64())
    return {name: column.take(taken) for name, column in found.items()}


def _array(values: Sequence[Any], field: FieldShape) -> Any:
    """One field's values; lists of structs are taken apart, which is quicker than row by row."""
    if not (field.nested and field.repeated):
        return pa.array(values, _arrow_type(field))
    present = [() if each is None else each for each in values]
    offsets = pa.array(accumulate(map(len, present), initial=0), pa.int32())
    items = list(chain.from_iterable(present))
    inside = SHAPES[field.holds]
    structs = pa.StructArray.from_arrays(
        [_array([getattr(item, each.attribute) for item in items], each) for each in inside],
        [each.name for each in inside],
    )
    missing = pa.array([each is None for each in values], pa.bool_())
    return pa.ListArray.from_arrays(offsets, structs, mask=missing)


class ParquetWriter(TraceWriter):
    """Writes a Parquet file, one row group per `ROW_GROUP` events."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._rows: list[Entry] = []
        self._packer = pq.ParquetWriter(self._stream, SCHEMA, compression="zstd")

    def observe(self, batch: Batch) -> None:
        """Write the next entries."""
        self._rows += batch
        if len(self._rows) >= ROW_GROUP:
            self._write_rest()

    def _write_rest(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            table = table_of(rows)
            with writing(self.path):
                self._packer.write_table(table, row_group_size=ROW_GROUP)


def read_parquet(path: Path) -> Iterator[Entry]:
    """Read the entries of a Parquet trace, some thousand rows at a time."""
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_READ_ROWS):
                for row in batch.to_pylist():
                    entry = _entry(row)
                    number += 1
                    yield entry
    except (pa.ArrowException, OSError, msgspec.ValidationError, KeyError, TypeError) as error:
        reason = str(error) or type(error).__name__
        raise TraceError(f"{path}, row {number}: {reason}") from error


def _entry(row: dict[str, Any]) -> Entry:
    kind = PAYLOAD_TYPES[row["type"]]
    values = {}
    for field in SHAPES[kind]:
        if field.holds is trace.RpcMeta:
            values[field.name] = _present(row, trace.RpcMeta)
            if row["ihave"] is not None:
                values[field.name]["control"] = _present(row, trace.ControlMeta)
        else:
            values[field.name] = row[column_of(field)]
    payload = msgspec.convert(values, kind)
    return to_seconds(row["timestamp"]), row["peerID"], payload


def _present(row: dict[str, Any], struct: Any) -> dict[str, Any]:
    names = (field.name for field in SHAPES[struct])
    return {name: row[name] for name in names if row.get(name) is not None}
