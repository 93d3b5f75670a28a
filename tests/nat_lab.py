"""An internet on one machine: hosts in network namespaces, and a router that is this process.

Each host has a namespace with one TUN device, whose other end the router reads: it knows every
packet, translates addresses as the host's gateways do, and hands it on after a delay that may vary,
or loses it; packets between two hosts stay in order. Nodes of all hosts run in one event loop:
whoever makes a socket in the context of a host makes it there (`Host.here`). Nothing of it is
outside this process, which must be alone in namespaces of its own: `run_alone` starts a script so,
or says why it cannot.

A gateway is described as RFC 4787 does: what of the far end a mapping depends on, and what an
arriving packet must match. Only IPv4, TCP and UDP pass.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import fcntl
import math
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final, NamedTuple

from processes import PATIENCE

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_TCP, _UDP = 6, 17
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_HERE: contextvars.ContextVar["Host | None"] = contextvars.ContextVar("host", default=None)

ANY, HOST, PORT = 0, 1, 2
"""How much of the far end counts: nothing, its address, its address and port."""


class Kind(NamedTuple):
    """What a gateway does."""

    mapping: int
    filtering: int
    translates: bool = True
    keeps_ports: bool = True


KINDS: Final[dict[str, tuple[Kind, ...]]] = {
    "none": (),
    "full cone": (Kind(ANY, ANY),),
    "address restricted": (Kind(ANY, HOST),),
    "port restricted": (Kind(ANY, PORT),),
    "symmetric": (Kind(PORT, PORT, keeps_ports=False),),
    "CGNAT": (Kind(ANY, PORT), Kind(ANY, PORT, keeps_ports=False)),
    "firewall": (Kind(ANY, PORT, translates=False),),
}
"""The gateways of a host, the nearest first. CGNAT: a home router behind a provider's."""


class Packet:
    """An IPv4 packet whose addresses and ports can be changed."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.at = (data[0] & 15) * 4
        self.protocol = data[9]

    @property
    def known(self) -> bool:
        """Whether it is one that passes."""
        return self.data[0] >> 4 == 4 and self.protocol in (_TCP, _UDP)

    @property
    def source(self) -> tuple[bytes, int]:
        """Address and port."""
        return bytes(self.data[12:16]), int.from_bytes(self.data[self.at : self.at + 2])

    @property
    def target(self) -> tuple[bytes, int]:
        """Address and port."""
        return bytes(self.data[16:20]), int.from_bytes(self.data[self.at + 2 : self.at + 4])

    def change(self, place: int, end: tuple[bytes, int]) -> None:
        """Set the source (0) or the target (1), and mend the checksums (RFC 1624)."""
        address, port = 12 + 4 * place, self.at + 2 * place
        old = bytes(self.data[address : address + 4] + self.data[port : port + 2])
        new = end[0] + end[1].to_bytes(2)
        self.data[address : address + 4], self.data[port : port + 2] = new[:4], new[4:]
        self._mend(10, old[:4], new[:4])
        self._mend(self.at + (16 if self.protocol == _TCP else 6), old, new)

    def _mend(self, at: int, old: bytes, new: bytes) -> None:
        total = ~int.from_bytes(self.data[at : at + 2]) & 0xFFFF
        for each in range(0, len(old), 2):
            total += (~int.from_bytes(old[each : each + 2]) & 0xFFFF) + int.from_bytes(
                new[each : each + 2]
            )
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        self.data[at : at + 2] = (~total & 0xFFFF).to_bytes(2)


class Gateway:
    """A NAT or a firewall, and what it remembers."""

    def __init__(
        self, kind: Kind, outside: bytes, randomness: random.Random, lifetime: float
    ) -> None:
        self.kind = kind
        self.outside = outside
        self.lifetime = lifetime
        """Seconds after which a mapping that nobody has used is forgotten."""
        self.expired = 0
        self._randomness = randomness
        self._ports: dict[tuple[Any, ...], int] = {}
        self._used: dict[int, float] = {}
        """When the ports outside were last used."""
        self._inside: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._open: dict[tuple[Any, ...], None] = {}
        """What may come in, as filtering has it."""

    def expire(self, now: float) -> None:
        """Forget what nobody has used for a lifetime."""
        old = {port for port, used in self._used.items() if now - used > self.lifetime}
        if old:
            self.expired += len(old)
            self._used = {port: used for port, used in self._used.items() if port not in old}
            self._ports = {key: port for key, port in self._ports.items() if port not in old}
            self._inside = {key: near for key, near in self._inside.items() if key[1] not in old}
            self._open = {key: None for key in self._open if key[1] not in old}

    def _part(self, far: tuple[bytes, int], how_much: int) -> tuple[Any, ...]:
        return () if how_much == ANY else far[:how_much]

    def out(self, packet: Packet, now: float) -> None:
        """A packet leaves."""
        self.expire(now)
        near, far, protocol = packet.source, packet.target, packet.protocol
        key = (protocol, near, *self._part(far, self.kind.mapping))
        if key not in self._ports:
            port = near[1]
            while not self.kind.keeps_ports or (protocol, port) in self._inside:
                port = self._randomness.randrange(20_000, 60_000)
                if (protocol, port) not in self._inside:
                    break
            self._ports[key] = port
            self._inside[protocol, port] = near
        port = self._ports[key]
        self._used[port] = now
        self._open[protocol, port, *self._part(far, self.kind.filtering)] = None
        if self.kind.translates:
            packet.change(0, (self.outside, port))

    def into(self, packet: Packet, now: float) -> bool:
        """A packet arrives; whether it may."""
        self.expire(now)
        port, protocol = packet.target[1], packet.protocol
        if (protocol, port, *self._part(packet.source, self.kind.filtering)) not in self._open:
            return False
        self._used[port] = now
        if self.kind.translates:
            packet.change(1, self._inside[protocol, port])
        return True


class Host:
    """A machine behind its gateways."""

    def __init__(self, number: int, address: str, gateways: list[Gateway]) -> None:
        self.number = number
        self.address = address
        self.gateways = gateways
        self.namespace = -1
        self.tun = -1
        self.cut_off = False

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Sockets are made on this host, by whatever is begun inside."""
        token = _HERE.set(self)
        try:
            yield
        finally:
            _HERE.reset(token)


