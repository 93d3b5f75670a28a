"""What `tools/fuzz.py` feeds: one function for each format of bytes that come from outside.

The rule that each checks: whatever the bytes are, they are read, or refused with the error that is
declared for it, a `PeerError` unless another one is named. What was read is read again from what
we make of it, where there is a way to write it.

A target names the decoders that it feeds; a test finds those that nobody feeds. What it returns is
the shape of what was read, by which the fuzzer knows something new.
"""

import asyncio
import functools
from collections.abc import Callable
from ipaddress import IPv4Interface
from typing import Any

import msgspec

from rumormill.core.errors import LocalError, PeerError
from rumormill.daemon import control_messages, flight_messages
from rumormill.libp2p.autonat import DialBack, decode_message, encode_message
from rumormill.libp2p.circuit import HopMessage, StopMessage, unseal_voucher
from rumormill.libp2p.dcutr import PunchMessage
from rumormill.libp2p.envelope import unseal_peer_record
from rumormill.libp2p.identify import Identify, IdentifyReader
from rumormill.libp2p.mdns import Mdns, service_of
from rumormill.libp2p.multistream import Initiator, Listener
from rumormill.libp2p.noise import NoiseHandshake, NoiseSession
from rumormill.libp2p.pnet import PrivateNetwork, PrivateSession
from rumormill.libp2p.portmap import (
    decode_description,
    decode_external,
    decode_pcp,
    decode_pmp,
    decode_pmp_address,
    decode_search,
)
from rumormill.libp2p.upgrade import PrivateNoise, Upgrade
from rumormill.libp2p.websocket import WebSocketSession
from rumormill.libp2p.yamux import YamuxSession
from rumormill.libp2p.yamux_types import DataReceived
from rumormill.node.policy import read_policy
from rumormill.overlay.hyparview.messages import MEMBERSHIP
from rumormill.overlay.kademlia.messages import decode_kad, encode_kad
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc, proof_of, signing_payload
from rumormill.protocols.pulsarcast.format import cid, dag_cbor, descriptors, readable, rpc
from rumormill.protocols.pulsarcast.format.codec import read_event as read_signed_event
from rumormill.protocols.radius.messages import decode_frame, encode_frame
from rumormill.protocols.skipring.labels import parse_label
from rumormill.protocols.skipring.messages import decode_letter, encode_letter
from rumormill.sync.messages import decode_sync, encode_sync
from rumormill.trace.ndjson import NOT_AN_EVENT, decode_line
from rumormill.trace.protobuf import EventError, decode_batch, decode_event
from rumormill.wire.dns import DnsMessage, decode_texts
from rumormill.wire.envelope import decode_envelope, encode_envelope
from rumormill.wire.frames import FrameReader, frame
from rumormill.wire.keys import PeerId, PrivateKey, PublicKey
from rumormill.wire.multiaddr import Multiaddr
from rumormill.wire.schema import Schema
from rumormill.wire.topic_cipher import TopicKeys

KEY = PrivateKey(bytes(32))
NETWORK = PrivateNetwork(bytes(32))
TOPIC_KEYS = TopicKeys([bytes(32)])
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PROTOCOLS = ("/noise", "/yamux/1.0.0", "/meshsub/1.2.0")


class Target(msgspec.Struct, frozen=True):
    """A function that reads bytes, and what it may raise."""

    name: str
    function: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    feeds: tuple[Callable[..., Any], ...]


TARGETS: dict[str, Target] = {}


def target(
    *feeds: Callable[..., Any], refusals: tuple[type[Exception], ...] = (PeerError,)
) -> Callable[[Callable[[bytes], object]], Callable[[bytes], object]]:
    """List a function as a target, with the decoders that it feeds."""

    def listed(function: Callable[[bytes], object]) -> Callable[[bytes], object]:
        name = function.__name__
        TARGETS[name] = Target(name, function, refusals, feeds)
        return function

    return listed


def some(*parts: object) -> int:
    """Which of some parts there are, as bits."""
    return sum(bool(part) << number for number, part in enumerate(parts))


