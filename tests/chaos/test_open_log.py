"""A disk that fails under a log that is open: nothing acknowledged is lost.

Each work of the log meets each error at one of its operations after the other; then the disk works
again. `disk_open_log.py` does that and checks that receipts hold, that no offset is used again,
that the log goes on or says what to do, and that the work can be done again.
"""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from disk import COMPILER, NEEDS_COMPILER, Disk
from disk_open_log import WORKS

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NEEDS_COMPILER)

PROGRAM = Path(__file__).with_name("disk_open_log.py")
TESTS = str(Path(__file__).parents[1])

INTERRUPTED = f"write:{errno.EINTR}:once"
FAULTS = [
    *(f"any:{error}:{lasts}" for error in (errno.EIO, errno.ENOSPC) for lasts in ("once", "on")),
    *(f"open:{errno.EMFILE}:{lasts}" for lasts in ("once", "on")),
    INTERRUPTED,
]


def sweep(folder: Path, work: str, first: int, step: int, *faults: str) -> list[list[str]]:
    """Go through a work's operations, so many at a time; return what became of each case."""
    disk = Disk(folder)
    env = disk.environment()
    env["PYTHONPATH"] += f":{TESTS}"
    done = subprocess.run(
        [sys.executable, PROGRAM, disk.root, disk.faults, work, str(first), str(step), *faults],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, f"{work}\n{done.stdout[-500:]}\n{done.stderr[-3000:]}"
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("work", WORKS)
def test_a_log_bears_whatever_fails_under_it(work: str, tmp_path: Path) -> None:
    """Some operations of each work; an interrupted write is no failure."""
    cases = sweep(tmp_path, work, 2, 29, *FAULTS)
    assert {case[0] for case in cases} == {*FAULTS}
    assert {" ".join(case[2:]) for case in cases if case[0] == INTERRUPTED} == {"went on"}


@pytest.mark.parametrize("work", ["repair", "restore", "backup"])
def test_a_log_that_is_copied_or_replaced_is_so_wholly_or_not_at_all(
    work: str, tmp_path: Path
) -> None:
    """Each flush on the way fails once. Whatever is acknowledged afterwards is in the database that
    counts: where that cannot be known, the log has stopped."""
    cases = sweep(tmp_path, work, 1, 1, f"sync:{errno.EIO}:once")
    stopped = sum(case[2] != "went" for case in cases)
    assert (stopped > 0) == (work != "backup")


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS)
def test_a_log_bears_each_failure_under_it(work: str, tmp_path: Path) -> None:
    """Every operation of every work."""
    assert sweep(tmp_path, work, 1, 1, *FAULTS)
