"""Latency between any two peers, in one-way seconds, and the bandwidth of each.

A latency model answers for a pair of peer numbers and always answers the same; what varies from
message to message is the link's jitter. No model keeps a table of all pairs: a drawn latency is
computed from the pair and a key, so 10,000 peers cost nothing. Specifications:

- `constant:50ms`: every pair alike.
- `uniform:10ms-100ms`: each pair draws once, the same in both directions.
- `normal:50ms,10ms`: the same with mean and standard deviation; never below a tenth of the mean.
- `regions`: the eight world regions of the gossipsub-interop harness; a peer draws its region by
  weight, the latency is that of the two regions.
- `planetlab`: half of a measured round trip between two of 490 PlanetLab machines. Peers are spread
  evenly over the machines in an order drawn by the seed. Round trips above 1000 ms (134 of 239,610,
  up to 2984 ms) count as 1000 ms: a few overloaded machines would otherwise decide every maximum.
  `planetlab:uncapped` keeps them. Two peers on one machine are `SAME_MACHINE` apart.

Bandwidth, how many bytes per second each peer sends and receives, is `unlimited`, `10mbit` for both
directions of every peer, `10mbit/50mbit` for up and down, or `regions`, where every peer draws a
node type of the gossipsub-interop harness by weight (one in five has 1024 Mbit/s, the others 50).
"""

import functools
import math
import random
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from rumormill.core.config import nearest, require
from rumormill.core.errors import ConfigError
from rumormill.sim.shipped import shipped_bytes
from rumormill.sim.units import parse_bandwidth, parse_duration

SPECS: Final = (
    "constant:50ms, uniform:10ms-100ms, normal:50ms,10ms (mean, deviation), "
    "regions, planetlab, planetlab:uncapped"
)
BANDWIDTHS: Final = "unlimited, 10mbit, 10mbit/50mbit (up/down), regions"
LONGEST: Final = 3600.0
"""Longest latency in seconds; our choice: beyond an hour it is a typing error."""

PLANETLAB_CAP: Final = 1.0
"""Longest PlanetLab round trip in seconds; see the module's head."""

SAME_MACHINE: Final = 0.0005
"""One-way seconds between two peers on one PlanetLab machine; our choice: a local network's."""

MACHINES: Final = 490

_WORD = (1 << 64) - 1


LatencyModel: TypeAlias = Callable[[int, int], float]
"""Answers how many seconds a message travels from one peer's number to another's."""


def constant(seconds: float) -> LatencyModel:
    """Every pair alike."""
    return lambda _source, _target: seconds


def _uniform(low: float, high: float, key: int) -> LatencyModel:
    """Each pair draws from a range, once and for both directions."""
    return lambda source, target: low + (high - low) * (_mixed(key, source, target) / 2.0**64)


def _normal(mean: float, deviation: float, key: int) -> LatencyModel:
    """Each pair draws from a bell curve, once and for both directions (Box and Muller's way)."""

    def one_way(source: int, target: int) -> float:
        first = (_mixed(key, source, target) + 1) / (2.0**64 + 1)
        second = _mixed(key ^ _WORD, source, target) / 2.0**64
        bell = math.sqrt(-2.0 * math.log(min(first, 1.0))) * math.cos(2.0 * math.pi * second)
        return max(mean / 10.0, mean + deviation * bell)

    return one_way


def _placed(places: Sequence[int], table: Sequence[float], width: int) -> LatencyModel:
    """Each peer stands at a place; a square table has the seconds between places."""
    return lambda source, target: table[places[source] * width + places[target]]


def check_latency(spec: str) -> None:
    """Refuse a specification that `parse_latency` would not read."""
    _parsed(spec)


def parse_latency(spec: str, peers: int, rng: random.Random) -> LatencyModel:
    """Build the model that `spec` names for peers numbered from 0."""
    kind, numbers = _parsed(spec)
    if kind == "constant":
        return constant(numbers[0])
    if kind == "uniform":
        return _uniform(numbers[0], numbers[1], rng.getrandbits(64))
    if kind == "normal":
        return _normal(numbers[0], numbers[1], rng.getrandbits(64))
    if kind == "regions":
        weights, table = _regions()
        places = rng.choices(range(len(weights)), weights, k=peers)
        return _placed(array("H", places), table, len(weights))
    order = rng.sample(range(MACHINES), MACHINES)
    places = [order[peer % MACHINES] for peer in range(peers)]
    return _placed(array("H", places), _planetlab(numbers[0]), MACHINES)


