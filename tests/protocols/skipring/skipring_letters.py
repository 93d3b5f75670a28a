"""Arbitrary letters of the skip ring, and the same values in the class that protoc generates."""

from typing import Any

from hypothesis import strategies as st

from oracles import skipring_pb2
from rumormill.overlay.patricia import Prefix, Summary, prefix_of
from rumormill.protocols.skipring import messages
from rumormill.protocols.skipring.config import MAX_MISSING
from rumormill.protocols.skipring.envelope import Publication, named
from rumormill.protocols.skipring.labels import LABEL_BITS, label_of, number_of
from rumormill.protocols.skipring.messages import (
    CheckAndPublish,
    CheckTrie,
    Flag,
    PublishBundle,
    PublishNew,
    Reference,
    Want,
)

topics = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
labels = st.one_of(st.integers(0, 40), st.integers(0, 2**LABEL_BITS - 1)).map(label_of)
peers = st.binary(min_size=1, max_size=64)
addresses = st.lists(st.binary(max_size=30), max_size=8).map(tuple)
references = st.builds(Reference, labels, peers, addresses)
maybe = st.one_of(st.none(), references)
flags = st.sampled_from(Flag)
keys = st.binary(min_size=32, max_size=32)
prefixes = st.builds(
    prefix_of, keys, st.one_of(st.integers(0, 256), st.sampled_from([0, 1, 8, 255, 256]))
)
nodes = st.lists(st.builds(Summary, prefixes, keys), max_size=5).map(tuple)
wants = st.lists(st.builds(Want, prefixes, st.one_of(st.just(b""), keys)), max_size=5).map(tuple)
numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))


def publications(topic: str) -> st.SearchStrategy[Publication]:
    return st.builds(
        Publication,
        st.just(topic),
        peers,
        numbers,
        st.binary(max_size=300),
        numbers,
        st.binary(max_size=80),
        st.binary(max_size=40),
    ).map(named)


counts = st.integers(0, messages.MAX_SEEN)
tokens = st.builds(
    messages.Token,
    topics,
    st.integers(0, messages.MAX_EPOCH),
    counts,
    counts,
    maybe,
    maybe,
    st.one_of(st.none(), labels),
    st.lists(labels, max_size=MAX_MISSING).map(tuple),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def bundles(topic: str) -> st.SearchStrategy[PublishBundle]:
    carried = st.lists(publications(topic), max_size=4).map(tuple)
    return st.builds(PublishBundle, st.just(topic), carried, wants)


letters = st.one_of(
    st.builds(messages.Subscribe, topics, addresses),
    st.builds(messages.Unsubscribe, topics),
    st.builds(messages.GetConfiguration, topics, peers, addresses),
    st.builds(messages.Acknowledge, topics),
    st.builds(messages.SetData, topics, maybe, st.one_of(st.none(), labels), maybe),
    st.builds(messages.Check, topics, references, labels, flags),
    st.builds(messages.Introduce, topics, references, flags),
    st.builds(messages.Linearize, topics, references),
    st.builds(messages.RemoveConnections, topics),
    st.builds(messages.IntroduceShortcut, topics, references, labels),
    st.builds(CheckTrie, topics, nodes),
    st.builds(CheckAndPublish, topics, nodes, wants),
    tokens,
    topics.flatmap(bundles),
    topics.flatmap(lambda topic: st.builds(PublishNew, st.just(topic), publications(topic))),
)


def to_protobuf(letter: Any) -> skipring_pb2.Letter:
    """Fill the generated class by the field names of our values, which are those of the schema."""
    message = skipring_pb2.Letter(topic=letter.topic)
    name = letter.operation.replace("-", "_")
    body = getattr(message, name)
    body.SetInParent()
    for field in letter.__struct_fields__:
        if field not in {"topic", "cached_meta"}:
            _fill(body, field, getattr(letter, field))
    return message


def _fill(body: Any, field: str, value: Any) -> None:
    if value is None or (field not in {"label", "before"} and not value):
        return
    if isinstance(value, tuple):
        for each in value:
            if isinstance(each, bytes | int):
                getattr(body, field).append(number_of(each) + 1 if type(each) is int else each)
            else:
                _fill_message(getattr(body, field).add(), each)
    elif isinstance(value, Reference | Publication):
        _fill_message(getattr(body, field), value)
    elif field in {"label", "before"}:
        setattr(body, field, number_of(value) + 1)
    else:
        setattr(body, field, value)


def _fill_message(message: Any, value: Any) -> None:
    message.SetInParent()
    if isinstance(value, Reference):
        message.label, message.peer = number_of(value.label) + 1, value.peer
        message.addresses.extend(value.addresses)
    elif isinstance(value, Summary):
        _fill_prefix(message, value.label)
        message.hash = value.hash
    elif isinstance(value, Want):
        _fill_prefix(message, value.prefix)
        if value.after:
            message.after = value.after
    else:
        for field in ("author", "data", "seqno", "signature", "key", "created"):
            if getattr(value, field):
                setattr(message, field, getattr(value, field))


def _fill_prefix(message: Any, prefix: Prefix) -> None:
    if prefix.length:
        message.length, message.bits = prefix.length, prefix.bits
