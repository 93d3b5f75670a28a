"""A peer that keeps exactly the rules that a test wants it to keep.

It is put together from the same pure machines as a node, and everything is within reach: the bytes
before the handshake, the handshake, single yamux frames, streams, RPCs. It reads only when told to.
"""

import asyncio
import contextlib
import secrets
import struct
from typing import Self

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p.multistream import Initiator, Listener, Outcome
from rumormill.libp2p.noise import NOISE, NoiseHandshake, NoiseSession
from rumormill.libp2p.websocket import WebSocketSession
from rumormill.libp2p.yamux import YAMUX, YamuxSession
from rumormill.libp2p.yamux_types import DataReceived, GoneAway, StreamOpened
from rumormill.node.node import Node
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.pubsub.codec import encode_rpc, signing_payload
from rumormill.protocols.pubsub.messages import Message, Rpc, SubOpts
from rumormill.wire.frames import frame
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Multiaddr

DATA, WINDOW, PING_FRAME, GO_AWAY = 0, 1, 2, 3
SYN, ACK, FIN, RST = 1, 2, 4, 8
MESHSUB = PROTOCOLS[0]


def yamux_frame(kind: int, flags: int, stream: int, length: int, body: bytes = b"") -> bytes:
    """A frame as it goes on the wire, whether or not it makes sense."""
    return struct.pack(">BBHII", 0, kind, flags, stream, length) + body


