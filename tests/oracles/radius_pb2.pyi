from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("interests", "publications", "direct", "membership")
    INTERESTS_FIELD_NUMBER: _ClassVar[int]
    PUBLICATIONS_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    interests: _containers.RepeatedCompositeFieldContainer[Spread]
    publications: _containers.RepeatedCompositeFieldContainer[Relay]
    direct: _containers.RepeatedCompositeFieldContainer[Publication]
    membership: _containers.RepeatedCompositeFieldContainer[Membership]
    def __init__(self, interests: _Optional[_Iterable[_Union[Spread, _Mapping]]] = ..., publications: _Optional[_Iterable[_Union[Relay, _Mapping]]] = ..., direct: _Optional[_Iterable[_Union[Publication, _Mapping]]] = ..., membership: _Optional[_Iterable[_Union[Membership, _Mapping]]] = ...) -> None: ...

class Interest(_message.Message):
    __slots__ = ("owner", "topic", "sequence", "expires", "withdrawn", "addresses", "signature", "key")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    owner: bytes
    topic: str
    sequence: int
    expires: int
    withdrawn: bool
    addresses: _containers.RepeatedScalarFieldContainer[bytes]
    signature: bytes
    key: bytes
    def __init__(self, owner: _Optional[bytes] = ..., topic: _Optional[str] = ..., sequence: _Optional[int] = ..., expires: _Optional[int] = ..., withdrawn: _Optional[bool] = ..., addresses: _Optional[_Iterable[bytes]] = ..., signature: _Optional[bytes] = ..., key: _Optional[bytes] = ...) -> None: ...

class Spread(_message.Message):
    __slots__ = ("interest", "hops", "distance")
    INTEREST_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    interest: Interest
    hops: int
    distance: int
    def __init__(self, interest: _Optional[_Union[Interest, _Mapping]] = ..., hops: _Optional[int] = ..., distance: _Optional[int] = ...) -> None: ...

class Publication(_message.Message):
    __slots__ = ("author", "topic", "time", "data", "signature", "key")
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    author: bytes
    topic: str
    time: int
    data: bytes
    signature: bytes
    key: bytes
    def __init__(self, author: _Optional[bytes] = ..., topic: _Optional[str] = ..., time: _Optional[int] = ..., data: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., key: _Optional[bytes] = ...) -> None: ...

class Relay(_message.Message):
    __slots__ = ("publication", "hops", "served")
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    publication: Publication
    hops: int
    served: bytes
    def __init__(self, publication: _Optional[_Union[Publication, _Mapping]] = ..., hops: _Optional[int] = ..., served: _Optional[bytes] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("peer", "addresses")
    PEER_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    peer: bytes
    addresses: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, peer: _Optional[bytes] = ..., addresses: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ("kind", "hops", "yes", "number", "peers", "epoch", "minima")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[Membership.Kind]
        JOIN: _ClassVar[Membership.Kind]
        FORWARD_JOIN: _ClassVar[Membership.Kind]
        NEIGHBOR: _ClassVar[Membership.Kind]
        NEIGHBOR_REPLY: _ClassVar[Membership.Kind]
        DISCONNECT: _ClassVar[Membership.Kind]
        SHUFFLE: _ClassVar[Membership.Kind]
        SHUFFLE_REPLY: _ClassVar[Membership.Kind]
        BEAT: _ClassVar[Membership.Kind]
    NONE: Membership.Kind
    JOIN: Membership.Kind
    FORWARD_JOIN: Membership.Kind
    NEIGHBOR: Membership.Kind
    NEIGHBOR_REPLY: Membership.Kind
    DISCONNECT: Membership.Kind
    SHUFFLE: Membership.Kind
    SHUFFLE_REPLY: Membership.Kind
    BEAT: Membership.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    YES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MINIMA_FIELD_NUMBER: _ClassVar[int]
    kind: Membership.Kind
    hops: int
    yes: bool
    number: int
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    epoch: int
    minima: bytes
    def __init__(self, kind: _Optional[_Union[Membership.Kind, str]] = ..., hops: _Optional[int] = ..., yes: _Optional[bool] = ..., number: _Optional[int] = ..., peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., epoch: _Optional[int] = ..., minima: _Optional[bytes] = ...) -> None: ...
