"""Runs the real command in a process of its own."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Self

SOURCES = Path(__file__).resolve().parents[2] / "src"


def environment(**extra: str) -> dict[str, str]:
    """The environment of a command that finds this source tree first."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    return {**kept, "PYTHONPATH": str(SOURCES), **extra}


def rumormill(
    *arguments: str, cwd: Path | None = None, stdin: str | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run `rumormill` with these arguments and wait for it; `extra` goes to its environment."""
    return subprocess.run(
        [sys.executable, "-m", "rumormill", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        input=stdin,
        env=environment(**extra),
    )


PATIENCE = 60.0
"""Seconds that a test waits for a process before it fails; it never waits for time to pass."""


class Terminal:
    """A command that runs in the background, whose lines are waited for."""

    def __init__(self, *arguments: str, stdin: bool = False, **extra: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rumormill", *arguments],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**extra),
        )
        self.output: list[str] = []
        self.errors: list[str] = []
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(pipe, lines), daemon=True)
            for pipe, lines in (
                (self.process.stdout, self.output),
                (self.process.stderr, self.errors),
            )
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], lines: list[str]) -> None:
        for line in pipe:
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def prints(self, count: int = 1) -> list[str]:
        """Wait for so many lines on stdout."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.output) >= count, PATIENCE), self.errors
            return self.output[:count]

    def says(self, text: str) -> str:
        """Wait for a line on stderr that contains a text."""

        def found() -> list[str]:
            return [line for line in self.errors if text in line]

        with self._changed:
            assert self._changed.wait_for(found, PATIENCE), (self.errors, self.output)
            return found()[0]

    def ends(self) -> int:
        """Wait for the end; return the exit code."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop, and wait."""
        self.process.send_signal(number)
        return self.ends()
