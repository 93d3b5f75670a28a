"""A standalone cluster of two workers gives the same tables as one process, and uses both."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_samples import SOURCES

from rumormill.spark.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TOOL = SOURCES.parent / "tools" / "spark_cluster.py"

PROGRAM = """
import json, os, sys, time
from rumormill.spark import session
from rumormill.spark.bronze import find_source
from rumormill.spark.grid import Grid
from rumormill.spark.lake import Lake
from rumormill.spark.mill import mill
from rumormill.spark.sweep import sweep

conf = [text for flag, text in zip(sys.argv, sys.argv[1:]) if flag == "--conf"]
master = sys.argv[sys.argv.index("--master") + 1]
spark = session(master, settings=dict(text.split("=", 1) for text in conf))

def where(_):
    time.sleep(0.5)
    return os.environ.get("SPARK_EXECUTOR_DIRS", "one process")

tasks = spark.sparkContext.parallelize(range(8), 8).map(where).collect()
lake = Lake.create("lake")
mill(spark, find_source("storm.ndjson"), lake)
sweep(spark, Grid.load("grid.toml"), lake)
spark.stop()
print(json.dumps(sorted(set(tasks))))
"""


def tables(folder: Path) -> dict[str, list[str]]:
    """Gold of a lake, in an order that does not depend on how tasks ended."""
    lake = Lake.existing(folder / "lake")
    names = ("delivery_quality", "latency_cdf", "overhead", "peer_load", "topic_activity")
    found: dict[str, list[str]] = {}
    for name in names:
        rows = [{key: _plain(value) for key, value in row.items()} for row in lake.rows(name)]
        found[name] = sorted(json.dumps(row) for row in rows)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    # Means are sums in the order of partitions: the last digits depend on it.
    return round(value, 9) if isinstance(value, float) else value


def test_two_workers_give_the_same_as_one_process(tmp_path: Path) -> None:
    """The same mill and sweep; tasks ran on both executors."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    local, cluster = tmp_path / "local", tmp_path / "cluster"
    for folder in (local, cluster):
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        (folder / "grid.toml").write_text(
            'protocols = ["floodsub", "gossipsub"]\nseeds = [1, 2]\n'
            "[base]\npeers = 10\ntopology.degree = 4\nworkload.messages = 5\n"
        )
        simulated = [sys.executable, "-m", "rumormill", "sim", "--peers", "12", "--degree", "4"]
        subprocess.run(
            [*simulated, "--trace", "storm.ndjson"], cwd=folder, check=True, env=environment,
            capture_output=True,
        )  # fmt: skip
    alone = subprocess.run(
        [sys.executable, "program.py", "--master", "local[2]"],
        cwd=local, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    done = subprocess.run(
        [sys.executable, str(TOOL), sys.executable, "program.py"],
        cwd=cluster, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 2, "tasks were seen on both executors"
    assert tables(cluster) == tables(local)
