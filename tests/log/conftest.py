"""Logs for the tests of the store."""

import shutil

import pytest

from rumormill.log import EventLog


@pytest.fixture
def home(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def log(home):
    with EventLog(home) as opened:
        yield opened


@pytest.fixture
def store(pristine, tmp_path):
    """A copy of what a module calls `pristine`, to be damaged."""
    return shutil.copytree(pristine, tmp_path / "store")
