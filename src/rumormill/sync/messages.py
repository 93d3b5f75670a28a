"""The messages of `/rumormill/sync/1.0.0`, as values and as bytes (`sync.proto`).

Questions and answers go over short streams, one message each way. Where a message lists ranges or
topics by the hundred, they are packed by hand: field by field they would take twice the bytes, and
these lists are what a comparison costs. Ranges follow upon each other, so each is written as the
key where it ends, whose date is the difference to the end before.

The rule: no object is built that a limit has not allowed; whatever is wrong with the bytes, the
answer is a `DecodeError`.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.core.history import BEGIN, Key, Window
from rumormill.core.ids import MessageId, PeerId
from rumormill.core.trace import OperationMeta, RpcMeta
from rumormill.protocols.registry import QuerySpec
from rumormill.wire.fields import LeftOut, Nested, Number, Octets, OneOf
from rumormill.wire.protobuf import field_size, read_varint, varint
from rumormill.wire.schema import Schema

SYNC_PROTOCOL: Final = "/rumormill/sync/1.0.0"

SALT_BYTES: Final = 16
HASH_BYTES: Final = 6
"""Bytes of a range's hash: one in 2^48 differs unseen, and is hashed anew in the next session."""
TAG_BYTES: Final = 8
SHORT_BYTES: Final = 6
"""Bytes of an id as it is listed: hashed with the salt, so that nobody can make two that agree."""

MAX_ID_BYTES: Final = 512
"""As long as an id of a pub/sub message may be."""
MAX_TOPICS: Final = 256
"""Topics in one probe; our choice: some 6 KiB. Who follows more probes in parts."""
MAX_SPANS: Final = 512
"""Ranges in one message; our choice: some 6 KiB."""
MAX_WANTED: Final = 32
MAX_KNOWN: Final = 64
"""Ranges of one fetch, and ids that each can name as known; our choice: 12 KiB at most."""
MAX_EVENTS: Final = 256
MAX_EVENT_BYTES: Final = 4 << 20
MAX_MESSAGE_BYTES: Final = MAX_EVENT_BYTES + (1 << 20)
"""A log's longest event, and what it may come with. Answers hold 256 KiB unless one event is
longer than that."""
MAX_CONFIRMED: Final = 64
"""Events in one question whether they are stored."""

_STAMP_MAX: Final = 2**63 - 1


class Span(msgspec.Struct, frozen=True, gc=False):
    """A range, from where the one before ended up to `high`; without a hash nothing is said."""

    high: Key
    hash: bytes = b""


Spans: TypeAlias = tuple[Span, ...]


class ProbedTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic by its tag, what the asker keeps of it, and the hash of that."""

    tag: bytes
    hash: bytes
    window: Window


class Probe(msgspec.Struct, frozen=True, gc=False):
    """What the asker has of its topics, up to a moment, and of what lies ahead of another."""

    salt: bytes
    upto: int
    ahead_from: int
    topics: tuple[ProbedTopic, ...]


class Difference(msgspec.Struct, frozen=True, gc=False):
    """A topic of a probe, by its place, in which the answerer has something else."""

    place: int
    count: int
    spans: Spans


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The answer to a probe: where something differs, and which topics the answerer has not."""

    differences: tuple[Difference, ...] = ()
    unknown: tuple[int, ...] = ()


class Compare(msgspec.Struct, frozen=True, gc=False):
    """Ranges of a topic that the asker has cut smaller, for the answerer to compare."""

    salt: bytes
    tag: bytes
    low: Key
    spans: Spans


class Compared(msgspec.Struct, frozen=True, gc=False):
    """What differs of these ranges, cut smaller where the answerer has many events.

    `next` is from where on nothing was compared yet, if the answer would have become too long.
    """

    spans: Spans = ()
    next: Key | None = None


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A range whose events are wanted, without those that are `known` (short ids in a row)."""

    low: Key
    high: Key
    known: bytes = b""


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Ask for the events of some ranges of a topic."""

    salt: bytes
    tag: bytes
    wanted: tuple[Wanted, ...]


class SentEvent(msgspec.Struct, frozen=True, gc=False):
    """An event, with what lets its protocol check it."""

    author: PeerId
    id: MessageId
    data: bytes
    proof: bytes


class Events(msgspec.Struct, frozen=True, gc=False):
    """Events of the wanted ranges in their order.

    If something is left, `next` is where to go on, in the range at `place`.
    """

    events: tuple[SentEvent, ...] = ()
    next: Key | None = None
    place: int = 0


