"""Rows and their hashes: the one place that says what bytes a hash covers.

A row of topic T at offset n carries `prev`, the hash of row n - 1, and
`hash` = BLAKE2b-128(prev, T, n, every field, each with its length). So a row proves itself, and two
neighbours prove that nothing was between them. A topic's own record (extent, head, totals), a time
mark and a recorded loss carry a `seal` in the same way. 128 bits find every accident; they are no
signature, and whoever can rewrite the files can rewrite the hashes as well.

Rows of one topic lie together: the key is the topic's number in the high bits and the offset in
the low 40, so that a range of offsets is a range of keys.
"""

import struct
from hashlib import blake2b
from typing import Any, Self, TypeAlias

import msgspec

from rumormill.core.event import Event
from rumormill.log.many import Insert
from rumormill.log.model import ROW_OVERHEAD_BYTES

HASH_BYTES = 16
GENESIS = bytes(HASH_BYTES)
"""`prev` of a topic's very first row."""
UNKNOWN_HASH = b""
"""The base of a topic whose first rows were lost: nothing to link the next one to."""

OFFSET_BITS = 40
MAX_OFFSET = 2**OFFSET_BITS - 1
MARK_EVERY = 256
"""A time mark stands at every 256th offset: `read_since` reads at most so many rows too many."""

# key, topic_id, id, author, data, parents, created, received, protocol, proof, prev, hash
EventRow: TypeAlias = tuple[
    int, int, bytes, bytes, bytes, bytes, float | None, float, str, bytes, bytes, bytes
]
COLUMNS = "key, topic_id, id, author, data, parents, created, received, protocol, proof, prev, hash"


INSERT = Insert(f"INSERT INTO events ({COLUMNS})", 12, "ON CONFLICT (topic_id, id) DO NOTHING")
"""Except those whose ids are there."""
PUT_MARK = Insert("INSERT OR REPLACE INTO marks", 3)
SELECT = f"SELECT {COLUMNS} FROM events WHERE key BETWEEN ? AND ? ORDER BY key"
SELECT_ONE = f"SELECT {COLUMNS} FROM events WHERE key = ?"
SELECT_ID = f"SELECT {COLUMNS} FROM events WHERE topic_id = ? AND id = ?"

_EVENT_HEAD = struct.Struct("<QBddIIIIIII")
_TOPIC_HEAD = struct.Struct("<QQQQQdI")
_MARK = struct.Struct("<Qd")
_LOSS = struct.Struct("<QQQ")
_HISTORY = struct.Struct("<QQQBB")
_REFUSAL = struct.Struct("<QQQ")
_LENGTH = struct.Struct("<I")


class TopicRow(msgspec.Struct):
    """A topic's own record: where its events begin and end, and the hashes of both ends."""

    topic_id: int
    name: str
    first_offset: int = 0
    base_hash: bytes = GENESIS
    next_offset: int = 0
    head_hash: bytes = GENESIS
    size: int = 0
    received_max: float = float("-inf")
    generation: int = 0

    def key(self, offset: int) -> int:
        """The key of the row at `offset`."""
        return self.topic_id << OFFSET_BITS | offset

    def copy(self) -> Self:
        """A copy to change while a transaction may still fail."""
        return msgspec.structs.replace(self)


def seal_topic(row: TopicRow) -> bytes:
    """The checksum of a topic's own record."""
    name = row.name.encode()
    head = _TOPIC_HEAD.pack(
        row.topic_id,
        row.first_offset,
        row.next_offset,
        row.size,
        row.generation,
        row.received_max,
        len(name),
    )
    return _digest(b"".join((head, row.base_hash, row.head_hash, name)))


def seal_store(schema_version: int, store_id: bytes) -> bytes:
    """The checksum of the store's own record; the same in all versions of the schema."""
    return _digest(schema_version.to_bytes(8, "little", signed=True) + store_id)


def seal_mark(key: int, received_max: float) -> bytes:
    """The checksum of a time mark."""
    return _digest(_MARK.pack(key, received_max))


def seal_loss(topic_id: int, start: int, end: int) -> bytes:
    """The checksum of a recorded loss."""
    return _digest(_LOSS.pack(topic_id, start, end))


def seal_history(topic_id: int, indexed_to: int, keep_from: int, undated: int, ahead: int) -> bytes:
    """The checksum of the record of a topic's history."""
    return _digest(_HISTORY.pack(topic_id, indexed_to, keep_from, undated, ahead))


def seal_refusal(topic_id: int, number: int, stamp: int, event_id: bytes) -> bytes:
    """The checksum of an id that is known and not stored."""
    return _digest(_REFUSAL.pack(topic_id, number, stamp) + event_id)


def pack_parents(parents: tuple[bytes, ...]) -> bytes:
    """Parents as one blob, each behind its length."""
    if not parents:
        return b""
    pieces: list[bytes] = []
    for parent in parents:
        pieces += (_LENGTH.pack(len(parent)), parent)
    return b"".join(pieces)


def unpack_parents(blob: bytes) -> tuple[bytes, ...]:
    """The opposite of `pack_parents`, for a blob whose hash has been verified."""
    parents = []
    position = 0
    while position < len(blob):
        (length,) = _LENGTH.unpack_from(blob, position)
        position += 4 + length
        parents.append(blob[position - length : position])
    return tuple(parents)


