"""The pub/sub RPC as bytes: encoding, bounded decoding, and what a message's signature covers.

The rule: no object is built that a limit has not allowed. The walk counts as it goes and stops at
the first item too many; nothing that a peer sends makes it allocate more than a small multiple of
the bytes that arrived, and those are bounded by the stream's frames. Whatever is wrong with the
bytes, the answer is a `DecodeError`.

Reading follows protobuf: unknown fields are skipped, of a repeated single value the last one
counts, parts of a message that occur several times are merged. Field groups, which protobuf itself
has given up, are refused.
"""

import struct
from collections.abc import Callable

from rumormill.core.errors import DecodeError
from rumormill.core.ids import MessageId, Topic
from rumormill.wire.protobuf import (
    LENGTH_DELIMITED,
    PLAIN_TAGS,
    bytes_field,
    field_size,
    next_field,
    read_varint,
    string_field,
    varint,
    varint_field,
)
from rumormill.wire.pubsub import Control, IHave, Message, PeerInfo, Prune, Rpc, SubOpts
from rumormill.wire.pubsub_limits import DEFAULT_LIMITS, RpcLimits

__all__ = [
    "DEFAULT_LIMITS",
    "SIGN_PREFIX",
    "MessageIdFunction",
    "RpcLimits",
    "decode_rpc",
    "encode_message",
    "encode_rpc",
    "signing_payload",
]

MAX_ID_BYTES = 512
"""Our choice: ids are remembered for some time, so they must not be a way to fill memory. An author
and eight bytes take 50, a hash in text 128."""

SIGN_PREFIX = b"libp2p-pubsub:"
"""What a signature covers starts with this, so that it can never be taken for one of another kind
(pub/sub specification, message signing)."""

# Tags as they appear on the wire: the field number, then the wire type in the lowest three bits.
_FIELD_1, _FIELD_2, _FIELD_3, _FIELD_4, _FIELD_5, _FIELD_6 = 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32
_SUBSCRIBE = 0x08
_BACKOFF = 0x18

_MAX_FIELDS = 16
"""Fields in one message, subscription, GRAFT or offered peer, and fields besides ids and peers in a
list or a PRUNE. The largest of them has six; the rest is for extensions. Our choice: it keeps
the cost of an RPC in proportion to its items, where 1 MiB could hold half a million fields."""


MessageIdFunction = Callable[[Message], MessageId]


def decode_rpc(
    data: bytes,
    limits: RpcLimits = DEFAULT_LIMITS,
    message_id: MessageIdFunction | None = None,
) -> Rpc:
    """Read an RPC; each message gets its id from `message_id` when that is given."""
    if len(data) > limits.rpc_bytes:
        raise DecodeError("rpc-too-long", f"{len(data)} bytes, allowed are {limits.rpc_bytes}")
    try:
        rpc = _read_rpc(data, limits)
    except IndexError:
        # The walk reads a tag and a length together, and so may look one byte behind the end.
        raise DecodeError("truncated", "a field is cut short") from None
    except UnicodeDecodeError:
        raise DecodeError("bad-topic", "a topic is not UTF-8") from None
    if message_id is not None:
        for message in rpc.publish:
            message.id = message_id(message)
    return rpc


def _read_rpc(data: bytes, limits: RpcLimits) -> Rpc:
    end = len(data)
    if end and data[0] == _FIELD_2:
        # One message and nothing else, as most RPCs are.
        _, start, stop = next_field(data, 0, end)
        if stop == end and limits.messages:
            return Rpc((), (_read_message(data, start, end, limits),))
    subscriptions: list[SubOpts] = []
    publish: list[Message] = []
    control: _ControlReader | None = None
    others = position = 0
    while position < end:
        tag, start, position = next_field(data, position, end)
        if tag == _FIELD_2:
            if len(publish) == limits.messages:
                raise _too_many("messages", limits.messages)
            publish.append(_read_message(data, start, position, limits))
        elif tag == _FIELD_1:
            if len(subscriptions) == limits.subscriptions:
                raise _too_many("subscriptions", limits.subscriptions)
            subscriptions.append(_read_subscription(data, start, position, limits))
        else:
            others += 1
            if others > limits.other_fields:
                raise _too_many("fields", limits.other_fields)
            if tag == _FIELD_3:
                control = control or _ControlReader(limits)
                control.read(data, start, position)
    return Rpc(tuple(subscriptions), tuple(publish), None if control is None else control.result())


