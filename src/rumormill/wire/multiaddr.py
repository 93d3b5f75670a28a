"""Multiaddrs: self-describing network addresses, as bytes and as text.

An address is a chain of components, each a protocol number and a value. rumormill reads those that
it can dial or say about itself: ip4, ip6, dns, dns4, dns6, dnsaddr, tcp, tls, ws, wss, p2p and
p2p-circuit. Any other is a DecodeError, because a value cannot be skipped without knowing its
length; who has a list of a peer's addresses uses `known_addresses`, which leaves out (and counts)
those it cannot read.
Only the canonical form of an address is accepted, so that equal addresses are equal bytes.
"""

import enum
import ipaddress
import re
from collections.abc import Iterable
from typing import Final, Self

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.wire.keys import PeerId
from rumormill.wire.protobuf import read_length, read_varint, varint

MAX_BYTES: Final = 512
"""Our choice: a dns name, a port and two peer ids take at most 352 bytes."""

MAX_COMPONENTS: Final = 8
"""Our choice: the addresses understood here have at most seven."""

_MAX_TEXT_LENGTH = 1024
_MAX_DNS_NAME_BYTES = 253
_DNS_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")

IP4, TCP, IP6, DNS, DNS4, DNS6, DNSADDR, P2P = 4, 6, 41, 53, 54, 55, 56, 421
TLS, WS, WSS, CIRCUIT = 448, 477, 478, 290
_NAMES: Final = {
    IP4: "ip4", TCP: "tcp", IP6: "ip6", DNS: "dns", DNS4: "dns4", DNS6: "dns6",
    DNSADDR: "dnsaddr", P2P: "p2p", TLS: "tls", WS: "ws", WSS: "wss",
    CIRCUIT: "p2p-circuit",
}  # fmt: skip
_CODES: Final = {name: code for code, name in _NAMES.items()} | {"ipfs": P2P}  # its old name
_OTHER_TRANSPORTS: Final = (
    "webtransport", "webrtc-direct", "webrtc", "quic-v1", "quic", "udp", "sni",
    "http", "unix", "onion", "onion3",
)  # fmt: skip
"""Protocols of addresses that others dial and we do not, the most telling first."""
_FIXED_SIZES: Final = {IP4: 4, IP6: 16, TCP: 2, TLS: 0, WS: 0, WSS: 0, CIRCUIT: 0}
_HOSTS: Final = (IP4, IP6, DNS, DNS4, DNS6)


class Way(enum.StrEnum):
    """What lies between a TCP connection and libp2p."""

    PLAIN = ""
    WEBSOCKET = "/ws"
    SECURE_WEBSOCKET = "/tls/ws"


_WAYS: Final = {
    (): Way.PLAIN,
    (WS,): Way.WEBSOCKET,
    (TLS, WS): Way.SECURE_WEBSOCKET,
    (WSS,): Way.SECURE_WEBSOCKET,  # as older peers write it
}


