"""Tickets that other machines can use: a node that listens everywhere says where it is."""

import contextlib
import ipaddress
import socket
from collections.abc import Iterable

from rumormill.wire.multiaddr import Multiaddr


def reachable(tickets: Iterable[str]) -> list[str]:
    """The same tickets, with this machine's addresses in place of a wildcard."""
    found: dict[str, None] = {}
    for ticket in tickets:
        address = Multiaddr.parse(ticket)
        endpoint = address.tcp_endpoint
        assert endpoint is not None
        host, port = endpoint
        hosts = [host]
        if ipaddress.ip_address(host).is_unspecified:
            hosts = _own_addresses(":" in host)
        for each in hosts:
            found[str(Multiaddr.tcp(each, port, address.peer_id))] = None
    return list(found)


def _own_addresses(six: bool) -> list[str]:
    """The address that this machine has towards others, if it has one, and the loopback."""
    family, other, loopback = (
        (socket.AF_INET6, "2001:db8::1", "::1")
        if six
        else (socket.AF_INET, "192.0.2.1", "127.0.0.1")
    )
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # a datagram socket sends nothing for this
        return [probe.getsockname()[0], loopback]
    return [loopback]
