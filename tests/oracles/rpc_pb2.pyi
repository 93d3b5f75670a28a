from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RPC(_message.Message):
    __slots__ = ("subscriptions", "publish", "control", "trunk")
    class SubOpts(_message.Message):
        __slots__ = ("subscribe", "topicid")
        SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
        TOPICID_FIELD_NUMBER: _ClassVar[int]
        subscribe: bool
        topicid: str
        def __init__(self, subscribe: _Optional[bool] = ..., topicid: _Optional[str] = ...) -> None: ...
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    TRUNK_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[RPC.SubOpts]
    publish: _containers.RepeatedCompositeFieldContainer[Message]
    control: ControlMessage
    trunk: Trunk
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[RPC.SubOpts, _Mapping]]] = ..., publish: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., control: _Optional[_Union[ControlMessage, _Mapping]] = ..., trunk: _Optional[_Union[Trunk, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("data", "seqno", "topic", "signature", "key")
    FROM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SEQNO_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    seqno: bytes
    topic: str
    signature: bytes
    key: bytes
    def __init__(self, data: _Optional[bytes] = ..., seqno: _Optional[bytes] = ..., topic: _Optional[str] = ..., signature: _Optional[bytes] = ..., key: _Optional[bytes] = ..., **kwargs) -> None: ...

class ControlMessage(_message.Message):
    __slots__ = ("ihave", "iwant", "graft", "prune", "idontwant", "extensions")
    IHAVE_FIELD_NUMBER: _ClassVar[int]
    IWANT_FIELD_NUMBER: _ClassVar[int]
    GRAFT_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    IDONTWANT_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    ihave: _containers.RepeatedCompositeFieldContainer[ControlIHave]
    iwant: _containers.RepeatedCompositeFieldContainer[ControlIWant]
    graft: _containers.RepeatedCompositeFieldContainer[ControlGraft]
    prune: _containers.RepeatedCompositeFieldContainer[ControlPrune]
    idontwant: _containers.RepeatedCompositeFieldContainer[ControlIDontWant]
    extensions: ControlExtensions
    def __init__(self, ihave: _Optional[_Iterable[_Union[ControlIHave, _Mapping]]] = ..., iwant: _Optional[_Iterable[_Union[ControlIWant, _Mapping]]] = ..., graft: _Optional[_Iterable[_Union[ControlGraft, _Mapping]]] = ..., prune: _Optional[_Iterable[_Union[ControlPrune, _Mapping]]] = ..., idontwant: _Optional[_Iterable[_Union[ControlIDontWant, _Mapping]]] = ..., extensions: _Optional[_Union[ControlExtensions, _Mapping]] = ...) -> None: ...

class ControlExtensions(_message.Message):
    __slots__ = ("trunk",)
    TRUNK_FIELD_NUMBER: _ClassVar[int]
    trunk: bool
    def __init__(self, trunk: _Optional[bool] = ...) -> None: ...

class Trunk(_message.Message):
    __slots__ = ("have", "want", "choke", "unchoke", "probe", "echo", "gossip", "past")
    HAVE_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    CHOKE_FIELD_NUMBER: _ClassVar[int]
    UNCHOKE_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    GOSSIP_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    have: _containers.RepeatedScalarFieldContainer[bytes]
    want: bytes
    choke: bytes
    unchoke: bytes
    probe: _containers.RepeatedCompositeFieldContainer[Probe]
    echo: int
    gossip: bytes
    past: _containers.RepeatedCompositeFieldContainer[Past]
    def __init__(self, have: _Optional[_Iterable[bytes]] = ..., want: _Optional[bytes] = ..., choke: _Optional[bytes] = ..., unchoke: _Optional[bytes] = ..., probe: _Optional[_Iterable[_Union[Probe, _Mapping]]] = ..., echo: _Optional[int] = ..., gossip: _Optional[bytes] = ..., past: _Optional[_Iterable[_Union[Past, _Mapping]]] = ...) -> None: ...

class Past(_message.Message):
    __slots__ = ("topic", "heard")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    heard: bytes
    def __init__(self, topic: _Optional[str] = ..., heard: _Optional[bytes] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("topic", "source", "number")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    source: bytes
    number: int
    def __init__(self, topic: _Optional[str] = ..., source: _Optional[bytes] = ..., number: _Optional[int] = ...) -> None: ...

class ControlIHave(_message.Message):
    __slots__ = ("topicID", "messageIDs")
    TOPICID_FIELD_NUMBER: _ClassVar[int]
    MESSAGEIDS_FIELD_NUMBER: _ClassVar[int]
    topicID: str
    messageIDs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topicID: _Optional[str] = ..., messageIDs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ControlIWant(_message.Message):
    __slots__ = ("messageIDs",)
    MESSAGEIDS_FIELD_NUMBER: _ClassVar[int]
    messageIDs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, messageIDs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ControlGraft(_message.Message):
    __slots__ = ("topicID",)
    TOPICID_FIELD_NUMBER: _ClassVar[int]
    topicID: str
    def __init__(self, topicID: _Optional[str] = ...) -> None: ...

class ControlPrune(_message.Message):
    __slots__ = ("topicID", "peers", "backoff")
    TOPICID_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    topicID: str
    peers: _containers.RepeatedCompositeFieldContainer[PeerInfo]
    backoff: int
    def __init__(self, topicID: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[PeerInfo, _Mapping]]] = ..., backoff: _Optional[int] = ...) -> None: ...

class ControlIDontWant(_message.Message):
    __slots__ = ("messageIDs",)
    MESSAGEIDS_FIELD_NUMBER: _ClassVar[int]
    messageIDs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, messageIDs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PeerInfo(_message.Message):
    __slots__ = ("peerID", "signedPeerRecord")
    PEERID_FIELD_NUMBER: _ClassVar[int]
    SIGNEDPEERRECORD_FIELD_NUMBER: _ClassVar[int]
    peerID: bytes
    signedPeerRecord: bytes
    def __init__(self, peerID: _Optional[bytes] = ..., signedPeerRecord: _Optional[bytes] = ...) -> None: ...
