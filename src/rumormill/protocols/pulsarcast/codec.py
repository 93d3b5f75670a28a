"""Reading Pulsarcast RPCs: bounded, and as forgiving as the original is.

The rule: no object is built that a limit has not allowed. Bytes that are no protobuf, or more of
anything than the sender may send, are a `DecodeError`: the sender pays. A message that is readable
and breaks a rule of `validation` is left out and reported in `Rpc.refused`, and the rest of the RPC
stands: its sender may only have forwarded it. That holds for unknown operations too.

Reading follows the original rather than protobuf where they differ: a message field that comes
twice replaces the first instead of being merged with it, and of the payloads the last one counts.
"""

from rumormill.core.errors import DecodeError
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dates, validation
from rumormill.protocols.pulsarcast.additions import read_addition, read_peers
from rumormill.protocols.pulsarcast.descriptors import (
    PROTOCOL,
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
)
from rumormill.protocols.pulsarcast.fields import (
    BOOL_1,
    FIELD_1,
    FIELD_2,
    FIELD_3,
    FIELD_4,
    FIELD_5,
    FIELD_6,
    split,
    text_of,
)
from rumormill.protocols.pulsarcast.limits import DEFAULT_LIMITS, RpcLimits
from rumormill.protocols.pulsarcast.rpc import (
    ADDITION_NUMBERS,
    AUTHOR_KEY,
    AUTHOR_SIGNATURE,
    ELSEWHERE,
    PUBLISHER_KEY,
    PUBLISHER_SIGNATURE,
    Addition,
    PeerTree,
    Refused,
    Rpc,
    RpcMessage,
)
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.wire.protobuf import bytes_field, next_field, read_varint

_ELSEWHERE = ELSEWHERE << 3 | 2
_PUBLISHER_SIGNATURE, _PUBLISHER_KEY = PUBLISHER_SIGNATURE << 3 | 2, PUBLISHER_KEY << 3 | 2
_AUTHOR_SIGNATURE, _AUTHOR_KEY = AUTHOR_SIGNATURE << 3 | 2, AUTHOR_KEY << 3 | 2
_ADDITIONS = {number << 3 | 2: number for number in ADDITION_NUMBERS.values()}
_LINKING = 0x28
_LINK_HEAD = bytes((FIELD_1, cids.LENGTH))
_LINK_BYTES = cids.LENGTH + 2

_USUAL_DATE = bytes((FIELD_1, 24))
_USUAL_VERSION = bytes_field(2, PROTOCOL.encode())
_USUAL_METADATA = len(_USUAL_DATE) + 24 + len(_USUAL_VERSION)

OVERSIZED = "event-oversized"


def encode_rpc(rpc: Rpc) -> bytes:
    """The bytes of an RPC, without the length prefix of the stream."""
    return rpc.encode()


def decode_rpc(data: bytes, limits: RpcLimits = DEFAULT_LIMITS) -> Rpc:
    """Read an RPC."""
    sound: list[RpcMessage] = []
    refused: list[Refused] = []
    additions: list[Addition] = []
    for tag, start, stop in _parts(data, limits):
        if tag == FIELD_1:
            message, fault = read_message(data[start:stop], limits)
            if fault is None:
                sound.append(message)
            else:
                refused.append(Refused(fault, message.op))
        elif (number := _ADDITIONS.get(tag)) is not None:
            addition, faults = read_addition(number, data[start:stop], limits, read_event)
            additions.append(addition)
            refused += [Refused(fault) for fault in faults]
    rpc = Rpc(tuple(sound), tuple(additions), tuple(refused))
    if not refused and all(each.event is None or each.event.encoded for each in sound):
        rpc.encoded = data  # what is passed on whole is passed on as it came
    return rpc


def read_messages(
    data: bytes, limits: RpcLimits = DEFAULT_LIMITS
) -> list[tuple[RpcMessage, str | None]]:
    """Read the messages of an RPC, each with what is wrong with it: for people to look at."""
    return [
        read_message(data[start:stop], limits)
        for tag, start, stop in _parts(data, limits)
        if tag == FIELD_1
    ]


def _parts(data: bytes, limits: RpcLimits) -> list[tuple[int, int, int]]:
    if len(data) > limits.rpc_bytes:
        raise DecodeError("rpc-too-long", f"{len(data)} bytes, allowed are {limits.rpc_bytes}")
    found: list[tuple[int, int, int]] = []
    known = position = 0
    end = len(data)
    while position < end:
        field = next_field(data, position, end)
        position = field[2]
        known += field[0] == FIELD_1 or field[0] in _ADDITIONS
        if known > limits.messages:
            raise DecodeError("too-many-messages", f"more than {limits.messages} in one RPC")
        found.append(field)
        if len(found) - known > limits.other_fields:
            raise DecodeError("too-many-fields", f"more than {limits.other_fields} in one RPC")
    return found


