"""Who can be dialled: a scenario's table of NATs and relays.

Every peer belongs to a class: public (anybody can dial it), punchable (behind a NAT through which
holes can often be punched) or relay only (behind one through which they never can).
"""

from random import Random
from typing import Literal

import msgspec

from rumormill.core.config import Config, require
from rumormill.sim.units import Bytes, Seconds, Share

ReachClass = Literal["public", "punchable", "relay-only"]


class Reach(Config, frozen=True, kw_only=True):
    """How many peers are behind NATs, and what it takes to reach them."""

    # Shares of all peers; our choice: everybody is public, since links are what is studied.
    punchable: Share = 0.0
    relay_only: Share = 0.0
    # Whether a hole can be punched between two punchable peers: drawn for each pair, once. 70 % of
    # 4.4 million attempts succeeded (D. Trautwein et al., arXiv 2510.27500).
    punch_success: Share = 0.7
    # Public peers with which one behind a NAT has reservations: go-libp2p's AutoRelay wants two.
    relays: int = 2
    # Reservations that one relay grants: go-libp2p's default.
    reservations: int = 128
    # What one relayed connection may carry each way, and how long: go's and js-libp2p's defaults.
    circuit_bytes: Bytes = 128 << 10
    circuit_time: Seconds = 120.0

    def validate(self) -> None:
        """Refuse more than everybody, relays that relay nothing, and keys without effect."""
        for key in ("punchable", "relay_only", "punch_success"):
            require(0 <= getattr(self, key) <= 1, key, "must be from 0 to 1")
        shares = self.punchable + self.relay_only
        require(shares <= 1, "relay_only", "with punchable must be at most 1")
        require(1 <= self.relays <= 16, "relays", "must be from 1 to 16")
        require(1 <= self.reservations <= 1 << 20, "reservations", "must be from 1 to 1048576")
        require(1024 <= self.circuit_bytes <= 1 << 40, "circuit_bytes", "must be 1kib to 1024gib")
        require(1 <= self.circuit_time <= 1e9, "circuit_time", "must be at least 1s")
        for field in msgspec.structs.fields(self):
            same = getattr(self, field.name) == field.default
            rule = "has no meaning where nobody is behind a NAT"
            require(same or self.enabled, field.name, rule)

    @property
    def enabled(self) -> bool:
        """Whether anybody is behind a NAT."""
        return self.punchable + self.relay_only > 0

    def classes(self, peers: int, draw: Random) -> list[ReachClass]:
        """Draw everybody's class; the first peer, whose ticket others may have, is public."""
        punchable, relay_only = round(self.punchable * peers), round(self.relay_only * peers)
        classes: list[ReachClass] = ["public"] * peers
        behind = draw.sample(range(1, peers), min(punchable + relay_only, peers - 1))
        for place, peer in enumerate(behind):
            classes[peer] = "punchable" if place < punchable else "relay-only"
        return classes
