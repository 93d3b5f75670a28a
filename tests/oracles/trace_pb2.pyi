from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TraceEvent(_message.Message):
    __slots__ = ("type", "peerID", "timestamp", "publishMessage", "rejectMessage", "duplicateMessage", "deliverMessage", "onNewOutboundStream", "onClosedOutboundStream", "recvRPC", "sendRPC", "dropRPC", "join", "leave", "graft", "prune", "nodeUp", "nodeDown", "refuse", "penalise", "undeliverableMessage", "skipPublish", "stabilised", "syncEnded", "failPublish")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PUBLISH_MESSAGE: _ClassVar[TraceEvent.Type]
        REJECT_MESSAGE: _ClassVar[TraceEvent.Type]
        DUPLICATE_MESSAGE: _ClassVar[TraceEvent.Type]
        DELIVER_MESSAGE: _ClassVar[TraceEvent.Type]
        ON_NEW_OUTBOUND_STREAM: _ClassVar[TraceEvent.Type]
        ON_CLOSED_OUTBOUND_STREAM: _ClassVar[TraceEvent.Type]
        RECV_RPC: _ClassVar[TraceEvent.Type]
        SEND_RPC: _ClassVar[TraceEvent.Type]
        DROP_RPC: _ClassVar[TraceEvent.Type]
        JOIN: _ClassVar[TraceEvent.Type]
        LEAVE: _ClassVar[TraceEvent.Type]
        GRAFT: _ClassVar[TraceEvent.Type]
        PRUNE: _ClassVar[TraceEvent.Type]
        NODE_UP: _ClassVar[TraceEvent.Type]
        NODE_DOWN: _ClassVar[TraceEvent.Type]
        REFUSE: _ClassVar[TraceEvent.Type]
        PENALISE: _ClassVar[TraceEvent.Type]
        UNDELIVERABLE_MESSAGE: _ClassVar[TraceEvent.Type]
        SKIP_PUBLISH: _ClassVar[TraceEvent.Type]
        STABILISED: _ClassVar[TraceEvent.Type]
        SYNC_ENDED: _ClassVar[TraceEvent.Type]
        FAIL_PUBLISH: _ClassVar[TraceEvent.Type]
    PUBLISH_MESSAGE: TraceEvent.Type
    REJECT_MESSAGE: TraceEvent.Type
    DUPLICATE_MESSAGE: TraceEvent.Type
    DELIVER_MESSAGE: TraceEvent.Type
    ON_NEW_OUTBOUND_STREAM: TraceEvent.Type
    ON_CLOSED_OUTBOUND_STREAM: TraceEvent.Type
    RECV_RPC: TraceEvent.Type
    SEND_RPC: TraceEvent.Type
    DROP_RPC: TraceEvent.Type
    JOIN: TraceEvent.Type
    LEAVE: TraceEvent.Type
    GRAFT: TraceEvent.Type
    PRUNE: TraceEvent.Type
    NODE_UP: TraceEvent.Type
    NODE_DOWN: TraceEvent.Type
    REFUSE: TraceEvent.Type
    PENALISE: TraceEvent.Type
    UNDELIVERABLE_MESSAGE: TraceEvent.Type
    SKIP_PUBLISH: TraceEvent.Type
    STABILISED: TraceEvent.Type
    SYNC_ENDED: TraceEvent.Type
    FAIL_PUBLISH: TraceEvent.Type
    class PublishMessage(_message.Message):
        __slots__ = ("messageID", "topic")
        MESSAGEID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        messageID: bytes
        topic: str
        def __init__(self, messageID: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...
    class RejectMessage(_message.Message):
        __slots__ = ("messageID", "receivedFrom", "reason", "topic")
        MESSAGEID_FIELD_NUMBER: _ClassVar[int]
        RECEIVEDFROM_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        messageID: bytes
        receivedFrom: bytes
        reason: str
        topic: str
        def __init__(self, messageID: _Optional[bytes] = ..., receivedFrom: _Optional[bytes] = ..., reason: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...
    class DuplicateMessage(_message.Message):
        __slots__ = ("messageID", "receivedFrom", "topic", "cause")
        MESSAGEID_FIELD_NUMBER: _ClassVar[int]
        RECEIVEDFROM_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        CAUSE_FIELD_NUMBER: _ClassVar[int]
        messageID: bytes
        receivedFrom: bytes
        topic: str
        cause: str
        def __init__(self, messageID: _Optional[bytes] = ..., receivedFrom: _Optional[bytes] = ..., topic: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...
    class DeliverMessage(_message.Message):
        __slots__ = ("messageID", "topic", "receivedFrom", "via")
        MESSAGEID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        RECEIVEDFROM_FIELD_NUMBER: _ClassVar[int]
        VIA_FIELD_NUMBER: _ClassVar[int]
        messageID: bytes
        topic: str
        receivedFrom: bytes
        via: str
        def __init__(self, messageID: _Optional[bytes] = ..., topic: _Optional[str] = ..., receivedFrom: _Optional[bytes] = ..., via: _Optional[str] = ...) -> None: ...
    class OnNewOutboundStream(_message.Message):
        __slots__ = ("peerID", "proto")
        PEERID_FIELD_NUMBER: _ClassVar[int]
        PROTO_FIELD_NUMBER: _ClassVar[int]
        peerID: bytes
        proto: str
        def __init__(self, peerID: _Optional[bytes] = ..., proto: _Optional[str] = ...) -> None: ...
    class OnClosedOutboundStream(_message.Message):
        __slots__ = ("peerID",)
        PEERID_FIELD_NUMBER: _ClassVar[int]
        peerID: bytes
        def __init__(self, peerID: _Optional[bytes] = ...) -> None: ...
    class RecvRPC(_message.Message):
        __slots__ = ("receivedFrom", "meta")
        RECEIVEDFROM_FIELD_NUMBER: _ClassVar[int]
        META_FIELD_NUMBER: _ClassVar[int]
        receivedFrom: bytes
        meta: TraceEvent.RPCMeta
        def __init__(self, receivedFrom: _Optional[bytes] = ..., meta: _Optional[_Union[TraceEvent.RPCMeta, _Mapping]] = ...) -> None: ...
    class SendRPC(_message.Message):
        __slots__ = ("sendTo", "meta")
        SENDTO_FIELD_NUMBER: _ClassVar[int]
        META_FIELD_NUMBER: _ClassVar[int]
        sendTo: bytes
        meta: TraceEvent.RPCMeta
        def __init__(self, sendTo: _Optional[bytes] = ..., meta: _Optional[_Union[TraceEvent.RPCMeta, _Mapping]] = ...) -> None: ...
    class DropRPC(_message.Message):
        __slots__ = ("sendTo", "meta", "reason")
        SENDTO_FIELD_NUMBER: _ClassVar[int]
        META_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        sendTo: bytes
        meta: TraceEvent.RPCMeta
        reason: str
        def __init__(self, sendTo: _Optional[bytes] = ..., meta: _Optional[_Union[TraceEvent.RPCMeta, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...
    class Join(_message.Message):
        __slots__ = ("topic",)
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        topic: str
        def __init__(self, topic: _Optional[str] = ...) -> None: ...
    class Leave(_message.Message):
        __slots__ = ("topic",)
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        topic: str
        def __init__(self, topic: _Optional[str] = ...) -> None: ...
    class Graft(_message.Message):
        __slots__ = ("peerID", "topic")
        PEERID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        peerID: bytes
        topic: str
        def __init__(self, peerID: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...
    class Prune(_message.Message):
        __slots__ = ("peerID", "topic")
        PEERID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        peerID: bytes
        topic: str
        def __init__(self, peerID: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...
    class NodeUp(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class NodeDown(_message.Message):
        __slots__ = ("reason",)
        REASON_FIELD_NUMBER: _ClassVar[int]
        reason: str
        def __init__(self, reason: _Optional[str] = ...) -> None: ...
    class Refuse(_message.Message):
        __slots__ = ("peerID", "reason", "topic", "count")
        PEERID_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        peerID: bytes
        reason: str
        topic: str
        count: int
        def __init__(self, peerID: _Optional[bytes] = ..., reason: _Optional[str] = ..., topic: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...
    class Penalise(_message.Message):
        __slots__ = ("peerID", "reason", "amount")
        PEERID_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        AMOUNT_FIELD_NUMBER: _ClassVar[int]
        peerID: bytes
        reason: str
        amount: float
        def __init__(self, peerID: _Optional[bytes] = ..., reason: _Optional[str] = ..., amount: _Optional[float] = ...) -> None: ...
    class UndeliverableMessage(_message.Message):
        __slots__ = ("messageID", "topic", "reason")
        MESSAGEID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        messageID: bytes
        topic: str
        reason: str
        def __init__(self, messageID: _Optional[bytes] = ..., topic: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
    class SkipPublish(_message.Message):
        __slots__ = ("topic", "reason")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        topic: str
        reason: str
        def __init__(self, topic: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
    class Stabilised(_message.Message):
        __slots__ = ("topic", "legitimate")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        LEGITIMATE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        legitimate: bool
        def __init__(self, topic: _Optional[str] = ..., legitimate: _Optional[bool] = ...) -> None: ...
    class SyncEnded(_message.Message):
        __slots__ = ("peerID", "outcome", "topics", "unequal", "events")
        PEERID_FIELD_NUMBER: _ClassVar[int]
        OUTCOME_FIELD_NUMBER: _ClassVar[int]
        TOPICS_FIELD_NUMBER: _ClassVar[int]
        UNEQUAL_FIELD_NUMBER: _ClassVar[int]
        EVENTS_FIELD_NUMBER: _ClassVar[int]
        peerID: bytes
        outcome: str
        topics: int
        unequal: int
        events: int
        def __init__(self, peerID: _Optional[bytes] = ..., outcome: _Optional[str] = ..., topics: _Optional[int] = ..., unequal: _Optional[int] = ..., events: _Optional[int] = ...) -> None: ...
    class FailPublish(_message.Message):
        __slots__ = ("topic", "reason")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        topic: str
        reason: str
        def __init__(self, topic: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
    class RPCMeta(_message.Message):
        __slots__ = ("messages", "subscription", "control", "size", "dataSize", "operations", "cause")
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
        CONTROL_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        DATASIZE_FIELD_NUMBER: _ClassVar[int]
        OPERATIONS_FIELD_NUMBER: _ClassVar[int]
        CAUSE_FIELD_NUMBER: _ClassVar[int]
        messages: _containers.RepeatedCompositeFieldContainer[TraceEvent.MessageMeta]
        subscription: _containers.RepeatedCompositeFieldContainer[TraceEvent.SubMeta]
        control: TraceEvent.ControlMeta
        size: int
        dataSize: int
        operations: _containers.RepeatedCompositeFieldContainer[TraceEvent.OperationMeta]
        cause: str
        def __init__(self, messages: _Optional[_Iterable[_Union[TraceEvent.MessageMeta, _Mapping]]] = ..., subscription: _Optional[_Iterable[_Union[TraceEvent.SubMeta, _Mapping]]] = ..., control: _Optional[_Union[TraceEvent.ControlMeta, _Mapping]] = ..., size: _Optional[int] = ..., dataSize: _Optional[int] = ..., operations: _Optional[_Iterable[_Union[TraceEvent.OperationMeta, _Mapping]]] = ..., cause: _Optional[str] = ...) -> None: ...
    class MessageMeta(_message.Message):
        __slots__ = ("messageID", "topic")
        MESSAGEID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        messageID: bytes
        topic: str
        def __init__(self, messageID: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...
    class SubMeta(_message.Message):
        __slots__ = ("subscribe", "topic")
        SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        subscribe: bool
        topic: str
        def __init__(self, subscribe: _Optional[bool] = ..., topic: _Optional[str] = ...) -> None: ...
    class ControlMeta(_message.Message):
        __slots__ = ("ihave", "iwant", "graft", "prune", "idontwant")
        IHAVE_FIELD_NUMBER: _ClassVar[int]
        IWANT_FIELD_NUMBER: _ClassVar[int]
        GRAFT_FIELD_NUMBER: _ClassVar[int]
        PRUNE_FIELD_NUMBER: _ClassVar[int]
        IDONTWANT_FIELD_NUMBER: _ClassVar[int]
        ihave: _containers.RepeatedCompositeFieldContainer[TraceEvent.ControlIHaveMeta]
        iwant: _containers.RepeatedCompositeFieldContainer[TraceEvent.ControlIWantMeta]
        graft: _containers.RepeatedCompositeFieldContainer[TraceEvent.ControlGraftMeta]
        prune: _containers.RepeatedCompositeFieldContainer[TraceEvent.ControlPruneMeta]
        idontwant: _containers.RepeatedCompositeFieldContainer[TraceEvent.ControlIDontWantMeta]
        def __init__(self, ihave: _Optional[_Iterable[_Union[TraceEvent.ControlIHaveMeta, _Mapping]]] = ..., iwant: _Optional[_Iterable[_Union[TraceEvent.ControlIWantMeta, _Mapping]]] = ..., graft: _Optional[_Iterable[_Union[TraceEvent.ControlGraftMeta, _Mapping]]] = ..., prune: _Optional[_Iterable[_Union[TraceEvent.ControlPruneMeta, _Mapping]]] = ..., idontwant: _Optional[_Iterable[_Union[TraceEvent.ControlIDontWantMeta, _Mapping]]] = ...) -> None: ...
    class ControlIHaveMeta(_message.Message):
        __slots__ = ("topic", "messageIDs")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        MESSAGEIDS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        messageIDs: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, topic: _Optional[str] = ..., messageIDs: _Optional[_Iterable[bytes]] = ...) -> None: ...
    class ControlIWantMeta(_message.Message):
        __slots__ = ("messageIDs",)
        MESSAGEIDS_FIELD_NUMBER: _ClassVar[int]
        messageIDs: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, messageIDs: _Optional[_Iterable[bytes]] = ...) -> None: ...
    class ControlGraftMeta(_message.Message):
        __slots__ = ("topic",)
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        topic: str
        def __init__(self, topic: _Optional[str] = ...) -> None: ...
    class ControlPruneMeta(_message.Message):
        __slots__ = ("topic", "peers")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PEERS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        peers: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, topic: _Optional[str] = ..., peers: _Optional[_Iterable[bytes]] = ...) -> None: ...
    class ControlIDontWantMeta(_message.Message):
        __slots__ = ("messageIDs",)
        MESSAGEIDS_FIELD_NUMBER: _ClassVar[int]
        messageIDs: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, messageIDs: _Optional[_Iterable[bytes]] = ...) -> None: ...
    class OperationMeta(_message.Message):
        __slots__ = ("name", "topic")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic: str
        def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PEERID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PUBLISHMESSAGE_FIELD_NUMBER: _ClassVar[int]
    REJECTMESSAGE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATEMESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERMESSAGE_FIELD_NUMBER: _ClassVar[int]
    ONNEWOUTBOUNDSTREAM_FIELD_NUMBER: _ClassVar[int]
    ONCLOSEDOUTBOUNDSTREAM_FIELD_NUMBER: _ClassVar[int]
    RECVRPC_FIELD_NUMBER: _ClassVar[int]
    SENDRPC_FIELD_NUMBER: _ClassVar[int]
    DROPRPC_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    GRAFT_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    NODEUP_FIELD_NUMBER: _ClassVar[int]
    NODEDOWN_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    PENALISE_FIELD_NUMBER: _ClassVar[int]
    UNDELIVERABLEMESSAGE_FIELD_NUMBER: _ClassVar[int]
    SKIPPUBLISH_FIELD_NUMBER: _ClassVar[int]
    STABILISED_FIELD_NUMBER: _ClassVar[int]
    SYNCENDED_FIELD_NUMBER: _ClassVar[int]
    FAILPUBLISH_FIELD_NUMBER: _ClassVar[int]
    type: TraceEvent.Type
    peerID: bytes
    timestamp: int
    publishMessage: TraceEvent.PublishMessage
    rejectMessage: TraceEvent.RejectMessage
    duplicateMessage: TraceEvent.DuplicateMessage
    deliverMessage: TraceEvent.DeliverMessage
    onNewOutboundStream: TraceEvent.OnNewOutboundStream
    onClosedOutboundStream: TraceEvent.OnClosedOutboundStream
    recvRPC: TraceEvent.RecvRPC
    sendRPC: TraceEvent.SendRPC
    dropRPC: TraceEvent.DropRPC
    join: TraceEvent.Join
    leave: TraceEvent.Leave
    graft: TraceEvent.Graft
    prune: TraceEvent.Prune
    nodeUp: TraceEvent.NodeUp
    nodeDown: TraceEvent.NodeDown
    refuse: TraceEvent.Refuse
    penalise: TraceEvent.Penalise
    undeliverableMessage: TraceEvent.UndeliverableMessage
    skipPublish: TraceEvent.SkipPublish
    stabilised: TraceEvent.Stabilised
    syncEnded: TraceEvent.SyncEnded
    failPublish: TraceEvent.FailPublish
    def __init__(self, type: _Optional[_Union[TraceEvent.Type, str]] = ..., peerID: _Optional[bytes] = ..., timestamp: _Optional[int] = ..., publishMessage: _Optional[_Union[TraceEvent.PublishMessage, _Mapping]] = ..., rejectMessage: _Optional[_Union[TraceEvent.RejectMessage, _Mapping]] = ..., duplicateMessage: _Optional[_Union[TraceEvent.DuplicateMessage, _Mapping]] = ..., deliverMessage: _Optional[_Union[TraceEvent.DeliverMessage, _Mapping]] = ..., onNewOutboundStream: _Optional[_Union[TraceEvent.OnNewOutboundStream, _Mapping]] = ..., onClosedOutboundStream: _Optional[_Union[TraceEvent.OnClosedOutboundStream, _Mapping]] = ..., recvRPC: _Optional[_Union[TraceEvent.RecvRPC, _Mapping]] = ..., sendRPC: _Optional[_Union[TraceEvent.SendRPC, _Mapping]] = ..., dropRPC: _Optional[_Union[TraceEvent.DropRPC, _Mapping]] = ..., join: _Optional[_Union[TraceEvent.Join, _Mapping]] = ..., leave: _Optional[_Union[TraceEvent.Leave, _Mapping]] = ..., graft: _Optional[_Union[TraceEvent.Graft, _Mapping]] = ..., prune: _Optional[_Union[TraceEvent.Prune, _Mapping]] = ..., nodeUp: _Optional[_Union[TraceEvent.NodeUp, _Mapping]] = ..., nodeDown: _Optional[_Union[TraceEvent.NodeDown, _Mapping]] = ..., refuse: _Optional[_Union[TraceEvent.Refuse, _Mapping]] = ..., penalise: _Optional[_Union[TraceEvent.Penalise, _Mapping]] = ..., undeliverableMessage: _Optional[_Union[TraceEvent.UndeliverableMessage, _Mapping]] = ..., skipPublish: _Optional[_Union[TraceEvent.SkipPublish, _Mapping]] = ..., stabilised: _Optional[_Union[TraceEvent.Stabilised, _Mapping]] = ..., syncEnded: _Optional[_Union[TraceEvent.SyncEnded, _Mapping]] = ..., failPublish: _Optional[_Union[TraceEvent.FailPublish, _Mapping]] = ...) -> None: ...

class TraceEventBatch(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: _containers.RepeatedCompositeFieldContainer[TraceEvent]
    def __init__(self, batch: _Optional[_Iterable[_Union[TraceEvent, _Mapping]]] = ...) -> None: ...
