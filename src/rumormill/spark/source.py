"""The data source `format("rumormill")`: batch and stream reads of topics.

It follows Kafka's connector in names and meaning. A topic is an immutable dense log, so the same
offsets give the same rows whenever they are read: a replayed batch is the same batch.

Spark calls these classes in processes of its own: what a reader needs to know travels with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import datasource, types
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from rumormill.core.config import nearest
from rumormill.core.errors import ConfigError
from rumormill.log.model import Range
from rumormill.spark import planning
from rumormill.spark.access import Condition, condition_of, narrowed, read_piece, wants_topic
from rumormill.spark.options import ReadOptions, columns_wanted, read_options, write_options
from rumormill.spark.planning import Offsets
from rumormill.spark.sink import BatchWriter, StreamWriter

_HEADERS: Final = types.ArrayType(
    StructType(
        [
            StructField("key", types.StringType(), False),
            StructField("value", types.BinaryType(), False),
        ]
    ),
    False,
)
FULL_SCHEMA: Final = StructType(
    [
        StructField("key", types.BinaryType(), True),
        StructField("value", types.BinaryType(), False),
        StructField("topic", types.StringType(), False),
        StructField("partition", types.IntegerType(), False),
        StructField("offset", types.LongType(), False),
        StructField("timestamp", types.TimestampType(), False),
        StructField("timestampType", types.IntegerType(), False),
        StructField("headers", _HEADERS, True),
        StructField("id", types.BinaryType(), False),
        StructField("author", types.BinaryType(), False),
        StructField("publisher", types.StringType(), False),
        StructField("created", types.TimestampType(), True),
        StructField("parents", types.ArrayType(types.BinaryType(), False), False),
        StructField("metadata", _HEADERS, False),
        StructField("proof", types.BinaryType(), False),
        StructField("payload", types.BinaryType(), True),
    ]
)
"""Every column, Kafka's first; `log.arrow.ON_DEMAND` come when they are asked for."""


class RumormillSource(datasource.DataSource):
    """Topics of a store or a node as a table or a stream."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rumormill"

    def schema(self) -> StructType:
        """The fixed columns, and those that were asked for."""
        wanted = columns_wanted(self.options)
        return StructType([each for each in FULL_SCHEMA if wanted.get(each.name, True)])

    def reader(self, schema: StructType) -> "BatchReader":
        """A batch read."""
        return BatchReader(read_options(self.options, streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802
        """A stream read."""
        return StreamReader(read_options(self.options, streaming=True), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A batch write."""
        if overwrite:
            raise ConfigError("mode: what is published stays; use append")
        return BatchWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """A stream write."""
        if overwrite:
            raise ConfigError("outputMode: what is published stays; use append or update")
        return StreamWriter(write_options(self.options), schema)


def _columns(schema: StructType) -> list[str]:
    """The columns of a schema, which the user may have cut down to fewer."""
    known = {each.name: each for each in FULL_SCHEMA}
    for each in schema:
        if each.name not in known:
            raise ConfigError(
                f"schema: there is no column {each.name!r}; {nearest(each.name, list(known))}"
            )
        if each != known[each.name]:
            raise ConfigError(
                f"schema: column {each.name!r} must be {known[each.name].simpleString()}"
                f"{'' if known[each.name].nullable else ', not null'}"
            )
    return schema.fieldNames()


class RangePartition(datasource.InputPartition):
    """A piece of a topic, for one task."""

    def __init__(self, piece: Range | None) -> None:
        super().__init__(piece)