class HostilePeer:
    """The attacker's end of one connection, or of several, one after the other."""

    def __init__(self, key: PrivateKey | None = None) -> None:
        self.key = key or PrivateKey(secrets.token_bytes(32))
        self.address: str | None = None
        """Where it calls from; every 127.… is an address of this machine, on Linux."""
        self.session = YamuxSession(client=True)
        self.gives_window = True
        self.accepts = True
        """Whether it takes the streams that the node opens."""
        self.protocols: tuple[str, ...] = PROTOCOLS
        """What it takes them for."""
        self.damage: int | None = None
        """Which byte of its last handshake message is changed on the way."""
        self.received = 0
        self.heard: dict[int, bytearray] = {}
        """What came on each stream behind its negotiation."""
        self.closed = self.told_to_go = False
        """Whether the node has hung up, and whether it has said before that it will."""
        self._noise: NoiseSession | None = None
        self._negotiations: dict[int, Listener | Initiator] = {}
        self._reading: asyncio.Task[None] | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    async def call(self, node: Node) -> Self:
        """Open a TCP connection and say nothing."""
        endpoint = Multiaddr.parse(node.tickets[0]).endpoint
        assert endpoint is not None
        local = None if self.address is None else (self.address, 0)
        self._reader, self._writer = await asyncio.open_connection(
            endpoint.host, endpoint.port, local_addr=local
        )
        return self

    def handshake(self) -> NoiseHandshake:
        """Begin a handshake as the one who dials."""
        return NoiseHandshake(
            self.key,
            initiator=True,
            static_secret=secrets.token_bytes(32),
            ephemeral_secret=secrets.token_bytes(32),
            muxers=(YAMUX,),
        )

    async def connect(self, node: Node, *, reads: bool = True) -> Self:
        """Come as far as yamux, by the rules."""
        await self.call(node)
        return await self.shake_hands(reads=reads)

    async def shake_hands(self, *, reads: bool = True) -> Self:
        """Upgrade the connection that was opened."""
        negotiation = Initiator((NOISE,))
        handshake = self.handshake()
        self.raw(negotiation.data_to_send() + handshake.data_to_send())
        while handshake.session is None:
            data = await self._reader.read(65536)
            assert data, "the node hung up during the handshake"
            if negotiation.outcome is Outcome.PENDING:
                data = negotiation.receive(data)
            if data:
                rest = handshake.receive(data)
                answer = bytearray(handshake.data_to_send())
                if answer and self.damage is not None:
                    answer[self.damage % len(answer)] ^= 1
                self.raw(bytes(answer))
        self._noise = handshake.session
        if reads:
            self._reading = asyncio.ensure_future(self._read(rest))
        return self

    async def hang_up(self) -> None:
        """Close without a word."""
        if self._reading is not None:
            self._reading.cancel()
        self._writer.transport.abort()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    # Saying things.

    def raw(self, data: bytes) -> None:
        """Put bytes on the socket."""
        self._writer.write(data)

    def frames(self, data: bytes) -> None:
        """Send yamux bytes, encrypted as they should be."""
        assert self._noise is not None
        self.raw(self._noise.encrypt(data))

    async def drain(self) -> None:
        """Wait until the kernel has taken what was said; the node may hang up instead."""
        try:
            await self._writer.drain()
        except ConnectionError:
            self.closed = True

    def flush(self) -> None:
        """Send what the session has queued, by the rules of flow control."""
        while data := self.session.data_to_send():
            self.frames(data)

    def open(self, protocol: str, data: bytes = b"") -> int:
        """Open a stream and speak at once, without waiting for an answer."""
        stream_id = self.session.open_stream()
        negotiation = self._negotiations[stream_id] = Initiator((protocol,))
        self.session.send(stream_id, negotiation.data_to_send() + data)
        self.flush()
        return stream_id

    def open_in_silence(self) -> None:
        """Open a stream, and do not say what for."""
        self._negotiations[self.session.open_stream()] = Initiator(("",))
        self.flush()

    def say(self, stream_id: int, data: bytes) -> None:
        """Send on a stream."""
        self.session.send(stream_id, data)
        self.flush()

    def hello(self, *topics: str) -> int:
        """Open an RPC stream and subscribe; return the stream."""
        subscriptions = tuple(SubOpts(True, topic) for topic in topics)
        return self.open(MESHSUB, frame(encode_rpc(Rpc(subscriptions=subscriptions))))

    def message(self, topic: str, data: bytes, number: int) -> Message:
        """A message that is signed as it should be."""
        message = Message(topic, data, bytes(self.key.peer_id), number.to_bytes(8))
        message.signature = self.key.sign(signing_payload(message))
        return message

    # Listening.

    async def _read(self, rest: bytes) -> None:
        """Read for ever, and answer what a peer must answer to be taken for one."""
        assert self._noise is not None
        try:
            self._take(rest)
            while data := await self._reader.read(65536):
                self.received += len(data)
                self._take(data)
        except (ConnectionError, PeerError):
            pass
        self.closed = True

    def _take(self, data: bytes) -> None:
        assert self._noise is not None
        self._take_frames(self._noise.decrypt(data))
        while self._noise.unread or self.session.unread:
            self._take_frames(b"" if self.session.unread else self._noise.decrypt(b""))

    def _take_frames(self, data: bytes) -> None:
        for event in self.session.receive(data):
            if isinstance(event, StreamOpened):
                negotiation = self._negotiations[event.stream_id] = Listener(self.protocols)
                if self.accepts:
                    self.session.accept(event.stream_id)
                    self._answer(event.stream_id, negotiation.data_to_send())
            elif isinstance(event, GoneAway):
                self.told_to_go = True
            elif isinstance(event, DataReceived):
                self._on_data(event.stream_id, event.data)
        self.flush()

    def _answer(self, stream_id: int, data: bytes) -> None:
        with contextlib.suppress(LocalError):  # reset by the node in what was read with it
            self.session.send(stream_id, data)

    def _on_data(self, stream_id: int, data: bytes) -> None:
        negotiation = self._negotiations[stream_id]
        rest = data
        if negotiation.outcome is Outcome.PENDING and self.accepts:
            with contextlib.suppress(PeerError):  # a question that came with what we refuse
                rest = negotiation.receive(data)
            self._answer(stream_id, negotiation.data_to_send())
        self.heard.setdefault(stream_id, bytearray()).extend(rest)
        if self.gives_window:
            self.session.consumed(stream_id, len(data))


class WebSocketPeer(HostilePeer):
    """The same over WebSocket: what it says is framed, and so may be what nobody asked for."""

    async def call(self, node: Node) -> Self:
        """Open a WebSocket to the first address of the node, and say nothing in it."""
        await super().call(node)
        self._frames = WebSocketSession("127.0.0.1:80")
        self._socket, self._reader = self._reader, self  # type: ignore[assignment]
        self.raw(b"")
        while not self._frames.opened:
            self._frames.receive(await self._socket.readuntil(b"\r\n\r\n"), 0.0)
        return self

    async def read(self, most: int) -> bytes:
        """What the node says, as a stream's reader has it."""
        while data := await self._socket.read(most):
            if said := self._frames.receive(data, asyncio.get_running_loop().time()):
                return said
        return b""

    def raw(self, data: bytes) -> None:
        """Put bytes in a frame on the socket."""
        self._frames.send(data)
        self._writer.write(self._frames.data_to_send())

    def bare(self, data: bytes) -> None:
        """Put bytes on the socket as they are."""
        self._writer.write(data)
