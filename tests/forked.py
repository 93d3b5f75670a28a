"""Commands without the time that Python and the package need to start, which is most of theirs.

A process that has imported what verbs need, and has done nothing else, forks for every command.
From there on the child is `python -m rumormill`: it has its own environment, directory, files,
process id and end. The rule: what is about the start itself (a hash seed, a path, the first import)
is a matter for a new Python, and `processes` starts one.
"""

import atexit
import functools
import gc
import importlib
import os
import pickle
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_FILES = 5
"""What comes with a command: itself, its stdin, stdout and stderr, and where its end is told."""


class Child:
    """A command that runs, with what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None,
        files: tuple[IO[Any], IO[Any], IO[Any]],
    ) -> None:
        self.args = ["rumormill", *arguments]
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._told, tells = os.pipe()
        try:
            with tempfile.TemporaryFile() as asked:
                pickle.dump(
                    (
                        [os.fsencode(each) for each in arguments],
                        {os.fsencode(key): os.fsencode(value) for key, value in env.items()},
                        os.fsencode(cwd or os.getcwd()),
                    ),
                    asked,
                )
                asked.seek(0)
                _parent().fork([asked.fileno(), *(each.fileno() for each in files), tells])
        finally:
            os.close(tells)
        self.pid = self._hears()

    def _hears(self) -> int:
        told = os.read(self._told, 4)
        assert len(told) == 4, "the process that forks has died"
        return int.from_bytes(told, signed=True)

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit code, or minus the signal that ended it."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], seconds)[0]:
            self.returncode = self._hears()
            os.close(self._told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The process that forks, as the tests' process sees it."""

    def __init__(self) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        source = Path(__file__).resolve().parents[1] / "src"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(source)},
            )
        atexit.register(self._close)

    def fork(self, files: Sequence[int]) -> None:
        with self._lock:
            socket.send_fds(self._door, [b"."], files)

    def _close(self) -> None:
        self._door.close()
        self._process.wait()


@functools.cache
def _parent() -> _Parent:
    return _Parent()


# In the process that forks.


def _prepare() -> None:
    """Import what commands import, but what would start threads."""
    from rumormill.cli.parser import MODULES
    from rumormill.protocols.registry import PROTOCOL_NAMES, protocol

    for module in MODULES:
        importlib.import_module(module)
    for name in PROTOCOL_NAMES:
        protocol(name)
    importlib.import_module("rumormill.node.node")
    importlib.import_module("rumormill.sim.simulation")
    assert threading.active_count() == 1
    gc.freeze()


def _serve(door: socket.socket) -> list[str]:
    """Fork for every command that comes; return its arguments, in its process alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for a command end by themselves
    while True:
        asked, files, _, _ = socket.recv_fds(door, 1, _FILES)
        if not asked:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            door.close()
            return _begin(*files)
        for each in files:
            os.close(each)


def _begin(asked: int, stdin: int, stdout: int, stderr: int, tells: int) -> list[str]:
    """Be the command, in a child; and here wait for it, and tell how it ended."""
    if pid := os.fork():
        for each in (asked, stdin, stdout, stderr):
            os.close(each)
        os.write(tells, pid.to_bytes(4, signed=True))
        _, status = os.waitpid(pid, 0)
        os.write(tells, os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
        os._exit(0)
    os.close(tells)
    for number, each in enumerate((stdin, stdout, stderr)):
        os.dup2(each, number)
        os.close(each)
    with os.fdopen(asked, "rb") as file:
        arguments, env, cwd = pickle.load(file)
    os.environb.clear()
    os.environb.update(env)
    os.chdir(cwd)
    random.seed()
    return [os.fsdecode(each) for each in arguments]


if __name__ == "__main__":
    _prepare()
    sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    from rumormill.cli import main

    sys.exit(main())
