"""The RPC of Pulsarcast as values, and the bytes that they are sent as.

An RPC of the JavaScript original is a list of messages, each with an operation, one payload and a
date. Its bytes are reproduced exactly: fields in the order of their numbers, an absent parent as an
empty link, an empty payload as an empty field. What the original lacks is added under field numbers
from 100 on, which it skips: signatures beside an event, a forwarding address in a LEAVE, and
answers, which are parts of the RPC beside its messages (`Addition`).

Values are immutable once sent; what is computed from them (bytes, trace metadata) is kept in them.
`codec` reads them back.
"""

from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from rumormill.core.trace import MessageMeta, OperationMeta, RpcMeta
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dates
from rumormill.protocols.pulsarcast.descriptors import PROTOCOL, EventDescriptor, TopicDescriptor
from rumormill.protocols.pulsarcast.signing import SignedEvent
from rumormill.wire.protobuf import bytes_field, field_size, string_field, varint_field


class Operation(IntEnum):
    """What a message asks for; the numbers are the original's."""

    PING = 0
    UPDATE = 1
    PUBLISH_EVENT = 2
    JOIN_TOPIC = 3
    LEAVE_TOPIC = 4
    NEW_TOPIC = 5
    REQUEST_TO_PUBLISH = 6


OPERATION_NAMES: Final = {
    operation.value: operation.name.lower().replace("_", "-") for operation in Operation
}
"""The operations as the trace names them."""

# Field numbers that the original does not use.
PUBLISHER_SIGNATURE, PUBLISHER_KEY, AUTHOR_SIGNATURE, AUTHOR_KEY = 100, 101, 102, 103
ELSEWHERE = 100
JOIN_REPLY, REQUEST_REPLY, FETCH, EVENTS, TERMS, HAVE, BLOCK = range(100, 107)


class PeerTree(msgspec.Struct, frozen=True, gc=False):
    """Somebody's neighbours in a topic's tree: the payload of UPDATE, which nobody sends."""

    topic: bytes
    parents: tuple[bytes, ...] = ()
    children: tuple[bytes, ...] = ()


class PeerAddress(msgspec.Struct, frozen=True, gc=False):
    """A peer to turn to, and where it may be reached: binary multiaddrs, best first."""

    peer: bytes
    addresses: tuple[bytes, ...] = ()


class RpcMessage(msgspec.Struct, gc=False):
    """One message. Of `topic`, `event`, `tree` and `topic_id` at most one is there.

    `elsewhere` is ours: peers that a LEAVE recommends instead of its sender.
    """

    op: int
    created: str
    topic_id: bytes | None = None
    event: SignedEvent | None = None
    topic: TopicDescriptor | None = None
    tree: PeerTree | None = None
    protocol_version: str = PROTOCOL
    elsewhere: tuple[PeerAddress, ...] = ()

    def encode(self) -> bytes:
        """The message's bytes, without the tag and length that frame it in an RPC."""
        op = self.op
        parts = [_OPERATION_FIELDS[op] if 0 <= op < 7 else varint_field(1, op)]
        if self.topic_id is not None:
            parts.append(bytes_field(5, self.topic_id))
        elif self.event is not None:
            parts.append(bytes_field(3, encode_event(self.event)))
        elif self.topic is not None:
            parts.append(bytes_field(2, encode_topic(self.topic)))
        elif self.tree is not None:
            parts.append(bytes_field(4, _encode_tree(self.tree)))
        parts.append(bytes_field(6, _metadata(self.created, self.protocol_version)))
        parts += [bytes_field(ELSEWHERE, _encode_peer(each)) for each in self.elsewhere]
        return b"".join(parts)


class JoinStatus(IntEnum):
    """What became of a JOIN."""

    ACCEPTED = 0
    """The joiner is a child of the sender now."""
    REDIRECTED = 1
    """The sender is full; the joiner should try the named peers."""
    REFUSED = 2
    """The sender does not serve the topic; `reason` says why."""


class JoinReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a JOIN; REDIRECTED also comes unasked, when a parent has too many children."""

    topic: bytes
    status: JoinStatus
    peers: tuple[PeerAddress, ...] = ()
    reason: str = ""

    def encode(self) -> bytes:
        """The reply's bytes."""
        parts = [bytes_field(1, self.topic), varint_field(2, self.status)]
        parts += [bytes_field(3, _encode_peer(each)) for each in self.peers]
        if self.reason:
            parts.append(string_field(4, self.reason))
        return b"".join(parts)


class Terms(msgspec.Struct, frozen=True, gc=False):
    """What goes with a JOIN, and with its acceptance: who gets what, and who has what.

    `silent` says that the joiner only publishes and wants no events. The rest describes the events
    dated from `start` to before `end` (milliseconds since 1970) that the sender has: how many there
    are and the exclusive or of the last eight bytes of their CIDs. An empty range compares nothing.
    """

    topic: bytes
    silent: bool = False
    start: int = 0
    end: int = 0
    count: int = 0
    checksum: int = 0

    def encode(self) -> bytes:
        """The terms' bytes."""
        parts = [bytes_field(1, self.topic)]
        numbers = (self.silent, self.start, self.end, self.count, self.checksum)
        parts += [varint_field(2 + place, number) for place, number in enumerate(numbers)]
        return b"".join(parts)


class RequestStatus(IntEnum):
    """What became of a request to publish."""

    ACCEPTED = 0
    """It was published."""
    REFUSED = 1
    """Nobody who may publish was willing; `reason` says why."""
    TIMED_OUT = 2
    """Nobody who may publish was found in time."""


class RequestReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request to publish: the request's CID and that of the event it became."""

    topic: bytes
    request: bytes
    status: RequestStatus
    event: bytes | None = None
    reason: str = ""

    def encode(self) -> bytes:
        """The reply's bytes."""
        parts = [bytes_field(1, self.topic), bytes_field(2, self.request)]
        parts.append(varint_field(3, self.status))
        if self.event is not None:
            parts.append(bytes_field(4, self.event))
        if self.reason:
            parts.append(string_field(5, self.reason))
        return b"".join(parts)


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Ask for events of a topic, or for the descriptor of the topic itself if `wanted` names it.

    With `ancestors`, so many of the events before each wanted one may come along, back to `known`,
    which the sender has.
    """

    topic: bytes
    wanted: tuple[bytes, ...] = ()
    ancestors: int = 0
    known: bytes | None = None

    def encode(self) -> bytes:
        """The question's bytes."""
        parts = [bytes_field(1, self.topic)]
        parts += [bytes_field(2, each) for each in self.wanted]
        if self.ancestors:
            parts.append(varint_field(3, self.ancestors))
        if self.known is not None:
            parts.append(bytes_field(4, self.known))
        return b"".join(parts)


class Have(msgspec.Struct, frozen=True, gc=False):
    """All events that the sender has of those dated from `start` to before `end`.

    The receiver answers with `Events` that are not among them, and asks for those it lacks.
    """

    topic: bytes
    start: int
    end: int
    cids: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """The message's bytes."""
        parts = [bytes_field(1, self.topic), varint_field(2, self.start), varint_field(3, self.end)]
        parts += [bytes_field(4, each) for each in self.cids]
        return b"".join(parts)


class Events(msgspec.Struct, frozen=True, gc=False):
    """Old events, parents before children. `missing` names what was wanted and is not there.

    `start` and `end` are those of the `Have` that this answers; up to `end` the answer is complete.
    """

    topic: bytes
    events: tuple[SignedEvent, ...] = ()
    missing: tuple[bytes, ...] = ()
    start: int = 0
    end: int = 0

    def encode(self) -> bytes:
        """The answer's bytes."""
        parts = [bytes_field(1, self.topic)]
        parts += [bytes_field(2, encode_event(each)) for each in self.events]
        parts += [bytes_field(3, each) for each in self.missing]
        if self.end:
            parts += (varint_field(4, self.start), varint_field(5, self.end))
        return b"".join(parts)


class Block(msgspec.Struct, frozen=True, gc=False):
    """The dag-cbor bytes of a topic's descriptor, whose CID `topic` is."""

    topic: bytes
    data: bytes

    def encode(self) -> bytes:
        """The block's bytes."""
        return bytes_field(1, self.topic) + bytes_field(2, self.data)


