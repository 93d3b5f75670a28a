"""Arbitrary RPCs, and the same values in the classes that protoc generates."""

from hypothesis import strategies as st

from oracles import rpc_pb2
from rumormill.protocols.pubsub.messages import (
    Control,
    IHave,
    Message,
    PeerInfo,
    Prune,
    Rpc,
    SubOpts,
)

# Lengths around 127 and 16383 are where a length prefix grows by a byte.
short_bytes = st.binary(max_size=24)
long_bytes = st.one_of(
    short_bytes, st.sampled_from([126, 127, 128, 129, 16382, 16383, 16384]).map(bytes)
)
topics = st.one_of(st.text(max_size=12), st.sampled_from(["", "blocks", "t" * 127, "ü" * 64]))
message_ids = st.lists(short_bytes, max_size=6).map(tuple)
uniform_ids = st.integers(0, 40).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=8).map(tuple)
)
id_lists = st.one_of(message_ids, uniform_ids)

messages = st.builds(
    Message,
    topic=topics,
    data=long_bytes,
    author=short_bytes,
    seqno=short_bytes,
    signature=short_bytes,
    key=long_bytes.filter(lambda key: len(key) <= 2048),
)
subscriptions = st.builds(SubOpts, subscribe=st.booleans(), topic=topics)
prunes = st.builds(
    Prune,
    topic=topics,
    peers=st.lists(st.builds(PeerInfo, peer=short_bytes, record=short_bytes), max_size=3).map(
        tuple
    ),
    backoff=st.one_of(st.integers(0, 200), st.integers(0, 2**64 - 1)),
)
controls = st.builds(
    Control,
    ihave=st.lists(st.builds(IHave, topic=topics, message_ids=id_lists), max_size=3).map(tuple),
    iwant=id_lists,
    graft=st.lists(topics, max_size=3).map(tuple),
    prune=st.lists(prunes, max_size=3).map(tuple),
    idontwant=id_lists,
)
rpcs = st.builds(
    Rpc,
    subscriptions=st.lists(subscriptions, max_size=4).map(tuple),
    publish=st.lists(messages, max_size=4).map(tuple),
    control=st.one_of(st.none(), controls),
)


def to_protobuf(rpc: Rpc) -> rpc_pb2.RPC:
    """Build the generated class from our values; empty values of a message stay absent."""
    built = rpc_pb2.RPC()
    for sub in rpc.subscriptions:
        built.subscriptions.add(subscribe=sub.subscribe, topicid=sub.topic)
    for message in rpc.publish:
        values = {
            "from": message.author,
            "data": message.data,
            "seqno": message.seqno,
            "topic": message.topic,
            "signature": message.signature,
            "key": message.key,
        }
        built.publish.add(**{name: value for name, value in values.items() if value})
    if rpc.control is not None:
        built.control.SetInParent()
        _fill_control(built.control, rpc.control)
    return built


def _fill_control(built: rpc_pb2.ControlMessage, control: Control) -> None:
    for ihave in control.ihave:
        built.ihave.add(topicID=ihave.topic, messageIDs=ihave.message_ids)
    if control.iwant:
        built.iwant.add(messageIDs=control.iwant)
    for topic in control.graft:
        built.graft.add(topicID=topic)
    for prune in control.prune:
        entry = built.prune.add(topicID=prune.topic)
        for info in prune.peers:
            peer = entry.peers.add(peerID=info.peer)
            if info.record:
                peer.signedPeerRecord = info.record
        if prune.backoff:
            entry.backoff = prune.backoff
    if control.idontwant:
        built.idontwant.add(messageIDs=control.idontwant)


def from_protobuf(parsed: rpc_pb2.RPC) -> Rpc:
    """Read every field of the generated class into our values."""
    control = None
    if parsed.HasField("control"):
        found = parsed.control
        control = Control(
            ihave=tuple(IHave(ihave.topicID, tuple(ihave.messageIDs)) for ihave in found.ihave),
            iwant=tuple(each for iwant in found.iwant for each in iwant.messageIDs),
            graft=tuple(graft.topicID for graft in found.graft),
            prune=tuple(
                Prune(
                    prune.topicID,
                    tuple(PeerInfo(info.peerID, info.signedPeerRecord) for info in prune.peers),
                    prune.backoff,
                )
                for prune in found.prune
            ),
            idontwant=tuple(each for idont in found.idontwant for each in idont.messageIDs),
        )
    return Rpc(
        subscriptions=tuple(SubOpts(sub.subscribe, sub.topicid) for sub in parsed.subscriptions),
        publish=tuple(
            Message(
                topic=message.topic,
                data=message.data,
                author=getattr(message, "from"),
                seqno=message.seqno,
                signature=message.signature,
                key=message.key,
            )
            for message in parsed.publish
        ),
        control=control,
    )


def without_caches(rpc: Rpc) -> Rpc:
    """The same RPC with nothing but its values: no kept bytes, no ids, no trace metadata."""
    bare = tuple(
        Message(
            message.topic,
            message.data,
            message.author,
            message.seqno,
            message.signature,
            message.key,
        )
        for message in rpc.publish
    )
    return Rpc(rpc.subscriptions, bare, rpc.control)
