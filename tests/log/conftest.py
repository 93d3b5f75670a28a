"""A store to damage."""

import shutil

import pytest


@pytest.fixture
def store(pristine, tmp_path):
    """A copy of what a module calls `pristine`."""
    return shutil.copytree(pristine, tmp_path / "store")