Addition: TypeAlias = JoinReply | RequestReply | Fetch | Events | Terms | Have | Block
"""What the original does not know."""

ADDITION_NUMBERS: Final[dict[type, int]] = {
    JoinReply: JOIN_REPLY,
    RequestReply: REQUEST_REPLY,
    Fetch: FETCH,
    Events: EVENTS,
    Terms: TERMS,
    Have: HAVE,
    Block: BLOCK,
}
ADDITION_NAMES: Final[dict[type, str]] = {
    JoinReply: "join-reply",
    RequestReply: "request-reply",
    Fetch: "fetch",
    Events: "events",
    Terms: "terms",
    Have: "have",
    Block: "block",
}


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A message that arrived in an RPC and breaks a rule, while the rest of the RPC is sound.

    `op` is its operation as it arrived, known or not; -1 for an old event inside `Events`.
    """

    reason: str
    op: int = -1


class Rpc(msgspec.Struct, gc=False, eq=False):
    """One RPC between two peers.

    `refused` is filled in by the reader and is not sent.
    """

    messages: tuple[RpcMessage, ...] = ()
    additions: tuple[Addition, ...] = ()
    refused: tuple[Refused, ...] = ()
    encoded: bytes = b""
    cached_meta: RpcMeta | None = None

    def encode(self) -> bytes:
        """The bytes of the RPC, without the length prefix of the stream; made once."""
        if not self.encoded:
            parts = [bytes_field(1, message.encode()) for message in self.messages]
            parts += [
                bytes_field(ADDITION_NUMBERS[type(each)], each.encode()) for each in self.additions
            ]
            self.encoded = b"".join(parts)
        return self.encoded

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this RPC."""
        meta = self.cached_meta
        if meta is None:
            meta = self.cached_meta = _meta_of(self)
        return meta

    @property
    def urgent(self) -> bool:
        """What holds the tree together overtakes events."""
        for message in self.messages:
            if message.event is not None:
                return False
        return all(type(each) is not Events for each in self.additions)


def publish(event: SignedEvent, now: float) -> Rpc:
    """The RPC that spreads an event."""
    return _alone(RpcMessage(Operation.PUBLISH_EVENT, dates.iso_at(now), event=event))


def forward(rpc: Rpc, message: RpcMessage) -> Rpc:
    """The RPC that passes on a message of an RPC: the same one, where the message came alone."""
    return rpc if len(rpc.messages) == 1 and not rpc.additions else _alone(message)


def request_to_publish(event: SignedEvent, now: float) -> Rpc:
    """The RPC that asks for an event to be published."""
    return _alone(RpcMessage(Operation.REQUEST_TO_PUBLISH, dates.iso_at(now), event=event))


def join(topic: bytes, now: float) -> Rpc:
    """The RPC that asks to become a child in a topic's tree."""
    return _alone(RpcMessage(Operation.JOIN_TOPIC, dates.iso_at(now), topic))


def leave(topic: bytes, now: float, elsewhere: tuple[PeerAddress, ...] = ()) -> Rpc:
    """The RPC that ends a link of a topic's tree; `elsewhere` is for children left behind."""
    message = RpcMessage(Operation.LEAVE_TOPIC, dates.iso_at(now), topic, elsewhere=elsewhere)
    return _alone(message)


def addition(*additions: Addition) -> Rpc:
    """The RPC that carries answers alone."""
    return Rpc((), additions)


def _alone(message: RpcMessage) -> Rpc:
    return Rpc((message,))


def _meta_of(rpc: Rpc) -> RpcMeta:
    carried: list[MessageMeta] = []
    operations: list[OperationMeta] = []
    data_size = 0
    for message in rpc.messages:
        signed = message.event
        if signed is not None and message.op == Operation.PUBLISH_EVENT:
            carried.append(MessageMeta(signed.cid, cids.text(signed.event.topic)))
            alone = len(rpc.messages) == 1 and not rpc.additions
            data_size += len(rpc.encode()) if alone else field_size(len(message.encode()))
        else:
            name = OPERATION_NAMES.get(message.op, "unknown")
            operations.append(OperationMeta(name, _topic_text(message)))
    for each in rpc.additions:
        operations.append(OperationMeta(ADDITION_NAMES[type(each)], cids.text(each.topic)))
        if type(each) is Events:
            carried += [MessageMeta(signed.cid, cids.text(each.topic)) for signed in each.events]
            data_size += sum(field_size(len(encode_event(signed))) for signed in each.events)
    return RpcMeta(
        tuple(carried),
        size=len(rpc.encode()),
        data_size=data_size,
        operations=tuple(operations),
    )


