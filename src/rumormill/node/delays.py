"""How long events of peers take: on their way here, and here until they are handed out."""

import time
from collections.abc import Sequence

from rumormill.core.event import Event
from rumormill.core.histogram import Histogram


class Delays:
    """Two histograms, in seconds."""

    def __init__(self) -> None:
        self.travel = Histogram()
        """From an event's date, by its author's clock, where it has one, to its coming here."""
        self.delivery = Histogram()
        """From there until it was safe in the log, and handed out."""

    def add(self, events: Sequence[Event]) -> None:
        """Count events that are handed out now."""
        if not events:  # all of them our own
            return
        now = time.time()
        took = [now - event.received for event in events]
        self.delivery.add_all(took if min(took) >= 0 else [max(0.0, t) for t in took])
        dated = [max(0.0, e.received - e.created) for e in events if e.created is not None]
        self.travel.add_all(dated)
