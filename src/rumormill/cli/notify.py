"""What a supervisor of processes is told, by systemd's protocol: lines to a datagram socket.

Where nobody listens (`NOTIFY_SOCKET` is not set), nothing is said; a supervisor that does not hear
is no reason to fail.
"""

import asyncio
import contextlib
import os
import socket
import time

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(*lines: str) -> None:
    """Say something to the supervisor, if there is one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name that is in no directory
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.setblocking(False)
        sender.connect(address)
        sender.send("\n".join(lines).encode())


def reloading() -> tuple[str, str]:
    """What is said when the settings are read again; `READY` is said when that is done."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


async def keep_alive() -> None:
    """Say often enough that the loop turns, where the supervisor wants to hear it."""
    period = int(os.environ.get("WATCHDOG_USEC") or 0) / 1e6
    while period:
        notify("WATCHDOG=1")
        await asyncio.sleep(period / 3)
