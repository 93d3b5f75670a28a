"""What a runtime must know of a protocol's wire message in order to carry it.

Each protocol has its own message types. A runtime treats them alike: it moves them, and traces
what they were by their `meta`.
"""

from typing import Protocol

from rumormill.core.trace import RpcMeta


class WireMessage(Protocol):
    """A message between two peers, of whatever protocol. Immutable once sent."""

    cached_meta: RpcMeta | None
    """`meta` once it was computed, or as a runtime knows it better than the bytes tell."""

    @property
    def meta(self) -> RpcMeta:
        """What the trace says of this message; computed once and kept."""

    @property
    def urgent(self) -> bool:
        """Whether it may overtake bulk data in an outgoing queue (control before data)."""
