"""A lake: a directory of Parquet tables that grows by whole parts.

A part is what one source gave: a trace, a directory of them, a store, a sweep. It has a
directory of its own with all its tables, is written beside the lake's parts under a hidden name,
and becomes visible by one rename of a symbolic link. The rule: whoever reads a lake sees a part as
it was before or as it is now, with all its tables, never in between; what a killed writer leaves
behind is hidden, and removed by the next one.

    lake/parts/storm -> ../.versions/storm~…      the part, as readers find it
    lake/.versions/storm~…/delivery_quality/*.parquet

Symbolic links are followed by Spark, pyarrow and everybody else who reads files.
"""

import contextlib
import json
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rumormill.core.errors import LocalError
from rumormill.spark.tables import COLUMNS, ddl, shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK: Final = "lake.json"
FORMAT: Final = 2
_PARTS: Final = "parts"
_VERSIONS: Final = ".versions"
_DONE: Final = "_SUCCESS"
_LONGEST_NAME: Final = 120


class Lake:
    """A directory of parts. Opening one never starts Spark."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> "Lake":
        """A lake that is there already, or one sentence."""
        lake = cls(path)
        if not lake.path.is_dir():
            raise LocalError(f"there is no lake {lake.path}: make one with rumormill mill")
        lake._check_mark()
        if not lake.parts():
            raise LocalError(f"the lake {lake.path} is empty: fill it with rumormill mill")
        return lake

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> "Lake":
        """A lake that can be written to, made if need be."""
        lake = cls(path)
        try:
            if lake.path.is_dir() and any(lake.path.iterdir()) and not (lake.path / MARK).exists():
                raise LocalError(f"{lake.path} is no lake and not empty: name another directory")
            (lake.path / _PARTS).mkdir(parents=True, exist_ok=True)
            (lake.path / _VERSIONS).mkdir(exist_ok=True)
            if not (lake.path / MARK).exists():
                draft = lake.path / f".{MARK}.{secrets.token_hex(4)}"
                draft.write_text(json.dumps({"format": FORMAT}) + "\n")
                draft.replace(lake.path / MARK)
        except OSError as error:
            raise LocalError(f"cannot write to {lake.path}: {error.strerror}") from error
        lake._check_mark()
        return lake

    def parts(self) -> list[str]:
        """The names of all parts."""
        folder = self.path / _PARTS
        if not folder.is_dir():
            return []
        return sorted(each.name for each in folder.iterdir() if each.name[0] != ".")

    def folders(self, table: str) -> list[Path]:
        """Where the parts keep a table."""
        ddl(table)
        found = [self.path / _PARTS / part / table for part in self.parts()]
        return [folder for folder in found if (folder / _DONE).exists()]

    def frame(self, spark: "SparkSession", table: str) -> "DataFrame":
        """A table of all parts, for Spark."""
        return read_folders(spark, table, self.folders(table))

    def rows(self, table: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """A table of all parts, without Spark; for the small ones."""
        from pyarrow import dataset  # noqa: PLC0415

        found: list[dict[str, Any]] = []
        wanted = [name for name, _ in COLUMNS[table]] if columns is None else list(columns)
        for folder in self.folders(table):
            files = sorted(str(each) for each in folder.glob("*.parquet"))
            if files:
                found += dataset.dataset(files, format="parquet").to_table(wanted).to_pylist()
        return found

    @contextlib.contextmanager
    def writing(self, part: str) -> Iterator["Draft"]:
        """Write a part; it replaces the one of the same name when the block ends without error."""
        check_name(part)
        self._sweep_up()
        draft = Draft(self.path / _VERSIONS / draft_name(part))
        try:
            draft.path.mkdir(parents=True)
        except OSError as error:
            raise LocalError(f"cannot write to {self.path}: {error.strerror}") from error
        try:
            yield draft
            self._publish(part, draft.path)
        except BaseException:
            shutil.rmtree(draft.path, ignore_errors=True)
            raise

    def _publish(self, part: str, version: Path) -> None:
        """Point the part's name at a finished version, and remove the one before."""
        name = self.path / _PARTS / part
        before = name.resolve() if name.is_symlink() else None
        link = self.path / _PARTS / f".{part}.{secrets.token_hex(4)}"
        link.symlink_to(Path("..") / _VERSIONS / version.name, target_is_directory=True)
        os.replace(link, name)
        if before is not None and before.parent == (self.path / _VERSIONS).resolve():
            shutil.rmtree(before, ignore_errors=True)

    def _sweep_up(self) -> None:
        """Remove what writers left behind that were killed."""
        folder = self.path / _VERSIONS
        used = [(self.path / _PARTS / part).resolve().name for part in self.parts()]
        for version in sorted(folder.iterdir()):
            if version.name not in used and not is_being_written(version):
                shutil.rmtree(version, ignore_errors=True)

    def _check_mark(self) -> None:
        mark = self.path / MARK
        try:
            found = json.loads(mark.read_text())
        except OSError:
            raise LocalError(f"{self.path} is no lake: it has no {MARK}") from None
        except ValueError:
            raise LocalError(f"{mark} is damaged: it is not JSON") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise LocalError(f"{mark}: this version of rumormill reads format {FORMAT} alone")


class Draft:
    """A part that is being written; nobody sees it yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, frame: "DataFrame", table: str) -> None:
        """Write a table whole."""
        shaped(frame, table).write.mode("overwrite").parquet(str(self.path / table))

    def frame(self, spark: "SparkSession", table: str) -> "DataFrame":
        """Read back a table of this part."""
        folder = self.path / table
        return read_folders(spark, table, [folder] if (folder / _DONE).exists() else [])


def read_folders(spark: "SparkSession", table: str, folders: Sequence[Path]) -> "DataFrame":
    """Folders of Parquet files as one table; none of them make an empty one."""
    if not folders:
        return spark.createDataFrame([], ddl(table))
    return spark.read.schema(ddl(table)).parquet(*[str(folder) for folder in folders])


def check_name(part: str) -> None:
    """Refuse a name that is no plain directory name."""
    if not re.fullmatch(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{_LONGEST_NAME - 1}}}", part):
        raise LocalError(
            f"{part!r} cannot name a part: use letters, digits, dot, dash and underscore"
        )


def part_name(path: Path, suffixes: Sequence[str] = ()) -> str:
    """The name of a part that is made from a file or directory."""
    suffix = next(filter(path.name.endswith, suffixes), "")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name.removesuffix(suffix)).lstrip(".-")
    return name[:_LONGEST_NAME] or "part"


def draft_name(name: str) -> str:
    """A name for what is being written, which says by whom."""
    return f"{name}~{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}"


def is_being_written(draft: Path) -> bool:
    """Whether the process that a draft is named after may still be at work."""
    host, process = draft.name.rpartition("~")[2].rsplit("-", 2)[:2]
    try:
        if host == platform.node():
            os.kill(int(process), 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
