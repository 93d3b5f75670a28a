"""Multiaddrs: bytes and text are two spellings of one address, and nothing else is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import DecodeError
from rumormill.wire.keys import PeerId, PrivateKey
from rumormill.wire.multiaddr import MAX_BYTES, Endpoint, Multiaddr, Way, known_addresses

PEER = PrivateKey(bytes(32)).peer_id

SPELLINGS = [
    ("/ip4/127.0.0.1/tcp/4001", "047f00000106" + "0fa1"),
    ("/ip6/::1/tcp/0", "29" + "00" * 15 + "01" + "06" + "0000"),
    ("/ip6/2001:db8::1/tcp/65535", "29" + "20010db8" + "00" * 11 + "01" + "06" + "ffff"),
    ("/dns/example.org/tcp/80", "350b" + b"example.org".hex() + "06" + "0050"),
    ("/dns4/a.b/tcp/80", "3603" + b"a.b".hex() + "06" + "0050"),
    ("/dns6/a.b/tcp/80", "3703" + b"a.b".hex() + "06" + "0050"),
    (f"/ip4/1.2.3.4/tcp/80/p2p/{PEER}", "0401020304060050" + "a50326" + PEER.hex()),
    (f"/p2p/{PEER}", "a50326" + PEER.hex()),
]


@pytest.mark.parametrize(("text", "binary"), SPELLINGS)
def test_text_and_bytes_are_the_same_address(text: str, binary: str) -> None:
    """The protocol numbers are those of the multicodec table; values follow their protocol."""
    address = Multiaddr.parse(text)
    assert address.encode().hex() == binary
    assert Multiaddr.decode(bytes.fromhex(binary)) == address
    assert str(address) == text


def test_an_address_tells_what_to_dial_and_whom_to_expect() -> None:
    """Host, port and peer come out as a dialler needs them."""
    address = Multiaddr.tcp("127.0.0.1", 4001, PEER)
    assert address.endpoint == Endpoint("127.0.0.1", 4001)
    assert address.peer_id == PEER
    assert isinstance(address.peer_id, PeerId)
    assert Multiaddr.tcp("::1", 1).endpoint == Endpoint("::1", 1)
    assert Multiaddr.tcp("example.org", 1).endpoint == Endpoint("example.org", 1)
    assert Multiaddr.tcp("example.org", 1).peer_id is None
    for text, version in (("/dns/a.b/tcp/1", 0), ("/dns4/a.b/tcp/1", 4), ("/dns6/a.b/tcp/1", 6)):
        assert Multiaddr.parse(text).endpoint == Endpoint("a.b", 1, version=version)
        assert str(Multiaddr.tcp("a.b", 1, version=version)) == text
    assert Multiaddr.parse(f"/p2p/{PEER}").endpoint is None
    assert Multiaddr.parse("/ip4/1.2.3.4").endpoint is None
    assert Multiaddr.parse("/tcp/1/ip4/1.2.3.4").endpoint is None
    assert Multiaddr.parse("/ip4/1.2.3.4/tcp/1/tcp/2").endpoint is None


def test_the_old_name_and_the_cid_form_of_a_peer_are_read_and_written_anew() -> None:
    """`ipfs` and CIDs are read; `p2p` with base58 is written."""
    expected = f"/p2p/{PEER}"
    assert str(Multiaddr.parse(f"/ipfs/{PEER}")) == expected
    assert str(Multiaddr.parse(f"/p2p/{PEER.cid()}")) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "ip4/1.2.3.4",
        "/ip4",
        "/ip4/1.2.3.4/",
        "/ip4/1.2.3.4/tcp",
        "/ip4/01.2.3.4",
        "/ip4/1.2.3",
        "/ip4/1.2.3.4%eth0",
        "/ip6/fe80::1%eth0",
        "/ip6/1.2.3.4",
        "/tcp/65536",
        "/tcp/-1",
        "/tcp/+1",
        "/tcp/01",
        "/tcp/1_0",
        "/tcp/٣",
        "/tcp/",
        "/tcp/" + "9" * 5000,
        "/dns/" + "a" * 254,
        "/dns/a..b",
        "/dns/ü.example",
        "/dns/a b",
        "/dns/",
        "/p2p/nobody",
        "/udp/1",
        "/ip4/1.2.3.4/tcp/1/ws/1",
        "/ip4/1.2.3.4/tcp/1/ws/",
        "/tcp/1" * 9,
        "/tcp/1" * 100_000,
    ],
)
def test_text_that_is_no_address_is_refused(text: str) -> None:
    """Strict: one spelling per value, bounded length, known protocols only."""
    with pytest.raises(DecodeError):
        Multiaddr.parse(text)


@pytest.mark.parametrize(
    "binary",
    [
        "",
        "04",
        "047f0000",
        "06ff",
        "047f000001" + "86000fa1",  # the number of tcp, padded to two bytes
        "35" + "8b00" + b"example.org".hex(),  # a padded length
        "350b" + b"exa/ple.org".hex(),
        "3500",
        "35ffffffffffffffffff01",
        "a50300",
        "9102" + "0001",  # udp
        "ffffffffffffffffffff01",
        "06" * 3 * 9,
    ],
)
def test_bytes_that_are_no_address_are_refused(binary: str) -> None:
    """Cut short, padded, unknown or too many."""
    with pytest.raises(DecodeError):
        Multiaddr.decode(bytes.fromhex(binary))


def test_an_address_beyond_the_limit_is_refused_unread() -> None:
    """Every component is fine; the sum is not."""
    with pytest.raises(DecodeError):
        Multiaddr.decode(Multiaddr.tcp("a" * 60 + ".b", 1).encode() * (MAX_BYTES // 60))


def test_unknown_addresses_in_a_list_are_skipped_and_counted() -> None:
    """A peer that also speaks QUIC or HTTP stays reachable on its TCP address."""
    tcp = Multiaddr.tcp("10.0.0.1", 4001)
    http = tcp.encode() + bytes.fromhex("e003")
    quic = bytes.fromhex("040a000001910201bbcd03")
    assert known_addresses([http, tcp.encode(), quic, b""]) == ([tcp], 3)


def components() -> st.SearchStrategy[str]:
    return st.one_of(
        st.ip_addresses(v=4).map("/ip4/{}".format),
        st.ip_addresses(v=6).map("/ip6/{}".format),
        st.integers(0, 65535).map("/tcp/{}".format),
        st.from_regex(r"[a-z0-9-]{1,20}\.[a-z]{1,5}", fullmatch=True).map("/dns/{}".format),
        st.just(f"/p2p/{PEER}"),
    )


@given(st.lists(components(), min_size=1, max_size=8))
def test_any_chain_of_components_round_trips(parts: list[str]) -> None:
    """Text to bytes and back gives the same address."""
    address = Multiaddr.parse("".join(parts))
    assert Multiaddr.decode(address.encode()) == address
    assert Multiaddr.parse(str(address)) == address


@given(st.binary(max_size=100))
def test_fuzz_any_bytes_are_an_address_or_a_decode_error(data: bytes) -> None:
    """No other exception, and what decodes encodes to the same bytes."""
    try:
        address = Multiaddr.decode(data)
    except DecodeError:
        return
    assert address.encode() == data
    assert Multiaddr.parse(str(address)) == address


@given(st.text(max_size=60) | st.text("/ip46tcpdns0123456789.:%abz", max_size=40))
def test_fuzz_any_text_is_an_address_or_a_decode_error(text: str) -> None:
    """No other exception."""
    try:
        address = Multiaddr.parse(text)
    except DecodeError:
        return
    assert Multiaddr.decode(address.encode()) == address


@pytest.mark.parametrize(
    ("text", "transport"),
    [
        ("/ip4/192.0.2.1/udp/4001/quic-v1", "quic-v1"),
        ("/ip4/192.0.2.1/udp/4001/quic-v1/webtransport/certhash/uEiA", "webtransport"),
    ],
)
def test_a_transport_that_is_not_spoken_is_named(text: str, transport: str) -> None:
    """Such a ticket is no nonsense: the error says what is missing, and what to ask for."""
    with pytest.raises(DecodeError, match=f"unsupported transport {transport}; .*TCP"):
        Multiaddr.parse(text)


def test_a_relay_leads_to_a_peer() -> None:
    """The number is that of the multicodec table; where to dial is the relay's port."""
    text = f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}/p2p-circuit"
    address = Multiaddr.parse(text)
    assert str(address) == text
    assert address.encode().endswith(bytes.fromhex("a202"))
    assert address.peer_id is None
    through = Endpoint("192.0.2.1", 4001, relay=bytes(PEER))
    assert address.endpoint == through
    assert Multiaddr.parse(f"{text}/p2p/{PEER}").endpoint == through
    assert Multiaddr.parse(f"{text}/p2p/{PEER}").peer_id == PEER
    assert Multiaddr.tcp("192.0.2.1", 4001, relay=bytes(PEER)) == address


