"""Topic and event descriptors: what is hashed, and thereby what a topic or an event is.

A descriptor is immutable; its name is the CID of its dag-cbor bytes, which are those of the
JavaScript original. Both are computed once and kept in the value. Reading is the inverse: bytes
are a descriptor only if writing the descriptor gives the same bytes again, so nothing that is
hashed can be lost or reinterpreted on the way.

Keys are written out in their canonical order (by length, then by bytes): `#`, name, author, parent,
metadata for a topic; topic, author, parent, payload, metadata, publisher for an event. An absent
link is an empty map. Peer ids are opaque bytes.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, TypeVar

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.protocols.pulsarcast import cid as cids
from rumormill.protocols.pulsarcast import dag_cbor, dates
from rumormill.protocols.pulsarcast.dag_cbor import Link, Value

PROTOCOL: Final = "/pulsarcast/1.0.0"
"""The protocol id; the same text is the version in all metadata (reference, wire format)."""

META: Final = "meta"
"""The sub-topic in which new versions of a topic are announced."""

MAX_TOPIC_BYTES: Final = 256 << 10
"""Our choice: a topic of 2,000 sub-topics or 6,000 allowed publishers."""

MAX_EVENT_BYTES: Final = 2 << 20
"""Our choice: a payload of 1 MiB, GossipSub's customary limit, and room around it."""

MAX_PEER_ID_BYTES: Final = 64
"""Our choice: the longest libp2p peer id has 44."""

MAX_VERSION_BYTES: Final = 128
"""Our choice: the only version there is has 17."""

_ABSENT = b"\xa0"
_FALSE, _TRUE, _NULL = b"\xf4", b"\xf5", b"\xf6"


class EventLinking(IntEnum):
    """How an event gets its parent link."""

    LAST_SEEN = 0
    """The publisher's node links to the event that it saw last."""
    CUSTOM = 1
    """The application names the parent."""


def _key(name: str) -> bytes:
    return dag_cbor.text(name)


_PEERS, _ENABLED = _key("peers"), _key("enabled")
_TOPIC_HEAD = b"\xa5" + _key("#")
_NAME, _AUTHOR, _PARENT, _METADATA = map(_key, ("name", "author", "parent", "metadata"))
_CREATED, _VERSION = _key("created"), _key("protocolVersion")
_LINKING, _REQUEST, _ALLOWED = map(_key, ("eventLinking", "requestToPublish", "allowedPublishers"))
_TOPIC_METADATA = _METADATA + b"\xa5" + _CREATED
_EVENT_HEAD = b"\xa6" + _key("topic")
_PAYLOAD, _PUBLISHER = _key("payload"), _key("publisher")
_EVENT_METADATA = _METADATA + b"\xa2" + _CREATED
_USUAL_VERSION = _VERSION + dag_cbor.text(PROTOCOL)
_LINK_HEAD = dag_cbor.link(b"\0" * cids.LENGTH)[: -cids.LENGTH]


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """A date and a version, which travel together."""

    created: str
    protocol_version: str


