"""A connection and its streams: TCP bytes through noise and yamux to streams, and back.

The upgrade (`upgrade`) encrypts it and proves who is there; yamux carries streams from then on.
Whatever breaks a rule ends this connection and nothing else.

Writing is lazy: whoever queues bytes calls `wake`, and once per turn of the loop everything that
waits leaves in as few yamux frames, noise messages and system calls as possible. When the kernel's
buffer is full, bytes stay in the bounded queues of yamux, and from there push back.

A stream negotiates its protocol, then belongs to a handler, which gets bytes by calls and sends by
calls. It must take what it is given; a handler that wants its peer to slow down holds the stream,
and the window stays closed until it lets go.
"""

import asyncio
import secrets
import socket
from collections.abc import Container
from typing import Any, Protocol, cast

from rumormill.core.errors import LocalError, PeerError
from rumormill.libp2p import yamux_types
from rumormill.libp2p.config import ConnectionConfig
from rumormill.libp2p.multistream import Initiator, Listener, Outcome
from rumormill.libp2p.noise import NoiseSession
from rumormill.libp2p.upgrade import Upgrade
from rumormill.libp2p.yamux import YamuxSession
from rumormill.libp2p.yamux_types import DataReceived
from rumormill.wire.keys import PeerId, PrivateKey
from rumormill.wire.multiaddr import Multiaddr

ENDED = "ended"
REFUSED = "refused"
RETIRED = "another connection has taken its place"
_WRITE_CHUNK = 256 * 1024
_HIGH_WATER = 512 * 1024


class _Owner(Protocol):
    """What a connection asks of those who hold it; the swarm does."""

    key: PrivateKey
    config: ConnectionConfig

    @property
    def services(self) -> Container[str]: ...

    def count(self, reason: str) -> None: ...

    def admit(self, connection: "Connection") -> bool: ...

    def serve(self, connection: "Connection", stream: "Stream") -> "StreamHandler | None": ...

    def on_ready(self, connection: "Connection") -> None: ...

    def on_closed(self, connection: "Connection") -> None: ...

    def on_lost(self, connection: "Connection") -> None: ...


class StreamHandler:
    """What a protocol does with one of its streams: nothing, where it has no use for something."""

    __slots__ = ()

    def on_open(self, stream: "Stream") -> None:
        """The protocol is agreed (`stream.protocol`); the stream can be used."""

    def on_data(self, stream: "Stream", data: bytes) -> None:
        """Bytes arrived. A `PeerError` raised here resets the stream."""

    def on_writable(self, stream: "Stream") -> None:
        """There is room again after `send` had taken less than all."""

    def on_close(self, stream: "Stream", reason: str) -> None:
        """The peer will send no more (`ended`), or the stream is gone for another reason."""


