"""Where peers can be reached, and whose word about it counts."""

import pytest

from rumormill.libp2p.address_book import AddressBook, credible, encoded
from rumormill.libp2p.envelope import seal_peer_record
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Endpoint

PUBLIC, PRIVATE, LOOPBACK = (Endpoint(host, 1) for host in ("8.8.8.8", "10.0.0.7", "127.0.0.1"))
EVERYWHERE = [PUBLIC, PRIVATE, LOOPBACK]


@pytest.mark.parametrize(
    ("hosts", "believed"),
    [
        (["1.1.1.1"], [PUBLIC]),
        (["2600::1"], [PUBLIC]),
        ([], [PUBLIC]),
        (["192.168.1.2"], [PUBLIC, PRIVATE]),
        (["fe80::1"], [PUBLIC, PRIVATE]),
        (["1.1.1.1", "127.0.0.1"], EVERYWHERE),
        (["::1"], EVERYWHERE),
        (None, EVERYWHERE),
    ],
)
def test_nobody_leads_us_where_it_could_not_go_itself(
    hosts: list[str] | None, believed: list[Endpoint]
) -> None:
    assert credible(EVERYWHERE, hosts) == believed


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "::1", "169.254.169.254", "fc00::1"])
def test_inner_addresses_are_known_in_every_spelling(host: str) -> None:
    assert credible([Endpoint(host, 80)], ["1.1.1.1"]) == []


def test_nobody_is_everywhere() -> None:
    assert credible([Endpoint("0.0.0.0", 1), Endpoint("::", 1)], None) == []


def test_an_old_record_that_somebody_still_has_takes_no_address_away() -> None:
    """It was signed by the peer itself, which has moved since, as it has told us."""
    key, book = PrivateKey(b"p" * 32), AddressBook()
    peer = bytes(key.peer_id)
    old, new = Endpoint("1.1.1.1", 1), Endpoint("8.8.8.8", 2)
    of_old, of_new = (
        seal_peer_record(key, seq, [encoded(endpoint)]) for seq, endpoint in ((1, old), (2, new))
    )
    book.learn(peer, [new])
    book.keep_record(peer, of_new)
    book.learn_record(peer, of_old)
    assert book.endpoints(peer) == [new, old], "it is tried last"
    book.learn_record(peer, seal_peer_record(key, 3, [encoded(old)]))
    assert book.endpoints(peer) == [old]
