"""The Flight door, opened and closed: of a node, or of a bare store.

While it is open, the home says where rows can be published (`flight.json`); a bare store's door
does not, since readers have the store itself. It is closed in the opposite order: nobody new finds
it, and those who are being served are waited for.

The first bulk read of a range pays for every row of the database, later ones do not (`segments`).
Who opens a door expects bulk reads, so a thread beside the door goes through all topics and reads
each whole range that has no segment, which leaves one. The rule: nobody waits for it. It takes one
range after another, rests three times as long as each took it, looks at a range once, and leaves
everything that is wrong with a store to those who read it.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from rumormill.core.api import FetchedHistory, Message
from rumormill.core.errors import LocalError, RumormillError
from rumormill.core.event import Note
from rumormill.daemon import flight_messages as messages
from rumormill.daemon.endpoint import Endpoint
from rumormill.daemon.flight_service import Fetch, FlightService, Publish, StillPublishingError
from rumormill.daemon.served_node import ServedNode
from rumormill.log import files
from rumormill.log.arrow import read_batches
from rumormill.log.event_log import EventLog
from rumormill.log.model import TopicExtent
from rumormill.log.segments import Segments

PemFiles: TypeAlias = tuple[str | Path, str | Path]
"""A certificate and its key, both in PEM."""

LOOK_SECONDS: Final = 5.0
"""Our choice: how long a range that has become whole may wait for its segment."""

_RESTS: Final = 3
"""Our choice: a quarter of a core at most."""

_REFUSED_SECONDS: Final = 600.0
"""How long to do nothing where a segment could not be written: the disk is full, or not ours."""

_PUBLISH_SECONDS: Final = 300.0
"""Our choice: a node that does not keep 256 rows in so long is stuck."""

_FETCH_SECONDS: Final = 3600.0
"""Our choice: what a node has not fetched in an hour, a query does not wait for."""

_log = logging.getLogger("rumormill.log")


@contextlib.contextmanager
def flight_door(
    service: FlightService, endpoint: Endpoint, home: Path | None, tls: PemFiles | None = None
) -> Iterator[tuple[str, str]]:
    """Keep a door open; its address and its token. Without a home, both are known here alone."""
    messages.flight_library()
    from rumormill.daemon.flight_server import open_server  # noqa: PLC0415 (it needs pyarrow)

    token = messages.new_token() if home is None else messages.load_or_create_token(home)
    pem = None if tls is None else (_read(tls[0]), _read(tls[1]))
    server = open_server(service, endpoint, token, tls=pem)
    address = str(endpoint._replace(port=server.port))
    try:
        with contextlib.ExitStack() as opened:
            if home is not None and service.publish is not None:
                opened.enter_context(_announced(home, messages.Door(address, tls is not None)))
            opened.enter_context(sealing_ahead(service.log))
            yield address, token
    finally:
        server.close()


@contextlib.contextmanager
def _announced(home: Path, door: messages.Door) -> Iterator[None]:
    """Tell programs of the same user where they can publish, while the door is open."""
    path = home / messages.ENDPOINT_FILE
    os.close(files.replace(path, msgspec.json.encode(door)))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def publisher_of(node: ServedNode, loop: asyncio.AbstractEventLoop) -> Publish:
    """Publish through a node whose loop runs in another thread."""

    def publish(rows: Sequence[tuple[str, Message, Note]]) -> None:
        waiting = asyncio.run_coroutine_threadsafe(node.publish_noted(rows), loop)
        try:
            waiting.result(_PUBLISH_SECONDS)
        except TimeoutError:
            raise StillPublishingError(waiting) from None

    return publish


def fetcher_of(node: ServedNode, loop: asyncio.AbstractEventLoop) -> Fetch:
    """Fetch through a node whose loop runs in another thread."""

    def fetch(topic: str, most: int) -> FetchedHistory:
        work = node.fetch_history(topic, start=(), since=0.0, most=most, timeout=_FETCH_SECONDS)
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    return fetch


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise LocalError(f"tls: cannot read {path}: {error.strerror}") from None


@contextlib.contextmanager
def sealing_ahead(log: EventLog, look_seconds: float = LOOK_SECONDS) -> Iterator[None]:
    """Seal whole ranges while the block runs."""
    if log.segments is None:
        yield
        return
    over = threading.Event()
    sealer = _Sealer(log, log.segments, over)
    thread = threading.Thread(
        target=sealer.run, args=(look_seconds,), name="rumormill-sealer", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Sealer:
    def __init__(self, log: EventLog, segments: Segments, over: threading.Event) -> None:
        self._log = log
        self._segments = segments
        self._over = over
        self._places: dict[str, int] = {}
        """Of each topic of the log, the first range that was not looked at yet."""

    def run(self, look_seconds: float) -> None:
        """Look again and again, until it is over."""
        rest = 0.0
        while not self._over.wait(rest):
            rest = look_seconds
            try:
                for topic in self._log.topics():
                    if not self._seal_topic(topic):
                        rest = _REFUSED_SECONDS
                        break
            except RumormillError as error:
                _log.info("sealing ahead waits: %s", error)

    def _seal_topic(self, topic: TopicExtent) -> bool:
        """Seal what has become whole; False if a segment could not be written."""
        rows = self._segments.rows
        first_whole = -(-topic.first_offset // rows) * rows
        start = max(self._places.get(topic.name, 0), first_whole)
        while start + rows <= topic.next_offset and not self._over.is_set():
            if not self._segments.has(topic.name, start):
                refused = self._segments.counters.refused
                self._seal(topic.name, start)
                if self._segments.counters.refused > refused:
                    return False
            start += rows
            self._places[topic.name] = start
        return True

    def _seal(self, topic: str, start: int) -> None:
        """Read a range to its end, and rest."""
        begun = time.thread_time()
        try:
            for _ in read_batches(self._log, topic, start, start + self._segments.rows, ()):
                if self._over.is_set():
                    return
        except RumormillError as error:
            _log.info("offsets from %d of topic %r are not sealed: %s", start, topic, error)
        self._over.wait(_RESTS * (time.thread_time() - begun))
