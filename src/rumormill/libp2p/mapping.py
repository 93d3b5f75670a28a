"""Has the home router lead a port to us, while we run: by PCP, NAT-PMP or UPnP (`portmap`).

The default gateway is asked, and nobody else is heard. A lease lasts an hour and is renewed; when
the node ends, the port is given back. What the router says is an address that may be ours: it is
told to others, and tried by AutoNAT as all are.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rumormill.core.errors import DecodeError
from rumormill.libp2p import autonat, portmap
from rumormill.libp2p.portmap import LEASE, Mapped
from rumormill.libp2p.swarm import Swarm
from rumormill.wire.multiaddr import Multiaddr, Way

_log = logging.getLogger("rumormill.reach")

_ROUTES: Final = Path("/proc/net/route")
_PAUSES: Final = (0.25, 0.5, 1.0)
"""Seconds for which an answer is awaited before the question is repeated (RFC 6886, 3.1)."""
_HTTP_TIMEOUT: Final = 5.0
_MAX_HTTP_BYTES: Final = 64 << 10
_AGAIN: Final = 600.0
"""Seconds after which a router that refused is asked again."""
_NAME: Final = "rumormill"
_FOREIGN: Final = "foreign-port-mapping"
"""Counted for each datagram of another than the gateway: whoever sees the search may send them."""


def default_gateway() -> str:
    """The router of this machine; empty where it has none, or the system does not tell."""
    with contextlib.suppress(OSError):
        for line in _ROUTES.read_text().splitlines()[1:]:
            words = line.split()
            if len(words) > 2 and words[1] == "00000000" and words[2] != "00000000":
                return str(IPv4Address(bytes.fromhex(words[2])[::-1]))
    return ""


class PortMapping:
    """The port of the router that leads to us."""

    def __init__(self, swarm: Swarm, changed: Callable[[], None]) -> None:
        self._swarm = swarm
        self._changed = changed
        self._give_back: Callable[[], Awaitable[object]] | None = None
        self.outcome = ""
        """What came of it, for people."""

    async def keep(self) -> None:
        """Have a port, as long as the node runs."""
        while True:
            lease = await self._map()
            await asyncio.sleep(lease / 2 if lease else _AGAIN)

    async def close(self) -> None:
        """Give the port back."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            with contextlib.suppress(OSError, DecodeError, TimeoutError):
                await give_back()

    async def _map(self) -> float:
        """Ask in each way until one works; return for how many seconds it does."""
        gateway, port = default_gateway(), self._port()
        mapped, reasons = None, []
        if not gateway or not port:
            reasons.append("no default gateway" if port else "no TCP port that others reach")
        else:
            own = _own_address(gateway)
            for name, way in (("PCP", self._pcp), ("NAT-PMP", self._pmp), ("UPnP", self._upnp)):
                try:
                    mapped = await way(gateway, own, port)
                    break
                except (OSError, DecodeError, TimeoutError) as error:
                    reasons.append(f"{name}: {_why(error)}")
                    if isinstance(error, DecodeError):
                        self._swarm.count(error.reason)
        addresses = []
        if mapped is not None and mapped.port and autonat.is_public(mapped.host):
            addresses = [Multiaddr.tcp(mapped.host, mapped.port)]
            self.outcome = f"the router maps {addresses[0]} to us"
        elif mapped is not None:
            self.outcome = f"the router is behind another: its own address is {mapped.host}"
        else:
            self.outcome = f"the router maps no port to us ({'; '.join(reasons)})"
        if addresses != self._swarm.own.mapped:
            self._swarm.own.mapped = addresses
            _log.info("%s", self.outcome)
            self._swarm.tell_addresses()
            self._changed()
        return 0.0 if mapped is None else max(60.0, float(mapped.seconds or LEASE))

    def _port(self) -> int:
        """The port on which we listen for others, over TCP alone and IPv4."""
        for address in self._swarm.listening.addresses:
            at = address.endpoint
            if at is not None and at.way is Way.PLAIN and ":" not in at.host:
                return at.port
        return 0

    # The ways.

    async def _pcp(self, gateway: str, own: str, port: int) -> Mapped:
        nonce = secrets.token_bytes(portmap.NONCE_BYTES)

        async def ask(seconds: int) -> Mapped:
            request = portmap.pcp_request(nonce, own, port, seconds)
            return portmap.decode_pcp(await self._ask(gateway, portmap.PORT, request), nonce, port)

        mapped = await ask(LEASE)
        self._give_back = lambda: ask(0)
        return mapped

    async def _pmp(self, gateway: str, _: str, port: int) -> Mapped:
        async def ask(seconds: int) -> Mapped:
            request = portmap.pmp_request(port, seconds)
            return portmap.decode_pmp(await self._ask(gateway, portmap.PORT, request), port)

        address = await self._ask(gateway, portmap.PORT, portmap.pmp_address_request())
        host = portmap.decode_pmp_address(address)
        mapped = await ask(LEASE)
        self._give_back = lambda: ask(0)
        return Mapped(host, mapped.port, mapped.seconds)

    async def _upnp(self, gateway: str, own: str, port: int) -> Mapped:
        found = await self._ask(gateway, portmap.SSDP_PORT, portmap.search(), portmap.SSDP_GROUP)
        place = portmap.decode_search(found, gateway)
        service = portmap.decode_description(await _http(place), place, gateway)

        async def ask(action: str, **values: object) -> bytes:
            return await _http(service.url, *portmap.call(service, action, **values))

        named = {"NewRemoteHost": "", "NewExternalPort": port, "NewProtocol": "TCP"}
        await ask(
            "AddPortMapping",
            **named,
            NewInternalPort=port,
            NewInternalClient=own,
            NewEnabled=1,
            NewPortMappingDescription=_NAME,
            NewLeaseDuration=LEASE,
        )
        self._give_back = lambda: ask("DeletePortMapping", **named)
        return Mapped(portmap.decode_external(await ask("GetExternalIPAddress")), port, LEASE)

    async def _ask(self, gateway: str, port: int, question: bytes, group: str = "") -> bytes:
        """One datagram there, repeated, and one back, from the gateway alone."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            for pause in _PAUSES:
                for target in filter(None, (gateway, group)):
                    with contextlib.suppress(OSError):  # no route to the group
                        asking.sendto(question, (target, port))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        while True:
                            answer, sender = await loop.sock_recvfrom(
                                asking, portmap.MAX_DATAGRAM_BYTES
                            )
                            if sender[0] == gateway:
                                return answer
                            self._swarm.count(_FOREIGN)
                            await asyncio.sleep(0)  # what has come is read without waiting
        raise TimeoutError


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return error.detail if isinstance(error, DecodeError) else str(error)


def _own_address(gateway: str) -> str:
    """The address that this machine has towards its router."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((gateway, portmap.PORT))  # a datagram socket sends nothing for this
        return str(probe.getsockname()[0])


async def _http(url: str, head: str = "", body: bytes = b"") -> bytes:
    """Ask a router by HTTP; return what it says, if it is well, and not too long."""
    at = urlsplit(url)
    lines = [f"{'POST' if body else 'GET'} {at.path or '/'} HTTP/1.0", f"Host: {at.netloc}"]
    if body:
        lines += [head, 'Content-Type: text/xml; charset="utf-8"', f"Content-Length: {len(body)}"]
    async with asyncio.timeout(_HTTP_TIMEOUT):
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        try:
            writer.write("\r\n".join((*lines, "", "")).encode() + body)
            answer = await reader.read(_MAX_HTTP_BYTES)
            while not reader.at_eof() and len(answer) < _MAX_HTTP_BYTES:
                answer += await reader.read(_MAX_HTTP_BYTES - len(answer))
        finally:
            writer.close()
    status, _, rest = answer.partition(b"\r\n")
    if status.split(b" ")[1:2] != [b"200"]:
        raise DecodeError("port-mapping-refused", f"the router says {status[:80]!r}")
    return rest
