"""Topic and event descriptors: what is hashed, and thereby what a topic or an event is.

A descriptor is immutable; its name is the CID of its dag-cbor bytes, which are those of the
JavaScript original. Both are computed once and kept in the value. Reading is the inverse: bytes
are a descriptor only if writing the descriptor gives the same bytes again, so nothing that is
hashed can be lost or reinterpreted on the way.

Keys are written out in their canonical order (by length, then by bytes): `#`, name, author, parent,
metadata for a topic; topic, author, parent, payload, metadata, publisher for an event. An absent
link is an empty map. Peer ids are opaque bytes.

Metadata may have fields that we do not know: they are kept, hashed and passed on as they are
(`extra`). The version says whether what we do know means what we think: another first number of it
is another protocol (`is_foreign`), whose descriptors can be looked at and are not acted upon.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from rumormill.core.errors import DecodeError
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dag_cbor, dates
from rumormill.protocols.pulsarcast.format.dag_cbor import Link, Value

PROTOCOL: Final = "/pulsarcast/1.0.0"
"""The protocol id; the same text is the version in all metadata (reference, wire format)."""

_Kind = TypeVar("_Kind", bound=msgspec.Struct)

META: Final = "meta"
"""The sub-topic in which new versions of a topic are announced."""

MAX_TOPIC_BYTES: Final = 256 << 10
"""Our choice: a topic of 2,000 sub-topics or 6,000 allowed publishers."""

MAX_EVENT_BYTES: Final = 2 << 20
"""Our choice: a payload of 1 MiB, GossipSub's customary limit, and room around it."""

MAX_PEER_ID_BYTES: Final = 64
"""Our choice: the longest libp2p peer id has 44."""
_PeerId: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=MAX_PEER_ID_BYTES)]

MAX_VERSION_BYTES: Final = 128
"""Our choice: the only version there is has 17."""


MAX_EXTRA_BYTES: Final = 4096
"""Our choice, for the metadata of an event that we do not know: it comes with every event."""


class EventLinking(IntEnum):
    """How an event gets its parent link."""

    LAST_SEEN = 0
    """The publisher's node links to the event that it saw last."""
    CUSTOM = 1
    """The application names the parent."""


_EVENT_HEAD = b"\xa6" + dag_cbor.text("topic")
_AUTHOR, _PARENT, _PAYLOAD = map(dag_cbor.text, ("author", "parent", "payload"))
_EVENT_METADATA = dag_cbor.text("metadata") + b"\xa2" + dag_cbor.text("created")
_VERSION, _PUBLISHER = map(dag_cbor.text, ("protocolVersion", "publisher"))
_USUAL_VERSION = _VERSION + dag_cbor.text(PROTOCOL)
_LINK_HEAD = dag_cbor.link(b"\0" * cids.LENGTH)[: -cids.LENGTH]
_ABSENT, _NULL = dag_cbor.encode({}), dag_cbor.encode(None)


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """A date and a version, which travel together."""

    created: str
    protocol_version: str


class EventMetadata(Metadata, frozen=True, rename="camel"):
    """Those of an event, and what else it has (`EventDescriptor.extra`)."""

    extra: bytes = b""


class _Descriptor(msgspec.Struct, eq=False, kw_only=True):
    """What is named by the CID of its dag-cbor bytes. Two are equal when their CIDs are."""

    cached_cid: bytes = b""

    @abstractmethod
    def dag(self) -> bytes:
        """The dag-cbor bytes."""

    @property
    def cid(self) -> bytes:
        """The name of this event, or of this version of a topic."""
        if not self.cached_cid:
            self.cached_cid = cids.of(self.dag())
        return self.cached_cid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descriptor) and self.cid == other.cid

    def __hash__(self) -> int:
        return hash(self.cid)