def _too_many(what: str, limit: int) -> DecodeError:
    return DecodeError(f"too-many-{what}", f"more than {limit} in one RPC")


def _topic_too_long(topic: bytes, limits: RpcLimits) -> DecodeError:
    detail = f"{len(topic)} bytes, allowed are {limits.topic_bytes}"
    return DecodeError("topic-too-long", detail)


def _topic(raw: bytes, limits: RpcLimits) -> Topic:
    if len(raw) > limits.topic_bytes:
        raise _topic_too_long(raw, limits)
    return raw.decode()


_MESSAGE_FIELDS = range(_MAX_FIELDS)
_DISORDER = 0x100
"""Above every tag of one byte: no field behind it is in order."""


def _read_message(data: bytes, position: int, end: int, limits: RpcLimits) -> Message:
    begin = position
    author = payload = seqno = topic = signature = key = b""
    signed_end = previous = 0
    for _ in _MESSAGE_FIELDS:
        if position >= end:
            break
        field = position
        # `next_field` written out: this loop runs five times for every message.
        tag, length, start = data[position], data[position + 1], position + 2
        if length >= 0x80:
            length += (data[start] << 7) - 0x80
            start += 1
        stop = start + length
        if length >= 0x4000 or stop > end or tag not in PLAIN_TAGS:
            tag, start, stop = next_field(data, position, end)
            length = stop - start
            shortest = tag & 7 == LENGTH_DELIMITED and field_size(length) == stop - field
        else:
            shortest = length >= 0x80 or start == field + 2
        # Who writes the fields in the order of their numbers, and no length longer than need be,
        # has signed the bytes before the signature as they are.
        previous = tag if tag > previous and shortest else _DISORDER
        position = stop
        if tag == _FIELD_1:
            author = data[start:position]
        elif tag == _FIELD_2:
            payload = data[start:position]
        elif tag == _FIELD_3:
            seqno = data[start:position]
        elif tag == _FIELD_4:
            topic = data[start:position]
        elif tag == _FIELD_5:
            signature = data[start:position]
            signed_end = field
        elif tag == _FIELD_6:
            key = data[start:position]
    if position < end:
        topic = b""
    if len(topic) > limits.topic_bytes:
        raise _topic_too_long(topic, limits)
    if len(signature) > limits.signature_bytes or len(key) > limits.key_bytes:
        signature, key = signature[: limits.signature_bytes + 1], key[: limits.key_bytes + 1]
    signed = signed_end - begin if signed_end and previous <= _FIELD_6 else 0
    encoded = data[begin:end]
    return Message(topic.decode(), payload, author, seqno, signature, key, b"", encoded, signed)


def _item_fields(
    data: bytes, position: int, end: int, max_fields: int = _MAX_FIELDS
) -> list[tuple[int, int, int]]:
    """The fields of something small, each as tag, start and end of the value."""
    found: list[tuple[int, int, int]] = []
    while position < end:
        if len(found) == max_fields:
            raise DecodeError("too-many-fields", f"more than {max_fields} in one item")
        field = next_field(data, position, end)
        found.append(field)
        position = field[2]
    return found


def _read_subscription(data: bytes, position: int, end: int, limits: RpcLimits) -> SubOpts:
    subscribe, topic = False, b""
    for tag, start, stop in _item_fields(data, position, end):
        if tag == _SUBSCRIBE:
            subscribe = read_varint(data, start, stop)[0] != 0
        elif tag == _FIELD_2:
            topic = data[start:stop]
    return SubOpts(subscribe, _topic(topic, limits))


