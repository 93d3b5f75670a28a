from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Link(_message.Message):
    __slots__ = ("cid",)
    CID_FIELD_NUMBER: _ClassVar[int]
    cid: bytes
    def __init__(self, cid: _Optional[bytes] = ...) -> None: ...

class MetaData(_message.Message):
    __slots__ = ("created", "protocolVersion", "extra")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLVERSION_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    created: str
    protocolVersion: str
    extra: bytes
    def __init__(self, created: _Optional[str] = ..., protocolVersion: _Optional[str] = ..., extra: _Optional[bytes] = ...) -> None: ...

class EventDescriptor(_message.Message):
    __slots__ = ("author", "topic", "payload", "publisher", "parent", "metadata", "publisherSignature", "publisherKey", "authorSignature", "authorKey")
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PUBLISHERSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PUBLISHERKEY_FIELD_NUMBER: _ClassVar[int]
    AUTHORSIGNATURE_FIELD_NUMBER: _ClassVar[int]
    AUTHORKEY_FIELD_NUMBER: _ClassVar[int]
    author: bytes
    topic: Link
    payload: bytes
    publisher: bytes
    parent: Link
    metadata: MetaData
    publisherSignature: bytes
    publisherKey: bytes
    authorSignature: bytes
    authorKey: bytes
    def __init__(self, author: _Optional[bytes] = ..., topic: _Optional[_Union[Link, _Mapping]] = ..., payload: _Optional[bytes] = ..., publisher: _Optional[bytes] = ..., parent: _Optional[_Union[Link, _Mapping]] = ..., metadata: _Optional[_Union[MetaData, _Mapping]] = ..., publisherSignature: _Optional[bytes] = ..., publisherKey: _Optional[bytes] = ..., authorSignature: _Optional[bytes] = ..., authorKey: _Optional[bytes] = ...) -> None: ...

