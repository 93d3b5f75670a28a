"""Connections through a relay: asked for, and taken from relays at which we have a place.

A circuit (`circuit`) is a stream to the relay, which carries it on to the other peer. To a
`Connection` it is the transport of its socket (as `transports` has it for WebSocket), so noise and
yamux go from end to end, with all their limits and times. The rule: nobody is believed for being
relayed; and from a relay that has not reserved a place for us, no circuit is taken.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from msgspec.structs import replace

from rumormill.core.errors import LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p.address_book import AddressBook
from rumormill.libp2p.circuit import (
    HOP,
    MAX_MESSAGE_BYTES,
    Hop,
    HopMessage,
    Limit,
    Named,
    Status,
    Stop,
    StopMessage,
)
from rumormill.libp2p.config import ConnectionConfig
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dialogue import Dialogue, answering, begin
from rumormill.libp2p.stream import ENDED, Stream, StreamHandler
from rumormill.wire.multiaddr import Endpoint, Multiaddr

_HIGH_WATER: Final = 64 * 1024
"""Bytes that wait for the relay's stream before a connection is told to wait. Our choice: a noise
message."""


class CircuitTransport(StreamHandler, asyncio.Transport):
    """A stream to a relay, as the transport of a connection with somebody else."""

    def __init__(self, connection: Connection, stream: Stream) -> None:
        super().__init__()
        self._connection = connection
        self._stream = stream
        self._waiting = bytearray()
        self._paused = self._ending = self._closing = self._lost = False
        stream.handler = self

    # The stream's side.

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Hand on what came."""
        stream.connection.active = True
        self._connection.data_received(data)

    def on_writable(self, stream: Stream) -> None:
        """The relay takes bytes again."""
        self._pump()

    def on_close(self, stream: Stream, reason: str) -> None:
        """The other peer has ended its half, or the circuit is gone."""
        if reason == ENDED:
            self.close()
        else:
            self._lose(ConnectionError(f"the circuit ended: {reason}"))

    def _pump(self) -> None:
        if self._waiting:
            self._stream.connection.active = True
            del self._waiting[: self._stream.send(bytes(self._waiting))]
        if self._paused and len(self._waiting) <= _HIGH_WATER // 2:
            self._paused = False
            self._connection.resume_writing()
        if not self._waiting and (self._ending or self._closing):
            self._stream.end()
            if self._closing:
                self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._waiting.clear()
            self._stream.connection.forget_stream(self._stream)
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, error)

    # The connection's side.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, as fast as the relay takes them."""
        if self._closing or self._ending:
            return
        self._waiting += data
        self._pump()
        if len(self._waiting) > _HIGH_WATER and not self._paused:
            self._paused = True
            self._connection.pause_writing()

    def can_write_eof(self) -> bool:
        """Streams have two halves."""
        return True

    def write_eof(self) -> None:
        """Say that nothing more comes."""
        self._ending = True
        self._pump()

    def close(self) -> None:
        """Close when everything is sent."""
        if not self._closing:
            self._closing = True
            self._pump()

    def abort(self) -> None:
        """Close at once."""
        if not self._lost:
            self._stream.reset()
            self._lose(None)

    def is_closing(self) -> bool:
        """Whether it is closing or closed."""
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Where the relay is, and how it is spoken to."""
        at = Multiaddr.parse(self._stream.connection.remote_address).endpoint
        if at is not None and name in ("peername", "way"):
            return (at.host, at.port) if name == "peername" else at.way
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """They are fixed."""

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the relay."""
        return len(self._waiting)

    def pause_reading(self) -> None:
        """Leave the window as it is."""
        self._stream.hold()

    def resume_reading(self) -> None:
        """Read on."""
        self._stream.release()


class _Swarm(Protocol):
    """What is needed of a swarm."""

    id: PeerId
    config: ConnectionConfig
    book: AddressBook
    connections: dict[PeerId, Connection]

    def refuse(self, peer: PeerId, reason: str) -> None: ...

    def new_connection(self, expected_peer: PeerId | None = None) -> Connection: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...

    async def dial(
        self, peer: PeerId, *, transient: bool = False, direct: bool = False
    ) -> Connection: ...


class Circuits:
    """Circuits of one node, as one of their ends."""

    def __init__(self, swarm: _Swarm) -> None:
        self._swarm = swarm
        self.reserved: Callable[[PeerId], bool] = lambda _: False
        """Whether we have a place at a relay."""
        self.serve = answering(MAX_MESSAGE_BYTES, swarm.spawn, self._on_stop)

    async def dial(self, peer: PeerId, at: Endpoint, connection: Connection) -> None:
        """Have a relay connect us, for a connection; LocalError says why it does not."""
        swarm = self._swarm
        if at.relay == swarm.id:
            raise LocalError("it was to be reached through ourselves, and is not connected")
        relay = swarm.connections.get(at.relay)
        if relay is None or relay.relay:
            swarm.book.hint(at.relay, [replace(at, relay=b"")], swarm.book.leads(peer, at))
            relay = await swarm.dial(at.relay, transient=True, direct=True)
        dialogue = await begin(relay, HOP, MAX_MESSAGE_BYTES)
        try:
            dialogue.say(HopMessage(Hop.CONNECT, Named(peer)).encode())
            answer = HopMessage.decode(await dialogue.read())
            if answer.type is not Hop.STATUS or answer.status is not Status.OK:
                told = "nothing" if answer.status is None else answer.status.name
                raise LocalError(f"the relay says {told.lower().replace('_', ' ')}")
        except PeerError as error:
            dialogue.give_up()
            raise LocalError(f"the relay does not make sense: {error}") from None
        except BaseException:
            dialogue.give_up()
            raise
        _carry(connection, dialogue, answer.limit)

    async def _on_stop(self, relay: Connection, dialogue: Dialogue) -> None:
        """A relay says that somebody wants to reach us."""
        swarm, refusal, message = self._swarm, Status.OK, None
        try:
            async with asyncio.timeout(swarm.config.negotiation_timeout):
                message = StopMessage.decode(await dialogue.read())
        except PeerError as error:
            swarm.refuse(relay.remote_peer, error.reason)
            refusal = Status.MALFORMED_MESSAGE
        except (LocalError, TimeoutError):
            dialogue.give_up()
            return
        if message is not None and (message.type is not Stop.CONNECT or message.peer is None):
            swarm.refuse(relay.remote_peer, "circuit-unexpected")
            refusal = Status.UNEXPECTED_MESSAGE
        elif relay.relay or not self.reserved(relay.remote_peer):
            swarm.refuse(relay.remote_peer, "circuit-without-reservation")
            refusal = Status.PERMISSION_DENIED
        dialogue.say(StopMessage(Stop.STATUS, status=refusal).encode())
        if refusal is not Status.OK or message is None:
            dialogue.end()
        else:
            _carry(swarm.new_connection(), dialogue, message.limit)


def _carry(connection: Connection, dialogue: Dialogue, limit: Limit | None) -> None:
    """Begin a connection over a circuit that is agreed."""
    stream = dialogue.stream
    connection.relay, connection.limited = stream.connection.remote_peer, bool(limit)
    transport = CircuitTransport(connection, stream)
    connection.connection_made(transport)
    dialogue.become(transport)
