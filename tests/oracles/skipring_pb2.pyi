from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Flag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIN: _ClassVar[Flag]
    CYC: _ClassVar[Flag]
LIN: Flag
CYC: Flag

class Letter(_message.Message):
    __slots__ = ("topic", "subscribe", "unsubscribe", "get_configuration", "acknowledge", "set_data", "check", "introduce", "linearize", "remove_connections", "introduce_shortcut", "check_trie", "check_and_publish", "publish", "publish_new", "token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    GET_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    SET_DATA_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    INTRODUCE_FIELD_NUMBER: _ClassVar[int]
    LINEARIZE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    INTRODUCE_SHORTCUT_FIELD_NUMBER: _ClassVar[int]
    CHECK_TRIE_FIELD_NUMBER: _ClassVar[int]
    CHECK_AND_PUBLISH_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_NEW_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscribe: Subscribe
    unsubscribe: Empty
    get_configuration: GetConfiguration
    acknowledge: Empty
    set_data: SetData
    check: Check
    introduce: Introduce
    linearize: Linearize
    remove_connections: Empty
    introduce_shortcut: IntroduceShortcut
    check_trie: CheckTrie
    check_and_publish: CheckAndPublish
    publish: PublishBundle
    publish_new: PublishNew
    token: Token
    def __init__(self, topic: _Optional[str] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., unsubscribe: _Optional[_Union[Empty, _Mapping]] = ..., get_configuration: _Optional[_Union[GetConfiguration, _Mapping]] = ..., acknowledge: _Optional[_Union[Empty, _Mapping]] = ..., set_data: _Optional[_Union[SetData, _Mapping]] = ..., check: _Optional[_Union[Check, _Mapping]] = ..., introduce: _Optional[_Union[Introduce, _Mapping]] = ..., linearize: _Optional[_Union[Linearize, _Mapping]] = ..., remove_connections: _Optional[_Union[Empty, _Mapping]] = ..., introduce_shortcut: _Optional[_Union[IntroduceShortcut, _Mapping]] = ..., check_trie: _Optional[_Union[CheckTrie, _Mapping]] = ..., check_and_publish: _Optional[_Union[CheckAndPublish, _Mapping]] = ..., publish: _Optional[_Union[PublishBundle, _Mapping]] = ..., publish_new: _Optional[_Union[PublishNew, _Mapping]] = ..., token: _Optional[_Union[Token, _Mapping]] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Reference(_message.Message):
    __slots__ = ("label", "peer", "addresses")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    label: int
    peer: bytes
    addresses: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, label: _Optional[int] = ..., peer: _Optional[bytes] = ..., addresses: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("addresses",)
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, addresses: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetConfiguration(_message.Message):
    __slots__ = ("subject", "addresses")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    subject: bytes
    addresses: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, subject: _Optional[bytes] = ..., addresses: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SetData(_message.Message):
    __slots__ = ("pred", "label", "succ")
    PRED_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUCC_FIELD_NUMBER: _ClassVar[int]
    pred: Reference
    label: int
    succ: Reference
    def __init__(self, pred: _Optional[_Union[Reference, _Mapping]] = ..., label: _Optional[int] = ..., succ: _Optional[_Union[Reference, _Mapping]] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("sender", "label", "flag")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    sender: Reference
    label: int
    flag: Flag
    def __init__(self, sender: _Optional[_Union[Reference, _Mapping]] = ..., label: _Optional[int] = ..., flag: _Optional[_Union[Flag, str]] = ...) -> None: ...

class Introduce(_message.Message):
    __slots__ = ("subject", "flag")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    subject: Reference
    flag: Flag
    def __init__(self, subject: _Optional[_Union[Reference, _Mapping]] = ..., flag: _Optional[_Union[Flag, str]] = ...) -> None: ...

class Linearize(_message.Message):
    __slots__ = ("subject",)
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: Reference
    def __init__(self, subject: _Optional[_Union[Reference, _Mapping]] = ...) -> None: ...

class IntroduceShortcut(_message.Message):
    __slots__ = ("subject", "label")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    subject: Reference
    label: int
    def __init__(self, subject: _Optional[_Union[Reference, _Mapping]] = ..., label: _Optional[int] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("length", "bits", "hash")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    length: int
    bits: bytes
    hash: bytes
    def __init__(self, length: _Optional[int] = ..., bits: _Optional[bytes] = ..., hash: _Optional[bytes] = ...) -> None: ...

class Want(_message.Message):
    __slots__ = ("length", "bits", "after")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    length: int
    bits: bytes
    after: bytes
    def __init__(self, length: _Optional[int] = ..., bits: _Optional[bytes] = ..., after: _Optional[bytes] = ...) -> None: ...

class CheckTrie(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class CheckAndPublish(_message.Message):
    __slots__ = ("nodes", "wants")
    NODES_FIELD_NUMBER: _ClassVar[int]
    WANTS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    wants: _containers.RepeatedCompositeFieldContainer[Want]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., wants: _Optional[_Iterable[_Union[Want, _Mapping]]] = ...) -> None: ...

class Publication(_message.Message):
    __slots__ = ("author", "data", "seqno", "topic", "signature", "key", "created")
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SEQNO_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    author: bytes
    data: bytes
    seqno: int
    topic: str
    signature: bytes
    key: bytes
    created: int
    def __init__(self, author: _Optional[bytes] = ..., data: _Optional[bytes] = ..., seqno: _Optional[int] = ..., topic: _Optional[str] = ..., signature: _Optional[bytes] = ..., key: _Optional[bytes] = ..., created: _Optional[int] = ...) -> None: ...

class PublishBundle(_message.Message):
    __slots__ = ("publications", "rest")
    PUBLICATIONS_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    publications: _containers.RepeatedCompositeFieldContainer[Publication]
    rest: _containers.RepeatedCompositeFieldContainer[Want]
    def __init__(self, publications: _Optional[_Iterable[_Union[Publication, _Mapping]]] = ..., rest: _Optional[_Iterable[_Union[Want, _Mapping]]] = ...) -> None: ...

class PublishNew(_message.Message):
    __slots__ = ("publication",)
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    publication: Publication
    def __init__(self, publication: _Optional[_Union[Publication, _Mapping]] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("epoch", "count", "seen", "first", "last", "before", "missing", "quick", "changed", "back")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    QUICK_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    count: int
    seen: int
    first: Reference
    last: Reference
    before: int
    missing: _containers.RepeatedScalarFieldContainer[int]
    quick: bool
    changed: bool
    back: bool
    def __init__(self, epoch: _Optional[int] = ..., count: _Optional[int] = ..., seen: _Optional[int] = ..., first: _Optional[_Union[Reference, _Mapping]] = ..., last: _Optional[_Union[Reference, _Mapping]] = ..., before: _Optional[int] = ..., missing: _Optional[_Iterable[int]] = ..., quick: _Optional[bool] = ..., changed: _Optional[bool] = ..., back: _Optional[bool] = ...) -> None: ...
