"""A session's set-up: which Spark it takes, whose settings hold. None of this starts Spark."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError

import pytest

from rumormill.core.errors import LocalError
from rumormill.spark import session

module = import_module("rumormill.spark.session")


@pytest.mark.parametrize("found", ["3.5.1", "4.0.2", "4.1.4"])
def test_a_spark_without_read_limits_is_refused(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence that names both versions and says what to do."""
    monkeypatch.setattr(module, "version", lambda _: found)
    with pytest.raises(LocalError, match=f"needs Spark 4.2 or newer and finds {found}: run pip"):
        session()


def test_a_missing_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the extra."""

    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(module, "version", missing)
    with pytest.raises(LocalError, match=r"Spark is not installed: run pip install .*\[spark\]"):
        session()


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("local[0]", 1)]
)
def test_shuffles_have_as_many_parts_as_a_local_master_has_cores(master: str, cores: int) -> None:
    assert module._chosen(master, False, {})["spark.sql.shuffle.partitions"] == str(cores)


def test_settings_of_the_caller_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours fill what is open; on a cluster nothing is said about the driver's address."""
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    chosen = module._chosen("local[2]", False, {"spark.driver.memory": "9g"})
    assert chosen["spark.driver.memory"] == "9g"
    assert chosen["spark.driver.host"] == "127.0.0.1"
    assert chosen["spark.executorEnv.PYTHONPATH"].endswith("/somewhere")
    assert "spark.driver.host" not in module._chosen("spark://far:7077", False, {})
