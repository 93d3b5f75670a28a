"""Some nodes in a process of their own, which a test asks by lines and ends as it likes."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import rumormill

PATIENCE = 120.0
"""Seconds after which a silent process, or a network that does not settle, is called stuck."""


class Process:
    """A script that answers each line of its stdin by one line of JSON on its stdout."""

    def __init__(self, script: Path, names: list[str], arguments: list[str]) -> None:
        self.names = names
        source = str(Path(rumormill.__file__).parents[1])
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": source},
        )

    def answer(self) -> Any:
        """Read one line."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, f"{self.names} said nothing for {PATIENCE:g} seconds"
        line = self._process.stdout.readline()
        assert line, f"{self.names} ended"
        return json.loads(line)

    def ask(self, request: str) -> None:
        """Write one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{request}\n".encode())
        self._process.stdin.flush()

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait(PATIENCE) == -signal.SIGKILL
        self._drop_pipes()

    def close(self) -> None:
        """Ask it to end, and see that it ends well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE) == 0
        self._drop_pipes()

    def stop(self) -> None:
        """End it, however."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)
        self._drop_pipes()

    def _drop_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


def ask_all(processes: list[Process], request: str) -> list[Any]:
    """Ask all at once; return their answers, each a list, as one list."""
    for process in processes:
        process.ask(request)
    return [each for process in processes for each in process.answer()]
