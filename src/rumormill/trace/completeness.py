"""Completeness: whether everybody who should have every event has it in the end, and since when.

The ledger counts who was up when an event was published. Here a subscriber is entitled to an event
if it had joined the topic before the publication and has not left it, and is up when the trace
ends; that it was down in between takes nothing away. So this says what a subscriber lacks that was
away, and the ledger does not.

An event that could not be published is never complete.

An event is complete with the first delivery at the last peer that is entitled to it. The time to
that is counted from its publication, or from the last fault if that came later: a peer that went
down, or came back. While peers still fall and rise nobody can have everything. What was complete
before took no time. A peer's first start is no fault.

Memory: eight bytes per peer and event.
"""

from array import array
from bisect import bisect_right
from math import inf
from typing import NamedTuple

import msgspec

from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.trace.ledger import Ledger


class Completed(NamedTuple):
    """How many pairs of an event and a peer entitled to it there are, how many of them are missing,
    and each event's time to be complete, in ascending order; infinite if it is not."""

    pairs: int
    missing: int
    times: list[float]


class _Arrivals(msgspec.Struct):
    """When an event was published, and when each peer first had it, by the ledger's numbers."""

    topic: Topic
    published_at: float
    times: "array[float]"


class Completeness:
    """Who has what, and since when."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._events: dict[MessageId, _Arrivals] = {}
        self._opened: list[_Arrivals] = []
        """All events in their order, those included that were not published."""
        self._fallen: dict[PeerId, None] = {}
        self._last_fault = -inf

    def publish(self, now: float, message_id: MessageId, topic: Topic) -> None:
        """Begin an event; the ledger has entered it just before."""
        self._events[message_id] = self.fail(now, topic)

    def fail(self, now: float, topic: Topic) -> _Arrivals:
        """Begin an event that nobody has, for ever if it was not published."""
        nobody = array("d", [inf]) * len(self._ledger.index)
        self._opened.append(_Arrivals(topic, now, nobody))
        return self._opened[-1]

    def deliver(self, now: float, peer: PeerId, message_id: MessageId) -> None:
        """Note a delivery; whoever is new since the publication is not entitled, and left out."""
        event = self._events.get(message_id)
        number = self._ledger.index.get(peer, -1)
        if event is not None and 0 <= number < len(event.times) and event.times[number] == inf:
            event.times[number] = now

    def undeliver(self, peer: PeerId, message_id: MessageId) -> None:
        """Take a delivery back: the application had no room."""
        event = self._events.get(message_id)
        number = self._ledger.index.get(peer, -1)
        if event is not None and 0 <= number < len(event.times):
            event.times[number] = inf

    def node_up(self, now: float, peer: PeerId) -> None:
        """A peer starts, or comes back."""
        if peer in self._fallen:
            self._last_fault = now

    def node_down(self, now: float, peer: PeerId) -> None:
        """A peer is gone."""
        self._fallen[peer] = None
        self._last_fault = now

    def judge(self) -> Completed:
        """Say how things stand; an event to which nobody is entitled has no part in it."""
        entitled = self._ledger.subscribers()
        pairs = missing = 0
        late: list[float] = []
        for number, event in enumerate(self._opened):
            members = entitled.get(event.topic, [])
            members = members[: bisect_right(members, (number, inf))]
            if not members:
                continue
            times = [event.times[peer] for _, peer in members]
            pairs += len(times)
            missing += times.count(inf)
            since = max(event.published_at, self._last_fault)
            late.append(round(max(max(times) - since, 0.0), 9))
        return Completed(pairs, missing, sorted(late))