class TopicDescriptor(_message.Message):
    __slots__ = ("name", "authorAndParent", "subTopics", "metadata")
    class SubTopic(_message.Message):
        __slots__ = ("name", "topic")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic: Link
        def __init__(self, name: _Optional[str] = ..., topic: _Optional[_Union[Link, _Mapping]] = ...) -> None: ...
    class PublishersList(_message.Message):
        __slots__ = ("enabled", "publishers")
        ENABLED_FIELD_NUMBER: _ClassVar[int]
        PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
        enabled: bool
        publishers: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, enabled: _Optional[bool] = ..., publishers: _Optional[_Iterable[bytes]] = ...) -> None: ...
    class TopicMetaData(_message.Message):
        __slots__ = ("created", "protocolVersion", "allowedPublishers", "requestToPublish", "eventLinking")
        CREATED_FIELD_NUMBER: _ClassVar[int]
        PROTOCOLVERSION_FIELD_NUMBER: _ClassVar[int]
        ALLOWEDPUBLISHERS_FIELD_NUMBER: _ClassVar[int]
        REQUESTTOPUBLISH_FIELD_NUMBER: _ClassVar[int]
        EVENTLINKING_FIELD_NUMBER: _ClassVar[int]
        created: str
        protocolVersion: str
        allowedPublishers: TopicDescriptor.PublishersList
        requestToPublish: TopicDescriptor.PublishersList
        eventLinking: int
        def __init__(self, created: _Optional[str] = ..., protocolVersion: _Optional[str] = ..., allowedPublishers: _Optional[_Union[TopicDescriptor.PublishersList, _Mapping]] = ..., requestToPublish: _Optional[_Union[TopicDescriptor.PublishersList, _Mapping]] = ..., eventLinking: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    AUTHORANDPARENT_FIELD_NUMBER: _ClassVar[int]
    SUBTOPICS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    authorAndParent: _containers.RepeatedScalarFieldContainer[bytes]
    subTopics: _containers.RepeatedCompositeFieldContainer[TopicDescriptor.SubTopic]
    metadata: TopicDescriptor.TopicMetaData
    def __init__(self, name: _Optional[str] = ..., authorAndParent: _Optional[_Iterable[bytes]] = ..., subTopics: _Optional[_Iterable[_Union[TopicDescriptor.SubTopic, _Mapping]]] = ..., metadata: _Optional[_Union[TopicDescriptor.TopicMetaData, _Mapping]] = ...) -> None: ...

class PeerTree(_message.Message):
    __slots__ = ("topic", "parents", "children")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    parents: _containers.RepeatedScalarFieldContainer[bytes]
    children: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[bytes] = ..., parents: _Optional[_Iterable[bytes]] = ..., children: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PeerAddress(_message.Message):
    __slots__ = ("peer", "addresses")
    PEER_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    peer: bytes
    addresses: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, peer: _Optional[bytes] = ..., addresses: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("op", "topic", "event", "peerTree", "topicId", "metadata", "elsewhere")
    OP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    PEERTREE_FIELD_NUMBER: _ClassVar[int]
    TOPICID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    op: int
    topic: TopicDescriptor
    event: EventDescriptor
    peerTree: PeerTree
    topicId: bytes
    metadata: MetaData
    elsewhere: _containers.RepeatedCompositeFieldContainer[PeerAddress]
    def __init__(self, op: _Optional[int] = ..., topic: _Optional[_Union[TopicDescriptor, _Mapping]] = ..., event: _Optional[_Union[EventDescriptor, _Mapping]] = ..., peerTree: _Optional[_Union[PeerTree, _Mapping]] = ..., topicId: _Optional[bytes] = ..., metadata: _Optional[_Union[MetaData, _Mapping]] = ..., elsewhere: _Optional[_Iterable[_Union[PeerAddress, _Mapping]]] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("topic", "status", "peers", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    status: int
    peers: _containers.RepeatedCompositeFieldContainer[PeerAddress]
    reason: str
    def __init__(self, topic: _Optional[bytes] = ..., status: _Optional[int] = ..., peers: _Optional[_Iterable[_Union[PeerAddress, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class RequestReply(_message.Message):
    __slots__ = ("topic", "request", "status", "event", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    request: bytes
    status: int
    event: bytes
    reason: str
    def __init__(self, topic: _Optional[bytes] = ..., request: _Optional[bytes] = ..., status: _Optional[int] = ..., event: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("topic", "wanted", "ancestors", "known")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    ANCESTORS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    wanted: _containers.RepeatedScalarFieldContainer[bytes]
    ancestors: int
    known: bytes
    def __init__(self, topic: _Optional[bytes] = ..., wanted: _Optional[_Iterable[bytes]] = ..., ancestors: _Optional[int] = ..., known: _Optional[bytes] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("topic", "events", "missing", "start", "end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    events: _containers.RepeatedCompositeFieldContainer[EventDescriptor]
    missing: _containers.RepeatedScalarFieldContainer[bytes]
    start: int
    end: int
    def __init__(self, topic: _Optional[bytes] = ..., events: _Optional[_Iterable[_Union[EventDescriptor, _Mapping]]] = ..., missing: _Optional[_Iterable[bytes]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Terms(_message.Message):
    __slots__ = ("topic", "silent", "start", "end", "count", "checksum")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    silent: bool
    start: int
    end: int
    count: int
    checksum: int
    def __init__(self, topic: _Optional[bytes] = ..., silent: _Optional[bool] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., count: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class Have(_message.Message):
    __slots__ = ("topic", "start", "end", "tails")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TAILS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    start: int
    end: int
    tails: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[bytes] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., tails: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Block(_message.Message):
    __slots__ = ("topic", "data")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    data: bytes
    def __init__(self, topic: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class RPC(_message.Message):
    __slots__ = ("msgs", "joinReplies", "requestReplies", "fetches", "events", "terms", "haves", "blocks")
    MSGS_FIELD_NUMBER: _ClassVar[int]
    JOINREPLIES_FIELD_NUMBER: _ClassVar[int]
    REQUESTREPLIES_FIELD_NUMBER: _ClassVar[int]
    FETCHES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    HAVES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    msgs: _containers.RepeatedCompositeFieldContainer[Message]
    joinReplies: _containers.RepeatedCompositeFieldContainer[JoinReply]
    requestReplies: _containers.RepeatedCompositeFieldContainer[RequestReply]
    fetches: _containers.RepeatedCompositeFieldContainer[Fetch]
    events: _containers.RepeatedCompositeFieldContainer[Events]
    terms: _containers.RepeatedCompositeFieldContainer[Terms]
    haves: _containers.RepeatedCompositeFieldContainer[Have]
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    def __init__(self, msgs: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., joinReplies: _Optional[_Iterable[_Union[JoinReply, _Mapping]]] = ..., requestReplies: _Optional[_Iterable[_Union[RequestReply, _Mapping]]] = ..., fetches: _Optional[_Iterable[_Union[Fetch, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[Events, _Mapping]]] = ..., terms: _Optional[_Iterable[_Union[Terms, _Mapping]]] = ..., haves: _Optional[_Iterable[_Union[Have, _Mapping]]] = ..., blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ...) -> None: ...
