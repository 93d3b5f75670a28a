"""Hole punching over TCP: from a connection through a relay to one that needs none (`dcutr`).

Both sides dial from the port on which they listen, at the same moment: each one's SYN opens its own
router for the other's. Which of the two is client for noise is fixed by who dialled through the
relay, whoever's SYN came first: that one is, also where its own listener has taken the connection.

What a router makes of our port is found out by calls from there to the relay and to another public
peer, which say under which address they see us; the calls stay open until the punch is over, so
that the router does not forget. Two who see different ports have found a symmetric NAT, and the
other side is told both. Through two of them nothing is tried: neither port can be foreseen. Through
one it is tried once: the other side's router lets us in whatever our port, or never. The rules:
only with a peer that is proven, only to public addresses, few of them, three times at most; one
punch with a peer at a time, and so many in all.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from rumormill.core.errors import LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p import autonat
from rumormill.libp2p.address_book import endpoints_among
from rumormill.libp2p.caller import Caller
from rumormill.libp2p.closing import until
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dcutr import (
    DCUTR,
    MAX_DIALLED,
    MAX_MESSAGE_BYTES,
    Punch,
    PunchMessage,
    changes_ports,
)
from rumormill.libp2p.dialogue import Dialogue, answering, begin
from rumormill.libp2p.identify import IDENTIFY, Identify
from rumormill.libp2p.racing import race
from rumormill.libp2p.services import ReadIdentify
from rumormill.libp2p.stream import Stream
from rumormill.libp2p.swarm import Swarm
from rumormill.libp2p.transports import dial
from rumormill.wire.keys import PeerId as ReadablePeerId
from rumormill.wire.multiaddr import Endpoint, Multiaddr, Way

_log = logging.getLogger("rumormill.reach")

_ATTEMPTS: Final = 3
_DIRECT: Final = 2.0
"""Seconds for which public addresses are tried before a punch."""
_TALK: Final = 10.0
"""Seconds for the messages of an attempt."""
_ATTEMPT: Final = 4.0
"""Seconds for its dials: a SYN that was lost is repeated after 1 and 3."""
_AGAIN: Final = 0.02
"""Seconds after which a dial that was refused is repeated, with another socket; they double, since
it is the peer that says who is dialled."""
_MAX_PUNCHES: Final = 16

DIRECT: Final = "direct"
PUNCHED: Final = "punched"
NOT_PUNCHED: Final = "not punched"
NO_ADDRESS: Final = "no address"
NOT_SPOKEN: Final = "not spoken"
SYMMETRIC: Final = "symmetric NATs"

_BOTH_SYMMETRIC: Final = "both routers take another port for everybody they send to"
_ONE_SYMMETRIC: Final = (
    "one router takes another port for everybody it sends to, and the other lets in only ports that"
    " it has sent to"
)


class Punching:
    """The punches of one node."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self.outcomes: Counter[str] = Counter()
        self.last: dict[PeerId, str] = {}
        """Of the latest punches, by peer."""
        self.reasons: dict[PeerId, str] = {}
        """Of those among them that were in vain, why, where that is known."""
        self.symmetric: bool | None = None
        """Whether our router takes another port for everybody; None while nobody knows."""
        self._open: dict[PeerId, None] = {}
        self._followed: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        """How often the peer of a connection has led us into a punch."""
        swarm.services[DCUTR] = answering(MAX_MESSAGE_BYTES, swarm.spawn, self._on_dcutr)
        swarm.on_relayed = self._on_relayed

    def _on_relayed(self, connection: Connection) -> None:
        """Somebody has reached us through a relay."""
        peer = connection.remote_peer
        if peer in self._open or len(self._open) >= _MAX_PUNCHES:
            return
        self._open[peer] = None
        self._swarm.spawn(self._upgrade(connection))

    def _note(self, peer: PeerId, outcome: str, why: str = "") -> None:
        self.outcomes[outcome] += 1
        self.last.pop(peer, None)
        self.last[peer] = outcome
        if len(self.last) > _MAX_PUNCHES:
            del self.last[next(iter(self.last))]
        self.reasons[peer] = why
        self.reasons = {each: self.reasons[each] for each in self.last if self.reasons.get(each)}
        _log.debug("%s: %s", ReadablePeerId(peer), outcome)

    def _is_direct(self, peer: PeerId) -> bool:
        connection = self._swarm.connections.get(peer)
        return connection is not None and not connection.relay

    # The side that was reached: it leads.

    async def _upgrade(self, connection: Connection) -> None:
        peer = connection.remote_peer
        try:
            await until(lambda: connection.spoken is not None, _TALK)
            self._note(peer, *await self._lead(connection, peer))
        finally:
            del self._open[peer]

    async def _lead(self, connection: Connection, peer: PeerId) -> tuple[str, str]:
        """What came of it, and why, where that is known."""
        if await self._dial_straight(peer):
            return DIRECT, ""
        if DCUTR not in (connection.spoken or ()):
            return NOT_SPOKEN, ""
        why = ""
        async with self._seen_from_outside(connection) as own:
            if not own:
                return NO_ADDRESS, ""
            left = _ATTEMPTS
            while left and not self._is_direct(peer) and connection.closed_because is None:
                left -= 1
                with contextlib.suppress(LocalError, PeerError, TimeoutError):
                    async with asyncio.timeout(_TALK):
                        theirs, half = await self._agree(connection, own)
                    changing = changes_ports(_dialled(own)), changes_ports(theirs)
                    if all(changing):
                        return SYMMETRIC, _BOTH_SYMMETRIC
                    if any(changing):
                        left, why = 0, _ONE_SYMMETRIC
                    await asyncio.sleep(half)
                    await self._punch(peer, theirs, self._swarm.new_connection)
        return (PUNCHED, "") if self._is_direct(peer) else (NOT_PUNCHED, why)

    async def _dial_straight(self, peer: PeerId) -> bool:
        """Try public addresses of the peer, of which it may have some."""
        swarm = self._swarm
        public = [each for each in swarm.book.endpoints(peer) if _is_dialled(each)]
        if public:
            ways = [partial(swarm.dial_at, peer, each) for each in public[:MAX_DIALLED]]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DIRECT):
                    await race(ways)
        return self._is_direct(peer)

    async def _agree(
        self, connection: Connection, own: Sequence[bytes]
    ) -> tuple[list[Endpoint], float]:
        """Exchange addresses; return the peer's, and half of a round trip."""
        loop = asyncio.get_running_loop()
        dialogue = await begin(connection, DCUTR, MAX_MESSAGE_BYTES)
        try:
            before = loop.time()
            dialogue.say(PunchMessage(Punch.CONNECT, tuple(own)).encode())
            answer = PunchMessage.decode(await dialogue.read())
            half = (loop.time() - before) / 2
            if answer.type is not Punch.CONNECT:
                raise PeerError("dcutr-unexpected", "no CONNECT in answer to one")
            dialogue.say(PunchMessage(Punch.SYNC).encode())
        finally:
            dialogue.end()
        return _dialled(answer.addresses), half

    # The side that has dialled: it follows.

    async def _on_dcutr(self, connection: Connection, dialogue: Dialogue) -> None:
        peer = connection.remote_peer
        led = self._followed.get(connection, 0)
        reached_by_us = connection.relay and connection.outbound
        if not reached_by_us or peer in self._open or led >= _ATTEMPTS:
            self._swarm.refuse(peer, "dcutr-unexpected")
            dialogue.give_up()
            return
        self._open[peer], self._followed[connection] = None, led + 1
        try:
            async with self._seen_from_outside(connection) as own:
                async with asyncio.timeout(_TALK):
                    offered = PunchMessage.decode(await dialogue.read())
                    dialogue.say(PunchMessage(Punch.CONNECT, tuple(own)).encode())
                    sync = PunchMessage.decode(await dialogue.read())
                if (offered.type, sync.type) != (Punch.CONNECT, Punch.SYNC):
                    raise PeerError("dcutr-unexpected", "neither CONNECT nor SYNC")
                dialogue.end()
                theirs = _dialled(offered.addresses)
                changing = changes_ports(_dialled(own)), changes_ports(theirs)
                if all(changing):
                    self._note(peer, SYMMETRIC, _BOTH_SYMMETRIC)
                    return
                client = partial(self._swarm.new_connection, peer)
                # js-libp2p dials as a client there too, as from anybody it is not expected.
                is_js = self._swarm.book.agents.get(peer, "").startswith("js-libp2p")
                await self._punch(peer, theirs, client, expected=not is_js)
            if self._is_direct(peer):
                self._note(peer, PUNCHED)
            else:
                self._note(peer, NOT_PUNCHED, _ONE_SYMMETRIC if any(changing) else "")
        except (LocalError, TimeoutError):
            dialogue.give_up()
        except PeerError as error:
            self._swarm.refuse(peer, error.reason)
            dialogue.give_up()
        finally:
            del self._open[peer]

    # What both do.

    @contextlib.asynccontextmanager
    async def _seen_from_outside(self, relayed: Connection) -> AsyncIterator[list[bytes]]:
        """Under which addresses the world sees the port on which we listen."""
        own = self._swarm.own
        told = [each for each in own.direct() if each.endpoint and _is_dialled(each.endpoint)]
        at = Multiaddr.parse(relayed.remote_address).endpoint
        assert at is not None
        witness = self._witness(relayed.relay, at.host)
        asked = [(relayed.relay, replace(at, relay=b""), _TALK), *([witness] if witness else [])]
        calls = [
            (Caller(self._swarm).connection(peer), where, patience)
            for peer, where, patience in asked
        ]
        try:
            # Of a relay that is not public we learn nothing of the world.
            public = calls if autonat.is_public(at.host) else []
            answers = await asyncio.gather(*(self._ask_where(*call) for call in public))
            seen = _dialled([each for each in answers if each is not None])
            if len(seen) > 1:
                self.symmetric = changes_ports(seen)
            # Where peers see our port is where it is, unless we know of another way in.
            hosts = {each.host for each in seen}
            sure = own.sure()
            kept = [each for each in told if each in sure or _host(each) not in hosts]
            found = [*kept, *(Multiaddr.tcp(each.host, each.port) for each in seen)]
            yield [each.encode() for each in dict.fromkeys(found)]
        finally:
            for call, _, _ in calls:
                call.abort("the punch is over")

    def _witness(self, relay: PeerId, relay_host: str) -> tuple[PeerId, Endpoint, float] | None:
        """Another public peer that we have dialled, if there is one; it is not waited for long."""
        for peer, connection in self._swarm.connections.items():
            if connection.outbound and not connection.relay and peer != relay:
                at = Multiaddr.parse(connection.remote_address).endpoint
                if at is not None and _is_dialled(at) and at.host != relay_host:
                    return peer, at, _DIRECT
        return None

    async def _ask_where(self, call: Connection, at: Endpoint, patience: float) -> bytes | None:
        """Call a peer from the port on which we listen; return where it sees us."""
        swarm = self._swarm
        seen: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def learn(_: Stream, said: Identify) -> None:
            if not seen.done():
                seen.set_result(said.observed_address)

        with contextlib.suppress(OSError, LocalError, TimeoutError):
            async with asyncio.timeout(patience):
                await dial(at, call, swarm.listening.bound(six=":" in at.host))
                await call.ready_or_failed
                call.open_stream((IDENTIFY,), ReadIdentify(learn, swarm.count))
                return await seen
        return None

    async def _punch(
        self,
        peer: PeerId,
        theirs: Sequence[Endpoint],
        make: Callable[[], Connection],
        *,
        expected: bool = True,
    ) -> None:
        """Dial a peer at all its addresses, again and again, until there is a connection; one that
        has told us none may dial us."""
        listening = self._swarm.listening

        def punched() -> Connection:
            connection = make()
            connection.punched = True
            return connection

        for each in theirs if expected else ():
            listening.expected[each.host] = punched
        dials = [asyncio.ensure_future(self._dial(each, punched)) for each in theirs]
        try:
            await until(lambda: self._is_direct(peer), _ATTEMPT)
        finally:
            for each in theirs:
                listening.expected.pop(each.host, None)
            for dialling in dials:
                dialling.cancel()
            await asyncio.gather(*dials, return_exceptions=True)

    async def _dial(self, at: Endpoint, make: Callable[[], Connection]) -> None:
        pause = _AGAIN
        while True:
            bound = self._swarm.listening.bound(six=":" in at.host)
            if bound is None:
                return
            connection = make()
            try:
                await dial(at, connection, bound)
                await connection.ready_or_failed
                return
            except (OSError, LocalError):
                await asyncio.sleep(pause)
                pause *= 2
            except asyncio.CancelledError:
                if not connection.ready:
                    connection.abort("the punch is over")
                raise


def _host(address: Multiaddr) -> str:
    return address.endpoint.host if address.endpoint else ""


def _is_dialled(at: Endpoint) -> bool:
    return not at.relay and at.way is Way.PLAIN and autonat.is_public(at.host)


def _dialled(addresses: Sequence[bytes]) -> list[Endpoint]:
    """Those of a peer's addresses that are dialled."""
    found = [each for each in endpoints_among(addresses) if _is_dialled(each)]
    return found[:MAX_DIALLED]
