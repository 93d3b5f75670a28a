"""What a home router is asked so that it lets others in: PCP, NAT-PMP and UPnP, as bytes and text.

PCP (RFC 6887) and NAT-PMP (RFC 6886) are one datagram there and one back, UPnP a search, a
description of the device, and calls by HTTP. The rule: an answer is read within fixed lengths, and
is refused unless it answers what was asked; of XML, only what is looked for is looked at.
"""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError

PORT: Final = 5351
"""Of PCP and NAT-PMP."""
SSDP_GROUP, SSDP_PORT = "239.255.255.250", 1900
LEASE: Final = 3600
"""Seconds. Our choice: a router that we have left without a word forgets us within the hour."""
NONCE_BYTES: Final = 12
MAX_DATAGRAM_BYTES: Final = 1100
"""PCP's limit."""
_TCP: Final = 6
_PCP, _PMP = 2, 0
_MAP: Final = 1
_PMP_ADDRESS, _PMP_MAP_TCP = 0, 2
_ANSWER: Final = 128
_PLACE: Final = re.compile(rb"(?im)^location:[ \t]*(\S{1,256})[ \t]*\r?$")
_URL: Final = re.compile(r"http://([0-9.]{7,15}):([0-9]{1,5})/\S{0,256}")
_SERVICE: Final = re.compile(
    r"<serviceType>\s*(urn:schemas-upnp-org:service:WAN(?:IP|PPP)Connection:[12])\s*</serviceType>"
    r"(?:(?!</service>).){0,2000}?<controlURL>\s*([^<\s]{1,256})\s*</controlURL>",
    re.DOTALL,
)
_ADDRESS: Final = re.compile(r"<NewExternalIPAddress>\s*([0-9.]{7,15})\s*</NewExternalIPAddress>")


class Mapped(msgspec.Struct, frozen=True):
    """A port of the router that leads to one of ours, for so many seconds."""

    host: str
    """The router's address; empty where the answer does not say."""
    port: int
    seconds: int


class Service(msgspec.Struct, frozen=True):
    """What a UPnP router is called at."""

    kind: str
    url: str


# PCP.


def pcp_request(nonce: bytes, client: str, port: int, seconds: int) -> bytes:
    """Ask for a TCP port, or give it back (0 seconds)."""
    own = IPv6Address(b"\0" * 10 + b"\xff\xff" + IPv4Address(client).packed)
    head = bytes((_PCP, _MAP, 0, 0)) + seconds.to_bytes(4) + own.packed
    nothing = b"\0" * 10 + b"\xff\xff" + bytes(4)
    return head + nonce + bytes((_TCP, 0, 0, 0)) + port.to_bytes(2) * 2 + nothing


def decode_pcp(data: bytes, nonce: bytes, port: int) -> Mapped:
    """Read the answer."""
    if len(data) != 60 or data[:2] != bytes((_PCP, _ANSWER | _MAP)):
        raise DecodeError("bad-port-mapping", "no answer of PCP to a mapping")
    if data[3]:
        raise DecodeError("port-mapping-refused", f"the router says {data[3]}")
    asked = nonce + bytes((_TCP,))
    if data[24:37] != asked or int.from_bytes(data[40:42]) != port:
        raise DecodeError("bad-port-mapping", "an answer to another question")
    mapped = IPv6Address(data[44:60]).ipv4_mapped
    return Mapped(
        "" if mapped is None else str(mapped),
        int.from_bytes(data[42:44]),
        int.from_bytes(data[4:8]),
    )


# NAT-PMP.


def pmp_address_request() -> bytes:
    """Ask for the router's own address."""
    return bytes((_PMP, _PMP_ADDRESS))


def decode_pmp_address(data: bytes) -> str:
    """Read the answer."""
    return str(IPv4Address(_pmp_body(data, _PMP_ADDRESS, 12)[:4]))


def pmp_request(port: int, seconds: int) -> bytes:
    """Ask for a TCP port, or give it back (0 seconds)."""
    wanted = port if seconds else 0
    return (
        bytes((_PMP, _PMP_MAP_TCP, 0, 0))
        + port.to_bytes(2)
        + wanted.to_bytes(2)
        + (seconds.to_bytes(4))
    )


def decode_pmp(data: bytes, port: int) -> Mapped:
    """Read the answer."""
    body = _pmp_body(data, _PMP_MAP_TCP, 16)
    if int.from_bytes(body[:2]) != port:
        raise DecodeError("bad-port-mapping", "an answer to another question")
    return Mapped("", int.from_bytes(body[2:4]), int.from_bytes(body[4:8]))


def _pmp_body(data: bytes, operation: int, size: int) -> bytes:
    if len(data) != size or data[:2] != bytes((_PMP, _ANSWER | operation)):
        raise DecodeError("bad-port-mapping", "no answer of NAT-PMP to what was asked")
    if result := int.from_bytes(data[2:4]):
        raise DecodeError("port-mapping-refused", f"the router says {result}")
    return data[8:]


# UPnP.


def search() -> bytes:
    """Look for a router."""
    lines = (
        "M-SEARCH * HTTP/1.1",
        f"HOST: {SSDP_GROUP}:{SSDP_PORT}",
        'MAN: "ssdp:discover"',
        "MX: 1",
        "ST: urn:schemas-upnp-org:device:InternetGatewayDevice:1",
    )
    return "\r\n".join((*lines, "", "")).encode()


def decode_search(data: bytes, gateway: str) -> str:
    """Where the answer says that the device is described; only the gateway itself may do that."""
    found = _PLACE.search(data[:2048])
    if not data.startswith(b"HTTP/1.1 200") or found is None:
        raise DecodeError("bad-port-mapping", "no answer to a search")
    return _at(gateway, found[1].decode("latin-1"))


def _at(gateway: str, place: str, base: str = "") -> str:
    """An address that a router names, which must be its own; without a host, that of `base`."""
    if base and "://" not in place:
        place = base[: base.index("/", len("http://"))] + "/" + place.lstrip("/")
    found = _URL.fullmatch(place)
    if found is None or found[1] != gateway or not 0 < int(found[2]) < 1 << 16:
        raise DecodeError("port-mapping-elsewhere", "a router that sends us elsewhere")
    return place


def decode_description(data: bytes, place: str, gateway: str) -> Service:
    """Find the service that maps ports in the description of a device."""
    found = _SERVICE.search(data.decode("utf-8", "replace"))
    if found is None:
        raise DecodeError("bad-port-mapping", "a device that maps no ports")
    return Service(found[1], _at(gateway, found[2], place))


def call(service: Service, action: str, **values: object) -> tuple[str, bytes]:
    """The head line and the body of a call."""
    given = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    body = (
        '<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"'
        ' s:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body>'
        f'<u:{action} xmlns:u="{service.kind}">{given}</u:{action}></s:Body></s:Envelope>'
    )
    return f'SOAPAction: "{service.kind}#{action}"', body.encode()


def decode_external(data: bytes) -> str:
    """The router's own address, as it answers."""
    found = _ADDRESS.search(data.decode("utf-8", "replace"))
    try:
        return str(IPv4Address(found[1])) if found else ""
    except ValueError:
        return ""
