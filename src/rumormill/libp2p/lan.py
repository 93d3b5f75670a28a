"""The nodes around us, found without a ticket: mDNS (`mdns`) on the links that this machine has.

A node asks and answers on those links at whose address it listens; one that listens to its own
machine alone says nothing to anybody. It asks often at first and then ever more rarely, and again
when the links have changed. Whoever is found is dialled, while there are few connections; of two
that find each other the one with the smaller id dials, and the other if that does not come.

IPv4 only: over IPv6, who speaks on a link shows an address that nobody can be dialled at by itself.
"""

import asyncio
import logging
import random
import secrets
import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Interface
from typing import Final

from rumormill.libp2p.links import links
from rumormill.libp2p.mdns import GROUP, PORT, Found, Mdns, service_of
from rumormill.libp2p.swarm import Swarm
from rumormill.wire.multiaddr import Multiaddr

_log = logging.getLogger("rumormill.lan")

NOT_SENT: Final = "mdns-not-sent"
NO_SOCKET: Final = "mdns-no-socket"

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds between two questions; they double. RFC 6762, 5.2, which allows an hour."""
_SPREAD: Final = 0.1
"""Seconds by which answers are spread out, so that not all come at once. RFC 6762, 6."""
_POLITE: Final = 2.0
_ENOUGH: Final = 16
"""Connections from which on nobody is dialled for being found: as many as membership keeps."""

_MULTICAST_ALL: Final = 49
"""Linux: hear what this socket has joined, and not what others of this machine have."""


def heard_on(listening: Sequence[Multiaddr]) -> list[IPv4Interface]:
    """The links on which a node is found that listens at these addresses."""
    hosts = [address.endpoint.host for address in listening if address.endpoint is not None]
    return [link for link in links() if "0.0.0.0" in hosts or str(link.ip) in hosts]


class Lan:
    """Looks for other nodes of the same network, and is found by them."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self._name = secrets.token_hex(20)
        self._service = service_of(swarm.network)
        self._open: dict[IPv4Interface, _OnLink] = {}
        self._met: dict[bytes, None] = {}
        """Who is about to be dialled."""

    async def keep_looking(self) -> None:
        """Ask, and answer, until cancelled."""
        pause = _FIRST_PAUSE
        try:
            while True:
                if await self._follow_links():
                    pause = _FIRST_PAUSE
                for each in self._open.values():
                    each.ask()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            for each in self._open.values():
                each.close()

    async def _follow_links(self) -> bool:
        """Be on the links that there are now; return whether there is a new one."""
        there = heard_on(self._swarm.listening.addresses)
        for link in [link for link in self._open if link not in there]:
            self._open.pop(link).close()
        new = [link for link in there if link not in self._open]
        for link in new:
            swarm = self._swarm
            machine = Mdns(swarm.id, self._name, self._service, link, swarm.count)
            on_link = _OnLink(machine, swarm, self._meet)
            try:
                await _listen(on_link, link.ip)
                self._open[link] = on_link
            except OSError as error:
                swarm.count(NO_SOCKET)
                _log.warning("no mDNS at %s: %s", link, error.strerror or error)
        return bool(new)

    def _meet(self, found: Found) -> None:
        """Remember where a peer is, and dial it if we know few."""
        swarm, peer = self._swarm, found.peer
        swarm.take_hint(peer, found.addresses)
        known = peer in swarm.connections or peer in self._met
        if not known and len(swarm.connections) < _ENOUGH:
            self._met[peer] = None
            swarm.spawn(self._dial(peer))

    async def _dial(self, peer: bytes) -> None:
        try:
            if self._swarm.id > peer:
                await asyncio.sleep(_POLITE)
            if peer not in self._swarm.connections:
                self._swarm.dial_record(peer, b"")
        finally:
            del self._met[peer]


async def _listen(heard_by: asyncio.DatagramProtocol, address: IPv4Address) -> None:
    """Open a socket that hears what is said to the group on the link of one of our addresses."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        joined = socket.inet_aton(GROUP) + address.packed
        for option, value in (
            (socket.IP_ADD_MEMBERSHIP, joined),
            (socket.IP_MULTICAST_IF, address.packed),
            (socket.IP_MULTICAST_TTL, 255),
            (socket.IP_MULTICAST_LOOP, 1),  # nodes on one machine find each other as well
            (_MULTICAST_ALL, 0),
        ):
            sock.setsockopt(socket.IPPROTO_IP, option, value)
        # Bound to the group: what is sent to us alone, as from outside the link, does not come.
        sock.bind((GROUP, PORT))
        sock.setblocking(False)
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: heard_by, sock=sock)
    except BaseException:
        sock.close()
        raise


class _OnLink(asyncio.DatagramProtocol):
    """One machine, and the socket that it speaks by."""

    def __init__(self, machine: Mdns, swarm: Swarm, meet: Callable[[Found], None]) -> None:
        self._machine = machine
        self._swarm = swarm
        self._meet = meet
        self._loop = asyncio.get_running_loop()
        self._answering: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Be ready to speak."""
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Hear what somebody says."""
        machine, now = self._machine, self._loop.time()
        for found in machine.receive(data, address[0], now):
            self._meet(found)
        if machine.answer_at is not None and self._answering is None:
            wait = machine.answer_at - now + _SPREAD * random.random()
            self._answering = self._loop.call_later(wait, self._answer)

    def error_received(self, error: Exception) -> None:
        """The link did not take what we said; it is said again."""
        self._swarm.count(NOT_SENT)

    def ask(self) -> None:
        """Ask who is there."""
        self._transport.sendto(self._machine.question, (GROUP, PORT))

    def _answer(self) -> None:
        self._answering = None
        answer = self._machine.answer(self._swarm.listening.addresses, self._loop.time())
        if answer:
            self._transport.sendto(answer, (GROUP, PORT))

    def close(self) -> None:
        """Say and hear nothing more."""
        if self._answering is not None:
            self._answering.cancel()
        self._transport.close()
