"""The groups of addresses that have a share of tables and links, so that no owner fills them.

An IPv4 address stands for its /24, an IPv6 address for its /48, a DNS name for itself. Loopback,
private and link-local addresses stand for nothing: whoever can use those is on our side of the
door, and fifty peers of a test or of one office share them rightfully.
"""

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_IP4, _IP6, _DNS = 4, 41, (53, 54, 55)
_PREFIXES: Final = {4: 24, 6: 48}


@lru_cache(maxsize=1 << 15)
def network_of_text(address: str) -> str:
    """The network of a connection's address, an IP address or a multiaddr; empty for none."""
    host = address
    if address.startswith(("/ip4/", "/ip6/")):
        host = address.split("/", 3)[2]
    try:
        return _network(ipaddress.ip_address(host))
    except ValueError:
        return ""


def network_of(addresses: Sequence[bytes]) -> str:
    """The network of the first of a peer's binary multiaddrs; empty for none."""
    if not addresses or not addresses[0]:
        return ""
    address = addresses[0]
    code = address[0]
    if code == _IP4 and len(address) >= 5:
        return _network(ipaddress.IPv4Address(address[1:5]))
    if code == _IP6 and len(address) >= 17:
        return _network(ipaddress.IPv6Address(address[1:17]))
    if code in _DNS and len(address) >= 2:
        return address[2 : 2 + address[1]].decode("latin-1").lower()
    return ""


def _network(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback or ip.is_private or ip.is_link_local:
        return ""
    return str(ipaddress.ip_network((ip, _PREFIXES[ip.version]), strict=False))
