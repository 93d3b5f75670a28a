"""One value of every message that our own protocols put on the wire, by protocol and name.

`*.vectors.json` beside each `.proto` have their bytes. Whoever adds a message adds a value here;
those that are here stay as they are, because their bytes are what others rely on.
"""

from pathlib import Path
from typing import Any, NamedTuple

from oracles import kad_pb2, radius_pb2, rpc_pb2, skipring_pb2, sync_pb2
from rumormill.core.history import BEGIN, END, Key, Window
from rumormill.members.peer import MEMBERS_PROTOCOL, topic_key
from rumormill.node.identity import NodeIdentity
from rumormill.overlay.hyparview.messages import Kind, Membership, PeerInfo
from rumormill.overlay.kademlia.messages import (
    CAN_CONNECT,
    KadMessage,
    KadPeer,
    KadType,
    decode_kad,
    encode_kad,
)
from rumormill.overlay.patricia import Prefix, Summary
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_3
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc
from rumormill.protocols.pubsub.messages import Control, Rpc
from rumormill.protocols.pubsub.trunk_part import (
    ANSWER,
    CALL,
    Past,
    TrunkPart,
    key_of,
    mark_of,
    tag_of,
)
from rumormill.protocols.pubsub.trunk_part import Probe as TrunkProbe
from rumormill.protocols.radius import messages as radius
from rumormill.protocols.radius.router import RADIUS
from rumormill.protocols.skipring import messages as ring
from rumormill.protocols.skipring.envelope import Author
from rumormill.protocols.skipring.labels import label_of
from rumormill.protocols.skipring.spec import SKIPRING
from rumormill.sync import messages as sync
from rumormill.sync.messages import SYNC_PROTOCOL, SyncMessage
from rumormill.wire.keys import PrivateKey

SOURCE = Path(__file__).parents[1] / "src" / "rumormill"
SEED = bytes(range(32))
"""The seed of the key that has signed what is signed here."""
IDENTITY = NodeIdentity(PrivateKey(SEED))
PEER = IDENTITY.peer
OTHER = NodeIdentity(PrivateKey(bytes(32))).peer
ADDRESS = bytes.fromhex("047f00000106 0fa1")  # /ip4/127.0.0.1/tcp/4001
NOW = 1_700_000_000

SALT, TAG, HASH = b"0123456789abcdef", b"newstag!", b"hash66"
KEY = Key(NOW * 1_000_000, b"author\0\0")
SYNC = {
    "PROBE": sync.Probe(
        SALT,
        5,
        6,
        (
            sync.ProbedTopic(TAG, HASH, Window()),
            sync.ProbedTopic(TAG, HASH, Window(77, False, False)),
        ),
    ),
    "VERDICT": sync.Verdict(
        (sync.Difference(1, 300, (sync.Span(KEY, HASH), sync.Span(END))),), (0, 3)
    ),
    "COMPARE": sync.Compare(
        SALT, TAG, BEGIN, (sync.Span(KEY), sync.Span(Key(KEY.stamp, b"z"), HASH))
    ),
    "COMPARED": sync.Compared((sync.Span(KEY, HASH),), KEY),
    "COMPARED NOTHING": sync.Compared(),
    "FETCH": sync.Fetch(
        SALT, TAG, (sync.Wanted(BEGIN, KEY), sync.Wanted(KEY, END, b"short1short2"))
    ),
    "EVENTS": sync.Events((sync.SentEvent(b"author", b"id", b"data", b"proof"),), KEY, 1),
    "OFFER": sync.Offer((TAG,)),
    "CONFIRM": sync.Confirm(TAG, (b"one", b"two")),
    "CONFIRMED": sync.Confirmed((0, 63)),
}

AUTHOR = bytes.fromhex("00240801122012") + bytes(range(31))
SOURCE_TAG = tag_of("news", AUTHOR)
NAME = SOURCE_TAG + mark_of(bytes.fromhex("17979cfe362a0001"))
NEXT = SOURCE_TAG + mark_of(bytes.fromhex("17979cfe362a0002"))
ELSE = tag_of("news", b"\0\1\2") + bytes(4)
TRUNK = {
    "offer": Rpc(control=Control(offers_trunk=True)),
    "have one": Rpc(control=Control(trunk=TrunkPart(have=(NAME,)))),
    "have three of two sources": Rpc(control=Control(trunk=TrunkPart(have=(NAME, NEXT, ELSE)))),
    "want and unchoke": Rpc(
        control=Control(trunk=TrunkPart(want=(key_of(NAME),), unchoke=(SOURCE_TAG,)))
    ),
    "choke": Rpc(control=Control(trunk=TrunkPart(choke=(SOURCE_TAG,)))),
    "probe": Rpc(control=Control(trunk=TrunkPart(probes=(TrunkProbe("news", AUTHOR, 7),)))),
    "call": Rpc(control=Control(trunk=TrunkPart(echo=CALL))),
    "answer": Rpc(control=Control(trunk=TrunkPart(echo=ANSWER))),
    "gossip": Rpc(control=Control(trunk=TrunkPart(gossip=(key_of(NAME), key_of(ELSE))))),
    "past": Rpc(
        control=Control(trunk=TrunkPart(past=(Past("news", (NEXT, ELSE), (12.5, 600.0)),)))
    ),
}