class _PushFilters:
    """A reader's `pushFilters`.

    Spark refuses to read from a reader that has this method while filter push-down is switched off,
    which is its default, and recognises it by the function behind the method. Then no filters are
    pushed and Spark applies them itself, so there is nothing to refuse: the function shown is
    Spark's own.
    """

    __func__ = staticmethod(datasource.DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[list[datasource.Filter]], list[datasource.Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[datasource.Filter]) -> list[datasource.Filter]:
        return self._push(filters)


class BatchReader(datasource.DataSourceReader):
    """Reads ranges of topics once."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._conditions: list[Condition] = []

    @property
    def pushFilters(self) -> Any:  # noqa: N802
        """Take over filters on topic, offset and time; leave the others to Spark."""
        return _PushFilters(self._push)

    def _push(self, filters: list[datasource.Filter]) -> list[datasource.Filter]:
        found = [(each, condition_of(each)) for each in filters]
        self._conditions += [condition for _, condition in found if condition is not None]
        return [each for each, condition in found if condition is None]

    def partitions(self) -> Sequence[datasource.InputPartition]:
        """Decide what is read, and cut it into tasks."""
        options, access = self._options, self._options.access
        planning.fetch_first(options)
        extents = access.extents()
        ranges = []
        for topic in planning.subscribed(options, extents, access.where):
            if not wants_topic(self._conditions, topic):
                continue
            start = planning.resolve_start(options, topic, extents[topic], access.since)
            stop = planning.resolve_end(options, topic, extents[topic], access.since)
            ranges.append(narrowed(Range(topic, start, stop), self._conditions, access.since))
        cut = planning.pieces(ranges, options.min_partitions, options.max_records)
        return [RangePartition(piece) for piece in cut] or [RangePartition(None)]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """Read one range."""
        if partition.value is None:
            return iter(())
        return read_piece(
            self._options.access,
            partition.value,
            self._columns,
            self._conditions,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )


class StreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics. Offsets are the next to read, by topic, in the order of names."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Where a query begins that has no checkpoint."""
        options, access = self._options, self._options.access
        planning.fetch_first(options)
        extents = access.extents()
        names = sorted({*options.topics, *(name for name in extents if options.wants(name))})
        start: Offsets = {}
        for name in names:
            if name in extents:
                start[name] = planning.resolve_start(options, name, extents[name], access.since)
            else:
                start[name] = self._start_of_nothing(name)
        return start

    def _start_of_nothing(self, topic: str) -> int:
        """A topic that nobody has written to yet begins at 0."""
        wanted = self._options.start.of(topic)
        if not self._options.start.is_time and wanted is not None and wanted > 0:
            raise ConfigError(
                f"startingOffsets: topic {topic!r} of {self._options.access.where} has no events,"
                f" so there is no offset {wanted}"
            )
        return 0

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`, if it is set."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is there now, and then stop."""
        self._target = self._ends({})

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> Offsets:  # noqa: N802
        """How far the next batch goes."""
        begun = dict(start)
        end = self._ends(begun)
        if self._target is not None:
            target = self._target
            end = {
                name: max(begun.get(name, 0), min(stop, target.get(name, 0)))
                for name, stop in end.items()
                if name in target or name in begun
            }
        if isinstance(limit, ReadMaxRows):
            end = planning.limited(begun, end, limit.max_rows)
        return end

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Where the topics end now, for the query's progress."""
        return self._ends({})

    def _ends(self, begun: Offsets) -> Offsets:
        return planning.latest(self._options, begun, self._options.access.extents())

    def partitions(
        self, start: Mapping[str, int], end: Mapping[str, int]
    ) -> Sequence[datasource.InputPartition]:
        """Cut a batch into tasks: the same offsets give the same tasks."""
        ranges = [Range(name, start.get(name, 0), stop) for name, stop in end.items()]
        cut = planning.pieces(ranges, self._options.min_partitions, self._options.max_records)
        self._check_kept(ranges)
        return [RangePartition(piece) for piece in cut]

    def _check_kept(self, ranges: list[Range]) -> None:
        """Say at once that a batch cannot be read, rather than from a task."""
        extents = self._options.access.extents()
        for each in ranges:
            extent = extents.get(each.topic)
            if extent is not None and each.start < min(extent.first_offset, each.stop):
                planning.lost(self._options, each.topic, each.start, extent.first_offset)

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """Read one range."""
        return read_piece(
            self._options.access,
            partition.value,
            self._columns,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
