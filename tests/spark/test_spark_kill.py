"""Exactly once: drivers are killed at random moments while publishing goes on, and the node too.

Each life of a driver lasts until it has planned a batch of its own and a random while longer: so
kills strike batches that are planned, under way, written, committed.

The driver, its JVM and its Python workers are one process group, killed with SIGKILL. Meanwhile a
thread publishes numbered messages through the node. In the end every number is there once: in the
Parquet table as Spark reads it, and in the topic that the sink publishes to.
"""

import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from spark_samples import LiveNode, publish

from processes import Program
from rumormill.daemon.control_client import NoDaemonError
from rumormill.daemon.control_messages import ControlError
from rumormill.log import EventLog

pytestmark = pytest.mark.xdist_group("spark-apart")

DRIVER = Path(__file__).with_name("kill_driver.py")
BATCH = 20
LIMIT = 200
"""Events in a batch of the stream: small, so that kills strike all parts of many batches."""
CATCH_UP = 5000


class Publisher(threading.Thread):
    """Publishes numbers in `in` until told to stop; one that is not acknowledged is sent again."""

    def __init__(self, home: Path, pause: float) -> None:
        super().__init__(daemon=True)
        self._home = home
        self._pause = pause
        self._enough = threading.Event()
        self.failures = 0

    def run(self) -> None:
        number = 0
        while not self._enough.is_set():
            data = [b"%d" % each for each in range(number, number + BATCH)]
            try:
                publish(self._home, "in", data)
            except (NoDaemonError, ControlError, OSError):
                self.failures += 1  # the node is down
            else:
                number += BATCH
            self._enough.wait(self._pause)

    def end(self) -> None:
        self._enough.set()
        self.join(60)


class Driver(Program):
    """A Spark driver in a process group of its own."""

    def __init__(self, kind: str, node: LiveNode, folder: Path, limit: int = LIMIT) -> None:
        command = [sys.executable, DRIVER, kind, node.endpoint, node.token, folder, str(limit)]
        with (folder / "errors").open("ab") as errors:
            super().__init__(command, stderr=errors, start_new_session=True)

    def wait_until_running(self) -> None:
        assert self.hears() == "running", "the driver failed at once"

    def wait_for_batch(self, folder: Path, seen: int) -> None:
        """Wait until a batch beyond those that were planned before is, or the driver has failed."""
        while planned(folder) <= seen and self.process.poll() is None:
            time.sleep(0.02)


def planned(folder: Path) -> int:
    """How many batches Spark has planned in all its lives."""
    numbers = [int(each.name) for each in (folder / "checkpoint" / "offsets").glob("[0-9]*")]
    return 1 + max(numbers, default=-1)


def stand_kills(kind: str, folder: Path, kills: int, seed: int, longest: float) -> LiveNode:
    """Run a query under kills until everything is processed; return the node, still running."""
    rng = random.Random(seed)
    node = LiveNode(folder / "home")
    node.start()
    publisher = Publisher(node.home, pause=0.4)
    publisher.start()
    kill_node = rng.randrange(kills)
    for number in range(kills):
        seen = planned(folder)
        driver = Driver(kind, node, folder)
        driver.wait_until_running()
        driver.wait_for_batch(folder, seen)
        time.sleep(rng.uniform(0.0, longest))
        if number == kill_node:
            node.kill()
            node.start()
        driver.kill()
    publisher.end()
    (folder / "stop").touch()
    last = Driver(kind, node, folder, CATCH_UP)
    assert last.ends(600) == 0, (folder / "errors").read_text()[-3000:]
    return node


def values(home: Path, topic: str) -> list[int]:
    """The numbers in a topic of a log."""
    with EventLog(home, read_only=True) as log:
        return [int(event.data) for chunk in log.chunks(topic) for event in chunk]


def check_source(spark: Any, folder: Path, kills: int, seed: int, longest: float) -> None:
    node = stand_kills("source", folder, kills, seed, longest)
    node.kill(signal.SIGTERM)
    expected = values(node.home, "in")
    rows = spark.read.parquet(str(folder / "table")).select("offset", "value").collect()
    assert sorted(row.offset for row in rows) == list(range(len(expected)))
    assert all(int(bytes(row.value)) == expected[row.offset] for row in rows)
    assert len(expected) > BATCH, "publishing went on"


def check_sink(folder: Path, kills: int, seed: int, longest: float) -> None:
    node = stand_kills("sink", folder, kills, seed, longest)
    node.kill(signal.SIGTERM)
    expected = values(node.home, "in")
    assert sorted(values(node.home, "out")) == sorted(expected)
    assert len(expected) > BATCH, "publishing went on"


def test_exactly_once_into_parquet_under_kills(spark: Any, tmp_path: Path) -> None:
    """Two kills of the driver and one of the node."""
    check_source(spark, tmp_path, kills=2, seed=1, longest=3.0)


def test_exactly_once_into_a_topic_under_kills(tmp_path: Path) -> None:
    """Two kills of the driver and one of the node."""
    check_sink(tmp_path, kills=2, seed=2, longest=3.0)


@pytest.mark.slow
def test_exactly_once_into_parquet_under_many_kills(spark: Any, tmp_path: Path) -> None:
    """Ten kills of the driver and one of the node."""
    check_source(spark, tmp_path, kills=10, seed=3, longest=3.0)


@pytest.mark.slow
def test_exactly_once_into_a_topic_under_many_kills(tmp_path: Path) -> None:
    """Ten kills of the driver and one of the node."""
    check_sink(tmp_path, kills=10, seed=4, longest=3.0)