class Endpoint(msgspec.Struct, frozen=True):
    """Where a peer is dialled: an IP address or a name, a TCP port, and what is spoken there."""

    host: str
    port: int
    way: Way = Way.PLAIN
    version: int = 0
    """Of IP, 4 or 6: in which a name is looked up (`/dns4`, `/dns6`); 0 for either."""
    relay: bytes = b""
    """The id of the peer there, if it is a relay through which the one that is meant is reached."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{self.way}{'/p2p-circuit' if self.relay else ''}"


class Multiaddr(msgspec.Struct, frozen=True):
    """An address: (protocol number, binary value) pairs. Build it with `decode` or `parse`."""

    components: tuple[tuple[int, bytes], ...]

    def __post_init__(self) -> None:
        if len(self.components) > MAX_COMPONENTS:
            raise DecodeError("bad-multiaddr", f"more than {MAX_COMPONENTS} components")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the binary form; DecodeError where it is malformed or a protocol is unknown."""
        end = len(data)
        if not 0 < end <= MAX_BYTES:
            raise DecodeError("bad-multiaddr", f"an address of {end} bytes")
        components: list[tuple[int, bytes]] = []
        position = 0
        while position < end:
            code, position = read_varint(data, position, end)
            if code not in _NAMES:
                raise DecodeError("unknown-protocol", f"multiaddr protocol {code}")
            if (size := _FIXED_SIZES.get(code)) is None:
                position, stop = read_length(data, position, end)
            else:
                stop = position + size
            if stop > end:
                raise DecodeError("truncated", "an address ends inside a value")
            components.append((code, _checked(code, data[position:stop])))
            position = stop
        address = cls(tuple(components))
        if address.encode() != data:
            raise DecodeError("not-canonical", "an address with padded varints")
        return address

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form, such as `/ip4/127.0.0.1/tcp/4001/p2p/12D3…`."""
        if len(text) > _MAX_TEXT_LENGTH:
            raise DecodeError("bad-multiaddr", f"an address of over {_MAX_TEXT_LENGTH} characters")
        first, *words = text.split("/")
        if first or not words:
            raise _unreadable(words, "an address reads /protocol/value/protocol/value")
        components, rest = [], iter(words)
        for name in rest:
            code = _CODES.get(name)
            if code is None:
                raise _unreadable(words, f"multiaddr protocol {name!r}")
            value = "" if _FIXED_SIZES.get(code) == 0 else next(rest, None)
            if value is None:
                raise _unreadable(words, "an address reads /protocol/value/protocol/value")
            components.append((code, _checked(code, _parse_value(code, value))))
        return cls(tuple(components))

    @classmethod
    def tcp(
        cls,
        host: str,
        port: int,
        peer_id: PeerId | None = None,
        *,
        way: Way = Way.PLAIN,
        version: int = 0,
        relay: bytes = b"",
    ) -> Self:
        """Build the address of a TCP port at an IP address or a DNS name (see `Endpoint`)."""
        try:
            kind = "ip4" if ipaddress.ip_address(host).version == 4 else "ip6"
        except ValueError:
            kind = f"dns{version}" if version else "dns"
        tail = f"/p2p/{PeerId(relay)}/p2p-circuit" if relay else ""
        tail += "" if peer_id is None else f"/p2p/{peer_id}"
        return cls.parse(f"/{kind}/{host}/tcp/{port}{way}{tail}")

    def encode(self) -> bytes:
        """Write the binary form."""
        parts = []
        for code, value in self.components:
            parts.append(varint(code))
            if code not in _FIXED_SIZES:
                parts.append(varint(len(value)))
            parts.append(value)
        return b"".join(parts)

    @property
    def endpoint(self) -> Endpoint | None:
        """Where to dial: of a host, a TCP port, maybe WebSocket, maybe a relay's peer id with what
        says that it is one, and maybe a peer."""
        codes, relay = tuple(code for code, _ in self.components), b""
        if CIRCUIT in codes:
            at = codes.index(CIRCUIT)
            if codes[:at][-1:] != (P2P,) or codes[at + 1 :] not in ((), (P2P,)):
                return None
            codes, relay = codes[:at], self.components[at - 1][1]
        way = _WAYS.get(codes[2:-1] if codes[-1] == P2P else codes[2:])
        if codes[1:2] != (TCP,) or codes[0] not in _HOSTS or way is None:
            return None
        (host_code, host), (_, port) = self.components[:2]
        version = {DNS4: 4, DNS6: 6}.get(host_code, 0)
        return Endpoint(_format_value(host_code, host), int.from_bytes(port), way, version, relay)

    @property
    def dnsaddr(self) -> str | None:
        """The name whose DNS records list the addresses meant, where it is one and maybe a peer."""
        code, name = self.components[0]
        rest = [code for code, _ in self.components[1:]]
        return name.decode("ascii") if code == DNSADDR and rest in ([], [P2P]) else None

    @property
    def peer_id(self) -> PeerId | None:
        """The peer that the address says is there: its last component, if that is p2p."""
        code, value = self.components[-1]
        return PeerId(value) if code == P2P else None

    def __str__(self) -> str:
        return "".join(
            f"/{_NAMES[code]}/{_format_value(code, value)}" if value else f"/{_NAMES[code]}"
            for code, value in self.components
        )


def known_addresses(encoded: Iterable[bytes]) -> tuple[list[Multiaddr], int]:
    """Read a peer's addresses; return those understood here, and how many were left out."""
    known = []
    skipped = 0
    for data in encoded:
        try:
            known.append(Multiaddr.decode(data))
        except DecodeError:
            skipped += 1
    return known, skipped


def _unreadable(words: list[str], why: str) -> DecodeError:
    """Why an address as text is not read: a transport that we lack, or nonsense."""
    for name in _OTHER_TRANSPORTS:
        if name in words:
            detail = f"unsupported transport {name}; ask for an address of TCP, /ip4/…/tcp/…"
            return DecodeError("unsupported-transport", detail)
    return DecodeError("bad-multiaddr", why)


def _checked(code: int, value: bytes) -> bytes:
    """Check a binary value whose length is not fixed by its protocol."""
    if code == P2P:
        PeerId.from_bytes(value)
    elif code in (DNS, DNS4, DNS6, DNSADDR) and (
        len(value) > _MAX_DNS_NAME_BYTES or not _DNS_NAME.fullmatch(value.decode("latin-1"))
    ):
        raise DecodeError("bad-multiaddr", "not a DNS name")
    return value


def _parse_value(code: int, text: str) -> bytes:
    if code == TCP:
        if len(text) > 5 or not text.isascii() or not text.isdigit() or str(int(text)) != text:
            raise DecodeError("bad-multiaddr", f"{text!r} is not a port")
        if int(text) > 0xFFFF:
            raise DecodeError("bad-multiaddr", f"port {text} is over 65535")
        return int(text).to_bytes(2)
    if code == P2P:
        return bytes(PeerId.parse(text))
    if code in (IP4, IP6):
        return _parse_ip(code, text)
    if code in _FIXED_SIZES:
        return b""
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        raise DecodeError("bad-multiaddr", "a DNS name is ASCII") from None


def _parse_ip(code: int, text: str) -> bytes:
    # ipaddress also takes whole networks of ip6 zones, which the binary form has no room for.
    if "%" in text:
        raise DecodeError("bad-multiaddr", "an address with a zone")
    try:
        kind = ipaddress.IPv4Address if code == IP4 else ipaddress.IPv6Address
        return kind(text).packed
    except ValueError:
        raise DecodeError("bad-multiaddr", f"{text!r} is not an {_NAMES[code]} address") from None


def _format_value(code: int, value: bytes) -> str:
    if code == TCP:
        return str(int.from_bytes(value))
    if code == P2P:
        return str(PeerId(value))
    if code in (IP4, IP6):
        return str(ipaddress.ip_address(value))
    return value.decode("ascii")
