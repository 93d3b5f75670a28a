"""Traces as Parquet: one flat row per event, made for Spark and other table engines.

The rule: columns have libp2p's names and mean the same for every kind; what a kind does not have
is null. Four names need a word: `event` is the kind's name beside its number `type`; `timestamp`
is in nanoseconds as a plain 64-bit integer, because Spark reads no nanosecond time stamps;
`remotePeer` is the other peer of the event (`receivedFrom`, `sendTo` or the payload's `peerID`);
`ihave` to `idontwant` are null if an RPC had no control part, and empty lists if it had an empty
one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rumormill.core import trace
from rumormill.trace.entries import Batch, Entry, TraceError, to_nanoseconds, to_seconds
from rumormill.trace.envelope import PAYLOAD_TYPES, TYPE_NAMES
from rumormill.trace.files import TraceWriter
from rumormill.trace.shapes import SHAPES, FieldShape

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise TraceError(
        "Parquet needs pyarrow, which is not installed: pip install 'rumormill[arrow]'"
    ) from error

ROW_GROUP = 65_536
"""Rows that are collected before they are written: our choice, some tens of megabytes."""

_READ_ROWS = 4096
_REMOTE_PEER = ("received_from", "send_to", "peer")
_EVENT_NAMES = {number: name for name, number in reversed(TYPE_NAMES.items())}
_ARROW_TYPES: dict[Any, Any] = {
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


def _column(field: FieldShape) -> str:
    return "remotePeer" if field.attribute in _REMOTE_PEER else field.name


def _columns() -> dict[str, Any]:
    """Collect the columns: the envelope's, then the payloads', with RPCs laid out flat."""
    columns = {
        "type": pa.int32(),
        "event": pa.string(),
        "peerID": pa.binary(),
        "timestamp": pa.int64(),
    }
    for payload in trace.TRACE_PAYLOADS:
        for field in SHAPES[payload]:
            if field.holds is not trace.RpcMeta:
                columns[_column(field)] = _arrow_type(field)
    for field in SHAPES[trace.RpcMeta]:
        inner = SHAPES[trace.ControlMeta] if field.holds is trace.ControlMeta else (field,)
        columns.update((one.name, _arrow_type(one)) for one in inner)
    return columns


SCHEMA = pa.schema(list(_columns().items()))


def _plain(value: Any) -> Any:
    """Turn structs inside a list into tuples, which Arrow takes as rows of a struct."""
    if type(value) is tuple and value and isinstance(value[0], msgspec.Struct):
        return [msgspec.structs.astuple(item) for item in value]
    return value


def row_of(entry: Entry) -> dict[str, Any]:
    """An entry by the columns of `SCHEMA`; what it does not have is left out."""
    now, peer, payload = entry
    row: dict[str, Any] = {
        "type": payload.kind,
        "event": _EVENT_NAMES[payload.kind],
        "peerID": peer,
        "timestamp": to_nanoseconds(now),
    }
    for field in SHAPES[type(payload)]:
        value = getattr(payload, field.attribute)
        if field.holds is trace.RpcMeta:
            _add_rpc(row, value)
        else:
            row[_column(field)] = value
    return row


def _add_rpc(row: dict[str, Any], meta: trace.RpcMeta) -> None:
    for field in SHAPES[trace.RpcMeta]:
        value = getattr(meta, field.attribute)
        if field.holds is not trace.ControlMeta:
            row[field.name] = _plain(value)
        elif value is not None:
            for inner in SHAPES[trace.ControlMeta]:
                row[inner.name] = _plain(getattr(value, inner.attribute))


class ParquetWriter(TraceWriter):
    """Writes a Parquet file, one row group per `ROW_GROUP` events."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._rows: list[dict[str, Any]] = []
        self._table = pq.ParquetWriter(self._file.stream, SCHEMA, compression="zstd")

    def observe(self, batch: Batch) -> None:
        """Write the next entries."""
        self._rows += map(row_of, batch)
        if len(self._rows) >= ROW_GROUP:
            self._write_rows()

    def close(self) -> None:
        """Write what is left and complete the file."""
        if not self._file.stream.closed:
            self._write_rows()
            self._checked(self._table.close)
        super().close()

    def abort(self) -> None:
        """Remove the incomplete file."""
        if not self._file.stream.closed:
            self._checked(self._table.close)
        super().abort()

    def _write_rows(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
            self._checked(lambda: self._table.write_table(table, row_group_size=ROW_GROUP))

    def _checked(self, action: Any) -> None:
        try:
            action()
        except OSError as error:
            raise TraceError(f"cannot write {self._file.path}: {error}") from error


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
            values[field.name] = row[_column(field)]
    payload = msgspec.convert(values, kind)
    return to_seconds(row["timestamp"]), row["peerID"], payload


def _present(row: dict[str, Any], struct: Any) -> dict[str, Any]:
    names = (field.name for field in SHAPES[struct])
    return {name: row[name] for name in names if row.get(name) is not None}
