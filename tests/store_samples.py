"""Events for the tests of the store."""

import contextlib
import sqlite3
from pathlib import Path

from rumormill.core.event import Event
from rumormill.log import EventLog
from rumormill.log.rows import OFFSET_BITS


def make_event(number: int, topic: str = "news", **changes: object) -> Event:
    """The event with this number: its content is a function of the number alone."""
    fields: dict[str, object] = {
        "topic": topic,
        "id": b"id-%d" % number,
        "author": b"author-%d" % (number % 3),
        "data": b"payload %d " % number * (1 + number % 40),
        "received": 1000.0 + number,
        "created": None if number % 4 == 0 else 999.5 + number,
        "parents": tuple(b"id-%d" % (number - back) for back in range(1, number % 3 + 1)),
        "protocol": "gossipsub",
        "proof": b"proof-%d" % number,
    }
    return Event(**(fields | changes))  # type: ignore[arg-type]


def fill(log: EventLog, count: int, topic: str = "news", start: int = 0) -> None:
    """Append events `start` to `start + count - 1` in groups and wait until they are safe."""
    for first in range(start, start + count, 50):
        last = min(first + 50, start + count)
        log.append([make_event(number, topic) for number in range(first, last)]).result()


def read_all(log: EventLog, topic: str = "news") -> list[Event]:
    """Everything in a topic."""
    return [event for chunk in log.chunks(topic, limit=64) for event in chunk]


def damage(home: Path, offset: int, epoch: int = 1, topic: str | None = None) -> None:
    """Overwrite what an event says, of a topic or of the only one, behind its writer's back."""
    with contextlib.closing(sqlite3.connect(home / f"events-{epoch}.db")) as db, db:
        number = "SELECT topic_id FROM topics WHERE name = ?1 OR ?1 IS NULL ORDER BY 1 LIMIT 1"
        query = f"SELECT key FROM events WHERE key >> {OFFSET_BITS} = ({number})"
        query += " ORDER BY key LIMIT 1 OFFSET ?2"
        db.execute(f"UPDATE events SET data = x'00' WHERE key = ({query})", (topic, offset))
