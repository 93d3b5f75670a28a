"""A lake shows whole parts only, whatever happens to its writers. None of this starts Spark."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rumormill.core.errors import LocalError
from rumormill.spark.bronze import TraceFile, find_source, trace_batches
from rumormill.spark.lake import Draft, Lake, part_name
from rumormill.spark.mill import plain
from rumormill.spark.tables import BRONZE, COLUMNS, GOLD, SILVER, TABLES
from rumormill.trace.entries import TraceError

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "tables.md"


def put(draft: Draft, table: str, rows: list[dict[str, Any]]) -> None:
    """Write rows as Spark would, without it."""
    folder = draft.path / table
    folder.mkdir()
    columns = {name: [row.get(name) for row in rows] for name, _ in COLUMNS[table]}
    pq.write_table(pa.table(columns), folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()


def fill(lake: Lake, part: str, runs: list[str]) -> None:
    with lake.writing(part) as draft:
        put(draft, "runs", [{"run": run} for run in runs])


def names(lake: Lake) -> list[str]:
    return [row["run"] for row in lake.rows("runs")]


def test_a_part_appears_when_it_is_complete(tmp_path: Path) -> None:
    """Until the block ends, readers see nothing of it."""
    lake = Lake.create(tmp_path / "lake")
    with lake.writing("storm") as draft:
        put(draft, "runs", [{"run": "storm"}])
        assert lake.parts() == []
    assert (lake.parts(), names(lake)) == (["storm"], ["storm"])


def test_a_part_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Milling a source again leaves one copy, on disk too."""
    lake = Lake.create(tmp_path / "lake")
    fill(lake, "storm", ["old", "older"])
    fill(lake, "calm", ["calm"])
    fill(lake, "storm", ["new"])
    assert names(lake) == ["calm", "new"]
    assert len(list((lake.path / ".versions").iterdir())) == 2


def test_a_failed_writer_changes_nothing(tmp_path: Path) -> None:
    """The part that was there stays, and the unfinished one is removed."""
    lake = Lake.create(tmp_path / "lake")
    fill(lake, "storm", ["old"])

    def fail() -> None:
        with lake.writing("storm") as draft:
            put(draft, "runs", [{"run": "new"}])
            raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        fail()
    assert names(lake) == ["old"]
    assert len(list((lake.path / ".versions").iterdir())) == 1


def test_what_a_killed_writer_left_is_hidden_and_swept_up(tmp_path: Path) -> None:
    """A writer that dies before the rename leaves no part; the next one cleans up."""
    lake = Lake.create(tmp_path / "lake")
    fill(lake, "storm", ["old"])
    child = os.fork()
    if child == 0:
        with lake.writing("storm") as draft:
            put(draft, "runs", [{"run": "new"}])
            os._exit(9)
    os.waitpid(child, 0)
    assert names(lake) == ["old"]
    assert len(list((lake.path / ".versions").iterdir())) == 2
    fill(lake, "calm", ["calm"])
    assert names(lake) == ["calm", "old"]
    assert len(list((lake.path / ".versions").iterdir())) == 2


def test_a_writer_does_not_sweep_up_another_ones_work(tmp_path: Path) -> None:
    """Two writers at a time are both served."""
    lake = Lake.create(tmp_path / "lake")
    with lake.writing("storm") as draft:
        put(draft, "runs", [{"run": "storm"}])
        fill(lake, "calm", ["calm"])
    assert names(lake) == ["calm", "storm"]


def test_a_table_without_its_success_mark_is_not_read(tmp_path: Path) -> None:
    """Spark writes the mark last."""
    lake = Lake.create(tmp_path / "lake")
    with lake.writing("storm") as draft:
        put(draft, "runs", [{"run": "storm"}])
        (draft.path / "runs" / "_SUCCESS").unlink()
    assert names(lake) == []


@pytest.mark.parametrize("part", ["", ".hidden", "a/b", "..", "a b", "x" * 121])
def test_a_part_has_a_plain_name(tmp_path: Path, part: str) -> None:
    with pytest.raises(LocalError, match="cannot name a part"):
        fill(Lake.create(tmp_path / "lake"), part, [])


def test_names_of_parts_come_from_paths() -> None:
    assert part_name(Path("/x/my run (2).pb.gz"), (".pb.gz", ".pb")) == "my-run-2-"
    assert part_name(Path("/x/.rumormill")) == "rumormill"


def test_a_missing_an_empty_and_a_foreign_lake_are_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"there is no lake .*missing"):
        Lake.existing(tmp_path / "missing")
    Lake.create(tmp_path / "empty")
    with pytest.raises(LocalError, match=r"empty is empty: fill it"):
        Lake.existing(tmp_path / "empty")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(LocalError, match="is no lake"):
        Lake.existing(tmp_path / "photos")
    with pytest.raises(LocalError, match="is no lake and not empty"):
        Lake.create(tmp_path / "photos")


