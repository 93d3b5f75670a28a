"""The Flight door: topics of a store as Arrow batches for other programs, and rows to publish.

Whoever has the token may read, and publish where a node stands behind the door. A range is served
as verified batches or ends in an error that names what is missing; nothing of it is held in memory
but the batch that the client is about to take, since Flight asks for the next one when the last has
gone. Reads see committed events only.

Rows are published in the order in which they come. The note that is kept with each says how many
rows of its key have been published and what they were, so that rows that are sent again, after a
crash of the sender or of this node, are recognised and left out.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from typing import Any, Final, Self, TypeAlias

import msgspec

from rumormill.core.api import FetchedHistory, Message
from rumormill.core.errors import LocalError
from rumormill.core.event import Note
from rumormill.daemon import flight_messages as messages
from rumormill.log.arrow import TABLE, read_batches
from rumormill.log.event_log import EventLog
from rumormill.log.notes import MAX_KEY_BYTES, drop_notes, is_own, note_keys, read_note
from rumormill.log.payloads import CONTENT_TYPE

MAX_PARTS: Final = 1024
PUBLISH_ROWS: Final = 256
PUBLISH_BYTES: Final = 1 << 20
"""Our choice: what shares a commit of the log, as for a node's own batches."""

BUSY_SECONDS: Final = 30.0
"""Our choice: how long a sender waits for an earlier one of the same rows to be gone."""

_PROGRESS_BYTES: Final = 8
_DIGEST_BYTES: Final = 16
_NOTHING: Final = (None, None, None)
"""What is said of a row besides its value, if nothing is."""


Publish: TypeAlias = Callable[[Sequence[tuple[str, Message, Note]]], None]
"""Publishes rows with their notes, in this order; returns when the log is safe."""
Fetch: TypeAlias = Callable[[str, int], FetchedHistory]
"""Gets a topic's history beyond the log into the log, so many events at most, 0 for all."""


class StillPublishingError(LocalError):
    """Rows have not been published in time, and may be yet."""

    def __init__(self, publishing: "Future[Any]") -> None:
        super().__init__("the node does not publish: its log or its peers are stuck")
        self.publishing = publishing
        """Done when it is known."""


class Progress(msgspec.Struct):
    """How many rows of a key were published, and a digest of them in their order."""

    rows: int = 0
    digest: bytes = bytes(_DIGEST_BYTES)

    def add(self, topic: str, message: Message) -> None:
        """Count one more row."""
        name, data = topic.encode(), message.data
        data = data.encode() if isinstance(data, str) else data
        content = self.digest + len(name).to_bytes(4, "little") + name + data
        said = message.key, message.content_type, message.headers
        about = b"" if said == _NOTHING else blake2b(msgspec.json.encode(said)).digest()[:16]
        self.digest = blake2b(content, digest_size=_DIGEST_BYTES, person=about).digest()
        self.rows += 1

    def encode(self) -> bytes:
        """The note's value."""
        return self.rows.to_bytes(_PROGRESS_BYTES, "little") + self.digest

    @classmethod
    def decode(cls, value: bytes | None) -> Self:
        """Read a note's value."""
        if value is None:
            return cls()
        return cls(int.from_bytes(value[:_PROGRESS_BYTES], "little"), value[_PROGRESS_BYTES:])


