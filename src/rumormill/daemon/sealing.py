"""Sealing ahead: a served store's whole ranges become segments before anybody asks for them.

The first bulk read of a range pays for every row of the database, later ones do not (`segments`).
Who opens a door expects bulk reads, so a thread beside the door goes through all topics and reads
each whole range that has no segment, which leaves one. The rule: nobody waits for it. It takes one
range after another, rests three times as long as each took it, looks at a range once, and leaves
everything that is wrong with a store to those who read it.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Final

from rumormill.core.errors import RumormillError
from rumormill.log.arrow import read_batches
from rumormill.log.event_log import EventLog
from rumormill.log.model import TopicExtent
from rumormill.log.segments import Segments

LOOK_SECONDS: Final = 5.0
"""Our choice: how long a range that has become whole may wait for its segment."""

_RESTS: Final = 3
"""Our choice: a quarter of a core at most."""

_REFUSED_SECONDS: Final = 600.0
"""How long to do nothing where a segment could not be written: the disk is full, or not ours."""

_log = logging.getLogger("rumormill.log")


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
