"""Runs the real command in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src"


def environment(**extra: str) -> dict[str, str]:
    """The environment of a command that finds this source tree first."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    return {**kept, "PYTHONPATH": str(SOURCES), **extra}


def rumormill(
    *arguments: str, cwd: Path | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run `rumormill` with these arguments and wait for it; `extra` goes to its environment."""
    return subprocess.run(
        [sys.executable, "-m", "rumormill", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment(**extra),
    )
