"""The lake beside what is watched: its tables, how far Spark's queries have come, what was refused.

Only files are looked at, by whoever serves the page, every few seconds and while somebody looks:
Parquet's own counts of rows, the versions of Delta tables, the checkpoints of queries, which say
up to which offset of each topic a query has read, and the faults in `events_verified`. Behind a
query's offsets is its lag, where the log's end is known. Nothing is asked of Spark. Bounded: so
many folders and files are looked at, and of a file that has not changed nothing is read again.
"""

import asyncio
import contextlib
import functools
import importlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rumormill.dashboard.figures import cut, ranked
from rumormill.dashboard.series import rounded
from rumormill.dashboard.source import Look, Sections, Source

MAX_FOLDERS: Final = 2000
MAX_FILES: Final = 2000
MAX_TABLES: Final = 64
_DEPTH: Final = 6
_FRESH: Final = 5.0
_MOST_TEXT: Final = 1 << 20
_DELTA: Final = "_delta_log"
_VERIFIED: Final = "events_verified"
"""The table whose rows say why an event does not hold, and the column that does."""
_FAULT: Final = "fault"
MAX_CHECKED: Final = 5_000_000
"""Rows of it that are looked through; those beyond are counted as not looked at."""


class WithLake:
    """A source, and the lake that its events flow into."""

    def __init__(self, source: Source, lake: Path) -> None:
        self._source, self._lake = source, lake
        self._read_at = 0.0
        self._found: dict[str, Any] = {}
        self.page = source.page
        self.journey = source.journey
        self.publish = source.publish
        self.play = source.play
        self.close = source.close

    async def look(self, look: Look) -> Sections:
        """Show the wanted sections, with that of the lake."""
        found = await self._source.look(look)
        if "lake" in look.sections:
            if time.monotonic() - self._read_at > _FRESH:
                self._read_at = time.monotonic()
                self._found = await asyncio.to_thread(read_lake, self._lake)
            rows = found.get("topics", {}).get("rows", [])
            ends = {row["name"]: row["next"] for row in rows if "next" in row}
            found["lake"] = with_lags(self._found, ends)
        return found


def with_lags(found: Mapping[str, Any], ends: Mapping[str, int]) -> dict[str, Any]:
    """The section, with how many events of each topic a query has not read yet."""
    queries = []
    for query in found["queries"]:
        read = query["offsets"]
        lag = {topic: max(0, ends[topic] - at) for topic, at in read.items() if topic in ends}
        queries.append(query | {"lag": lag})
    return {**found, "queries": queries}


def read_lake(path: Path) -> dict[str, Any]:
    """The tables below a directory, and the queries whose checkpoints are there."""
    tables: dict[str, dict[str, Any]] = {}
    queries: list[dict[str, Any]] = []
    rejected: dict[str, int] = {}
    left, unchecked = MAX_FILES, MAX_CHECKED
    for folder, names in _folders(path):
        if {"offsets", "commits"} <= {*names}:
            queries.append(_query(folder, path))
            continue
        files = [each for each in names if each.endswith(".parquet")]
        is_delta = _DELTA in names
        if not (files or is_delta) or (folder.name not in tables and len(tables) >= MAX_TABLES):
            continue
        table = tables.setdefault(
            folder.name, {"name": folder.name, "rows": 0, "bytes": 0, "version": None, "changed": 0}
        )
        if is_delta:
            table["version"] = _newest(folder / _DELTA, ".json")
        elif folder.resolve().parent.name != folder.parent.name:
            table["version"] = folder.resolve().parent.name  # of the part, behind its link
        for name in files[:left]:
            rows = _add_file(table, folder / name)
            if folder.name == _VERIFIED and not is_delta:
                unchecked -= rows
                for reason, count in _faults(folder / name) if unchecked >= 0 else ():
                    rejected[reason] = rejected.get(reason, 0) + count
        left -= len(files[:left])
    return {
        "tables": sorted(tables.values(), key=lambda each: each["name"]),
        "queries": queries,
        "rejected": ranked(rejected),
        "not_checked": max(0, -unchecked),
    }


