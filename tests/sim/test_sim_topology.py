"""Topologies are simple, connected where they are generated, and decided by the seed."""

import random
from collections import Counter
from collections.abc import MutableSequence
from itertools import combinations
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.sim.scenario import Topology, TopologyKind
from rumormill.sim.topology import Link, build_topology, is_connected, read_links

GENERATED = [kind for kind in get_args(TopologyKind) if kind != "file"]


def degrees(links: list[Link], peers: int) -> list[int]:
    counted = Counter(peer for link in links for peer in link)
    return [counted[peer] for peer in range(peers)]


def assert_simple(links: list[Link]) -> None:
    assert all(dialler != listener for dialler, listener in links)
    assert len({frozenset(link) for link in links}) == len(links)


@given(
    st.sampled_from(GENERATED),
    st.integers(2, 60),
    st.integers(2, 70),
    st.integers(1, 5),
    st.integers(0, 2**32),
)
def test_generated_networks_are_simple_connected_and_ordered(
    kind: str, peers: int, degree: int, branching: int, seed: int
) -> None:
    """Any size and degree gives a connected network without loops or double links."""
    topology = Topology(kind=kind, degree=degree, branching=branching)
    links = build_topology(topology, peers, random.Random(seed))
    assert_simple(links)
    assert is_connected(peers, links)
    assert [sorted(link, reverse=True) for link in links] == sorted(
        sorted(link, reverse=True) for link in links
    )
    assert links == build_topology(topology, peers, random.Random(seed))


@given(st.integers(2, 60), st.integers(2, 70), st.integers(0, 2**32))
def test_random_regular_networks_are_regular(peers: int, degree: int, seed: int) -> None:
    """Every peer has the degree; one has one less when no such network can exist."""
    links = build_topology(Topology(degree=degree), peers, random.Random(seed))
    wanted = min(degree, peers - 1)
    found = Counter(degrees(links, peers))
    assert found == ({wanted: peers - 1, wanted - 1: 1} if peers * wanted % 2 else {wanted: peers})


@pytest.mark.parametrize("peers", [100, 500, 1000, 10_000])
def test_published_networks_have_twenty_links_each(peers: int) -> None:
    """Degree 20 is exact at the sizes of the published runs and at the largest promised one."""
    links = build_topology(Topology(degree=20), peers, random.Random(peers))
    assert_simple(links)
    assert degrees(links, peers) == [20] * peers
    assert is_connected(peers, links)


def test_random_networks_differ_by_seed_and_dial_both_ways() -> None:
    """The seed decides the links, and no peer only dials or only listens."""
    links = build_topology(Topology(), 200, random.Random(1))
    assert links != build_topology(Topology(), 200, random.Random(2))
    dialled = Counter(dialler for dialler, _ in links)
    assert all(0 < dialled[peer] < 20 for peer in range(200))
    lower_dials = sum(dialler < listener for dialler, listener in links)
    assert 0.4 < lower_dials / len(links) < 0.6


class TwoFoursFirst(random.Random):
    """A generator whose first shuffle pairs eight peers into two separate fours."""

    shuffles = 0

    def shuffle(self, x: MutableSequence[int]) -> None:
        self.shuffles += 1
        super().shuffle(x)
        if self.shuffles == 1:
            fours = (range(4), range(4, 8))
            x[:] = [end for four in fours for pair in combinations(four, 2) for end in pair]


def test_networks_that_fall_apart_are_drawn_again() -> None:
    """A drawing of two separate halves is thrown away, and the next one is taken."""
    rng = TwoFoursFirst(1)
    links = build_topology(Topology(degree=3), 8, rng)
    assert is_connected(8, links)
    assert degrees(links, 8) == [3] * 8
    assert rng.shuffles == 2


def test_random_regular_links_do_not_favour_pairs() -> None:
    """Over many seeds every pair of ten peers is linked about equally often."""
    seen = Counter(
        frozenset(link)
        for seed in range(600)
        for link in build_topology(Topology(degree=4), 10, random.Random(seed))
    )
    # 600 × 20 links over 45 pairs: 267 each; five standard deviations are about 61.
    assert len(seen) == 45
    assert 206 < min(seen.values()) <= max(seen.values()) < 328


def test_ring_random_contains_the_ring_and_reaches_the_mean_degree() -> None:
    """Everyone is linked to the next; the number of links is peers × degree / 2."""
    links = build_topology(Topology(kind="ring-random", degree=8), 50, random.Random(3))
    assert len(links) == 200
    assert all((peer, (peer + 1) % 50) in links for peer in range(50))


@pytest.mark.parametrize(
    ("kind", "branching", "links"),
    [
        ("star", 2, [(1, 0), (2, 0), (3, 0), (4, 0)]),
        ("line", 2, [(1, 0), (2, 1), (3, 2), (4, 3)]),
        ("tree", 2, [(1, 0), (2, 0), (3, 1), (4, 1)]),
        ("tree", 3, [(1, 0), (2, 0), (3, 0), (4, 1)]),
    ],
)
def test_plain_shapes(kind: str, branching: int, links: list[Link]) -> None:
    """Leaves dial the hub, children their parent, everyone on a line the one before."""
    shape = Topology(kind=kind, branching=branching)
    assert build_topology(shape, 5, random.Random(1)) == links


def test_a_degree_of_all_others_is_the_complete_network() -> None:
    """Degree 20 among five peers links every pair."""
    for kind in ("random-regular", "ring-random", "complete"):
        links = build_topology(Topology(kind=kind), 5, random.Random(1))
        assert degrees(links, 5) == [4] * 5


def test_too_many_links_are_refused_before_they_are_made() -> None:
    """A complete network of the largest run would have fifty million links."""
    with pytest.raises(ConfigError, match="exceed 2000000 links"):
        build_topology(Topology(kind="complete"), 10_000, random.Random(1))


def test_links_from_a_file(tmp_path: Path) -> None:
    """Pairs keep their direction; comments and empty lines do not count."""
    file = tmp_path / "links.tsv"
    file.write_text("# ring of three\n2\t0\n0 1  # first\n\n1\t2\n")
    topology = Topology(kind="file", path=str(file))
    assert build_topology(topology, 3, random.Random(1)) == [(0, 1), (2, 0), (1, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1", "line 2: expected two peer numbers, got '1'"),
        ("0 x", "line 1: expected two peer numbers"),
        ("0 -1", "line 1: expected two peer numbers"),
        ("0 ²", "line 1: expected two peer numbers"),
        ("0 3", "line 1: peer numbers must be from 0 to 2"),
        ("0 99999999999999999999999", "line 1: peer numbers must be from 0 to 2"),
        ("1 1", "line 1: a link to itself"),
        ("0 1\n1 0", "line 2: .*listed before"),
    ],
)
def test_bad_link_files_are_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    """The refusal names the key, the file and the line."""
    file = tmp_path / "links.tsv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"topology.path: .*links.tsv, {message}"):
        read_links(str(file), 3)


def test_unreadable_link_files_are_refused(tmp_path: Path) -> None:
    """A missing file and one that is no text name the key."""
    with pytest.raises(ConfigError, match=r"topology\.path: .* cannot be read"):
        read_links(str(tmp_path / "missing"), 3)
    (tmp_path / "binary").write_bytes(b"\xff\xff")
    with pytest.raises(ConfigError, match=r"topology\.path: .* not UTF-8"):
        read_links(str(tmp_path / "binary"), 3)
