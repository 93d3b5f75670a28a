"""The one shape of every protocol and overlay: inputs and the time go in, effects come out."""

from typing import Protocol

from rumormill.core.effects import Effects
from rumormill.core.inputs import Input


class Machine(Protocol):
    """A pure state machine.

    The caller owns time and order: `now` never goes back from one call to the next, and the
    effects of one call are carried out before the next call. A machine never raises because of
    what a peer sent; it raises `LocalError` for an impossible request of its own application.
    """

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Take one input at time `now` (seconds) and append what must be done about it."""
        ...
