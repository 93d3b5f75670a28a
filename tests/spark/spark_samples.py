"""Stores, nodes and queries for the tests of the data source."""

import json
import signal
from pathlib import Path
from typing import Any, Self

from live_nodes import run
from processes import Terminal
from rumormill.core.event import Event
from rumormill.daemon.control_client import ControlClient
from rumormill.daemon.control_messages import socket_path
from rumormill.log import EventLog

FIRST_TIME = 1_700_000_000.0
"""When event 0 was received; each later one a second after."""


def event(topic: str, number: int) -> Event:
    """The event with this number of a topic."""
    return Event(
        topic,
        b"%s %d" % (topic.encode(), number),
        b"author-%d" % (number % 2),
        b"%s-%d" % (topic.encode(), number),
        parents=(b"%s-%d" % (topic.encode(), number - 1),) if number else (),
        created=FIRST_TIME + number - 0.5 if number % 2 else None,
        proof=b"proof %d" % number,
        received=FIRST_TIME + number,
        protocol="gossipsub",
    )


def fill(log: EventLog, topic: str, count: int, start: int = 0) -> None:
    """Append events and wait until they are safe."""
    log.append([event(topic, number) for number in range(start, start + count)]).result()


def reading(spark: Any, store: Path, **options: object) -> Any:
    """A batch read of a store as a DataFrame."""
    return configured(spark.read, home=store, **options).load()


def streaming(spark: Any, store: Path, **options: object) -> Any:
    """A stream of a store as a DataFrame."""
    return configured(spark.readStream, home=store, **options).load()


def configured(reader: Any, **options: object) -> Any:
    """A reader or writer of the format with these options."""
    reader = reader.format("rumormill")
    for name, value in options.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        reader = reader.option(name, text)
    return reader


def run_to_end(frame: Any, folder: Path, **options: object) -> Any:
    """Run a stream over what is there into Parquet below `folder`; return the query."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "table"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def offsets_by_topic(frame: Any) -> dict[str, list[int]]:
    """Which offsets of which topics a DataFrame has, sorted."""
    found: dict[str, list[int]] = {}
    for row in frame.select("topic", "offset").collect():
        found.setdefault(row.topic, []).append(row.offset)
    return {topic: sorted(offsets) for topic, offsets in sorted(found.items())}


def publish(home: Path, topic: str, data: list[bytes]) -> None:
    """Publish through the node that runs in a home; what is told to be published is on disk."""

    async def send() -> None:
        client = await ControlClient.connect(socket_path(home))
        try:
            await client.publish(topic, data)
        finally:
            await client.close()

    run(send)


class LiveNode:
    """`rumormill node --flight` in a process of its own; it can be killed and started again."""

    def __init__(self, home: Path, *more: str, flight: str = "127.0.0.1:0") -> None:
        self.home = home
        self.more = more
        self.endpoint = flight
        self.ticket = ""
        self._program: Terminal | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(signal.SIGTERM)

    @property
    def token(self) -> str:
        return (self.home / "flight.token").read_text().strip()

    def start(self) -> None:
        """Start, at the same address as before; wait until the door is open."""
        arguments = ("--flight", self.endpoint, "--log-level", "error", "--json", *self.more)
        self._program = Terminal("node", "--home", self.home, *arguments)
        told = json.loads(self._program.hears())
        self.endpoint, self.ticket = told["flight"], told["tickets"][0]

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the process in the way of a signal."""
        if self._program is not None:
            self._program.stop(number)
            self._program = None
