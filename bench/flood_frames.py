"""What the attackers of `floods.py` send: chunks of whole frames, made once."""

import itertools
import random
import secrets
import struct
import time
from collections.abc import Callable, Iterator
from hashlib import sha256

from rumormill.core.history import BEGIN, END, Key, Window, topic_tag
from rumormill.daemon import control_messages
from rumormill.overlay.kademlia.messages import (
    KAD_PROTOCOL,
    KadMessage,
    KadPeer,
    KadType,
    Record,
    encode_kad,
)
from rumormill.overlay.kademlia.validators import CID_PREFIX, content_key
from rumormill.protocols.pubsub.codec import encode_rpc, signing_payload
from rumormill.protocols.pubsub.messages import Control, IHave, Message, Prune, Rpc, SubOpts
from rumormill.protocols.pubsub.trunk_part import CALL, Past, Probe, TrunkPart
from rumormill.protocols.registry import protocol
from rumormill.sync.messages import (
    MAX_CONFIRMED,
    MAX_SPANS,
    MAX_TOPICS,
    MAX_WANTED,
    SYNC_PROTOCOL,
    Body,
    Compare,
    Confirm,
    Fetch,
    Offer,
    ProbedTopic,
    Span,
    SyncMessage,
    Wanted,
    encode_sync,
)
from rumormill.sync.messages import (
    Probe as SyncProbe,
)
from rumormill.wire.envelope import encode_envelope
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey
from rumormill.wire.protobuf import varint

TOPIC = "honest"
OLD, CLOSED, SECRET, ASKED, PATTERN = "old", "closed", "secret", "asked", "swarm/#"
"""Topics of the node under attack: one with a history, one with a policy, an encrypted one, one in
which it replies to requests; and a pattern that it follows."""
CHUNK = 64 << 10


def rpcs(*made: Rpc) -> bytes:
    return b"".join(frame(encode_rpc(each)) for each in made)


def forged(number: int) -> Message:
    """A message of a made-up author with a signature that is none."""
    author = bytes(PrivateKey(struct.pack(">Q", number).rjust(32, b"f")).peer_id)
    return Message(TOPIC, b"x" * 100, author, struct.pack(">Q", number), secrets.token_bytes(64))


def signed(key: PrivateKey, number: int, topic: str = TOPIC, data: bytes = b"spam" * 64) -> Message:
    """A message that is in order, of an author that has too much to say."""
    seqno = struct.pack(">Q", time.time_ns() + number)
    bare = Message(topic, data, bytes(key.peer_id), seqno)
    return Message(topic, data, bare.author, seqno, key.sign(signing_payload(bare)))


def spoken(key: PrivateKey, topic: str, count: int, data: bytes = b"spam" * 64) -> bytes:
    """So many messages that are all different and in order."""
    return rpcs(*(Rpc(publish=(signed(key, number, topic, data),)) for number in range(count)))


def request(number: int) -> bytes:
    """A request whose replies are wanted in a topic that nobody has heard of."""
    return encode_envelope(
        b"", headers={"reply-to": f"replies/{number}", "correlation-id": str(number)}
    )


def requests(key: PrivateKey, count: int) -> bytes:
    made = (signed(key, number, ASKED, request(number)) for number in range(count))
    return rpcs(*(Rpc(publish=(each,)) for each in made))


def ids(count: int) -> tuple[bytes, ...]:
    return tuple(secrets.token_bytes(40) for _ in range(count))


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def junk_of(name: str) -> bytes:
    spec = protocol(name)
    source = random.Random(7)
    made = (spec.junk(source, [secrets.token_bytes(38)], [TOPIC]) for _ in range(400))  # type: ignore[arg-type]
    return b"".join(frame(spec.encode(each)) for each in made)


def trunk(*parts: TrunkPart) -> bytes:
    """RPCs of our extension, behind the word that the sender speaks it."""
    said = (Rpc(control=Control(trunk=part)) for part in parts)
    return rpcs(Rpc(control=Control(offers_trunk=True)), *said)


def names(count: int, size: int) -> tuple[bytes, ...]:
    return tuple(secrets.token_bytes(size) for _ in range(count))


