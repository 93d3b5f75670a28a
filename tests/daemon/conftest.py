"""Logs for the tests of what serves them."""

import pytest

from rumormill.log import EventLog


@pytest.fixture
def home(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def log(home):
    with EventLog(home) as opened:
        yield opened
