"""What our RPC codec costs beside the protobuf library (upb), on one signed message of 1 KiB.

Both sides do the same work. Decoding goes from an RPC's bytes to our `Message` with every field
read; encoding goes from our `Message` to an RPC's bytes. A ratio under 1 means that ours is faster.

    python bench/codec.py
"""

import os
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from oracles import rpc_pb2
from rumormill.protocols.pubsub.codec import decode_rpc, encode_message, encode_rpc
from rumormill.protocols.pubsub.messages import Control, IHave, Message, Rpc

REPEATS, LOOPS = 60, 4000

MESSAGE = Message(
    topic="blocks/mainnet",
    data=os.urandom(1024),
    author=b"\x00\x24\x08\x01\x12\x20" + os.urandom(32),
    seqno=os.urandom(8),
    signature=os.urandom(64),
)
WIRE = encode_rpc(Rpc(publish=(msgspec.structs.replace(MESSAGE),)))
ENCODED = encode_message(msgspec.structs.replace(MESSAGE))


def upb_decode() -> Rpc:
    parsed = rpc_pb2.RPC.FromString(WIRE)
    return Rpc(
        publish=tuple(
            [
                Message(
                    message.topic,
                    message.data,
                    getattr(message, "from"),
                    message.seqno,
                    message.signature,
                    message.key,
                )
                for message in parsed.publish
            ]
        )
    )


def our_decode() -> Rpc:
    return decode_rpc(WIRE)


def upb_encode() -> bytes:
    rpc = rpc_pb2.RPC()
    message = rpc.publish.add()
    setattr(message, "from", MESSAGE.author)
    message.data = MESSAGE.data
    message.seqno = MESSAGE.seqno
    message.topic = MESSAGE.topic
    message.signature = MESSAGE.signature
    return rpc.SerializeToString()


OUTGOING = Rpc(publish=(MESSAGE,))
FORWARDED = Rpc(publish=(msgspec.structs.replace(MESSAGE, encoded=ENCODED),))


def our_encode() -> bytes:
    MESSAGE.encoded = b""
    return encode_rpc(OUTGOING)


def our_forward() -> bytes:
    return encode_rpc(FORWARDED)


IDS = tuple(os.urandom(46) for _ in range(5000))
IHAVE = encode_rpc(Rpc(control=Control(ihave=(IHave("blocks/mainnet", IDS),))))


def upb_ihave() -> Rpc:
    parsed = rpc_pb2.RPC.FromString(IHAVE)
    lists = [IHave(ihave.topicID, tuple(ihave.messageIDs)) for ihave in parsed.control.ihave]
    return Rpc(control=Control(ihave=tuple(lists)))


def our_ihave() -> Rpc:
    return decode_rpc(IHAVE)


def microseconds(calls: tuple[Callable[[], object], ...], loops: int) -> list[float]:
    """Best time of each call; they take turns, so that a busy machine slows all of them."""
    rounds = [[timeit.timeit(call, number=loops) for call in calls] for _ in range(REPEATS)]
    return [min(times) / loops * 1e6 for times in zip(*rounds, strict=True)]


def main() -> None:
    assert upb_encode() == our_encode() == our_forward() == WIRE
    assert upb_ihave() == our_ihave()
    rows = (
        ("decode, 1 signed message of 1 KiB", our_decode, upb_decode, LOOPS),
        ("encode, the same, first time", our_encode, upb_encode, LOOPS),
        ("encode, the same, forwarded", our_forward, upb_encode, LOOPS),
        ("decode, IHAVE of 5000 ids", our_ihave, upb_ihave, 20),
    )
    print(f"{'':36}{'ours µs':>10}{'upb µs':>10}{'ratio':>8}")
    for name, ours, theirs, loops in rows:
        mine, other = microseconds((ours, theirs), loops)
        print(f"{name:36}{mine:10.2f}{other:10.2f}{mine / other:8.2f}")


if __name__ == "__main__":
    main()
