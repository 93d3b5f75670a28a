"""The targets of `tools/fuzz.py` work, and hold for arbitrary and for nearly right bytes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.libp2p.envelope import seal_peer_record
from rumormill.libp2p.identify import Identify
from rumormill.libp2p.multistream import encode_line
from rumormill.libp2p.pnet import PrivateNetwork
from rumormill.libp2p.yamux import YamuxSession
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.messages import Control, IHave, Message, Rpc, SubOpts
from rumormill.protocols.radius.messages import (
    Frame,
    Interest,
    Publication,
    Relay,
    Spread,
    encode_frame,
)
from rumormill.wire.frames import FrameReader, frame
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr


def load() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "tools" / "fuzz_targets.py"
    spec = importlib.util.spec_from_file_location("fuzz_targets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz = load()
key = PrivateKey(bytes(32))
address = Multiaddr.tcp("127.0.0.1", 4001, key.peer_id).encode()
private = PrivateNetwork(bytes(32)).session(b"n" * 24, outbound=True)
session = YamuxSession(client=True)
session.send(session.open_stream(), b"hello")
RIGHT = {
    "pnet": b"\x40" + private.encrypt(encode_line("/multistream/1.0.0")),
    "multistream": b"\x05" + encode_line("/multistream/1.0.0") + encode_line("/noise"),
    "noise": b"\x20" + b"\x00\x20" + b"\x09" + bytes(31),
    "yamux": b"\x20" + session.data_to_send(),
    "identify": FrameReader(1000).feed(
        Identify(public_key=key.public_key.encoded, listen_addresses=(address,)).encode()
    )[0],
    "pubsub": encode_rpc(
        Rpc(
            (SubOpts(True, "t"),),
            (Message("t", b"data", b"author", b"seqno", b"signature"),),
            Control(ihave=(IHave("t", (b"id",)),), graft=("t",)),
        )
    ),
    "radius": encode_frame(
        Frame(
            interests=(Spread(Interest(b"owner", "t", 1, 2, signature=b"signature"), 3),),
            publications=(Relay(Publication(b"author", "t", 4, b"data", b"signature"), 2),),
        )
    ),
    "frames": b"\x01" + frame(b"a") + frame(bytes(200)),
    "envelope": seal_peer_record(key, 1, [address]),
    "keys": key.public_key.encoded,
    "multiaddr": address,
}
"""Bytes that a peer might really send to each target."""


def test_every_target_has_an_example_that_it_reads() -> None:
    """And reads it to the end: nothing is refused, so the fuzzer starts on the right path."""
    assert RIGHT.keys() == fuzz.TARGETS.keys()
    for name, data in RIGHT.items():
        fuzz.TARGETS[name](data)


@pytest.mark.parametrize("name", RIGHT)
@given(data=st.data())
def test_a_target_refuses_in_order_or_reads(name: str, data: st.DataObject) -> None:
    """Random bytes, and right ones with a few changed: never another exception."""
    right = bytearray(RIGHT[name])
    for _ in range(data.draw(st.integers(0, 3))):
        right[data.draw(st.integers(0, len(right) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(right)))
    for tried in (bytes(right), bytes(right[:cut]), data.draw(st.binary(max_size=100))):
        fuzz.tried(fuzz.TARGETS[name], tried)
