"""A connection: bytes of TCP, or of WebSocket, through noise and yamux to streams, and back.

The upgrade (`upgrade`) encrypts it and proves who is there; yamux carries streams from then on.
Whatever breaks a rule ends this connection and nothing else.

Reading takes turns (`turns`): what one turn does not suffice for waits for the next, and until it
is done, no more is read from the socket. So whoever sends more than we can handle fills its own
buffers, and holds up itself.

Writing is lazy: whoever queues bytes calls `wake`, and once per turn of the loop everything that
waits leaves in as few yamux frames, noise messages and system calls as possible. When the kernel's
buffer is full, bytes stay in the bounded queues of yamux, and from there push back.
"""

import asyncio
import secrets
import socket
from collections.abc import Container
from typing import Any, Final, Protocol, cast

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p import yamux_types
from rumormill.libp2p.admission import Origin, origin_of, relayed
from rumormill.libp2p.closing import let_go
from rumormill.libp2p.config import ConnectionConfig
from rumormill.libp2p.multistream import Initiator, Listener
from rumormill.libp2p.noise import NoiseSession
from rumormill.libp2p.pnet import NONCE_BYTES, PrivateNetwork
from rumormill.libp2p.stream import ENDED, Stream, StreamHandler
from rumormill.libp2p.turns import Turn, Turns
from rumormill.libp2p.upgrade import PrivateNoise, Upgrade
from rumormill.libp2p.yamux import YamuxSession
from rumormill.libp2p.yamux_types import RESET_BY_PEER, DataReceived, Event
from rumormill.wire.keys import PeerId, PrivateKey
from rumormill.wire.multiaddr import Multiaddr, Way

RETIRED = "another connection has taken its place"
_USELESS_A_POINT, _BAD_STREAM, _BAD_CONNECTION = 10, 50.0, 250.0
"""How many frames that bring nothing weigh as much as one refusal (1), and what a stream and a
whole connection weigh that broke a rule."""
_NO_EVENTS: Final[list[Event]] = []
_WRITE_CHUNK = 256 * 1024
_HIGH_WATER = 512 * 1024


