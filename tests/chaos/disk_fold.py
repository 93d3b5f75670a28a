"""A checkpoint that a reader stops half-way, and one whose flush fails: then the process ends.

Arguments: the store's directory, the file of faults, into which it writes a rule of its own in
between, and how it ends (`close` or `die`). It prints how many events were acknowledged.
"""

import os
import signal
import sys
from pathlib import Path

from rumormill.core.event import Event
from rumormill.log import EventLog, StoreConfig, StoreError


def fill(log: EventLog, start: int, count: int) -> None:
    """Append events one by one."""
    for number in range(start, start + count):
        event = Event("news", bytes([number]) * 5000, b"author", b"%d" % number, received=1.0)
        log.append([event]).result()


def main() -> None:
    """Fold half, fold the rest in vain, close."""
    home, faults, end = sys.argv[1:]
    log = EventLog(home, StoreConfig(checkpoint_pages=10**6))
    writer = log.writer()
    fill(log, 0, 50)
    with log.snapshot() as db:
        db.execute("SELECT count(*) FROM events").fetchone()
        fill(log, 50, 50)
        writer.run(writer.exclusively(writer.checkpoint)).result()
    Path(faults).write_text("sync 5 1 1 *.db\n")
    try:
        writer.run(writer.exclusively(writer.checkpoint)).result()
    except StoreError:
        os.write(1, b"100\n")
    if end == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    log.close()


if __name__ == "__main__":
    main()
