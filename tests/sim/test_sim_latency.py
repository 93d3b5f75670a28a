"""Latency and bandwidth models answer from their data, the same for the same seed."""

import math
import random
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.sim.latency import (
    MACHINES,
    SAME_MACHINE,
    build_bandwidth,
    check_bandwidth,
    check_latency,
    parse_latency,
)
from rumormill.sim.shipped import shipped_bytes

SPECS = [
    "constant:50ms",
    "uniform:10ms-100ms",
    "normal:50ms,10ms",
    "regions",
    "planetlab",
    "planetlab:uncapped",
]


@pytest.mark.parametrize("spec", SPECS)
def test_models_are_decided_by_the_seed(spec: str) -> None:
    """Two models of one seed agree on every pair, and asking again changes nothing."""
    one, other = (parse_latency(spec, 600, random.Random(7)) for _ in range(2))
    pairs = [(a, b) for a in range(0, 600, 37) for b in range(0, 600, 41) if a != b]
    answers = [one(a, b) for a, b in pairs]
    assert answers == [other(a, b) for a, b in pairs]
    assert answers == [one(a, b) for a, b in pairs]
    assert all(0 < answer < 2 for answer in answers)
    if spec != "constant:50ms":
        differing = parse_latency(spec, 600, random.Random(8))
        assert answers != [differing(a, b) for a, b in pairs]


def test_constant_is_constant() -> None:
    """Every pair takes the time that the specification names."""
    assert parse_latency("constant:50ms", 10, random.Random(1))(3, 4) == 0.05


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 2**64))
def test_drawn_latencies_are_symmetric_and_in_range(one: int, other: int, seed: int) -> None:
    """A pair's draw is the same in both directions and inside the range."""
    uniform = parse_latency("uniform:10ms-100ms", 10, random.Random(seed))
    assert uniform(one, other) == uniform(other, one)
    assert 0.01 <= uniform(one, other) <= 0.1
    normal = parse_latency("normal:50ms,30ms", 10, random.Random(seed))
    assert normal(one, other) == normal(other, one) >= 0.005


def test_drawn_latencies_have_the_named_moments() -> None:
    """Over all pairs of 200 peers, means and deviations come out as specified."""
    pairs = [(a, b) for a in range(200) for b in range(a)]
    uniform = parse_latency("uniform:10ms-100ms", 200, random.Random(1))
    draws = [uniform(a, b) for a, b in pairs]
    assert fmean(draws) == pytest.approx(0.055, abs=0.001)
    assert pstdev(draws) == pytest.approx(0.09 / math.sqrt(12), abs=0.001)
    normal = parse_latency("normal:50ms,10ms", 200, random.Random(1))
    draws = [normal(a, b) for a, b in pairs]
    assert fmean(draws) == pytest.approx(0.05, abs=0.0005)
    assert pstdev(draws) == pytest.approx(0.01, abs=0.0005)


def test_regions_come_by_weight_with_their_latencies() -> None:
    """Half of the peers are European; the longest way is 220 ms, the shortest 2 ms."""
    model = parse_latency("regions", 2000, random.Random(1))
    answers = [model(a, b) for a in range(2000) for b in range(0, 2000, 20)]
    assert min(answers) == 0.002
    assert max(answers) <= 0.22
    inside_one_region = sum(answer <= 0.007 for answer in answers) / len(answers)
    # The weights' squares sum to 0.331: the chance that two peers share a region.
    assert inside_one_region == pytest.approx(0.331, abs=0.03)


def test_the_one_asymmetric_way_is_kept() -> None:
    """South America to South Africa takes 195 ms and back 190 ms, as in the source."""
    model = parse_latency("regions", 4000, random.Random(1))
    one_of_each = {tuple(model(a, b) for b in range(100)): a for a in range(4000)}.values()
    assert len(one_of_each) == 8
    ways = {(model(a, b), model(b, a)) for a in one_of_each for b in one_of_each}
    ways = {(there, back) for there, back in ways if there != back}
    assert ways == {(0.195, 0.19), (0.19, 0.195)}


