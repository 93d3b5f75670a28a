"""The process that the kill tests kill: appends from threads and prints what is acknowledged.

Arguments: the store's directory, the number of threads, a prefix that makes ids unique. Each line
on stdout is written after the ticket resolved, in one write, so a line that arrives is a receipt.
"""

import itertools
import os
import sys
import threading

from rumormill.core.event import Event
from rumormill.log import EventLog, StoreConfig

BATCH = 3


def append_for_ever(log: EventLog, worker: int, prefix: str) -> None:
    """Append batches to two topics, and acknowledge each event on its own line."""
    for number in itertools.count(0, BATCH):
        events = [
            Event(
                topic=f"topic-{(number + place) % 2}",
                id=f"{prefix}-{worker}-{number + place}".encode(),
                author=b"appender",
                data=f"{prefix}-{worker}-{number + place}".encode() * 20,
                received=float(number),
            )
            for place in range(BATCH)
        ]
        results = log.append(events).result()
        lines = [
            f"{event.topic} {result.offset} {event.id.decode()}\n"
            for event, result in zip(events, results, strict=True)
        ]
        os.write(1, "".join(lines).encode())


def index_for_ever(log: EventLog) -> None:
    """Ask for histories again and again, so that they are kept up."""
    while True:
        with log.histories():
            pass


def main() -> None:
    """Run until killed."""
    home, threads, prefix = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    log = EventLog(home, StoreConfig(checkpoint_pages=100))
    os.write(1, b"ready\n")
    workers = [
        threading.Thread(target=append_for_ever, args=(log, worker, prefix))
        for worker in range(threads)
    ]
    workers.append(threading.Thread(target=index_for_ever, args=(log,)))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
