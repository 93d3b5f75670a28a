"""What the attackers of `floods.py` send: chunks of whole frames, made once."""

import itertools
import random
import secrets
import struct
import time
from collections.abc import Callable, Iterator

from rumormill.protocols.pubsub.codec import encode_rpc, signing_payload
from rumormill.protocols.pubsub.messages import Control, IHave, Message, Prune, Rpc, SubOpts
from rumormill.protocols.pubsub.trunk_part import CALL, Probe, TrunkPart
from rumormill.protocols.registry import protocol
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey

TOPIC = "honest"
CHUNK = 64 << 10


def rpcs(*made: Rpc) -> bytes:
    return b"".join(frame(encode_rpc(each)) for each in made)


def forged(number: int) -> Message:
    """A message of a made-up author with a signature that is none."""
    author = bytes(PrivateKey(struct.pack(">Q", number).rjust(32, b"f")).peer_id)
    return Message(TOPIC, b"x" * 100, author, struct.pack(">Q", number), secrets.token_bytes(64))


def signed(key: PrivateKey, number: int) -> Message:
    """A message that is in order, of an author that has too much to say."""
    seqno = struct.pack(">Q", time.time_ns() + number)
    bare = Message(TOPIC, b"spam" * 64, bytes(key.peer_id), seqno)
    return Message(TOPIC, bare.data, bare.author, seqno, key.sign(signing_payload(bare)))


def ids(count: int) -> tuple[bytes, ...]:
    return tuple(secrets.token_bytes(40) for _ in range(count))


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
    "trunk topics": lambda _: trunk(*(TrunkPart(opened=(TOPIC,)) for _ in range(3000))),
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