def read_message(data: bytes, limits: RpcLimits) -> tuple[RpcMessage, str | None]:
    """Read one message, and say which rule it breaks."""
    op = 0
    payload, begin, end = 0, 0, 0
    created: str | None = None
    version: str | None = None
    message = RpcMessage(0, "")
    for tag, start, stop in split(data, limits.other_fields + 8 + limits.peers):
        if tag == BOOL_1:
            op = read_varint(data, start, stop)[0]
        elif tag in (FIELD_2, FIELD_3, FIELD_4, FIELD_5):
            payload, begin, end = tag, start, stop
        elif tag == FIELD_6:
            created, version = _read_metadata(data[start:stop], limits)
        elif tag == _ELSEWHERE:
            message.elsewhere = read_peers(data[start:stop], message.elsewhere, limits)
    message.op = op
    message.created = created or ""
    message.protocol_version = version or ""
    fault = _read_payload(message, payload, data[begin:end], limits)
    return message, validation.message_fault(op, created, version) or fault


def _read_payload(message: RpcMessage, tag: int, data: bytes, limits: RpcLimits) -> str | None:
    if tag == FIELD_3:
        event = read_event(data, limits)
        if isinstance(event, str):
            return event
        message.event = event
    elif tag == FIELD_5:
        if not cids.is_cid(data):
            return validation.BAD_CID
        message.topic_id = data
    elif tag == FIELD_4:
        return _read_tree(message, data, limits)
    elif tag == FIELD_2:
        message.topic = _read_topic(data, limits)
        return validation.TOPIC_IN_PROTOBUF
    else:
        return validation.NO_PAYLOAD
    return None


def _read_metadata(data: bytes, limits: RpcLimits) -> tuple[str, str]:
    is_usual = len(data) == _USUAL_METADATA and data.endswith(_USUAL_VERSION)
    if is_usual and data.startswith(_USUAL_DATE) and data.isascii():
        return data[2:26].decode(), PROTOCOL
    created = version = ""
    for tag, start, stop in split(data, limits.other_fields + 2):
        if tag == FIELD_1:
            created = text_of(data[start:stop], dates.MAX_DATE_CHARACTERS * 3)
        elif tag == FIELD_2:
            version = text_of(data[start:stop], limits.version_bytes)
    return created, version


def _read_link(data: bytes, limits: RpcLimits) -> bytes:
    """The CID in a link; nothing for an empty link."""
    cid = b""
    for tag, start, stop in split(data, limits.other_fields + 1):
        if tag == FIELD_1:
            # A CID of no bytes is not the same as no CID: it is a bad one.
            cid = data[start:stop] or b"\0"
    return cid


def read_event(data: bytes, limits: RpcLimits, payload: bytes | None = None) -> SignedEvent | str:
    """Read an event in protobuf; return the reason where it breaks a rule.

    `payload` is the payload where the bytes hold none, as in a proof that is kept beside it.
    """
    try:
        return _read_event(data, limits, payload)
    except DecodeError as error:
        return f"event-{error.reason}"


def _read_event(data: bytes, limits: RpcLimits, payload: bytes | None) -> SignedEvent | str:
    # Of a field that comes twice, the last one stays.
    found = {tag: data[start:stop] for tag, start, stop in split(data, limits.other_fields + 10)}
    author, payload, publisher = found.get(FIELD_1), found.get(FIELD_3, payload), found.get(FIELD_4)
    topic, parent = _link_in(found, FIELD_2, limits), _link_in(found, FIELD_5, limits)
    metadata = found.get(FIELD_6)
    written, version = ("", "") if metadata is None else _read_metadata(metadata, limits)
    created = None if metadata is None else dates.normal(written) or ""
    fault = validation.event_fault(author, topic, payload, parent, created, version)
    if author is None or topic is None or payload is None or created is None or fault is not None:
        return fault or validation.NO_PAYLOAD
    if (
        len(payload) > limits.payload_bytes
        or max(len(author), len(publisher or b"")) > limits.peer_id_bytes
    ):
        return OVERSIZED
    event = EventDescriptor(topic, author, payload, created, publisher, parent or None, version)
    # What arrived is forwarded as it is, unless its date was written otherwise than it is hashed.
    encoded = data if FIELD_3 in found and created == written else b""
    return _with_signatures(event, found, limits, encoded) or OVERSIZED


