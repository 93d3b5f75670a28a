"""All connections of a node: who is connected, who may be, and who is wanted.

The swarm listens and dials, has places for so many connections and shares them out (`admission`),
has none with peers that its configuration excludes, cuts off peers that flood, uses one connection
per peer, and redials the peers that it was told to keep.

When two peers dial each other at the same moment there are two connections. The first one that is
ready is used; the other is a spare, on which the peer's streams are served and none is opened. It
is not closed while it carries any: other implementations choose one connection for their pubsub
stream and do not open another when it is lost (js-libp2p). A spare without streams is closed when
it has been idle. For the same reason both go when either is lost with streams on it, so that the
peers meet again from the start.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from rumormill.core.errors import LocalError
from rumormill.core.ids import PeerId
from rumormill.libp2p.address_book import (
    HERE,
    MAX_HINTS,
    encoded,
    endpoints_among,
    nearness,
    placed,
)
from rumormill.libp2p.admission import Conduct, Places, origin_of
from rumormill.libp2p.circuit import HOP, STOP
from rumormill.libp2p.circuits import Circuits
from rumormill.libp2p.closing import until
from rumormill.libp2p.config import ConnectionConfig, PeerLists
from rumormill.libp2p.connection import RETIRED, Connection
from rumormill.libp2p.dialling import Dialling
from rumormill.libp2p.identify import IDENTIFY, IDENTIFY_PUSH, Identify
from rumormill.libp2p.listening import Listening
from rumormill.libp2p.own_addresses import OwnAddresses
from rumormill.libp2p.pnet import WRONG_NETWORK, PrivateNetwork
from rumormill.libp2p.services import (
    PING,
    AnswerIdentify,
    AnswerPing,
    Description,
    ReadIdentify,
)
from rumormill.libp2p.stream import Stream, StreamHandler
from rumormill.libp2p.transports import layer_of
from rumormill.libp2p.turns import Turns
from rumormill.wire import keys
from rumormill.wire.multiaddr import Endpoint, Multiaddr

MAX_STREAMS_PER_PROTOCOL: Final = 16
"""Inbound streams of one kind (identify, ping, ...) on one connection: more than a peer needs."""
MAX_CIRCUITS: Final = 64
"""Likewise of those that become connections with others, through one relay: a few times the links
that a node keeps."""
BANNED: Final = "banned"
_STREAM: Final = 1.0
"""What a stream that a peer opens costs it (`admission`). Our choice: honest peers open a handful
on a connection, and no one who floods by talks that are short and in order opens them for nothing.
"""


class Swarm(Dialling):
    """The connections of one node."""

    def __init__(
        self,
        key: keys.PrivateKey,
        config: ConnectionConfig,
        network: PrivateNetwork | None = None,
        announced: Sequence[Multiaddr] = (),
    ) -> None:
        super().__init__(config)
        self.key = key
        self.id: PeerId = bytes(key.peer_id)
        self.config = config
        self.network = network
        self.turns = Turns()
        self._lists = PeerLists(config)
        self.spares: dict[PeerId, Connection] = {}
        """Second connections, one per peer at most, dialled in the other direction."""
        self._retired: dict[PeerId, Connection] = {}
        self.dialling_back: dict[PeerId, None] = {}
        """Peers that we have asked to dial us: js and rust do so as themselves, and such a call
        takes nobody's place."""
        self.on_peer: Callable[[Connection], None] = lambda _: None
        self.on_relayed: Callable[[Connection], None] = lambda _: None
        self.on_peer_gone: Callable[[PeerId, str], None] = lambda *_: None
        self.on_excluded: Callable[[PeerId, str], None] = lambda *_: None
        self.listening = Listening(self.new_connection, self.count)
        self.own = OwnAddresses(announced, self.listening.addresses)
        self._describe = describe = Description(key, self, time.time_ns)
        self.services: dict[str, Callable[[Connection, Stream], StreamHandler | None]] = {
            IDENTIFY: lambda *_: AnswerIdentify(describe),
            IDENTIFY_PUSH: lambda *_: ReadIdentify(self._learn, self.count),
            PING: lambda *_: AnswerPing(),
        }
        self.prices: dict[str, float] = {STOP: 0.0}
        """Where a stream costs something else: a relay opens them for others, who pay there."""
        self.on_cut_off: Callable[[PeerId, str], None] = lambda *_: None
        self._all: dict[Connection, None] = {}
        self._upgrading: Places[Connection] = Places(config.max_pending_upgrades)
        """Connections that others made and whose handshake is not done."""
        self._conduct = Conduct()
        self.circuits = Circuits(self)
        self.services[STOP] = self.circuits.serve
        self.keepers: list[Callable[[PeerId], bool]] = []
        """Who knows of peers whose connections are to stay: relays, and those who rely on us."""
        self.on_gone: list[Callable[[PeerId], None]] = []
        self.has_queued: Callable[[], bool] = lambda: False
        """Whether a protocol has something to send that no connection has taken yet."""

    def count(self, reason: str) -> None:
        """Count a refusal; of a private network's, whose peer has no name, it is told as well."""
        self.counts[reason] += 1
        if reason == WRONG_NETWORK:
            self.on_excluded(b"", reason)

    def refusals(self) -> dict[str, int]:
        """What peers were refused or cut off for, with what live connections have refused."""
        totals = self.counts.copy()
        for connection in self._all:
            if connection.closed_because is None:
                totals.update(connection.session.drops)
        return dict(totals)

    # Listening.

    def new_connection(self, expected_peer: PeerId | None = None) -> Connection:
        """Make a connection that we dial, to the peer that is expected; without one, that comes."""
        expected = None if expected_peer is None else keys.PeerId(expected_peer)
        return Connection(self, outbound=expected is not None, expected_peer=expected)

    async def listen(self, at: Endpoint) -> None:
        """Accept connections at a TCP address."""
        layer = layer_of(at.way, self.config.tls_certificate, self.config.tls_key)
        await self.listening.listen(at.host, at.port, layer)

    @property
    def own_addresses(self) -> list[Multiaddr]:
        """Where this node can be reached, as addresses without peer id."""
        return self.own.all()

    def admit(self, connection: Connection) -> bool:
        """Count a new connection in, or close it when its origin has too many or is kept out."""
        origin = connection.origin
        refusal = None
        if self._closing:
            refusal = "closing"
        elif connection.outbound:
            pass
        elif self._bans.is_banned(origin.group, self._now()):
            refusal = BANNED
        elif (
            self._places.count(origin) + self._upgrading.count(origin)
            >= self.config.max_connections_per_address
        ):
            refusal = "too-many-from-address"
        if refusal is not None:
            self.count(refusal)
            connection.abort(refusal)
            return False
        if not connection.outbound:
            if self._upgrading.full:
                self.count("too-many-upgrades")
                self._upgrading.candidates(origin, ties=True)[0].abort("too many upgrades")
            self._upgrading.add(connection, origin)
        self._all[connection] = None
        if len(self._all) > self.config.max_connections + self.config.max_pending_upgrades:
            over = [each for each in self._all if each.closed_because is not None]
            for each in over:  # their peers do not read the end, and there is no time to wait
                each.abort("too many connections")
        return True

    def _seat(self, connection: Connection) -> str:
        """Find a place for a connection that is ready; return why there is none."""
        if self._bans.is_banned(connection.remote_peer, self._now()):
            return BANNED
        if self._places.full:
            crowd = self._places.candidates(connection.origin, ties=connection.outbound)
            going = [
                each
                for each in crowd
                if not (each.outbound or each.remote_peer in self._wanted)
                and not self.keeps(each.remote_peer)
            ]
            if not going:
                return "too-many-connections"
            self.count("crowded-out")
            going[-1].close("making room")
        self._places.add(connection, connection.origin)
        return ""

    # Conduct.

    def blame(self, peer: PeerId, reason: str, points: float = 1.0) -> None:
        """Hold against a peer what it was refused; one that floods is cut off, and kept out."""
        for connection in self._connections_of(peer):
            connection.turn.shorten()
        self.charge(peer, reason, points)

    def refuse(self, peer: PeerId, reason: str) -> None:
        """Count what a peer was refused, and hold it against it."""
        self.count(reason)
        self.blame(peer, reason)

    def charge(self, peer: PeerId, reason: str, points: float) -> None:
        """Have a peer pay for what is nothing bad, unless there is far too much of it."""
        for_what = self._conduct.blame(peer, reason, points, self._now())
        if for_what is not None:
            self.cut_off(peer, for_what)

    def _connections_of(self, peer: PeerId) -> list[Connection]:
        tables = (self._retired, self.spares, self.connections)
        return [table[peer] for table in tables if peer in table]

    def cut_off(self, peer: PeerId, for_what: str) -> None:
        """End the connections of a peer that broke the rules, and keep it out for a while."""
        self.count(f"cut-off-{for_what}")
        origin = self.connections[peer].origin if peer in self.connections else None
        self._bans.ban(peer, origin, self._now())
        self.on_cut_off(peer, for_what)
        # Not at once: whoever blames is in the midst of its work.
        loop = asyncio.get_running_loop()
        for connection in self._connections_of(peer):
            loop.call_soon(partial(connection.close, f"cut off for {for_what}", orderly=False))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # Connections come and go.

    def on_ready(self, connection: Connection) -> None:
        """A connection finished its upgrade."""
        self._upgrading.remove(connection)
        peer = connection.remote_peer
        if peer == self.id:
            self.count("self-dial")
            connection.close("connected to ourselves")
            return
        if excluded := self._excluded(peer):
            connection.abort(excluded)
            return
        if refusal := self._seat(connection):
            self.count(refusal)
            connection.close(refusal)
            return
        other = self.connections.get(peer)
        if other is not None and peer in self.dialling_back and not connection.outbound:
            self._retire(connection)
            return
        if other is not None and not (other.relay and not connection.relay):
            self.count("duplicate-connection")
            if connection.outbound != other.outbound or (connection.relay and not other.relay):
                older, self.spares[peer] = self.spares.get(peer), connection
                if older is not None:
                    older.close("duplicate connection")
                return
        self.connections[peer] = connection
        self.own.note(connection.local_host)
        if other is not None:
            # It is relayed, or most likely dead on the other side, which dialled again.
            self._retire(other)
        connection.open_stream((IDENTIFY,), ReadIdentify(self._learn, self.count))
        self.on_peer(connection)
        if connection.relay and not connection.outbound:
            self.on_relayed(connection)

    def _excluded(self, peer: PeerId) -> str:
        """Why the lists exclude a peer, counted and told; nothing when they do not."""
        reason = self._lists.exclude(peer)
        if reason:
            self.count(reason)
            self.on_excluded(peer, reason)
        return reason

    def _retire(self, connection: Connection) -> None:
        """Close a connection soon, when what is on its way has arrived; one for each peer."""
        connection.retired = True
        older = self._retired.get(connection.remote_peer)
        if older is not None:
            older.close(RETIRED)
        self._retired[connection.remote_peer] = connection
        asyncio.get_running_loop().call_later(self.config.retire_timeout, connection.close, RETIRED)

    def on_closed(self, connection: Connection) -> None:
        """A connection ended, for whatever reason; its socket may need a moment more."""
        if connection not in self._all:
            return
        self._upgrading.remove(connection)
        self._places.remove(connection)
        self.counts.update(connection.session.drops)
        peer = connection.remote_peer
        if connection.retired:
            if self._retired.get(peer) is connection:
                del self._retired[peer]
        elif self.spares.get(peer) is connection:
            del self.spares[peer]
            if connection.ended_in_use and not connection.relay and peer in self.connections:
                self.connections[peer].close("the peer's other connection is gone")
        elif self.connections.get(peer) is connection:
            del self.connections[peer]
            spare = self.spares.pop(peer, None)
            if spare is not None:
                spare.close("the peer's other connection is gone")
            self.on_peer_gone(peer, connection.closed_because or "closed")
            for tell in self.on_gone:
                tell(peer)
            if peer in self._wanted and not self._closing and peer not in self._redialling:
                self._redialling[peer] = None
                self.spawn(self._redial(peer))

    def on_lost(self, connection: Connection) -> None:
        """A connection's socket is closed: it no longer counts."""
        self._all.pop(connection, None)

    def serve(self, connection: Connection, stream: Stream) -> StreamHandler | None:
        """Find the handler of a stream that a peer opened; None when it has too many."""
        most = MAX_CIRCUITS if stream.protocol in (HOP, STOP) else MAX_STREAMS_PER_PROTOCOL
        if connection.streams_of(stream.protocol) > most:
            self.refuse(connection.remote_peer, "too-many-streams")
            return None
        if price := self.prices.get(stream.protocol, _STREAM):
            self.charge(connection.remote_peer, "streams", price)
        return self.services[stream.protocol](connection, stream)

    # identify.

    def _learn(self, stream: Stream, said: Identify) -> None:
        peer = stream.connection.remote_peer
        record = said.check(keys.PeerId(peer))
        self.book.keep_agent(peer, said.agent_version or "")
        stream.connection.spoken = frozenset(said.protocols) or stream.connection.spoken
        at = Multiaddr.parse(stream.connection.remote_address).endpoint
        assert at is not None
        endpoints = endpoints_among(said.listen_addresses)
        if not at.relay:  # whose address is not the peer's, and who sees us not as others do
            self.own.observe(said.observed_address, origin_of(at.host))
            endpoints = placed(endpoints, at.host)
        self.book.learn(peer, endpoints, nearness(at.host))
        if record is not None and said.signed_peer_record is not None:
            self.book.keep_record(peer, said.signed_peer_record)

    def tell_addresses(self) -> None:
        """Tell those who are connected that we are reached elsewhere now."""
        for connection in self.connections.values():
            if IDENTIFY_PUSH in (connection.spoken or ()):
                with suppress(LocalError):  # it is going, or has too many streams
                    connection.open_stream((IDENTIFY_PUSH,), AnswerIdentify(self._describe))

    def keeps(self, peer: PeerId) -> bool:
        """Whether the connection with a peer is to stay, whoever else has a use for it."""
        return any(keeps(peer) for keeps in self.keepers)

    def take_hint(self, peer: PeerId, encoded: Sequence[bytes], informant: PeerId = b"") -> None:
        """Remember where a peer may be, as another says or, without one, the configuration."""
        if peer != self.id:
            near = self._near(informant) if informant else HERE
            self.book.hint(peer, endpoints_among(encoded[: 4 * MAX_HINTS]), near)

    def addresses_of(self, peer: PeerId) -> Sequence[bytes]:
        """Where a peer can be reached, ourselves included: binary multiaddrs, best first."""
        if peer != self.id:
            return [encoded(endpoint) for endpoint in self.book.endpoints(peer)]
        return [address.encode() for address in self.own_addresses]

    # Housekeeping.

    async def keep_house(self) -> None:
        """Ping the silent, for whom one side's ping is enough, and close idle connections."""
        interval = self.config.keep_alive_interval
        while True:
            await asyncio.sleep(interval)
            now = asyncio.get_running_loop().time()
            for connection in [*self.connections.values(), *self.spares.values()]:
                if self._is_used(connection) or self.keeps(connection.remote_peer):
                    connection.last_used = now
                elif now - connection.last_used > self.config.idle_timeout:
                    connection.close("idle")
                    continue
                connection.keep_alive(now, 0.9 * interval)

    def _is_used(self, connection: Connection) -> bool:
        """Whether anybody has a use for a connection: streams, or traffic on a transient one."""
        active, connection.active = connection.active, False
        if not connection.transient:
            return connection.in_use
        spare = self.spares.get(connection.remote_peer)
        return active or (spare is not None and spare.active)

    async def close(self) -> None:
        """Send what waits, as far as peers read it in time; then close everything. Whoever is
        interrupted waits for nobody, and everything is closed all the same."""
        self._closing = True
        self._wanted.clear()
        try:
            await self.listening.close()
            await until(
                lambda: not self.has_queued() and all(each.drained for each in self._all),
                self.config.shutdown_timeout,
            )
        finally:
            tasks = [*self._tasks, *self._dialling.values()]
            for task in tasks:
                task.cancel()
            for connection in list(self._all):
                connection.close("closing")
            try:
                # A peer that reads closes its side at once; the others are cut off.
                await until(lambda: not self._all, self.config.close_timeout)
            finally:
                for connection in list(self._all):
                    connection.abort("closing")
                await asyncio.gather(*tasks, return_exceptions=True)
                await until(lambda: not self._all, self.config.close_timeout)