class TopicDescriptor(msgspec.Struct, eq=False):
    """A topic, or one version of it. Two are equal when their CIDs are.

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
    cached_dag: bytes = b""
    cached_cid: bytes = b""

    def dag(self) -> bytes:
        """The dag-cbor bytes."""
        if not self.cached_dag:
            self.cached_dag = _topic_dag(self)
        return self.cached_dag

    @property
    def cid(self) -> bytes:
        """The name of this version of the topic."""
        if not self.cached_cid:
            self.cached_cid = cids.of(self.dag())
        return self.cached_cid

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

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TopicDescriptor):
            return self.dag() == other.dag()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.cid)


class EventDescriptor(msgspec.Struct, eq=False, gc=False):
    """An event, or without a publisher a request for one. Two are equal when their CIDs are."""

    topic: bytes
    author: bytes
    payload: bytes
    created: str
    publisher: bytes | None = None
    parent: bytes | None = None
    protocol_version: str = PROTOCOL
    cached_cid: bytes = b""

    def dag(self) -> bytes:
        """The dag-cbor bytes. They hold the payload, so they are made anew each time."""
        payload, created, version = self.payload, self.created.encode(), self.protocol_version
        return b"".join(
            (
                _EVENT_HEAD,
                _LINK_HEAD,
                self.topic,
                _AUTHOR,
                dag_cbor.octets(self.author),
                _PARENT,
                _link(self.parent),
                _PAYLOAD,
                dag_cbor.head(2, len(payload)),
                payload,
                _EVENT_METADATA,
                dag_cbor.head(3, len(created)),
                created,
                _USUAL_VERSION if version == PROTOCOL else _VERSION + dag_cbor.text(version),
                _PUBLISHER,
                _NULL if self.publisher is None else dag_cbor.octets(self.publisher),
            )
        )

    @property
    def metadata(self) -> Metadata:
        """The date and the version."""
        return Metadata(self.created, self.protocol_version)

    @property
    def parent_link(self) -> bytes:
        """The parent as a link holds it: no bytes where there is none."""
        return self.parent or b""

    @property
    def cid(self) -> bytes:
        """The event's name."""
        if not self.cached_cid:
            self.cached_cid = cids.of(self.dag())
        return self.cached_cid

    def request(self, parent: bytes | None = None) -> "EventDescriptor":
        """The request to publish from which this event was made: its author's part of it."""
        return EventDescriptor(
            self.topic, self.author, self.payload, self.created, None, parent, self.protocol_version
        )

    def published(self, publisher: bytes, parent: bytes | None) -> "EventDescriptor":
        """What this request becomes when somebody publishes it: another CID, the same content."""
        return EventDescriptor(
            self.topic,
            self.author,
            self.payload,
            self.created,
            publisher,
            parent,
            self.protocol_version,
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EventDescriptor):
            return self.cid == other.cid
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.cid)


def meta_topic(name: str, author: bytes, created: str) -> TopicDescriptor:
    """The meta topic of a new topic: the author announces, anybody may ask to."""
    return TopicDescriptor(f"meta-{name}", author, created, allowed_publishers=(author,))


def _link(cid: bytes | None) -> bytes:
    return _ABSENT if cid is None else _LINK_HEAD + cid


def _peer_list(peers: tuple[bytes, ...] | None) -> bytes:
    """Encode a list of peers: `{peers, enabled}`."""
    listed = peers or ()
    parts = [b"\xa2", _PEERS, dag_cbor.head(4, len(listed))]
    parts += map(dag_cbor.octets, listed)
    parts += (_ENABLED, _FALSE if peers is None else _TRUE)
    return b"".join(parts)


def _topic_dag(topic: TopicDescriptor) -> bytes:
    named = sorted([(len(raw), raw, cid) for raw, cid in _raw_names(topic.sub_topics)])
    parts = [_TOPIC_HEAD, dag_cbor.head(5, len(named))]
    for length, raw, cid in named:
        parts += (dag_cbor.head(3, length), raw, _LINK_HEAD, cid)
    parts += (
        _NAME,
        dag_cbor.text(topic.name),
        _AUTHOR,
        dag_cbor.octets(topic.author),
        _PARENT,
        _link(topic.parent),
        _TOPIC_METADATA,
        dag_cbor.text(topic.created),
        _LINKING,
        dag_cbor.head(0, topic.event_linking),
        _VERSION,
        dag_cbor.text(topic.protocol_version),
        _REQUEST,
        _peer_list(topic.request_to_publish),
        _ALLOWED,
        _peer_list(topic.allowed_publishers),
    )
    return b"".join(parts)


def _raw_names(sub_topics: Mapping[str, bytes]) -> Iterable[tuple[bytes, bytes]]:
    return ((name.encode(), cid) for name, cid in sub_topics.items())


