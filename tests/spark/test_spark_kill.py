"""Exactly once: drivers are killed at random moments while publishing goes on, and the node too.

Each life of a driver lasts until both its queries, one into Parquet and one into a topic, have
planned a batch of their own and a random while longer: so kills strike batches that are planned,
under way, written, committed.

The driver, its JVM and its Python workers are one process group, killed with SIGKILL. Meanwhile a
thread publishes numbered messages through the node. In the end every number is there once: in the
Parquet table as Spark reads it, and in the topic that the sink publishes to.
"""

import json
import operator
import random
import sys
import threading
import time
from pathlib import Path

import pytest
from spark_samples import LiveNode, publish

from processes import PATIENCE, Program
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
        self.join(PATIENCE)


class Driver(Program):
    """A Spark driver in a process group of its own."""

    def __init__(self, node: LiveNode, folder: Path, limit: int = LIMIT) -> None:
        command = [sys.executable, DRIVER, node.endpoint, node.token, folder, str(limit)]
        with (folder / "errors").open("ab") as errors:
            super().__init__(command, stderr=errors, start_new_session=True)

    def wait_until_running(self) -> None:
        assert self.hears() == "running", "the driver failed at once"

    def wait_for_batches(self, folder: Path, seen: list[int]) -> None:
        """Wait until each query has planned a batch of this life, or the driver has failed."""
        while any(map(operator.le, planned(folder), seen)) and self.process.poll() is None:
            time.sleep(0.02)


def planned(folder: Path) -> list[int]:
    """How many batches each query has planned in all its lives."""
    logs = (folder / "checkpoint" / query / "offsets" for query in ("table", "topic"))
    return [1 + max((int(each.name) for each in log.glob("[0-9]*")), default=-1) for log in logs]


def values(home: Path, topic: str) -> list[int]:
    """The numbers in a topic of a log."""
    with EventLog(home, read_only=True) as log:
        return [int(event.data) for chunk in log.chunks(topic) for event in chunk]


def what_failed(errors: Path) -> str:
    """What drivers said in the end, without the frames of Java."""
    lines = errors.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if not line.startswith("\tat ")][-100:])


def stand_kills(folder: Path, kills: int, seed: int, longest: float) -> None:
    """Run both queries under kills until all is processed; hold both ends against the log."""
    rng = random.Random(seed)
    with LiveNode(folder / "home") as node:
        publisher = Publisher(node.home, pause=0.4)
        publisher.start()
        kill_node = rng.randrange(kills)
        for number in range(kills):
            seen = planned(folder)
            with Driver(node, folder) as driver:
                driver.wait_until_running()
                driver.wait_for_batches(folder, seen)
                time.sleep(rng.uniform(0.0, longest))
                if number == kill_node:
                    node.kill()
                    node.start()
                driver.end()  # it may have failed with the node
        publisher.end()
        (folder / "stop").touch()
        with Driver(node, folder, CATCH_UP) as last:
            assert last.ends(600) == 0, what_failed(folder / "errors")
    expected = values(folder / "home", "in")
    assert len(expected) > BATCH, "publishing went on"
    table = json.loads(last.output[-1])
    assert sorted(table) == [[offset, value] for offset, value in enumerate(expected)]
    assert sorted(values(folder / "home", "out")) == sorted(expected)


def test_exactly_once_into_parquet_and_into_a_topic_under_kills(tmp_path: Path) -> None:
    """Two kills of the driver and one of the node."""
    stand_kills(tmp_path, kills=2, seed=1, longest=3.0)


@pytest.mark.slow
def test_exactly_once_under_many_kills(tmp_path: Path) -> None:
    """Ten kills of the driver and one of the node."""
    stand_kills(tmp_path, kills=10, seed=3, longest=3.0)
