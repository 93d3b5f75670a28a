"""What peers keep and compare: a scenario's tables of disks and of sync."""

from rumormill.core.config import Config, require
from rumormill.core.history import SUM_BITS
from rumormill.sim.journal import DEFAULT_LIMIT
from rumormill.sim.units import Seconds, Share
from rumormill.sync.config import SyncConfig


class Disk(Config, frozen=True, kw_only=True):
    """What keeps each peer's events, and for how long."""

    # Seconds until an appended event is safe; our choice: none, links are what is studied.
    commit_delay: Seconds = 0.0
    # Events that each peer keeps, the oldest going first; only where a protocol reads them.
    limit: int = DEFAULT_LIMIT
    # For how long each peer keeps an event; left out: for ever.
    max_age: Seconds | None = None
    # Share of the peers, drawn by the seed, that delete anything; the others keep it all.
    fraction: Share = 1.0

    def validate(self) -> None:
        """Refuse disks that keep nothing, or take for ever."""
        require(0 <= self.commit_delay <= 3600, "commit_delay", "must be from 0s to 1h")
        require(1 <= self.limit <= 10**9, "limit", "must be from 1 to 1000000000")
        age = self.max_age
        require(age is None or 0 < age <= 1e9, "max_age", "must be more than 0s")
        require(0 <= self.fraction <= 1, "fraction", "must be from 0 to 1")
        require(
            self.retains or self.fraction == 1,
            "fraction",
            "has no meaning without limit or max_age",
        )

    @property
    def retains(self) -> bool:
        """Whether anything is ever deleted on purpose."""
        return self.limit != DEFAULT_LIMIT or self.max_age is not None


class Sync(SyncConfig, frozen=True, kw_only=True):
    """Whether, and when, peers get from each other what the protocol has not brought."""

    # Off: what is compared then are the protocols themselves. The rest is as in a node.
    enabled: bool = False
    interval: Seconds = SyncConfig().interval
    settle: Seconds = SyncConfig().settle
    timeout: Seconds = SyncConfig().timeout
    # Bits of the sums that stand for sets of events. With few of them different sets have one sum,
    # as if somebody had found the way to make such.
    sum_bits: int = SUM_BITS

    def validate(self) -> None:
        """Refuse what a node's sync refuses, and sums that are none."""
        super().validate()
        require(0 <= self.sum_bits <= SUM_BITS, "sum_bits", f"must be from 0 to {SUM_BITS}")