def make_row(event: Event, topic_id: int, topic: bytes, offset: int, prev: bytes) -> EventRow:
    """The row of `event` behind the row whose hash is `prev`."""
    # Adding 0.0 turns -0.0, which SQLite would not give back, into 0.0, and an int into a float.
    created = None if event.created is None else event.created + 0.0
    received = event.received + 0.0
    parents = pack_parents(event.parents) if event.parents else b""
    key = topic_id << OFFSET_BITS | offset
    protocol = event.protocol
    digest = _row_hash(
        key, topic, event.id, event.author, event.data, parents, created, received,
        protocol.encode(), event.proof, prev,
    )  # fmt: skip
    return (
        key, topic_id, event.id, event.author, event.data, parents, created, received,
        protocol, event.proof, prev, digest,
    )  # fmt: skip


def bound(row: EventRow) -> tuple[object, ...]:
    """A row as it is handed to SQLite: Python binds a `bytearray` as it is, while for each `bytes`
    it first looks for adapters, which takes longer than inserting the row.
    """
    key, topic_id, id_, author, data, parents, created, received, protocol, proof, prev, has = row
    return (
        key, topic_id, bytearray(id_), bytearray(author), bytearray(data),
        bytearray(parents) if parents else _EMPTY, created, received,
        protocol, bytearray(proof), bytearray(prev), bytearray(has),
    )  # fmt: skip


_EMPTY = bytearray()


def row_is_whole(row: tuple[Any, ...], topic_id: int, topic: bytes) -> bool:
    """Whether a row read from disk is exactly one that `make_row` made."""
    key, row_topic, id_, author, data, parents, created, received, protocol, proof, prev, has = row
    try:
        return row_topic == topic_id and len(prev) == HASH_BYTES and has == _row_hash(
            key, topic, id_, author, data, parents, created, received,
            protocol.encode(), proof, prev,
        )  # fmt: skip
    except (TypeError, AttributeError, ValueError, struct.error):
        return False  # a flipped type code gives a value that cannot even be hashed


def row_event(row: EventRow, topic: str) -> Event:
    """The event in a row that is known to be whole."""
    key, _, id_, author, data, parents, created, received, protocol, proof, _, _ = row
    return Event(
        topic, data, author, id_, unpack_parents(parents) if parents else (), created, proof,
        received, key & MAX_OFFSET, protocol,
    )  # fmt: skip


def row_bytes(row: EventRow) -> int:
    """What a row counts towards its topic's size and a reader's byte limit."""
    variable = len(row[2]) + len(row[3]) + len(row[4]) + len(row[5]) + len(row[8]) + len(row[9])
    return ROW_OVERHEAD_BYTES + variable


ROW_BYTES_SQL = (
    f"{ROW_OVERHEAD_BYTES} + length(id) + length(author) + length(data) + length(parents)"
    " + length(protocol) + length(proof)"
)
"""`row_bytes` for the database to sum up."""


def _row_hash(
    key: int,
    topic: bytes,
    id_: bytes,
    author: bytes,
    data: bytes,
    parents: bytes,
    created: float | None,
    received: float,
    protocol: bytes,
    proof: bytes,
    prev: bytes,
) -> bytes:
    fields = (topic, id_, author, data, parents, protocol, proof)
    dated = (False, 0.0) if created is None else (True, created)
    head = _EVENT_HEAD.pack(key & MAX_OFFSET, *dated, received, *map(len, fields))
    return blake2b(b"".join((prev, head, *fields)), digest_size=HASH_BYTES).digest()


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=HASH_BYTES).digest()


class Group:
    """The changes of one transaction, kept aside until it is committed."""

    def __init__(self, topics: dict[str, TopicRow], next_id: int) -> None:
        self._topics = topics
        self._next_id = next_id
        self._loaded: dict[str, TopicRow] = {}
        self.changed: dict[str, TopicRow] = {}
        self.noted = False
        """Whether notes were written, with events or without."""
        self.marks: list[tuple[int, float, bytes]] = []
        self.encoded: dict[str, bytes] = {}

    def topic(self, name: str) -> TopicRow:
        """The topic's record, to be changed; a new one if there is none yet."""
        row = self._loaded.get(name)
        if row is None:
            known = self._topics.get(name)
            if known is not None:
                row = known.copy()
            else:
                row = TopicRow(self._next_id, name)
                self._next_id += 1
            self._loaded[name] = row
            self.encoded[name] = name.encode()
        return row

    def add(self, topic: TopicRow, row: EventRow, size: int) -> None:
        """Account for a row of `row_bytes` behind the topic's head."""
        offset = row[0] & MAX_OFFSET
        if offset % MARK_EVERY == 0 and offset:
            key, latest = row[0], topic.received_max
            self.marks.append((key, latest, seal_mark(key, latest)))
        self.changed[topic.name] = topic
        topic.next_offset = offset + 1
        topic.head_hash = row[11]
        topic.size += size
        topic.received_max = max(topic.received_max, row[7])
