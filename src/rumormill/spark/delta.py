"""A lake's tables as Delta tables, for engines that read tables rather than directories.

Delta is a log of commits over Parquet files. Each table of a lake becomes one Delta table, with the
part as its one partition: writing a part replaces what the Delta table had of it, in one commit, so
that a reader sees the part as it was before or as it is now. The rule is the lake's, table by
table. The lake itself stays what it is, and nothing of it is needed to read the copy.

Needs the library `deltalake`, which is imported when it is used; neither Spark nor Java.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rumormill.core.errors import LocalError
from rumormill.log.errors import import_extra
from rumormill.spark.lake import Lake
from rumormill.spark.tables import TABLES

PART: Final = "part"
"""The column that says of which part a row is."""

_BATCH_ROWS: Final = 65_536


def delta_library() -> Any:
    """`deltalake`, or one sentence."""
    sentence = "Delta tables need deltalake: install it with `pip install rumormill[delta]`"
    return import_extra(sentence, "deltalake")[0]


def write_delta(lake: Lake, part: str, folder: Path) -> list[str]:
    """Write the tables of a part into the Delta tables below a folder; return their names."""
    delta = delta_library()
    import pyarrow as arrow  # noqa: PLC0415
    from pyarrow import dataset  # noqa: PLC0415

    if part not in lake.parts():
        raise LocalError(f"the lake {lake.path} has no part {part!r}")
    written = []
    for table in TABLES:
        found = [each for each in lake.folders(table) if each.parent.name == part]
        files = [str(file) for each in found for file in sorted(each.glob("*.parquet"))]
        if not files:
            continue
        rows = dataset.dataset(files, format="parquet")
        schema = arrow.schema([*[_field(each) for each in rows.schema], (PART, arrow.string())])
        batches = arrow.RecordBatchReader.from_batches(schema, _batches(rows, schema, part))
        target = folder / table
        replaced = {"predicate": f"{PART} = '{part}'"} if (target / "_delta_log").is_dir() else {}
        try:
            delta.write_deltalake(
                str(target), batches, partition_by=[PART], mode="overwrite", **replaced
            )
        except (delta.exceptions.DeltaError, OSError) as error:
            raise LocalError(f"cannot write the Delta table {target}: {error}") from None
        written.append(table)
    return written


def _field(field: Any) -> Any:
    """Times as Delta has them: in microseconds, of the world's clock."""
    import pyarrow as arrow  # noqa: PLC0415

    kind = arrow.timestamp("us", tz="UTC") if arrow.types.is_timestamp(field.type) else field.type
    return arrow.field(field.name, kind, nullable=True)


def _batches(rows: Any, schema: Any, part: str) -> Iterator[Any]:
    import pyarrow as arrow  # noqa: PLC0415

    for batch in rows.to_batches(batch_size=_BATCH_ROWS):
        columns = [batch.column(name).cast(schema.field(name).type) for name in batch.schema.names]
        named = arrow.repeat(arrow.scalar(part), batch.num_rows)
        yield arrow.RecordBatch.from_arrays([*columns, named], schema=schema)