class _ControlReader:
    """Collects the control parts of one RPC, of which there is normally one."""

    __slots__ = (
        "graft",
        "idontwant",
        "ihave",
        "ihave_ids",
        "iwant",
        "limits",
        "lists",
        "prune",
        "size",
    )

    def __init__(self, limits: RpcLimits) -> None:
        self.limits = limits
        self.size = self.lists = 0
        self.ihave: list[IHave] = []
        self.ihave_ids = 0
        self.iwant: list[MessageId] = []
        self.graft: list[Topic] = []
        self.prune: list[Prune] = []
        self.idontwant: list[MessageId] = []

    def read(self, data: bytes, position: int, end: int) -> None:
        """Read one control part."""
        limits = self.limits
        self.size += end - position
        if self.size > limits.control_bytes:
            raise DecodeError("control-too-long", f"more than {limits.control_bytes} bytes")
        while position < end:
            tag, start, position = next_field(data, position, end)
            if tag == _FIELD_3:
                if len(self.graft) == limits.grafts:
                    raise _too_many("grafts", limits.grafts)
                self.graft.append(_read_graft(data, start, position, limits))
            elif tag == _FIELD_4:
                if len(self.prune) == limits.prunes:
                    raise _too_many("prunes", limits.prunes)
                self.prune.append(_read_prune(data, start, position, limits))
            else:
                # Unknown fields count as lists, which bounds them too.
                self.lists += 1
                if self.lists > limits.id_lists:
                    raise _too_many("lists", limits.id_lists)
                self._read_list(data, start, position, tag)

    def _read_list(self, data: bytes, position: int, end: int, tag: int) -> None:
        limits = self.limits
        if tag == _FIELD_1:
            self._read_ihave(data, position, end)
        elif tag == _FIELD_2:
            limit = limits.iwant_ids
            _read_ids(data, position, end, self.iwant, id_tag=_FIELD_1, limit=limit)
        elif tag == _FIELD_5:
            limit = limits.idontwant_ids
            _read_ids(data, position, end, self.idontwant, id_tag=_FIELD_1, limit=limit)

    def _read_ihave(self, data: bytes, position: int, end: int) -> None:
        limits = self.limits
        ids: list[MessageId] = []
        limit = limits.ihave_ids - self.ihave_ids
        topic = _read_ids(data, position, end, ids, id_tag=_FIELD_2, limit=limit)
        self.ihave_ids += len(ids)
        self.ihave.append(IHave(_topic(topic, limits), tuple(ids)))

    def result(self) -> Control:
        """Everything that was read, as one control part."""
        return Control(
            tuple(self.ihave),
            tuple(self.iwant),
            tuple(self.graft),
            tuple(self.prune),
            tuple(self.idontwant),
        )


def _read_ids(
    data: bytes, position: int, end: int, ids: list[MessageId], *, id_tag: int, limit: int
) -> bytes:
    """Append a list's ids to `ids`; return the list's topic, which only an IHAVE has."""
    topic = b""
    first = True
    others = 0
    while position < end:
        begin = position
        tag, start, position = next_field(data, begin, end)
        if tag == id_tag:
            if position - start > MAX_ID_BYTES:
                raise DecodeError("id-too-long", f"a message id of {position - start} bytes")
            # Asked once per list: asking at every id would make the walk quadratic.
            count = _alike(data, begin, position, end) if first and start == begin + 2 else 1
            first = False
            if len(ids) + count > limit:
                raise DecodeError("too-many-ids", "more message ids than one RPC may hold")
            if count > 1:
                run = struct.iter_unpack(f"2x{position - start}s", data[begin:end])
                ids += [message_id for (message_id,) in run]
                break
            ids.append(data[start:position])
            continue
        others += 1
        if others > _MAX_FIELDS:
            raise DecodeError("too-many-fields", f"more than {_MAX_FIELDS} besides ids in a list")
        if tag == _FIELD_1:
            topic = data[start:position]
    return topic


