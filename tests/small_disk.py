"""A file system of a few MiB, to be really full; to mount it takes the right to, in a namespace."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from processes import environment

_MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'


def run_on_small_disk(code: str, place: Path, size: str, *arguments: str) -> str:
    """What a program prints that finds the disk at `sys.argv[1]`; a skip where none is mounted."""
    unshare = ["unshare", "-rm", "sh", "-c", _MOUNT, "sh", size, str(place)]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here without root (unshare -rm)")
    tests = str(Path(__file__).parent)
    done = subprocess.run(
        [*unshare, sys.executable, "-", str(place), *arguments],
        check=False,
        input=code,
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=os.pathsep.join([tests, *sys.path])),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
