"""Plays a page: its blocks in order, in a directory of their own, as a reader would.

Shell blocks share their variables and the directory; each Python block is a program of its own,
unless the page says otherwise. What runs on is ended with Ctrl-C when the page has ended; all other
commands and programs are forked (`forked`).
"""

import ast
import contextlib
import functools
import io
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from doc_pages import (
    FAILS,
    FILE,
    PRINTS,
    ROOT,
    RUNS_ON,
    TERMINAL_PRINTS,
    Block,
    blocks_of,
    is_one_program,
)

import ask_fork
from forked import door
from processes import PATIENCE, Program, run_forked

BESIDE = ("scenarios", "examples", "bench", "tools", "src")
"""What a reader has in the directory after cloning."""


_PATHS = frozenset({"home", "path", "checkpointLocation", "tokenFile"})
_FORKS = "RUMORMILL_FORKS"
"""In a shell's environment: how Python becomes a `rumormill` that is forked."""
_READY = re.compile("/p2p/|listening to|token")
"""What a node, a subscriber and a door say when they can be used."""


class Player:
    """One page being played."""

    def __init__(self, page: str, place: Path) -> None:
        self.page = page
        self._place = place
        self._terminals: list[Program] = []
        self._printed = ""
        self._shared: dict[str, object] | None = {} if is_one_program(page) else None
        self._variables = _prepare(place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in reversed(self._terminals):
            with terminal:
                terminal.stop(signal.SIGINT)  # Ctrl-C

    def play(self) -> Iterator[str]:
        """Run every block, and name it when it has run."""
        for block in blocks_of(self.page):
            if (name := block.mark(FILE)) is not None:
                (self._place / name).write_text(block.text)
            elif block.mark(TERMINAL_PRINTS) is not None:
                said, wanted = self._terminals[-1].output, block.text.splitlines()
                self._terminals[-1].wait_for(functools.partial(contains, said, wanted), block.place)
            elif block.mark(PRINTS) is not None:
                printed, expected = self._printed.splitlines(), block.text.splitlines()
                assert is_like(printed, expected), f"{block.place}: it printed\n{self._printed}"
            elif block.is_program:
                self._run(block)
                yield block.place

    def _run(self, block: Block) -> None:
        if block.mark(RUNS_ON) is not None:
            self._start(block.text)
        elif block.language == "sh":
            self._run_shell(block)
        elif self._shared is not None or block.uses_spark:
            tree = _Anchored(self._place).visit(ast.parse("\n" * (block.line - 1) + block.text))
            program = compile(ast.fix_missing_locations(tree), block.page, "exec")
            shared = {"__name__": "__main__"} if self._shared is None else self._shared
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(program, shared)
            self._printed = printed.getvalue()
        else:
            # Empty lines in front make the line numbers of a traceback those of the page.
            text = "\n" * (block.line - 1) + block.text
            self._ended(block, run_forked(["-c", text], self._variables, self._place))

    def _start(self, text: str) -> None:
        terminal = Program(
            ["sh", "-euc", text],
            cwd=self._place,
            env=self._variables,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._terminals.append(terminal)
        terminal.wait_for(lambda: any(map(_READY.search, terminal.output)), "a ticket")

    def _run_shell(self, block: Block) -> None:
        kept = self._place / ".variables"
        forks = f"-ISE {ask_fork.__file__} {door().fileno()}"
        ended = subprocess.run(
            ["sh", "-eac", f"{block.text}\nenv -0 > '{kept}'"],
            cwd=self._place,
            env={**self._variables, _FORKS: forks},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            pass_fds=[door().fileno()],
        )
        self._ended(block, ended)
        if block.mark(FAILS) is None:
            pairs = (each.partition("=") for each in kept.read_text().split("\0") if each)
            self._variables = {name: value for name, _, value in pairs if name != _FORKS}

    def _ended(self, block: Block, ended: subprocess.CompletedProcess[str]) -> None:
        self._printed = ended.stdout
        failed = ended.returncode != 0
        said = f"{block.place} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        assert failed == (block.mark(FAILS) is not None), said


class _Anchored(ast.NodeTransformer):
    """Makes the paths that are given to Spark absolute.

    They are looked up where Spark's one process was started, which is not the page's directory.
    """

    def __init__(self, place: Path) -> None:
        self._place = place

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """`.load("home")`, `.parquet("table")`, `.option("home", "chat-home")` and their like."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.args:
            name, first = node.func.attr, node.args[0]
            is_path = name == "option" and isinstance(first, ast.Constant) and first.value in _PATHS
            if is_path or name in {"load", "save", "parquet", "csv", "json"}:
                last = node.args[-1]
                if isinstance(last, ast.Constant) and isinstance(last.value, str):
                    node.args[-1] = ast.Constant(str(self._place / last.value))
        return node


def _prepare(place: Path) -> dict[str, str]:
    """Make the directory that a reader has after cloning and `make setup`."""
    for name in BESIDE:
        (place / name).symlink_to(ROOT / name)
    programs = place / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, start in (("rumormill", f"${{{_FORKS}:--m rumormill}}"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {start} "$@"\n')
        program.chmod(0o755)
    home = place / "user"
    home.mkdir()
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": str(ROOT / "src"),
        "LANG": "C.UTF-8",
    }


def is_like(said: list[str], expected: list[str]) -> bool:
    """Whether lines are those expected; `…` in a line, or as a line, stands for anything."""
    any_lines = "(?:.*\\n)*"
    lines = (re.escape(line.rstrip()).replace("…", ".*") + "\\n" for line in expected)
    pattern = "".join(any_lines if line == ".*\\n" else line for line in lines)
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in said)) is not None


def contains(said: list[str], expected: list[str]) -> bool:
    """Whether the expected lines are among those said, in their order."""
    rest = iter(said)
    return all(any(is_like([line], [wanted]) for line in rest) for wanted in expected)
