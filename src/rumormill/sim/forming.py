"""How long a network takes to form itself, and what that costs.

It has formed when it holds together without the peer whose ticket everybody had: then that peer may
go. What holds together are connections, and the edges of the protocol's own overlay where it keeps
none open.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rumormill.core.ids import PeerId
from rumormill.core.trace import SendRPC
from rumormill.sim.host import Host
from rumormill.trace.entries import Batch

LOOK_INTERVAL: Final = 0.5
"""Seconds between two looks. Our choice: as exact as anybody wants to know it."""


class Forming:
    """An observer of one run."""

    def __init__(self) -> None:
        self.after: float | None = None
        """When the network had formed, in virtual seconds; None before that."""
        self._sent = 0
        self._peers = 0

    def observe(self, batch: Batch) -> None:
        """Count what is sent until then."""
        if self.after is None:
            self._sent += sum(entry.meta.size for _, _, entry in batch if type(entry) is SendRPC)

    def close(self) -> None:
        """Nothing is held open."""

    def look(self, hosts: Sequence[Host], now: float) -> bool:
        """See whether it has formed: everybody is up, and nobody needs the first."""
        others = {host.id: host for host in hosts[1:] if host.up}
        if len(others) == len(hosts) - 1 and _is_one(others):
            self.after, self._peers = now, len(hosts)
        return self.after is not None

    def figures(self) -> dict[str, Any]:
        """What was seen, for a run's figures."""
        return {
            "formed_after": self.after,
            "formed_bytes_per_peer": None if self.after is None else self._sent / self._peers,
        }


def _is_one(hosts: dict[PeerId, Host]) -> bool:
    joined_to = {peer: peer for peer in hosts}

    def part_of(peer: PeerId) -> PeerId:
        while joined_to[peer] != peer:
            joined_to[peer] = peer = joined_to[joined_to[peer]]
        return peer

    parts = len(hosts)
    for edges_of in (_links, _overlay):  # the second costs more, and is seldom needed
        for peer, host in hosts.items():
            for other in edges_of(host):
                if other in hosts and (one := part_of(peer)) != (another := part_of(other)):
                    joined_to[one] = another
                    parts -= 1
        if parts == 1:
            break
    return parts == 1


def _links(host: Host) -> Iterable[PeerId]:
    return host.links


def _overlay(host: Host) -> Iterable[PeerId]:
    by_kind = host.machine.view().links.values()
    return [each for by_topic in by_kind for peers in by_topic.values() for each in peers]
