"""Checking what was fetched: signatures above all, which take longer than all else about an event.

It needs nothing but the events and the protocol's own rules, so a runtime does it beside its loop,
while earlier events are stored and later ones are on their way.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from rumormill.core.effects import Computation
from rumormill.core.event import Event
from rumormill.core.ids import Topic
from rumormill.sync.messages import SentEvent

Check: TypeAlias = Callable[[Event], object]
"""What a protocol makes of an event that somebody has kept (`Recovered.checked`)."""


class Checked(msgspec.Struct, frozen=True):
    """Events of a topic, each with what the protocol has made of it."""

    topic: Topic
    events: tuple[tuple[Event, object], ...]


class CheckFetched(Computation, frozen=True):
    """Check events that a partner gave."""

    topic: Topic
    events: tuple[SentEvent, ...]
    check: Check

    def work_out(self) -> Checked:
        """Check each."""
        topic, check = self.topic, self.check
        found = []
        for sent in self.events:
            event = Event(topic, sent.data, sent.author, sent.id, proof=sent.proof)
            found.append((event, check(event)))
        return Checked(topic, tuple(found))
