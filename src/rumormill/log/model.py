"""The log's nouns: events, topics, reports, and the settings with where they come from.

Nothing here touches a disk. Everything that a caller gives to the log is checked here, before it is
queued, so that one caller's bad event can never fail the group commit that carries other callers'.
"""

import enum
import math
from collections.abc import Sequence

import msgspec

from rumormill.core.errors import ConfigError
from rumormill.core.event import UNASSIGNED, Event
from rumormill.log.errors import EventRefusedError, Finding

MAX_PARENTS = 1024
"""Most parents of one event: our choice, 40 KiB of CIDs."""
ROW_OVERHEAD_BYTES = 160
"""What one row costs beside its fields: two hashes, three numbers, two B-tree entries."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """What became of one appended event.

    A `duplicate` was there before. One that retention has deleted since, or would have, is not
    kept again: it is `gone` and has no offset. `durable_at` is our clock right after the group was
    on disk, or None in a mode that does not wait for the disk.
    """

    offset: int
    duplicate: bool
    durable_at: float | None

    @property
    def gone(self) -> bool:
        """Whether the event was not kept, because its time in this log is over."""
        return self.offset == UNASSIGNED


class TopicExtent(msgspec.Struct, frozen=True, gc=False):
    """A topic's extent: events `first_offset` to `next_offset - 1` are there.

    Two logs with the same `next_offset` and `head_hash` have the same history.
    """

    name: str
    first_offset: int
    next_offset: int
    size: int = 0
    head_hash: bytes = b""

    def place(self, offset: int) -> int:
        """An offset as given: below 0 it counts from the end, -5 for the last five."""
        return offset if offset >= 0 else max(self.first_offset, self.next_offset + offset)


class Range(msgspec.Struct, frozen=True):
    """The events `start` to `stop - 1` of a topic."""

    topic: str
    start: int
    stop: int


class Durability(enum.StrEnum):
    """What an append's ticket promises when it resolves."""

    FSYNC = "fsync"
    """The event survives power loss: it has been flushed to the disk. The default."""
    OS = "os"
    """The event survives the death of this process, but not a crash of the machine."""
    MEMORY = "memory"
    """The event lives as long as this process; there are no files."""


class Report(msgspec.Struct, frozen=True):
    """The result of a verification or a repair."""

    findings: tuple[Finding, ...]
    events: int
    size: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


