"""Asks the process that forks (`forked`) for a command; of its own, so that it starts at once.

As a program it is a `rumormill` that a shell can call: it stands for the command until that ends,
and passes no signal on.
"""

import marshal
import os
import socket
import sys
from collections.abc import Mapping, Sequence


def ask(
    door: socket.socket,
    arguments: Sequence[bytes],
    env: Mapping[bytes, bytes],
    cwd: bytes,
    files: Sequence[int],
) -> int:
    """Have a command forked; return where its process id is told, and then its exit code."""
    told, tells = os.pipe()
    asked = os.memfd_create("asked")
    try:
        os.write(asked, marshal.dumps(([*arguments], dict(env), cwd)))
        os.lseek(asked, 0, os.SEEK_SET)
        socket.send_fds(door, [b"."], [asked, *files, tells])
    finally:
        os.close(asked)
        os.close(tells)
    return told


def hear(told: int) -> int:
    """A number that was told."""
    found = os.read(told, 4)
    assert len(found) == 4, "the process that forks has died"
    return int.from_bytes(found, "big", signed=True)


if __name__ == "__main__":
    _, number, *words = map(os.fsencode, sys.argv)
    answers = ask(socket.socket(fileno=int(number)), words, os.environb, os.getcwdb(), (0, 1, 2))
    hear(answers)
    code = hear(answers)
    sys.exit(code if code >= 0 else 128 - code)
