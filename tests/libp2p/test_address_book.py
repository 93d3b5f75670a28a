"""Where peers can be reached, and whose word about it counts."""

import pytest

from rumormill.libp2p.address_book import credible
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