class FlightService:
    """What can be asked through the door, without Flight around it."""

    def __init__(
        self,
        log: EventLog,
        publish: Publish | None = None,
        fetch: Fetch | None = None,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.log = log
        self.publish = publish
        self.count = count
        """Told the reason of each refusal, in whichever thread."""
        self._fetch = fetch
        self._freed = threading.Condition()
        self._busy: dict[str, None] = {}

    def since(self, request: messages.SinceRequest) -> int | None:
        """The offset of the first event since a time."""
        found = self.log.read_since(request.topic, request.time, 1)
        return found[0].offset if found else None

    def fetch(self, request: messages.FetchRequest) -> FetchedHistory:
        """Have the node get what others have of a topic."""
        if self._fetch is None:
            raise LocalError("this door only reads: a node fetches, rumormill node --flight")
        return self._fetch(request.topic, request.most)

    def ranges(self, request: messages.PlanRequest) -> list[messages.RangeRequest]:
        """A read, cut in parts that can be read at the same time."""
        info = self.log.topic(request.topic)
        if info is None:
            raise LocalError(f"there is no topic {request.topic!r}")
        start = info.first_offset if request.start is None else request.start
        stop = info.next_offset if request.stop is None else request.stop
        if not 0 <= start <= stop or not 0 < request.parts <= MAX_PARTS:
            raise LocalError(f"offsets {start} to {stop} in {request.parts} parts make no range")
        parts = max(1, min(request.parts, stop - start))
        bounds = [start + (stop - start) * number // parts for number in range(parts + 1)]
        return [
            messages.RangeRequest(request.topic, bounds[i], bounds[i + 1], request.columns)
            for i in range(parts)
        ]

    def batches(self, request: messages.RangeRequest) -> Iterator[Any]:
        """A range as verified batches."""
        return read_batches(
            self.log, request.topic, request.start, request.stop, columns_of(request)
        )

    def put(self, request: messages.PutRequest, batches: Iterator[Any]) -> messages.PutResult:
        """Publish the rows that are not published yet."""
        publish = self.publish
        if publish is None:
            raise LocalError(
                "this door only reads: rows are published through a node, rumormill node --flight"
            )
        if not 0 < len(request.key.encode()) <= MAX_KEY_BYTES:
            raise LocalError(f"a key has 1 to {MAX_KEY_BYTES} bytes")
        if is_own(request.key):
            raise LocalError(f"the node itself uses the key {request.key!r}: choose another")
        with self._alone(request.key):
            before = Progress.decode(read_note(self.log, request.key))
            progress = Progress()
            waiting: list[tuple[str, Message, Note]] = []
            size = 0
            for batch in batches:
                for topic, message in _rows(batch, request.topic):
                    progress.add(topic, message)
                    if progress.rows <= before.rows:
                        _check_same(request.key, before, progress)
                        continue
                    waiting.append((topic, message, Note(request.key, progress.encode())))
                    size += len(message.data)
                    if len(waiting) >= PUBLISH_ROWS or size >= PUBLISH_BYTES:
                        publish(waiting)
                        waiting, size = [], 0
            if waiting:
                publish(waiting)
        if progress.rows < before.rows:
            raise LocalError(
                f"{request.key}: {before.rows} rows were published under this key before, and"
                f" now there are only {progress.rows}: the query is not the same on replay"
            )
        return messages.PutResult(progress.rows - before.rows, before.rows)

    def forget(self, request: messages.ForgetRequest) -> int:
        """Drop the notes of rows that are never sent again."""
        if not request.prefix:
            raise LocalError("a prefix is not empty")
        keep = request.keep
        found = note_keys(self.log, request.prefix)
        theirs = [key for key in found if not is_own(key)]
        dropped = [key for key in theirs if not keep or not key.startswith(keep)]
        if dropped:
            drop_notes(self.log, dropped)
        return len(dropped)

    @contextlib.contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """One sender of a key at a time: another one is a task that was given up, and ends."""
        deadline = time.monotonic() + BUSY_SECONDS
        with self._freed:
            while key in self._busy:
                if not self._freed.wait(max(0.0, deadline - time.monotonic())):
                    raise LocalError(f"rows under the key {key} are being published already")
            self._busy[key] = None

        def free(_: object) -> None:
            with self._freed:
                del self._busy[key]
                self._freed.notify_all()

        try:
            yield
        except StillPublishingError as error:  # a row that is kept later still may not come again
            error.publishing.add_done_callback(free)
            raise
        except BaseException:
            free(None)
            raise
        free(None)


def columns_of(request: messages.RangeRequest | messages.PlanRequest) -> tuple[str, ...]:
    """The columns of a request; those of the table unless it names others."""
    return request.columns or TABLE


def _check_same(key: str, before: Progress, progress: Progress) -> None:
    if progress.rows == before.rows and progress.digest != before.digest:
        raise LocalError(
            f"{key}: {before.rows} rows were published under this key before, and they were"
            " others: the query is not the same on replay"
        )


def _rows(batch: Any, topic: str | None) -> Iterator[tuple[str, Message]]:
    names = batch.schema.names
    if "value" not in names:
        raise LocalError("rows to publish need a column value")
    if topic is None and "topic" not in names:
        raise LocalError("rows to publish need a column topic, or the option topic")
    nulls = [None] * batch.num_rows
    columns = [
        batch.column(name).to_pylist() if name in names else nulls
        for name in ("topic", "value", "key", "headers")
    ]
    for name, value, key, headers in zip(*columns, strict=True):
        to = name if topic is None else topic
        if to is None or value is None:
            raise LocalError("a row to publish has no null in topic or value")
        said, content_type = _headers(headers)
        yield str(to), Message(value, key, said, content_type)


def _headers(listed: list[dict[str, Any]] | None) -> tuple[dict[str, str] | None, str | None]:
    """Headers as Kafka's, by name; the one that is the content type is apart."""
    found: dict[str, str] = {}
    for each in listed or ():
        name, value = each["key"], each["value"]
        if name is None or value is None:
            raise LocalError(f"headers: {name!r} needs a name and a value")
        if name in found:
            raise LocalError(f"headers: {name!r} stands there twice")
        try:
            found[name] = value if isinstance(value, str) else value.decode()
        except UnicodeDecodeError:
            raise LocalError(f"headers: the value of {name!r} is not text in UTF-8") from None
    content_type = found.pop(CONTENT_TYPE.decode(), None)
    return found or None, content_type
