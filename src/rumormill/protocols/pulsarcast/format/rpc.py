"""The RPC of Pulsarcast as values and as bytes.

An RPC of the JavaScript original is a list of messages, each with an operation, one payload and a
date. Its bytes are reproduced exactly: fields in the order of their numbers, an absent parent as an
empty link, an empty payload as an empty field. What the original lacks is added under field numbers
from 100 on, which it skips: signatures beside an event, a forwarding address in a LEAVE, and
answers, which are parts of the RPC beside its messages (`Addition`).

Bytes that are no protobuf, or more of anything than the sender may send, are a `DecodeError`: the
sender pays. A message that is readable and breaks a rule of `codec` is left out and reported
in `Rpc.refused`, and the rest of the RPC stands: its sender may only have forwarded it. That holds
for unknown operations too. Of the payloads of a message the last one counts, as in the original.

Values are immutable once sent; what is computed from them (bytes, trace metadata) is kept in them.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Final, TypeAlias

import msgspec

from rumormill.core.ids import PeerId
from rumormill.core.trace import MessageMeta, OperationMeta, RpcMeta
from rumormill.protocols.pulsarcast.config import DEFAULT_LIMITS, RpcLimits
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import codec, dates
from rumormill.protocols.pulsarcast.format.additions import (
    ADDITION_NAMES,
    Addition,
    Events,
    JoinReply,
    JoinStatus,
    PeerAddress,
    Terms,
    additions_field,
    peers_field,
)
from rumormill.protocols.pulsarcast.format.descriptors import PROTOCOL, Metadata, TopicDescriptor
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.wire.fields import UNBOUNDED, Field, LeftOut, Number, Octets, OneOf
from rumormill.wire.protobuf import field_size
from rumormill.wire.schema import Layout, Schema

_PART: Final = 64
"""Old events that a runtime has judged at a time, as of pub/sub's messages; each may have two
signatures."""


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


class PeerTree(msgspec.Struct, frozen=True, gc=False):
    """Somebody's neighbours in a topic's tree: the payload of UPDATE, which nobody sends."""

    topic: bytes
    parents: tuple[bytes, ...] = ()
    children: tuple[bytes, ...] = ()


Payload: TypeAlias = bytes | SignedEvent | TopicDescriptor | PeerTree
"""What a message is about: a topic's CID, or one of the others."""


_PAYLOADS: Final[dict[int, type]] = {
    Operation.UPDATE: PeerTree,
    Operation.PUBLISH_EVENT: SignedEvent,
    Operation.JOIN_TOPIC: bytes,
    Operation.LEAVE_TOPIC: bytes,
    Operation.NEW_TOPIC: TopicDescriptor,
    Operation.REQUEST_TO_PUBLISH: SignedEvent,
}
"""What an operation is about."""


class RpcMessage(msgspec.Struct, gc=False):
    """One message; `elsewhere` is ours: peers that a LEAVE recommends instead of its sender."""

    op: int
    created: str
    payload: Payload | None = None
    protocol_version: str = PROTOCOL
    elsewhere: tuple[PeerAddress, ...] = ()

    @property
    def event(self) -> SignedEvent | None:
        """The event, where it is about one."""
        return self.payload if isinstance(self.payload, SignedEvent) else None

    @property
    def topic(self) -> bytes | None:
        """The CID of the topic that it has to do with."""
        match self.payload:
            case SignedEvent(event=event):
                return event.topic
            case TopicDescriptor(cid=cid):
                return cid
            case PeerTree(topic=topic):
                return topic
        return self.payload

    @property
    def metadata(self) -> Metadata:
        """The date and the version, which travel together."""
        return Metadata(self.created, self.protocol_version)

    @property
    def misplaced(self) -> bool:
        """Whether the operation came without the payload that it is about."""
        kind = _PAYLOADS.get(self.op)
        return kind is not None and type(self.payload) is not kind


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
        return _RPC.encode(self)

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this RPC."""
        meta = self.cached_meta
        if meta is None:
            meta = self.cached_meta = _meta_of(self)
        return meta

    def topic_of(self, each: Addition) -> bytes:
        """What an addition is about; terms without a topic are about that of the JOIN, or of the
        answer to it, with which they come."""
        if each.topic is not None:
            return each.topic
        joins = [part.topic for part in self.messages if part.op == Operation.JOIN_TOPIC]
        joins += [other.topic for other in self.additions if type(other) is JoinReply]
        return next((topic for topic in joins if topic is not None), b"")

    @property
    def urgent(self) -> bool:
        """What holds the tree together overtakes events, but not what asks whether they came."""
        for message in self.messages:
            if type(message.payload) is SignedEvent:
                return False
        kinds = {type(each) for each in self.additions}
        return Events not in kinds and (bool(self.messages) or kinds != {Terms})


def publish(event: SignedEvent, now: float) -> Rpc:
    """The RPC that spreads an event."""
    return Rpc((RpcMessage(Operation.PUBLISH_EVENT, dates.iso_at(now), event),))


def request_to_publish(event: SignedEvent, now: float) -> Rpc:
    """The RPC that asks for an event to be published."""
    return Rpc((RpcMessage(Operation.REQUEST_TO_PUBLISH, dates.iso_at(now), event),))


def join(topic: bytes, terms: Terms | None, now: float) -> Rpc:
    """Ask to become, or to remain, a child; the original reads the JOIN and skips the terms."""
    message = RpcMessage(Operation.JOIN_TOPIC, dates.iso_at(now), topic)
    return Rpc((message,), () if terms is None else (_unnamed(terms),))


def _unnamed(terms: Terms) -> Terms:
    return msgspec.structs.replace(terms, topic=None)  # what they go with names it


def leave(topic: bytes, now: float, elsewhere: tuple[PeerAddress, ...] = ()) -> Rpc:
    """The RPC that ends a link of a topic's tree; `elsewhere` is for children left behind."""
    message = RpcMessage(Operation.LEAVE_TOPIC, dates.iso_at(now), topic, elsewhere=elsewhere)
    return Rpc((message,))