def _parsed(spec: str) -> tuple[str, tuple[float, ...]]:
    """The kind and its numbers, in seconds."""
    kind, _, rest = spec.partition(":")
    kinds = ["constant", "uniform", "normal", "regions", "planetlab"]
    if kind not in kinds:
        guess = nearest(kind, kinds)
        hint = f"; {guess}" if guess.startswith("did you mean") else ""
        raise ConfigError(f"latency: {spec!r} is unknown{hint}; allowed: {SPECS}")
    if kind == "planetlab" and rest in {"", "uncapped"}:
        return kind, (math.inf if rest else PLANETLAB_CAP,)
    if kind == "regions" and not rest:
        return kind, ()
    separator, count = {"constant": (None, 1), "uniform": ("-", 2), "normal": (",", 2)}.get(
        kind, (None, 0)
    )
    parts = rest.split(separator) if separator else [rest]
    try:
        numbers = tuple(parse_duration(part) for part in parts)
    except ConfigError as error:
        raise ConfigError(f"latency: {spec!r}: {error}; allowed: {SPECS}") from None
    rising = kind != "uniform" or numbers == tuple(sorted(numbers))
    if len(numbers) != count or min(numbers) < 0 or max(numbers) > LONGEST or not rising:
        raise ConfigError(
            f"latency: {spec!r} does not fit (from 0s to 1h, ranges rise); allowed: {SPECS}"
        )
    return kind, numbers


def _mixed(key: int, source: int, target: int) -> int:
    """A 64-bit word for an unordered pair: the output function of SplitMix64, applied twice."""
    if source > target:
        source, target = target, source
    return _scrambled(_scrambled(key + source * 0x9E3779B97F4A7C15) + target * 0x9E3779B97F4A7C15)


def _scrambled(word: int) -> int:
    word &= _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


@functools.cache
def _regions() -> tuple[list[int], list[float]]:
    model: dict[str, Any] = msgspec.json.decode(shipped_bytes("regions.json"))
    names = [region["name"] for region in model["regions"]]
    rows = model["latency_ms"]
    table = [rows[sender][receiver] / 1000.0 for sender in names for receiver in names]
    return [region["weight"] for region in model["regions"]], table


@functools.cache
def _planetlab(cap: float) -> "array[float]":
    """One-way seconds between machines, row by row; the diagonal is `SAME_MACHINE`."""
    round_trips = map(float, shipped_bytes("planetlab-rtt.tsv.gz").split())
    table = array("f", [min(trip / 1000.0, cap) / 2.0 for trip in round_trips])
    for machine in range(MACHINES):
        table[machine * MACHINES + machine] = SAME_MACHINE
    return table


class Bandwidth(msgspec.Struct, frozen=True):
    """Bytes per second by peer number; `math.inf` where nothing limits."""

    upload: list[float]
    download: list[float]


def check_bandwidth(spec: str) -> None:
    """Refuse a specification that `build_bandwidth` would not read."""
    if spec != "regions":
        _directions(spec)


def build_bandwidth(spec: str, peers: int, rng: random.Random) -> Bandwidth:
    """Give every peer its bandwidth."""
    if spec == "regions":
        types = msgspec.json.decode(shipped_bytes("regions.json"))["node_types"]
        drawn = rng.choices(types, [kind["weight"] for kind in types], k=peers)
        return Bandwidth(
            [kind["upload_mbit"] * 1e6 / 8 for kind in drawn],
            [kind["download_mbit"] * 1e6 / 8 for kind in drawn],
        )
    upload, download = _directions(spec)
    return Bandwidth([upload] * peers, [download] * peers)


def _directions(spec: str) -> tuple[float, float]:
    """Upload and download in bytes per second."""
    if spec == "unlimited":
        return math.inf, math.inf
    parts = spec.split("/")
    try:
        require(len(parts) <= 2, "bandwidth", "has more than two directions")
        rates = [parse_bandwidth(part) / 8 for part in parts]
        require(min(rates) >= 1, "bandwidth", "must be at least 8bit")
    except ConfigError as error:
        raise ConfigError(
            f"bandwidth: {spec!r} is unknown ({error}); allowed: {BANDWIDTHS}"
        ) from None
    return rates[0], rates[-1]
