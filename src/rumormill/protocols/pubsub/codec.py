"""The pub/sub RPC as bytes: encoding, bounded decoding, and what a message's signature covers.

The rule: no object is built that a limit has not allowed. The walk counts as it goes and stops at
the first item too many; nothing that a peer sends makes it allocate more than a small multiple of
the bytes that arrived, and those are bounded by the stream's frames. Whatever is wrong with the
bytes, the answer is a `DecodeError`.

Reading follows protobuf: unknown fields are skipped, of a repeated single value the last one
counts, parts of a message that occur several times are merged. Field groups, which protobuf itself
has given up, are refused.
"""

from collections.abc import Callable

from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.ids import MessageId
from rumormill.core.trace import ControlMeta, IDontWantMeta, RpcMeta
from rumormill.protocols.pubsub.config import DEFAULT_LIMITS, PubsubLimits
from rumormill.protocols.pubsub.control_codec import (
    FIELD_1,
    FIELD_2,
    FIELD_3,
    FIELD_4,
    FIELD_5,
    FIELD_6,
    ControlReader,
    read_topic,
    too_many,
    topic_too_long,
)
from rumormill.protocols.pubsub.messages import Control, Message, Prune, Rpc, SubOpts, control_size
from rumormill.protocols.pubsub.trunk_part import (
    EXTENSION,
    FIELD,
    FIELD_TAG,
    encode_part,
    operations_of,
    read_part,
)
from rumormill.wire.protobuf import (
    LENGTH_DELIMITED,
    MAX_FIELDS,
    bytes_field,
    field_size,
    item_fields,
    next_field,
    read_length,
    read_varint,
    string_field,
    varint,
    varint_field,
)

SIGN_PREFIX = b"libp2p-pubsub:"
"""What a signature covers starts with this, so that it can never be taken for one of another kind
(pub/sub specification, message signing)."""

_SUBSCRIBE = 0x08
_ONE_ID = 6
_ONE_UNWANTED = tuple(
    bytes((FIELD_3, max(0, end - 2), FIELD_5, max(0, end - 4), FIELD_1, max(0, end - _ONE_ID)))
    for end in range(0x80)
)
"""How an RPC begins that consists of one IDONTWANT of one id, by the RPC's length."""


def decode_rpc(
    data: bytes,
    limits: PubsubLimits = DEFAULT_LIMITS,
    name: Callable[[Message], MessageId] | None = None,
) -> Rpc:
    """Read an RPC; each message gets its id from `name` when that is given."""
    if len(data) > limits.rpc_bytes:
        raise DecodeError("rpc-too-long", f"{len(data)} bytes, allowed are {limits.rpc_bytes}")
    try:
        rpc = _read_rpc(data, limits)
    except IndexError:
        # The walk reads a tag and a length together, and so may look one byte behind the end.
        raise DecodeError("truncated", "a field is cut short") from None
    except UnicodeDecodeError:
        raise DecodeError("bad-topic", "a topic is not UTF-8") from None
    if name is not None:
        for message in rpc.publish:
            message.id = name(message)
    return rpc


def _read_rpc(data: bytes, limits: PubsubLimits) -> Rpc:
    end = len(data)
    if end > _ONE_ID and data[0] == FIELD_2:
        # One message and nothing else, as half of all RPCs are.
        _, start, stop = next_field(data, 0, end)
        if stop == end and limits.messages:
            return Rpc((), (_read_message(data, start, end, limits),))
    elif (
        _ONE_ID < end < 0x80
        and data[:_ONE_ID] == _ONE_UNWANTED[end]
        and limits.other_fields
        and limits.id_lists
        and limits.idontwant_ids
        and end <= limits.control_bytes
    ):
        # One IDONTWANT of one id, as nearly all others are.
        unwanted = (data[_ONE_ID:],)
        meta = RpcMeta((), (), ControlMeta(idontwant=(IDontWantMeta(unwanted),)), end)
        return Rpc((), (), Control(idontwant=unwanted), meta)
    elif data.startswith(FIELD) and (alone := _read_trunk(data, end, limits)) is not None:
        return alone
    subscriptions: list[SubOpts] = []
    publish: list[Message] = []
    control: ControlReader | None = None
    others = position = 0
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag == FIELD_2:
            if len(publish) == limits.messages:
                raise too_many("messages", limits.messages)
            publish.append(_read_message(data, start, position, limits))
        elif tag == FIELD_1:
            if len(subscriptions) == limits.subscriptions:
                raise too_many("subscriptions", limits.subscriptions)
            subscriptions.append(_read_subscription(data, start, position, limits))
        else:
            others += 1
            if others > limits.other_fields:
                raise too_many("fields", limits.other_fields)
            if tag == FIELD_3:
                control = control or ControlReader(limits)
                control.read(data, start, position)
            elif tag == FIELD_TAG:
                control = control or ControlReader(limits)
                if control.trunk is not None:
                    raise too_many("trunk-parts", 1)
                control.trunk = read_part(data, start, position, limits.topic_bytes)
    return Rpc(tuple(subscriptions), tuple(publish), None if control is None else control.result())