def read_topic(data: bytes) -> TopicDescriptor:
    """Read a topic descriptor from its dag-cbor bytes."""
    fields = _map_of(dag_cbor.decode(data, max_bytes=MAX_TOPIC_BYTES), "a topic", 5)
    metadata = _map_of(_get(fields, "metadata", dict), "the metadata", 5)
    linking = _get(metadata, "eventLinking", int)
    if linking not in (0, 1):
        raise DecodeError("bad-descriptor", f"there is no event linking {linking}")
    named = {name: _cid(value) for name, value in _get(fields, "#", dict).items()}
    topic = TopicDescriptor(
        _get(fields, "name", str),
        _peer(_get(fields, "author", bytes)),
        _date(metadata),
        _optional_cid(fields.get("parent")),
        javascript_order(reversed(named.items())),
        _read_peers(metadata, "allowedPublishers"),
        _read_peers(metadata, "requestToPublish"),
        EventLinking(linking),
        _version(metadata),
    )
    if topic.dag() != data:
        raise DecodeError("bad-descriptor", "a topic with something in it that is not a topic's")
    return topic


def read_event(data: bytes) -> EventDescriptor:
    """Read an event descriptor from its dag-cbor bytes."""
    fields = _map_of(dag_cbor.decode(data, max_bytes=MAX_EVENT_BYTES), "an event", 6)
    metadata = _map_of(_get(fields, "metadata", dict), "the metadata", 2)
    publisher = fields.get("publisher")
    event = EventDescriptor(
        _cid(fields.get("topic")),
        _peer(_get(fields, "author", bytes)),
        _get(fields, "payload", bytes),
        _date(metadata),
        None if publisher is None else _peer(_get(fields, "publisher", bytes)),
        _optional_cid(fields.get("parent")),
        _version(metadata),
    )
    if event.dag() != data:
        raise DecodeError("bad-descriptor", "an event with something in it that is not an event's")
    return event


def javascript_order(items: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Order entries as a JavaScript object does: array indices by value, then the rest as added."""
    listed = list(items)
    indices = sorted([item for item in listed if _is_index(item[0])], key=lambda item: int(item[0]))
    return dict(indices + [item for item in listed if not _is_index(item[0])])


def _is_index(name: str) -> bool:
    is_number = name.isascii() and name.isdigit() and len(name) <= 10
    return is_number and str(int(name)) == name and int(name) < 2**32 - 1


_Kind = TypeVar("_Kind")


def _get(fields: Mapping[str, Value], key: str, kind: type[_Kind]) -> _Kind:
    value = fields.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DecodeError("bad-descriptor", f"{key} is missing or of a wrong kind")
    return value


def _map_of(value: Value, what: str, size: int) -> Mapping[str, Value]:
    if not isinstance(value, dict) or len(value) != size:
        raise DecodeError("bad-descriptor", f"{what} is a map of {size} entries")
    return value


def _cid(value: Value) -> bytes:
    if not isinstance(value, Link):
        raise DecodeError("bad-descriptor", "a link is missing")
    return cids.check(value.cid)


def _optional_cid(value: Value) -> bytes | None:
    return None if value == {} else _cid(value)


def _peer(value: Value) -> bytes:
    if not isinstance(value, bytes) or len(value) > MAX_PEER_ID_BYTES:
        raise DecodeError("bad-descriptor", "a peer id is missing or too long")
    return value


def _date(metadata: Mapping[str, Value]) -> str:
    created = _get(metadata, "created", str)
    if dates.normal(created) != created:
        raise DecodeError("bad-date", "not a date of the form YYYY-MM-DDTHH:MM:SS.mmmZ")
    return created


def _version(metadata: Mapping[str, Value]) -> str:
    version = _get(metadata, "protocolVersion", str)
    if not 0 < len(version.encode()) <= MAX_VERSION_BYTES:
        raise DecodeError("bad-descriptor", f"a version of 1 to {MAX_VERSION_BYTES} bytes")
    return version


def _read_peers(metadata: Mapping[str, Value], key: str) -> tuple[bytes, ...] | None:
    fields = _map_of(_get(metadata, key, dict), key, 2)
    peers = tuple([_peer(value) for value in _get(fields, "peers", list)])
    return peers if _get(fields, "enabled", bool) else None