def _topic_text(message: RpcMessage) -> str:
    if message.event is not None:
        return cids.text(message.event.event.topic)
    if message.topic is not None:
        return cids.text(message.topic.cid)
    topic = message.tree.topic if message.tree is not None else message.topic_id
    return "" if topic is None else cids.text(topic)


_OPERATION_FIELDS = tuple(varint_field(1, operation) for operation in Operation)
_USUAL_DATE = bytes((0x0A, 24))
_USUAL_VERSION = string_field(2, PROTOCOL)


def _metadata(created: str, version: str) -> bytes:
    if len(created) == 24 and version == PROTOCOL and created.isascii():
        return b"".join((_USUAL_DATE, created.encode(), _USUAL_VERSION))  # as nearly always
    return string_field(1, created) + string_field(2, version)


def _link(cid: bytes | None) -> bytes:
    return b"" if cid is None else bytes_field(1, cid)


def encode_event(signed: SignedEvent) -> bytes:
    """The protobuf form of an event with its signatures; made once."""
    if not signed.encoded:
        signed.encoded = encode_event_parts(signed, signed.event.payload)
    return signed.encoded


def encode_event_parts(signed: SignedEvent, payload: bytes | None) -> bytes:
    """The protobuf form of an event, without its payload where that is None."""
    event: EventDescriptor = signed.event
    parts = [bytes_field(1, event.author), bytes_field(2, _link(event.topic))]
    if payload is not None:
        parts.append(bytes_field(3, payload))
    if event.publisher is not None:
        parts.append(bytes_field(4, event.publisher))
    parts.append(bytes_field(5, _link(event.parent)))
    parts.append(bytes_field(6, _metadata(event.created, event.protocol_version)))
    parts.append(encode_signatures(signed))
    return b"".join(parts)


def encode_signatures(signed: SignedEvent) -> bytes:
    """The fields that vouch for an event."""
    fields = (
        (PUBLISHER_SIGNATURE, signed.publisher_signature),
        (PUBLISHER_KEY, signed.publisher_key),
        (AUTHOR_SIGNATURE, signed.author_signature),
        (AUTHOR_KEY, signed.author_key),
    )
    return b"".join([bytes_field(number, value) for number, value in fields if value])


def encode_topic(topic: TopicDescriptor) -> bytes:
    """The protobuf form of a topic, which is good for nothing and is not sent.

    Author and parent share a field number and the lists of peers are lost: so the original writes
    it. Topics travel as dag-cbor.
    """
    metadata = (
        string_field(1, topic.created),
        string_field(2, topic.protocol_version),
        bytes_field(3, varint_field(1, topic.allowed_publishers is not None)),
        bytes_field(4, varint_field(1, topic.request_to_publish is not None)),
        varint_field(5, topic.event_linking),
    )
    parts = [string_field(1, topic.name), bytes_field(2, topic.author)]
    parts.append(bytes_field(2, _link(topic.parent)))
    for name, cid in topic.sub_topics.items():
        parts.append(bytes_field(3, string_field(1, name) + bytes_field(2, _link(cid))))
    parts.append(bytes_field(4, b"".join(metadata)))
    return b"".join(parts)


def _encode_tree(tree: PeerTree) -> bytes:
    parts = [bytes_field(1, tree.topic)]
    parts += [bytes_field(2, peer) for peer in tree.parents]
    parts += [bytes_field(3, peer) for peer in tree.children]
    return b"".join(parts)


def _encode_peer(address: PeerAddress) -> bytes:
    return bytes_field(1, address.peer) + b"".join(
        [bytes_field(2, each) for each in address.addresses]
    )