def _skipring() -> dict[str, ring.Letter]:
    author = Author(IDENTITY)
    author.start(NOW)
    said = author.compose("news", b"hello", NOW)
    mine = ring.Reference(label_of(0), PEER, (ADDRESS,))
    other = ring.Reference(label_of(5), OTHER)
    node = Summary(Prefix(b"\xa0", 3), bytes(range(32)))
    want = ring.Want(Prefix(b"\xa0", 3), bytes(range(32)))
    return {
        "subscribe": ring.Subscribe("news", (ADDRESS,)),
        "unsubscribe": ring.Unsubscribe("news"),
        "get configuration": ring.GetConfiguration("news", OTHER, (ADDRESS,)),
        "acknowledge": ring.Acknowledge("news"),
        "set data": ring.SetData("news", other, label_of(1), mine),
        "set no data": ring.SetData("news", None, None, None),
        "check": ring.Check("news", mine, label_of(5), ring.Flag.CYC),
        "introduce": ring.Introduce("news", other, ring.Flag.LIN),
        "linearize": ring.Linearize("news", other),
        "remove connections": ring.RemoveConnections("news"),
        "introduce shortcut": ring.IntroduceShortcut("news", other, label_of(2)),
        "check trie": ring.CheckTrie("news", (node, Summary(Prefix(b"", 0), bytes(32)))),
        "check and publish": ring.CheckAndPublish("news", (node,), (want,)),
        "publish": ring.PublishBundle("news", (said,), (ring.Want(Prefix(b"", 0)),)),
        "publish new": ring.PublishNew("news", said),
        "token": ring.Token(
            "news", 7, 3, 2, mine, other, label_of(2), (label_of(1), label_of(6)), True, True
        ),
        "token, back": ring.Token("news", 7, 3, 3, mine, other, back=True),
    }


def _radius() -> dict[str, radius.Frame]:
    sub = radius.Interest(PEER, "news", NOW * 1_000_000, (NOW + 30) * 1_000_000, False, (ADDRESS,))
    unsub = radius.Interest(PEER, "news", NOW * 1_000_000 + 1, (NOW + 30) * 1_000_000, True)
    said = radius.Publication(PEER, "news", NOW * 10**9, b"hello")
    for word in (sub, unsub, said):
        radius.sign(word, IDENTITY)
    mine, other = PeerInfo(PEER, (ADDRESS,)), PeerInfo(OTHER)
    members = {
        "join": Membership(Kind.JOIN, peers=(mine,)),
        "forward join": Membership(Kind.FORWARD_JOIN, hops=5, peers=(mine,)),
        "neighbor": Membership(Kind.NEIGHBOR, yes=True),
        "neighbor reply": Membership(Kind.NEIGHBOR_REPLY, peers=(other,)),
        "disconnect": Membership(Kind.DISCONNECT),
        "shuffle": Membership(Kind.SHUFFLE, hops=5, number=9, peers=(mine, other)),
        "shuffle reply": Membership(Kind.SHUFFLE_REPLY, number=9, peers=(other,)),
        "beat": Membership(Kind.BEAT, epoch=28_333_333, minima=(0.5, 0.25)),
    }
    return {
        "sub": radius.Frame(interests=(radius.Spread(sub, 3),)),
        "unsub": radius.Frame(interests=(radius.Spread(unsub, 3),)),
        "pub": radius.Frame(publications=(radius.Relay(said, 3, bytes(range(16))),)),
        "directmsg": radius.Frame(direct=(said,)),
        **{name: radius.Frame(membership=(each,)) for name, each in members.items()},
    }


_TOPIC_KEY = topic_key("news")
MEMBERS = {
    "find node": KadMessage(KadType.FIND_NODE, PEER),
    "found nodes": KadMessage(
        KadType.FIND_NODE, PEER, closer=(KadPeer(OTHER, (ADDRESS,), CAN_CONNECT),)
    ),
    "add provider": KadMessage(
        KadType.ADD_PROVIDER, _TOPIC_KEY, providers=(KadPeer(PEER, (ADDRESS,)),)
    ),
    "get providers": KadMessage(KadType.GET_PROVIDERS, _TOPIC_KEY, brief=True),
    "ping": KadMessage(KadType.PING),
}


class Wire(NamedTuple):
    """A protocol: its id, the schema's folder, name and class, its codec, and the values."""

    protocol: str
    folder: str
    name: str
    oracle: Any
    encode: Any
    decode: Any
    values: dict[str, Any]

    @property
    def file(self) -> Path:
        """Where its vectors are."""
        return SOURCE / self.folder / f"{self.name}.vectors.json"


WIRES = (
    Wire(
        SYNC_PROTOCOL,
        "sync",
        "sync",
        sync_pb2.SyncMessage,
        lambda body: sync.encode_sync(SyncMessage(body)),
        lambda data: sync.decode_sync(data).body,
        SYNC,
    ),
    Wire(
        SKIPRING,
        "protocols/skipring",
        "skipring",
        skipring_pb2.Letter,
        ring.encode_letter,
        ring.decode_letter,
        _skipring(),
    ),
    Wire(
        RADIUS,
        "protocols/radius",
        "radius",
        radius_pb2.Frame,
        radius.encode_frame,
        radius.decode_frame,
        _radius(),
    ),
    Wire(GOSSIPSUB_1_3, "protocols/pubsub", "trunk", rpc_pb2.RPC, encode_rpc, decode_rpc, TRUNK),
    Wire(
        MEMBERS_PROTOCOL,
        "overlay/kademlia",
        "members",
        kad_pb2.Message,
        encode_kad,
        decode_kad,
        MEMBERS,
    ),
)