def addition(*additions: Addition) -> Rpc:
    """The RPC that carries answers alone."""
    return Rpc((), additions)


def accepted(topic: bytes, terms: Terms | None) -> Rpc:
    """Tell a peer that it is our child; `terms` hold what we have of the range that it named."""
    reply = JoinReply(topic, JoinStatus.ACCEPTED)
    return addition(reply) if terms is None else addition(reply, _unnamed(terms))


def redirect(topic: bytes, target: PeerId, addresses: tuple[bytes, ...]) -> Rpc:
    """Hand a peer on."""
    peers = (PeerAddress(target, addresses),)
    return addition(JoinReply(topic, JoinStatus.REDIRECTED, peers))


def refusal(topic: bytes, reason: str) -> Rpc:
    """Turn a peer away."""
    return addition(JoinReply(topic, JoinStatus.REFUSED, reason=reason))


def _meta_of(rpc: Rpc) -> RpcMeta:
    carried: list[MessageMeta] = []
    operations: list[OperationMeta] = []
    data_size = 0
    for message in rpc.messages:
        signed = message.event
        if signed is not None and message.op == Operation.PUBLISH_EVENT:
            carried.append(MessageMeta(signed.cid, cids.text(signed.event.topic)))
            alone = len(rpc.messages) == 1 and not rpc.additions
            data_size += len(rpc.encode()) if alone else field_size(_MESSAGE.size(message))
        else:
            name = OPERATION_NAMES.get(message.op, "unknown")
            topic = message.topic
            operations.append(OperationMeta(name, "" if topic is None else cids.text(topic)))
    for each in rpc.additions:
        about = cids.text(rpc.topic_of(each))
        operations.append(OperationMeta(ADDITION_NAMES[type(each)], about))
        if type(each) is Events:
            carried += [MessageMeta(signed.cid, about) for signed in each.events]
            data_size += sum(field_size(len(codec.encode_event(signed))) for signed in each.events)
    return RpcMeta(
        tuple(carried),
        size=len(rpc.encode()),
        data_size=data_size,
        operations=tuple(operations),
    )


def _tree(
    topic: bytes | None, parents: tuple[bytes, ...], children: tuple[bytes, ...]
) -> PeerTree | str:
    if topic is None:
        return "tree-without-topic"
    if not cids.is_cid(topic):
        return "bad-cid"
    return PeerTree(topic, parents, children)


def _topic_id(data: bytes) -> bytes | str:
    return data if cids.is_cid(data) else "bad-cid"


def _payload_field(limits: RpcLimits) -> OneOf:
    """What a message is about; when it is read, a text stands for the rule that it breaks."""
    parents = Octets(
        2,
        limits.peer_id_bytes,
        too_long="bad-peer-id",
        max_count=limits.tree_peers,
        too_many="too-many-fields",
    )
    children = msgspec.structs.replace(parents, number=3, counted_with="parents")
    topic = Octets(1, UNBOUNDED, optional=True)
    tree = codec.lenient(_tree, {"topic": topic, "parents": parents, "children": children}, limits)
    read = partial(codec.read_event, limits=limits)
    read_topic = partial(codec.read_topic_message, limits=limits)
    return OneOf(
        kinds={
            TopicDescriptor: Octets(2, UNBOUNDED, read=read_topic, write=codec.encode_topic),
            SignedEvent: Octets(3, UNBOUNDED, read=read, write=codec.encode_event),
            PeerTree: Octets(4, UNBOUNDED, read=tree.decode, write=tree.encode),
            bytes: Octets(5, UNBOUNDED, read=_topic_id),
        }
    )