class Offer(msgspec.Struct, frozen=True, gc=False):
    """The sender has events of these topics that the receiver may lack; wants no answer."""

    tags: tuple[bytes, ...]


class Confirm(msgspec.Struct, frozen=True, gc=False):
    """Ask which events of a topic are safe with the answerer."""

    tag: bytes
    ids: tuple[MessageId, ...]


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """The places of those that are."""

    places: tuple[int, ...] = ()


Body: TypeAlias = (
    Probe | Verdict | Compare | Compared | Fetch | Events | Offer | Confirm | Confirmed
)

_OPERATIONS: Final = {
    kind: (OperationMeta(f"sync {kind.__name__.lower()}"),)
    for kind in (Probe, Verdict, Compare, Compared, Fetch, Events, Offer, Confirm, Confirmed)
}


class SyncMessage(msgspec.Struct, gc=False):
    """One question or answer. Immutable once sent."""

    body: Body
    cached_meta: RpcMeta | None = None

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message."""
        return self.cached_meta or self.measured(_MESSAGE.size(self))

    def measured(self, size: int) -> RpcMeta:
        """Note how many bytes it takes: whoever has these need not measure all that it holds."""
        body, data = self.body, 0
        if type(body) is Events:  # may hold hundreds: none is measured again
            rest = Events((), body.next, body.place)
            data = _content(size) - _BODIES[Events].size(rest)
        meta = RpcMeta(size=size, data_size=data, operations=_OPERATIONS[type(body)])
        self.cached_meta = meta
        return meta

    @property
    def urgent(self) -> bool:
        """Questions travel on streams of their own; nothing is overtaken."""
        return False


# What is packed by hand.


class _PackedSpans:
    """Ranges in a row: each the difference of dates, the length of the id, the id, the hash."""

    def encode(self, spans: Spans) -> bytes:
        before = 0
        parts: list[bytes] = []
        for span in spans:
            stamp, event_id = span.high
            hashed = span.hash
            parts += (
                varint(stamp - before),
                varint(len(event_id) << 1 | bool(hashed)),
                event_id,
                hashed,
            )
            before = stamp
        return b"".join(parts)

    def size(self, spans: Spans) -> int:
        return len(self.encode(spans))

    def read(self, data: bytes, position: int, end: int, _: LeftOut | None) -> Spans:
        spans: list[Span] = []
        stamp, before = 0, BEGIN
        while position < end:
            if len(spans) >= MAX_SPANS:
                raise DecodeError("too-many-ranges", f"more than {MAX_SPANS} in a message")
            delta, position = read_varint(data, position, end)
            head, position = read_varint(data, position, end)
            stamp, length = stamp + delta, head >> 1
            behind = position + length + HASH_BYTES * (head & 1)
            if length > MAX_ID_BYTES or behind > end or stamp > _STAMP_MAX:
                raise DecodeError("bad-range", "the end of a range is none")
            high = Key(stamp, data[position : position + length])
            if high <= before:
                raise DecodeError("bad-range", "a range ends before it begins")
            spans.append(Span(high, data[position + length : behind]))
            position, before = behind, high
        return tuple(spans)


class _PackedTopics:
    """Topics of a probe in a row: tag, hash, and the window as one number."""

    def encode(self, topics: tuple[ProbedTopic, ...]) -> bytes:
        parts: list[bytes] = []
        for tag, hashed, window in ((each.tag, each.hash, each.window) for each in topics):
            lacks = (not window.undated) | (not window.ahead) << 1
            parts += (tag, hashed, varint((window.keep_from - 1) << 2 | lacks))
        return b"".join(parts)

    def size(self, topics: tuple[ProbedTopic, ...]) -> int:
        return len(self.encode(topics))

    def read(
        self, data: bytes, position: int, end: int, _: LeftOut | None
    ) -> tuple[ProbedTopic, ...]:
        topics: list[ProbedTopic] = []
        while position < end:
            if len(topics) >= MAX_TOPICS:
                raise DecodeError("too-many-topics", f"more than {MAX_TOPICS} in a message")
            hashed, behind = position + TAG_BYTES, position + TAG_BYTES + HASH_BYTES
            window, after = read_varint(data, behind, end)
            keep_from = (window >> 2) + 1
            if keep_from > _STAMP_MAX:
                raise DecodeError("bad-window", "a window begins behind every date")
            topics.append(
                ProbedTopic(
                    data[position:hashed],
                    data[hashed:behind],
                    Window(keep_from, not window & 1, not window & 2),
                )
            )
            position = after
        return tuple(topics)


# Everything else is declared.


def _exactly(number: int, length: int, reason: str) -> Octets:
    def read(data: bytes) -> bytes:
        if data and len(data) != length:
            raise DecodeError(reason, f"{len(data)} bytes instead of {length}")
        return data

    return Octets(number, length, read=read, missing=reason)


def _salt(number: int) -> Octets:
    return _exactly(number, SALT_BYTES, "bad-salt")


def _tag(number: int) -> Octets:
    return _exactly(number, TAG_BYTES, "bad-tag")


def _short_ids(data: bytes) -> bytes:
    if len(data) % SHORT_BYTES:
        raise DecodeError("bad-short-ids", "a short id is cut")
    return data


_SPANS: Final = _PackedSpans()
_KEY: Final = Schema(Key, {"stamp": Number(1, _STAMP_MAX), "id": Octets(2, MAX_ID_BYTES)})
_PLACE: Final = MAX_TOPICS - 1
_EVENT: Final = Schema(
    SentEvent,
    {
        "author": Octets(1, MAX_ID_BYTES),
        "id": Octets(2, MAX_ID_BYTES, missing="no-id"),
        "data": Octets(3, MAX_EVENT_BYTES),
        "proof": Octets(4, MAX_EVENT_BYTES),
    },
)
_BODIES: Final[Mapping[type, Schema[Any]]] = {
    Probe: Schema(
        Probe,
        {
            "salt": _salt(1),
            "upto": Number(2, _STAMP_MAX),
            "ahead_from": Number(3, _STAMP_MAX),
            "topics": Nested(4, _PackedTopics()),
        },
    ),
    Verdict: Schema(
        Verdict,
        {
            "differences": Nested(
                1,
                Schema(
                    Difference,
                    {
                        "place": Number(1, _PLACE),
                        "count": Number(2),
                        "spans": Nested(3, _SPANS),
                    },
                ),
                max_count=MAX_TOPICS,
            ),
            "unknown": Number(2, _PLACE, max_count=MAX_TOPICS),
        },
    ),
    Compare: Schema(
        Compare,
        {
            "salt": _salt(1),
            "tag": _tag(2),
            "low": Nested(3, _KEY),
            "spans": Nested(4, _SPANS),
        },
    ),
    Compared: Schema(
        Compared, {"spans": Nested(1, _SPANS), "next": Nested(2, _KEY, optional=True)}
    ),
    Fetch: Schema(
        Fetch,
        {
            "salt": _salt(1),
            "tag": _tag(2),
            "wanted": Nested(
                3,
                Schema(
                    Wanted,
                    {
                        "low": Nested(1, _KEY),
                        "high": Nested(2, _KEY),
                        "known": Octets(3, SHORT_BYTES * MAX_KNOWN, read=_short_ids),
                    },
                ),
                max_count=MAX_WANTED,
            ),
        },
    ),
    Events: Schema(
        Events,
        {
            "events": Nested(1, _EVENT, max_count=MAX_EVENTS),
            "next": Nested(2, _KEY, optional=True),
            "place": Number(3, MAX_WANTED - 1),
        },
    ),
    Offer: Schema(Offer, {"tags": Octets(1, TAG_BYTES, max_count=MAX_TOPICS)}),
    Confirm: Schema(
        Confirm, {"tag": _tag(1), "ids": Octets(2, MAX_ID_BYTES, max_count=MAX_CONFIRMED)}
    ),
    Confirmed: Schema(Confirmed, {"places": Number(1, MAX_CONFIRMED - 1, max_count=MAX_CONFIRMED)}),
}
_MESSAGE: Final = Schema(
    SyncMessage,
    {
        "body": OneOf(
            {
                kind: Nested(number, schema)
                for number, (kind, schema) in enumerate(_BODIES.items(), start=1)
            },
            missing="no-body",
        )
    },
    max_bytes=MAX_MESSAGE_BYTES,
)


def _content(size: int) -> int:
    """How long a value is whose field takes so many bytes (`field_size`)."""
    length = size - 2
    while field_size(length) > size:
        length -= 1
    return length


def encode_sync(message: SyncMessage) -> bytes:
    """Write a message, without the length that frames it on a stream."""
    encoded = _MESSAGE.encode(message)
    message.measured(len(encoded))
    return encoded


def decode_sync(data: bytes) -> SyncMessage:
    """Read a message, without its length prefix."""
    message = _MESSAGE.decode(data)
    message.measured(len(data))
    return message


SYNC_QUERIES: Final = QuerySpec(
    (SYNC_PROTOCOL,),
    encode_sync,
    lambda _: decode_sync,
    lambda _: MAX_MESSAGE_BYTES,
)
"""How a runtime carries these questions and answers."""