def _alike(data: bytes, begin: int, stop: int, end: int) -> int:
    """How many fields there are up to `end`, if all are like the one from `begin` to `stop`.

    The answer is 1 if they are not. Ids in a list are nearly always of one length, and then their
    tags and lengths, taken at equal distances, are two runs of one byte each.
    """
    stride = stop - begin
    count, rest = divmod(end - begin, stride)
    if rest or data[begin:end:stride].count(data[begin]) != count:
        return 1
    return count if data[begin + 1 : end : stride].count(data[begin + 1]) == count else 1


def _read_graft(data: bytes, position: int, end: int, limits: RpcLimits) -> Topic:
    topic = b""
    for tag, start, stop in _item_fields(data, position, end):
        if tag == _FIELD_1:
            topic = data[start:stop]
    return _topic(topic, limits)


def _read_prune(data: bytes, position: int, end: int, limits: RpcLimits) -> Prune:
    topic, backoff = b"", 0
    peers: list[PeerInfo] = []
    most = limits.peers_per_prune + _MAX_FIELDS
    for tag, start, stop in _item_fields(data, position, end, most):
        if tag == _FIELD_1:
            topic = data[start:stop]
        elif tag == _FIELD_2:
            if len(peers) == limits.peers_per_prune:
                raise DecodeError("too-many-peers", f"more than {len(peers)} in one PRUNE")
            peers.append(_read_peer(data, start, stop, limits))
        elif tag == _BACKOFF:
            backoff = read_varint(data, start, stop)[0]
    return Prune(_topic(topic, limits), tuple(peers), backoff)


def _read_peer(data: bytes, position: int, end: int, limits: RpcLimits) -> PeerInfo:
    peer = record = b""
    for tag, start, stop in _item_fields(data, position, end):
        if tag == _FIELD_1:
            peer = data[start:stop]
        elif tag == _FIELD_2:
            if stop - start > limits.record_bytes:
                raise DecodeError("record-too-long", f"more than {limits.record_bytes} bytes")
            record = data[start:stop]
    return PeerInfo(peer, record)


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
            _AUTHOR[n] if (n := len(author)) < 0x80 else _long_head(_FIELD_1, n),
            author,
            _DATA[n] if (n := len(data)) < 0x80 else _long_head(_FIELD_2, n),
            data,
            _SEQNO[n] if (n := len(seqno)) < 0x80 else _long_head(_FIELD_3, n),
            seqno,
            _TOPIC[n] if (n := len(topic)) < 0x80 else _long_head(_FIELD_4, n),
            topic,
        )
    )


def signature_fields(message: Message) -> bytes:
    """Encode the fields that are not signed: the signature and the key."""
    signature, key = message.signature, message.key
    head = _SIGNATURE[n] if (n := len(signature)) < 0x80 else _long_head(_FIELD_5, n)
    if not key:
        return head + signature
    key_head = _KEY[n] if (n := len(key)) < 0x80 else _long_head(_FIELD_6, n)
    return b"".join((head, signature, key_head, key))


def proof_fields(message: Message) -> bytes:
    """Encode what proves the author: the sequence number, the signature and the key."""
    seqno, encoded = message.seqno, message.encoded
    head = _SEQNO[n] if (n := len(seqno)) < 0x80 else _long_head(_FIELD_3, n)
    if encoded and message.signed_bytes:
        return b"".join((head, seqno, encoded[message.signed_bytes :]))
    return b"".join((head, seqno, signature_fields(message)))


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
    for tag, start, stop in _item_fields(data, 0, len(data)):
        if tag in {_FIELD_1, _FIELD_2, _FIELD_3, _FIELD_4}:
            known[tag >> 3] = data[start:stop]
        elif tag not in {_FIELD_5, _FIELD_6}:
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
        return (_HEADS[1][length] if length < 0x80 else _long_head(_FIELD_2, length)) + encoded
    parts: list[bytes] = []
    for sub in rpc.subscriptions:
        inner = varint_field(1, sub.subscribe) + string_field(2, sub.topic)
        _append_field(parts, _HEADS[0], inner)
    for message in rpc.publish:
        _append_field(parts, _HEADS[1], message.encoded or encode_message(message))
    if rpc.control is not None:
        _append_field(parts, _HEADS[2], _encode_control(rpc.control))
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