def _folders(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders and what is in them, links followed; as many as there may be."""
    waiting = [(path, 0)]
    seen: dict[str, None] = {}
    while waiting and len(seen) < MAX_FOLDERS:
        folder, depth = waiting.pop(0)
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen[real] = None
        with contextlib.suppress(OSError):
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            names = [entry.name for entry in entries]
            yield folder, names
            if depth < _DEPTH and not {"offsets", "commits"} <= {*names}:
                below = [entry for entry in entries if entry.is_dir() and _is_shown(entry.name)]
                waiting += [(Path(entry.path), depth + 1) for entry in below]


def _is_shown(name: str) -> bool:
    """Whether a folder is part of a lake: drafts are hidden, and streams are not."""
    return name != _DELTA and (name[0] not in "._" or name == ".streams")


def _add_file(table: dict[str, Any], path: Path) -> int:
    """Count a file; how many rows it has, where that is known."""
    with contextlib.suppress(OSError):
        found = path.stat()
        table["bytes"] += found.st_size
        table["changed"] = max(table["changed"], found.st_mtime)
        rows = _rows(str(path), found.st_mtime_ns, found.st_size)
        table["rows"] = None if rows is None or table["rows"] is None else table["rows"] + rows
        return rows or 0
    return 0


@functools.lru_cache(MAX_FILES)
def _rows(path: str, _changed: int, _size: int) -> int | None:
    """How many rows a file says that it has; None where nothing here can read it."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
        found: int = parquet.read_metadata(path).num_rows
    except (ImportError, OSError, ValueError):  # pyarrow's errors are such
        return None
    return found


def _faults(path: Path) -> tuple[tuple[str, int], ...]:
    """Why events of a file do not hold, and how many for each reason."""
    try:
        found = path.stat()
        return _read_faults(str(path), found.st_mtime_ns, found.st_size)
    except (ImportError, OSError, ValueError):
        return ()


@functools.lru_cache(MAX_FILES)
def _read_faults(path: str, _changed: int, _size: int) -> tuple[tuple[str, int], ...]:
    parquet = importlib.import_module("pyarrow.parquet")
    counts = parquet.read_table(path, columns=[_FAULT])[_FAULT].value_counts().to_pylist()
    return tuple(
        (cut(str(each["values"]), 80), each["counts"]) for each in counts if each["values"]
    )


def _newest(folder: Path, suffix: str = "") -> int | None:
    """The largest number that is the name of a file."""
    try:
        stems = [entry.name.removesuffix(suffix) for entry in os.scandir(folder)]
    except OSError:
        return None
    return max((int(stem) for stem in stems if stem.isdecimal()), default=None)


def _query(folder: Path, lake: Path) -> dict[str, Any]:
    """What a checkpoint says: the last batch, how long it took, and where it ended."""
    name = str(folder.relative_to(lake).parent) if folder.name == "checkpoint" else folder.name
    planned, done = _newest(folder / "offsets"), _newest(folder / "commits")
    found: dict[str, Any] = {"name": name, "batch": done, "running": planned != done, "offsets": {}}
    if done is None:
        return found
    with contextlib.suppress(OSError, ValueError, IndexError):
        begun = (folder / "offsets" / str(done)).stat().st_mtime
        ended = (folder / "commits" / str(done)).stat().st_mtime
        took = max(0.0, ended - begun)
        found |= {"batch_seconds": round(took, 3), "changed": ended}
        found["offsets"] = _offsets(folder, done)
        if done > 0 and took > 0:
            before = _offsets(folder, done - 1)
            rows = sum(at - before.get(topic, 0) for topic, at in found["offsets"].items())
            found["rows_per_second"] = rounded(max(0, rows) / took)
    return found


def _offsets(folder: Path, batch: int) -> dict[str, int]:
    """Up to which offset of each topic a batch goes."""
    text = (folder / "offsets" / str(batch)).read_text()[:_MOST_TEXT]
    return {
        topic: max(at.values()) if isinstance(at, dict) else int(at)
        for topic, at in json.loads(text.splitlines()[-1]).items()
    }
