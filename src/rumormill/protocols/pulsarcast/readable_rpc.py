"""RPCs as people read and write them.

Each message has its operation by name, its date, and what it is about: `topicId`, `event` (the
readable event with its payload and signatures), `topic` or `peerTree`. A message that a receiver
would refuse says so under `refused`. Our additions follow, each with its `kind`. What is written
can be read again, except for the lists of peers of a topic, which its protobuf form has lost.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from rumormill.core.errors import LocalError
from rumormill.protocols.pulsarcast.additions import (
    ADDITION_NAMES,
    Addition,
    Block,
    Events,
    Fetch,
    Have,
    JoinReply,
    JoinStatus,
    PeerAddress,
    RequestReply,
    RequestStatus,
    Terms,
)
from rumormill.protocols.pulsarcast.descriptors import PROTOCOL
from rumormill.protocols.pulsarcast.readable import (
    cid_of,
    date_of,
    event_from_readable,
    hex_bytes,
    object_of,
    optional_text,
    peer_of,
    readable_event,
    readable_topic,
    text_of,
    topic_from_readable,
)
from rumormill.protocols.pulsarcast.rpc import (
    Operation,
    PeerTree,
    Rpc,
    RpcMessage,
    decode_rpc,
    read_messages,
)
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.wire import base58

_SIGNATURES: Final = (
    ("publisher_signature", "publisherSignature"),
    ("publisher_key", "publisherKey"),
    ("author_signature", "authorSignature"),
    ("author_key", "authorKey"),
)
_MESSAGE_KEYS: Final = (
    "op",
    "created",
    "protocolVersion",
    "topicId",
    "event",
    "topic",
    "peerTree",
    "elsewhere",
    "refused",
)


class _Form(NamedTuple):
    """How a value of an addition is written and read."""

    write: Callable[[Any], object]
    read: Callable[[object, str], object]


def _listed(form: _Form) -> _Form:
    def read(value: object, key: str) -> object:
        return tuple([form.read(each, key) for each in _list(value, key)])

    return _Form(lambda values: [form.write(each) for each in values], read)


def _named(kind: type[IntEnum]) -> _Form:
    def read(value: object, key: str) -> object:
        for known in kind:
            if value == known.name:
                return known
        raise LocalError(f"{key}: must be one of {', '.join(known.name for known in kind)}")

    return _Form(lambda value: kind(value).name, read)


def _read_number(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise LocalError(f"{key}: must be a number of at most 64 bits")
    return value


def _read_flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise LocalError(f"{key}: must be true or false")
    return value


def _list(value: object, key: str) -> list[object]:
    if not isinstance(value, list):
        raise LocalError(f"{key}: must be a list")
    return value


def _write_address(address: PeerAddress) -> object:
    hexes = [each.hex() for each in address.addresses]
    return {"peer": base58.encode(address.peer), "addresses": hexes}


def _read_address(value: object, key: str) -> PeerAddress:
    fields = object_of(value, key, ("peer", "addresses"))
    listed = _list(fields.get("addresses", []), f"{key}.addresses")
    addresses = [hex_bytes(each, f"{key}.addresses") for each in listed]
    return PeerAddress(peer_of(fields.get("peer"), f"{key}.peer"), tuple(addresses))


def _write_event(signed: SignedEvent) -> dict[str, Any]:
    shown = readable_event(signed.event)
    for name, key in _SIGNATURES:
        if value := getattr(signed, name):
            shown[key] = value.hex()
    return shown


def _read_event(value: object, key: str) -> SignedEvent:
    fields = dict(object_of(value, key))
    beside = [
        (name, hex_bytes(fields.pop(written), written))
        for name, written in _SIGNATURES
        if written in fields
    ]
    signed = SignedEvent(event_from_readable(fields))
    for name, signature in beside:
        setattr(signed, name, signature)
    return signed


_CID = _Form(optional_text, cid_of)
_PEER = _Form(base58.encode, peer_of)
_NUMBER = _Form(int, _read_number)
_FLAG = _Form(bool, _read_flag)
_TEXT = _Form(str, text_of)
_HEX = _Form(bytes.hex, hex_bytes)
_CIDS, _PEERS = _listed(_CID), _listed(_PEER)
_ADDRESSES = _listed(_Form(_write_address, _read_address))
_EVENTS = _listed(_Form(_write_event, _read_event))

_FORMS: Final[dict[type, dict[str, _Form]]] = {
    JoinReply: {
        "topic": _CID,
        "status": _named(JoinStatus),
        "peers": _ADDRESSES,
        "reason": _TEXT,
    },
    RequestReply: {
        "topic": _CID,
        "request": _CID,
        "status": _named(RequestStatus),
        "event": _CID,
        "reason": _TEXT,
    },
    Fetch: {"topic": _CID, "wanted": _CIDS, "ancestors": _NUMBER, "known": _CID},
    Events: {
        "topic": _CID,
        "events": _EVENTS,
        "missing": _CIDS,
        "start": _NUMBER,
        "end": _NUMBER,
    },
    Terms: {
        "topic": _CID,
        "silent": _FLAG,
        "start": _NUMBER,
        "end": _NUMBER,
        "count": _NUMBER,
        "checksum": _NUMBER,
    },
    Have: {"topic": _CID, "start": _NUMBER, "end": _NUMBER, "cids": _CIDS},
    Block: {"topic": _CID, "data": _HEX},
}


def readable_rpc(data: bytes) -> dict[str, Any]:
    """The readable form of an RPC's bytes."""
    shown: dict[str, Any] = {
        "messages": [_write_message(message, fault) for message, fault in read_messages(data)]
    }
    additions = decode_rpc(data).additions
    if additions:
        shown["additions"] = [_write_addition(each) for each in additions]
    return shown


