"""The process that is killed while it repairs its own log: it appends, damages and repairs.

The argument is the store's directory. Each line on stdout is written in one write: `receipt OFFSET
ID` after a ticket resolved, `damage OFFSET -` before an event is damaged.
"""

import contextlib
import itertools
import os
import sqlite3
import sys
import threading
from pathlib import Path

from rumormill.log import EventLog, repair
from store_samples import make_event


def append_for_ever(log: EventLog) -> None:
    """One event at a time, and a receipt for each."""
    for number in itertools.count():
        event = make_event(number)
        (result,) = log.append([event]).result()
        os.write(1, b"receipt %d %s\n" % (result.offset, event.id))


def main() -> None:
    """Run until killed."""
    home = Path(sys.argv[1])
    log = EventLog(home)
    threading.Thread(target=append_for_ever, args=(log,), daemon=True).start()
    for place in itertools.count(3, 4):
        while (topic := log.topic("news")) is None or topic.next_offset <= place:
            pass
        os.write(1, b"damage %d -\n" % place)
        path = max(home.glob("events-*.db"), key=lambda each: int(each.stem[7:]))
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as db, db:
            query = "UPDATE events SET data = x'00' WHERE key & 0xffffffffff = ?"
            db.execute(query, (place,))
        repair(log)


if __name__ == "__main__":
    main()
