"""A Spark cluster on this machine, from the pip package alone: one master, some workers, loopback.

    python tools/spark_cluster.py rumormill mill storm.ndjson --to lake
    python tools/spark_cluster.py --workers 2 rumormill sweep grid.toml --to lake

starts the cluster, runs the command with `--master` and the settings that loopback needs, and ends
the cluster with it. Without a command it prints the master's address and runs until Ctrl-C. It is
what a standalone cluster on several machines is, on one: drivers and workers are processes of their
own, talk over TCP, and share nothing but the file system.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import pyspark

import rumormill
from rumormill.spark.session import find_java

LOOPBACK: Final = "127.0.0.1"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_PATIENCE: Final = 180.0
_SMALL_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Several processes share the machine, and most of what they do is starting up."""

_STARTED: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"


class Cluster:
    """A master and its workers; used as a context, it ends them."""

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self.master = ""
        self._workers, self._cores, self._memory = workers, cores, memory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="spark-cluster-")

    def __enter__(self) -> Self:
        try:
            # Port 0: the operating system chooses, and the master says which.
            log = self._start("master", _MASTER, "--port", "0", "--webui-port", "0")
            self.master = self._wait(log, _STARTED)
            logs = [self._start_worker(number) for number in range(self._workers)]
            for each in logs:
                self._wait(each, re.compile(f"({_REGISTERED})"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    @property
    def settings(self) -> dict[str, str]:
        """What a driver on this machine needs to be reached, and to fit beside the workers."""
        return {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "600m",
            "spark.driver.extraJavaOptions": _SMALL_JAVA,
            "spark.executor.extraJavaOptions": _SMALL_JAVA,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(self._workers * self._cores),
        }

    def _start_worker(self, number: int) -> Path:
        work = Path(self._folder.name) / f"work-{number}"
        return self._start(
            f"worker-{number}", _WORKER, "--port", "0", "--webui-port", "0",
            "--cores", str(self._cores), "--memory", self._memory,
            "--work-dir", str(work), self.master,
        )  # fmt: skip

    def _start(self, name: str, kind: str, *arguments: str) -> Path:
        home = Path(pyspark.__file__).parent
        log = Path(self._folder.name) / f"{name}.log"
        sources = str(Path(rumormill.__file__).parent.parent)
        paths = [sources, *filter(None, [os.environ.get("PYTHONPATH")])]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", kind, "--host", LOOPBACK, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the driver, which still needs them
                env={
                    **os.environ,
                    "SPARK_HOME": str(home),
                    "JAVA_HOME": str(find_java().home),
                    "PYTHONPATH": os.pathsep.join(paths),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": LOOPBACK,  # also where the web pages are served
                    "SPARK_DAEMON_MEMORY": "256m",
                },
            )
        self._processes.append(process)
        return log

    def _wait(self, log: Path, wanted: re.Pattern[str]) -> str:
        """Wait until a process has said something in its log; return what."""
        end = time.monotonic() + _PATIENCE
        process = self._processes[-1]
        while time.monotonic() < end:
            found = wanted.search(log.read_text(errors="replace"))
            if found is not None:
                return found[1]
            if process.poll() is not None:
                break
            time.sleep(0.2)
        tail = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise SystemExit(f"{log.stem} did not start: {' '.join(tail) or 'it said nothing'}")


def main() -> int:
    """Start a cluster, and run a command on it or wait."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="how many workers (2)")
    parser.add_argument("--cores", type=int, default=1, help="cores of each worker (1)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="rumormill mill …, sweep …")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    with Cluster(options.workers, options.cores) as cluster:
        if not options.command:
            sys.stdout.write(f"{cluster.master}\n")
            sys.stdout.flush()
            try:
                while True:
                    time.sleep(3600)
            except KeyboardInterrupt:
                return 0
        given = [f"{key}={value}" for key, value in cluster.settings.items()]
        flags = ["--master", cluster.master, *(word for text in given for word in ("--conf", text))]
        command = options.command
        if command[0] == "rumormill":
            command = [sys.executable, "-m", *command]
        environment = {**os.environ, "PYTHONPATH": str(Path(rumormill.__file__).parent.parent)}
        with subprocess.Popen([*command, *flags], env=environment) as driver:
            try:
                while True:
                    # Ctrl-C reaches the driver too, which ends in its own way.
                    with contextlib.suppress(KeyboardInterrupt):
                        return driver.wait()
            except SystemExit:
                driver.terminate()
                raise


def _end(*_: object) -> None:
    """Leave no process behind when this one is told to end."""
    raise SystemExit(143)


if __name__ == "__main__":
    raise SystemExit(main())
