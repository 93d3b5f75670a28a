"""Where a node says it is: what it was told to, else where it listens, as others can reach it."""

from rumormill.libp2p.admission import Origin
from rumormill.libp2p.own_addresses import OwnAddresses, expanded
from rumormill.wire.multiaddr import Endpoint, Multiaddr

EVERYWHERE = Multiaddr.parse("/ip4/0.0.0.0/tcp/4001")


def hosts(own: OwnAddresses) -> list[str]:
    return [(address.endpoint or Endpoint("", 0)).host for address in own.all()]


def observed(host: str, port: int = 4001) -> bytes:
    return Multiaddr.tcp(host, port).encode()


def test_a_wildcard_is_never_told() -> None:
    for everywhere in ("/ip4/0.0.0.0/tcp/4001", "/ip6/::/tcp/4001"):
        own = OwnAddresses((), [Multiaddr.parse(everywhere)])
        assert hosts(own)
        assert not {"0.0.0.0", "::"} & set(hosts(own))
        assert all((each.endpoint or Endpoint("", 0)).port == 4001 for each in own.all())


def test_where_it_listens_and_nowhere_else() -> None:
    one = Multiaddr.parse("/ip4/198.51.100.4/tcp/4001")
    own = OwnAddresses((), [one])
    own.note("203.0.113.9")
    own.observe(observed("203.0.113.9"), Origin("a", "a"))
    own.observe(observed("203.0.113.9"), Origin("b", "b"))
    assert own.all() == [one] == expanded([one])


def test_what_is_announced_is_all_that_is_told() -> None:
    name = Multiaddr.parse("/dns4/mill.example.org/tcp/443")
    own = OwnAddresses((name,), [EVERYWHERE])
    own.note("203.0.113.9")
    assert own.all() == [name]


def test_other_ends_of_the_machine_are_told_but_not_the_loopback() -> None:
    own = OwnAddresses((), [EVERYWHERE])
    own.note("203.0.113.9")
    own.note("127.0.0.1")
    assert "203.0.113.9" in hosts(own)
    assert "127.0.0.1" not in hosts(own) or len(hosts(own)) == 2  # a machine without a network


def test_one_origin_is_not_believed_and_two_are() -> None:
    own = OwnAddresses((), [EVERYWHERE])
    for _ in range(5):
        own.observe(observed("203.0.113.9", 50123), Origin("198.51.100.0/24", "198.51.100.1"))
    own.observe(observed("203.0.113.9", 50123), Origin("198.51.7.0/24", "198.51.7.1"))
    assert "203.0.113.9" not in hosts(own), "they are neighbours"
    own.observe(observed("203.0.113.9", 50999), Origin("192.0.2.0/24", "192.0.2.1"))
    assert "203.0.113.9" in hosts(own)


def test_one_peer_has_one_word_and_pushes_out_nobody_elses() -> None:
    """Who says ever other things could have us forget where we are, and think of other people."""
    own = OwnAddresses((), [EVERYWHERE])
    for group in ("198.51.100", "192.0.2"):
        own.observe(observed("203.0.113.9"), Origin(f"{group}.0/24", f"{group}.1"))
    for number in range(100):
        own.observe(observed(f"203.0.113.{number}"), Origin("100.64.1.0/24", "100.64.1.1"))
    assert "203.0.113.9" in hosts(own)
    assert own.observed() == ["203.0.113.9", "203.0.113.99"]


def test_what_nobody_could_dial_is_not_heard() -> None:
    own = OwnAddresses((), [EVERYWHERE])
    before = hosts(own)
    name = Multiaddr.parse("/dns4/evil.example/tcp/1").encode()
    unfit = [observed(host) for host in ("0.0.0.0", "127.0.0.9", "224.0.0.1")]
    for said in (None, b"", b"junk", name, *unfit):
        own.observe(said, Origin("a", "a"))
        own.observe(said, Origin("b", "b"))
    assert hosts(own) == before


def test_what_peers_say_is_bounded() -> None:
    own = OwnAddresses((), [EVERYWHERE])
    for number in range(1000):
        own.observe(observed(f"203.0.{number // 256}.{number % 256}"), Origin("a", "a"))
        own.observe(observed(f"203.0.{number // 256}.{number % 256}"), Origin("b", "b"))
    assert len(own.all()) <= 8
