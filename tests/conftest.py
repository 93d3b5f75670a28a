"""What tests share: Hypothesis' settings, signals, the watch over event loops, homes, one Spark."""

import gc
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import loop_watch

pytest.register_assert_rewrite("live_nodes", "processes")

from processes import SOURCES  # noqa: E402 (whose assertions are explained too)
from rumormill.log import EventLog  # noqa: E402
from rumormill.protocols.registry import PROTOCOL_NAMES, protocol  # noqa: E402

settings.register_profile(
    "fast",
    max_examples=60,
    deadline=None,
    derandomize=True,  # a change fails by what it changes, not by the day on which it is tested
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", parent=settings.get_profile("fast"), max_examples=2000, derandomize=False
)
settings.load_profile("fast")

_ended = itertools.count(1)

loop_watch.install()
for _name in PROTOCOL_NAMES:
    protocol(_name)  # imported when asked for; here, before any loop is watched

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # `nohup make test &`: this process is to live on when others get Ctrl-C, but the programs that
    # tests start and interrupt are not. They would inherit an ignored signal, but no handler.
    signal.signal(signal.SIGINT, lambda *_: None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write the group of a test behind its id, where `--dist loadgroup` looks for it.

    pytest-xdist 3.8 does so itself, but in a place that pytest 9.2 does not read (its issue 1386).
    """
    for item in items if config.getoption("loadgroup", False) else ():
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and not item.nodeid.endswith(f"@{mark.args[0]}"):
            item._id = type(item._id).parse(f"{item.nodeid}@{mark.args[0]}")


def pytest_collection() -> None:
    """Everything that is collected stays to the end; there is no garbage among it."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays to the end: a node's loop would wait for it."""
    gc.freeze()
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Now and then also what has come to stay since: modules that tests import, and caches."""
    if next(_ended) % 50 == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Fail a test for what its event loops did behind its back."""
    yield from _held_against_the_watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Likewise for nodes that a fixture closes."""
    yield from _held_against_the_watch()


def _held_against_the_watch() -> Iterator[None]:
    try:
        yield
        assert not loop_watch.faults, "\n".join(loop_watch.faults)
    finally:
        loop_watch.faults.clear()


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that does not exist yet; its path is short, as a Unix socket's must be."""
    return tmp_path_factory.mktemp("h") / "home"


@pytest.fixture
def log(home: Path) -> Iterator[EventLog]:
    """An empty log in the home."""
    with EventLog(home) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Spark with two cores, for all tests of a process; its Python workers use this tree.

    It interprets queries instead of compiling them: no test has as many rows as that pays for.
    """
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
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    yield started
    started.stop()