def _read_trunk(data: bytes, end: int, limits: PubsubLimits) -> Rpc | None:
    """An RPC with trunk's part and nothing else, as ours that have one; None if this is not one."""
    start, stop = read_length(data, len(FIELD), end)
    if stop < end or not limits.other_fields:
        return None
    part = read_part(data, start, end, limits.topic_bytes)
    meta = RpcMeta((), (), None, end, operations=operations_of(part))
    return Rpc((), (), Control(trunk=part), meta)


_MESSAGE_FIELDS = range(MAX_FIELDS)
_DISORDER = 0x100
"""Above every tag of one byte: no field behind it is in order."""


def _read_message(data: bytes, position: int, end: int, limits: PubsubLimits) -> Message:
    return _read_usual(data, position, end, limits) or _read_any(data, position, end, limits)


def _read_usual(data: bytes, begin: int, end: int, limits: PubsubLimits) -> Message | None:
    """A message as nearly every author encodes it: the fields from its author to its signature, in
    this order, and no other; None if this is not one. A third of the steps of `_read_any`.
    """
    try:
        if data[begin] != FIELD_1:
            return None
        author_size = data[begin + 1]
        start = begin + 2
        at = start + author_size
        author = data[start:at]
        start = at + 2
        size = data[at + 1]
        if size >= 0x80:
            high = data[start]
            if not 0 < high < 0x80:
                return None
            size += (high << 7) - 0x80
            start += 1
        seqno_at = start + size
        payload = data[start:seqno_at]
        seqno_size = data[seqno_at + 1]
        topic_at = seqno_at + 2 + seqno_size
        topic_size = data[topic_at + 1]
        signed_end = topic_at + 2 + topic_size
        signature_size = data[signed_end + 1]
        if (
            signed_end + 2 + signature_size != end  # so no field is longer than the message
            or author_size | seqno_size | topic_size | signature_size >= 0x80
            or data[at] != FIELD_2
            or data[seqno_at] != FIELD_3
            or data[topic_at] != FIELD_4
            or data[signed_end] != FIELD_5
            or topic_size > limits.topic_bytes
            or signature_size > limits.signature_bytes
        ):
            return None
    except IndexError:
        return None
    return Message(
        data[topic_at + 2 : signed_end].decode(),
        payload,
        author,
        data[seqno_at + 2 : topic_at],
        data[signed_end + 2 : end],
        b"",
        b"",
        data[begin:end],
        signed_end - begin,
    )


def _read_any(data: bytes, position: int, end: int, limits: PubsubLimits) -> Message:
    begin = position
    author = payload = seqno = topic = signature = key = b""
    signed_end = previous = 0
    for _ in _MESSAGE_FIELDS:
        if position >= end:
            break
        field = position
        tag, start, stop = next_field(data, position, end)
        shortest = tag & 7 == LENGTH_DELIMITED and field_size(stop - start) == stop - field
        # Who writes the fields in the order of their numbers, and no length longer than need be,
        # has signed the bytes before the signature as they are.
        previous = tag if tag > previous and shortest else _DISORDER
        position = stop
        if tag == FIELD_1:
            author = data[start:position]
        elif tag == FIELD_2:
            payload = data[start:position]
        elif tag == FIELD_3:
            seqno = data[start:position]
        elif tag == FIELD_4:
            topic = data[start:position]
        elif tag == FIELD_5:
            signature = data[start:position]
            signed_end = field
        elif tag == FIELD_6:
            key = data[start:position]
    if position < end:
        topic = b""
    if len(topic) > limits.topic_bytes:
        raise topic_too_long(topic, limits)
    if len(signature) > limits.signature_bytes or len(key) > limits.key_bytes:
        signature, key = signature[: limits.signature_bytes + 1], key[: limits.key_bytes + 1]
    signed = signed_end - begin if signed_end and previous <= FIELD_6 else 0
    encoded = data[begin:end]
    return Message(topic.decode(), payload, author, seqno, signature, key, b"", encoded, signed)