def test_planetlab_is_half_of_the_measured_round_trips() -> None:
    """490 peers on 490 machines have exactly the matrix's values, capped at one second."""
    rows = [line.split() for line in shipped_bytes("planetlab-rtt.tsv.gz").splitlines()]
    assert len(rows) == MACHINES
    assert {len(row) for row in rows} == {MACHINES}
    trips = sorted(float(rows[a][b]) for a in range(MACHINES) for b in range(MACHINES) if a != b)
    assert sum(trip > 1000 for trip in trips) == 134
    for spec, cap in (("planetlab", 1000.0), ("planetlab:uncapped", math.inf)):
        model = parse_latency(spec, MACHINES, random.Random(5))
        ways = sorted(model(a, b) for a in range(MACHINES) for b in range(MACHINES) if a != b)
        expected = [min(trip, cap) / 2000.0 for trip in trips]
        assert len(ways) == len(expected)
        worst = max(abs(way - half) / half for way, half in zip(ways, expected, strict=True))
        assert worst < 1e-6


def test_planetlab_machines_are_shared_evenly_beyond_490_peers() -> None:
    """Peer 490 stands where peer 0 stands, half a millisecond away."""
    model = parse_latency("planetlab", 1000, random.Random(5))
    assert model(0, 490) == pytest.approx(SAME_MACHINE)
    assert model(0, 7) == model(490, 497)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "constant",
        "constant:",
        "constant:fast",
        "constant:-5ms",
        "constant:2h",
        "constant:1ms-2ms",
        "uniform:5ms",
        "uniform:9ms-5ms",
        "uniform:1ms-2ms-3ms",
        "normal:5ms",
        "regions:3",
        "planetlab:3",
        "gaussian:5ms",
    ],
)
def test_unknown_latencies_are_refused_with_all_models(bad: str) -> None:
    """The refusal lists every model with an example."""
    with pytest.raises(ConfigError, match=r"latency: .*allowed: constant:50ms, uniform.*planetlab"):
        check_latency(bad)


@given(st.text(max_size=40))
def test_any_text_is_a_model_or_refused(text: str) -> None:
    """No specification raises anything but the declared error."""
    for check in (check_latency, check_bandwidth):
        for spec in (text, f"constant:{text}", f"uniform:{text}", f"{text}/{text}"):
            try:
                check(spec)
            except ConfigError:
                continue


def test_bandwidth_is_bytes_per_second_per_direction() -> None:
    """One rate serves both directions; two are up and down."""
    both = build_bandwidth("10mbit", 3, random.Random(1))
    assert both.upload == both.download == [1_250_000.0] * 3
    two = build_bandwidth("8mbit/80mbit", 2, random.Random(1))
    assert (two.upload, two.download) == ([1e6, 1e6], [1e7, 1e7])
    unlimited = build_bandwidth("unlimited", 2, random.Random(1))
    assert unlimited.upload == unlimited.download == [math.inf] * 2


def test_bandwidth_of_regions_is_drawn_by_node_type() -> None:
    """One peer in five has 1024 Mbit/s, the others 50, in both directions alike."""
    drawn = build_bandwidth("regions", 5000, random.Random(1))
    assert drawn.upload == drawn.download
    assert set(drawn.upload) == {128e6, 6.25e6}
    assert drawn.upload.count(128e6) / 5000 == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    "bad", ["", "fast", "10mb", "1bit", "5mbit/", "1mbit/2mbit/3mbit", "-1mbit"]
)
def test_unknown_bandwidths_are_refused_with_all_forms(bad: str) -> None:
    """The refusal lists every form; less than a byte per second is none."""
    with pytest.raises(ConfigError, match=r"bandwidth: .*allowed: unlimited, 10mbit, .*regions"):
        check_bandwidth(bad)
