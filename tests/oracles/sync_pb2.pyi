from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SyncMessage(_message.Message):
    __slots__ = ("probe", "verdict", "compare", "compared", "fetch", "events", "offer", "confirm", "confirmed")
    PROBE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    probe: Probe
    verdict: Verdict
    compare: Compare
    compared: Compared
    fetch: Fetch
    events: Events
    offer: Offer
    confirm: Confirm
    confirmed: Confirmed
    def __init__(self, probe: _Optional[_Union[Probe, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., compare: _Optional[_Union[Compare, _Mapping]] = ..., compared: _Optional[_Union[Compared, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., events: _Optional[_Union[Events, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., confirm: _Optional[_Union[Confirm, _Mapping]] = ..., confirmed: _Optional[_Union[Confirmed, _Mapping]] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("stamp", "id")
    STAMP_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    stamp: int
    id: bytes
    def __init__(self, stamp: _Optional[int] = ..., id: _Optional[bytes] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("salt", "upto", "ahead_from", "topics")
    SALT_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FROM_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    salt: bytes
    upto: int
    ahead_from: int
    topics: bytes
    def __init__(self, salt: _Optional[bytes] = ..., upto: _Optional[int] = ..., ahead_from: _Optional[int] = ..., topics: _Optional[bytes] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("differences", "unknown")
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    differences: _containers.RepeatedCompositeFieldContainer[Difference]
    unknown: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, differences: _Optional[_Iterable[_Union[Difference, _Mapping]]] = ..., unknown: _Optional[_Iterable[int]] = ...) -> None: ...

class Difference(_message.Message):
    __slots__ = ("place", "count", "spans")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    place: int
    count: int
    spans: bytes
    def __init__(self, place: _Optional[int] = ..., count: _Optional[int] = ..., spans: _Optional[bytes] = ...) -> None: ...

class Compare(_message.Message):
    __slots__ = ("salt", "tag", "low", "spans")
    SALT_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    salt: bytes
    tag: bytes
    low: Key
    spans: bytes
    def __init__(self, salt: _Optional[bytes] = ..., tag: _Optional[bytes] = ..., low: _Optional[_Union[Key, _Mapping]] = ..., spans: _Optional[bytes] = ...) -> None: ...

class Compared(_message.Message):
    __slots__ = ("spans", "next")
    SPANS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    spans: bytes
    next: Key
    def __init__(self, spans: _Optional[bytes] = ..., next: _Optional[_Union[Key, _Mapping]] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("salt", "tag", "wanted")
    SALT_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    salt: bytes
    tag: bytes
    wanted: _containers.RepeatedCompositeFieldContainer[Wanted]
    def __init__(self, salt: _Optional[bytes] = ..., tag: _Optional[bytes] = ..., wanted: _Optional[_Iterable[_Union[Wanted, _Mapping]]] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("low", "high", "known")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    low: Key
    high: Key
    known: bytes
    def __init__(self, low: _Optional[_Union[Key, _Mapping]] = ..., high: _Optional[_Union[Key, _Mapping]] = ..., known: _Optional[bytes] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("events", "next", "place")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    next: Key
    place: int
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next: _Optional[_Union[Key, _Mapping]] = ..., place: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("author", "id", "data", "proof")
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    author: bytes
    id: bytes
    data: bytes
    proof: bytes
    def __init__(self, author: _Optional[bytes] = ..., id: _Optional[bytes] = ..., data: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, tags: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Confirm(_message.Message):
    __slots__ = ("tag", "ids")
    TAG_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    tag: bytes
    ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, tag: _Optional[bytes] = ..., ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Confirmed(_message.Message):
    __slots__ = ("places",)
    PLACES_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, places: _Optional[_Iterable[int]] = ...) -> None: ...
