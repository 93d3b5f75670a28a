"""A part that grows: new events of a store, or new files of a directory of traces.

Every micro-batch is worked through once and kept as a directory of Parquet tables that is named
after the batch's number and renamed into place. What is kept of trace files is all their tables,
since each file is a run of its own; of events, the events and their verdicts, which are what takes
the time, while links between events and figures per topic are found anew for the whole part. Then
the part is put together from all batches, whose files it shares by hard links.

The rule: a batch that is played again after a crash replaces nothing and adds nothing, and a batch
that is not there is an error, never a hole. Sixteen batches that cover equally many are merged into
one, so that a stream of a year has some dozens of directories.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from rumormill.core.errors import LocalError
from rumormill.spark import mill
from rumormill.spark.bronze import EVERYTHING, Source, TraceFile, as_events, read_traces
from rumormill.spark.lake import Draft, Lake, part_name
from rumormill.spark.tables import TABLES, ddl
from rumormill.trace.files import SUFFIXES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STREAMS: Final = ".streams"
_VERDICTS: Final = "verdicts"
"""What `verify` found, a table of a batch and of no part."""

_MERGED: Final = 16
"""Our choice: each row is written again once for every sixteen-fold growth of a stream."""

_PATH_COLUMNS: Final = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"


class Span(msgspec.Struct, frozen=True, order=True):
    """The batches `first` to `last`, which share a directory."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """What its directory is called."""
        return f"batch-{self.first:08d}-{self.last:08d}"


class Stream:
    """Follows a source into a part of a lake."""

    def __init__(
        self,
        spark: "SparkSession",
        source: Source,
        lake: Lake,
        *,
        protocol: str | None = None,
        window: float = mill.DEFAULT_WINDOW,
        tell: mill.Tell = mill.silence,
    ) -> None:
        self._spark, self._source, self._lake = spark, source, lake
        self._protocol, self._window, self._tell = protocol, window, tell
        self._folder = lake.path / _STREAMS / source.name
        self._batches = self._folder / "batches"

    def start(self, *, once: bool = False, interval: float = 10.0) -> Any:
        """Begin to follow the source; `once` stops when all is read that is there now."""
        self._check_window()
        checkpoint = self._folder / "checkpoint"
        if self._next_batch() and not checkpoint.is_dir():
            raise LocalError(
                f"the stream {self._source.name} has batches and no {checkpoint}, which says where"
                f" they end: remove {self._folder} to read the source from its beginning"
            )
        writer = (
            self._found()
            .writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(checkpoint))
            .queryName(f"mill {self._source.name}")
        )
        trigger = {"availableNow": True} if once else {"processingTime": f"{interval:g} seconds"}
        return writer.trigger(**trigger).start()

    def _check_window(self) -> None:
        """The figures of trace files are kept by window, so a stream has one for all its life."""
        if self._source.is_store:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        note = self._folder / "stream.json"
        with contextlib.suppress(FileNotFoundError):
            kept = json.loads(note.read_text())["window"]
            if kept != self._window:
                raise LocalError(
                    f"--window: the stream {self._source.name} has windows of {kept:g} s;"
                    " give the same, or another --name"
                )
            return
        draft = note.with_suffix(".draft")
        draft.write_text(json.dumps({"window": self._window}))
        draft.replace(note)

    def _found(self) -> "DataFrame":
        if self._source.is_store:
            reader = self._spark.readStream.format("rumormill")
            return reader.options(
                **self._source.options, **EVERYTHING, startingOffsets="earliest"
            ).load()
        return (
            self._spark.readStream.format("binaryFile")
            .schema(_PATH_COLUMNS)
            .option("pathGlobFilter", "*{" + ",".join(SUFFIXES) + "}")
            .load(str(self._source.place))
            .select("path")
        )

    def take(self, batch: "DataFrame", number: int) -> None:
        """Take one micro-batch into the part."""
        known = self._next_batch()
        if number > known:
            raise self._hole(known, number - 1)
        if number == known:
            with self._writing(Span(number, number)) as draft:
                self._keep(batch, draft)
        spans = self._merged(self._spans())
        with self._lake.writing(self._source.name) as draft:
            self._put_together(draft, [self._batches / span.name for span in spans])
        self._tell(f"batch {number} is in the lake")

    def _next_batch(self) -> int:
        """The number of the first batch that is not kept; all before it must be."""
        expected = 0
        for span in self._spans():
            if span.first > expected:
                raise self._hole(expected, span.first - 1)
            expected = span.last + 1
        return expected

    def _hole(self, first: int, last: int) -> LocalError:
        return LocalError(
            f"batches {first} to {last} of the stream {self._source.name} are not in"
            f" {self._batches}: remove {self._folder} to read the source from its beginning"
        )

    def _spans(self) -> list[Span]:
        """What is kept, in order; what a larger span replaces goes."""
        self._batches.mkdir(parents=True, exist_ok=True)
        names = [each.name for each in self._batches.glob("batch-*")]
        found = [Span(*map(int, name.split("-")[1:])) for name in names]
        kept: list[Span] = []
        for span in sorted(found, key=lambda each: (each.first, -each.last)):
            if kept and span.last <= kept[-1].last:
                shutil.rmtree(self._batches / span.name)
            else:
                kept.append(span)
        return kept

    @contextlib.contextmanager
    def _writing(self, span: Span) -> Iterator[Draft]:
        """Write the tables of a span; it is there when the block ends without error."""
        draft = Draft(self._batches / f".{span.name}")
        shutil.rmtree(draft.path, ignore_errors=True)
        draft.path.mkdir()
        yield draft
        draft.path.rename(self._batches / span.name)

    def _keep(self, batch: "DataFrame", draft: Draft) -> None:
        """Do for the rows of one batch what is done once."""
        if self._source.is_store:
            from rumormill.spark.verifying import verify  # noqa: PLC0415

            draft.write(as_events(batch, self._source.name), "events")
            verdicts = verify(draft.frame(self._spark, "events"))
            verdicts.write.parquet(str(draft.path / _VERDICTS))
            return
        paths = sorted(Path(unquote(urlsplit(row["path"]).path)) for row in batch.collect())
        runs = [f"{self._source.name}/{part_name(path, SUFFIXES)}" for path in paths]
        found = zip(runs, map(str, paths), strict=True)
        files = tuple([TraceFile(run, 0, path) for run, path in found])
        draft.write(read_traces(self._spark, files), "traces")
        source = Source(self._source.name, self._source.place, files)
        mill.write_runs(self._spark, draft, source, self._protocol)
        mill.build_tables(self._spark, draft, self._window, self._tell)

    def _merged(self, spans: list[Span]) -> list[Span]:
        """Merge the last spans as long as sixteen of them cover equally many batches."""
        while len(spans) >= _MERGED:
            last = spans[-_MERGED:]
            if len({span.last - span.first for span in last}) > 1:
                break
            folders = [self._batches / span.name for span in last]
            with self._writing(Span(last[0].first, last[-1].last)) as draft:
                for table in _tables_of(folders):
                    self._rows(folders, table).write.parquet(str(draft.path / table))
            spans = self._spans()
        return spans

    def _put_together(self, draft: Draft, folders: list[Path]) -> None:
        for table in _tables_of(folders):
            if table in TABLES:
                _share([folder / table for folder in folders], draft.path / table)
        if not self._source.is_store:
            return
        mill.write_runs(self._spark, draft, self._source, self._protocol)
        verdicts = self._rows(folders, _VERDICTS)
        mill.build_event_tables(self._spark, draft, verdicts, self._window, self._tell)

    def _rows(self, folders: list[Path], table: str) -> "DataFrame":
        from rumormill.spark.verifying import SCHEMA  # noqa: PLC0415

        schema = SCHEMA if table == _VERDICTS else ddl(table)
        found = [str(folder / table) for folder in folders]
        return self._spark.read.schema(schema).parquet(*found)


def _tables_of(folders: list[Path]) -> list[str]:
    return sorted(each.name for each in folders[0].iterdir())


def _share(folders: list[Path], target: Path) -> None:
    """Give the Parquet files of folders a second name in one folder."""
    target.mkdir(parents=True)
    for folder in folders:
        for file in sorted(folder.glob("*.parquet")):
            os.link(file, target / f"{folder.parent.name}-{file.name}")
    (target / "_SUCCESS").touch()
