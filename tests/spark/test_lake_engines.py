"""A lake as other engines see it: pyarrow, DuckDB, and Delta tables. None of this starts Spark."""

import datetime
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rumormill.core.errors import LocalError
from rumormill.log.errors import MissingExtraError
from rumormill.spark.delta import delta_library, write_delta
from rumormill.spark.lake import Lake

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 (as Spark writes them)


def fill(lake: Lake, part: str, count: int) -> None:
    """A part with events and runs, with the types that Spark gives them."""
    events = pa.table(
        {
            "run": pa.array([part] * count, pa.string()),
            "topic": pa.array(["news"] * count, pa.string()),
            "offset": pa.array(range(count), pa.int64()),
            "value": pa.array([b"%d" % number for number in range(count)], pa.binary()),
            "received": pa.array([WHEN] * count, pa.timestamp("ns")),
            "headers": pa.array(
                [[{"key": "a", "value": b"b"}]] * count,
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    runs = pa.table({"run": [part], "protocol": ["gossipsub"], "peers": pa.array([3], pa.int32())})
    with lake.writing(part) as draft:
        for name, rows in (("events", events), ("runs", runs)):
            (draft.path / name).mkdir()
            pq.write_table(rows, draft.path / name / "part-0.parquet")
            (draft.path / name / "_SUCCESS").touch()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.create(tmp_path / "lake")
    fill(made, "storm", 5)
    fill(made, "calm", 3)
    return made


def test_pyarrow_reads_a_part_and_all_of_them(lake: Lake) -> None:
    """Directories of Parquet files, behind symbolic links."""
    from pyarrow import dataset  # here, because pandas comes with it

    one = dataset.dataset(str(lake.path / "parts" / "storm" / "events"))
    assert one.count_rows() == 5
    folders = [str(each) for each in lake.folders("events")]
    assert sum(dataset.dataset(each).count_rows() for each in folders) == 8


def test_duckdb_reads_a_table_of_all_parts(lake: Lake) -> None:
    """By a pattern over the parts."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    place = f"{lake.path}/parts/*/events/*.parquet"
    query = "SELECT run, count(*), max(received), any_value(headers[1].key)"
    rows = duckdb.sql(f"{query} FROM read_parquet('{place}') GROUP BY run ORDER BY run").fetchall()
    assert rows == [("calm", 3, WHEN, "a"), ("storm", 5, WHEN, "a")]
    joined = f"SELECT sum(peers) FROM '{lake.path}/parts/*/runs/*.parquet'"
    assert duckdb.sql(joined).fetchall() == [(6,)]


def test_delta_tables_are_replaced_part_by_part(lake: Lake, tmp_path: Path) -> None:
    """Each writing of a part is one commit, which leaves the others as they are."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    folder = tmp_path / "delta"
    assert write_delta(lake, "storm", folder) == ["runs", "events"]
    assert write_delta(lake, "calm", folder) == ["runs", "events"]

    def counted() -> dict[str, int]:
        table = deltalake.DeltaTable(str(folder / "events")).to_pyarrow_table()
        found = table.group_by("part").aggregate([("offset", "count")]).to_pylist()
        return {row["part"]: row["offset_count"] for row in found}

    assert counted() == {"calm": 3, "storm": 5}
    fill(lake, "storm", 7)
    write_delta(lake, "storm", folder)
    assert counted() == {"calm": 3, "storm": 7}
    before = deltalake.DeltaTable(str(folder / "events"), version=1).to_pyarrow_table()
    assert before.num_rows == 8, "readers of before see what was there"
    rows = deltalake.DeltaTable(str(folder / "events")).to_pyarrow_table().to_pylist()
    assert {row["received"] for row in rows} == {WHEN.replace(tzinfo=datetime.UTC)}
    assert rows[0]["headers"] == [{"key": "a", "value": b"b"}]
    with pytest.raises(LocalError, match="has no part 'none'"):
        write_delta(lake, "none", folder)


def test_without_the_library_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before any work is done."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingExtraError, match=r"pip install rumormill\[delta\]"):
        delta_library()
