"""The routing table: what a bucket keeps, who waits, and who is named."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.config import override
from rumormill.core.errors import ConfigError
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.table import (
    CROWDED,
    FULL,
    OURSELVES,
    RoutingTable,
    distance,
    key_in_bucket,
    position,
    shared_bits,
)

OWN = b"own"


def table(**changes: int) -> RoutingTable:
    return RoutingTable(OWN, override(KademliaConfig(), changes))


def peers_of(bucket: int, count: int) -> list[bytes]:
    """Peers that share exactly so many leading bits with us."""
    found = []
    number = 0
    while len(found) < count:
        peer = b"peer-%d" % number
        if shared_bits(position(OWN), position(peer)) == bucket:
            found.append(peer)
        number += 1
    return found


class TestDistance:
    """Distance is the exclusive or of hashes, a metric in which every target has one order."""

    @given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
    def test_it_is_a_metric(self, a: bytes, b: bytes, c: bytes) -> None:
        """Zero for equal names only, symmetric, and the triangle inequality holds."""
        assert (distance(a, b) == 0) == (a == b)
        assert distance(a, b) == distance(b, a)
        assert distance(a, c) <= distance(a, b) + distance(b, c)

    def test_it_is_of_hashes(self) -> None:
        """The specification: XOR(sha256(key1), sha256(key2))."""
        assert position(b"abc") == int(
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 16
        )
        assert distance(b"abc", b"def") == position(b"abc") ^ position(b"def")

    @given(st.integers(0, 9), st.integers(0, 2**32))
    def test_a_random_key_falls_into_the_bucket_it_was_made_for(
        self, bucket: int, seed: int
    ) -> None:
        """Refreshing a bucket looks up a key that belongs there."""
        key = key_in_bucket(position(OWN), bucket, Random(seed))
        assert key is not None
        assert shared_bits(position(OWN), position(key)) == bucket


class TestBuckets:
    """k contacts per bucket; who was there first stays."""

    def test_a_full_bucket_takes_nobody_in(self) -> None:
        """A newcomer waits, however many there are, and old contacts stay."""
        known = table(k=4)
        first, later = peers_of(0, 30)[:4], peers_of(0, 30)[4:]
        assert [known.seen(peer, 1.0, "") for peer in first] == [""] * 4
        assert {known.seen(peer, 2.0, "") for peer in later} == {FULL}
        assert [contact.peer for contact in known] == first

    def test_the_contact_that_was_silent_longest_is_the_one_to_check(self) -> None:
        """Hearing of a contact puts it at the end of its bucket."""
        known = table(k=3)
        a, b, c = peers_of(1, 3)
        for now, peer in enumerate((a, b, c, a)):
            known.seen(peer, float(now), "")
        silent = known.silent_longest(1, before=10.0)
        assert silent is not None
        assert silent.peer == b
        assert known.silent_longest(1, before=0.5) is None

    def test_whoever_waited_and_was_heard_of_last_moves_up(self) -> None:
        """A lost contact is replaced at its first failure when somebody waits."""
        known = table(k=2)
        a, b, c, d = peers_of(0, 4)
        for peer in (a, b, c, d):
            known.seen(peer, 1.0, "")
        assert known.failed(a)
        assert [contact.peer for contact in known] == [b, d]

    def test_a_contact_without_successor_may_fail_once(self) -> None:
        """It is named to nobody meanwhile, is named again when it answers, and then removed."""
        known = table(max_failures=2)
        (a,) = peers_of(0, 1)
        known.seen(a, 1.0, "")
        assert not known.failed(a)
        assert known.closest(position(a), 1) == []
        known.seen(a, 2.0, "")
        assert known.closest(position(a), 1) == [a]
        assert not known.failed(a)
        assert known.failed(a)
        assert a not in known

    def test_we_are_no_contact_of_our_own(self) -> None:
        """Our own id belongs in no bucket."""
        assert table().seen(OWN, 1.0, "") == OURSELVES

    @pytest.mark.parametrize("waiting", [0, 3])
    def test_those_that_wait_are_bounded(self, waiting: int) -> None:
        """The newest of them are kept, and nobody where nobody may wait."""
        known = table(k=1, replacements=waiting)
        peers = peers_of(0, 12)
        for peer in peers:
            known.seen(peer, 1.0, "")
        survivors = []
        while len(known):
            (contact,) = known
            survivors.append(contact.peer)
            known.remove(contact.peer)
        assert survivors == [peers[0], *reversed(peers[12 - waiting :] if waiting else [])]


class TestSubnets:
    """One owner of addresses cannot fill a table."""

    def test_a_network_has_few_places_in_a_bucket_and_in_the_table(self) -> None:
        """Two in a bucket, four in this table; places become free with their contacts."""
        known = table(per_subnet_bucket=2, per_subnet_table=4)
        outcomes = {
            bucket: [known.seen(peer, 1.0, "203.0.113.0/24") for peer in peers_of(bucket, 4)]
            for bucket in range(3)
        }
        assert outcomes[0] == outcomes[1] == ["", "", CROWDED, CROWDED]
        assert outcomes[2] == [CROWDED] * 4
        known.remove(peers_of(0, 1)[0])
        assert known.seen(peers_of(2, 1)[0], 2.0, "203.0.113.0/24") == ""
        assert known.seen(peers_of(2, 2)[1], 2.0, "") == ""

    def test_a_replacement_of_a_crowded_network_does_not_move_up(self) -> None:
        """The limit holds for those that wait, too."""
        known = table(k=3, per_subnet_bucket=2)
        a, b, c, d, e = peers_of(0, 5)
        known.seen(a, 1.0, "")
        known.seen(b, 1.0, "n")
        known.seen(c, 1.0, "other")
        assert known.seen(d, 1.0, "x") == FULL
        assert known.seen(e, 1.0, "n") == FULL
        known.remove(a)
        assert [contact.peer for contact in known] == [b, c, e]
        known.remove(c)
        assert [contact.peer for contact in known] == [b, e, d]


class TestClosest:
    """The closest contacts, from local state only."""

    @given(
        st.lists(st.binary(min_size=1, max_size=8), max_size=80, unique=True),
        st.binary(max_size=8),
        st.integers(1, 30),
        st.integers(1, 6),
        st.data(),
    )
    def test_closest_agrees_with_sorting_everybody(
        self, peers: list[bytes], target: bytes, count: int, k: int, data: st.DataObject
    ) -> None:
        """Walking the buckets gives what sorting all contacts that did not fail would."""
        known = table(k=k, candidates=100)
        for peer in peers:
            known.seen(peer, 1.0, "")
        for peer in data.draw(st.lists(st.sampled_from(peers), max_size=5)) if peers else []:
            known.failed(peer)
        without = data.draw(st.sampled_from(peers)) if peers else b""
        expected = sorted(
            (contact.peer for contact in known if not contact.failures and contact.peer != without),
            key=lambda peer: distance(peer, target),
        )
        assert known.closest(position(target), count, without) == expected[:count]

    @given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from("safr")), max_size=200))
    def test_no_order_of_events_breaks_a_bound(self, events: list[tuple[int, str]]) -> None:
        """Buckets hold at most k, networks their share, and all views of the table agree."""
        known = table(k=3, replacements=2, per_subnet_bucket=1, per_subnet_table=2)
        for now, (number, what) in enumerate(events):
            peer = b"peer-%d" % number
            network = f"net-{number % 5}" if number % 2 else ""
            if what == "f":
                known.failed(peer)
            elif what == "r":
                known.remove(peer)
            else:
                known.seen(peer, float(now), network)
            contacts = list(known)
            assert len(known) == len(contacts)
            assert max(Counter(c.bucket for c in contacts).values(), default=0) <= 3
            networks = Counter(c.network for c in contacts if c.network)
            assert max(networks.values(), default=0) <= 2
            in_bucket = Counter((c.bucket, c.network) for c in contacts if c.network)
            assert max(in_bucket.values(), default=0) <= 1
            named = known.closest(0, 1000)
            assert sorted(named) == sorted(c.peer for c in contacts if not c.failures)


class TestRadius:
    """How dense the network is, from local state."""

    @pytest.mark.parametrize("size", [40, 200, 2000])
    def test_about_so_many_peers_stand_within_the_radius(self, size: int) -> None:
        """Of 20 tries with 20 peers expected, the mean lies near 20 and none is far off."""
        inside = []
        for seed in range(20):
            randomness = Random(seed)
            peers = [randomness.randbytes(8) for _ in range(size)]
            own, target = randomness.randbytes(8), randomness.randbytes(8)
            known = RoutingTable(own, KademliaConfig())
            for peer in peers:
                known.seen(peer, 1.0, "")
            radius = known.radius(20)
            inside.append(sum(distance(peer, target) <= radius for peer in peers))
        assert 14 <= sum(inside) / 20 <= 28
        assert min(inside) >= 5
        assert max(inside) <= 50

    def test_who_knows_few_peers_does_not_guess(self) -> None:
        """The radius is 0, and lookups go by the k closest."""
        known = table()
        for number in range(9):
            known.seen(b"peer-%d" % number, 1.0, "")
        assert known.radius(20) == 0


class TestConfig:
    """Parameters that cannot work are refused."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"k": 0},
            {"alpha": 0},
            {"paths": 0},
            {"ask_timeout": 0},
            {"replacements": -1},
            {"candidates": 5},
            {"k": 65},
            {"limits.value_bytes": 4 << 20},
            {"limits.addresses": 0},
        ],
    )
    def test_impossible_values_are_refused(self, changes: dict[str, int]) -> None:
        """Each with the name of the key."""
        with pytest.raises(ConfigError, match=next(iter(changes)).split(".")[-1]):
            override(KademliaConfig(), changes)
