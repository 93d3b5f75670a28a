"""A place for the nodes that the command starts."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that does not exist yet; its path is short, as a Unix socket's must be."""
    return tmp_path_factory.mktemp("h") / "home"