class _Owner(Protocol):
    """What a connection asks of those who hold it; the swarm does."""

    key: PrivateKey
    config: ConnectionConfig
    network: PrivateNetwork | None
    turns: Turns

    @property
    def services(self) -> Container[str]: ...

    def count(self, reason: str) -> None: ...

    def blame(self, peer: bytes, reason: str, points: float = 1.0) -> None: ...

    def admit(self, connection: "Connection") -> bool: ...

    def serve(self, connection: "Connection", stream: Stream) -> StreamHandler | None: ...

    def on_ready(self, connection: "Connection") -> None: ...

    def on_closed(self, connection: "Connection") -> None: ...

    def on_lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol, asyncio.Protocol):
    """One connection to one peer; it ends when the peer ends its half, as asyncio has it.

    A socket is read into a buffer that all connections of a node share; other ways call
    `data_received`.
    """

    def __init__(
        self, owner: _Owner, *, outbound: bool, expected_peer: PeerId | None = None
    ) -> None:
        self.outbound = outbound
        self.remote_peer: bytes = b""
        self.remote_address = ""
        self.origin = Origin("", "")
        self.relay = b""
        """The id of the relay through which it goes; empty for one that goes straight there."""
        self.limited = False
        """Whether that relay carries no more than so much of it, or no longer than so long."""
        self.punched = False
        """Whether both sides had to dial at the same moment for it."""
        self.session = YamuxSession(client=outbound)
        self.closed_because: str | None = None
        self.spoken: frozenset[str] | None = None
        self.retired = False
        """Whether the peer has made another connection in this one's place."""
        self.vanished = False
        """Whether the peer was gone without having said so."""
        self.ended_in_use = False
        """Whether there were streams when the connection ended."""
        self.ready_or_failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.last_used = 0.0
        self.transient = False
        """Whether it was opened for mail or questions only, so that it ends when idle."""
        self.active = False
        """Whether a protocol's message has passed since the swarm looked last."""
        self.awake = False
        """Whether what waits to be sent is about to be."""
        self.turn = Turn()
        self._owner, self._loop = owner, asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._noise: NoiseSession | PrivateNoise | None = None
        self._streams: dict[int, Stream] = {}
        self._arrived = b""
        """What came from the socket and was not looked at."""
        self._events: list[Event] = _NO_EVENTS
        """What it means, as far as it was."""
        self._late: Stream | None = None
        """The stream whose handler is not done with what it was given."""
        self._behind = False
        """Whether all of that waits for the next turn."""
        self._writable = True
        self._deadline: asyncio.TimerHandle | None = None
        self._awaited_ping: int | None = None
        self._pinged_at = 0.0
        self._upgrade = Upgrade(
            owner.key,
            outbound=outbound,
            static_secret=secrets.token_bytes(32),
            ephemeral_secret=secrets.token_bytes(32),
            expected_peer=expected_peer,
            network=owner.network,
            nonce=secrets.token_bytes(NONCE_BYTES),
            on_crumbs=self.session.note_crumbs,
        )

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the upgrade."""
        # Cast, because uvloop's transports have the methods and not the class.
        transport = self._transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peername = transport.get_extra_info("peername")
        if peername:
            host, way = peername[0].partition("%")[0], transport.get_extra_info("way") or Way.PLAIN
            self.remote_address = str(Multiaddr.tcp(host, peername[1], way=way, relay=self.relay))
            self.origin = relayed(self.relay) if self.relay else origin_of(host)
        if not self._owner.admit(self):
            return
        timeout = self._owner.config.upgrade_timeout
        self._deadline = self._loop.call_later(timeout, self._give_up, "upgrade")
        transport.write(self._upgrade.data_to_send())

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the socket is read to."""
        return self._owner.turns.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take so many bytes out of the buffer, before another connection reads into it."""
        self.data_received(bytes(self._owner.turns.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket through the layers."""
        if self.closed_because is not None:
            return  # read only so that the kernel delivers what we sent last
        self._arrived += data
        if not self._behind:
            (self._take_turn if self.ready else self._line_up)()

    def _line_up(self) -> None:
        """Wait for a turn, and read nothing meanwhile."""
        assert self._transport is not None
        self._behind = True
        self._transport.pause_reading()
        self._owner.turns.line_up(self._take_turn, fruitful=self.turn.fruitful)

    def _take_turn(self) -> None:
        """Work through what has arrived, until it is done or others are to have their turn."""
        if self.closed_because is not None:
            return
        self.turn.begin(self._loop.time(), behind=self._behind)
        unfinished = False
        try:
            unfinished = self._work()
        except PeerError as error:
            self.fail(error)
        if self.session.has_output:  # windows have been reopened, streams refused, pings answered
            self.wake()
        if self._transport is None or self.closed_because is not None:
            return
        if unfinished:
            self._line_up()
        elif self._behind:
            self._behind = False
            self._transport.resume_reading()

    def _work(self) -> bool:
        """Return whether anything is left at the end of the turn."""
        session, turn, time = self.session, self.turn, self._loop.time
        while self.closed_because is None:
            if self._late is not None:
                self.give(self._late, b"")
            else:
                events = self._events
                if not events:
                    events = session.receive(b"" if session.unread else self._read())
                    if session.useless >= _USELESS_A_POINT:
                        self.charge_useless(session.useless)
                        session.useless = 0
                self._events = _NO_EVENTS
                for number, event in enumerate(events, 1):
                    if type(event) is DataReceived:
                        stream = self._streams.get(event.stream_id)
                        if stream is not None:
                            self.give(stream, event.data)
                    else:
                        self._on_event(event)
                    if self._late is not None or time() > turn.ends:
                        self._events = events[number:]
                        break
            unread = self._noise is not None and self._noise.unread
            if not (self._late or self._events or session.unread or self._arrived or unread):
                break
            if time() > turn.ends:
                return self.closed_because is None
        return False

    def charge_useless(self, frames: int) -> None:
        """Charge the peer for frames that brought nothing."""
        self._owner.blame(self.remote_peer, "useless-frames", frames / _USELESS_A_POINT)

    def _read(self) -> bytes:
        """The next of what has arrived, as the session is to read it."""
        data, self._arrived = self._arrived, b""
        return self._take_upgrade(data) if self._noise is None else self._noise.decrypt(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who has a stream here."""
        self.vanished |= self.closed_because is None
        self._end("connection lost" if error is None else f"connection lost: {error}")
        if self._deadline is not None:
            self._deadline.cancel()
        self._owner.on_lost(self)

    def pause_writing(self) -> None:
        """The kernel's buffer is full: leave bytes where they are bounded."""
        self._writable = False

    def resume_writing(self) -> None:
        """The kernel takes bytes again."""
        self._writable = True
        self.wake()

    # The upgrade.

    def _take_upgrade(self, data: bytes) -> bytes:
        """Upgrade as far as the bytes go; return what the session is to read."""
        upgrade, transport = self._upgrade, self._transport
        assert transport is not None
        try:
            rest = upgrade.receive(data)
        finally:
            if answer := upgrade.data_to_send():
                transport.write(answer)
        if upgrade.done:
            assert upgrade.remote is not None
            self._noise = upgrade.session
            self.remote_peer = bytes(upgrade.remote.peer_id)
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self.last_used = self._loop.time()
            self._owner.on_ready(self)
            if not self.ready_or_failed.done():
                self.ready_or_failed.set_result(None)
        return rest

    # Streams.

    def open_stream(self, protocols: tuple[str, ...], handler: StreamHandler) -> Stream:
        """Open a stream that agrees on the first of `protocols` that the peer speaks."""
        if not self.ready or self.closed_because is not None:
            raise LocalError("the connection is not open")
        negotiation = Initiator(protocols)
        stream_id = self.session.open_stream()
        stream = Stream(self, stream_id, negotiation, handler)
        self._begin(stream, negotiation)
        return stream

    def _begin(self, stream: Stream, negotiation: Initiator | Listener) -> None:
        self._streams[stream.id] = stream
        stream.send(negotiation.data_to_send())
        timeout = self._owner.config.negotiation_timeout
        stream.deadline = self._loop.call_later(timeout, self._give_up_negotiation, stream)

    def _give_up_negotiation(self, stream: Stream) -> None:
        self._owner.count("negotiation-timeout")
        if stream.handler is None:
            self._owner.blame(self.remote_peer, "negotiation-timeout")
        self.drop_stream(stream, "negotiation timeout")

    def give(self, stream: Stream, data: bytes) -> None:
        """Have a stream's handler take bytes, or go on with those that it has."""
        try:
            if data:
                stream.receive(data)
            elif stream.handler is not None and stream.id in self._streams:
                stream.handler.on_data(stream, b"")
        except PeerError as error:
            self._owner.count(error.reason)
            self.drop_stream(stream, error.reason)
            self._owner.blame(self.remote_peer, error.reason, _BAD_STREAM)
        handler = stream.handler
        late = handler is not None and handler.unread and stream.id in self._streams
        if self._late in (None, stream):
            self._late = stream if late else None

    def _on_event(self, event: Any) -> None:
        if isinstance(event, yamux_types.StreamOpened):
            negotiation = Listener(self._owner.services)
            self.session.accept(event.stream_id)
            self._begin(Stream(self, event.stream_id, negotiation, None), negotiation)
        elif isinstance(event, yamux_types.StreamEnded):
            self._tell_closed(event.stream_id, ENDED)
        elif isinstance(event, yamux_types.StreamReset):
            self._tell_closed(event.stream_id, event.reason)
        elif isinstance(event, yamux_types.PingAnswered):
            self._awaited_ping = None
        elif isinstance(event, yamux_types.GoneAway):
            self.close("the peer went away")

    def _tell_closed(self, stream_id: int, reason: str) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if reason != ENDED:
            self.forget_stream(stream)
            if reason == RESET_BY_PEER and stream.handler is None:
                self._owner.blame(self.remote_peer, "unused-streams")
        if stream.handler is not None:
            stream.handler.on_close(stream, reason)
        elif reason == ENDED:
            self.drop_stream(stream)

    def on_negotiated(self, stream: Stream) -> None:
        """A stream agreed on its protocol: give it to its handler."""
        if stream.handler is None:
            stream.handler = self._owner.serve(self, stream)
            if stream.handler is None:
                self.drop_stream(stream, "too many streams of one protocol")
                return
        stream.handler.on_open(stream)

    def streams_of(self, protocol: str) -> int:
        """How many streams of a protocol are open."""
        return sum(stream.protocol == protocol for stream in self._streams.values())

    @property
    def ready(self) -> bool:
        """Whether the upgrade is done."""
        return self._noise is not None

    @property
    def local_host(self) -> str:
        """The network address of our own end, without zone."""
        name = self.told("sockname")
        return str(name[0]).partition("%")[0] if name else ""

    def told(self, name: str) -> Any:
        """What asyncio knows of the socket; None where there is none."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    @property
    def in_use(self) -> bool:
        """Whether any stream is open."""
        return bool(self._streams)

    def forget_stream(self, stream: Stream) -> None:
        """Let go of a stream that both sides have ended."""
        stream.stop_deadline()
        if self._streams.get(stream.id) is stream:
            del self._streams[stream.id]

    def drop_stream(self, stream: Stream, reason: str = "reset") -> None:
        """Reset a stream and tell its handler."""
        if self._streams.get(stream.id) is not stream:
            return
        self.forget_stream(stream)
        self.session.reset(stream.id)
        self.wake()
        if stream.handler is not None:
            stream.handler.on_close(stream, reason)

    # Writing.

    def wake(self) -> None:
        """Send what waits, once, before the loop waits for input again."""
        if not self.awake and self._writable:
            self.awake = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self.awake = False
        transport, noise, session = self._transport, self._noise, self.session
        if transport is None or noise is None:
            return
        while self._writable and self.closed_because is None:
            if not (data := session.data_to_send(_WRITE_CHUNK)):
                break
            transport.write(noise.encrypt(data))
        for stream_id in session.take_writable():
            stream = self._streams.get(stream_id)
            if stream is not None and stream.handler is not None:
                stream.handler.on_writable(stream)

    # Life and death.

    def keep_alive(self, now: float, silence: float = 0.0) -> None:
        """Ping a peer that was silent so long; give it up when it did not answer the last ping."""
        if self._awaited_ping is not None:
            if now - self._pinged_at >= self._owner.config.keep_alive_timeout:
                self._give_up("keep-alive")
            return
        if now - self.turn.began < silence:
            return
        self._awaited_ping, self._pinged_at = secrets.randbits(32), now
        self.session.ping(self._awaited_ping)
        self.wake()

    @property
    def unsent(self) -> int:
        """Bytes that wait here for the kernel to take them, or for the peer's windows."""
        buffered = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self.session.queued_bytes + buffered

    @property
    def drained(self) -> bool:
        """Whether everything that was queued has been given to the kernel."""
        return self._transport is None or not (self.awake or self.unsent)

    def _give_up(self, what: str) -> None:
        self.vanished = True
        self._owner.count(f"{what}-timeout")
        self.close(f"{what} timeout")

    def fail(self, error: PeerError) -> None:
        """End a connection whose peer broke a rule; yamux tells it, if it reads that soon."""
        self._owner.count(error.reason)
        if self.ready:
            self._owner.blame(self.remote_peer, error.reason, _BAD_CONNECTION)
        self._flush()
        self._end(str(error))
        self._let_go(orderly=False)

    def close(self, reason: str, *, orderly: bool = True) -> None:
        """Close at once; what the kernel has taken still arrives if the end is orderly, which takes
        reading what the peer still sends; what is queued does not."""
        if self.closed_because is not None:
            return
        self.session.go_away()
        self._flush()
        self._end(reason)
        self._let_go(orderly=orderly and self.ready)

    def abort(self, reason: str) -> None:
        """Drop the connection without a word."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _let_go(self, *, orderly: bool) -> None:
        """Close the socket, by force if the peer does not read what it was sent last."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if orderly and self._behind:
            transport.resume_reading()
        self._deadline = let_go(transport, orderly=orderly, within=self._owner.config.close_timeout)

    def _end(self, reason: str) -> None:
        if self.closed_because is not None:
            return
        self.closed_because = reason
        self.turn.end()
        if self._deadline is not None:
            self._deadline.cancel()
        if not self.ready_or_failed.done():
            self.ready_or_failed.set_exception(LocalError(reason))
            self.ready_or_failed.exception()  # whoever dialled asks; a listener does not
        streams, self._streams = self._streams, {}
        self.ended_in_use = bool(streams)
        for stream in streams.values():
            stream.stop_deadline()
            if stream.handler is not None:
                stream.handler.on_close(stream, reason)
        self._owner.on_closed(self)
