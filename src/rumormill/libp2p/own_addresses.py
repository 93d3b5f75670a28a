"""Where others can reach this node: what it tells them, and what its tickets say.

What the configuration announces is all that is said, if it announces anything: whoever configures a
node behind a proxy or a NAT knows. Else it is where the node listens; one that listens everywhere
names the addresses that the machine has, and those under which peers see it. The rule: one peer is
not believed. An address that we do not know ourselves is told when peers of several origins have
named it, since each of them could send everybody's dials elsewhere. And one has one word, the
latest, so that nobody has those of others forgotten.
"""

import contextlib
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from rumormill.core.bounded import remember
from rumormill.core.errors import DecodeError
from rumormill.libp2p.address_book import WILDCARDS
from rumormill.libp2p.admission import Origin
from rumormill.libp2p.links import links
from rumormill.wire.multiaddr import Multiaddr

_WITNESSES: Final = 2
"""Regions (an IPv4 /16, an IPv6 /32) whose peers must agree. Our choice: few, because a node that
has two honest peers should be told where it is."""
_MAX_OBSERVED: Final = 16
_MAX_WORDS: Final = 64
"""Groups (an IPv4 /24, an IPv6 /48) whose word counts, the latest. Our choice: more than anybody
has at hand who wants those of others forgotten."""
_MAX_TOLD: Final = 8
_MAX_RELAYED: Final = 4


class OwnAddresses:
    """The addresses of this node, without its peer id."""

    def __init__(self, announced: Sequence[Multiaddr], listening: Sequence[Multiaddr]) -> None:
        self._announced = announced
        self._listening = listening
        """Those of the sockets; grows as the node begins to listen."""
        self._own: dict[str, None] = {}
        """Hosts at which our connections end: the machine may have several."""
        self._words: dict[str, tuple[str, str]] = {}
        """By the groups of peers, their regions and the hosts under which they see us."""
        self.mapped: list[Multiaddr] = []
        """Ports of our router that lead here, as it says."""
        self.proven: list[Multiaddr] = []
        """Where peers have reached us that were asked to try."""
        self.relayed: list[Multiaddr] = []
        """Where relays take what is for us."""

    def note(self, host: str) -> None:
        """Take note of where a connection of ours ends."""
        if len(self._own) < _MAX_OBSERVED and _is_elsewhere(host):
            self._own[host] = None

    def observe(self, said: bytes | None, observer: Origin) -> None:
        """Take a peer's word for where we are: the host, as the port may be one we dialled from."""
        with contextlib.suppress(DecodeError):
            endpoint = None if said is None else Multiaddr.decode(said).endpoint
            if endpoint is None or not _is_elsewhere(endpoint.host):
                return
            word = _region(observer), endpoint.host
            remember(self._words, observer.group, word, _MAX_WORDS)

    def all(self) -> list[Multiaddr]:
        """The addresses, best first; few, since others try one after another."""
        return [*self.direct(), *self.relayed[:_MAX_RELAYED]]

    def direct(self) -> list[Multiaddr]:
        """Those at which no relay stands."""
        if self._announced:
            return list(self._announced[:_MAX_TOLD])
        words = Counter(host for _, host in dict.fromkeys(self._words.values()))
        believed = [host for host, regions in words.items() if regions >= _WITNESSES]
        found = [*self.proven, *self.mapped, *expanded(self._listening, [*self._own, *believed])]
        return list(dict.fromkeys(found))[:_MAX_TOLD]

    def sure(self) -> list[Multiaddr]:
        """Those that somebody vouches for: our configuration, peers that tried, or the router."""
        return list(self._announced) or [*self.proven, *self.mapped]

    def supposed(self) -> list[Multiaddr]:
        """Where we may be, as single peers say: worth a try, and told to nobody before."""
        return [] if self._announced else expanded(self._listening, self.observed())

    def observed(self) -> list[str]:
        """The hosts under which peers see us."""
        return list(dict.fromkeys(host for _, host in self._words.values()))


def expanded(addresses: Iterable[Multiaddr], known: Iterable[str] = ()) -> list[Multiaddr]:
    """The same addresses, with those of this machine and others it has in place of a wildcard."""
    found: dict[Multiaddr, None] = {}
    for address in addresses:
        at = address.endpoint
        if at is None or at.host not in WILDCARDS:
            found[address] = None
            continue
        six = ":" in at.host
        others = [each for each in known if (":" in each) == six]
        for each in [*_machine_hosts(six), *others]:
            found[Multiaddr.tcp(each, at.port, way=at.way)] = None
    return list(found)


def _machine_hosts(six: bool) -> list[str]:
    """The address that this machine has towards others now; without a way out, those of its links,
    or the loopback."""
    family, other, loopback = (
        (socket.AF_INET6, "2001:db8::1", "::1")
        if six
        else (socket.AF_INET, "192.0.2.1", "127.0.0.1")
    )
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # a datagram socket sends nothing for this
        return [probe.getsockname()[0]]
    return ([] if six else [str(link.ip) for link in links()]) or [loopback]


def _region(origin: Origin) -> str:
    """Where a witness is: in a larger part of the internet than one party can well have."""
    try:
        address = ip_address(origin.address)
    except ValueError:
        return origin.group
    return str(ip_network((address, 16 if address.version == 4 else 32), strict=False))


def _is_elsewhere(host: str) -> bool:
    """Whether a host may be what others reach us at: neither this machine alone nor a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast)
