"""Streams into the lake: every batch is worked through once, whatever happens between batches."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from mill_samples import append
from verify_samples import gossipsub, kept, pulsarcast

from rumormill.core.errors import LocalError
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario, Topology
from rumormill.spark.bronze import Source, find_source
from rumormill.spark.lake import Lake

pytestmark = pytest.mark.xdist_group("spark")


def files_of(lake: Lake, table: str) -> dict[int, Path]:
    """A table's Parquet files, by what tells a file from its copy."""
    [folder] = lake.folders(table)
    return {path.stat().st_ino: path for path in folder.glob("*.parquet")}


def spans_of(lake: Lake) -> list[str]:
    """The directories of the stream `live`."""
    return sorted(each.name for each in (lake.path / ".streams/live/batches").iterdir())


def batches(spark: Any, home: Path) -> Any:
    """A function that gives a range of a store as Spark would give a micro-batch."""
    from rumormill.spark.bronze import EVERYTHING

    everything = spark.read.format("rumormill").option("home", str(home)).options(**EVERYTHING)

    def between(start: int, stop: int) -> Any:
        return everything.load().where(f"offset >= {start} AND offset < {stop}")

    return between


def test_a_stream_takes_every_event_once(spark: Any, tmp_path: Path) -> None:
    """It goes on where it was, verifies what is new, and a batch that is played again adds
    nothing."""
    from rumormill.spark.streaming import Stream

    home, lake = tmp_path / "home", Lake.create(tmp_path / "lake")
    events = [kept("gossipsub", event, number) for number, event in enumerate(gossipsub(9))]
    append(home, events[:5])
    source = find_source(str(home), name="live")
    Stream(spark, source, lake).start(once=True).awaitTermination()
    assert sorted(row["offset"] for row in lake.rows("events")) == list(range(5))
    before = files_of(lake, "events")
    verdicts = lake.path / ".streams/live/batches/batch-00000000-00000000/verdicts"
    [verified_before] = [path.stat().st_mtime_ns for path in verdicts.glob("*.parquet")]

    append(home, events[5:])
    stream = Stream(spark, source, lake)
    stream.start(once=True).awaitTermination()
    assert sorted(row["offset"] for row in lake.rows("events")) == list(range(9))
    assert files_of(lake, "events").keys() > before.keys()
    assert [path.stat().st_mtime_ns for path in verdicts.glob("*.parquet")] == [verified_before]
    [health] = lake.rows("dag_health")
    assert (health["events"], health["valid"]) == (9, 9)
    # Spark repeats a batch whose end it did not get to note: the same rows under the same number.
    stream.take(spark.createDataFrame([], stream._found().schema), 1)
    assert sorted(row["offset"] for row in lake.rows("events")) == list(range(9))


def test_links_are_followed_across_batches(spark: Any, tmp_path: Path) -> None:
    """A parent that comes in a later batch is not missing any more: as if all were read at once."""
    from rumormill.spark.mill import mill
    from rumormill.spark.streaming import Stream

    home, lake = tmp_path / "home", Lake.create(tmp_path / "lake")
    history = pulsarcast(6, fork_at=3)
    shuffled = [history[place] for place in (0, 3, 1, 2, *range(4, len(history)))]
    append(home, [kept("pulsarcast", event, number) for number, event in enumerate(shuffled)])
    source, between = find_source(str(home), name="live"), batches(spark, home)
    stream = Stream(spark, source, lake)
    stream.take(between(0, 2), 0)
    [health] = lake.rows("dag_health")
    assert (health["gaps"], health["is_whole"]) == (1, False)
    stream.take(between(2, len(shuffled)), 1)
    once = Lake.create(tmp_path / "once")
    mill(spark, source, once)
    assert lake.rows("dag_health") == once.rows("dag_health")
    assert lake.rows("dag_health")[0]["is_whole"]
    for table in ("events", "events_verified", "topic_activity", "runs"):
        found, expected = ([repr(row) for row in each.rows(table)] for each in (lake, once))
        assert sorted(found) == sorted(expected)


