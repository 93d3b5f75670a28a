"""Which group an address belongs to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.overlay.address_groups import network_of, network_of_text
from rumormill.wire.multiaddr import Multiaddr


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("8.8.4.7", "8.8.4.0/24"),
        ("/ip4/198.51.101.9/tcp/4001", "198.51.101.0/24"),
        ("2a00:1450:4001:81b::200e", "2a00:1450:4001::/48"),
        ("/ip6/::ffff:8.8.8.8/tcp/1", "8.8.8.0/24"),
        ("127.0.0.1", ""),
        ("10.1.2.3", ""),
        ("192.168.0.9", ""),
        ("169.254.0.1", ""),
        ("::1", ""),
        ("fe80::1", ""),
        ("nonsense", ""),
        ("", ""),
    ],
)
def test_which_network_an_address_belongs_to(address: str, network: str) -> None:
    """IPv4 /24, IPv6 /48; loopback, private and link-local addresses count for nothing."""
    assert network_of_text(address) == network


def test_binary_addresses_belong_to_the_same_networks() -> None:
    """The first of a peer's multiaddrs counts; a DNS name stands for itself."""
    text = "/ip4/8.8.4.4/tcp/1"
    assert network_of([Multiaddr.parse(text).encode()]) == network_of_text(text)
    assert network_of([Multiaddr.parse("/dns4/Example.org/tcp/1").encode()]) == "example.org"
    text = "/ip6/2a00:1450:4001:81b::200e/tcp/1"
    assert network_of([Multiaddr.parse(text).encode()]) == network_of_text(text)


@given(st.lists(st.binary(max_size=40), max_size=3))
def test_any_bytes_are_some_network_or_none(addresses: list[bytes]) -> None:
    """Addresses come from peers; none of them breaks anything."""
    assert isinstance(network_of(addresses), str)
