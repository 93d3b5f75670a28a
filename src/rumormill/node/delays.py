"""How long events of peers take: on their way here, and here until they are handed out."""

import time
from collections.abc import Iterable

from rumormill.core.event import Event
from rumormill.core.histogram import Histogram


class Delays:
    """Two histograms, in seconds."""

    def __init__(self) -> None:
        self.travel = Histogram()
        """From an event's date, by its author's clock, where it has one, to its coming here."""
        self.delivery = Histogram()
        """From there until it was safe in the log, and handed out."""

    def add(self, events: Iterable[Event]) -> None:
        """Count events that are handed out now."""
        now = time.time()
        for event in events:
            self.delivery.add(max(0.0, now - event.received))
            if event.created is not None:
                self.travel.add(max(0.0, event.received - event.created))
