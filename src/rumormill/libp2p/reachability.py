"""Whether this node can be reached, by AutoNAT v2: peers are asked to dial back, and dial back.

Every address of the public internet that may be ours is tried by several peers of different
origins. One that was reached is proven, since the number came that only the asked peer knew; one
that was not is believed to be closed when nobody else has reached it. Dial-backs of ours have a
key of their own, as go's have: the peer is connected already, and takes a second connection of the
same peer for something else.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

import msgspec

from rumormill.core.bounded import remember
from rumormill.core.errors import LocalError, PeerError
from rumormill.core.ids import PeerId
from rumormill.libp2p import autonat
from rumormill.libp2p.autonat import (
    DIAL_BACK,
    DIAL_REQUEST,
    MAX_DATA_BYTES,
    MAX_MESSAGE_BYTES,
    MOST_COST,
    DataRequest,
    DataResponse,
    Dial,
    DialBack,
    DialBacks,
    Dialled,
    DialRequest,
    DialResponse,
    Refused,
    Response,
    decode_message,
    encode_message,
)
from rumormill.libp2p.caller import Caller
from rumormill.libp2p.connection import Connection
from rumormill.libp2p.dialogue import Dialogue, answering, begin
from rumormill.libp2p.swarm import Swarm
from rumormill.libp2p.transports import dial
from rumormill.wire.multiaddr import Endpoint, Multiaddr

_LOOK: Final = 2.0
"""Seconds between two looks at what is to be asked."""
_WITNESSES: Final = 3
"""Peers that are asked about an address."""
_TRUE_FOR: Final = 900.0
_FALSE_FOR: Final = 120.0
"""Seconds for which an answer holds. Our choice: a router that lets nobody through may be told to
sooner than one that does is told not to."""
_TIMEOUT: Final = 15.0
"""Seconds for a dial, with the bytes that it costs before."""
_MAX_PIECES: Final = 1024
_MAX_ADDRESSES: Final = 8
_MAX_UNWILLING: Final = 256


class Answer(msgspec.Struct, frozen=True):
    """What one peer found."""

    reached: bool
    at: float


class AutoNat:
    """Both sides of it."""

    def __init__(self, swarm: Swarm, changed: Callable[[], None]) -> None:
        self._swarm = swarm
        self._changed = changed
        self._rules = DialBacks(lambda host: autonat.is_public(host))  # noqa: PLW0108 (looked up then)
        self._expected: dict[int, bool] = {}
        """The numbers that peers were given, and whether they have come."""
        self.answers: dict[Multiaddr, dict[str, Answer]] = {}
        """What was found of our addresses, by the origins of those who tried."""
        self._unwilling: dict[PeerId, float] = {}
        """Peers that have not tried, and when they were asked."""
        ask = answering(MAX_MESSAGE_BYTES, swarm.spawn, self._on_request)
        swarm.services[DIAL_REQUEST] = ask
        swarm.services[DIAL_BACK] = answering(MAX_MESSAGE_BYTES, swarm.spawn, self._on_back)

    # What is known.

    def reached(self, address: Multiaddr) -> bool | None:
        """Whether anybody could dial an address; None if nobody has tried."""
        answers = self.answers.get(address)
        return any(each.reached for each in answers.values()) if answers else None

    @property
    def proven(self) -> list[Multiaddr]:
        """Where this node was reached."""
        return [address for address in self.answers if self.reached(address)]

    # Asking.

    async def keep_asking(self) -> None:
        """Ask whenever something is not known, or was long ago."""
        while True:
            await asyncio.sleep(_LOOK)
            addresses = self._candidates()
            for gone in [each for each in self.answers if each not in addresses]:
                del self.answers[gone]
            for address in addresses:
                if (connection := self._whom_to_ask(address)) is not None:
                    await self._ask(connection, address)

    def _candidates(self) -> list[Multiaddr]:
        found = dict.fromkeys([*self._swarm.own.direct(), *self._swarm.own.supposed()])
        public = [
            address
            for address in found
            if address.endpoint is not None and autonat.is_public(address.endpoint.host)
        ]
        return public[:_MAX_ADDRESSES]

    def _whom_to_ask(self, address: Multiaddr) -> Connection | None:
        """A peer whose origin has not tried an address, or long ago."""
        answers, now = self.answers.get(address, {}), time.monotonic()
        for group, answer in list(answers.items()):
            if now - answer.at > (_TRUE_FOR if answer.reached else _FALSE_FOR):
                del answers[group]
        if len(answers) >= _WITNESSES:
            return None
        for connection in self._swarm.connections.values():
            able = DIAL_REQUEST in (connection.spoken or ()) and not connection.relay
            unwilling_at = self._unwilling.get(connection.remote_peer, -_TRUE_FOR)
            if able and now - unwilling_at > _TRUE_FOR and connection.origin.group not in answers:
                return connection
        return None

    async def _ask(self, connection: Connection, address: Multiaddr) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                reached = await self.ask(connection, address)
        except (LocalError, PeerError, TimeoutError):
            reached = None
        if reached is None:
            remember(self._unwilling, connection.remote_peer, time.monotonic(), _MAX_UNWILLING)
            return
        before = self.reached(address)
        answers = self.answers.setdefault(address, {})
        answers[connection.origin.group] = Answer(reached, time.monotonic())
        if self.reached(address) != before:
            self._swarm.own.proven = self.proven
            self._swarm.tell_addresses()
            self._changed()

    async def ask(self, connection: Connection, address: Multiaddr) -> bool | None:
        """Have a peer dial an address of ours; whether it came through, None if it did not try."""
        nonce = secrets.randbits(64)
        dialogue = await begin(connection, DIAL_REQUEST, MAX_MESSAGE_BYTES)
        self._expected[nonce] = False
        self._swarm.dialling_back[connection.remote_peer] = None
        try:
            dialogue.say(encode_message(DialRequest((address.encode(),), nonce)))
            while True:
                body = decode_message(await dialogue.read())
                if isinstance(body, DataRequest) and body.size <= MOST_COST:
                    for start in range(0, body.size, MAX_DATA_BYTES):
                        piece = bytes(min(MAX_DATA_BYTES, body.size - start))
                        dialogue.say(encode_message(DataResponse(piece)))
                    continue
                if not isinstance(body, DialResponse) or body.status is not Response.OK:
                    return None
                if body.dialled is not Dialled.OK:
                    return False if body.dialled is Dialled.DIAL_ERROR else None
                if not self._expected[nonce]:
                    self._swarm.count("autonat-unproven")
                    return None
                return True
        finally:
            del self._expected[nonce]
            self._swarm.dialling_back.pop(connection.remote_peer, None)
            dialogue.give_up()

    async def _on_back(self, connection: Connection, dialogue: Dialogue) -> None:
        """Somebody says a number."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                nonce = DialBack.decode(await dialogue.read()).nonce
        except (LocalError, PeerError, TimeoutError):
            dialogue.give_up()
            return
        if nonce in self._expected:
            self._expected[nonce] = True
            dialogue.say(autonat.HEARD)
            dialogue.end()
        else:
            self._swarm.refuse(connection.remote_peer, "autonat-unknown-number")
            dialogue.give_up()

    # Dialling back.

    async def _on_request(self, connection: Connection, dialogue: Dialogue) -> None:
        """A peer wants to be dialled."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                request = decode_message(await dialogue.read())
            if not isinstance(request, DialRequest):
                raise PeerError("autonat-unexpected", "no request to dial")
            answer = await self._deal_with(connection, dialogue, request)
        except (LocalError, PeerError, TimeoutError) as error:
            if isinstance(error, PeerError):
                self._swarm.refuse(connection.remote_peer, error.reason)
            dialogue.give_up()
            return
        dialogue.say(encode_message(answer))
        dialogue.end()

    async def _deal_with(
        self, connection: Connection, dialogue: Dialogue, request: DialRequest
    ) -> DialResponse:
        chosen: Dial | Refused
        if connection.relay:
            chosen = Refused(Response.DIAL_REFUSED, "autonat-over-relay")
        else:
            chosen = self._rules.take(
                connection.remote_peer,
                connection.origin.address,
                request.addresses,
                secrets.randbits(32),
                time.monotonic(),
            )
        if isinstance(chosen, Refused):
            self._swarm.refuse(connection.remote_peer, chosen.reason)
            return DialResponse(chosen.status)
        try:
            if chosen.cost:
                async with asyncio.timeout(_TIMEOUT):
                    await self._collect(dialogue, chosen)
            dialled = await self._dial_back(connection.remote_peer, chosen.endpoint, request.nonce)
            return DialResponse(Response.OK, chosen.index, dialled)
        finally:
            self._rules.done()

    async def _collect(self, dialogue: Dialogue, chosen: Dial) -> None:
        """Have the peer pay for the dial."""
        dialogue.say(encode_message(DataRequest(chosen.index, chosen.cost)))
        due = chosen.cost
        for _ in range(_MAX_PIECES):
            body = decode_message(await dialogue.read())
            if not isinstance(body, DataResponse):
                break
            due -= len(body.data)
            if due <= 0:
                return
        raise PeerError("autonat-not-paid", "fewer bytes than a dial costs")

    async def _dial_back(self, peer: PeerId, at: Endpoint, nonce: int) -> Dialled:
        connection = Caller(self._swarm).connection(peer)
        outcome = Dialled.DIAL_ERROR
        try:
            async with asyncio.timeout(self._swarm.config.dial_timeout):
                await dial(at, connection)
                await connection.ready_or_failed
                outcome = Dialled.DIAL_BACK_ERROR
                dialogue = await begin(connection, DIAL_BACK, MAX_MESSAGE_BYTES)
                dialogue.say(DialBack(nonce).encode())
                await dialogue.read()
                outcome = Dialled.OK
        except (OSError, LocalError, PeerError, TimeoutError):
            pass
        finally:
            connection.abort("the number is said")
        return outcome
