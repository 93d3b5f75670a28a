"""Events and topics in protobuf, as the original writes them, with the signatures that are ours;
and what a receiver demands of them.

Reading is as forgiving as the original is: a field that comes twice replaces the first, message
fields too, where protobuf would merge them. What is wrong with an event is its author's fault, who
need not be its sender: it is a reason why this event is refused, not an error of what is around it.

The original decodes a message, checks its shape, and drops it in silence when that fails. A sender
that wants to be heard must know the rules, and a receiver that is stricter or laxer would see
another history. So they are exactly the original's:

- a message has metadata with a date and a version, and exactly one payload; an operation is one of
  the seven, and an absent one counts as the first;
- an event has an author, a topic link, a payload (which may be empty), a parent link (which may be
  empty) and metadata with a date and a version; its publisher may be absent;
- an UPDATE names its topic;
- a topic in protobuf, which NEW_TOPIC brings, is never accepted there: the original cannot read its
  author, which shares a field with the parent, and writes no lists of peers. We accept it if
  nothing of it is lost (`topic_fault`). Topics travel as dag-cbor; nobody sends them so.

A date is any that `dates.normal` accepts, and it is the rewritten date that is hashed. Whether the
payload suits the operation is not looked at there (one such message stops the original); here
`RpcMessage.misplaced` says so, and whoever dispatches asks it first.

A stored event has its payload, and beside it a proof: the protobuf form without the payload. The
two together give the descriptor back, hence its CID, its links and everything that was signed, for
any third party to check. The payload is not kept twice.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.protocols.pulsarcast.config import DEFAULT_LIMITS, RpcLimits
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.descriptors import (
    MAX_EXTRA_BYTES,
    EventDescriptor,
    EventLinking,
    EventMetadata,
    Metadata,
    TopicDescriptor,
    check_extra,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.wire.fields import UNBOUNDED, Field, Nested, Number, Octets, Text
from rumormill.wire.protobuf import bytes_field
from rumormill.wire.schema import Layout, Schema, T

_PAYLOAD: Final = "event.payload"
_SIGNATURES: Final = ("publisher_signature", "publisher_key", "author_signature", "author_key")


def lenient(make: Callable[..., T], fields: Mapping[str, Field], limits: RpcLimits) -> Schema[T]:
    """A part of an RPC, in which of a field that comes twice the last one counts."""
    return Schema(make, fields, max_others=limits.other_fields, last_counts=True)


def text_field(number: int, max_bytes: int, *, always: bool = False) -> Text:
    """A text in an RPC."""
    return Text(number, max_bytes, too_long="text-too-long", always=always)


def _linked(cid: bytes | None) -> bytes:
    # A CID of no bytes is not the same as no CID: it is a bad one.
    return b"" if cid is None else cid or b"\0"


def _write_link(cid: bytes) -> bytes:
    return bytes_field(1, cid) if cid else b""


def _link(limits: RpcLimits) -> Schema[bytes]:
    """A link to another block; no bytes for a link to none."""
    return lenient(_linked, {"cid": Octets(1, UNBOUNDED, optional=True)}, limits)


def _link_field(number: int, limits: RpcLimits) -> Octets:
    """A CID in a link; None where the field is absent."""
    return Octets(number, UNBOUNDED, read=_link(limits).decode, write=_write_link, optional=True)


def _metadata_fields(limits: RpcLimits) -> dict[str, Field]:
    return {
        "created": text_field(1, dates.MAX_DATE_CHARACTERS * 3, always=True),
        "protocol_version": text_field(2, limits.version_bytes, always=True),
    }


def metadata_field(number: int, limits: RpcLimits) -> Octets:
    """A date and a version; None where the field is absent."""
    schema = lenient(Metadata, _metadata_fields(limits), limits)
    return Octets(number, UNBOUNDED, read=schema.decode, write=schema.encode, optional=True)


def _event_metadata_field(limits: RpcLimits) -> Octets:
    """The same of an event, with what else its metadata has."""
    extra = Octets(100, MAX_EXTRA_BYTES, too_long="metadata-too-long")
    schema = lenient(EventMetadata, {**_metadata_fields(limits), "extra": extra}, limits)
    return Octets(6, UNBOUNDED, read=schema.decode, write=schema.encode, optional=True)


# Events.


def _event_fields(limits: RpcLimits) -> dict[str, Field]:
    return {
        "event.author": Octets(1, limits.peer_id_bytes, optional=True),
        "event.topic": _link_field(2, limits),
        _PAYLOAD: Octets(3, limits.payload_bytes, optional=True),
        "event.publisher": Octets(4, limits.peer_id_bytes, optional=True),
        "event.parent_link": _link_field(5, limits),
        "event.metadata": _event_metadata_field(limits),
        "publisher_signature": Octets(100, limits.signature_bytes),
        "publisher_key": Octets(101, limits.key_bytes),
        "author_signature": Octets(102, limits.signature_bytes),
        "author_key": Octets(103, limits.key_bytes),
    }


def _judged(
    author: bytes | None,
    topic: bytes | None,
    payload: bytes | None,
    publisher: bytes | None,
    parent: bytes | None,
    metadata: EventMetadata | None,
    *signatures: *tuple[bytes, bytes, bytes, bytes],
) -> tuple[SignedEvent | str, bool]:
    """An event, or the rule that it breaks; and whether its date is written as it is hashed.

    A `parent` of no bytes is a link that is there and empty.
    """
    if author is None:
        return "event-without-author", False
    if not topic:
        return "event-without-topic", False
    if payload is None:
        return "event-without-payload", False
    if parent is None:
        return "event-without-parent", False
    if metadata is None:
        return "event-without-metadata", False
    created, version = dates.normal(metadata.created), metadata.protocol_version
    if created is None:
        return "event-bad-date", False
    if not version:
        return "event-without-version", False
    if not cids.is_cid(topic) or (parent and not cids.is_cid(parent)):
        return "bad-cid", False
    extra = metadata.extra
    if extra:
        try:
            check_extra(extra)
        except DecodeError:
            return "event-bad-metadata", False
    event = EventDescriptor(
        topic, author, payload, created, publisher, parent or None, version, extra
    )
    return SignedEvent(event, *signatures), created == metadata.created


@lru_cache(maxsize=16)
def _event_schema(limits: RpcLimits) -> Schema[tuple[SignedEvent | str, bool]]:
    return lenient(_judged, _event_fields(limits), limits)


_EVENT: Final[Layout[SignedEvent]] = Layout(_event_fields(DEFAULT_LIMITS), kept_in="encoded")
_PROOF: Final = _EVENT.only(*(name for name in _EVENT.fields if name != _PAYLOAD))
_VOUCHERS: Final = _EVENT.only(*_SIGNATURES)
_READ_VOUCHERS: Final[Schema[tuple[bytes, bytes, bytes, bytes]]] = lenient(
    lambda *found: found, _VOUCHERS.fields, DEFAULT_LIMITS
)


encode_event: Final = _EVENT.encode
"""The protobuf form of an event with its signatures; made once."""
encode_signatures: Final = _VOUCHERS.encode
"""The fields that vouch for an event."""


def read_event(
    data: bytes, limits: RpcLimits = DEFAULT_LIMITS, payload: bytes | None = None
) -> SignedEvent | str:
    """Read an event in protobuf; return the reason where it breaks a rule.

    `payload` is the payload of an event that was written without.
    """
    whole = data if payload is None else data + bytes_field(3, payload)
    try:
        event, as_hashed = _event_schema(limits).decode(whole)
    except DecodeError as error:
        return f"event-{error.reason}"
    if isinstance(event, SignedEvent) and as_hashed and payload is None:
        event.encoded = data  # it is passed on as it arrived
    return event


def add_signatures(event: EventDescriptor, data: bytes) -> SignedEvent:
    """Put an event and the fields that vouch for it together; unusable ones vouch for nothing."""
    try:
        return SignedEvent(event, *_READ_VOUCHERS.decode(data))
    except DecodeError:
        return SignedEvent(event)


# Events as they are kept.


def stored(signed: SignedEvent) -> Event:
    """An event as applications and the log see it."""
    event = signed.event
    return Event(
        cids.text(event.topic),
        event.payload,
        event.author,
        signed.cid,
        () if event.parent is None else (event.parent,),
        dates.seconds(event.created),
        _PROOF.encode(signed),
    )


def from_stored(event: Event) -> SignedEvent:
    """Read a kept event back, and check that it is what its id says; else a `DecodeError`."""
    signed = read_event(event.proof, payload=event.data)
    if isinstance(signed, str):
        raise DecodeError("bad-proof", signed)
    if signed.cid != event.id:
        raise DecodeError("wrong-cid", "the event is not what its id names")
    return signed


def read_back(events: Iterable[Event]) -> list[SignedEvent]:
    """Those of some kept events that are what their ids say."""
    found: list[SignedEvent] = []
    for event in events:
        with suppress(DecodeError):
            found.append(from_stored(event))
    return found


# A topic in protobuf, which the original writes and cannot read: author and parent share a field
# number, and it loses the lists of peers. One that is written as the thesis has it loses nothing.


class _Switch(msgspec.Struct):
    """Whether there is a list of peers, and who is in it."""

    enabled: bool
    publishers: tuple[bytes, ...] = ()

    @property
    def listed(self) -> tuple[bytes, ...] | None:
        return self.publishers if self.enabled else None


class _TopicMetadata(msgspec.Struct):
    created: str
    protocol_version: str
    allowed_publishers: _Switch
    request_to_publish: _Switch
    event_linking: int


class _SubTopic(msgspec.Struct):
    name: str
    topic: bytes | None


class _Topic(msgspec.Struct):
    name: str
    author_and_parent: tuple[bytes, ...]
    sub_topics: tuple[_SubTopic, ...]
    metadata: _TopicMetadata


@lru_cache(maxsize=16)
def _topic_schema(limits: RpcLimits) -> Schema[_Topic]:
    name = text_field(1, limits.name_bytes, always=True)
    peers = Octets(2, limits.peer_id_bytes, max_count=limits.tree_peers)
    switch = lenient(
        _Switch, {"enabled": Number(1, read=bool, always=True), "publishers": peers}, limits
    )
    metadata = lenient(
        _TopicMetadata,
        {
            **_metadata_fields(limits),
            "allowed_publishers": Nested(3, switch, always=True),
            "request_to_publish": Nested(4, switch, always=True),
            "event_linking": Number(5, always=True),
        },
        limits,
    )
    sub_topic = lenient(_SubTopic, {"name": name, "topic": _link_field(2, limits)}, limits)
    return lenient(
        _Topic,
        {
            "name": name,
            "author_and_parent": Octets(2, UNBOUNDED, max_count=2),
            "sub_topics": Nested(3, sub_topic, max_count=limits.sub_topics),
            "metadata": Nested(4, metadata, always=True),
        },
        limits,
    )


def encode_topic(topic: TopicDescriptor) -> bytes:
    """The protobuf form of a topic, which is good for nothing and is not sent."""
    return _topic_schema(DEFAULT_LIMITS).encode(
        _Topic(
            topic.name,
            (topic.author, _write_link(topic.parent or b"")),
            tuple([_SubTopic(name, cid) for name, cid in topic.sub_topics.items()]),
            _TopicMetadata(
                topic.created,
                topic.protocol_version,
                _Switch(topic.allowed_publishers is not None),
                _Switch(topic.request_to_publish is not None),
                topic.event_linking,
            ),
        )
    )


def read_topic_message(data: bytes, limits: RpcLimits) -> TopicDescriptor:
    """Read a topic in protobuf as far as that can be done."""
    read = _topic_schema(limits).decode(data)
    author, parent = (*read.author_and_parent, b"", b"")[:2]
    metadata = read.metadata
    custom = metadata.event_linking == EventLinking.CUSTOM
    return TopicDescriptor(
        read.name,
        author[: limits.peer_id_bytes],
        metadata.created,
        _link(limits).decode(parent) or None,
        {each.name: each.topic or b"" for each in read.sub_topics},
        metadata.allowed_publishers.listed,
        metadata.request_to_publish.listed,
        EventLinking.CUSTOM if custom else EventLinking.LAST_SEEN,
        metadata.protocol_version,
    )


def topic_fault(topic: TopicDescriptor) -> str | None:
    """Why a topic that came in protobuf is none, or not all of it; else None.

    A list of publishers with nobody in it is one that its writer has lost.
    """
    links = [*topic.sub_topics.values(), *([] if topic.parent is None else [topic.parent])]
    if not topic.author or topic.allowed_publishers == ():
        return "topic-in-protobuf"
    if dates.normal(topic.created) != topic.created or not topic.protocol_version:
        return "topic-bad-metadata"
    return None if all(map(cids.is_cid, links)) else "bad-cid"