def rpc_from_readable(written: object) -> Rpc:
    """Make an RPC from its readable form; one message may stand for itself."""
    fields = object_of(written, "the RPC")
    if "op" in fields:
        return Rpc((_read_message(fields),))
    object_of(fields, "the RPC", ("messages", "additions"))
    messages = _list(fields.get("messages", []), "messages")
    additions = _list(fields.get("additions", []), "additions")
    return Rpc(
        tuple([_read_message(each) for each in messages]),
        tuple([_read_addition(each) for each in additions]),
    )


def _write_message(message: RpcMessage, fault: str | None) -> dict[str, Any]:
    known = message.op in Operation._value2member_map_
    shown: dict[str, Any] = {
        "op": Operation(message.op).name if known else message.op,
        "created": message.created,
        "protocolVersion": message.protocol_version,
    }
    if message.topic_id is not None:
        shown["topicId"] = optional_text(message.topic_id)
    if message.event is not None:
        shown["event"] = {"cid": optional_text(message.event.cid), **_write_event(message.event)}
    if message.topic is not None:
        shown["topic"] = readable_topic(message.topic)
    if message.tree is not None:
        shown["peerTree"] = _write_tree(message.tree)
    if message.elsewhere:
        shown["elsewhere"] = _ADDRESSES.write(message.elsewhere)
    if fault is not None:
        shown["refused"] = fault
    return shown


def _read_message(written: object) -> RpcMessage:
    fields = object_of(written, "a message", _MESSAGE_KEYS)
    named = fields.get("op")
    if not isinstance(named, str) or named not in Operation.__members__:
        raise LocalError(f"op: must be one of {', '.join(Operation.__members__)}")
    message = RpcMessage(Operation[named], date_of(fields, "created"))
    message.protocol_version = text_of(fields.get("protocolVersion", PROTOCOL), "protocolVersion")
    if "topicId" in fields:
        message.topic_id = cid_of(fields["topicId"], "topicId")
    if "event" in fields:
        event = dict(object_of(fields["event"], "event"))
        event.pop("cid", None)
        message.event = _read_event(event, "event")
    if "topic" in fields:
        message.topic = topic_from_readable(fields["topic"])
    if "peerTree" in fields:
        message.tree = _read_tree(object_of(fields["peerTree"], "peerTree"))
    if "elsewhere" in fields:
        addresses = _list(fields["elsewhere"], "elsewhere")
        message.elsewhere = tuple([_read_address(each, "elsewhere") for each in addresses])
    return message


def _write_tree(tree: PeerTree) -> dict[str, Any]:
    parents, children = _PEERS.write(tree.parents), _PEERS.write(tree.children)
    return {"topic": optional_text(tree.topic), "parents": parents, "children": children}


def _read_tree(fields: Mapping[str, object]) -> PeerTree:
    parents, children = (
        tuple([peer_of(each, key) for each in _list(fields.get(key, []), key)])
        for key in ("parents", "children")
    )
    return PeerTree(cid_of(fields.get("topic"), "peerTree.topic"), parents, children)


_ALWAYS: Final = ("topic", "status", "start", "end", "data")
"""What is written even where it is nothing."""


def _write_addition(addition: Addition) -> dict[str, Any]:
    kind = type(addition)
    shown: dict[str, Any] = {"kind": ADDITION_NAMES[kind]}
    for name, form in _FORMS[kind].items():
        value = getattr(addition, name)
        if value or name in _ALWAYS:
            shown[name] = form.write(value)
    return shown


def _read_addition(written: object) -> Addition:
    fields = dict(object_of(written, "an addition"))
    kinds = {name: kind for kind, name in ADDITION_NAMES.items()}
    kind = kinds.get(str(fields.pop("kind", "")))
    if kind is None:
        raise LocalError(f"kind: must be one of {', '.join(kinds)}")
    forms = _FORMS[kind]
    object_of(fields, ADDITION_NAMES[kind], tuple(forms))
    values = {name: forms[name].read(value, name) for name, value in fields.items()}
    try:
        made: Addition = kind(**values)
    except TypeError as error:
        raise LocalError(f"{ADDITION_NAMES[kind]}: {error}") from None
    return made