def _read_subscription(data: bytes, position: int, end: int, limits: PubsubLimits) -> SubOpts:
    subscribe, topic = False, b""
    for tag, start, stop in item_fields(data, position, end):
        if tag == _SUBSCRIBE:
            subscribe = read_varint(data, start, stop)[0] != 0
        elif tag == FIELD_2:
            topic = data[start:stop]
    return SubOpts(subscribe, read_topic(topic, limits))


# Tag and length of fields 1 to 6, for every length that takes one byte.
_HEADS = tuple(
    tuple(varint(number << 3 | 2) + varint(length) for length in range(0x80))
    for number in range(1, 7)
)
# The same for the fields of a message, where an empty value is an absent field.
_AUTHOR, _DATA, _SEQNO, _TOPIC, _SIGNATURE, _KEY = ((b"", *heads[1:]) for heads in _HEADS)


def _long_head(tag: int, length: int) -> bytes:
    """Tag and length of a field of 128 bytes or more."""
    if length < 0x4000:
        return bytes((tag, length & 0x7F | 0x80, length >> 7))
    return bytes((tag,)) + varint(length)


def _append_field(parts: list[bytes], heads: tuple[bytes, ...], value: bytes) -> None:
    length = len(value)
    parts.append(heads[length] if length < 0x80 else _long_head(heads[0][0], length))
    parts.append(value)


def _build_unsigned(message: Message) -> bytes:
    """Encode the signed fields in the order of their numbers; a loop would take twice as long."""
    author, data, seqno, topic = message.author, message.data, message.seqno, message.topic.encode()
    return b"".join(
        (
            _AUTHOR[n] if (n := len(author)) < 0x80 else _long_head(FIELD_1, n),
            author,
            _DATA[n] if (n := len(data)) < 0x80 else _long_head(FIELD_2, n),
            data,
            _SEQNO[n] if (n := len(seqno)) < 0x80 else _long_head(FIELD_3, n),
            seqno,
            _TOPIC[n] if (n := len(topic)) < 0x80 else _long_head(FIELD_4, n),
            topic,
        )
    )


def signature_fields(message: Message) -> bytes:
    """Encode the fields that are not signed: the signature and the key."""
    signature, key = message.signature, message.key
    head = _SIGNATURE[n] if (n := len(signature)) < 0x80 else _long_head(FIELD_5, n)
    if not key:
        return head + signature
    key_head = _KEY[n] if (n := len(key)) < 0x80 else _long_head(FIELD_6, n)
    return b"".join((head, signature, key_head, key))


def proof_of(message: Message) -> bytes:
    """What a third party needs, besides the event, to check the author; nothing if unsigned.

    It is a protobuf `Message` that holds the sequence number, the signature and the key alone.
    """
    if not message.signature:
        return b""
    seqno, encoded = message.seqno, message.encoded
    head = _SEQNO[n] if (n := len(seqno)) < 0x80 else _long_head(FIELD_3, n)
    if encoded and message.signed_bytes:
        return b"".join((head, seqno, encoded[message.signed_bytes :]))
    return b"".join((head, seqno, signature_fields(message)))


def from_event(event: Event) -> Message:
    """Turn a kept event into the message that it was, without its id; `DecodeError` if it was none.

    What an author has signed besides the fields that we know is not kept: then its signature does
    not hold any more.
    """
    found = {FIELD_3: b"", FIELD_5: b"", FIELD_6: b""}
    for tag, start, stop in item_fields(event.proof, 0, len(event.proof)):
        if tag in found:
            found[tag] = event.proof[start:stop]
    return Message(
        event.topic, event.data, event.author, found[FIELD_3], found[FIELD_5], found[FIELD_6]
    )