class Internet:
    """All hosts, and the router between them."""

    def __init__(
        self,
        *,
        seed: int = 1,
        delay: float = 0.005,
        jitter: float = 0.0,
        loss: float = 0.0,
        lifetime: float = math.inf,
    ) -> None:
        self.delay = delay
        self.jitter = jitter
        self.loss = loss
        self.lifetime = lifetime
        self._last: dict[tuple[Host, Host], float] = {}
        """When the latest packet arrives, by the hosts that it is between."""
        self._randomness = random.Random(seed)
        self._hosts: list[Host] = []
        self._public: dict[bytes, Host] = {}
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._socket_made = socket.socket.__init__
        self.passed = self.dropped = self.lost = 0
        home, made = self._home, socket.socket.__init__

        def make(self: socket.socket, *arguments: Any, **options: Any) -> None:
            host = _HERE.get()
            if host is None or options.get("fileno") is not None or len(arguments) > 3:
                made(self, *arguments, **options)
                return
            _set_namespace(host.namespace)
            try:
                made(self, *arguments, **options)
            finally:
                _set_namespace(home)

        socket.socket.__init__ = make  # type: ignore[method-assign]

    def close(self) -> None:
        """Let go of everything."""
        socket.socket.__init__ = self._socket_made  # type: ignore[method-assign]
        loop = asyncio.get_running_loop()
        for host in self._hosts:
            loop.remove_reader(host.tun)
            os.close(host.tun)
            os.close(host.namespace)
        os.close(self._home)

    def host(self, kind: str, network: int = 5) -> Host:
        """Plug in a host behind gateways of a kind; what peers see is 5.N.0.1, or in another
        network."""
        number = len(self._hosts) + 1
        outside = IPv4Address(f"{network}.{number}.0.1").packed
        kinds = KINDS[kind]
        middle = IPv4Address(f"100.64.{number}.1").packed
        gateways = [
            Gateway(each, outside if each is kinds[-1] else middle, self._randomness, self.lifetime)
            for each in kinds
        ]
        translated = any(each.translates for each in kinds)
        address = f"10.{number}.0.2" if translated else f"{network}.{number}.0.1"
        host = Host(number, address, gateways)
        _set_up(host, self._home)
        self._hosts.append(host)
        self._public[outside] = host
        asyncio.get_running_loop().add_reader(host.tun, self._read, host)
        return host

    def _read(self, host: Host) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                self._route(host, os.read(host.tun, 65536))

    def _route(self, host: Host, data: bytes) -> None:
        packet = Packet(data)
        if not packet.known or host.cut_off:
            return
        loop = asyncio.get_running_loop()
        for gateway in host.gateways:
            gateway.out(packet, loop.time())
        target = self._public.get(packet.target[0])
        if target is None or target is host or target.cut_off:
            self.dropped += 1
            return
        if self._randomness.random() < self.loss:
            self.lost += 1
            return
        at = loop.time() + self.delay + self._randomness.uniform(0, self.jitter)
        at = self._last[host, target] = max(at, self._last.get((host, target), 0.0) + 1e-6)
        loop.call_at(at, self._arrive, target, packet)

    def _arrive(self, host: Host, packet: Packet) -> None:
        now = asyncio.get_running_loop().time()
        for gateway in reversed(host.gateways):
            if not gateway.into(packet, now):
                self.dropped += 1
                return
        self.passed += 1
        with contextlib.suppress(OSError):
            os.write(host.tun, packet.data)


def _set_namespace(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _set_up(host: Host, home: int) -> None:
    """Make a namespace with a device in it, whose other end is ours."""
    if _LIBC.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    try:
        host.namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        host.tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", b"eth0", _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(host.tun, _TUNSETIFF, request)
        for command in (
            "link set lo up",
            f"address add {host.address}/32 dev eth0",
            "link set eth0 up",
            "route add default dev eth0",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
    finally:
        _set_namespace(home)


class NoLabError(Exception):
    """Why there is no lab here."""


def run_alone(script: Path, *arguments: object, timeout: float = PATIENCE) -> str:
    """Run a script in namespaces of its own; return what it printed."""
    if sys.platform != "linux":
        raise NoLabError("network namespaces are Linux's")
    missing = [name for name in ("unshare", "ip") if shutil.which(name) is None]
    if missing:
        raise NoLabError(f"{missing[0]} is not installed")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise NoLabError("/dev/net/tun cannot be opened")
    alone = ["unshare", "-rn"]
    tried = subprocess.run(
        [*alone, "ip", "tuntap", "add", "try", "mode", "tun"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        raise NoLabError(f"no network namespaces here: {tried.stderr.strip()}")
    done = subprocess.run(
        [*alone, sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    if done.returncode:
        raise AssertionError(f"{done.stdout}\n{done.stderr}")
    return done.stdout
