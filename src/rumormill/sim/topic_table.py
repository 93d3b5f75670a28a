"""A scenario's table of topics: how they are made, for protocols in which topics are created."""

from typing import Literal

from rumormill.core.api import ANYONE, Linking, Publishers
from rumormill.core.config import Config, require
from rumormill.core.ids import PeerId

MOST_VERSIONS = 1000
"""Most new versions of each topic; our choice, far above what a run can show."""


class TopicTable(Config, frozen=True, kw_only=True):
    """What its author says of each topic. What is left out, the protocol decides."""

    # Who may publish: anyone, the author, or so many of those who publish most, or a share of them.
    allowed_publishers: Literal["anyone", "author"] | int | float | None = None
    # Whether the others may ask an allowed publisher to publish for them.
    request_to_publish: bool | None = None
    # What an event follows: the one that its publisher saw last, or none, since a load names none.
    linking: Linking | None = None
    # Sub-topics of each topic, in the order of topics, the first being the root of the tree.
    sub_topics: int = 0
    # New versions of each topic, at equal times during the load; those who subscribe follow.
    versions: int = 0

    def validate(self) -> None:
        """Refuse impossible amounts."""
        allowed = self.allowed_publishers
        if isinstance(allowed, float):
            require(0 < allowed <= 1, "allowed_publishers", "as a share must be in (0.0, 1.0]")
        elif isinstance(allowed, int):
            require(allowed >= 1, "allowed_publishers", "must be at least 1 peer")
        require(self.sub_topics >= 0, "sub_topics", "must not be negative")
        require(0 <= self.versions <= MOST_VERSIONS, "versions", f"must be 0 to {MOST_VERSIONS}")

    def publishers(self, busiest: list[PeerId]) -> Publishers | None:
        """Who may publish in a topic: of its author and those who publish there, busiest first."""
        allowed = self.allowed_publishers
        if allowed is None or allowed == ANYONE:
            return allowed
        if isinstance(allowed, str):
            return tuple(busiest[:1])
        most = max(1, round(allowed * len(busiest))) if isinstance(allowed, float) else allowed
        return tuple(busiest[:most])


AS_THE_PROTOCOL_HAS_IT = TopicTable()
