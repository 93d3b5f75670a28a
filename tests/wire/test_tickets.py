"""Tickets name one node or several, by addresses that can be dialled, within limits."""

import pytest

from rumormill.core.errors import DecodeError
from rumormill.wire.tickets import MAX_TICKET_ADDRESSES, read_ticket

PEER = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
ADDRESS = f"/ip4/192.0.2.7/tcp/4001/p2p/{PEER}"


def test_a_ticket_is_one_address_with_a_peer() -> None:
    assert [str(each) for each in read_ticket(ADDRESS)] == [ADDRESS]


def test_or_several_with_commas_each_once() -> None:
    six = f"/ip6/2001:db8::7/tcp/4001/p2p/{PEER}"
    name = f"/dns4/mill.example.org/tcp/4001/p2p/{PEER}"
    found = read_ticket(f"{ADDRESS}, {six},{name},{ADDRESS}")
    assert [str(each) for each in found] == [ADDRESS, six, name]


@pytest.mark.parametrize("name", ["/dnsaddr/example.org", f"/dnsaddr/example.org/p2p/{PEER}"])
def test_or_a_name_that_stands_for_addresses(name: str) -> None:
    (found,) = read_ticket(name)
    assert found.dnsaddr == "example.org"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        f"{ADDRESS},",
        "/ip4/192.0.2.7/tcp/4001",
        f"/p2p/{PEER}",
        f"/ip4/192.0.2.7/p2p/{PEER}",
        f"/dnsaddr/example.org/tcp/1/p2p/{PEER}",
        ",".join(f"/ip4/192.0.2.7/tcp/{n}/p2p/{PEER}" for n in range(1, MAX_TICKET_ADDRESSES + 2)),
        ADDRESS + "x" * 9000,
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        read_ticket(text)