class Stream:
    """One stream, from negotiation to its end."""

    def __init__(
        self,
        connection: "Connection",
        stream_id: int,
        negotiation: Initiator | Listener,
        handler: StreamHandler | None,
    ) -> None:
        self.connection = connection
        self.id = stream_id
        self.negotiation: Initiator | Listener | None = negotiation
        self.handler = handler
        self.protocol = ""
        self.deadline: asyncio.TimerHandle | None = None
        """Ends the negotiation if the peer does not."""
        self._held = False
        self._unreported = 0

    def send(self, data: bytes) -> int:
        """Queue bytes; return how many were taken. `on_writable` follows when not all were.

        A stream that the peer has just reset takes everything, as it would have a moment ago;
        `on_close` is on its way.
        """
        try:
            taken = self.connection.session.send(self.id, data)
        except LocalError:
            return len(data)
        self.connection.wake()
        return taken

    def end(self) -> None:
        """Send no more; what is queued still goes."""
        self.connection.session.end(self.id)
        self.connection.wake()

    def reset(self) -> None:
        """Give the stream up."""
        self.connection.drop_stream(self)

    def hold(self) -> None:
        """Leave the peer's window closed from now on."""
        self._held = True

    def release(self) -> None:
        """Open the window again."""
        self._held = False
        if self._unreported:
            self.connection.session.consumed(self.id, self._unreported)
            self._unreported = 0
            self.connection.wake()

    def stop_deadline(self) -> None:
        """The negotiation is over."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def receive(self, data: bytes) -> None:
        """Take bytes from the connection."""
        size = len(data)
        if self.negotiation is not None:
            data = self._negotiate(data)
        if data and self.handler is not None and self.negotiation is None:
            self.handler.on_data(self, data)
        if self._held:
            self._unreported += size
        else:
            self.connection.session.consumed(self.id, size)

    def _negotiate(self, data: bytes) -> bytes:
        negotiation = self.negotiation
        assert negotiation is not None
        rest = negotiation.receive(data)
        answer = negotiation.data_to_send()
        if answer:
            self.send(answer)
        if negotiation.outcome is Outcome.REFUSED:
            self.connection.drop_stream(self, REFUSED)
            return b""
        if negotiation.outcome is Outcome.AGREED:
            self.negotiation = None
            self.stop_deadline()
            self.protocol = negotiation.protocol or ""
            self.connection.on_negotiated(self)
        return rest


class Connection(asyncio.Protocol):
    """One connection to one peer; it ends when the peer ends its half, as asyncio has it."""

    def __init__(
        self, owner: _Owner, *, outbound: bool, expected_peer: PeerId | None = None
    ) -> None:
        self.outbound = outbound
        self.remote_peer: bytes = b""
        self.remote_address = ""
        self.session = YamuxSession(client=outbound)
        self.closed_because: str | None = None
        self.retired = False
        """Whether the peer has made another connection in this one's place."""
        self.ended_in_use = False
        """Whether there were streams when the connection ended."""
        self.ready_or_failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.last_used = 0.0
        self.transient = False
        """Whether it was opened for mail or questions only, so that it ends when idle."""
        self.active = False
        """Whether a protocol's message has passed since the swarm looked last."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._noise: NoiseSession | None = None
        self._streams: dict[int, Stream] = {}
        self._flush_scheduled = False
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
            self.remote_address = str(Multiaddr.tcp(peername[0].partition("%")[0], peername[1]))
        if not self._owner.admit(self):
            return
        timeout = self._owner.config.upgrade_timeout
        self._deadline = self._loop.call_later(timeout, self._give_up, "upgrade")
        transport.write(self._upgrade.data_to_send())

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket through the layers."""
        if self.closed_because is not None:
            return  # read only so that the kernel delivers what we sent last
        try:
            noise = self._noise
            self._on_frames(self._take_upgrade(data) if noise is None else noise.decrypt(data))
        except PeerError as error:
            self._fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who has a stream here."""
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
        self.drop_stream(stream, "negotiation timeout")

    def _on_frames(self, data: bytes) -> None:
        if not data or self.closed_because is not None:
            return
        try:
            events = self.session.receive(data)
        finally:
            self.wake()
        streams = self._streams
        for event in events:
            if self._streams is not streams:
                break  # a handler has closed the connection
            kind = type(event)
            if kind is DataReceived:
                stream = streams.get(event.stream_id)  # type: ignore[union-attr]
                if stream is not None:
                    self._give(stream, event.data)  # type: ignore[union-attr]
            else:
                self._on_event(event)

    def _give(self, stream: Stream, data: bytes) -> None:
        try:
            stream.receive(data)
        except PeerError as error:
            self._owner.count(error.reason)
            self.drop_stream(stream, error.reason)

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
        assert self._transport is not None
        name = self._transport.get_extra_info("sockname")
        return str(name[0]).partition("%")[0] if name else ""

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
        if not self._flush_scheduled and self._writable:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        transport, noise = self._transport, self._noise
        if transport is None or noise is None:
            return
        session = self.session
        while self._writable and self.closed_because is None:
            data = session.data_to_send(_WRITE_CHUNK)
            if not data:
                break
            transport.write(noise.encrypt(data))
        for stream_id in session.take_writable():
            stream = self._streams.get(stream_id)
            if stream is not None and stream.handler is not None:
                stream.handler.on_writable(stream)

    # Life and death.

    def keep_alive(self, now: float) -> None:
        """Ping the peer, or give it up when it has not answered the last ping for too long."""
        if self._awaited_ping is not None:
            if now - self._pinged_at >= self._owner.config.keep_alive_timeout:
                self._give_up("keep-alive")
            return
        value = self._awaited_ping = secrets.randbits(32)
        self._pinged_at = now
        self.session.ping(value)
        self.wake()

    @property
    def drained(self) -> bool:
        """Whether everything that was queued has been given to the kernel."""
        return self._transport is None or not (
            self._flush_scheduled
            or self.session.queued_bytes
            or self._transport.get_write_buffer_size()
        )

    def _give_up(self, what: str) -> None:
        self._owner.count(f"{what}-timeout")
        self.close(f"{what} timeout")

    def _fail(self, error: PeerError) -> None:
        """End a connection whose peer broke a rule; yamux tells it, if it reads that soon."""
        self._owner.count(error.reason)
        self._flush()
        self._end(str(error))
        self._let_go(orderly=False)

    def close(self, reason: str) -> None:
        """Close at once; what the kernel has taken still arrives, what is queued does not."""
        if self.closed_because is not None:
            return
        self.session.go_away()
        self._flush()
        self._end(reason)
        self._let_go(orderly=self.ready)

    def abort(self, reason: str) -> None:
        """Drop the connection without a word."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _let_go(self, *, orderly: bool) -> None:
        """Close the socket, by force if the peer does not read what it was sent last.

        Closing a socket that has unread bytes makes the kernel throw away what the peer has not
        read yet. So an orderly end closes our half only, and waits for the peer's.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._deadline = self._loop.call_later(self._owner.config.close_timeout, transport.abort)
        if orderly and transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def _end(self, reason: str) -> None:
        if self.closed_because is not None:
            return
        self.closed_because = reason
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
