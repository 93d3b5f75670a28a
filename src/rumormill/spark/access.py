"""Where a data source gets its events: a store on disk, or a node's Flight door.

Both give topics' extents, the offset of a time, and ranges as verified Arrow batches. They are
small values that travel to Spark's workers; connections are made where they are used. A task reads
a piece of a topic: exactly its events, or an error that names the range. A piece that ends early is
lost data, never the end of a batch.

Filters on topic, offset and time are taken over from Spark. Those on topic and offset decide which
ranges are read at all; one on `timestamp` moves the start of a range forward by the store's time
marks. All are then applied to the Arrow batches, so that they need not be evaluated again.
"""

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rumormill.core.api import FetchedHistory
from rumormill.core.errors import LocalError
from rumormill.daemon.flight_client import DoorClient
from rumormill.daemon.flight_messages import ENDPOINT_FILE, Door, load_or_create_token
from rumormill.log.arrow import read_batches
from rumormill.log.errors import DamagedRangeError, OffsetAheadError, OffsetGoneError
from rumormill.log.event_log import EventLog
from rumormill.log.model import Range, StoreConfig, TopicExtent
from rumormill.log.places import offsets_of

_COMPARISONS: Final = {
    "EqualTo": "equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
}
_TYPES: Final = {"topic": str, "offset": int, "timestamp": datetime, "created": datetime}


AnyRange = TypeVar("AnyRange", bound=Range)


class Condition(msgspec.Struct, frozen=True):
    """A column compared with a value, or with several."""

    column: str
    comparison: str
    """A function of `pyarrow.compute`, or `in`."""
    value: Any


def condition_of(pushed: Any) -> Condition | None:
    """What a filter of Spark's means here; None if it is left to Spark."""
    kind = type(pushed).__name__
    column, *inner = getattr(pushed, "attribute", ("",))
    if inner or column not in _TYPES:
        return None
    if kind == "IsNotNull" and column != "created":
        return Condition(column, "any", None)
    if kind == "StringStartsWith" and column == "topic":
        return Condition(column, "starts_with", pushed.value)
    if kind == "In":
        values = [_value(column, each) for each in pushed.value]
        return None if None in values or not values else Condition(column, "in", tuple(values))
    if kind not in _COMPARISONS:
        return None
    value = _value(column, pushed.value)
    return None if value is None else Condition(column, _COMPARISONS[kind], value)


def _value(column: str, value: Any) -> Any:
    if not isinstance(value, _TYPES[column]) or isinstance(value, bool):
        return None
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def wants_topic(conditions: Iterable[Condition], topic: str) -> bool:
    """Whether a topic can have rows under the conditions."""
    import pyarrow as arrow  # noqa: PLC0415

    name = arrow.array([topic])
    own = [each for each in conditions if each.column == "topic" and each.comparison != "any"]
    return all(_mask(name, each)[0].as_py() for each in own)


def narrowed(
    piece: AnyRange, conditions: Iterable[Condition], since: Callable[[str, float], int | None]
) -> AnyRange:
    """The part of a range that can have rows under the conditions."""
    start, stop = piece.start, piece.stop
    for each in conditions:
        if each.column == "offset":
            values = each.value if each.comparison == "in" else (each.value,)
            if each.comparison in _LOWEST:
                start = max(start, min(values) + _LOWEST[each.comparison])
            if each.comparison in _BEHIND:
                stop = min(stop, max(values) + _BEHIND[each.comparison])
        elif each.column == "timestamp" and each.comparison in _AFTER:
            found = since(piece.topic, each.value.timestamp() - _ROUNDING)
            start = max(start, stop if found is None else found)
    return msgspec.structs.replace(piece, start=start, stop=max(start, stop))


_LOWEST: Final = {"equal": 0, "in": 0, "greater": 1, "greater_equal": 0}
_BEHIND: Final = {"equal": 1, "in": 1, "less": 0, "less_equal": 1}
"""How far from a value the lowest offset is, and the one behind the highest."""

_AFTER: Final = ("equal", "greater", "greater_equal")
_ROUNDING: Final = 1e-6
"""A time of the log is rounded to a microsecond in the column that Spark sees."""


def apply(batch: Any, conditions: Iterable[Condition]) -> Any:
    """Only the rows of a batch under the conditions."""
    for each in conditions:
        if each.column != "topic" and each.comparison != "any":  # decided for the whole range
            batch = batch.filter(_mask(batch.column(each.column), each))
    return batch


