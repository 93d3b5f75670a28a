"""Bandwidth models: how many bytes per second each peer sends and receives.

Specifications: `unlimited`, `10mbit` for both directions of every peer, `10mbit/50mbit` for up and
down, and `regions`, where every peer draws a node type of the gossipsub-interop harness by weight
(one in five has 1024 Mbit/s, the others 50).
"""

import math
import random
from typing import Final

import msgspec

from rumormill.core.config import require
from rumormill.core.errors import ConfigError
from rumormill.sim.shipped import shipped_bytes
from rumormill.sim.units import parse_bandwidth

SPECS: Final = "unlimited, 10mbit, 10mbit/50mbit (up/down), regions"


class Bandwidth(msgspec.Struct, frozen=True):
    """Bytes per second by peer number; `math.inf` where nothing limits."""

    upload: list[float]
    download: list[float]

    @property
    def unlimited(self) -> bool:
        """Whether no peer is limited, so that transmission takes no time."""
        return all(map(math.isinf, self.upload)) and all(map(math.isinf, self.download))


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
        raise ConfigError(f"bandwidth: {spec!r} is unknown ({error}); allowed: {SPECS}") from None
    return rates[0], rates[-1]
