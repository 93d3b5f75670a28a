"""Arbitrary frames of radius gossip, and the same values in the classes that protoc generates."""

from typing import Any

from hypothesis import strategies as st

from oracles import radius_pb2
from rumormill.overlay.hyparview.messages import Membership, PeerInfo
from rumormill.protocols.radius.messages import Frame, Interest, Publication, Relay, Spread

# Lengths around 127 and 16383 are where a length prefix grows by a byte.
short_bytes = st.binary(max_size=24)
long_bytes = st.one_of(short_bytes, st.sampled_from([126, 127, 128, 16383, 16384]).map(bytes))
ids = st.one_of(short_bytes, st.sampled_from([63, 64]).map(bytes))
topics = st.one_of(st.text(max_size=12), st.sampled_from(["", "blocks", "t" * 127, "ü" * 64]))
uint64 = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
uint32 = st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1))
addresses = st.lists(short_bytes, max_size=8).map(tuple)

interests = st.builds(
    Interest,
    owner=ids,
    topic=topics,
    sequence=uint64,
    expires=uint64,
    withdrawn=st.booleans(),
    addresses=addresses,
    signature=short_bytes,
    key=short_bytes,
)
publications = st.builds(
    Publication,
    author=ids,
    topic=topics,
    time=uint64,
    data=long_bytes,
    signature=short_bytes,
    key=short_bytes,
)
peers = st.builds(PeerInfo, peer=ids, addresses=addresses)
memberships = st.builds(
    Membership,
    kind=st.integers(0, 2**31 - 1),
    hops=uint32,
    yes=st.booleans(),
    number=uint64,
    peers=st.lists(peers, max_size=4).map(tuple),
    epoch=uint64,
    minima=st.lists(st.floats(width=32, allow_nan=False), max_size=40).map(tuple),
)
frames = st.builds(
    Frame,
    interests=st.lists(
        st.builds(Spread, interest=interests, hops=uint32, distance=uint32), max_size=3
    ).map(tuple),
    publications=st.lists(
        st.builds(Relay, publication=publications, hops=uint32, served=short_bytes), max_size=3
    ).map(tuple),
    direct=st.lists(publications, max_size=2).map(tuple),
    membership=st.lists(memberships, max_size=3).map(tuple),
)


def to_protobuf(frame: Frame) -> radius_pb2.Frame:
    """Build the generated class from our values."""
    import struct

    built = radius_pb2.Frame()
    for spread in frame.interests:
        added = built.interests.add(hops=spread.hops, distance=spread.distance)
        word = spread.interest
        added.interest.SetInParent()
        for name in ("owner", "topic", "sequence", "expires", "withdrawn", "signature", "key"):
            setattr(added.interest, name, getattr(word, name))
        added.interest.addresses.extend(word.addresses)
    for relay in frame.publications:
        copy = built.publications.add(hops=relay.hops, served=relay.served)
        copy.publication.SetInParent()
        _fill(copy.publication, relay.publication)
    for publication in frame.direct:
        _fill(built.direct.add(), publication)
    for message in frame.membership:
        minima = struct.pack(f"<{len(message.minima)}f", *message.minima)
        values: dict[str, Any] = {
            name: getattr(message, name) for name in ("kind", "hops", "yes", "number", "epoch")
        }
        member = built.membership.add(minima=minima, **values)
        for info in message.peers:
            member.peers.add(peer=info.peer, addresses=info.addresses)
    return built


def _fill(built: radius_pb2.Publication, publication: Publication) -> None:
    for name in ("author", "topic", "time", "data", "signature", "key"):
        setattr(built, name, getattr(publication, name))


def without_caches(frame: Frame) -> Frame:
    """A frame equal to another one, whatever was computed from either."""
    return Frame(
        tuple(Spread(_bare_interest(s.interest), s.hops, s.distance) for s in frame.interests),
        tuple(
            Relay(_bare_publication(r.publication), r.hops, r.served) for r in frame.publications
        ),
        tuple(map(_bare_publication, frame.direct)),
        frame.membership,
    )


def _bare_interest(word: Interest) -> Interest:
    return Interest(
        word.owner,
        word.topic,
        word.sequence,
        word.expires,
        word.withdrawn,
        word.addresses,
        word.signature,
        word.key,
    )


def _bare_publication(word: Publication) -> Publication:
    return Publication(word.author, word.topic, word.time, word.data, word.signature, word.key)
