"""A relay: gives places to peers that nobody can dial, and carries circuits to them (`circuit`).

The relay copies bytes between two streams and reads none of them. The rules: one side's bytes wait
here only as far as the other has not read them, which closes the first one's window; a stranger's
circuit ends with its bytes or its time; whoever loses its connection loses its place.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from rumormill.core.errors import LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p.circuit import (
    HOP,
    MAX_MESSAGE_BYTES,
    STOP,
    Hop,
    HopMessage,
    Limit,
    Named,
    Refusal,
    Reservation,
    Reservations,
    Status,
    Stop,
    StopMessage,
    Terms,
    seal_voucher,
)
from rumormill.libp2p.config import ConnectionConfig, Friends
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dialogue import Dialogue, answering, begin
from rumormill.libp2p.pnet import PrivateNetwork
from rumormill.libp2p.stream import ENDED, Stream, StreamHandler
from rumormill.wire import keys
from rumormill.wire.multiaddr import Multiaddr

OUT_OF_BYTES = "relay-circuit-out-of-bytes"
OUT_OF_TIME = "relay-circuit-out-of-time"


class _Swarm(Protocol):
    """What is needed of a swarm."""

    key: keys.PrivateKey
    config: ConnectionConfig
    network: PrivateNetwork | None
    connections: dict[PeerId, Connection]
    keepers: list[Callable[[PeerId], bool]]
    on_gone: list[Callable[[PeerId], None]]
    services: dict[str, Callable[[Connection, Stream], StreamHandler | None]]

    @property
    def own_addresses(self) -> list[Multiaddr]: ...

    def count(self, reason: str) -> None: ...

    def refuse(self, peer: PeerId, reason: str) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class Relay:
    """What a node does that is one."""

    def __init__(self, swarm: _Swarm) -> None:
        self._swarm, config = swarm, swarm.config
        terms = Terms(
            config.relay_places,
            config.relay_places_per_group,
            config.relay_place_seconds,
            config.relay_circuits_per_peer,
            Limit(int(config.relay_circuit_seconds), config.relay_circuit_bytes),
        )
        self.reservations = Reservations(terms, Friends(config, swarm.network is not None).has)
        self.carried_bytes = 0
        """Of all circuits, in both directions."""
        swarm.services[HOP] = answering(MAX_MESSAGE_BYTES, swarm.spawn, self._on_hop)
        swarm.keepers.append(self.reservations.__contains__)
        swarm.on_gone.append(self.reservations.release)

    async def _on_hop(self, connection: Connection, dialogue: Dialogue) -> None:
        try:
            async with asyncio.timeout(self._swarm.config.negotiation_timeout):
                message = HopMessage.decode(await dialogue.read())
        except PeerError as error:
            self._refuse(dialogue, Refusal(Status.MALFORMED_MESSAGE, error.reason))
        except (LocalError, TimeoutError):
            dialogue.give_up()
        else:
            if message.type is Hop.RESERVE:
                self._reserve(connection, dialogue)
            elif message.type is Hop.CONNECT and message.peer is not None:
                await self._connect(connection, dialogue, message.peer.id)
            else:
                self._refuse(dialogue, Refusal(Status.UNEXPECTED_MESSAGE, "relay-unexpected"))

    def _refuse(self, dialogue: Dialogue, refusal: Refusal) -> None:
        self._swarm.refuse(dialogue.stream.connection.remote_peer, refusal.reason)
        dialogue.say(HopMessage(Hop.STATUS, status=refusal.status).encode())
        dialogue.end()

    def _reserve(self, connection: Connection, dialogue: Dialogue) -> None:
        peer, now = connection.remote_peer, time.time()
        granted = self.reservations.reserve(
            peer, connection.origin.group, bool(connection.relay), now
        )
        if isinstance(granted, Refusal):
            self._refuse(dialogue, granted)
            return
        own, expires = keys.PeerId(self._swarm.key.peer_id), int(granted)
        answer = HopMessage(
            Hop.STATUS,
            reservation=Reservation(
                expires,
                tuple(
                    Multiaddr.parse(f"{address}/p2p/{own}").encode()
                    for address in self._swarm.own_addresses
                ),
                seal_voucher(self._swarm.key, peer, expires),
            ),
            limit=self.reservations.limit(peer) or None,
            status=Status.OK,
        )
        dialogue.say(answer.encode())
        dialogue.end()

    async def _connect(self, connection: Connection, dialogue: Dialogue, target: PeerId) -> None:
        source, group, relayed = connection.remote_peer, connection.origin.group, connection.relay
        refusal = self.reservations.open(source, target, bool(relayed), time.time(), group)
        if refusal is not None:
            self._refuse(dialogue, refusal)
            return
        limit = self.reservations.limit(source, target)
        try:
            async with asyncio.timeout(self._swarm.config.negotiation_timeout):
                stop = await self._call(target, source, limit)
        except (LocalError, PeerError, TimeoutError):
            self.reservations.close(source, target, group)
            failed = Refusal(Status.CONNECTION_FAILED, "relay-target-unreached")
            self._refuse(dialogue, failed)
            return
        dialogue.say(HopMessage(Hop.STATUS, limit=limit or None, status=Status.OK).encode())

        def ended(reason: str) -> None:
            self.reservations.close(source, target, group)
            if reason in (OUT_OF_BYTES, OUT_OF_TIME):
                self._swarm.count(reason)

        circuit = _Circuit(dialogue.stream, stop.stream, limit, self._carry, ended)
        circuit.begin(dialogue, stop)

    def _carry(self, size: int) -> None:
        self.carried_bytes += size

    async def _call(self, target: PeerId, source: PeerId, limit: Limit) -> Dialogue:
        """Ask the peer that is to be reached."""
        connection = self._swarm.connections.get(target)
        if connection is None or connection.relay:
            raise LocalError("the peer is not connected")
        stop = await begin(connection, STOP, MAX_MESSAGE_BYTES)
        try:
            stop.say(StopMessage(Stop.CONNECT, Named(source), limit or None).encode())
            answer = StopMessage.decode(await stop.read())
            if answer.type is not Stop.STATUS or answer.status is not Status.OK:
                raise LocalError("the peer does not want to be reached")
        except BaseException:
            stop.give_up()
            raise
        return stop


class _Circuit:
    """Two streams that are one."""

    def __init__(
        self,
        source: Stream,
        target: Stream,
        limit: Limit,
        carry: Callable[[int], None],
        ended: Callable[[str], None],
    ) -> None:
        self._limit, self._carry, self._ended = limit, carry, ended
        one, other = self._ends = _End(self, source), _End(self, target)
        one.other, other.other = other, one
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self, source: Dialogue, target: Dialogue) -> None:
        """Carry from now on."""
        if self._limit.seconds:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._limit.seconds, self.end, OUT_OF_TIME)
        for dialogue, end in zip((source, target), self._ends, strict=True):
            dialogue.become(end)

    def carries(self, end: "_End", size: int) -> bool:
        """Account for bytes that one end has sent."""
        end.sent += size
        if 0 < self._limit.bytes < end.sent:
            self.end(OUT_OF_BYTES)
            return False
        self._carry(size)
        return True

    def look(self) -> None:
        """End when both ends have."""
        if all(end.ended and not end.waiting for end in self._ends):
            self.end(ENDED)

    def end(self, reason: str) -> None:
        """End it, once."""
        ended, self._ended = self._ended, lambda _: None
        if self._deadline is not None:
            self._deadline.cancel()
        for end in self._ends:
            if reason == ENDED:
                end.stream.connection.forget_stream(end.stream)
            else:
                end.stream.reset()
        ended(reason)


class _End(StreamHandler):
    """One of the two."""

    other: "_End"

    def __init__(self, circuit: _Circuit, stream: Stream) -> None:
        self._circuit = circuit
        self.stream = stream
        self.sent = 0
        self.waiting = b""
        """What the other end has sent and this one has not taken."""
        self.ended = False

    def on_data(self, stream: Stream, data: bytes) -> None:
        """Pass bytes on; while the other end does not take them, read no more."""
        if not self._circuit.carries(self, len(data)):
            return
        stream.connection.active = True
        other = self.other
        other.waiting += data
        other.on_writable(other.stream)
        if other.waiting:
            stream.hold()

    def on_writable(self, stream: Stream) -> None:
        """Take what waits."""
        if self.waiting:
            self.waiting = self.waiting[stream.send(self.waiting) :]
        if not self.waiting:
            self.other.stream.release()
            if self.other.ended:
                stream.end()
                self._circuit.look()

    def on_close(self, stream: Stream, reason: str) -> None:
        """An end has no more to say, or is gone."""
        if reason == ENDED:
            self.ended = True
            self.other.on_writable(self.other.stream)
        else:
            self._circuit.end(reason)
