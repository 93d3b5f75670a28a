"""When histories are compared, and with whom."""

from rumormill.core.config import NOT_NEGATIVE, POSITIVE, Config, require_all


class SyncConfig(Config, frozen=True, kw_only=True):
    """The settings of sync. Every default is our choice; the reason stands beside it."""

    enabled: bool = True
    """Whether what is missing is looked for; answers are given in any case."""
    interval: float = 20.0
    """Seconds between two comparisons, each with one peer, on average: what nobody noticed is found
    within a minute of its loss, at some 30 bytes a topic."""
    settle: float = 10.0
    """Seconds that an event is left to the protocol: what still spreads is not missing."""
    timeout: float = 10.0
    """Seconds that an answer may take, and a long one that goes on for each 16 KiB of it."""

    def validate(self) -> None:
        """Refuse times that cannot be."""
        require_all(self, {POSITIVE: ("interval", "timeout"), NOT_NEGATIVE: ("settle",)})
