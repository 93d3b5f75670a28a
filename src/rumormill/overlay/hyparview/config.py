"""HyParView's parameters, each with the source of its default."""

from rumormill.core.config import Config, require
from rumormill.overlay.hyparview.messages import MAX_MINIMA, MAX_PEERS


class HyParViewConfig(Config, frozen=True, kw_only=True):
    """All parameters of the membership.

    "Paper" is J. Leitão, J. Pereira, L. Rodrigues, "HyParView: a membership protocol for reliable
    gossip-based broadcast", DSN 2007, its experimental setting for 10,000 peers (section 5.1).
    """

    active_size: int = 5
    """Neighbours. Paper: fanout + 1, and 5."""

    passive_size: int = 30
    """Peers kept in reserve. Paper: 30."""

    active_walk: int = 6
    """Steps of a newcomer's walk, and of a shuffle's. Paper: ARWL = 6."""

    passive_walk: int = 3
    """The step of a newcomer's walk at which it enters a passive view. Paper: PRWL = 3."""

    shuffle_active: int = 3
    """Neighbours named in a shuffle. Paper: ka = 3."""

    shuffle_passive: int = 4
    """Peers of the passive view named in a shuffle. Paper: kp = 4."""

    shuffle_interval: float = 10.0
    """Seconds between two shuffles. The paper shuffles once per cycle of its simulator; our choice:
    often enough that a passive view forgets dead peers within minutes."""

    beat_interval: float = 2.0
    """Seconds between signs of life to neighbours, which carry the size estimate and mend views
    that are not symmetric. Our choice: the paper leaves failure detection to TCP, which does not
    notice a peer that hangs."""

    silent_beats: int = 5
    """Beats after which a silent neighbour is given up. Our choice."""

    swap_interval: float = 120.0
    """Seconds between two exchanges of a neighbour for somebody in reserve; 0 is never. Our choice:
    the paper's full views never change by themselves, so halves that a partition left behind stay
    apart when it ends, and so do newcomers that joined at one moment and found only each other.
    The first exchange comes after a tenth to three tenths of this. It costs little."""

    epoch: float = 60.0
    """Seconds of one round of the size estimate. Our choice: thirty beats, four times as many as a
    network of a million peers has hops."""

    minima: int = 32
    """Draws per peer in the size estimate; its standard error is 1 / √(minima − 2). Our choice:
    18 %, of which the logarithm in the diameter leaves little, in 128 bytes."""

    def validate(self) -> None:
        """Refuse views and walks that contradict each other."""
        for key in ("active_size", "passive_size", "silent_beats"):
            require(getattr(self, key) >= 1, key, "must be at least 1")
        require(self.active_walk >= 1, "active_walk", "must be at least 1")
        require(
            0 <= self.passive_walk <= self.active_walk,
            "passive_walk",
            f"must be between 0 and active_walk ({self.active_walk})",
        )
        for key in ("shuffle_active", "shuffle_passive"):
            require(getattr(self, key) >= 0, key, "must not be negative")
        require(
            1 + self.shuffle_active + self.shuffle_passive <= MAX_PEERS,
            "shuffle_passive",
            f"a shuffle names at most {MAX_PEERS} peers",
        )
        for key in ("shuffle_interval", "beat_interval", "epoch"):
            require(0 < getattr(self, key) < 2**31, key, "must be positive and finite")
        require(0 <= self.swap_interval < 2**31, "swap_interval", "must not be negative")
        require(
            self.epoch >= 2 * self.beat_interval, "epoch", "must hold at least two beat_intervals"
        )
        require(3 <= self.minima <= MAX_MINIMA, "minima", f"must be between 3 and {MAX_MINIMA}")
