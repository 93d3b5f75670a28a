"""The RPC of libp2p pub/sub (FloodSub and GossipSub 1.0 to 1.2), as values.

These are the types that routers handle; `wire.pubsub_codec` turns them into bytes and back. They
are treated as immutable. What is computed from a value once (a message's id, an RPC's trace
metadata, encoded bytes) is kept in the value itself, because one message is sent to many peers.
"""

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.trace import (
    ControlMeta,
    GraftMeta,
    IDontWantMeta,
    IHaveMeta,
    IWantMeta,
    MessageMeta,
    PruneMeta,
    RpcMeta,
    SubMeta,
)
from rumormill.wire.protobuf import varint_size


class Message(msgspec.Struct, gc=False):
    """A published message. Empty bytes stand for an absent field.

    `id` is filled in by the router's message-id function. `encoded` is the message as it arrived,
    so that forwarding repeats it byte for byte, fields that we do not know included.
    """

    topic: Topic
    data: bytes
    author: PeerId = b""
    seqno: bytes = b""
    signature: bytes = b""
    key: bytes = b""
    id: MessageId = b""
    encoded: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the encoded message, without the tag and length that frame it in an RPC."""
        if self.encoded:
            return len(self.encoded)
        size = _field_size(len(self.topic.encode()))
        for value in (self.author, self.data, self.seqno, self.signature, self.key):
            if value:
                size += _field_size(len(value))
        return size


class SubOpts(msgspec.Struct, frozen=True, gc=False):
    """A subscription to a topic, or its end."""

    subscribe: bool
    topic: Topic


class IHave(msgspec.Struct, frozen=True, gc=False):
    """Ids of messages of a topic that the sender can provide."""

    topic: Topic
    message_ids: tuple[MessageId, ...]


class PeerInfo(msgspec.Struct, frozen=True, gc=False):
    """A peer offered in exchange for a pruned link, with its signed record where known."""

    peer: PeerId
    record: bytes = b""


class Prune(msgspec.Struct, frozen=True, gc=False):
    """The end of a mesh link; `backoff` in seconds, 0 when the sender named none."""

    topic: Topic
    peers: tuple[PeerInfo, ...] = ()
    backoff: int = 0


class Control(msgspec.Struct, frozen=True, gc=False):
    """The control part of an RPC.

    The wire allows several IWANT and IDONTWANT lists in one RPC; they mean the same as one list,
    and are one list here.
    """

    ihave: tuple[IHave, ...] = ()
    iwant: tuple[MessageId, ...] = ()
    graft: tuple[Topic, ...] = ()
    prune: tuple[Prune, ...] = ()
    idontwant: tuple[MessageId, ...] = ()


class Rpc(msgspec.Struct, gc=False):
    """One RPC between two peers."""

    subscriptions: tuple[SubOpts, ...] = ()
    publish: tuple[Message, ...] = ()
    control: Control | None = None
    cached_meta: RpcMeta | None = None

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this RPC."""
        meta = self.cached_meta
        if meta is None:
            meta = self.cached_meta = _meta_of(self)
        return meta

    @property
    def urgent(self) -> bool:
        """Control overtakes data."""
        return not self.publish


def _field_size(length: int) -> int:
    """Bytes of a length-delimited field whose tag takes one byte."""
    return 1 + varint_size(length) + length


def _ids_size(message_ids: tuple[MessageId, ...]) -> int:
    return sum(_field_size(len(message_id)) for message_id in message_ids)


def _control_size(control: Control) -> int:
    size = 0
    for ihave in control.ihave:
        size += _field_size(_field_size(len(ihave.topic.encode())) + _ids_size(ihave.message_ids))
    for ids in (control.iwant, control.idontwant):
        if ids:
            size += _field_size(_ids_size(ids))
    for topic in control.graft:
        size += _field_size(_field_size(len(topic.encode())))
    for prune in control.prune:
        inner = _field_size(len(prune.topic.encode()))
        for info in prune.peers:
            record = _field_size(len(info.record)) if info.record else 0
            inner += _field_size(_field_size(len(info.peer)) + record)
        if prune.backoff:
            inner += 1 + varint_size(prune.backoff)
        size += _field_size(inner)
    return size


def rpc_size(rpc: Rpc) -> int:
    """Bytes of the encoded RPC, without the length prefix of the stream."""
    size = 0
    for sub in rpc.subscriptions:
        size += _field_size(2 + _field_size(len(sub.topic.encode())))
    for message in rpc.publish:
        size += _field_size(message.size)
    if rpc.control is not None:
        size += _field_size(_control_size(rpc.control))
    return size


def _meta_of(rpc: Rpc) -> RpcMeta:
    control = rpc.control
    return RpcMeta(
        messages=tuple(MessageMeta(message.id, message.topic) for message in rpc.publish),
        subscription=tuple(SubMeta(sub.subscribe, sub.topic) for sub in rpc.subscriptions),
        control=None if control is None else _control_meta_of(control),
        size=rpc_size(rpc),
        data_size=sum(_field_size(message.size) for message in rpc.publish),
    )


def _control_meta_of(control: Control) -> ControlMeta:
    return ControlMeta(
        ihave=tuple(IHaveMeta(ihave.topic, ihave.message_ids) for ihave in control.ihave),
        iwant=(IWantMeta(control.iwant),) if control.iwant else (),
        graft=tuple(GraftMeta(topic) for topic in control.graft),
        prune=tuple(
            PruneMeta(prune.topic, tuple(info.peer for info in prune.peers))
            for prune in control.prune
        ),
        idontwant=(IDontWantMeta(control.idontwant),) if control.idontwant else (),
    )