def in_pieces(data: bytes, take: Callable[[bytes], object]) -> None:
    """Hand on the bytes as TCP might: cut where the first byte says, into nine pieces at most."""
    size = max(data[0], len(data) // 8) + 1 if data else 1
    for start in range(1, len(data), size):
        take(data[start : start + size])


@target(PrivateSession.decrypt)
def pnet(data: bytes) -> None:
    """One side of a connection inside a private network."""
    outbound = bool(data and data[0] & 1)
    in_pieces(data, NETWORK.session(bytes(24), outbound=outbound).decrypt)


@target(Listener.receive, Initiator.receive)
def multistream(data: bytes) -> None:
    """Both sides of a negotiation."""
    in_pieces(data, Listener(PROTOCOLS).receive)
    in_pieces(data, Initiator(PROTOCOLS).receive)


@target(NoiseHandshake.receive, NoiseSession.decrypt, Upgrade.receive, PrivateNoise.decrypt)
def noise(data: bytes) -> object:
    """A handshake alone or as part of an upgrade, or a session behind it, of either side."""
    choice = data[0] if data else 0
    outbound = bool(choice & 4)
    secrets = {"static_secret": bytes(32), "ephemeral_secret": bytes(31) + b"\1"}
    machine: NoiseHandshake | Upgrade
    match choice & 3:
        case 0:
            session = NoiseSession(bytes(32), bytes(32))
            in_pieces(data, session.decrypt)
            return session.unread
        case 1:
            private = NETWORK.session(bytes(24), outbound=outbound)
            in_pieces(data, PrivateNoise(private, NoiseSession(bytes(32), bytes(32))).decrypt)
            return None
        case 2:
            machine = NoiseHandshake(KEY, initiator=outbound, muxers=PROTOCOLS[1:2], **secrets)
        case _:
            machine = Upgrade(KEY, outbound=outbound, **secrets)
    in_pieces(data, machine.receive)
    return choice & 7, len(machine.data_to_send())


@target(WebSocketSession.receive)
def websocket(data: bytes) -> object:
    """A request and frames at a listener, or, behind a WebSocket that is open, frames alone."""
    session = WebSocketSession()
    if data and data[0] & 1:
        session.receive(UPGRADE, 0.0)
    said: list[bytes] = []
    in_pieces(data, lambda piece: said.append(session.receive(piece, 0.0)))
    session.send(b"answer")
    return session.opened, session.ended, some(*said), len(session.data_to_send()) > 6


@target(YamuxSession.receive)
def yamux(data: bytes) -> object:
    """A session whose user accepts and consumes everything, so that windows are reopened."""
    session = YamuxSession(client=bool(data and data[0] & 1))
    session.open_stream()

    def take(piece: bytes) -> None:
        while piece or session.unread:
            for event in session.receive(piece):
                if isinstance(event, DataReceived):
                    session.consumed(event.stream_id, len(event.data))
            session.data_to_send()
            piece = b""

    in_pieces(data, take)
    return session.streams, tuple(session.drops)


@target(Identify.decode, IdentifyReader.receive)
def identify(data: bytes) -> object:
    """An identify message, and whether it belongs to a peer."""
    reader = IdentifyReader()
    reader.receive(frame(data) + data[:4])
    said = Identify.decode(data)
    said.check(KEY.peer_id)
    (again,) = FrameReader(1 << 20).feed(said.encode())
    assert Identify.decode(again) == said
    return some(*msgspec.structs.astuple(said))


@target(decode_rpc)
def pubsub(data: bytes) -> object:
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
    control = msgspec.structs.astuple(rpc.control) if rpc.control is not None else ()
    return some(rpc.subscriptions, rpc.publish, *control)


@target(decode_frame, Schema.decode)
def radius(data: bytes) -> object:
    """A frame of radius gossip: what was read is read again from what we make of it."""
    said = decode_frame(data)
    encoded = encode_frame(said)
    assert said.meta.size == len(encoded)
    assert encode_frame(decode_frame(encoded)) == encoded
    return some(said.interests, said.publications, said.direct, said.membership)


@target(FrameReader.feed)
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


@target(HopMessage.decode, StopMessage.decode, unseal_voucher)
def circuit(data: bytes) -> object:
    """What is said to a relay, by one, or of one, as the first byte says."""
    kind, rest = data[:1], data[1:]
    if kind == b"v":
        return unseal_voucher(rest).expires
    message: HopMessage | StopMessage
    if kind == b"s":
        message = StopMessage.decode(rest)
        assert StopMessage.decode(message.encode()) == message
    else:
        message = HopMessage.decode(rest)
        assert HopMessage.decode(message.encode()) == message
    return message.type, message.status, some(message.peer, message.limit)


@target(decode_message, DialBack.decode)
def autonat(data: bytes) -> object:
    """What is said of dialling back, or the number, as the first byte says."""
    if data[:1] == b"n":
        number = DialBack.decode(data[1:])
        assert DialBack.decode(number.encode()) == number
        return None
    body = decode_message(data[1:])
    assert decode_message(encode_message(body)) == body
    return type(body)


@target(PunchMessage.decode)
def dcutr(data: bytes) -> object:
    """What two peers say before they dial."""
    message = PunchMessage.decode(data)
    assert PunchMessage.decode(message.encode()) == message
    return message.type, len(message.addresses)


@target(decode_pmp_address, decode_external)
def portmap(data: bytes) -> object:
    """What a router answers, by the protocol that the first byte names."""
    kind, rest = data[:1], data[1:]
    if kind in (b"p", b"n"):
        decode_pcp(rest, bytes(12), 4001) if kind == b"p" else decode_pmp(rest, 4001)
        return kind
    if kind == b"a":
        return type(decode_pmp_address(rest))
    if kind == b"s":
        return len(decode_search(rest, "10.0.0.1"))
    if kind == b"d":
        return decode_description(rest, "http://10.0.0.1:80/", "10.0.0.1").kind
    return bool(decode_external(rest))


@target(unseal_peer_record)
def envelope(data: bytes) -> None:
    """A signed peer record."""
    unseal_peer_record(data)


@target(decode_envelope)
def event_envelope(data: bytes) -> object:
    """A payload with a key and headers: what was read is read again from what we make of it."""
    found = decode_envelope(data)
    again = encode_envelope(
        found.data,
        key=found.key,
        headers=found.headers,
        content_type=found.content_type,
        created=found.created,
    )
    assert decode_envelope(again) == found
    return some(*msgspec.structs.astuple(found))


@target(TopicKeys.decrypt)
def topic_cipher(data: bytes) -> None:
    """An encrypted payload; what can be read has one encoding only."""
    said = TOPIC_KEYS.decrypt(data, "orders", b"author")
    assert TOPIC_KEYS.encrypt(said, "orders", b"author", data[16:40]) == data


@target(read_policy)
def policy(data: bytes) -> None:
    """A signed policy."""
    read_policy(data)


@target(PublicKey.decode, PeerId.from_bytes)
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


@target(Multiaddr.decode)
def multiaddr(data: bytes) -> None:
    """An address: its text and its bytes say the same."""
    address = Multiaddr.decode(data)
    assert Multiaddr.decode(address.encode()) == address
    assert Multiaddr.parse(str(address)) == address


@target(decode_texts, DnsMessage.decode)
def dns(data: bytes) -> int:
    """A name server's answer to the question with number 7."""
    message = DnsMessage.decode(data)
    assert DnsMessage.decode(message.encode()).answers == message.answers
    return len(decode_texts(7, data))


@target(Mdns.receive)
def mdns(data: bytes) -> object:
    """What somebody says on a link."""
    reasons: list[str] = []
    link = IPv4Interface("10.1.0.1/24")
    machine = Mdns(bytes(KEY.peer_id), "us", service_of(None), link, reasons.append)
    found = machine.receive(data, "10.1.0.7", 0.0)
    return machine.answer_at, tuple(reasons), tuple(len(each.addresses) for each in found)


@target(decode_kad)
def kademlia(data: bytes) -> object:
    """A question or an answer of the hash table."""
    message = decode_kad(data)
    encoded = encode_kad(message)
    assert encode_kad(decode_kad(encoded)) == encoded
    return message.type, some(message.key, message.record, message.closer, message.providers)


@target()
def hyparview(data: bytes) -> object:
    """A message about who is a neighbour of whom."""
    message = MEMBERSHIP.decode(data)
    encoded = MEMBERSHIP.encode(message)
    assert MEMBERSHIP.encode(MEMBERSHIP.decode(encoded)) == encoded
    return min(message.kind, 20), some(message.peers, message.minima)


@target(decode_letter)
def skipring(data: bytes) -> object:
    """A letter of the skip ring."""
    letter = decode_letter(data)
    encoded = encode_letter(letter)
    assert encode_letter(decode_letter(encoded)) == encoded
    return type(letter), bool(letter.carried)


@target(decode_sync)
def sync(data: bytes) -> object:
    """A question or an answer about histories."""
    said = decode_sync(data)
    encoded = encode_sync(said)
    assert encode_sync(decode_sync(encoded)) == encoded
    assert said.meta.size == len(encoded)
    return type(said.body), some(*msgspec.structs.astuple(said.body))


@target(rpc.decode_rpc, rpc.read_messages, readable.readable_rpc)
def pulsarcast(data: bytes) -> object:
    """An RPC of Pulsarcast, as machines and as people read it."""
    said = rpc.decode_rpc(data)
    readable.readable_rpc(data)
    return (
        tuple(sorted({message.op for message in said.messages})),
        frozenset(map(type, said.additions)),
        frozenset(refused.reason for refused in said.refused),
    )


@target(dag_cbor.decode, descriptors.read_topic, descriptors.read_event, read_signed_event)
def descriptor(data: bytes) -> object:
    """A block of Pulsarcast's graph: what is accepted has one encoding only."""
    read_signed_event(data)
    value = dag_cbor.decode(data)
    assert dag_cbor.encode(value) == data
    read: list[type] = [type(value)]
    for decode in (descriptors.read_topic, descriptors.read_event):
        try:
            read.append(type(decode(data)))
        except PeerError:
            continue
    return tuple(read)


@target()
def texts(data: bytes) -> object:
    """What people and tickets write: addresses, peer ids, names of blocks, labels."""
    text = data.decode(errors="replace")
    read = []
    for parse in (Multiaddr.parse, PeerId.parse, cid.parse, parse_label):
        try:
            parse(text)
        except (PeerError, LocalError):
            continue
        read.append(parse)
    return tuple(read)


@target(
    PrivateKey.decode, PrivateNetwork.decode, TopicKeys.decode, refusals=(PeerError, LocalError)
)
def key_files(data: bytes) -> object:
    """Files of keys, of which the first byte says the kind."""
    kinds = (PrivateKey.decode, PrivateNetwork.decode, TopicKeys.decode)
    kind = data[0] % len(kinds) if data else 0
    kinds[kind](data[1:])
    return kind


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@target(refusals=(control_messages.ControlError,))
def control_socket(data: bytes) -> object:
    """A request to the daemon, or its answer; the first byte says which."""
    reader = asyncio.StreamReader(loop=_loop())
    reader.feed_data(data[1:])
    reader.feed_eof()
    asked = bool(data and data[0] & 1)
    read = control_messages.read_request if asked else control_messages.read_answer
    waiting = read(reader)
    try:
        waiting.send(None)
    except StopIteration as end:
        return type(end.value)
    raise AssertionError("all the bytes are there, and it waits for more")


@target(flight_messages.decode, refusals=(LocalError,))
def flight(data: bytes) -> object:
    """A request at the Flight door; the first byte says of which kind."""
    kinds = FLIGHT_REQUESTS
    kind = kinds[data[0] % len(kinds)] if data else kinds[0]
    return type(flight_messages.decode(data[1:], kind))


FLIGHT_REQUESTS = tuple(
    found
    for name, found in sorted(vars(flight_messages).items())
    if name.endswith("Request") and isinstance(found, type)
)


@target(decode_event, decode_batch, refusals=(EventError,))
def trace_event(data: bytes) -> object:
    """An event of a trace file, alone or in a batch."""
    try:
        return type(decode_event(data)[2])
    except EventError:
        return tuple({type(entry[2]) for entry in decode_batch(data)})


@target(decode_line, refusals=NOT_AN_EVENT)
def trace_line(data: bytes) -> object:
    """A line of a trace in NDJSON."""
    return type(decode_line(data)[2])
