"""Places are shared out fairly among the origins that ask for them."""

import random

import pytest

from rumormill.libp2p.admission import Bans, Origin, Places, origin_of


def fill(places: Places[str], hosts: dict[str, int]) -> None:
    for host, count in hosts.items():
        for number in range(count):
            places.add(f"{host}#{number}", origin_of(host))


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("::ffff:192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2::7", "2001:db8:1::/48"),
        ("127.0.0.3", "127.0.0.3"),
        ("::1", "::1"),
        ("no address", "no address"),
    ],
)
def test_an_origin_is_what_one_party_usually_holds(host: str, group: str) -> None:
    assert origin_of(host).group == group


def test_a_newcomer_from_elsewhere_takes_a_place_of_the_most_crowded_group() -> None:
    places: Places[str] = Places(10)
    fill(places, {"192.0.2.1": 4, "192.0.2.2": 3, "198.51.100.1": 3})
    assert places.full
    newcomer = origin_of("203.0.113.1")
    assert places.candidates(newcomer, ties=False)[0] == "192.0.2.1#0"


def test_inside_a_group_the_most_crowded_address_makes_room() -> None:
    places: Places[str] = Places(5)
    fill(places, {"192.0.2.1": 4, "192.0.2.2": 1})
    assert places.candidates(origin_of("192.0.2.3"), ties=False)[0] == "192.0.2.1#0"
    assert places.candidates(origin_of("192.0.2.2"), ties=False)[0] == "192.0.2.1#0"
    assert places.candidates(origin_of("192.0.2.1"), ties=False) == []


def test_nobody_goes_for_a_newcomer_that_would_be_no_worse_off() -> None:
    places: Places[str] = Places(3)
    fill(places, {"192.0.2.1": 1, "198.51.100.1": 1, "203.0.113.1": 1})
    assert places.candidates(origin_of("192.0.2.1"), ties=False) == []
    assert places.candidates(origin_of("10.0.0.1"), ties=False) == []
    assert len(places.candidates(origin_of("10.0.0.1"), ties=True)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_whoever_keeps_asking_gets_its_share_whatever_a_crowd_does(seed: int) -> None:
    """An attacker with two groups asks a hundred times as often as five honest ones."""
    rng = random.Random(seed)
    places: Places[int] = Places(32)
    honest = [f"10.{number}.0.1" for number in range(5)]
    crowd = [f"192.0.{group}.{host}" for group in (2, 3) for host in range(1, 9)]
    of: dict[int, str] = {}
    for key in range(5000):
        host = rng.choice(honest) if rng.random() < 0.01 else rng.choice(crowd)
        origin = origin_of(host)
        if places.full:
            going = places.candidates(origin, ties=False)
            if not going:
                continue
            places.remove(going[-1])
        places.add(key, origin)
        of[key] = host
        assert len(places) <= 32
    held = [of[key] for key in of if key in places]
    fair = 32 // 7
    for host in honest:
        asked = sum(each == host for each in of.values())
        assert held.count(host) >= min(asked, fair), f"seed {seed}: {host}"


def test_bans_double_and_end() -> None:
    bans = Bans()
    origin = origin_of("192.0.2.1")
    assert bans.ban(b"p", origin, 100.0) == 60
    assert bans.is_banned(b"p", 159.0)
    assert not bans.is_banned(b"p", 160.0)
    assert bans.ban(b"p", origin, 170.0) == 120, "it is remembered"
    assert not bans.is_banned(b"p", 1000.0)
    assert bans.ban(b"p", origin, 1000.0) == 60, "and forgotten"
    for _ in range(10):
        length = bans.ban(b"p", origin, 1001.0)
    assert length == 3600


def test_several_offenders_of_one_group_have_the_group_kept_out() -> None:
    bans = Bans()
    for number in range(4):
        assert not bans.is_banned("192.0.2.0/24", 0.0)
        bans.ban(b"%d" % number, origin_of(f"192.0.2.{number}"), 0.0)
    assert bans.is_banned("192.0.2.0/24", 0.0)
    assert not bans.is_banned("192.0.3.0/24", 0.0)


def test_processes_of_this_machine_are_no_group() -> None:
    bans = Bans()
    for number in range(10):
        bans.ban(b"%d" % number, origin_of("127.0.0.1"), 0.0)
    assert not bans.is_banned("127.0.0.1", 0.0)
    assert bans.is_banned(b"9", 0.0)


def test_bans_are_bounded() -> None:
    bans = Bans()
    for number in range(10_000):
        bans.ban(b"%d" % number, Origin(f"g{number}", f"a{number}"), float(number) / 1000)
    assert len(bans) <= 4096
