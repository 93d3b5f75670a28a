"""Export to and import from Parquet: rows with their hashes, so that a copy proves itself.

An exported file holds verified rows only, with `prev` and `hash`, and says in its metadata how far
each topic reached and which ranges were lost. An import first verifies the whole file without
writing anything, then appends: a topic's rows must continue the history that the log has, and where
they overlap with it they must be the same rows. Offsets, hashes and heads come out as they went in.

Needs pyarrow, which is imported when it is used.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.log import files
from rumormill.log.errors import (
    EventRefusedError,
    ImportRefusedError,
    from_os,
    import_extra,
    lacks_descriptors,
    translated,
)
from rumormill.log.event_log import EventLog
from rumormill.log.model import check_event, check_topic
from rumormill.log.reader import behind_loss, hash_at
from rumormill.log.rows import (
    INSERT,
    MAX_OFFSET,
    UNKNOWN_HASH,
    EventRow,
    Group,
    TopicRow,
    pack_parents,
    row_bytes,
    row_event,
    row_is_whole,
    unpack_parents,
)
from rumormill.log.schema import put_loss

Check: TypeAlias = Callable[[str, Event], str | None]
"""Says what is wrong with an event of a protocol, if anything is."""

_METADATA_KEY = "rumormill"
_FORMAT = 1
_BATCH_ROWS = 1000
_COLUMNS = (
    "topic", "offset", "id", "author", "data", "parents", "created", "received", "protocol",
    "proof", "prev", "hash",
)  # fmt: skip


class _Extent(msgspec.Struct):
    name: str
    first_offset: int
    next_offset: int
    head_hash: bytes
    losses: list[tuple[int, int]]
    rows: int = 0


class _Metadata(msgspec.Struct):
    format: int
    topics: list[_Extent]


def export_parquet(log: EventLog, path: Path | str, topics: Sequence[str] | None = None) -> int:
    """Write all events of the topics (all topics by default) to a new file; return how many.

    The end of every topic is fixed at the start. Damage that is not yet repaired raises
    `DamagedRangeError`; recorded losses are exported as losses. The file is its owner's alone, and
    has its name when it is whole: who is interrupted leaves nothing.
    """
    arrow, parquet = _pyarrow()
    infos = [info for info in log.topics() if topics is None or info.name in topics]
    extents = [
        _Extent(
            info.name, info.first_offset, info.next_offset, info.head_hash, log.losses(info.name)
        )
        for info in infos
    ]
    settings = {"compression": "zstd", "write_page_checksum": True}
    path = Path(path)
    if not path.parent.is_dir():
        raise LocalError(f"there is no directory {path.parent}: name a file in one that is there")
    draft = path.with_name(f".{path.name}.part")
    try:
        with translated(str(path), "the file"):
            draft.unlink(missing_ok=True)
            with (
                open(files.create(draft), "wb") as file,
                parquet.ParquetWriter(file, _schema(arrow), **settings) as writer,
            ):
                for extent in extents:
                    for rows in _rows_of(log, extent):
                        extent.rows += len(rows)
                        writer.write_table(_table(arrow, extent.name, rows))
                metadata = msgspec.json.encode(_Metadata(_FORMAT, extents)).decode()
                writer.add_key_value_metadata({_METADATA_KEY: metadata})
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return sum(extent.rows for extent in extents)


def import_parquet(log: EventLog, path: Path | str, check: Check | None = None) -> int:
    """Verify an exported file, then append what the log does not have; return how many events.

    Its hashes say that it is as it was written, not who wrote it: `check` is given each event with
    the name of its protocol, and says what is wrong with it (`rumormill.node.verdicts.fault_of`).
    If the file contradicts the log, `ImportRefusedError` is raised; topics that come earlier in the
    file are imported by then, and importing the file again is safe.
    """
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(str(path), page_checksum_verification=True) as file:
            metadata = _read_metadata(file, path)
            _verify(log, file, metadata, path, check)
            importer = _Importer(log, metadata)
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(_COLUMNS)):
                importer.add(_batch_rows(batch))
            importer.finish()
            return importer.imported
    except FileNotFoundError:
        raise ImportRefusedError(f"there is no file {path}") from None
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and lacks_descriptors(error):
            raise from_os(error, str(path)) from error
        raise ImportRefusedError(f"{path} cannot be read as Parquet: {error}") from error


def _rows_of(log: EventLog, extent: _Extent) -> Iterator[list[EventRow]]:
    position = extent.first_offset
    while position < extent.next_offset:
        loss = next((end for start, end in extent.losses if start <= position < end), None)
        if loss is not None:
            position = loss
            continue
        rows = log.rows(extent.name, position, min(_BATCH_ROWS, extent.next_offset - position))
        position += len(rows)
        yield rows


def _table(arrow: Any, topic: str, rows: list[EventRow]) -> Any:
    columns = list(zip(*rows, strict=True))
    offsets = [key & MAX_OFFSET for key in columns[0]]
    parents = [unpack_parents(blob) for blob in columns[5]]
    arrays = [[topic] * len(rows), offsets, *columns[2:5], parents, *columns[6:]]
    schema = _schema(arrow)
    return arrow.table(
        [arrow.array(values, field.type) for values, field in zip(arrays, schema, strict=True)],
        schema=schema,
    )


def _schema(arrow: Any) -> Any:
    binary, text = arrow.binary(), arrow.string()
    types = (
        text, arrow.int64(), binary, binary, binary, arrow.list_(binary), arrow.float64(),
        arrow.float64(), text, binary, binary, binary,
    )  # fmt: skip
    return arrow.schema(
        [
            arrow.field(name, kind, nullable=name == "created")
            for name, kind in zip(_COLUMNS, types, strict=True)
        ]
    )


def _read_metadata(file: Any, path: Path | str) -> _Metadata:
    raw = (file.metadata.metadata or {}).get(_METADATA_KEY.encode())
    if raw is None:
        raise ImportRefusedError(f"{path} was not exported by rumormill")
    try:
        metadata = msgspec.json.decode(raw, type=_Metadata)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ImportRefusedError(f"{path} has damaged metadata: {error}") from error
    if metadata.format > _FORMAT:
        raise ImportRefusedError(f"{path} has format {metadata.format}: upgrade rumormill")
    missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
    if missing:
        raise ImportRefusedError(f"{path} lacks the column {missing[0]}")
    return metadata


def _batch_rows(batch: Any) -> Iterator[tuple[str, EventRow]]:
    """Rows of a batch with key = offset: the topic's number is the importing log's."""
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    for topic, offset, id_, author, data, parents, *rest in zip(*columns, strict=True):
        packed = pack_parents(tuple(parents))
        yield topic, (offset, 0, id_, author, data, packed, *rest)


def _verify(
    log: EventLog, file: Any, metadata: _Metadata, path: Path | str, check: Check | None
) -> None:
    extents = {extent.name: extent for extent in metadata.topics}
    expected = {extent.name: (extent.first_offset, b"") for extent in metadata.topics}
    counts = dict.fromkeys(extents, 0)
    for batch in file.iter_batches(_BATCH_ROWS, columns=list(_COLUMNS)):
        for topic, row in _batch_rows(batch):
            if topic not in extents:
                raise ImportRefusedError(f"{path}: topic {topic!r} is not in the metadata")
            offset, prev = expected[topic]
            offset, prev = _after_loss(extents[topic], offset, prev)
            where = f"{path}: topic {topic!r} offset {row[0]}"
            if row[0] != offset or not row_is_whole(row, 0, topic.encode()):
                raise ImportRefusedError(f"{where}: the row is damaged or out of order")
            if prev and row[10] != prev:
                raise ImportRefusedError(f"{where}: the row does not follow the one before it")
            event = row_event(row, topic)
            try:
                check_topic(topic, log.config)
                check_event(event, log.config)
            except EventRefusedError as error:
                raise ImportRefusedError(f"{where}: {error}") from error
            if check is not None and (fault := check(row[8], event)):
                raise ImportRefusedError(f"{where}: the event proves nothing: {fault}")
            expected[topic] = (offset + 1, row[11])
            counts[topic] += 1
    for name, extent in extents.items():
        if _after_loss(extent, *expected[name])[0] != extent.next_offset:
            raise ImportRefusedError(f"{path}: rows of topic {name!r} are missing at its end")
        if counts[name] != extent.rows:
            raise ImportRefusedError(f"{path}: rows of topic {name!r} are missing")


def _after_loss(extent: _Extent, offset: int, prev: bytes) -> tuple[int, bytes]:
    """Step over recorded losses; nothing links across them."""
    behind = behind_loss(extent.losses, offset)
    return (offset, prev) if behind == offset else (behind, b"")


class _Importer:
    """Appends verified rows as jobs of the log's writer, one transaction per batch."""

    def __init__(self, log: EventLog, metadata: _Metadata) -> None:
        self._log = log
        self._writer = log.writer()
        self._extents = {extent.name: extent for extent in metadata.topics}
        self.imported = 0
        self._lost: list[tuple[str, int, int]] = []
        self._writer.admit(list(self._extents))

    def add(self, rows: Iterator[tuple[str, EventRow]]) -> None:
        """Append those of the rows that the log does not have."""
        self._transact(lambda group: sum(self._add(group, name, row) for name, row in rows))

    def finish(self) -> None:
        """Record losses that end a topic."""

        def body(group: Group) -> int:
            for extent in self._extents.values():
                topic = self._topic(group, extent.name, extent.head_hash)
                if topic.next_offset < extent.next_offset:
                    self._lose(group, topic, extent.next_offset)
                    topic.head_hash = extent.head_hash
            return 0

        self._transact(body)

    def _transact(self, body: Any) -> None:
        added = 0

        def counted(group: Group) -> None:
            nonlocal added
            added = body(group)

        self._writer.run(lambda: self._writer.transact(counted)).result()
        self._writer.wrote_pages(2 * added)
        self.imported += added
        while self._lost:
            self._log.bar_loss(*self._lost.pop(0))

    def _add(self, group: Group, name: str, row: EventRow) -> bool:
        topic = self._topic(group, name, row[10])
        offset = row[0]
        if offset < topic.next_offset:
            if hash_at(self._writer.db, topic, offset) not in (None, row[11]):
                raise ImportRefusedError(
                    f"topic {name!r}: the log has another event at offset {offset}"
                )
            return False
        if offset > topic.next_offset:
            self._lose(group, topic, offset)
        elif row[10] != topic.head_hash and all(
            end != offset for _, end in self._extents[name].losses
        ):
            raise ImportRefusedError(
                f"topic {name!r}: the file's offset {offset} does not continue the log's history"
            )
        row = (topic.key(offset), topic.topic_id, *row[2:])
        if self._writer.db.execute(INSERT.one, row).rowcount != 1:
            raise ImportRefusedError(f"topic {name!r}: the id at offset {offset} is in use")
        group.add(topic, row, row_bytes(row))
        return True

    def _topic(self, group: Group, name: str, prev: bytes) -> TopicRow:
        """The topic's record; a new topic starts where the file's does."""
        topic = group.topic(name)
        if name not in self._writer.topics and name not in group.changed:
            first = self._extents[name].first_offset
            topic.first_offset = topic.next_offset = first
            if _after_loss(self._extents[name], first, b"")[0] != first:
                prev = UNKNOWN_HASH
            topic.base_hash = topic.head_hash = prev
            group.changed[name] = topic
        return topic

    def _lose(self, group: Group, topic: TopicRow, end: int) -> None:
        """Record the range from the topic's end to `end` as lost, as the file says it is."""
        name, start = topic.name, topic.next_offset
        if _after_loss(self._extents[name], start, b"")[0] != end:
            raise ImportRefusedError(
                f"topic {name!r}: the file begins at a later offset than the log's next, {start}"
            )
        put_loss(self._writer.db, topic.topic_id, start, end)
        topic.next_offset = end
        group.changed[name] = topic
        self._lost.append((name, start, end))


def _pyarrow() -> tuple[Any, ...]:
    sentence = "Parquet needs pyarrow: install it with `pip install rumormill[arrow]`"
    return import_extra(sentence, "pyarrow", "pyarrow.parquet")
