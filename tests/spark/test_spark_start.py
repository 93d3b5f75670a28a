"""Spark that is interrupted while it starts, or does not start: no Java stays behind.

Whatever a program starts has its environment, and is found by a word in it.
"""

import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import PATIENCE, RUMORMILL, Program, environment
from rumormill.log import EventLog

pytestmark = pytest.mark.xdist_group("spark-apart")

LIBRARY = """
from rumormill.spark import session
try:
    session("local[1]", brief=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
input()
"""

AGAIN = """
from rumormill.spark import session
from rumormill.spark.java_process import end
try:
    session("local[1]", brief=True, settings={"spark.driver.port": "no number"})
except Exception as error:
    print(type(error).__name__, flush=True)
input()
print(session("local[1]", brief=True).range(3).count(), flush=True)
end()
input()
"""


class Family:
    """The processes of a program; its temporary files are in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._mark = uuid.uuid4().hex
        self._folder = folder / "temporary"
        self._folder.mkdir()

    def starts(self, *command: str | Path, cwd: Path, **options: int) -> Program:
        """Start the program, apart: when the test fails, Java ends with it."""
        env = environment(RUMORMILL_FAMILY=self._mark, TMPDIR=str(self._folder))
        return Program(command, env=env, cwd=cwd, start_new_session=True, **options)

    def members(self, word: str = "spark") -> list[str]:
        """The commands of its processes that have a word in them, but for Python's."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                if f"RUMORMILL_FAMILY={self._mark}".encode() in (each / "environ").read_bytes():
                    command = (each / "cmdline").read_bytes().decode()
                    if word in command and not command.startswith(sys.executable):
                        found.append(command)
            except OSError:  # it has ended
                continue
        return found

    def launches(self) -> None:
        """Wait until Spark's script runs, which starts a Java to learn how to start Java."""
        until(lambda: bool(self.members("launcher.Main")), "nothing was launched")

    def begins(self) -> None:
        """Wait until Java runs; it has not told its port yet."""
        until(lambda: bool(self.members("deploy.SparkSubmit")), "Java did not start")

    def connects(self) -> None:
        """Wait until the directory where Java tells its port is gone again."""
        self.begins()
        until(lambda: not [*self._folder.glob("tmp*")], "Java told no port")

    def is_gone(self) -> None:
        """Nothing is left of it: a Java that is on its way out may take a moment."""
        until(lambda: not self.members(), "Java was left behind", 20.0)
        assert not [*self._folder.glob("tmp*")]


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for something that happens in another process."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


MOMENTS = [Family.launches, Family.begins, Family.connects]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_verb_that_is_interrupted_while_spark_starts_leaves_no_java(
    moment: Callable[[Family], None], number: signal.Signals, tmp_path: Path
) -> None:
    """Ctrl-C and SIGTERM, before Java runs, before it has told its port, and after."""
    EventLog(tmp_path / "home").close()
    family = Family(tmp_path)
    with family.starts(*RUMORMILL, "mill", "home", "--to", "lake", cwd=tmp_path) as program:
        moment(family)
        program.process.send_signal(number)
        assert program.process.wait(PATIENCE) == 130
        family.is_gone()
        program.ends()
        assert program.errors[1:] == ["rumormill: interrupted"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_program_that_is_interrupted_while_spark_starts_has_no_java(
    moment: Callable[[Family], None], tmp_path: Path
) -> None:
    """It goes on, and Java is gone."""
    family = Family(tmp_path)
    with family.starts(sys.executable, "-c", LIBRARY, cwd=tmp_path, stdin=-1) as program:
        moment(family)
        program.process.send_signal(signal.SIGINT)
        assert program.hears() == "interrupted"
        family.is_gone()
        program.told("")
        assert program.ends() == 0


def test_a_start_that_failed_leaves_no_java_and_the_next_one_works(tmp_path: Path) -> None:
    """The next one has a Java of its own, which is gone when Spark has been ended."""
    family = Family(tmp_path)
    with family.starts(sys.executable, "-c", AGAIN, cwd=tmp_path, stdin=-1) as program:
        program.hears()
        family.is_gone()
        program.told("")
        assert program.hears() == "3"
        family.is_gone()
        program.told("")
        assert program.ends() == 0
