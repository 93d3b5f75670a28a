"""The trace: what happened at a peer, in the words of libp2p's `trace.proto`.

A machine appends these payloads to its effects; the runtime adds who and when. Everything that
observes rumormill (metrics, the ledger, the simulator's gates, the Spark pipeline) reads these
events and nothing else.

Kinds 0 to 12 are libp2p's, with its field names on disk (`messageID`, `receivedFrom`, ...), so that
its tools read our traces and ours read a go node's. Kinds from 1000 on are our own, and so are
the fields that libp2p's schema does not have; readers of libp2p's schema skip both.
"""

from typing import ClassVar

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic

_DISK_NAMES = {
    "message_id": "messageID",
    "message_ids": "messageIDs",
    "received_from": "receivedFrom",
    "send_to": "sendTo",
    "peer": "peerID",
    "data_size": "dataSize",
}


class _Shape(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename=lambda name: _DISK_NAMES.get(name, name),
):
    """How all trace records are laid out on disk."""


class MessageMeta(_Shape, frozen=True, gc=False):
    """A message inside an RPC."""

    message_id: MessageId
    topic: Topic


class SubMeta(_Shape, frozen=True, gc=False):
    """A subscription or its end inside an RPC."""

    subscribe: bool
    topic: Topic


class IHaveMeta(_Shape, frozen=True, gc=False):
    """An IHAVE inside an RPC."""

    topic: Topic
    message_ids: tuple[MessageId, ...] = ()


class IWantMeta(_Shape, frozen=True, gc=False):
    """An IWANT inside an RPC."""

    message_ids: tuple[MessageId, ...] = ()


class GraftMeta(_Shape, frozen=True, gc=False):
    """A GRAFT inside an RPC."""

    topic: Topic


class PruneMeta(_Shape, frozen=True, gc=False):
    """A PRUNE inside an RPC, with the peers that it offers in exchange."""

    topic: Topic
    peers: tuple[PeerId, ...] = ()


class IDontWantMeta(_Shape, frozen=True, gc=False):
    """An IDONTWANT inside an RPC."""

    message_ids: tuple[MessageId, ...] = ()


class ControlMeta(_Shape, frozen=True, gc=False):
    """The control part of an RPC."""

    ihave: tuple[IHaveMeta, ...] = ()
    iwant: tuple[IWantMeta, ...] = ()
    graft: tuple[GraftMeta, ...] = ()
    prune: tuple[PruneMeta, ...] = ()
    idontwant: tuple[IDontWantMeta, ...] = ()


class OperationMeta(_Shape, frozen=True, gc=False):
    """An operation of a protocol that libp2p's schema does not know (ours)."""

    name: str
    topic: Topic = ""


class RpcMeta(_Shape, frozen=True, gc=False):
    """What an RPC carried.

    `size` is the whole RPC in bytes on the wire, and `data_size` the part of it that is published
    messages (both ours): control overhead is the difference. `cause` (ours) says why its messages
    were sent, where a protocol's ordinary spreading was not why; only the sender knows.
    """

    messages: tuple[MessageMeta, ...] = ()
    subscription: tuple[SubMeta, ...] = ()
    control: ControlMeta | None = None
    size: int = 0
    data_size: int = 0
    operations: tuple[OperationMeta, ...] = ()
    cause: str = ""


SPREAD = "spread"
FLOOD_PUBLISH = "flood publish"
IWANT = "iwant"
CHOKE_RACE = "choke race"
"""Why copies of messages are sent: along a protocol's own paths, such as a mesh; to subscribers
besides those, by the publisher; because they were asked for; for want of news under way."""


class TracePayload(_Shape, frozen=True, gc=False):
    """What happened; the subclasses are the kinds."""

    kind: ClassVar[int]


class PublishMessage(TracePayload, frozen=True, gc=False):
    """The application published a message here."""

    kind = 0
    message_id: MessageId
    topic: Topic


class RejectMessage(TracePayload, frozen=True, gc=False):
    """A message was refused before delivery."""

    kind = 1
    message_id: MessageId
    received_from: PeerId
    reason: str
    topic: Topic


