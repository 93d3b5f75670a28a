"""Events for the tests of the store."""

from rumormill.core.event import Event
from rumormill.log import EventLog


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
