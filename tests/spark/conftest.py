"""One Spark session for all tests that need one, and a store to read."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark_samples import fill

from processes import SOURCES
from rumormill.log import EventLog


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Spark with two cores; its Python workers use this tree."""
    from rumormill.spark import session

    os.environ["PYTHONPATH"] = str(SOURCES)
    folder = tmp_path_factory.mktemp("spark")
    started = session(
        "local[2]",
        brief=True,
        settings={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.memory": "1g",
        },
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 100 events in `news` and 40 in `chat`; nobody changes it."""
    home = tmp_path_factory.mktemp("spark-store") / "home"
    with EventLog(home) as log:
        fill(log, "news", 100)
        fill(log, "chat", 40)
    return home
