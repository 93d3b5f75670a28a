"""The data source `format("rumormill")`: batch and stream reads of topics.

It follows Kafka's connector in names and meaning. A topic is an immutable dense log, so the same
offsets give the same rows whenever they are read: a replayed batch is the same batch.

Spark calls these classes in processes of its own: what a reader needs to know travels with it.
"""

import json
import time
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
from rumormill.spark.access import Condition, condition_of, narrowed, wants_topic
from rumormill.spark.followed import Followed, state_as_json, state_from_json
from rumormill.spark.merging import MAX_PLANNED, Merger, Share, read_share
from rumormill.spark.options import (
    ReadOptions,
    columns_wanted,
    options_of_table,
    places_of,
    read_options,
    write_options,
)
from rumormill.spark.replicas import (
    Extents,
    Offsets,
    Piece,
    as_json,
    batch_others,
    from_json,
    lines_of,
    reach,
    read_line,
)
from rumormill.spark.sink import LEFT_OUT, BatchWriter, StreamWriter

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


_KEPT: Final = "rumormill.options"
"""Spark tells a Python source the options of `CREATE TABLE … OPTIONS` when the table is made, and
not when it is read. What it does keep is the schema: there the options are, with the first column.
"""


class RumormillSource(datasource.DataSource):
    """Topics of a store or a node as a table or a stream."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rumormill"

    def schema(self) -> StructType:
        """The fixed columns, and those that were asked for."""
        of_table = options_of_table(self.options)
        wanted = columns_wanted(of_table or self.options)
        found = [each for each in FULL_SCHEMA if wanted.get(each.name, True)]
        return StructType(_of_table(found, of_table) if of_table else found)

    def reader(self, schema: StructType) -> "BatchReader":
        """A batch read."""
        options = self._with_kept(schema)
        return BatchReader(read_options(options, streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802
        """A stream read."""
        options = self._with_kept(schema)
        return StreamReader(read_options(options, streaming=True), _columns(schema))

    def _with_kept(self, schema: StructType) -> dict[str, str]:
        """The options of this read, over those of the table that is read."""
        found = {**_kept(schema), **self.options}
        if not found:
            raise ConfigError(
                "no option has come: Spark forgets the OPTIONS of a table that is created with a"
                " list of columns; leave the columns out"
            )
        return found

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A batch write."""
        if overwrite:
            raise ConfigError("mode: what is published stays; use append")
        kept = {} if self.options else _kept(schema)  # INSERT INTO a table comes without options
        options = write_options(places_of(kept) or self.options)
        return BatchWriter(options, schema, of_table=bool(kept))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """A stream write."""
        if overwrite:
            raise ConfigError("outputMode: what is published stays; use append or update")
        return StreamWriter(write_options(self.options), schema)


def _of_table(columns: list[StructField], options: dict[str, str]) -> list[StructField]:
    """Columns of a table: the first keeps the options, and those that only the log can fill have
    something for `INSERT` to put there."""
    left_out = {name: sql for name, (sql, _) in LEFT_OUT.items()}
    topics = [*filter(None, map(str.strip, options.get("subscribe", "").split(",")))]
    if len(topics) == 1:
        left_out["topic"] = "'" + topics[0].replace("\\", "\\\\").replace("'", "\\'") + "'"
    found = []
    for column in columns:
        notes = {_KEPT: json.dumps(options)} if column is columns[0] else {}
        if column.name in left_out:
            notes |= dict.fromkeys(("CURRENT_DEFAULT", "EXISTS_DEFAULT"), left_out[column.name])
        found.append(StructField(column.name, column.dataType, column.nullable, notes))
    return found


def _kept(schema: StructType) -> dict[str, str]:
    """The options of the table that a schema comes from."""
    for column in schema:
        if column.metadata and _KEPT in column.metadata:
            found: dict[str, str] = json.loads(column.metadata[_KEPT])
            return found
    return {}


def _columns(schema: StructType) -> list[str]:
    """The columns of a schema, which the user may have cut down to fewer."""
    known = {each.name: each for each in FULL_SCHEMA}
    for each in schema:
        if each.name not in known:
            raise ConfigError(
                f"schema: there is no column {each.name!r}; {nearest(each.name, list(known))}"
            )
        right = known[each.name]
        if (each.dataType, each.nullable) != (right.dataType, right.nullable):
            raise ConfigError(
                f"schema: column {each.name!r} must be {known[each.name].simpleString()}"
                f"{'' if known[each.name].nullable else ', not null'}"
            )
    return schema.fieldNames()


