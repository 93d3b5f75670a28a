"""Descriptors and RPCs as people read and write them.

Descriptors have the JSON of the original's `getReadableFormat`: peer ids and CIDs are texts, an
absent link is null, a list of peers is a list or false (for requests: true where everybody may
ask), and the payload of an event, which the original leaves out, is `payload_hex`. What is left out
of the metadata has the original's default, except for the date. Metadata that we do not know is
`extra_hex`, a map in dag-cbor.

Each message of an RPC has its operation by name, its date, and what it is about: `topicId`, `event`
(the readable event with its payload and signatures), `topic` or `peerTree`. A message that a
receiver would refuse says so under `refused`. Our additions follow, each with its `kind`. What is
written can be read again, except for the lists of peers of a topic, which its protobuf form has
lost. Text comes from a person, so a mistake is a `LocalError` that names the key.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from rumormill.core.errors import DecodeError, LocalError
from rumormill.protocols.pulsarcast.commands import TopicView
from rumormill.protocols.pulsarcast.format import additions, dates, descriptors
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.descriptors import (
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
    javascript_order,
)
from rumormill.protocols.pulsarcast.format.rpc import (
    Operation,
    PeerTree,
    Rpc,
    RpcMessage,
    decode_rpc,
    read_messages,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.wire import base58
from rumormill.wire.keys import PeerId

_TOPIC_KEYS: Final = ("name", "author", "parent", "subTopics", "metadata")
_TOPIC_METADATA: Final = (
    "protocolVersion",
    "created",
    "allowedPublishers",
    "requestToPublish",
    "eventLinking",
    "extra_hex",
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
_EVENT_METADATA: Final = ("protocolVersion", "created", "extra_hex")


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
        _extra(metadata, of_topic=True),
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
        _extra(metadata),
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
            **_readable_extra(topic.extra),
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
        "metadata": {
            "protocolVersion": event.protocol_version,
            "created": event.created,
            **_readable_extra(event.extra),
        },
    }


def _readable_extra(extra: bytes) -> dict[str, str]:
    return {"extra_hex": extra.hex()} if extra else {}


def _extra(metadata: Mapping[str, object], *, of_topic: bool = False) -> bytes:
    """The metadata that we do not know, as a map in dag-cbor."""
    try:
        extra = hex_bytes(metadata.get("extra_hex", ""), "metadata.extra_hex")
        return descriptors.check_extra(extra, of_topic=of_topic)
    except DecodeError as error:
        raise LocalError(f"metadata.extra_hex: {error.detail}") from None


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
    version = text_of(
        metadata.get("protocolVersion", descriptors.PROTOCOL), "metadata.protocolVersion"
    )
    if not 0 < len(version.encode()) <= descriptors.MAX_VERSION_BYTES:
        raise LocalError(
            f"metadata.protocolVersion: must have 1 to {descriptors.MAX_VERSION_BYTES} bytes"
        )
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
    if not isinstance(value, str) or value not in EventLinking.__members__:
        raise LocalError("metadata.eventLinking: must be LAST_SEEN or CUSTOM")
    return EventLinking[value]


# RPCs.

_SIGNATURES: Final = (
    ("publisher_signature", "publisherSignature"),
    ("publisher_key", "publisherKey"),
    ("author_signature", "authorSignature"),
    ("author_key", "authorKey"),
)


class _Form(NamedTuple):
    """How a value is written and read."""

    write: Callable[[Any], object]
    read: Callable[[object, str], Any]


def _list(value: object, key: str) -> list[object]:
    if not isinstance(value, list):
        raise LocalError(f"{key}: must be a list")
    return value


def _listed(form: _Form) -> _Form:
    def read(value: object, key: str) -> object:
        return tuple([form.read(each, key) for each in _list(value, key)])

    return _Form(lambda values: [form.write(each) for each in values], read)


def _named(kind: type[IntEnum]) -> _Form:
    def read(value: object, key: str) -> object:
        if not isinstance(value, str) or value not in kind.__members__:
            raise LocalError(f"{key}: must be one of {', '.join(kind.__members__)}")
        return kind[value]

    return _Form(lambda value: kind(value).name if value in list(kind) else value, read)


def _read_number(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise LocalError(f"{key}: must be a number of at most 64 bits")
    return value


def _read_flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise LocalError(f"{key}: must be true or false")
    return value


def _write_address(address: additions.PeerAddress) -> object:
    return {"peer": _PEER.write(address.peer), "addresses": _HEXES.write(address.addresses)}


def _read_address(value: object, key: str) -> additions.PeerAddress:
    fields = object_of(value, key, ("peer", "addresses"))
    addresses = _HEXES.read(fields.get("addresses", []), f"{key}.addresses")
    return additions.PeerAddress(peer_of(fields.get("peer"), f"{key}.peer"), addresses)


def _write_event(signed: SignedEvent) -> dict[str, Any]:
    vouchers = {key: getattr(signed, name).hex() for name, key in _SIGNATURES}
    return {
        **readable_event(signed.event),
        **{key: vouchers[key] for key in vouchers if vouchers[key]},
    }


def _read_event(value: object, key: str) -> SignedEvent:
    fields = dict(object_of(value, key))
    fields.pop("cid", None)
    beside = {name: hex_bytes(fields.pop(written, ""), written) for name, written in _SIGNATURES}
    return replace(SignedEvent(event_from_readable(fields)), **beside)


def _write_tree(tree: PeerTree) -> object:
    parents, children = _PEERS.write(tree.parents), _PEERS.write(tree.children)
    return {"topic": cids.text(tree.topic), "parents": parents, "children": children}


def _read_tree(value: object, key: str) -> PeerTree:
    fields = object_of(value, key)
    parents, children = (
        _PEERS.read(fields.get(name, []), name) for name in ("parents", "children")
    )
    return PeerTree(cid_of(fields.get("topic"), f"{key}.topic"), parents, children)


_CID = _Form(optional_text, cid_of)
_PEER = _Form(base58.encode, peer_of)
_NUMBER = _Form(int, _read_number)
_TEXT = _Form(str, text_of)
_HEX = _Form(bytes.hex, hex_bytes)
_CIDS, _PEERS, _HEXES = _listed(_CID), _listed(_PEER), _listed(_HEX)
_ADDRESSES = _listed(_Form(_write_address, _read_address))
_OPERATION = _named(Operation)

_PAYLOADS: Final[dict[str, tuple[type, _Form]]] = {
    "topicId": (bytes, _CID),
    "event": (
        SignedEvent,
        _Form(lambda event: {"cid": cids.text(event.cid), **_write_event(event)}, _read_event),
    ),
    "topic": (TopicDescriptor, _Form(readable_topic, lambda value, _: topic_from_readable(value))),
    "peerTree": (PeerTree, _Form(_write_tree, _read_tree)),
}
"""What a message may be about, and how that is written."""

_FORMS: Final[dict[str, _Form]] = {
    **dict.fromkeys(("topic", "request", "event", "known"), _CID),
    **dict.fromkeys(("wanted", "missing"), _CIDS),
    **dict.fromkeys(("start", "end", "ancestors", "count", "checksum"), _NUMBER),
    "peers": _ADDRESSES,
    "events": _listed(_Form(_write_event, _read_event)),
    "reason": _TEXT,
    "silent": _Form(bool, _read_flag),
    "data": _HEX,
    "tails": _HEXES,
}
"""How the fields of additions are written, by their names."""
_STATUS: Final[dict[type[additions.Addition], _Form]] = {
    additions.JoinReply: _named(additions.JoinStatus),
    additions.RequestReply: _named(additions.RequestStatus),
}
_ALWAYS: Final = ("topic", "status", "start", "end", "data")
"""What is written even where it is nothing."""


def readable_rpc(data: bytes) -> dict[str, Any]:
    """The readable form of an RPC's bytes."""
    shown: dict[str, Any] = {
        "messages": [_write_message(message, fault) for message, fault in read_messages(data)]
    }
    if added := decode_rpc(data).additions:
        shown["additions"] = [_write_addition(each) for each in added]
    return shown