def _message_fields(limits: RpcLimits) -> dict[str, Field]:
    return {
        "op": Number(1, always=True),
        "payload": _payload_field(limits),
        "metadata": codec.metadata_field(6, limits),
        "elsewhere": peers_field(100, limits),
    }


TOPIC_IN_PROTOBUF: Final = "topic-in-protobuf"

_Judged: TypeAlias = tuple[RpcMessage, str | None]
"""A message, and the rule that it breaks."""


def _judged(
    op: int,
    payload: Payload | str | None,
    metadata: Metadata | None,
    elsewhere: tuple[PeerAddress, ...],
) -> _Judged:
    created, version = (metadata.created, metadata.protocol_version) if metadata else ("", "")
    found = None if isinstance(payload, str) else payload
    fault = payload if isinstance(payload, str) else None
    if op not in OPERATION_NAMES:
        fault = "unknown-operation"
    elif metadata is None:
        fault = "no-metadata"
    elif dates.normal(metadata.created) is None:
        fault = "bad-date"
    elif not metadata.protocol_version:
        fault = "no-version"
    elif payload is None:
        fault = "no-payload"
    elif isinstance(payload, TopicDescriptor):
        fault = TOPIC_IN_PROTOBUF
    return RpcMessage(op, created, found, version, elsewhere), fault


def _rpc_fields(limits: RpcLimits) -> dict[str, Field]:
    message = codec.lenient(_judged, _message_fields(limits), limits)
    return {
        "messages": Octets(
            1,
            limits.rpc_bytes,
            read=message.decode,
            write=_MESSAGE.encode,
            max_count=limits.messages,
            too_many="too-many-messages",
        ),
        "additions": additions_field(limits),
    }


_MESSAGE: Final[Layout[RpcMessage]] = Layout(_message_fields(DEFAULT_LIMITS))
_RPC: Final[Layout[Rpc]] = Layout(_rpc_fields(DEFAULT_LIMITS), kept_in="encoded")


@lru_cache(maxsize=16)
def _schema(limits: RpcLimits) -> Schema[tuple[tuple[_Judged, ...], tuple[Addition, ...]]]:
    return Schema(
        lambda messages, additions: (messages, additions),
        _rpc_fields(limits),
        max_bytes=limits.rpc_bytes,
        too_long="rpc-too-long",
        max_others=limits.other_fields,
    )


def decode_rpc(data: bytes, limits: RpcLimits = DEFAULT_LIMITS) -> Rpc:
    """Read an RPC."""
    left_out: LeftOut = {}
    messages, additions = _schema(limits).decode(data, left_out)
    judged = [(message, _new_topic_fault(message, fault)) for message, fault in messages]
    sound = tuple([message for message, fault in judged if fault is None])
    refused = [Refused(fault, message.op) for message, fault in judged if fault is not None]
    for reason, count in left_out.items():
        refused += [Refused(reason)] * count
    rpc = Rpc(sound, additions, tuple(refused))
    if not refused and all(each.event is None or each.event.encoded for each in sound):
        rpc.encoded = data  # what is passed on whole is passed on as it came
    return rpc


def parts_of(rpc: Rpc) -> Sequence[Rpc]:
    """An RPC that brings many old events as several with fewer, which mean the same one after the
    other."""
    many = [each for each in rpc.additions if type(each) is Events and len(each.events) > _PART]
    if not many:
        return (rpc,)
    rest = tuple([each for each in rpc.additions if each not in many])
    parts = [Rpc(rpc.messages, rest, rpc.refused)] if rpc.messages or rest or rpc.refused else []
    for each in many:
        *earlier, last = range(0, len(each.events), _PART)
        parts += [addition(Events(each.topic, each.events[at : at + _PART])) for at in earlier]
        parts.append(addition(msgspec.structs.replace(each, events=each.events[last:])))
    return parts


def _new_topic_fault(message: RpcMessage, fault: str | None) -> str | None:
    """What is wrong with a message by our own rule, by which a new topic may come in protobuf."""
    topic = message.payload
    if fault == TOPIC_IN_PROTOBUF and message.op == Operation.NEW_TOPIC:
        assert isinstance(topic, TopicDescriptor)
        return codec.topic_fault(topic)
    return fault


def read_messages(data: bytes, limits: RpcLimits = DEFAULT_LIMITS) -> tuple[_Judged, ...]:
    """Read the messages of an RPC, each with what is wrong with it by the original's rules: for
    people to look at."""
    return _schema(limits).decode(data)[0]
