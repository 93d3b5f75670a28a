"""How commands of one home find each other without a daemon: tickets in a directory.

A `sub` that runs a node of its own leaves its ticket in `HOME/meet`, in a file that it keeps locked
while it lives. A command that finds the file unlocked removes it: its owner is dead. So two
terminals need no ticket and no configuration.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rumormill.core.errors import LocalError

MEETING_PLACE: Final = "meet"
MAX_TICKETS: Final = 16
_MAX_BYTES: Final = 2048


@contextlib.contextmanager
def announced(home: Path, tickets: Sequence[str]) -> Iterator[None]:
    """Let other commands of this home find us."""
    place = home / MEETING_PLACE
    path = place / f"{os.getpid()}-{secrets.token_hex(4)}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LocalError(
            f"the home {home} cannot be written: {error.strerror}; choose another with --home"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, "\n".join(tickets).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def find_tickets(home: Path) -> list[str]:
    """The tickets of commands that wait in this home; those of the dead are removed."""
    found: list[str] = []
    try:
        paths = sorted((home / MEETING_PLACE).iterdir())
    except OSError:
        return found
    for path in paths:
        if len(found) >= MAX_TICKETS:
            break
        with contextlib.suppress(OSError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read(_MAX_BYTES).decode(errors="replace")
                found += text.split()[:1]
            else:
                path.unlink()
    return found
