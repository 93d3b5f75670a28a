"""The RPC of libp2p pub/sub (FloodSub and GossipSub 1.0 to 1.3), as values.

These are the types that routers handle; `codec` turns them into bytes and back. They
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
from rumormill.protocols.pubsub.trunk_part import (
    EXTENSION,
    TrunkPart,
    operations_of,
    part_size,
)
from rumormill.wire.protobuf import field_size, varint_size


class Message(msgspec.Struct, gc=False):
    """A published message. An empty value stands for an absent field.

    `id` is filled in by the router's message-id function. `encoded` is the message as it arrived,
    or as it was first sent, so that forwarding repeats it byte for byte, fields that we do not
    know included; a copy with other values must be given an empty one. `signed_bytes` says how much
    of it, from its beginning, is exactly what the signature covers; 0 means: not known.
    """

    topic: Topic
    data: bytes
    author: PeerId = b""
    seqno: bytes = b""
    signature: bytes = b""
    key: bytes = b""
    id: MessageId = b""
    encoded: bytes = b""
    signed_bytes: int = 0
    cached_meta: RpcMeta | None = None
    cached_key: bytes = b""
    """What trees call it (`trunk_part.key_of`), once somebody has asked."""

    def alone(self) -> "Rpc":
        """Return the RPC that carries this message and nothing else."""
        return Rpc((), (self,), None, self.cached_meta or self.meta)

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of that RPC: computed once, however many peers forward it."""
        meta = self.cached_meta
        if meta is None:
            size = field_size(len(self.encoded) or self.size)
            carried = (MessageMeta(self.id, self.topic),)
            meta = self.cached_meta = RpcMeta(carried, (), None, size, size)
        return meta

    @property
    def size(self) -> int:
        """Bytes of the encoded message, without the tag and length that frame it in an RPC."""
        if self.encoded:
            return len(self.encoded)
        size = 0
        for value in (
            self.author,
            self.data,
            self.seqno,
            self.topic.encode(),
            self.signature,
            self.key,
        ):
            if value:
                size += field_size(len(value))
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
    and are one list here. What an extension of 1.3 says stands beside the control part on the wire,
    and is an RPC of its own when we send it, so that nothing of it is ever cut.
    """

    ihave: tuple[IHave, ...] = ()
    iwant: tuple[MessageId, ...] = ()
    graft: tuple[Topic, ...] = ()
    prune: tuple[Prune, ...] = ()
    idontwant: tuple[MessageId, ...] = ()
    offers_trunk: bool = False
    """Whether the sender names our extension among those it speaks (1.3)."""
    trunk: TrunkPart | None = None


class Rpc(msgspec.Struct, gc=False):
    """One RPC between two peers."""

    subscriptions: tuple[SubOpts, ...] = ()
    publish: tuple[Message, ...] = ()
    control: Control | None = None
    cached_meta: RpcMeta | None = None
    cause: str = ""
    """Why its messages are sent, for the trace alone; empty for ordinary spreading."""

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


def subscription_size(sub: SubOpts) -> int:
    """Bytes of a subscription inside an RPC."""
    return field_size(2 + field_size(len(sub.topic.encode())))


def ids_size(message_ids: tuple[MessageId, ...]) -> int:
    """Bytes of the ids inside an IHAVE, IWANT or IDONTWANT."""
    if not message_ids:
        return 0
    if max(map(len, message_ids)) < 0x80:  # then tag and length take one byte each
        return sum(map(len, message_ids)) + 2 * len(message_ids)
    return sum([field_size(len(message_id)) for message_id in message_ids])


def graft_size(topic: Topic) -> int:
    """Bytes of a GRAFT inside a control part."""
    return field_size(field_size(len(topic.encode())))


def prune_size(prune: Prune) -> int:
    """Bytes of a PRUNE inside a control part."""
    size = field_size(len(prune.topic.encode()))
    for info in prune.peers:
        record = field_size(len(info.record)) if info.record else 0
        size += field_size(field_size(len(info.peer)) + record)
    if prune.backoff:
        size += 1 + varint_size(prune.backoff)
    return field_size(size)


def control_size(control: Control) -> int:
    """Bytes of a control part, without the tag and length that frame it in an RPC."""
    size = 0
    for ihave in control.ihave:
        size += field_size(field_size(len(ihave.topic.encode())) + ids_size(ihave.message_ids))
    for ids in (control.iwant, control.idontwant):
        if ids:
            size += field_size(ids_size(ids))
    for topic in control.graft:
        size += graft_size(topic)
    for prune in control.prune:
        size += prune_size(prune)
    return size + _OFFER_SIZE if control.offers_trunk else size


_OFFER_SIZE = field_size(varint_size(EXTENSION << 3) + 1)


def rpc_size(rpc: Rpc) -> int:
    """Bytes of the encoded RPC, without the length prefix of the stream."""
    return _size_beside(rpc) + sum([field_size(message.size) for message in rpc.publish])


def _size_beside(rpc: Rpc) -> int:
    """Bytes of everything but messages."""
    size = sum([subscription_size(sub) for sub in rpc.subscriptions])
    control = rpc.control
    if control is None:
        return size
    if control.trunk is None:
        return size + field_size(control_size(control))
    inner = control_size(control)
    return size + part_size(control.trunk) + (field_size(inner) if inner else 0)


def _meta_of(rpc: Rpc) -> RpcMeta:
    # Every RPC that arrives is traced; most carry one message, or one kind of control.
    control, publish, subscriptions = rpc.control, rpc.publish, rpc.subscriptions
    if control is None and len(publish) == 1 and not subscriptions and not rpc.cause:
        return publish[0].meta
    if control is not None and control.trunk is not None:
        return _meta_with_trunk(rpc, control, control.trunk)
    carried = [message.cached_meta or message.meta for message in publish]
    data_size = sum([each.size for each in carried])
    return RpcMeta(
        tuple([each.messages[0] for each in carried]),
        tuple([SubMeta(sub.subscribe, sub.topic) for sub in subscriptions])
        if subscriptions
        else (),
        None if control is None else _control_meta_of(control),
        _size_beside(rpc) + data_size,
        data_size,
        cause=rpc.cause,
    )


def _meta_with_trunk(rpc: Rpc, control: Control, part: TrunkPart) -> RpcMeta:
    """The same for an RPC with an extension's part, which the trace lists as operations."""
    if not (rpc.publish or rpc.subscriptions or control_size(control)):  # as it is sent by us
        return RpcMeta(size=part_size(part), operations=operations_of(part))
    rest = msgspec.structs.replace(control, trunk=None)
    meta = _meta_of(Rpc(rpc.subscriptions, rpc.publish, rest if control_size(rest) else None))
    size = _size_beside(rpc) + meta.data_size
    return msgspec.structs.replace(meta, size=size, operations=operations_of(part))


def _control_meta_of(control: Control) -> ControlMeta:
    ihave, iwant, idontwant = control.ihave, control.iwant, control.idontwant
    graft, prune = control.graft, control.prune
    return ControlMeta(
        tuple([IHaveMeta(each.topic, each.message_ids) for each in ihave]) if ihave else (),
        (IWantMeta(iwant),) if iwant else (),
        tuple([GraftMeta(topic) for topic in graft]) if graft else (),
        tuple([PruneMeta(each.topic, tuple([info.peer for info in each.peers])) for each in prune])
        if prune
        else (),
        (IDontWantMeta(idontwant),) if idontwant else (),
    )