def encode_message(message: Message) -> bytes:
    """The bytes of a message, without the tag and length that frame it in an RPC.

    They are made once and kept in `message.encoded`.
    """
    encoded = message.encoded
    if not encoded:
        encoded = _build_unsigned(message) + signature_fields(message)
        message.encoded = encoded
    return encoded


def sign_message(message: Message, sign: Callable[[bytes], bytes], key: bytes) -> None:
    """Sign a new message; `key` is the public key, where the author's id does not contain it."""
    unsigned = _build_unsigned(message)
    message.signature = sign(SIGN_PREFIX + unsigned)
    message.key = key
    message.encoded = unsigned + signature_fields(message)
    message.signed_bytes = len(unsigned)


def signing_payload(message: Message) -> bytes:
    """What a message's signature covers: a prefix, and the message without signature and key.

    For a message that arrived this is made from the bytes that arrived, since the author may have
    signed fields that are present but empty, or that we do not know. As go-libp2p-pubsub does, the
    known fields go in the order of their numbers and unknown ones stay as they are, behind them.
    Of a message of too many fields nothing was signed that counts: that is a `DecodeError`.
    """
    data = message.encoded
    if not data:
        return SIGN_PREFIX + _build_unsigned(message)
    if message.signed_bytes:
        return SIGN_PREFIX + data[: message.signed_bytes]  # as nearly every author encodes
    known: dict[int, bytes] = {}
    unknown: list[bytes] = []
    begin = 0
    for tag, start, stop in item_fields(data, 0, len(data)):
        if tag in {FIELD_1, FIELD_2, FIELD_3, FIELD_4}:
            known[tag >> 3] = data[start:stop]
        elif tag not in {FIELD_5, FIELD_6}:
            unknown.append(data[begin:stop])
        begin = stop
    parts = [SIGN_PREFIX]
    for number in sorted(known):
        _append_field(parts, _HEADS[number - 1], known[number])
    return b"".join(parts + unknown)


def encode_rpc(rpc: Rpc) -> bytes:
    """The bytes of an RPC, without the length prefix of the stream."""
    if len(rpc.publish) == 1 and rpc.control is None and not rpc.subscriptions:
        encoded = rpc.publish[0].encoded or encode_message(rpc.publish[0])
        length = len(encoded)
        return (_HEADS[1][length] if length < 0x80 else _long_head(FIELD_2, length)) + encoded
    parts: list[bytes] = []
    for sub in rpc.subscriptions:
        inner = varint_field(1, sub.subscribe) + string_field(2, sub.topic)
        _append_field(parts, _HEADS[0], inner)
    for message in rpc.publish:
        _append_field(parts, _HEADS[1], message.encoded or encode_message(message))
    control = rpc.control
    if control is not None:
        if control.trunk is None or control_size(control):
            _append_field(parts, _HEADS[2], _encode_control(control))
        if control.trunk is not None:
            parts.append(encode_part(control.trunk))
    return b"".join(parts)


def _encode_control(control: Control) -> bytes:
    parts: list[bytes] = []
    for ihave in control.ihave:
        inner = string_field(1, ihave.topic) + _encode_ids(_HEADS[1], ihave.message_ids)
        parts.append(bytes_field(1, inner))
    if control.iwant:
        parts.append(bytes_field(2, _encode_ids(_HEADS[0], control.iwant)))
    parts += [bytes_field(3, string_field(1, topic)) for topic in control.graft]
    parts += [bytes_field(4, _encode_prune(prune)) for prune in control.prune]
    if control.idontwant:
        parts.append(bytes_field(5, _encode_ids(_HEADS[0], control.idontwant)))
    if control.offers_trunk:
        parts.append(bytes_field(6, varint_field(EXTENSION, 1)))
    return b"".join(parts)


def _encode_ids(heads: tuple[bytes, ...], message_ids: tuple[MessageId, ...]) -> bytes:
    parts: list[bytes] = []
    for message_id in message_ids:
        _append_field(parts, heads, message_id)
    return b"".join(parts)


def _encode_prune(prune: Prune) -> bytes:
    parts = [string_field(1, prune.topic)]
    for info in prune.peers:
        record = bytes_field(2, info.record) if info.record else b""
        parts.append(bytes_field(2, bytes_field(1, info.peer) + record))
    if prune.backoff:
        parts.append(varint_field(3, prune.backoff))
    return b"".join(parts)