@pytest.mark.parametrize(
    "text",
    [
        "/p2p-circuit",
        f"/p2p-circuit/p2p/{PEER}",
        f"/p2p/{PEER}/p2p-circuit",
        "/ip4/192.0.2.1/tcp/4001/p2p-circuit",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}/p2p-circuit/p2p-circuit",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}/p2p-circuit/p2p/{PEER}/p2p-circuit",
    ],
)
def test_a_circuit_without_a_relay_or_with_two_is_nowhere_to_dial(text: str) -> None:
    """It is an address all the same."""
    assert Multiaddr.parse(text).endpoint is None


@pytest.mark.parametrize(
    ("tail", "binary", "way"),
    [
        ("/ws", "dd03", Way.WEBSOCKET),
        ("/tls/ws", "c003dd03", Way.SECURE_WEBSOCKET),
        ("/wss", "de03", Way.SECURE_WEBSOCKET),
    ],
)
def test_websocket_lies_above_a_port(tail: str, binary: str, way: Way) -> None:
    """The numbers are those of the multicodec table; /wss is what older peers write."""
    for host, name in (("example.org", "dns4"), ("192.0.2.1", "ip4")):
        address = Multiaddr.parse(f"/{name}/{host}/tcp/443{tail}/p2p/{PEER}")
        assert str(address) == f"/{name}/{host}/tcp/443{tail}/p2p/{PEER}"
        assert bytes.fromhex(binary) in address.encode()
        assert Multiaddr.decode(address.encode()) == address
        assert address.endpoint == Endpoint(host, 443, way, 4 if name == "dns4" else 0)
    assert str(Endpoint("::1", 80, Way.WEBSOCKET)) == "[::1]:80/ws"


@pytest.mark.parametrize("tail", ["/ws/ws", "/tls", "/ws/tls", "/tls/wss"])
def test_other_orders_of_the_same_are_read_and_not_dialled(tail: str) -> None:
    assert Multiaddr.parse(f"/ip4/192.0.2.1/tcp/443{tail}").endpoint is None


def test_a_host_may_be_called_like_a_transport() -> None:
    """Names of hosts are values, not protocols."""
    assert Multiaddr.parse("/dns4/ws/tcp/80").endpoint == Endpoint("ws", 80, version=4)
