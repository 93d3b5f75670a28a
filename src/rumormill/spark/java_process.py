"""Java as a process of ours: known from its first moment, ended, and waited for.

PySpark keeps the process that it starts to itself until Java has told its port. What is raised
before that, Ctrl-C most of all, leaves a Java that nobody knows of: it misses the directory where
it would have told its port, and stays for ever. So PySpark is given a `Popen` that notes what it
starts. The rule: a start that fails leaves no Java behind, and who ends Spark waits for its Java.
"""

import contextlib
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

_ENDS_WITHIN: Final = 60.0
"""Seconds that Java has to clean up behind Spark; our choice."""

_starting: Final = threading.Lock()


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Start Spark in here: if anything is raised, the Java that was started for it is ended."""
    from pyspark import java_gateway  # noqa: PLC0415

    started: list[subprocess.Popen[bytes]] = []

    def start(*command: Any, **settings: Any) -> subprocess.Popen[bytes]:
        # In a thread of its own: signals are handled in the main one, where an exception could
        # come between the start of the process and the note of it.
        return pool.submit(note, *command, **settings).result()

    def note(*command: Any, **settings: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*command, **settings))
        return started[-1]

    with _starting, ThreadPoolExecutor(1) as pool:
        java_gateway.Popen = start  # type: ignore[assignment, attr-defined]
        try:
            yield
        except BaseException:
            pool.shutdown()
            for java in started:
                java.terminate()
            if started:
                end()
            for java in started:  # also where PySpark had not heard of it yet
                _await_end(java)
            raise
        finally:
            java_gateway.Popen = subprocess.Popen  # type: ignore[attr-defined]


def end() -> None:
    """Stop Spark, if it runs, and wait until its Java is gone, which would outlive us for a moment.

    PySpark forgets both, so that the next session starts anew.
    """
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession, SQLContext  # noqa: PLC0415

    if (context := SparkContext._active_spark_context) is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that Java is gone already
            context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        SparkContext._gateway = SparkContext._jvm = None
        _await_end(java)


def _await_end(java: subprocess.Popen[bytes]) -> None:
    assert java.stdin is not None
    java.stdin.close()  # by which it knows that nobody needs it any more
    try:
        java.wait(_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