class TopicDescriptor(_Descriptor, eq=False):
    """A topic, or one version of it.

    `allowed_publishers` is None where everybody may publish. `request_to_publish` is None where
    nobody may ask to publish, and empty where everybody may. `sub_topics` is in the order in which
    the protobuf form writes it; the hashed form has an order of its own.
    """

    name: str
    author: bytes
    created: str
    parent: bytes | None = None
    sub_topics: Mapping[str, bytes] = {}
    allowed_publishers: tuple[bytes, ...] | None = None
    request_to_publish: tuple[bytes, ...] | None = ()
    event_linking: EventLinking = EventLinking.LAST_SEEN
    protocol_version: str = PROTOCOL
    extra: bytes = b""
    """Metadata that we do not know, as a map in dag-cbor; no bytes where there is none."""
    cached_dag: bytes = b""

    def dag(self) -> bytes:
        """The dag-cbor bytes."""
        if not self.cached_dag:
            parent: Value = {} if self.parent is None else Link(self.parent)
            value: dict[str, Value] = {
                "#": {name: Link(cid) for name, cid in self.sub_topics.items()},
                "name": self.name,
                "author": self.author,
                "parent": parent,
                "metadata": {
                    "created": self.created,
                    "eventLinking": int(self.event_linking),
                    "protocolVersion": self.protocol_version,
                    "requestToPublish": _peer_list(self.request_to_publish),
                    "allowedPublishers": _peer_list(self.allowed_publishers),
                    **_others(self.extra),
                },
            }
            self.cached_dag = dag_cbor.encode(value)
        return self.cached_dag

    @property
    def meta(self) -> bytes | None:
        """The CID of the meta topic."""
        return self.sub_topics.get(META)

    def may_publish(self, peer: bytes) -> bool:
        """Whether a peer may put events into the topic's tree."""
        allowed = self.allowed_publishers
        return allowed is None or peer in allowed

    def may_request(self, peer: bytes) -> bool:
        """Whether a peer may ask an allowed publisher to publish for it."""
        listed = self.request_to_publish
        return listed is not None and (not listed or peer in listed)


class EventDescriptor(_Descriptor, eq=False, gc=False):
    """An event, or without a publisher a request for one."""

    topic: bytes
    author: bytes
    payload: bytes
    created: str
    publisher: bytes | None = None
    parent: bytes | None = None
    protocol_version: str = PROTOCOL
    extra: bytes = b""
    """As a topic's."""

    def dag(self) -> bytes:
        """The dag-cbor bytes. They hold the payload, so they are made anew each time; and every
        event that arrives is hashed, so they are put together by hand."""
        payload = self.payload
        return b"".join(
            (
                _EVENT_HEAD,
                _LINK_HEAD,
                self.topic,
                _AUTHOR,
                dag_cbor.octets(self.author),
                _PARENT,
                _ABSENT if self.parent is None else _LINK_HEAD + self.parent,
                _PAYLOAD,
                dag_cbor.head(2, len(payload)),
                payload,
                self._metadata_dag(),
                _PUBLISHER,
                _NULL if self.publisher is None else dag_cbor.octets(self.publisher),
            )
        )

    def _metadata_dag(self) -> bytes:
        created, version = self.created.encode(), self.protocol_version
        if self.extra:
            known = {"created": self.created, "protocolVersion": version}
            return dag_cbor.text("metadata") + dag_cbor.encode({**known, **_others(self.extra)})
        usual = _USUAL_VERSION if version == PROTOCOL else _VERSION + dag_cbor.text(version)
        return _EVENT_METADATA + dag_cbor.head(3, len(created)) + created + usual

    @property
    def metadata(self) -> EventMetadata:
        """The date, the version, and what else there is."""
        return EventMetadata(self.created, self.protocol_version, self.extra)

    @property
    def parent_link(self) -> bytes:
        """The parent as a link holds it: no bytes where there is none."""
        return self.parent or b""

    def request(self, parent: bytes | None = None) -> "EventDescriptor":
        """The request to publish from which this event was made: its author's part of it."""
        return replace(self, publisher=None, parent=parent, cached_cid=b"")

    def published(self, publisher: bytes, parent: bytes | None) -> "EventDescriptor":
        """What this request becomes when somebody publishes it: another CID, the same content."""
        return replace(self, publisher=publisher, parent=parent, cached_cid=b"")


def meta_topic(name: str, author: bytes, created: str) -> TopicDescriptor:
    """The meta topic of a new topic: the author announces, anybody may ask to."""
    return TopicDescriptor(f"meta-{name}", author, created, allowed_publishers=(author,))


def _peer_list(peers: tuple[bytes, ...] | None) -> dict[str, Value]:
    return {"peers": peers or (), "enabled": peers is not None}


def _others(extra: bytes) -> dict[str, Value]:
    found = dag_cbor.decode(extra) if extra else {}
    assert isinstance(found, dict)
    return found


# Reading.


class _Peers(msgspec.Struct):
    peers: tuple[_PeerId, ...]
    enabled: bool

    @property
    def listed(self) -> tuple[bytes, ...] | None:
        return self.peers if self.enabled else None


class _TopicMetadata(Metadata, frozen=True, rename="camel"):
    event_linking: EventLinking
    request_to_publish: _Peers
    allowed_publishers: _Peers


