"""What the pub/sub layer knows of a connected peer, within limits."""

from typing import Final, Protocol

import msgspec

from rumormill.core.ids import Topic
from rumormill.core.rate_limit import RateLimit

_CHANGES_AT_ONCE: Final = 2048
_CHANGES_PER_SECOND: Final = 50
"""How often a peer may subscribe or leave: our choice, twice all topics that it may have, and
then more often than anybody's interests change."""


class Standing(Protocol):
    """What a peer has earned."""

    @property
    def earned(self) -> float | None:
        """Its score; None when that is not known without a look."""


class PeerState(msgspec.Struct, gc=False):
    """What is known of a connected peer."""

    protocol: str
    outbound: bool
    address: str
    limited: bool = False
    """Whether it is behind a relay that carries only so much."""
    topics: tuple[Topic, ...] = ()
    """What it subscribes to; made anew when that changes, since it seldom does."""
    changes: RateLimit | None = None
    """How often it may subscribe and leave; made with its second change, as most have one topic."""
    said_extensions: bool = False
    """Whether it has named the extensions that it speaks."""
    standing: Standing | None = None
    """None where peers have no scores."""

    def may_change(self, now: float) -> bool:
        """Whether it may subscribe or leave once more."""
        if self.changes is None:
            self.changes = RateLimit(_CHANGES_PER_SECOND, _CHANGES_AT_ONCE)
        return self.changes.take(now)
