"""The numbers of what this node publishes never come again, in whatever life, whatever clocks do.

A number is a date in nanoseconds, and a life begins behind the latest that its log knows. Mostly
that is the date at which an own event itself was stored. Where the number is ahead of this date,
because the clock was set back or many were given in one moment, a note says how far numbers have
come. It is in the transaction of the event: a number that anybody has heard of is a number that the
log knows, and nothing else is relied on.
"""

from typing import Final

from rumormill.core.event import Event, Note
from rumormill.log.event_log import EventLog
from rumormill.log.notes import LATEST, read_note
from rumormill.node.clock import LAST

_SPARE: Final = 100_000_000
"""How far ahead is noted, so that a life ahead of its clock does so ten times a second and not with
each commit. Our choice: so much ahead of the clock the next life may begin, and no peer minds."""


class Numbers:
    """How far the numbers of a log's node have come, and what the log must be told of it."""

    def __init__(self, log: EventLog) -> None:
        noted = float(read_note(log, LATEST) or 0.0)
        dates = [row.received_max for row in log.writer().topics.values()]
        self.latest = max([noted, *(min(date, LAST) for date in dates)])
        """The latest moment that earlier lives have used up; 0 if there is none."""
        self._known = int(self.latest * 1e9)
        """Up to here the log knows."""
        self._used = 0
        """The highest number of an event that the log's dates do not cover."""
        self._said = 0.0

    def use(self, number: int, event: Event, received: float) -> None:
        """An event with this number is about to be stored, with this date.

        One whose name does not have the number in it may be there already, and is not stored again.
        """
        if number > self._used and not (
            number <= int(received * 1e9) and event.id.endswith(number.to_bytes(8))
        ):
            self._used = number

    def note(self) -> list[Note]:
        """What must be kept together with the events so far."""
        if self._used <= self._known:
            return []
        self._said = (self._used + _SPARE) / 1e9
        return [Note(LATEST, repr(self._said).encode())]

    def noted(self) -> None:
        """What `note` gave last is safe."""
        self._known = max(self._known, int(self._said * 1e9))