class DuplicateMessage(TracePayload, frozen=True, gc=False):
    """A message arrived that was seen before.

    `cause` (ours) is "choke race" for one that left before its sender knew it was not wanted.
    """

    kind = 2
    message_id: MessageId
    received_from: PeerId
    topic: Topic
    cause: str = ""


class DeliverMessage(TracePayload, frozen=True, gc=False):
    """A message was handed to the application; `received_from` is this peer for its own.

    `via` (ours) is "sync" for one that was missing and fetched.
    """

    kind = 3
    message_id: MessageId
    topic: Topic
    received_from: PeerId
    via: str = ""


class AddPeer(TracePayload, frozen=True, gc=False):
    """A peer can be sent to (go's newer name: ON_NEW_OUTBOUND_STREAM)."""

    kind = 4
    peer: PeerId
    proto: str


class RemovePeer(TracePayload, frozen=True, gc=False):
    """A peer can no longer be sent to (go's newer name: ON_CLOSED_OUTBOUND_STREAM)."""

    kind = 5
    peer: PeerId


class RecvRPC(TracePayload, frozen=True, gc=False):
    """An RPC arrived."""

    kind = 6
    received_from: PeerId
    meta: RpcMeta


class SendRPC(TracePayload, frozen=True, gc=False):
    """An RPC was sent."""

    kind = 7
    send_to: PeerId
    meta: RpcMeta


class DropRPC(TracePayload, frozen=True, gc=False):
    """An RPC was not sent, or was lost on the way; `reason` (ours) says why."""

    kind = 8
    send_to: PeerId
    meta: RpcMeta
    reason: str = ""


class Join(TracePayload, frozen=True, gc=False):
    """This peer subscribed to a topic."""

    kind = 9
    topic: Topic


class Leave(TracePayload, frozen=True, gc=False):
    """This peer ended its subscription to a topic."""

    kind = 10
    topic: Topic


class Graft(TracePayload, frozen=True, gc=False):
    """A peer was taken into the mesh of a topic."""

    kind = 11
    peer: PeerId
    topic: Topic


class Prune(TracePayload, frozen=True, gc=False):
    """A peer was taken out of the mesh of a topic."""

    kind = 12
    peer: PeerId
    topic: Topic


class NodeUp(TracePayload, frozen=True, gc=False):
    """This peer started (ours)."""

    kind = 1000


class NodeDown(TracePayload, frozen=True, gc=False):
    """This peer stopped; `reason` says how (ours)."""

    kind = 1001
    reason: str


class Refuse(TracePayload, frozen=True, gc=False):
    """Something that a peer sent was not acted upon, or there was no way to dial it (ours); `count`
    such things at once."""

    kind = 1002
    peer: PeerId
    reason: str
    topic: Topic = ""
    count: int = 1


class Penalise(TracePayload, frozen=True, gc=False):
    """A peer's standing was lowered (ours)."""

    kind = 1003
    peer: PeerId
    reason: str
    amount: float


class UndeliverableMessage(TracePayload, frozen=True, gc=False):
    """An accepted message was not handed to the application: its queue was full, or it could not
    be read (ours)."""

    kind = 1004
    message_id: MessageId
    topic: Topic
    reason: str


class SkipPublish(TracePayload, frozen=True, gc=False):
    """A workload meant this peer to publish while it was down or hostile (ours): nobody asked the
    protocol."""

    kind = 1005
    topic: Topic
    reason: str


class Stabilised(TracePayload, frozen=True, gc=False):
    """A topic's overlay became legitimate, or ceased to be (ours)."""

    kind = 1006
    topic: Topic
    legitimate: bool


class SyncEnded(TracePayload, frozen=True, gc=False):
    """Histories were compared with a peer's (ours): how that ended, and what it brought.

    `topics` were compared, in `unequal` of them something differed, and `events` were fetched.
    """

    kind = 1007
    peer: PeerId
    outcome: str
    topics: int = 0
    unequal: int = 0
    events: int = 0


class FailPublish(TracePayload, frozen=True, gc=False):
    """This peer was asked to publish, and no message came of it (ours)."""

    kind = 1008
    topic: Topic
    reason: str


TRACE_PAYLOADS: tuple[type[TracePayload], ...] = tuple(TracePayload.__subclasses__())
