"""The lake's section: what files say of tables and queries."""

import json
import os
from pathlib import Path

import pytest

from live_nodes import run
from rumormill.dashboard import lake
from rumormill.dashboard.lake import WithLake, read_lake, with_lags
from rumormill.dashboard.node_source import NodeSource
from rumormill.dashboard.source import Look, wanted_sections
from rumormill.node.node import Node


def write_checkpoint(folder: Path, batch: int, offsets: dict[str, object]) -> None:
    """As Spark leaves one: what is planned, and what is done."""
    for part in ("offsets", "commits"):
        (folder / part).mkdir(parents=True)
        for number in range(batch + 1):
            text = f"v1\n{{}}\n{json.dumps(offsets)}\n" if part == "offsets" else "v1\n{}\n"
            (folder / part / str(number)).write_text(text)
            (folder / part / f".{number}.crc").write_bytes(b"")


def test_tables_and_queries_are_found(tmp_path: Path) -> None:
    """Rows as Parquet counts them, versions of parts and of Delta, queries by their checkpoints."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    version = tmp_path / ".versions" / "storm~1" / "deliveries"
    version.mkdir(parents=True)
    for number in range(2):
        parquet.write_table(pa.table({"x": [1, 2, 3]}), version / f"{number}.parquet")
    (version / "_SUCCESS").touch()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "storm").symlink_to(version.parent)
    delta = tmp_path / "events"
    (delta / "_delta_log").mkdir(parents=True)
    for number in range(3):
        (delta / "_delta_log" / f"{number:020d}.json").write_text("{}")
    write_checkpoint(tmp_path / ".streams" / "home" / "checkpoint", 4, {"news": 7, "other": 1})
    write_checkpoint(tmp_path / "checkpoints" / "q", 0, {"news": {"0": 3, "1": 5}})
    found = read_lake(tmp_path)
    tables = {table["name"]: table for table in found["tables"]}
    assert {*tables} == {"deliveries", "events"}
    assert (tables["deliveries"]["rows"], tables["deliveries"]["version"]) == (6, "storm~1")
    assert tables["deliveries"]["bytes"] > 0
    assert tables["events"]["version"] == 2
    shown = with_lags(found, {"news": 10})
    queries = {query["name"]: query for query in shown["queries"]}
    assert queries[".streams/home"]["lag"] == {"news": 3}
    assert queries["q"]["lag"] == {"news": 5}
    assert (queries["q"]["batch"], queries["q"]["running"]) == (0, False)


def test_what_is_damaged_or_too_much_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "a", 1, {})
    (tmp_path / "a" / "offsets" / "1").write_text("nonsense")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.parquet").write_bytes(b"no parquet")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = read_lake(tmp_path)
    assert found["queries"][0]["offsets"] == {}
    assert found["tables"][0]["rows"] is None
    monkeypatch.setattr(lake, "MAX_FOLDERS", 1)
    nothing = {"tables": [], "queries": [], "rejected": {}, "not_checked": 0}
    assert read_lake(tmp_path) == nothing
    assert read_lake(tmp_path / "nowhere") == nothing


def test_rejected_events_are_counted_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `events_verified` has them, of all parts; a file is read again when it has changed."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def write(part: str, faults: list[str | None]) -> None:
        folder = tmp_path / "parts" / part / "events_verified"
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": [b"x"] * len(faults), "fault": pa.array(faults, pa.string())})
        parquet.write_table(table, folder / "0.parquet")

    write("a", ["bad-signature", None, "bad-signature"])
    write("b", [None, "wrong-id"])
    assert read_lake(tmp_path)["rejected"] == {"bad-signature": 2, "wrong-id": 1}
    write("b", [None, None, None])
    assert read_lake(tmp_path)["rejected"] == {"bad-signature": 2}
    (tmp_path / "parts" / "b" / "events_verified" / "0.parquet").write_bytes(b"no parquet")
    assert read_lake(tmp_path)["rejected"] == {"bad-signature": 2}
    monkeypatch.setattr(lake, "MAX_CHECKED", 2)
    found = read_lake(tmp_path)
    assert (found["rejected"], found["not_checked"]) == ({}, 1)


def test_a_query_s_speed_is_that_of_its_last_batch(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    write_checkpoint(folder, 1, {"news": 100, "other": 20})
    (folder / "offsets" / "0").write_text('v1\n{}\n{"news": 40}\n')
    os.utime(folder / "offsets" / "1", (1000.0, 1000.0))
    os.utime(folder / "commits" / "1", (1004.0, 1004.0))
    (query,) = read_lake(tmp_path)["queries"]
    assert (query["batch_seconds"], query["rows_per_second"]) == (4.0, 20.0)


def test_a_node_is_shown_with_its_lake(tmp_path: Path) -> None:
    """The lag of a query is what the log has beyond its checkpoint."""
    write_checkpoint(tmp_path / "q", 0, {"news": 1})

    async def story() -> None:
        async with Node(None) as node:
            await node.create_topic("news")
            for word in ("one", "two", "three"):
                await node.publish("news", word)
            source = WithLake(NodeSource(node, "gossipsub"), tmp_path)
            found = await source.look(Look(sections=wanted_sections(["lake"])))
            assert found["lake"]["queries"][0]["lag"] == {"news": 2}
            await source.close()

    run(story)
