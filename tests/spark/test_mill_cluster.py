"""A standalone cluster of two workers gives the same tables as one process, and uses both."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_driver import work
from verify_samples import MAKERS, kept

from processes import SOURCES, environment, rumormill
from rumormill.log import EventLog
from rumormill.spark.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TOOL = SOURCES.parent / "tools" / "spark_cluster.py"
DRIVER = Path(__file__).with_name("cluster_driver.py")
COMPARED = (
    "runs", "delivery_quality", "latency_cdf", "overhead", "peer_load", "topic_activity",
    "events_verified", "dag_health", "sync_sessions",
)  # fmt: skip


def tables(folder: Path) -> dict[str, list[str]]:
    """What a lake says, in an order that does not depend on how tasks ended."""
    lake = Lake.existing(folder / "lake")
    found: dict[str, list[str]] = {}
    for name in COMPARED:
        rows = [{key: _plain(value) for key, value in row.items()} for row in lake.rows(name)]
        # Where a run came from is a path, and the folders of the two lakes differ.
        found[name] = sorted(json.dumps({**row, "source": None}) for row in rows)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    # Means are sums in the order of partitions: the last digits depend on it.
    return value if isinstance(value, int | None) else _rounded(value)


def _rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else str(value)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A trace, a grid and a store with events of every protocol."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "grid.toml").write_text(
        'protocols = ["floodsub", "gossipsub"]\nseeds = [1, 2]\n'
        "[base]\npeers = 10\ntopology.degree = 4\nworkload.messages = 5\n"
    )
    done = rumormill("sim", "--peers", "12", "--degree", "4", "--trace", "storm.ndjson", cwd=folder)
    assert done.returncode == 0, done.stderr
    with EventLog(folder / "home") as log:
        for protocol, make in MAKERS.items():
            events = [kept(protocol, event, number) for number, event in enumerate(make(8))]
            log.append(events).result()
    return folder


def test_two_workers_give_the_same_as_one_process(spark: Any, sources: Path) -> None:
    """The same mill, sweep and stream; tasks ran on both executors."""
    alone, together = sources.with_name("alone"), sources.with_name("together")
    for folder in (alone, together):
        shutil.copytree(sources, folder)
    assert work(spark, alone) == {"plain": ["one process"], "reading": ["one process"]}
    done = subprocess.run(
        [sys.executable, str(TOOL), sys.executable, str(DRIVER), str(together)],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    places = json.loads(done.stdout)
    assert len(places["plain"]) == 2, "tasks were seen on both executors"
    assert len(places["reading"]) == 2, "and those that read a topic"
    expected = tables(alone)
    assert all(expected.values()), "there is something to compare in every table"
    assert tables(together) == expected
