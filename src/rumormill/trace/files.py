"""Trace files, written and read in the format that the suffix of the name says.

- `.ndjson`, `.jsonl`, `.json`: one event per line, as go's `JSONTracer` writes them.
- `.pb`: events, each behind its length as a varint, as go's `PBTracer` writes them.
- `.pb.gz`: batches of events, each behind its length, compressed, as go's `RemoteTracer` sends.
- `.parquet`: a flat table (`trace.parquet`); needs `rumormill[arrow]`.

The rules: equal traces give equal bytes; a reader holds one record at a time, looks at a length
before it reads that much, and answers damage with one `TraceError` that names file and position.
"""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from rumormill.trace import writers
from rumormill.trace.entries import Entry, Observer, Recorder, TraceError
from rumormill.trace.ndjson import NOT_AN_EVENT, LineEncoder, decode_line
from rumormill.trace.protobuf import MAX_EVENT_BYTES, EventError, decode_batch, decode_event
from rumormill.trace.writers import LINE_SUFFIXES

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_BATCH_BYTES = 64 * 1024 * 1024
"""Our choice: a line is an event in base64; go's tracer keeps at most 65,536 events at once."""

SUFFIXES = (*LINE_SUFFIXES, ".pb", ".pb.gz", ".parquet")


def open_writer(
    path: str | os.PathLike[str], lines: LineEncoder | None = None
) -> writers.TraceWriter:
    """Open a trace file for writing in the format that its suffix names."""
    path = Path(path)
    match _suffix(path):
        case ".pb":
            return writers.EventWriter(path)
        case ".pb.gz":
            return writers.BatchWriter(path)
        case ".parquet":
            from rumormill.trace.parquet import ParquetWriter  # noqa: PLC0415 (an extra)

            return ParquetWriter(path)
        case _:
            return writers.LineWriter(path, lines)


def read_trace(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """Read the entries of a trace file in the format that its suffix names, one after another.

    A damaged file gives the entries before the damage and then raises `TraceError`.
    """
    path = Path(path)
    suffix = _suffix(path)
    if suffix == ".parquet":
        from rumormill.trace.parquet import read_parquet  # noqa: PLC0415 (an extra)

        return read_parquet(path)
    if suffix in LINE_SUFFIXES:
        return _read_lines(path)
    return _read_records(path, batches=suffix == ".pb.gz")


def replay(path: str | os.PathLike[str], observers: Sequence[Observer]) -> None:
    """Show a trace file to observers as if it were being recorded, and close them."""
    recorder = Recorder(observers)
    for entry in read_trace(path):
        recorder.record(entry)
        recorder.maybe_flush()
    recorder.close()


def _suffix(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return suffix
    raise TraceError(f"{path}: a trace file's name ends in one of {', '.join(SUFFIXES)}")


def _read_lines(path: Path) -> Iterator[Entry]:
    with _opened(path) as stream:
        number = 0
        while line := _read(stream.readline, MAX_LINE_BYTES, path, f"line {number + 1}"):
            number += 1
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                raise TraceError(f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
            if line.isspace():
                continue
            try:
                entry = decode_line(line)
            except NOT_AN_EVENT as error:
                raise TraceError(f"{path}, line {number}: {error}") from error
            yield entry


def _read_records(path: Path, *, batches: bool) -> Iterator[Entry]:
    limit = MAX_BATCH_BYTES if batches else MAX_EVENT_BYTES
    with _opened(path) as raw:
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="rb")) if batches else raw
        position = 0
        while True:
            where = f"byte {position}{' of the unpacked data' if batches else ''}"
            length, prefix = _read_length(stream, path, where)
            if prefix == 0:
                return
            if length > limit:
                raise TraceError(f"{path}, {where}: a record of {length} bytes; {limit} is most")
            record = _read(stream.read, length, path, where)
            if len(record) < length:
                raise TraceError(f"{path}, {where}: the file ends inside a record")
            try:
                if batches:
                    yield from decode_batch(record)
                else:
                    yield decode_event(record)
            except EventError as error:
                raise TraceError(f"{path}, {where}: {error}") from error
            position += prefix + length


def _read_length(stream: BinaryIO, path: Path, where: str) -> tuple[int, int]:
    """Read a varint; return it and how many bytes it took, none at the end of the file."""
    value = 0
    for index in range(10):
        byte = _read(stream.read, 1, path, where)
        if not byte:
            if index == 0:
                return 0, 0
            raise TraceError(f"{path}, {where}: the file ends inside a length")
        value |= (byte[0] & 0x7F) << 7 * index
        if byte[0] < 0x80:
            return value, index + 1
    raise TraceError(f"{path}, {where}: a length of more than 64 bits")


def _read(read: Callable[[int], bytes], size: int, path: Path, where: str) -> bytes:
    try:
        return read(size)
    except EOFError as error:
        raise TraceError(f"{path}, {where}: the compressed data is cut short") from error
    except (OSError, zlib.error) as error:
        raise TraceError(f"{path}, {where}: cannot be read: {error}") from error


def _opened(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
