"""Programs beside a test: it waits for their lines, talks to them, and ends them as it likes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from forked import Child

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
RUMORMILL = (sys.executable, "-m", "rumormill")

PATIENCE = 600.0
"""Seconds after which a silent program is called stuck; no test waits for time to pass."""


def environment(**extra: str) -> dict[str, str]:
    """The environment of a program that finds this source tree first."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    return {**kept, "PYTHONPATH": str(SOURCES), **extra}


def rumormill(
    *arguments: str | Path, cwd: Path | None = None, stdin: str | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run `rumormill` with these arguments and wait for it; `extra` goes to its environment.

    It is forked (`forked`), unless `extra` has something to say to Python.
    """
    words, env = [str(each) for each in arguments], environment(**extra)
    if any(key.startswith("PYTHON") for key in extra):
        return subprocess.run(
            [*RUMORMILL, *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            input=stdin,
            env=env,
        )
    return run_forked(words, env, cwd, stdin)


def run_forked(
    words: Sequence[str], env: Mapping[str, str], cwd: Path | None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Have a command forked (`forked`), and wait for it."""
    with contextlib.ExitStack() as stack:
        said, heard, errors = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
        said.write(stdin or "")
        said.seek(0)
        code = Child(words, env, cwd, (said, heard, errors)).wait()
        found = [_read(each) for each in (heard, errors)]
        return subprocess.CompletedProcess([*words], code, *found)


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def examined(*arguments: str | Path) -> tuple[int, dict[str, dict[str, str]]]:
    """What `rumormill doctor` says, by the name of the check, and its exit code."""
    done = rumormill("doctor", "--json", *arguments)
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    assert report["healthy"] == (done.returncode == 0)
    return done.returncode, {check["name"]: check for check in report["checks"]}


class Program:
    """A program that runs beside the test, and everything that it has said.

    As a context it does not outlive the test. `options` are those of `subprocess.Popen`; with
    `start_new_session` signals go to everything that the program has started.
    """

    def __init__(self, command: Sequence[str | Path], **options: Any) -> None:
        self.output: list[str] = []
        self.errors: list[str] = []
        self._apart = options.get("start_new_session", False)
        self._heard = 0
        self._changed = threading.Condition()
        self.process = self._started(command, options)
        said = ((self.process.stdout, self.output), (self.process.stderr, self.errors))
        self._readers = [
            threading.Thread(target=self._read, args=(pipe, lines), daemon=True)
            for pipe, lines in said
            if pipe is not None
        ]
        self._open = len(self._readers)
        for reader in self._readers:
            reader.start()

    def _started(
        self, command: Sequence[str | Path], options: dict[str, Any]
    ) -> subprocess.Popen[str] | Child:
        usual = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": environment()}
        return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, **usual | options)

    def _read(self, pipe: IO[str], lines: list[str]) -> None:
        with pipe:
            for line in pipe:
                with self._changed:
                    lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until what it has said fulfils a condition."""
        with self._changed:
            self._changed.wait_for(lambda: condition() or not self._open, PATIENCE)
            assert condition(), f"{what} did not come; it said {self.output} and {self.errors}"

    def prints(self, count: int = 1) -> list[str]:
        """Wait for so many lines on stdout."""
        self.wait_for(lambda: len(self.output) >= count, f"line {count}")
        return self.output[:count]

    def hears(self) -> str:
        """The next line on stdout."""
        self._heard += 1
        self.wait_for(lambda: len(self.output) >= self._heard, f"line {self._heard}")
        return self.output[self._heard - 1]

    def says(self, text: str) -> str:
        """Wait for a line on stderr that contains a text."""

        def found() -> list[str]:
            return [line for line in self.errors if text in line]

        self.wait_for(found, repr(text))
        return found()[0]

    def told(self, line: str) -> None:
        """Write one line to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ends(self, patience: float = PATIENCE) -> int:
        """Wait for the end; return the exit code."""
        code = self.process.wait(patience)
        for reader in self._readers:
            reader.join(PATIENCE)
        if self.process.stdin is not None:
            self.process.stdin.close()
        return code

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, by default one that asks it to stop, and wait."""
        if self._apart:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return self.ends()

    def close(self) -> int:
        """End its input, and wait."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ends()

    def kill(self) -> None:
        """kill -9 of what must still be running."""
        assert self.stop(signal.SIGKILL) == -signal.SIGKILL

    def end(self) -> None:
        """End it, however, and what it started where it is apart."""
        self.stop(signal.SIGKILL)


class Terminal(Program):
    """A `rumormill` command that runs beside the test; it is forked (`forked`)."""

    def __init__(self, *arguments: str | Path, **extra: str) -> None:
        super().__init__([str(each) for each in arguments], env=environment(**extra))

    def _started(
        self, command: Sequence[str | Path], options: dict[str, Any]
    ) -> subprocess.Popen[str] | Child:
        pipes = [os.pipe() for _ in "12"]
        with contextlib.ExitStack() as stack:
            nothing = stack.enter_context(open(os.devnull))
            out, err = [stack.enter_context(os.fdopen(end, "w")) for _, end in pipes]
            child = Child([*map(str, command)], options["env"], None, (nothing, out, err))
        child.stdout, child.stderr = [os.fdopen(end) for end, _ in pipes]
        return child
