"""Traces as Parquet: the columns of `trace.columns` in a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rumormill.core import trace
from rumormill.trace.entries import Batch, Entry, TraceError, to_seconds, writing
from rumormill.trace.ndjson import PAYLOAD_TYPES
from rumormill.trace.shapes import SHAPES
from rumormill.trace.writers import TraceWriter

try:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rumormill.trace.columns import SCHEMA, column_of, table_of
except ModuleNotFoundError as error:
    raise TraceError(
        "Parquet needs pyarrow, which is not installed: pip install 'rumormill[arrow]'"
    ) from error

ROW_GROUP = 65_536
"""Rows that are collected before they are written: our choice, some tens of megabytes."""

_READ_ROWS = 4096


class ParquetWriter(TraceWriter):
    """Writes a Parquet file, one row group per `ROW_GROUP` events."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._rows: list[Entry] = []
        self._table = pq.ParquetWriter(self._stream, SCHEMA, compression="zstd")

    def observe(self, batch: Batch) -> None:
        """Write the next entries."""
        self._rows += batch
        if len(self._rows) >= ROW_GROUP:
            self._write_rows()

    def close(self) -> None:
        """Write what is left and complete the file."""
        if not self._stream.closed:
            try:
                self._write_rows()
            except BaseException:
                self.abort()
                raise
            with writing(self.path):
                self._table.close()
        super().close()

    def abort(self) -> None:
        """Remove the incomplete file."""
        if not self._stream.closed:
            with writing(self.path):
                self._table.close()
        super().abort()

    def _write_rows(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            table = table_of(rows)
            with writing(self.path):
                self._table.write_table(table, row_group_size=ROW_GROUP)


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