TRUNK_FLOODS: dict[str, Callable[[PrivateKey], bytes]] = {
    "trunk have": lambda _: trunk(*(TrunkPart(have=names(200, 8)) for _ in range(40))),
    "trunk want": lambda _: trunk(*(TrunkPart(want=names(200, 4)) for _ in range(80))),
    "trunk choke": lambda _: trunk(
        *(TrunkPart(choke=(tags := names(100, 4)), unchoke=tags) for _ in range(80))
    ),
    "trunk probes": lambda _: trunk(
        *(
            TrunkPart(probes=(Probe(TOPIC, secrets.token_bytes(38), number),))
            for number in range(1000)
        )
    ),
    "trunk echoes": lambda _: trunk(*(TrunkPart(echo=CALL) for _ in range(3000))),
    "trunk gossip": lambda _: trunk(*(TrunkPart(gossip=names(200, 4)) for _ in range(80))),
    "trunk pasts": lambda _: trunk(
        *(TrunkPart(past=(Past(TOPIC, names(200, 8), (9.0,) * 200),)) for _ in range(80))
    ),
    "extensions again": lambda _: rpcs(Rpc(control=Control(offers_trunk=True))) * 3000,
}
"""What our extension of GossipSub 1.3 says."""

PUBSUB_FLOODS: dict[str, Callable[[PrivateKey], bytes]] = {
    "empty RPCs": lambda _: b"\0" * CHUNK,
    "undecodable RPCs": lambda _: frame(b"\xff" * 20) * 2000,
    "GRAFT": lambda _: rpcs(*(Rpc(control=Control(graft=(TOPIC,))) for _ in range(2000))),
    "SUBSCRIBE": lambda _: rpcs(
        *(Rpc(subscriptions=(SubOpts(True, f"t{number}"),)) for number in range(3000))
    ),
    "on and off": lambda _: rpcs(
        *(Rpc(subscriptions=(SubOpts(bool(number % 2), TOPIC),)) for number in range(3000))
    ),
    "IHAVE": lambda _: rpcs(
        *(Rpc(control=Control(ihave=(IHave(TOPIC, ids(20)),))) for _ in range(100))
    ),
    "IWANT": lambda _: rpcs(*(Rpc(control=Control(iwant=ids(20))) for _ in range(100))),
    "IDONTWANT": lambda _: rpcs(*(Rpc(control=Control(idontwant=ids(20))) for _ in range(100))),
    "forged messages": lambda _: rpcs(*(Rpc(publish=(forged(n),)) for n in range(300))),
    "one message again": lambda key: rpcs(Rpc(publish=(signed(key, 0),))) * 300,
    "long IHAVE": lambda _: rpcs(Rpc(control=Control(ihave=(IHave(TOPIC, ids(20_000)),)))),
    "one subscription again": lambda _: rpcs(Rpc(subscriptions=(SubOpts(True, TOPIC),) * 5000)),
    "unknown fields": lambda _: frame(field(1000, bytes(1_000_000))),
    "PRUNE": lambda _: rpcs(
        *(Rpc(control=Control(prune=(Prune(TOPIC, (), 2**40),))) for _ in range(2000))
    ),
    **TRUNK_FLOODS,
}
JUNK_FLOODS = {f"{name} junk": name for name in ("floodsub", "pulsarcast", "radius", "skipring")}


def yamux(kind: int, flags: int, stream: int, length: int = 0) -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, stream, length)


def syn_rst() -> Iterator[bytes]:
    for start in itertools.count(1001, 4000):
        odd = range(start, start + 4000, 2)
        yield b"".join(yamux(1, 1, each) + yamux(1, 8, each) for each in odd)


YAMUX_FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "yamux SYN and RST": syn_rst,
    "yamux pings": lambda: itertools.repeat(yamux(2, 1, 0, 7) * 4000),
    "yamux window updates": lambda: itertools.repeat(yamux(1, 0, 1, 0) * 4000),
    "yamux empty data": lambda: itertools.repeat(yamux(0, 0, 1, 0) * 4000),
}


def websocket(opcode: int, data: bytes = b"", *, fin: bool = True) -> bytes:
    """A frame of one who dials, whose mask changes nothing."""
    return bytes((fin << 7 | opcode, 0x80 | len(data))) + bytes(4) + data