def test_batches_are_merged_and_none_is_lost(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that there are never many; what a kill leaves of merged ones goes."""
    from rumormill.spark import streaming

    monkeypatch.setattr(streaming, "_MERGED", 2)
    home, lake = tmp_path / "home", Lake.create(tmp_path / "lake")
    append(home, [kept("gossipsub", event, number) for number, event in enumerate(gossipsub(5))])
    source, between = find_source(str(home), name="live"), batches(spark, home)
    stream = streaming.Stream(spark, source, lake)
    seen = []
    for number, (start, stop) in enumerate(itertools.pairwise((0, 1, 2, 4, 5))):
        stream.take(between(start, stop), number)
        seen.append(spans_of(lake))
    one, two = "batch-00000000-00000000", "batch-00000000-00000001"
    assert seen == [
        [one],
        [two],
        [two, "batch-00000002-00000002"],
        ["batch-00000000-00000003"],
    ]
    # As if the process had died before it removed what it had merged.
    left = lake.path / ".streams/live/batches" / one
    (left / "events").mkdir(parents=True)
    (lake.path / ".streams/live/batches/.batch-00000002-00000003").mkdir()
    streaming.Stream(spark, source, lake).take(between(0, 1), 0)
    assert not left.exists()
    assert sorted(row["offset"] for row in lake.rows("events")) == list(range(5))
    assert len(lake.rows("events_verified")) == 5


def test_a_batch_that_is_not_there_is_no_hole(spark: Any, tmp_path: Path) -> None:
    """Somebody removed batches and left Spark's checkpoint: the stream says so."""
    from rumormill.spark.streaming import Stream

    lake = Lake.create(tmp_path / "lake")
    stream = Stream(spark, Source("live", "home", options={"home": "home"}), lake)
    with pytest.raises(LocalError) as caught:
        stream.take(None, 3)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "batches 0 to 2 of the stream live are not in "
        f"{lake.path}/.streams/live/batches: remove {lake.path}/.streams/live to read the source"
        " from its beginning"
    )
    assert not lake.parts()
    for span in ("batch-00000000-00000001", "batch-00000003-00000003"):
        (lake.path / ".streams/live/batches" / span).mkdir(parents=True)
    with pytest.raises(LocalError, match=r"^batches 2 to 2 of the stream live are not in "):
        stream.take(None, 4)  # type: ignore[arg-type]


def test_batches_without_a_checkpoint_are_not_gone_on_with(spark: Any, tmp_path: Path) -> None:
    """Spark would count from 0 again, and its batches would be taken for those that are kept."""
    from rumormill.spark.streaming import Stream

    lake = Lake.create(tmp_path / "lake")
    (lake.path / ".streams/live/batches/batch-00000000-00000000").mkdir(parents=True)
    stream = Stream(spark, Source("live", "home", options={"home": "home"}), lake)
    with pytest.raises(LocalError, match=r"the stream live has batches and no .*checkpoint, which"):
        stream.start(once=True)


def test_a_stream_of_trace_files_keeps_its_windows(spark: Any, tmp_path: Path) -> None:
    """Figures of files that were read before have the length of window they were made with."""
    from rumormill.spark.streaming import Stream

    folder, lake = tmp_path / "traces", Lake.create(tmp_path / "lake")
    folder.mkdir()
    run_scenario(Scenario(peers=4, topology=Topology(degree=2)), trace=folder / "one.pb")
    source = find_source(str(folder))
    Stream(spark, source, lake)._check_window()
    Stream(spark, source, lake)._check_window()
    with pytest.raises(LocalError, match="--window: the stream traces has windows of 1 s; give"):
        Stream(spark, source, lake, window=0.5).start(once=True)


@pytest.mark.slow
def test_a_stream_of_trace_files_takes_every_file_once(spark: Any, tmp_path: Path) -> None:
    """Each file that is added to the directory becomes a run; those before are not milled again."""
    from rumormill.spark.streaming import Stream

    folder, lake = tmp_path / "traces", Lake.create(tmp_path / "lake")
    folder.mkdir()
    figures = {}
    milled: dict[int, Path] = {}
    for number, name in enumerate(("one", "two")):
        scenario = Scenario(peers=8, seed=number, topology=Topology(degree=4))
        figures[f"traces/{name}"] = run_scenario(scenario, trace=folder / f"{name}.pb")
        Stream(spark, find_source(str(folder)), lake).start(once=True).awaitTermination()
        rows = [row for row in lake.rows("delivery_quality") if row["scope"] == "run"]
        assert {row["run"]: row["delivered"] for row in rows} == {
            run: each["delivered"] for run, each in figures.items()
        }
        assert files_of(lake, "deliveries").keys() > milled.keys()
        milled = files_of(lake, "deliveries")
    assert {row["protocol"] for row in lake.rows("runs")} == {"gossipsub"}
    assert sorted(row["run"] for row in lake.rows("runs")) == ["traces/one", "traces/two"]
