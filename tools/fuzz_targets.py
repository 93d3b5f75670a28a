"""What `tools/fuzz.py` feeds: one function for each decoder of bytes that peers send.

The rule that each checks: whatever the bytes are, they are read, or refused with a `PeerError`.
"""

from collections.abc import Callable

from rumormill.core.errors import PeerError
from rumormill.libp2p.envelope import unseal_peer_record
from rumormill.libp2p.identify import Identify
from rumormill.libp2p.multistream import Initiator, Listener
from rumormill.libp2p.noise import NoiseHandshake, NoiseSession
from rumormill.libp2p.pnet import PrivateNetwork
from rumormill.libp2p.yamux import YamuxSession
from rumormill.libp2p.yamux_types import DataReceived
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc, proof_of, signing_payload
from rumormill.protocols.radius.messages import decode_frame, encode_frame
from rumormill.wire.frames import FrameReader
from rumormill.wire.keys import PeerId, PrivateKey, PublicKey
from rumormill.wire.multiaddr import Multiaddr

KEY = PrivateKey(bytes(32))
PROTOCOLS = ("/noise", "/yamux/1.0.0", "/meshsub/1.2.0")


def in_pieces(data: bytes, take: Callable[[bytes], object]) -> None:
    """Hand on the bytes as TCP might: cut where the first byte says."""
    size = data[0] + 1 if data else 1
    for start in range(1, len(data), size):
        take(data[start : start + size])


def pnet(data: bytes) -> None:
    """Both sides of a connection inside a private network."""
    for outbound in (True, False):
        in_pieces(data, PrivateNetwork(bytes(32)).session(bytes(24), outbound=outbound).decrypt)


def multistream(data: bytes) -> None:
    """Both sides of a negotiation."""
    in_pieces(data, Listener(PROTOCOLS).receive)
    in_pieces(data, Initiator(PROTOCOLS).receive)


def noise(data: bytes) -> None:
    """A handshake of either side, or a session behind it."""
    choice = data[0] & 3 if data else 0
    if choice == 3:
        in_pieces(data, NoiseSession(bytes(32), bytes(32)).decrypt)
        return
    handshake = NoiseHandshake(
        KEY,
        initiator=choice == 1,
        static_secret=bytes(32),
        ephemeral_secret=bytes(31) + b"\1",
        muxers=PROTOCOLS[1:2],
    )
    in_pieces(data, handshake.receive)


def yamux(data: bytes) -> None:
    """A session whose user accepts and consumes everything, so that windows are reopened."""
    session = YamuxSession(client=bool(data and data[0] & 1))
    session.open_stream()

    def take(piece: bytes) -> None:
        for event in session.receive(piece):
            if isinstance(event, DataReceived):
                session.consumed(event.stream_id, len(event.data))
        session.data_to_send()

    in_pieces(data, take)


def identify(data: bytes) -> None:
    """An identify message, and whether it belongs to a peer."""
    said = Identify.decode(data)
    said.check(KEY.peer_id)
    (again,) = FrameReader(1 << 20).feed(said.encode())
    assert Identify.decode(again) == said


def pubsub(data: bytes) -> None:
    """An RPC: what was read is read again from what we make of it, and has one signed form."""
    rpc = decode_rpc(data)
    again = decode_rpc(encode_rpc(rpc))
    assert [each.encoded for each in again.publish] == [each.encoded for each in rpc.publish]
    assert again.control == rpc.control
    for message in rpc.publish:
        payload = signing_payload(message)
        signed, message.signed_bytes = message.signed_bytes, 0
        assert payload == signing_payload(message)
        message.signed_bytes = signed
        proof_of(message)


def radius(data: bytes) -> None:
    """A frame of radius gossip: what was read is read again from what we make of it."""
    frame = decode_frame(data)
    encoded = encode_frame(frame)
    assert frame.meta.size == len(encoded)
    assert encode_frame(decode_frame(encoded)) == encoded


def frames(data: bytes) -> None:
    """Frames on a stream, the same however they arrive."""
    whole, cut = FrameReader(1 << 16), FrameReader(1 << 16)
    got: list[bytes] = []
    in_pieces(data, lambda piece: got.extend(_all_frames(cut, piece)))
    assert _all_frames(whole, data[1:]) == got


def _all_frames(reader: FrameReader, data: bytes) -> list[bytes]:
    found = reader.feed(data)
    while reader.unread:
        found += reader.feed(b"")
    return found


def envelope(data: bytes) -> None:
    """A signed peer record."""
    unseal_peer_record(data)


def keys(data: bytes) -> None:
    """A public key and a peer id, each with one encoding only."""
    for read in (_same_key, _same_peer):
        try:
            read(data)
        except PeerError:
            continue


def _same_key(data: bytes) -> None:
    assert PublicKey.decode(data).encoded == data


def _same_peer(data: bytes) -> None:
    peer = PeerId.from_bytes(data)
    assert PeerId.parse(str(peer)) == peer


def multiaddr(data: bytes) -> None:
    """An address: its text and its bytes say the same."""
    address = Multiaddr.decode(data)
    assert Multiaddr.decode(address.encode()) == address
    assert Multiaddr.parse(str(address)) == address


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        pnet,
        multistream,
        noise,
        yamux,
        identify,
        pubsub,
        radius,
        frames,
        envelope,
        keys,
        multiaddr,
    )
}


def tried(target: Callable[[bytes], None], data: bytes) -> None:
    """Try one input: an orderly refusal is fine, every other exception is a fault."""
    try:
        target(data)
    except PeerError:
        return
