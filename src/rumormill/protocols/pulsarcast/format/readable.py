"""Descriptors as people read and write them: the JSON of the original's `getReadableFormat`.

Peer ids and CIDs are texts, an absent link is null, a list of peers is a list or false (for
requests: true where everybody may ask), and the payload of an event, which the original leaves out,
is `payload_hex`. What is left out of the metadata has the original's default, except for the date.
Text comes from a person, so a mistake is a `LocalError` that names the key.
"""

from collections.abc import Mapping
from typing import Any, Final

from rumormill.core.errors import DecodeError, LocalError
from rumormill.protocols.pulsarcast.commands import TopicView
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.descriptors import (
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
    fields = object_of(written, "the topic", _TOPIC_KEYS)
    metadata = object_of(fields.get("metadata", {}), "metadata", _TOPIC_METADATA)
    named = object_of(fields.get("subTopics", {}), "subTopics")
    sub_topics = [
        (text_of(name, "a sub-topic"), cid_of(named[name], f"subTopics.{name}")) for name in named
    ]
    return TopicDescriptor(
        text_of(fields.get("name"), "name"),
        peer_of(fields.get("author"), "author"),
        date_of(metadata, "metadata.created"),
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
    fields = object_of(written, "the event", _EVENT_KEYS)
    metadata = object_of(fields.get("metadata", {}), "metadata", _EVENT_METADATA)
    payload = hex_bytes(fields.get("payload_hex"), "payload_hex")
    publisher = fields.get("publisher")
    size = fields.get("payloadSize", len(payload))
    if size != len(payload):
        raise LocalError(f"payloadSize is {size}, but payload_hex has {len(payload)} bytes")
    if fields.get("isPublished", publisher is not None) is not (publisher is not None):
        raise LocalError("isPublished is true where there is a publisher, and false elsewhere")
    return EventDescriptor(
        cid_of(fields.get("topicCID"), "topicCID"),
        peer_of(fields.get("author"), "author"),
        payload,
        date_of(metadata, "metadata.created"),
        None if publisher is None else peer_of(publisher, "publisher"),
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
        "parent": optional_text(topic.parent),
        "subTopics": {name: cids.text(cid) for name, cid in named.items()},
        "metadata": {
            "protocolVersion": topic.protocol_version,
            "created": topic.created,
            "allowedPublishers": allowed is not None and list(map(base58.encode, allowed)),
            "requestToPublish": list(map(base58.encode, request)) if request else request == (),
            "eventLinking": EventLinking(topic.event_linking).name,
        },
    }


def readable_view(view: object) -> dict[str, Any]:
    """The readable form of a topic with its name, its sub-topics and its versions."""
    assert isinstance(view, TopicView)
    topic = view.topic
    return {
        "cid": cids.text(topic.cid),
        "readable": readable_topic(topic),
        "sub_topics": {
            name: _brief(cid, view.sub_topics.get(name)) for name, cid in topic.sub_topics.items()
        },
        "versions": [_brief(each.cid, each) for each in view.versions],
    }


def _brief(cid: bytes, topic: TopicDescriptor | None) -> dict[str, Any]:
    """What a list says of a topic; name and date are null where its descriptor is lost."""
    name, created = (None, None) if topic is None else (topic.name, topic.created)
    return {"cid": cids.text(cid), "name": name, "created": created}


def readable_event(event: EventDescriptor) -> dict[str, Any]:
    """The readable form of an event, with its payload."""
    publisher = event.publisher
    return {
        "topicCID": cids.text(event.topic),
        "author": base58.encode(event.author),
        "payloadSize": len(event.payload),
        "payload_hex": event.payload.hex(),
        "publisher": None if publisher is None else base58.encode(publisher),
        "parent": optional_text(event.parent),
        "isPublished": publisher is not None,
        "metadata": {"protocolVersion": event.protocol_version, "created": event.created},
    }


def hex_bytes(written: object, key: str) -> bytes:
    """Bytes that are written in hexadecimal."""
    try:
        return bytes.fromhex(text_of(written, key))
    except ValueError:
        raise LocalError(f"{key}: not hexadecimal") from None


def optional_text(cid: bytes | None) -> str | None:
    """A CID as people see it; None stays."""
    return None if cid is None else cids.text(cid)


def object_of(value: object, what: str, known: tuple[str, ...] = ()) -> Mapping[str, object]:
    """A JSON object, of the known keys alone where they are named."""
    if not isinstance(value, dict):
        raise LocalError(f"{what}: must be an object")
    for key in value:
        if known and key not in known:
            raise LocalError(f"{what}: there is no key {key!r}; known are {', '.join(known)}")
    return value


def text_of(value: object, key: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise LocalError(f"{key}: must be a text" if value is not None else f"{key}: is missing")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise LocalError(f"{key}: holds half a surrogate pair") from None
    return value


def cid_of(value: object, key: str) -> bytes:
    """A CID in one of its written forms."""
    try:
        return cids.parse(text_of(value, key))
    except DecodeError as error:
        raise LocalError(f"{key}: {error.detail}") from None


def _optional_cid(value: object, key: str) -> bytes | None:
    return None if value is None else cid_of(value, key)


def peer_of(value: object, key: str) -> bytes:
    """A peer id in one of its written forms."""
    try:
        return bytes(PeerId.parse(text_of(value, key)))
    except DecodeError as error:
        raise LocalError(f"{key}: not a peer id: {error.detail}") from None


def date_of(fields: Mapping[str, object], key: str) -> str:
    """The date of metadata, in its normal form; `key` says where it stands."""
    created = dates.normal(text_of(fields.get("created"), key))
    if created is None:
        raise LocalError(f"{key}: not a date such as 2019-10-04T09:00:00.000Z")
    return created


def _version(metadata: Mapping[str, object]) -> str:
    version = text_of(metadata.get("protocolVersion", PROTOCOL), "metadata.protocolVersion")
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
    return tuple([peer_of(peer, key) for peer in value])


def _linking(value: object) -> EventLinking:
    for linking in EventLinking:
        if value == linking.name:
            return linking
    raise LocalError("metadata.eventLinking: must be LAST_SEEN or CUSTOM")
