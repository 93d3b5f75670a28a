"""A ticket leads to its node, or to one of several, whatever else it names."""

import socket

import pytest

from live_nodes import run, until
from rumormill.core.errors import LocalError
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.wire.keys import PeerId
from rumormill.wire.multiaddr import Endpoint
from rumormill.wire.tickets import read_ticket


def silent_address() -> tuple[socket.socket, str]:
    """Somebody who takes connections and says nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"/ip4/127.0.0.1/tcp/{listener.getsockname()[1]}"


def test_of_several_addresses_one_that_works_is_enough() -> None:
    """Also when those before it hold the dial: its time would be over first."""

    async def story() -> None:
        listener, silent = silent_address()
        with listener:
            patient = NodeConfig(dial_timeout=600.0, upgrade_timeout=600.0)
            async with Node(None) as first, Node(None, config=patient) as second:
                works, peer = first.tickets[0], PeerId(first.id)
                closed = "/ip4/127.0.0.1/tcp/1"
                ticket = f"{silent}/p2p/{peer},{closed}/p2p/{peer},{works}"
                assert await second.connect(ticket) == peer
                assert [each.address for each in second.peers] == [works.partition("/p2p/")[0]]

    run(story)


def test_of_several_nodes_one_that_is_there_is_enough() -> None:
    async def story() -> None:
        async with Node(None) as gone:
            ticket = gone.tickets[0]
        async with Node(None) as first, Node(None) as second:
            assert await second.connect(f"{ticket},{first.tickets[0]}") == first.id
            with pytest.raises(LocalError, match="cannot reach"):
                await second.connect(ticket, keep=False)

    run(story)


def test_a_network_ticket_leads_to_the_network_when_its_author_is_gone() -> None:
    async def story() -> None:
        async with Node(None) as first, Node(None) as late:
            async with Node(None) as author:
                await author.connect(first.tickets[0])
                ticket = author.network_ticket()
                assert author.network_ticket(nodes=1) == author.tickets[0]
            assert {each.peer_id for each in read_ticket(ticket)} == {
                PeerId(author.id),
                PeerId(first.id),
            }
            assert await late.connect(ticket, keep=False) == first.id

    run(story)


@pytest.mark.parametrize("name", ["/dns4/localhost", "/dns/localhost"])
def test_names_are_dialled(name: str) -> None:
    async def story() -> None:
        async with Node(None) as first, Node(None) as second:
            await second.connect(f"{name}/{first.tickets[0].split('/', 3)[3]}")

    run(story)


def test_ip6_is_spoken_where_there_is_any() -> None:
    async def story() -> None:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
        async with Node(None, listen="/ip6/::1/tcp/0") as first, Node(None) as second:
            assert first.tickets[0].startswith("/ip6/::1/tcp/")
            await second.connect(first.tickets[0])

    run(story)


@pytest.mark.parametrize(("kind", "works"), [("dns", True), ("dns4", True), ("dns6", False)])
def test_a_name_is_looked_up_in_the_family_that_its_address_says(kind: str, works: bool) -> None:
    """`localhost` leads to a node that listens in IPv4 alone."""

    async def story() -> None:
        async with Node(None) as first, Node(None) as second:
            ticket = first.tickets[0].replace("/ip4/127.0.0.1/", f"/{kind}/localhost/")
            if works:
                await second.connect(ticket)
            else:
                with pytest.raises(LocalError, match="cannot reach"):
                    await second.connect(ticket)

    run(story)


def test_what_is_announced_is_in_the_ticket_and_told_to_peers() -> None:
    async def story() -> None:
        told = "/dns4/mill.example.org/tcp/443"
        async with Node(None, announce=[told]) as first, Node(None) as second:
            assert first.tickets == [f"{told}/p2p/{PeerId(first.id)}"]
            (listening,) = first._swarm.listening.addresses
            await second.connect(f"{listening}/p2p/{PeerId(first.id)}")
            book = second._swarm.book
            await until(
                lambda: Endpoint("mill.example.org", 443, version=4) in book.endpoints(first.id),
                "it is told",
            )

    run(story)


def test_a_node_that_listens_everywhere_has_tickets_that_can_be_dialled() -> None:
    async def story() -> None:
        everywhere = ["/ip4/0.0.0.0/tcp/0"]
        async with Node(None, listen=everywhere) as first, Node(None) as second:
            for ticket in first.tickets:
                assert "/0.0.0.0/" not in ticket
                await second.connect(ticket)

    run(story)


@pytest.mark.parametrize(
    "announced", ["mill.example.org:443", "/dns4/mill.example.org", "/ip4/1.2.3.4/udp/1/quic-v1"]
)
def test_what_cannot_be_announced_is_refused_at_once(announced: str) -> None:
    with pytest.raises(LocalError, match="is not a TCP address such as"):
        Node(None, announce=[announced])