def _with_signatures(
    event: EventDescriptor, found: dict[int, bytes], limits: RpcLimits, encoded: bytes
) -> SignedEvent | None:
    """An event with what vouches for it, or None where that is too long."""
    signature, key = found.get(_PUBLISHER_SIGNATURE, b""), found.get(_PUBLISHER_KEY, b"")
    author_signature, author_key = found.get(_AUTHOR_SIGNATURE, b""), found.get(_AUTHOR_KEY, b"")
    if (
        max(len(key), len(author_key)) > limits.key_bytes
        or max(len(signature), len(author_signature)) > limits.signature_bytes
    ):
        return None
    return SignedEvent(event, signature, key, author_signature, author_key, encoded)


def add_signatures(
    event: EventDescriptor, data: bytes, limits: RpcLimits = DEFAULT_LIMITS
) -> SignedEvent:
    """Put an event and the fields that vouch for it together; unusable ones vouch for nothing."""
    try:
        found = {tag: data[start:end] for tag, start, end in split(data, limits.other_fields + 4)}
    except DecodeError:
        return SignedEvent(event)
    return _with_signatures(event, found, limits, b"") or SignedEvent(event)


def _link_in(found: dict[int, bytes], tag: int, limits: RpcLimits) -> bytes | None:
    """The CID of a link field: None where the field is absent, nothing where it is empty."""
    data = found.get(tag)
    if data is None:
        return None
    if len(data) == _LINK_BYTES and data.startswith(_LINK_HEAD):
        return data[2:]  # as nearly every link is
    return _read_link(data, limits)


def _read_tree(message: RpcMessage, data: bytes, limits: RpcLimits) -> str | None:
    topic: bytes | None = None
    parents: list[bytes] = []
    children: list[bytes] = []
    for tag, start, stop in split(data, limits.tree_peers + limits.other_fields):
        if tag == FIELD_1:
            topic = data[start:stop]
        elif tag == FIELD_2 or tag == FIELD_3:
            if stop - start > limits.peer_id_bytes:
                raise DecodeError("bad-peer-id", f"longer than {limits.peer_id_bytes} bytes")
            (parents if tag == FIELD_2 else children).append(data[start:stop])
    if topic is None:
        return validation.NO_TREE_TOPIC
    if not cids.is_cid(topic):
        return validation.BAD_CID
    message.tree = PeerTree(topic, tuple(parents), tuple(children))
    return None


def _read_topic(data: bytes, limits: RpcLimits) -> TopicDescriptor:
    """Read a topic in protobuf as far as that can be done: its lists of peers are lost.

    Of the two fields with number 2 the first is the author and the second the parent.
    """
    name, shared = "", []
    sub_topics: dict[str, bytes] = {}
    metadata = b""
    for tag, start, stop in split(data, limits.sub_topics + limits.other_fields):
        if tag == FIELD_1:
            name = text_of(data[start:stop], limits.name_bytes)
        elif tag == FIELD_2:
            shared.append(data[start:stop])
        elif tag == FIELD_3:
            sub_name, cid = _read_sub_topic(data[start:stop], limits)
            sub_topics[sub_name] = cid
        elif tag == FIELD_4:
            metadata = data[start:stop]
    author = shared[0][: limits.peer_id_bytes] if shared else b""
    parent = _read_link(shared[1], limits) if len(shared) > 1 else b""
    topic = TopicDescriptor(name, author, "", parent or None, sub_topics)
    _read_topic_metadata(topic, metadata, limits)
    return topic


def _read_sub_topic(data: bytes, limits: RpcLimits) -> tuple[str, bytes]:
    name, cid = "", b""
    for tag, start, stop in split(data, limits.other_fields + 2):
        if tag == FIELD_1:
            name = text_of(data[start:stop], limits.name_bytes)
        elif tag == FIELD_2:
            cid = _read_link(data[start:stop], limits)
    return name, cid


def _read_topic_metadata(topic: TopicDescriptor, data: bytes, limits: RpcLimits) -> None:
    topic.created, topic.protocol_version = _read_metadata(data, limits)
    topic.request_to_publish = None
    for tag, start, stop in split(data, limits.other_fields + 5):
        if tag == FIELD_3 and _is_enabled(data[start:stop], limits):
            topic.allowed_publishers = ()
        elif tag == FIELD_4 and _is_enabled(data[start:stop], limits):
            topic.request_to_publish = ()
        elif tag == _LINKING and read_varint(data, start, stop)[0] == EventLinking.CUSTOM:
            topic.event_linking = EventLinking.CUSTOM


def _is_enabled(data: bytes, limits: RpcLimits) -> bool:
    enabled = False
    for tag, start, stop in split(data, limits.tree_peers + limits.other_fields):
        if tag == BOOL_1:
            enabled = read_varint(data, start, stop)[0] != 0
    return enabled
