"""Places at relays: asked for, renewed, and told to others as addresses of ours.

A relay is named by a ticket, or is any peer that offers to be one (`auto`). A place holds as long
as the connection and the reservation do; what is lost is asked for again, by ever longer pauses.
The rule: there are so many places as make us reachable, and no more.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from rumormill.core.errors import LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p.address_book import credible, endpoints_among
from rumormill.libp2p.circuit import (
    HOP,
    MAX_MESSAGE_BYTES,
    Hop,
    HopMessage,
    Limit,
    Reservation,
    Status,
    unseal_voucher,
)
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dialogue import begin
from rumormill.libp2p.swarm import Swarm
from rumormill.wire.multiaddr import Multiaddr

_ENOUGH: Final = 2
"""Relays that are chosen among peers: one may go while the other stays."""
_LOOK: Final = 2.0
"""Seconds between two looks at who offers to be a relay."""
_REST: Final = 60.0
"""Seconds for which a peer is not asked again that has refused."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
"""Seconds before a relay that was named is asked again; they double."""
_RENEWED_AFTER: Final = 0.75
"""Of its time. A reservation is renewed before it ends, with time for some vain attempts."""
_ADDRESSES_OF_A_RELAY: Final = 2


class Place(msgspec.Struct, frozen=True):
    """A place at a relay."""

    addresses: tuple[Multiaddr, ...]
    limit: Limit


class Reserving:
    """The places of one node."""

    def __init__(
        self,
        swarm: Swarm,
        named: Sequence[Multiaddr],
        *,
        auto: bool,
        needed: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._swarm = swarm
        self._auto, self._needed, self._changed = auto, needed, changed
        self._named = swarm.book.give_all(named)
        self.places: dict[PeerId, Place] = {}
        self.problems: dict[PeerId, str] = {}
        """Why there is none at a relay that was asked."""
        self._lost: dict[PeerId, asyncio.Event] = {}
        self._asked: dict[PeerId, float] = {}
        """When peers were asked that refused."""
        swarm.circuits.reserved = self.places.__contains__
        swarm.keepers.append(self._keeps)
        swarm.on_gone.append(self._on_gone)

    def _keeps(self, peer: PeerId) -> bool:
        return peer in self.places or peer in self._named

    def _on_gone(self, peer: PeerId) -> None:
        if (lost := self._lost.get(peer)) is not None:
            lost.set()

    def start(self) -> None:
        """Ask from now on, until the swarm closes."""
        for relay in self._named:
            self._swarm.spawn(self._hold(relay))
        if self._auto:
            self._swarm.spawn(self._choose())

    async def _choose(self) -> None:
        """Ask peers that offer to be relays, while there are too few and any is needed."""
        while True:
            now = time.monotonic()
            self._asked = {each: at for each, at in self._asked.items() if now - at < _REST}
            able = list(self._swarm.connections.items()) if self._needed() else ()
            for peer, connection in able:
                offers = HOP in (connection.spoken or ()) and not connection.relay
                known = peer in self._asked or peer in self._lost
                if offers and not known and len(self._lost) < _ENOUGH:
                    self._lost[peer] = asyncio.Event()
                    self._swarm.spawn(self._hold(peer))
            await asyncio.sleep(_LOOK)

    async def _hold(self, relay: PeerId) -> None:
        """Have a place at a relay; at one that was not named, for as long as it goes well."""
        pause = _FIRST_PAUSE
        while True:
            try:
                until = await self._reserve(relay)
            except (LocalError, PeerError, TimeoutError) as error:
                self.problems[relay] = str(error) or "no answer in time"
                self._lose(relay)
                if relay not in self._named:
                    self._asked[relay] = time.monotonic()
                    return
                await asyncio.sleep(pause * (0.5 + random.random()))
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            lost = self._lost[relay] = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(1.0, (until - time.time()) * _RENEWED_AFTER)):
                    await lost.wait()
                self._lose(relay)

    async def _reserve(self, relay: PeerId) -> float:
        """Ask a relay for a place; return until when (seconds since 1970) we have it."""
        swarm = self._swarm
        async with asyncio.timeout(swarm.config.dial_timeout):
            connection = await swarm.dial(relay, direct=True)
            dialogue = await begin(connection, HOP, MAX_MESSAGE_BYTES)
            try:
                dialogue.say(HopMessage(Hop.RESERVE).encode())
                answer = HopMessage.decode(await dialogue.read())
            except BaseException:
                dialogue.give_up()
                raise
            dialogue.end()
        granted = answer.reservation
        if answer.status is not Status.OK or granted is None:
            told = "nothing" if answer.status is None else answer.status.name
            raise LocalError(f"the relay says {told.lower().replace('_', ' ')}")
        if granted.voucher is not None:
            voucher = unseal_voucher(granted.voucher)
            if (voucher.relay, voucher.peer) != (relay, swarm.id):
                raise PeerError("bad-voucher", "a voucher of another relay, or for another peer")
        self.problems.pop(relay, None)
        addresses = _addresses(relay, connection, granted)
        self._have(relay, Place(addresses, answer.limit or Limit()))
        return float(granted.expires)

    def _have(self, relay: PeerId, place: Place) -> None:
        if self.places.get(relay) != place:
            self.places[relay] = place
            self._tell()

    def _lose(self, relay: PeerId) -> None:
        self._lost.pop(relay, None)
        if self.places.pop(relay, None) is not None:
            self._tell()

    def _tell(self) -> None:
        places = self.places.values()
        self._swarm.own.relayed = [each for place in places for each in place.addresses]
        self._swarm.tell_addresses()
        self._changed()


def _addresses(
    relay: PeerId, connection: Connection, granted: Reservation
) -> tuple[Multiaddr, ...]:
    """Where others reach us through a relay: as it says, or where we have dialled it."""
    at = Multiaddr.parse(connection.remote_address).endpoint
    assert at is not None
    found = credible(endpoints_among(granted.addresses), [connection.origin.address])
    direct = [each for each in found if not each.relay]
    if not direct and connection.outbound:
        direct = [at]
    return tuple(
        Multiaddr.tcp(each.host, each.port, way=each.way, version=each.version, relay=relay)
        for each in direct[:_ADDRESSES_OF_A_RELAY]
    )