def rpc_from_readable(written: object) -> Rpc:
    """Make an RPC from its readable form; one message may stand for itself."""
    fields = object_of(written, "the RPC")
    if "op" in fields:
        return Rpc((_read_message(fields),))
    object_of(fields, "the RPC", ("messages", "additions"))
    messages = _list(fields.get("messages", []), "messages")
    added = _list(fields.get("additions", []), "additions")
    return Rpc(
        tuple([_read_message(each) for each in messages]),
        tuple([_read_addition(each) for each in added]),
    )


def _write_message(message: RpcMessage, fault: str | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "op": _OPERATION.write(message.op),
        "created": message.created,
        "protocolVersion": message.protocol_version,
    }
    for key, (kind, form) in _PAYLOADS.items():
        if isinstance(message.payload, kind):
            shown[key] = form.write(message.payload)
    if message.elsewhere:
        shown["elsewhere"] = _ADDRESSES.write(message.elsewhere)
    if fault is not None:
        shown["refused"] = fault
    return shown


def _read_message(written: object) -> RpcMessage:
    known = ("op", "created", "protocolVersion", *_PAYLOADS, "elsewhere", "refused")
    fields = object_of(written, "a message", known)
    op = _OPERATION.read(fields.get("op"), "op")
    created = date_of(fields, "created")
    version = text_of(fields.get("protocolVersion", descriptors.PROTOCOL), "protocolVersion")
    payloads = [
        form.read(fields[key], key) for key, (_, form) in _PAYLOADS.items() if key in fields
    ]
    elsewhere = _ADDRESSES.read(fields.get("elsewhere", []), "elsewhere")
    return RpcMessage(op, created, payloads[0] if payloads else None, version, elsewhere)


def _forms(kind: type[additions.Addition]) -> dict[str, _Form]:
    names = kind.__struct_fields__
    return {name: _STATUS[kind] if name == "status" else _FORMS[name] for name in names}


def _write_addition(addition: additions.Addition) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": additions.ADDITION_NAMES[type(addition)]}
    for name, form in _forms(type(addition)).items():
        value = getattr(addition, name)
        if value or name in _ALWAYS:
            shown[name] = form.write(value)
    return shown


def _read_addition(written: object) -> additions.Addition:
    fields = dict(object_of(written, "an addition"))
    kinds = {name: kind for kind, name in additions.ADDITION_NAMES.items()}
    named = str(fields.pop("kind", ""))
    if named not in kinds:
        raise LocalError(f"kind: must be one of {', '.join(kinds)}")
    forms = _forms(kinds[named])
    object_of(fields, named, tuple(forms))
    try:
        return kinds[named](**{name: forms[name].read(fields[name], name) for name in fields})
    except TypeError as error:
        raise LocalError(f"{named}: {error}") from None