class Retention(msgspec.Struct, frozen=True, gc=False):
    """How much of a topic to keep; None keeps everything. Only ever deletes the oldest events."""

    max_age_seconds: float | None = None
    max_bytes: int | None = None
    max_events: int | None = None

    def validate(self) -> None:
        """Refuse limits that are not positive."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"retention.{name} must be above 0, or None for no limit")


class StoreConfig(msgspec.Struct, frozen=True):
    """Settings of a log. Every default is our choice; the reason stands beside it."""

    durability: Durability = Durability.FSYNC
    """A receipt that a power cut can take back is worth little; weaker modes are chosen by name."""

    group_events: int = 4096
    """Most events in one commit (a larger single append still goes in whole). At about 10 µs each
    a full group takes 40 ms, which bounds what an append waits behind."""

    group_bytes: int = 4 * 2**20
    """Most bytes in one commit, for the same reason when events are large."""

    linger_seconds: float = 0.0
    """How long a group may wait for company. 0: appends that arrive while the disk is busy already
    form the next group, so waiting would only add latency."""

    queue_events: int = 65_536
    """Most events waiting for the writer: under a second of its work."""

    queue_bytes: int = 64 * 2**20
    """Most bytes waiting for the writer: the memory one stalled disk may cost."""

    max_event_bytes: int = 4 * 2**20
    """Largest event: four times GossipSub's customary message limit of 1 MiB."""

    max_topic_bytes: int = 1024
    """Longest topic name in UTF-8: names are kept with every head."""

    max_topics: int = 100_000
    """Most topics: each costs about 300 bytes of memory and 100 in the heads file."""

    max_database_bytes: int | None = None
    """Most bytes of the database file; None leaves it to the disk, or to 1 GiB in memory."""

    reserve_bytes: int = 64 * 2**20
    """What appends leave free on the disk, of a small one a quarter: a write-ahead log is folded
    into as much more of the database (32 MiB), and deleting takes as much again before it gives
    back. 0: nothing."""

    readers: int = 4
    """Most read connections at once; more readers wait. Each holds up to 2 MiB of cache."""

    open_verify_bytes: int = 64 * 2**20
    """How much is verified on open: a database up to this size whole, a larger one in the tails
    of its topics. 64 MiB are read in well under a second."""

    checkpoint_pages: int = 4000
    """The write-ahead log is folded into the database after at most this many pages (32 MiB)."""

    heads_sync_commits: int = 64
    """The heads file is flushed at least every so many commits; see `rumormill.log.heads` for
    what that bounds, and a second after a commit when the log is quiet. 1 flushes it before every
    ticket resolves, at twice the latency."""

    segment_rows: int = 16_384
    """How many events share a sealed segment; 0 keeps none. Some MiB of usual events: opening a
    segment is nothing beside reading it, and who wants one event of it does not wait."""

    def validate(self) -> None:
        """Refuse values that cannot work."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in ("durability", "linger_seconds") or value is None:
                continue
            if name in ("segment_rows", "reserve_bytes") and value == 0:
                continue
            if not value > 0:
                raise ConfigError(f"store.{name} must be above 0")
        if not 0 <= self.linger_seconds <= 1:
            raise ConfigError("store.linger_seconds must be from 0 to 1")
        if self.max_event_bytes > self.queue_bytes:
            raise ConfigError("store.queue_bytes must be at least store.max_event_bytes")
        if self.max_topic_bytes > 65_536 or self.max_topics > 2**22:
            raise ConfigError("store.max_topic_bytes is at most 65536, store.max_topics 4194304")


_BYTES = [bytes] * 4


def check_event(event: Event, config: StoreConfig) -> int:
    """Refuse an event that cannot be stored exactly; return what it costs in bytes."""
    values = (event.id, event.author, event.data, event.proof)
    if [*map(type, values)] != _BYTES and not all(isinstance(each, bytes) for each in values):
        raise EventRefusedError("an event's id, author, data and proof must be bytes")
    protocol = event.protocol
    if type(protocol) is not str or len(protocol) > 255:
        raise EventRefusedError("an event's protocol must be a string of at most 255 characters")
    if not event.id:
        raise EventRefusedError("an event's id must not be empty")
    size = sum(map(len, values), ROW_OVERHEAD_BYTES) + len(protocol)
    if event.parents:
        size += _check_parents(event.parents)
    if size > config.max_event_bytes:
        raise EventRefusedError(
            f"an event of {size} bytes is above the limit of {config.max_event_bytes}"
        )
    created, received = event.created, event.received
    if type(received) is not float or not math.isfinite(received):
        _check_time(received)
    if created is not None:
        _check_time(created)
    return size


def check_topic(name: str, config: StoreConfig) -> None:
    """Refuse a topic name that cannot be kept."""
    if type(name) is not str:
        raise EventRefusedError("a topic's name must be a string")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise EventRefusedError("a topic's name must be valid Unicode") from None
    if not 0 < len(encoded) <= config.max_topic_bytes or "\0" in name:
        raise EventRefusedError(
            f"a topic's name must have 1 to {config.max_topic_bytes} bytes and no NUL"
        )


def _check_parents(parents: Sequence[bytes]) -> int:
    if type(parents) is not tuple or len(parents) > MAX_PARENTS:
        raise EventRefusedError(f"an event has a tuple of at most {MAX_PARENTS} parents")
    if not all(isinstance(parent, bytes) for parent in parents):
        raise EventRefusedError("an event's parents must be bytes")
    return sum(map(len, parents)) + 4 * len(parents)


def _check_time(value: object) -> None:
    if type(value) is float and math.isfinite(value):
        return
    if type(value) is not int or not -(2**53) <= value <= 2**53:
        raise EventRefusedError("an event's times must be finite numbers of seconds")