WEBSOCKET_FLOODS = {
    "WebSocket pings": websocket(9) * 40_000,
    "long WebSocket pings": websocket(9, bytes(125)) * 2000,
    "WebSocket pongs": websocket(10) * 40_000,
    "WebSocket fragments": websocket(2, fin=False) + websocket(0, fin=False) * 40_000,
    "WebSocket junk": b"\xff" * CHUNK,
}


ACCESS_FLOODS: dict[str, Callable[[PrivateKey], bytes]] = {
    "not a publisher": lambda key: spoken(key, CLOSED, 1000),
    "in clear": lambda key: spoken(key, SECRET, 1000),
    "requests": lambda key: requests(key, 300),
    "topics of a pattern": lambda _: rpcs(
        *(Rpc(subscriptions=(SubOpts(True, f"swarm/{number}"),)) for number in range(3000))
    ),
}
"""What is in order, but for what the node under attack has set: a policy, a key, replies to
requests, a pattern that it follows."""


def kad(kind: KadType, key: bytes, value: bytes = b"", provider: bytes = b"") -> bytes:
    record = Record(key, value) if value else None
    providers = (KadPeer(provider),) if provider else ()
    return frame(encode_kad(KadMessage(kind, key, record, (), providers)))


def value(number: int) -> bytes:
    """A value that is as it should be, under its key."""
    data = struct.pack(">Q", number) + secrets.token_bytes(192)
    return kad(KadType.PUT_VALUE, content_key(CID_PREFIX + sha256(data).digest()), data)


def multihash() -> bytes:
    return b"\x12\x20" + secrets.token_bytes(32)


def sync(body: Body) -> bytes:
    return frame(encode_sync(SyncMessage(body)))


def salt() -> bytes:
    return secrets.token_bytes(16)


def probe() -> bytes:
    now = time.time_ns() // 1000
    probed = [
        ProbedTopic(topic_tag(topic), secrets.token_bytes(6), Window(1, True, True))
        for topic in (OLD, TOPIC, *map(str, range(MAX_TOPICS - 2)))
    ]
    return sync(SyncProbe(salt(), now, now + 60_000_000, tuple(probed)))


def comparison() -> bytes:
    """As many ranges of a history as there may be in one question, of which none agrees."""
    now = time.time_ns() // 1000
    step = 600_000_000 // MAX_SPANS
    spans = [
        Span(Key(now - (MAX_SPANS - number) * step, b""), secrets.token_bytes(6))
        for number in range(MAX_SPANS)
    ]
    return sync(Compare(salt(), topic_tag(OLD), BEGIN, tuple(spans)))


def fetch() -> bytes:
    return sync(Fetch(salt(), topic_tag(OLD), (Wanted(BEGIN, END),) * MAX_WANTED))


QUESTION_FLOODS: dict[str, tuple[str, Callable[[PrivateKey], bytes]]] = {
    "DHT values": (KAD_PROTOCOL, lambda _: b"".join(map(value, range(1000)))),
    "DHT providers": (
        KAD_PROTOCOL,
        lambda key: b"".join(
            kad(KadType.ADD_PROVIDER, multihash(), b"", bytes(key.peer_id)) for _ in range(1000)
        ),
    ),
    "DHT lookups": (
        KAD_PROTOCOL,
        lambda _: b"".join(
            kad(kind, secrets.token_bytes(38))
            for kind in (KadType.FIND_NODE, KadType.GET_VALUE, KadType.GET_PROVIDERS)
            for _ in range(300)
        ),
    ),
    "sync probes": (SYNC_PROTOCOL, lambda _: b"".join(probe() for _ in range(50))),
    "sync comparisons": (SYNC_PROTOCOL, lambda _: b"".join(comparison() for _ in range(50))),
    "sync fetches": (SYNC_PROTOCOL, lambda _: b"".join(fetch() for _ in range(200))),
    "sync offers": (
        SYNC_PROTOCOL,
        lambda _: sync(Offer((*names(MAX_TOPICS - 1, 8), topic_tag(TOPIC)))) * 200,
    ),
    "sync confirmations": (
        SYNC_PROTOCOL,
        lambda _: b"".join(
            sync(Confirm(topic_tag(TOPIC), names(MAX_CONFIRMED, 46))) for _ in range(100)
        ),
    ),
}
"""Questions that are as they should be, one after the other on one stream."""

CONTROL_FLOOD = control_messages.encode(control_messages.ListPeers()) * 500
"""What a program of the same user asks of the control socket."""
