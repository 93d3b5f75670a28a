"""A topic in protobuf, as the original writes it and cannot read it: nobody sends it.

Author and parent share a field number, and the lists of peers are lost. Topics travel as dag-cbor;
this form is shown to people who look into an RPC, and refused by every machine.
"""

from functools import lru_cache

import msgspec

from rumormill.protocols.pulsarcast import dates
from rumormill.protocols.pulsarcast.codec import (
    lenient,
    link_field,
    read_link,
    text_field,
    write_link,
)
from rumormill.protocols.pulsarcast.descriptors import EventLinking, TopicDescriptor
from rumormill.protocols.pulsarcast.limits import DEFAULT_LIMITS, RpcLimits
from rumormill.wire.fields import UNBOUNDED, Nested, Number, Octets
from rumormill.wire.schema import Schema


class _Switch(msgspec.Struct):
    """Whether there is a list of peers; who is in it does not count."""

    enabled: bool
    publishers: tuple[bytes, ...] = ()


class _Metadata(msgspec.Struct):
    created: str
    protocol_version: str
    allowed_publishers: _Switch
    request_to_publish: _Switch
    event_linking: int


class _SubTopic(msgspec.Struct):
    name: str
    topic: bytes | None


class _Topic(msgspec.Struct):
    name: str
    author_and_parent: tuple[bytes, ...]
    sub_topics: tuple[_SubTopic, ...]
    metadata: _Metadata


@lru_cache(maxsize=16)
def _schema(limits: RpcLimits) -> Schema[_Topic]:
    peers = Octets(2, limits.peer_id_bytes, max_count=limits.tree_peers)
    switch = lenient(
        _Switch, {"enabled": Number(1, read=bool, always=True), "publishers": peers}, limits
    )
    metadata = lenient(
        _Metadata,
        {
            "created": text_field(1, dates.MAX_DATE_CHARACTERS * 3, always=True),
            "protocol_version": text_field(2, limits.version_bytes, always=True),
            "allowed_publishers": Nested(3, switch, always=True),
            "request_to_publish": Nested(4, switch, always=True),
            "event_linking": Number(5, always=True),
        },
        limits,
    )
    sub_topic = lenient(
        _SubTopic,
        {
            "name": text_field(1, limits.name_bytes, always=True),
            "topic": link_field(2, limits),
        },
        limits,
    )
    return lenient(
        _Topic,
        {
            "name": text_field(1, limits.name_bytes, always=True),
            "author_and_parent": Octets(2, UNBOUNDED, max_count=2),
            "sub_topics": Nested(3, sub_topic, max_count=limits.sub_topics),
            "metadata": Nested(4, metadata, always=True),
        },
        limits,
    )


def encode_topic(topic: TopicDescriptor) -> bytes:
    """The protobuf form of a topic, which is good for nothing and is not sent."""
    return _schema(DEFAULT_LIMITS).encode(
        _Topic(
            topic.name,
            (topic.author, write_link(topic.parent or b"")),
            tuple([_SubTopic(name, cid) for name, cid in topic.sub_topics.items()]),
            _Metadata(
                topic.created,
                topic.protocol_version,
                _Switch(topic.allowed_publishers is not None),
                _Switch(topic.request_to_publish is not None),
                topic.event_linking,
            ),
        )
    )


def read_topic_message(data: bytes, limits: RpcLimits = DEFAULT_LIMITS) -> TopicDescriptor:
    """Read a topic in protobuf as far as that can be done."""
    read = _schema(limits).decode(data)
    author, parent = (*read.author_and_parent, b"", b"")[:2]
    metadata = read.metadata
    custom = metadata.event_linking == EventLinking.CUSTOM
    return TopicDescriptor(
        read.name,
        author[: limits.peer_id_bytes],
        metadata.created,
        read_link(parent, limits) or None,
        {each.name: each.topic or b"" for each in read.sub_topics},
        () if metadata.allowed_publishers.enabled else None,
        () if metadata.request_to_publish.enabled else None,
        EventLinking.CUSTOM if custom else EventLinking.LAST_SEEN,
        metadata.protocol_version,
    )
