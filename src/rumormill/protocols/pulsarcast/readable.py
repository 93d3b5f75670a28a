"""Descriptors as people read and write them: the JSON of the original's `getReadableFormat`.

Peer ids and CIDs are texts, an absent link is null, a list of peers is a list or false (for
requests: true where everybody may ask), and the payload of an event, which the original leaves out,
is `payload_hex`. What is left out of the metadata has the original's default, except for the date.
Text comes from a person, so a mistake is a `LocalError` that names the key.
"""

from collections.abc import Mapping
from typing import Any, Final

from rumormill.core.errors import DecodeError, LocalError
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dates
from rumormill.protocols.pulsarcast.descriptors import (
    MAX_VERSION_BYTES,
    PROTOCOL,
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
    javascript_order,
)
from rumormill.wire import base58
from rumormill.wire.keys import PeerId

_TOPIC_KEYS: Final = ("name", "author", "parent", "subTopics", "metadata")
_TOPIC_METADATA: Final = (
    "protocolVersion",
    "created",
    "allowedPublishers",
    "requestToPublish",
    "eventLinking",
)
_EVENT_KEYS: Final = (
    "topicCID",
    "author",
    "payloadSize",
    "payload_hex",
    "publisher",
    "parent",
    "isPublished",
    "metadata",
)
_EVENT_METADATA: Final = ("protocolVersion", "created")


def topic_from_readable(written: object) -> TopicDescriptor:
    """Make a topic from its readable form."""
    fields = _object(written, "the topic", _TOPIC_KEYS)
    metadata = _object(fields.get("metadata", {}), "metadata", _TOPIC_METADATA)
    named = _object(fields.get("subTopics", {}), "subTopics")
    sub_topics = [
        (_text(name, "a sub-topic"), _cid(named[name], f"subTopics.{name}")) for name in named
    ]
    return TopicDescriptor(
        _text(fields.get("name"), "name"),
        _peer(fields.get("author"), "author"),
        _date(metadata),
        _optional_cid(fields.get("parent"), "parent"),
        # The original builds its sub-topics back to front, so it writes them so.
        javascript_order(reversed(javascript_order(sub_topics).items())),
        _peers(metadata, "allowedPublishers", everybody=False),
        _peers(metadata, "requestToPublish", everybody=True),
        _linking(metadata.get("eventLinking", "LAST_SEEN")),
        _version(metadata),
    )


def event_from_readable(written: object) -> EventDescriptor:
    """Make an event from its readable form with its payload."""
    fields = _object(written, "the event", _EVENT_KEYS)
    metadata = _object(fields.get("metadata", {}), "metadata", _EVENT_METADATA)
    payload = hex_bytes(fields.get("payload_hex"), "payload_hex")
    publisher = fields.get("publisher")
    size = fields.get("payloadSize", len(payload))
    if size != len(payload):
        raise LocalError(f"payloadSize is {size}, but payload_hex has {len(payload)} bytes")
    if fields.get("isPublished", publisher is not None) is not (publisher is not None):
        raise LocalError("isPublished is true where there is a publisher, and false elsewhere")
    return EventDescriptor(
        _cid(fields.get("topicCID"), "topicCID"),
        _peer(fields.get("author"), "author"),
        payload,
        _date(metadata),
        None if publisher is None else _peer(publisher, "publisher"),
        _optional_cid(fields.get("parent"), "parent"),
        _version(metadata),
    )


def readable_topic(topic: TopicDescriptor) -> dict[str, Any]:
    """The readable form of a topic."""
    named = javascript_order(reversed(list(topic.sub_topics.items())))
    allowed, request = topic.allowed_publishers, topic.request_to_publish
    return {
        "name": topic.name,
        "author": base58.encode(topic.author),
        "parent": _optional_text(topic.parent),
        "subTopics": {name: cids.text(cid) for name, cid in named.items()},
        "metadata": {
            "protocolVersion": topic.protocol_version,
            "created": topic.created,
            "allowedPublishers": allowed is not None and list(map(base58.encode, allowed)),
            "requestToPublish": list(map(base58.encode, request)) if request else request == (),
            "eventLinking": EventLinking(topic.event_linking).name,
        },
    }


def readable_event(event: EventDescriptor) -> dict[str, Any]:
    """The readable form of an event, with its payload."""
    publisher = event.publisher
    return {
        "topicCID": cids.text(event.topic),
        "author": base58.encode(event.author),
        "payloadSize": len(event.payload),
        "payload_hex": event.payload.hex(),
        "publisher": None if publisher is None else base58.encode(publisher),
        "parent": _optional_text(event.parent),
        "isPublished": publisher is not None,
        "metadata": {"protocolVersion": event.protocol_version, "created": event.created},
    }


def hex_bytes(written: object, key: str) -> bytes:
    """Bytes that are written in hexadecimal."""
    try:
        return bytes.fromhex(_text(written, key))
    except ValueError:
        raise LocalError(f"{key}: not hexadecimal") from None


def _optional_text(cid: bytes | None) -> str | None:
    return None if cid is None else cids.text(cid)


def _object(value: object, what: str, known: tuple[str, ...] = ()) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise LocalError(f"{what}: must be an object")
    for key in value:
        if known and key not in known:
            raise LocalError(f"{what}: there is no key {key!r}; known are {', '.join(known)}")
    return value


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise LocalError(f"{key}: must be a text" if value is not None else f"{key}: is missing")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise LocalError(f"{key}: holds half a surrogate pair") from None
    return value


def _cid(value: object, key: str) -> bytes:
    try:
        return cids.parse(_text(value, key))
    except DecodeError as error:
        raise LocalError(f"{key}: {error.detail}") from None


def _optional_cid(value: object, key: str) -> bytes | None:
    return None if value is None else _cid(value, key)


def _peer(value: object, key: str) -> bytes:
    try:
        return bytes(PeerId.parse(_text(value, key)))
    except DecodeError as error:
        raise LocalError(f"{key}: not a peer id: {error.detail}") from None


def _date(metadata: Mapping[str, object]) -> str:
    created = dates.normal(_text(metadata.get("created"), "metadata.created"))
    if created is None:
        raise LocalError("metadata.created: not a date such as 2019-10-04T09:00:00.000Z")
    return created


def _version(metadata: Mapping[str, object]) -> str:
    version = _text(metadata.get("protocolVersion", PROTOCOL), "metadata.protocolVersion")
    if not 0 < len(version.encode()) <= MAX_VERSION_BYTES:
        raise LocalError(f"metadata.protocolVersion: must have 1 to {MAX_VERSION_BYTES} bytes")
    return version


def _peers(
    metadata: Mapping[str, object], name: str, *, everybody: bool
) -> tuple[bytes, ...] | None:
    """A list of peers; where `everybody` may be meant, that is the default and written true."""
    key = f"metadata.{name}"
    value = metadata.get(name, everybody)
    if value is False:
        return None
    if value is True and everybody:
        return ()
    if not isinstance(value, list):
        raise LocalError(
            f"{key}: must be a list of peer ids or {'a boolean' if everybody else 'false'}"
        )
    return tuple([_peer(peer, key) for peer in value])


def _linking(value: object) -> EventLinking:
    for linking in EventLinking:
        if value == linking.name:
            return linking
    raise LocalError("metadata.eventLinking: must be LAST_SEEN or CUSTOM")
