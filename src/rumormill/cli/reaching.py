"""Where a node can be reached, in one line: what `rumormill node` says at its start, and `doctor`.

It tells what this machine knows. Whether a router or a firewall lets anybody through, nobody has
tried.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from rumormill.wire.multiaddr import Multiaddr


def reach(told: Iterable[Multiaddr], networks: Sequence[str]) -> str:
    """Say who can reach a node, given the addresses that it tells, and where mDNS finds it."""
    shown = ", ".join(str(address) for address in told if not _is_loopback(address))
    if not shown:
        return "from this machine only; --listen /ip4/0.0.0.0/tcp/0 lets others in"
    found = f"; found without a ticket in {', '.join(networks)}" if networks else ""
    return f"at {shown}{found}"


def _is_loopback(address: Multiaddr) -> bool:
    try:
        return address.endpoint is not None and ip_address(address.endpoint.host).is_loopback
    except ValueError:
        return False
