"""The sink of `format("rumormill")`: publishes rows through a node, each one once.

The rows of one partition of one batch are sent under one key. The node keeps with each event how
far it has come under its key, so a batch that Spark runs again, because the driver, a task or the
node died, publishes only what is missing. A stream's key is made of the query's id, which its
checkpoint keeps, and the batch's number; a batch job's of `writeId`, or of an id of its own that
only protects against tasks that are run again.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from rumormill.core.errors import ConfigError, LocalError
from rumormill.spark.options import WriteOptions

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""What Spark tells the tasks of a stream about it."""

_COLUMNS: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>", "array<struct<key:string,value:string>>"),
}
"""What can be published, and as which types."""

LEFT_OUT: Final[dict[str, tuple[str, object]]] = {
    "partition": ("0", 0),
    "offset": ("-1L", -1),
    "timestamp": ("TIMESTAMP '1970-01-01 00:00:00+00:00'", datetime.fromtimestamp(0, UTC)),
    "timestampType": ("1", 1),
    "id": ("X''", b""),
    "author": ("X''", b""),
    "publisher": ("''", ""),
    "created": ("NULL", None),
    "parents": ("array()", []),
    "metadata": ("array()", []),
    "proof": ("X''", b""),
    "payload": ("NULL", None),
}
"""Columns of a table that only the log can fill, with what `INSERT` puts there when nothing is said
of them: in SQL, and as a task sees it."""


class Published(datasource.WriterCommitMessage):
    """A task has published its rows; with the beginning of its key."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix


def check_rows(schema: StructType, options: WriteOptions, *, of_table: bool = False) -> None:
    """Refuse columns that cannot be published; a table has those of the log besides."""
    kinds = {each.name: each.dataType for each in schema}
    if "value" not in kinds:
        raise ConfigError("the rows to publish have no column value (string or binary)")
    if options.topic is None and "topic" not in kinds:
        raise ConfigError("topic: set this option, or give the rows a column topic")
    for name, kind in kinds.items():
        if of_table and name in LEFT_OUT:
            continue
        if name not in _COLUMNS:
            raise ConfigError(
                f"column {name!r} is not published: select of {', '.join(_COLUMNS)} only"
            )
        if kind.simpleString() not in _COLUMNS[name]:
            raise ConfigError(
                f"column {name!r} cannot be {kind.simpleString()}: make it"
                f" {' or '.join(_COLUMNS[name])}"
            )


def _said(batch: Any) -> Any:
    """What there is to publish of rows of a table."""
    for name in batch.schema.names:
        if name in LEFT_OUT:
            nothing = LEFT_OUT[name][1]
            if any(each != nothing for each in batch.column(name).to_pylist()):
                raise LocalError(
                    f"column {name!r} is for the log to fill: say which columns you insert, of"
                    f" {', '.join(_COLUMNS)}"
                )
    return batch.select([name for name in batch.schema.names if name in _COLUMNS])


def _send(options: WriteOptions, prefix: str, rows: Iterator[Any]) -> Published:
    context = TaskContext.get()
    if context is None:
        raise LocalError("rows are published from Spark tasks")
    first = next(rows, None)
    if first is not None:
        with options.node.connect() as client:
            key, batches = f"{prefix}{context.partitionId()}", chain([first], rows)
            client.put(key, options.topic, first.schema, batches)
    return Published(prefix)


class BatchWriter(datasource.DataSourceArrowWriter):
    """Publishes a table once."""

    def __init__(
        self, options: WriteOptions, schema: StructType, *, of_table: bool = False
    ) -> None:
        check_rows(schema, options, of_table=of_table)
        self._options, self._of_table = options, of_table
        self._named = options.write_id is not None
        self._prefix = f"write {options.write_id or uuid.uuid4()} "

    def write(self, iterator: Iterator[Any]) -> Published:
        """Publish the rows of one task."""
        rows = map(_said, iterator) if self._of_table else iterator
        return _send(self._options, self._prefix, rows)

    def commit(self, messages: list[datasource.WriterCommitMessage | None]) -> None:
        """Nobody can run this job again under an id of its own."""
        if not self._named:
            with self._options.node.connect() as client:
                client.forget(self._prefix)

    def abort(self, messages: list[datasource.WriterCommitMessage | None]) -> None:
        """What was published cannot be taken back; with `writeId` the next run leaves it out."""


class StreamWriter(datasource.DataSourceStreamArrowWriter):
    """Publishes the batches of a stream once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_rows(schema, options)
        if options.write_id is not None:
            raise ConfigError("writeId: is for batch writes; a stream has the id of its query")
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Published:
        """Publish the rows of one task."""
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
        batch = context.getLocalProperty(BATCH_PROPERTY) if context is not None else None
        if not query or batch is None:
            raise LocalError("Spark does not say which query and batch this is")
        return _send(self._options, f"stream {query} {batch} ", iterator)

    def commit(self, messages: list[datasource.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Earlier batches are never run again; this one may be, until Spark has noted it."""
        prefixes = [each.prefix for each in messages if isinstance(each, Published)]
        if not prefixes:
            return
        query = prefixes[0].rsplit(" ", 2)[0]
        with self._options.node.connect() as client:
            client.forget(f"{query} ", keep=prefixes[0])

    def abort(self, messages: list[datasource.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was published is left out when the batch is run again."""
