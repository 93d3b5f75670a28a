"""How many peers share an address: the factor P6 of the score.

An address stands for itself; an IPv6 address stands also for its /64 network, which one host can
hold alone. Loopback and whitelisted addresses never count. Text that is neither an IP address nor a
multiaddr that starts with one is compared as it is.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_GROUPS_MAX: Final = 16
"""Our choice: more addresses of one peer than any connection set has."""


class Colocation:
    """Counts peers by address."""

    __slots__ = ("_counts", "_threshold", "_whitelist")

    def __init__(self, threshold: int, whitelist: Sequence[str]) -> None:
        self._threshold = threshold
        self._whitelist: list[_Network] = [ipaddress.ip_network(entry) for entry in whitelist]
        self._counts: dict[str, int] = {}

    def groups(self, addresses: Sequence[str]) -> tuple[str, ...]:
        """What a peer with these addresses is counted under."""
        groups: dict[str, None] = {}
        for address in addresses:
            for group in self._groups_of(address):
                groups[group] = None
        return tuple(groups)[:_GROUPS_MAX]

    def _groups_of(self, address: str) -> list[str]:
        host = address
        if address.startswith(("/ip4/", "/ip6/")):
            host = address.split("/", 3)[2]
        if not host:
            return []
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            return [host]
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        if ip.is_loopback or any(ip in network for network in self._whitelist):
            return []
        if isinstance(ip, ipaddress.IPv4Address):
            return [str(ip)]
        return [str(ip), str(ipaddress.ip_network((ip, 64), strict=False))]

    def add(self, groups: tuple[str, ...]) -> None:
        """Count a peer."""
        for group in groups:
            self._counts[group] = self._counts.get(group, 0) + 1

    def remove(self, groups: tuple[str, ...]) -> None:
        """Count a peer no longer."""
        for group in groups:
            left = self._counts[group] - 1
            if left:
                self._counts[group] = left
            else:
                del self._counts[group]

    def factor(self, groups: tuple[str, ...]) -> float:
        """P6: the squared surplus of peers, over all that the peer is counted under."""
        factor = 0.0
        for group in groups:
            surplus = self._counts[group] - self._threshold
            if surplus > 0:
                factor += surplus * surplus
        return factor
