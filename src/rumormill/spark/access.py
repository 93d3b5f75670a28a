"""Where a data source gets its events: a store on disk, or a node's Flight door.

Both give topics' extents, the offset of a time, and ranges as verified Arrow batches. They are
small values that travel to Spark's workers; connections are made where they are used.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from rumormill.core.errors import LocalError
from rumormill.daemon.flight_client import DoorClient
from rumormill.daemon.flight_messages import ENDPOINT_FILE, Door, load_or_create_token
from rumormill.log.arrow import read_batches
from rumormill.log.event_log import EventLog
from rumormill.log.model import StoreConfig, TopicExtent

_CONFIG: Final = StoreConfig(open_verify_bytes=1)
"""On open only the newest rows are verified: whatever is read is verified then."""


class HomeAccess(msgspec.Struct, frozen=True, tag=True):
    """A store on a disk that every worker can read."""

    home: str

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"the store {self.home}"

    def extents(self) -> dict[str, TopicExtent]:
        """All topics."""
        with self._log() as log:
            return {each.name: each for each in log.topics()}

    def since(self, topic: str, time: float) -> int | None:
        """The first offset of an event that was received at a time or later."""
        with self._log() as log:
            found = log.read_since(topic, time, 1)
            return found[0].offset if found else None

    @contextlib.contextmanager
    def batches(
        self, topic: str, start: int, stop: int, columns: Sequence[str]
    ) -> Iterator[Iterator[Any]]:
        """A range as Arrow batches."""
        with self._log() as log:
            yield read_batches(log, topic, start, stop, columns)

    def _log(self) -> EventLog:
        return EventLog(self.home, _CONFIG, read_only=True)


class NodeAccess(msgspec.Struct, frozen=True, tag=True):
    """A node's Flight door."""

    endpoint: str
    token: str
    tls: bool = False
    roots: str = ""

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"the node at {self.endpoint}"

    def extents(self) -> dict[str, TopicExtent]:
        """All topics."""
        with self.connect() as client:
            return {each.name: each for each in client.topics()}

    def since(self, topic: str, time: float) -> int | None:
        """The first offset of an event that was received at a time or later."""
        with self.connect() as client:
            return client.since(topic, time)

    @contextlib.contextmanager
    def batches(
        self, topic: str, start: int, stop: int, columns: Sequence[str]
    ) -> Iterator[Iterator[Any]]:
        """A range as Arrow batches."""
        with self.connect() as client:
            yield client.batches(topic, start, stop, columns)

    def connect(self) -> DoorClient:
        """A connection to the door."""
        return DoorClient(self.endpoint, self.token, tls=self.tls, roots=self.roots)


Access = HomeAccess | NodeAccess


def node_of_home(home: str) -> NodeAccess:
    """The node that runs in a home of this user with an open Flight door."""
    path = Path(home) / ENDPOINT_FILE
    try:
        door = msgspec.json.decode(path.read_bytes(), type=Door)
    except FileNotFoundError:
        raise LocalError(
            f"no node with a Flight door runs in {home}: start rumormill node --home {home}"
            " --flight"
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise LocalError(f"cannot read {path}: {error}") from None
    if door.tls:
        raise LocalError(f"the door of {home} uses TLS: name it by the options node and tlsRoots")
    return NodeAccess(door.endpoint, load_or_create_token(Path(home)))