class RangePartition(datasource.InputPartition):
    """A piece of a topic, for one task."""

    def __init__(self, piece: Piece | None) -> None:
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
        options, places = self._options, self._options.places
        planning.fetch_first(options)
        lines = lines_of(reach(places))
        topics = {topic: extent for (topic, _), extent in lines.items()}
        where = " or ".join(place.where for place in places)
        wanted = planning.subscribed(options, topics, where)
        ranges = {}
        for (topic, number), extent in sorted(lines.items()):
            if topic in wanted and wants_topic(self._conditions, topic):
                since = places[number].since
                start = planning.resolve_start(options, topic, extent, since, number)
                stop = planning.resolve_end(options, topic, extent, since, number)
                ranges[topic, number] = Range(topic, start, max(start, stop))
        others = batch_others(ranges)
        found = [
            narrowed(
                Piece(topic, each.start, each.stop, number, others[topic, number]),
                self._conditions,
                places[number].since,
            )
            for (topic, number), each in ranges.items()
        ]
        cut = planning.pieces(found, options.min_partitions, options.max_records)
        return [RangePartition(piece) for piece in cut] or [RangePartition(None)]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """Read one range."""
        if partition.value is None:
            return iter(())
        return read_line(
            self._options.places,
            partition.value,
            self._columns,
            self._conditions,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )


class StreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics. Offsets are the next to read, by topic, in the order of names; where there
    are several places, by topic and place, with what was given beside them (`followed`)."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._fetched = False
        self._target: Offsets | None = None
        self._batch_at: float | None = None
        """When the last batch was begun, by the monotonic clock."""
        self._merger = Merger(options) if len(options.places) > 1 else None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query begins that has no checkpoint."""
        options = self._options
        start: Offsets = {}
        for number, topics in self._extents().items():
            since = options.places[number].since
            names = sorted({*options.topics, *(name for name in topics if options.wants(name))})
            for name in names:
                if name in topics:
                    extent = topics[name]
                    begin = planning.resolve_start(options, name, extent, since, number)
                else:
                    begin = self._start_of_nothing(name, number)
                start[name, number] = begin
        if self._merger is None:
            return self._json(start)
        found: dict[str, Followed] = {}
        for (name, number), begin in start.items():
            own = found.setdefault(name, Followed())
            own.offsets[number] = own.since[number] = begin
        return state_as_json(found)

    def _start_of_nothing(self, topic: str, number: int) -> int:
        """A topic that nobody has written to yet begins at 0."""
        wanted = self._options.start.of(topic, number)
        if not self._options.start.is_time and wanted is not None and wanted > 0:
            raise ConfigError(
                f"startingOffsets: topic {topic!r} of {self._options.places[number].where} has no"
                f" events, so there is no offset {wanted}"
            )
        return 0

    def _json(self, offsets: Offsets) -> dict[str, Any]:
        return as_json(offsets, len(self._options.places))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`, if it is set."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is there now, and then stop."""
        self._target = self._ends({}, self._extents())

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes."""
        begun = from_json(start)
        live = self._extents()
        end = self._ends(begun, live)
        if self._target is not None:
            target = self._target
            end = {
                line: max(begun.get(line, 0), min(stop, target.get(line, 0)))
                for line, stop in end.items()
                if line in target or line in begun
            }
        elif self._should_wait(begun, end):
            return dict(start)
        if end == begun:
            return dict(start)
        self._batch_at = time.monotonic()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if self._merger is not None:
            state = state_from_json(start)
            return state_as_json(self._merger.plan(state, end, live, most or MAX_PLANNED))
        return self._json(end if most is None else planning.limited(begun, end, most))

    def _should_wait(self, begun: Offsets, end: Offsets) -> bool:
        """Whether there are fewer events than a batch should have, and there is time for more."""
        least, last = self._options.min_offsets, self._batch_at
        if least is None or last is None:
            return False
        waiting = sum(stop - begun.get(line, 0) for line, stop in end.items())
        return waiting < least and time.monotonic() - last < self._options.max_delay

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the topics end now, for the query's progress."""
        return self._json(self._ends({}, self._extents()))

    def _extents(self) -> Extents:
        """What is there; the first time, behind what is to be fetched."""
        if not self._fetched:
            planning.fetch_first(self._options)
            self._fetched = True
        return reach(self._options.places)

    def _ends(self, begun: Offsets, live: Extents) -> Offsets:
        """Where all topics end; at a place that does not answer, where they were."""
        ends = dict(begun)
        for number, topics in live.items():
            own = {topic: place for (topic, other), place in begun.items() if other == number}
            found = planning.latest(self._options, own, topics)
            ends |= {(topic, number): stop for topic, stop in found.items()}
        return {line: ends[line] for line in sorted(ends)}

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[datasource.InputPartition]:
        """Cut a batch into tasks: the same offsets give the same tasks."""
        options, live = self._options, reach(self._options.places)
        if self._merger is not None:
            shares = self._merger.tasks(state_from_json(start), state_from_json(end), live)
            return [RangePartition(share) for share in shares]
        begun = from_json(start)
        ranges = []
        for line, stop in from_json(end).items():
            topic, begin = line[0], begun.get(line, 0)
            extent = live[0].get(topic)
            if extent is not None and begin < min(extent.first_offset, stop):
                planning.lost(options, topic, begin, extent.first_offset)
            ranges.append(Piece(topic, begin, stop))
        cut = planning.pieces(ranges, options.min_partitions, options.max_records)
        return [RangePartition(piece) for piece in cut]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """Read one range."""
        piece, places, fail = partition.value, self._options.places, self._options.fail_on_data_loss
        if isinstance(piece, Share):
            return read_share(places, piece, self._columns, fail_on_data_loss=fail)
        return read_line(places, piece, self._columns, fail_on_data_loss=fail)