def test_a_lake_of_another_format_is_refused(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    (lake.path / "lake.json").write_text('{"format": 1}')
    with pytest.raises(LocalError, match="reads format 2 alone"):
        Lake.create(lake.path)
    (lake.path / "lake.json").write_text("{")
    with pytest.raises(LocalError, match="damaged"):
        Lake.create(lake.path)


def test_there_is_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="did you mean deliveries"):
        Lake(tmp_path).folders("delivery")


def test_every_table_is_documented_column_by_column() -> None:
    """docs/tables.md names every table with its columns and types, in their order."""
    text = DOCUMENT.read_text()
    assert {*BRONZE, *SILVER, *GOLD} == set(TABLES) == set(COLUMNS)
    for table, columns in COLUMNS.items():
        section = text.partition(f"### `{table}`\n")[2].partition("\n### ")[0]
        documented = [
            tuple(cell.strip(" `") for cell in line.split("|")[1:3])
            for line in section.splitlines()
            if line.startswith("| `")
        ]
        assert documented == list(columns), table


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            (
                "Job aborted\nTraceback (most recent call last):\n"
                "rumormill.trace.entries.TraceError: run.pb, byte 3: it ends inside a record\n"
                "\tat org.apache.spark.Foo\n"
            ),
            "run.pb, byte 3: it ends inside a record",
        ),
        (
            (
                "An error occurred while calling o1.parquet.\n: org.apache.SparkException: Job\n"
                "Caused by: java.io.IOException: No space left on device\n\tat java.base\n"
            ),
            "Spark failed: No space left on device",
        ),
        ("", "Spark failed: RuntimeError"),
    ],
)
def test_what_spark_wraps_comes_out_as_one_sentence(said: str, sentence: str) -> None:
    """The innermost cause, without the stack."""
    assert str(plain(RuntimeError(said))) == sentence


# Sources.


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"there is no .*nothing\.ndjson"):
        find_source(str(tmp_path / "nothing.ndjson"))


def test_a_directory_without_traces_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(LocalError, match="neither a store nor a trace file"):
        find_source(str(tmp_path))
    with pytest.raises(LocalError, match="ends in one of"):
        find_source(str(tmp_path / "notes.txt"))


def test_a_directorys_files_are_runs_or_the_peers_of_one(tmp_path: Path) -> None:
    """By default each file is a run; merged, they are numbered inside one."""
    for name in ("b.pb", "a.ndjson", ".hidden.pb"):
        (tmp_path / name).touch()
    runs = find_source(str(tmp_path), name="net").files
    assert [(file.run, file.number) for file in runs] == [("net/a", 0), ("net/b", 0)]
    peers = find_source(str(tmp_path), name="net", merge=True).files
    assert [(file.run, file.number) for file in peers] == [("net", 0), ("net", 1)]


def test_the_order_of_a_file_holds_whatever_its_clock_does(tmp_path: Path) -> None:
    """A clock that steps back does not reorder the entries behind the step."""
    path = tmp_path / "clock.ndjson"
    line = '{{"type":9,"peerID":"cGVlcg==","timestamp":{},"join":{{"topic":"t"}}}}\n'
    path.write_text("".join(line.format(time) for time in (5, 3, 9)))
    [batch] = trace_batches(TraceFile("run", 2, str(path)))
    rows = batch.to_pylist()
    assert [row["timestamp"] for row in rows] == [5, 3, 9]
    assert [row["moment"] for row in rows] == [5, 5, 9]
    assert [row["seq"] for row in rows] == [(2 << 40) + place for place in range(3)]


def test_a_truncated_trace_is_named_with_its_place(tmp_path: Path) -> None:
    """Lines, records and columns alike."""
    line = tmp_path / "cut.ndjson"
    line.write_text('{"type":9,"peerID":"cGVlcg==","timestamp":1,"join":{"topic":"t"}}\n{"type":9')
    with pytest.raises(TraceError, match=r"cut\.ndjson, line 2"):
        list(trace_batches(TraceFile("run", 0, str(line))))
    record = tmp_path / "cut.pb"
    record.write_bytes(b"\x10\x08\x09")
    with pytest.raises(TraceError, match=r"cut\.pb, byte 0: the file ends inside a record"):
        list(trace_batches(TraceFile("run", 0, str(record))))
    columns = tmp_path / "cut.parquet"
    columns.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(TraceError, match=r"cut\.parquet, row 0"):
        list(trace_batches(TraceFile("run", 0, str(columns))))
