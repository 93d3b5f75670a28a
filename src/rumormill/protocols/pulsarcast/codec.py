"""Events in protobuf, as the original writes them, with the signatures that are ours.

Reading is as forgiving as the original is: a field that comes twice replaces the first, message
fields too, where protobuf would merge them. What is wrong with an event is its author's fault, who
need not be its sender: it is a reason why this event is refused, not an error of what is around it.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.protocols.pulsarcast import dates, validation
from rumormill.protocols.pulsarcast.descriptors import EventDescriptor, Metadata
from rumormill.protocols.pulsarcast.limits import DEFAULT_LIMITS, RpcLimits
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.wire.fields import UNBOUNDED, Field, Octets, Text
from rumormill.wire.protobuf import bytes_field
from rumormill.wire.schema import Layout, Schema, T

OVERSIZED: Final = "event-oversized"

_PAYLOAD: Final = "event.payload"
_SIGNATURES: Final = ("publisher_signature", "publisher_key", "author_signature", "author_key")


class _Link(msgspec.Struct, frozen=True):
    """A link to another block, or to none."""

    cid: bytes | None


def lenient(make: Callable[..., T], fields: Mapping[str, Field], limits: RpcLimits) -> Schema[T]:
    """A part of an RPC, in which of a field that comes twice the last one counts."""
    return Schema(make, fields, max_others=limits.other_fields, last_counts=True)


def text_field(number: int, max_bytes: int, *, always: bool = False) -> Text:
    """A text in an RPC."""
    return Text(number, max_bytes, too_long="text-too-long", always=always)


@lru_cache(maxsize=16)
def _link_schema(limits: RpcLimits) -> Schema[_Link]:
    return lenient(_Link, {"cid": Octets(1, UNBOUNDED, optional=True)}, limits)


def read_link(data: bytes, limits: RpcLimits) -> bytes:
    """The CID in a link; no bytes for an empty link."""
    cid = _link_schema(limits).decode(data).cid
    # A CID of no bytes is not the same as no CID: it is a bad one.
    return b"" if cid is None else cid or b"\0"


def write_link(cid: bytes) -> bytes:
    """A link to a block, or to none."""
    return _link_schema(DEFAULT_LIMITS).encode(_Link(cid or None))


def link_field(number: int, limits: RpcLimits) -> Octets:
    """A CID in a link; None where the field is absent."""
    read = partial(read_link, limits=limits)
    return Octets(number, UNBOUNDED, read=read, write=write_link, optional=True)


def metadata_field(number: int, limits: RpcLimits) -> Octets:
    """A date and a version; None where the field is absent."""
    schema = lenient(
        Metadata,
        {
            "created": text_field(1, dates.MAX_DATE_CHARACTERS * 3, always=True),
            "protocol_version": text_field(2, limits.version_bytes, always=True),
        },
        limits,
    )
    return Octets(number, UNBOUNDED, read=schema.decode, write=schema.encode, optional=True)


def _event_fields(limits: RpcLimits) -> dict[str, Field]:
    return {
        "event.author": Octets(1, limits.peer_id_bytes, optional=True),
        "event.topic": link_field(2, limits),
        _PAYLOAD: Octets(3, limits.payload_bytes, optional=True),
        "event.publisher": Octets(4, limits.peer_id_bytes, optional=True),
        "event.parent_link": link_field(5, limits),
        "event.metadata": metadata_field(6, limits),
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
    metadata: Metadata | None,
    publisher_signature: bytes,
    publisher_key: bytes,
    author_signature: bytes,
    author_key: bytes,
) -> tuple[SignedEvent | str, bool]:
    """An event, or the rule that it breaks; and whether its date is written as it is hashed."""
    created = None if metadata is None else dates.normal(metadata.created) or ""
    version = "" if metadata is None else metadata.protocol_version
    fault = validation.event_fault(author, topic, payload, parent, created, version)
    if author is None or topic is None or payload is None or metadata is None or fault is not None:
        return fault or validation.NO_PAYLOAD, False
    date = created or ""
    event = EventDescriptor(topic, author, payload, date, publisher, parent or None, version)
    signed = SignedEvent(event, publisher_signature, publisher_key, author_signature, author_key)
    return signed, date == metadata.created


@lru_cache(maxsize=16)
def _event_schema(limits: RpcLimits) -> Schema[tuple[SignedEvent | str, bool]]:
    return lenient(_judged, _event_fields(limits), limits)


@lru_cache(maxsize=16)
def _signature_schema(limits: RpcLimits) -> Schema[tuple[bytes, bytes, bytes, bytes]]:
    fields = _event_fields(limits)
    return lenient(lambda *found: found, {name: fields[name] for name in _SIGNATURES}, limits)


_EVENT: Final[Layout[SignedEvent]] = Layout(_event_fields(DEFAULT_LIMITS), kept_in="encoded")
_PROOF: Final = _EVENT.only(*(name for name in _EVENT.fields if name != _PAYLOAD))
_VOUCHERS: Final = _EVENT.only(*_SIGNATURES)


def encode_event(signed: SignedEvent) -> bytes:
    """The protobuf form of an event with its signatures; made once."""
    return _EVENT.encode(signed)


def encode_without_payload(signed: SignedEvent) -> bytes:
    """The protobuf form of an event whose payload is elsewhere."""
    return _PROOF.encode(signed)


def encode_signatures(signed: SignedEvent) -> bytes:
    """The fields that vouch for an event."""
    return _VOUCHERS.encode(signed)


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


def add_signatures(
    event: EventDescriptor, data: bytes, limits: RpcLimits = DEFAULT_LIMITS
) -> SignedEvent:
    """Put an event and the fields that vouch for it together; unusable ones vouch for nothing."""
    try:
        return SignedEvent(event, *_signature_schema(limits).decode(data))
    except DecodeError:
        return SignedEvent(event)