class _Topic(msgspec.Struct):
    name: str
    author: _PeerId
    parent: Any
    metadata: _TopicMetadata
    sub_topics: dict[str, Link] = msgspec.field(name="#")


class _Event(msgspec.Struct):
    topic: Link
    author: _PeerId
    parent: Any
    payload: bytes
    metadata: Metadata
    publisher: _PeerId | None


def _converted(value: Value, kind: type[_Kind], what: str) -> _Kind:
    size = len(msgspec.structs.fields(kind))
    if not isinstance(value, dict) or len(value) != size:
        raise DecodeError("bad-descriptor", f"{what} is a map of {size} entries")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DecodeError("bad-descriptor", str(error)) from None


def _extra_of(value: Value, kind: type[msgspec.Struct]) -> bytes:
    """The metadata of a descriptor that we do not know."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    found = metadata.items() if isinstance(metadata, dict) else ()
    extra = {name: each for name, each in found if name not in known}
    return dag_cbor.encode(extra) if extra else b""


def check_extra(extra: bytes, *, of_topic: bool = False) -> bytes:
    """Return the unknown metadata of an event or a topic; `DecodeError` where it is none."""
    if len(extra) > MAX_EXTRA_BYTES:
        raise DecodeError("bad-metadata", f"more than {MAX_EXTRA_BYTES} bytes of other metadata")
    value = dag_cbor.decode(extra) if extra else None
    kind = _TopicMetadata if of_topic else Metadata
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    if value is not None and (
        not value or not isinstance(value, dict) or any(name in value for name in known)
    ):
        raise DecodeError("bad-metadata", "other metadata is a map without what is known")
    return extra


def read_topic(data: bytes) -> TopicDescriptor:
    """Read a topic descriptor from its dag-cbor bytes."""
    value = dag_cbor.decode(data, max_bytes=MAX_TOPIC_BYTES)
    read = _converted(value, _Topic, "a topic")
    metadata = read.metadata
    named = {name: cids.check(link.cid) for name, link in read.sub_topics.items()}
    topic = TopicDescriptor(
        read.name,
        read.author,
        _date(metadata.created),
        _optional_cid(read.parent),
        javascript_order(reversed(named.items())),
        metadata.allowed_publishers.listed,
        metadata.request_to_publish.listed,
        metadata.event_linking,
        _version(metadata.protocol_version),
        _extra_of(value, _TopicMetadata),
    )
    if topic.dag() != data:
        raise DecodeError("bad-descriptor", "a topic with something in it that is not a topic's")
    return topic


def read_event(data: bytes) -> EventDescriptor:
    """Read an event descriptor from its dag-cbor bytes."""
    value = dag_cbor.decode(data, max_bytes=MAX_EVENT_BYTES)
    read = _converted(value, _Event, "an event")
    event = EventDescriptor(
        cids.check(read.topic.cid),
        read.author,
        read.payload,
        _date(read.metadata.created),
        read.publisher,
        _optional_cid(read.parent),
        _version(read.metadata.protocol_version),
        check_extra(_extra_of(value, Metadata)),
    )
    if event.dag() != data:
        raise DecodeError("bad-descriptor", "an event with something in it that is not an event's")
    return event


def _optional_cid(value: Any) -> bytes | None:
    if value == {}:
        return None
    if not isinstance(value, Link):
        raise DecodeError("bad-descriptor", "a parent is a link, or an empty map")
    return cids.check(value.cid)


def _date(created: str) -> str:
    if dates.normal(created) != created:
        raise DecodeError("bad-date", "not a date of the form YYYY-MM-DDTHH:MM:SS.mmmZ")
    return created


def _version(version: str) -> str:
    if not 0 < len(version.encode()) <= MAX_VERSION_BYTES:
        raise DecodeError("bad-descriptor", f"a version of 1 to {MAX_VERSION_BYTES} bytes")
    return version


def is_foreign(version: str) -> bool:
    """Whether a version is that of another protocol: a change of its first number breaks."""
    name, _, number = version.rpartition("/")
    major = number.split(".")[0]
    return version != PROTOCOL and name == "/pulsarcast" and major.isdecimal() and int(major) != 1


def javascript_order(items: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Order entries as a JavaScript object does: array indices by value, then the rest as added."""
    listed = list(items)
    indices = sorted([item for item in listed if _is_index(item[0])], key=lambda item: int(item[0]))
    return dict(indices + [item for item in listed if not _is_index(item[0])])


def _is_index(name: str) -> bool:
    is_number = name.isascii() and name.isdigit() and len(name) <= 10
    return is_number and str(int(name)) == name and int(name) < 2**32 - 1
