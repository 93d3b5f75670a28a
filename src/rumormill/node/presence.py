"""Where a node is reached, whom it is connected to, and how it gets there.

The part of `Node` that speaks of peers and not of topics.
"""

from typing import Final

from rumormill.core.api import PeerClock, PeerView
from rumormill.core.ids import Topic as TopicName
from rumormill.core.machine import View
from rumormill.libp2p.lan import heard_on
from rumormill.libp2p.resolving import resolve
from rumormill.libp2p.round_trip import round_trip
from rumormill.node.config import parsed_ticket
from rumormill.node.life import NodeLife
from rumormill.node.peer_clocks import ask_clocks
from rumormill.trace.entries import Observer
from rumormill.wire import keys
from rumormill.wire.multiaddr import Multiaddr
from rumormill.wire.tickets import MAX_TICKET_ADDRESSES

_TICKET_ADDRESSES_OF_A_NODE: Final = 4
"""Our choice: one of each kind of network, and a ticket that can still be sent in a message."""


class Presence(NodeLife):
    """A node among others."""

    @property
    def tickets(self) -> list[str]:
        """What another node needs to join us: our addresses with our id, each of them enough."""
        self._check_running()
        peer = keys.PeerId(self.id)
        return [f"{address}/p2p/{peer}" for address in self._swarm.own_addresses]

    def network_ticket(self, *, nodes: int = 8) -> str:
        """One ticket that names this node and peers that it could dial, so many in all: it is of
        use as long as one of them is there."""
        self._check_running()
        found = self._swarm.connections.items()
        peers = [self.id, *[peer for peer, connection in found if connection.outbound]]
        addresses = [
            f"{Multiaddr.decode(address)}/p2p/{keys.PeerId(peer)}"
            for peer in peers[:nodes]
            for address in self._swarm.addresses_of(peer)[:_TICKET_ADDRESSES_OF_A_NODE]
        ]
        return ",".join(addresses[:MAX_TICKET_ADDRESSES])

    @property
    def links(self) -> list[str]:
        """The networks around this machine in which nodes find each other by mDNS, this one too."""
        self._check_running()
        found = heard_on(self._swarm.listening.addresses) if self._mdns else []
        return [str(link.network) for link in found]

    @property
    def reachability(self) -> list[str]:
        """What is known of who reaches this node, a sentence each: whether peers that were asked
        could dial it, or that it is reached by relay only, and why; then the details."""
        self._check_running()
        return self._reach.report()

    @property
    def peers(self) -> list[PeerView]:
        """The connected peers."""
        self._check_running()
        driver, views = self._driver, []
        scores = driver.machine.view().scores
        for peer, connection in self._swarm.connections.items():
            channel = driver.channels.get(peer)
            away = round_trip(connection.told("socket"))
            known = (keys.PeerId(peer), connection.remote_address, connection.outbound)
            view = PeerView(*known, round_trip=away)
            if channel is not None:
                held = (channel.protocol, channel.queued_messages, channel.queued_bytes)
                view = PeerView(*known, *held, scores.get(peer), away)
            views.append(view)
        return views

    @property
    def refusals(self) -> dict[str, int]:
        """What peers were refused or cut off for, how often, by reason."""
        self._check_running()
        return self._swarm.refusals()

    def view(self) -> View:
        """What this node's protocol shows of itself: subscriptions, links by kind, scores."""
        self._check_running()
        return self._driver.machine.view()

    def add_observer(self, observer: Observer) -> None:
        """Have an observer see the trace from now on, as `Node(observers=…)` from the start."""
        self._check_running()
        self._recorder.add(observer)

    def remove_observer(self, observer: Observer) -> None:
        """Show an observer no more of the trace."""
        self._recorder.remove(observer)

    async def peer_clocks(
        self,
        *,
        timeout: float = 5.0,  # noqa: ASYNC109 (for each of them)
    ) -> list[PeerClock]:
        """Ask connected nodes of ours for the time; who does not tell is left out."""
        self._check_running()
        return await ask_clocks([*self._swarm.connections.values()], timeout)

    async def connect(self, ticket: str, *, keep: bool = True) -> keys.PeerId:
        """Connect to the node of a ticket, or to the first of several; return its peer id.

        That is the way into a network, which finds the other nodes and keeps enough of them; this
        one may be let go when there are many, and is sought again when it is lost. Without
        membership (`members=False`) nobody is sought, and with `keep` the connection is made
        again whenever it is lost.
        """
        self._check_running()
        addresses = await resolve(parsed_ticket(ticket))
        keep = keep and not self._members.enabled
        return keys.PeerId(await self._swarm.connect(addresses, keep=keep))

    def subscribers(self, topic: TopicName) -> int:
        """How many connected peers subscribe to a topic."""
        self._check_running()
        return len(self._driver.machine.view().peers.get(topic, ()))
