"""A store to read."""

from pathlib import Path

import pytest
from spark_samples import fill

from rumormill.log import EventLog


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 100 events in `news` and 40 in `chat`; nobody changes it."""
    home = tmp_path_factory.mktemp("spark-store") / "home"
    with EventLog(home) as log:
        fill(log, "news", 100)
        fill(log, "chat", 40)
    return home