def _mask(column: Any, condition: Condition) -> Any:
    import pyarrow as arrow  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    if condition.comparison == "in":
        return compute.is_in(column, value_set=arrow.array(condition.value, column.type))
    if condition.comparison == "starts_with":
        return compute.starts_with(column, condition.value)
    scalar = arrow.scalar(condition.value, column.type)
    return getattr(compute, condition.comparison)(column, scalar)


_CONFIG: Final = StoreConfig(open_verify_bytes=1)
"""On open only the newest rows are verified: whatever is read is verified then."""


class DataLossError(LocalError):
    """Events that a query needs are not there any more."""


class _Store(EventLog):
    """A store that answers what a node's door answers."""

    def since(self, topic: str, time: float) -> int | None:
        found = self.read_since(topic, time, 1)
        return found[0].offset if found else None

    def batches(self, topic: str, start: int, stop: int, columns: Sequence[str]) -> Iterator[Any]:
        return read_batches(self, topic, start, stop, columns)

    def places(self, topic: str, ids: Sequence[bytes]) -> list[int | None]:
        return offsets_of(self, topic, ids)


class Access(msgspec.Struct, frozen=True):
    """Where events are; every question is asked over a connection of its own."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The place, for messages."""

    @abstractmethod
    def connect(self) -> _Store | DoorClient:
        """Who answers."""

    def extents(self) -> dict[str, TopicExtent]:
        """All topics."""
        with self.connect() as source:
            return {each.name: each for each in source.topics()}

    def since(self, topic: str, time: float) -> int | None:
        """The first offset of an event that was received at a time or later."""
        with self.connect() as source:
            return source.since(topic, time)

    @abstractmethod
    def fetch_history(self, topic: str, most: int) -> FetchedHistory:
        """Have the node get what others have of a topic, so many events at most, 0 for all."""

    @contextlib.contextmanager
    def batches(
        self, topic: str, start: int, stop: int, columns: Sequence[str]
    ) -> Iterator[Iterator[Any]]:
        """A range as Arrow batches."""
        with self.connect() as source:
            yield source.batches(topic, start, stop, columns)


class HomeAccess(Access, frozen=True):
    """A store on a disk that every worker can read."""

    home: str

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"the store {self.home}"

    def connect(self) -> _Store:
        """Open the store."""
        return _Store(self.home, _CONFIG, read_only=True)

    def fetch_history(self, topic: str, most: int) -> FetchedHistory:
        """Ask the node that runs in the home."""
        return node_of_home(self.home).fetch_history(topic, most)


class NodeAccess(Access, frozen=True):
    """A node's Flight door."""

    endpoint: str
    token: str
    tls: bool = False
    roots: str = ""

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"the node at {self.endpoint}"

    def connect(self) -> DoorClient:
        """A connection to the door."""
        return DoorClient(self.endpoint, self.token, tls=self.tls, roots=self.roots)

    def fetch_history(self, topic: str, most: int) -> FetchedHistory:
        """Ask the node behind the door."""
        with self.connect() as door:
            return door.fetch_history(topic, most)


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


def read_piece(
    access: Access,
    piece: Range,
    columns: Sequence[str],
    conditions: Sequence[Condition] = (),
    *,
    fail_on_data_loss: bool = True,
) -> Iterator[Any]:
    """Verified Arrow batches of a piece; without `fail_on_data_loss`, what is left of it."""
    position = piece.start
    while position < piece.stop:
        resume, why = piece.stop, "the read ended early"
        cause: Exception | None = None
        try:
            with access.batches(piece.topic, position, piece.stop, columns) as batches:
                for batch in batches:
                    position += batch.num_rows
                    yield apply(batch, conditions)
        except OffsetGoneError as gone:
            resume, why, cause = gone.first_offset, "retention has deleted them", gone
        except DamagedRangeError as damaged:
            resume, why, cause = damaged.end, str(damaged), damaged
        except OffsetAheadError as ahead:
            why, cause = str(ahead), ahead
        resume = min(resume, piece.stop)
        if position < piece.stop and fail_on_data_loss:
            raise DataLossError(
                f"topic {piece.topic!r} of {access.where}: offsets {position} to {resume - 1}"
                f" cannot be read: {why}. With failOnDataLoss=false they are passed over"
            ) from cause
        position = max(resume, position + 1)
