"""Commands without the time that Python and the package need to start, which is most of theirs.

A process that has imported what verbs need, and has done nothing else, forks for every command.
From there on the child is `python -m rumormill`: it has its own environment, directory, files,
process id and end. Or it is `python -W error -c TEXT`, in which the package is imported already.
The rule: what is about the start itself (a hash seed, a path, the first import) is a matter for a
new Python, and `processes` starts one.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import marshal
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ask_fork import ask, hear

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
        self._told = ask(
            door(),
            [os.fsencode(each) for each in arguments],
            {os.fsencode(key): os.fsencode(value) for key, value in env.items()},
            os.fsencode(cwd or os.getcwd()),
            [each.fileno() for each in files],
        )
        self.pid = hear(self._told)

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
            self.returncode = hear(self._told)
            os.close(self._told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its end is not told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


@functools.cache
def door() -> socket.socket:
    """Where one asks for a command: the other end is in the process that forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    source = Path(__file__).resolve().parents[1] / "src"
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(source)},
        )

    def close() -> None:
        ours.shutdown(socket.SHUT_RDWR)  # whoever else has it
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


# In the process that forks.


def _prepare() -> None:
    """Import what commands import, but what would start threads."""
    import rumormill
    from rumormill.cli.parser import MODULES
    from rumormill.protocols.registry import PROTOCOL_NAMES, protocol

    for module in MODULES:
        importlib.import_module(module)
    for name in PROTOCOL_NAMES:
        protocol(name)
    for name in rumormill.__all__:
        getattr(rumormill, name)
    importlib.import_module("rumormill.sim.simulation")
    assert threading.active_count() == 1
    gc.freeze()


def _serve(door: socket.socket) -> list[str]:
    """Fork for every command that comes; return its arguments, in its process alone."""
    signal.signal(signal.SIGCHLD, _count)
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


def _count(*_: object) -> None:
    """Take note of those that waited for a command and have ended: so that what commands cost is
    counted, by `time make test` too, as what this process's children used."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


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
        arguments, env, cwd = marshal.load(file)
    os.environb.clear()
    os.environb.update(env)
    os.chdir(cwd)
    random.seed()
    return [os.fsdecode(each) for each in arguments]


def _leave(code: int, names: dict[str, str] | None = None) -> None:
    """End at once with this code, as Python would in the end.

    It would take all modules apart before, in pages that were shared with the parent until then:
    that is most of what a command costs. A program's own `names` are, so that what it has left
    open complains.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if names is not None:
        names.clear()
    gc.collect()
    with contextlib.suppress(OSError, ValueError):  # Python complains of those
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main() -> int | None:
    _prepare()
    words = _serve(socket.socket(fileno=int(sys.argv[1])))
    if words[:1] == ["-c"]:
        sys.argv = ["-c", *words[2:]]
        warnings.simplefilter("error")
        names = {"__name__": "__main__"}
        exec(compile(words[1], "<string>", "exec"), names)
        _leave(0, names)
        return None
    from rumormill.cli import main

    sys.argv[1:] = words
    try:
        code = main()
    except SystemExit as end:  # help, or a mistake
        if not isinstance(end.code, int):
            raise
        code = end.code
    _leave(code)
    return code


if __name__ == "__main__":
    sys.exit(_main())
