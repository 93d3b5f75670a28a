"""Topics that are entered and left, and those who serve them, where a protocol has such things.

The supervised skip ring has supervisors, which every peer must know. A ticket names one and where
it is reached; the protocol's configuration names the peers, the address book keeps the addresses.
Who publishes there is a member of the topic, whom others count on until it takes its leave.
"""

from collections.abc import Sequence

from rumormill.core.config import Config
from rumormill.core.errors import ConfigError, LocalError, PeerError
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Subscribe, Unsubscribe
from rumormill.libp2p.address_book import AddressBook
from rumormill.node.driver import Driver
from rumormill.protocols.registry import ProtocolSpec, Servers
from rumormill.wire.multiaddr import Multiaddr


def appointed(
    spec: ProtocolSpec,
    settings: Config,
    tickets: Sequence[str],
    book: AddressBook,
    *,
    ourselves: PeerId | None,
) -> Config:
    """Return the settings that name the supervisors, this peer among them if it is to be one."""
    if not tickets and ourselves is None:
        return settings
    servers = servers_of(spec)
    peers = known_peers(tickets, book)
    named = peers if ourselves is None else (*peers, ourselves)
    config: Config = servers.appoint(settings, tuple(dict.fromkeys(named)))
    return config


def servers_of(spec: ProtocolSpec) -> Servers:
    """How a protocol is told of its supervisors."""
    if spec.servers is None:
        raise ConfigError(f"supervisors: {spec.name} has none")
    return spec.servers


def known_peers(tickets: Sequence[str], book: AddressBook) -> tuple[PeerId, ...]:
    """The peers that tickets name; where they are is noted in the book."""
    peers = []
    for ticket in tickets:
        try:
            address = Multiaddr.parse(ticket)
        except PeerError as error:
            raise LocalError(f"{ticket!r} is not a ticket: {error.detail}") from None
        peer, endpoint = address.peer_id, address.tcp_endpoint
        if peer is None or endpoint is None:
            raise LocalError(f"{ticket!r} does not name a TCP address and a peer")
        book.give(bytes(peer), endpoint)
        peers.append(bytes(peer))
    return tuple(peers)


def enter_to_publish(spec: ProtocolSpec, driver: Driver, topic: Topic) -> None:
    """Take part in a topic where nobody else could publish in it."""
    if spec.publishes_from_within:
        view = driver.machine.view()
        if topic not in view.subscriptions and topic not in view.peers:
            driver.feed(Subscribe(topic, publish_only=True))


async def take_leave(spec: ProtocolSpec, driver: Driver) -> None:
    """Leave the topics whose other members would count on us, and send what is written."""
    if spec.publishes_from_within:
        for topic in list(driver.machine.view().peers):
            driver.feed(Unsubscribe(topic))
    await driver.pending_sends.drain(driver.config.shutdown_timeout)
