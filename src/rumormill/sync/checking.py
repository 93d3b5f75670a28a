"""Checking what was fetched: signatures above all, which take longer than all else about an event.

It needs nothing but the events and the protocol's own rules, so a runtime does it beside its loop,
while earlier events are stored and later ones are on their way.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from rumormill.core.effects import Append, Computation, Effects, Validate
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Recovered
from rumormill.core.machine import Machine
from rumormill.core.trace import RejectMessage
from rumormill.sync.messages import SentEvent

Check: TypeAlias = Callable[[Event], object]
"""What a protocol makes of an event that somebody has kept (`Recovered.checked`)."""


class Checked(msgspec.Struct, frozen=True):
    """Events, each with what the protocol has made of it."""

    events: tuple[tuple[Event, object], ...]


def judged(
    protocol: Machine, giver: PeerId, fetched: Checked, now: float, effects: Effects
) -> tuple[dict[Topic, int], int]:
    """Give events to the protocol: how many are good, by topic, and how many are forged."""
    good: dict[Topic, int] = {}
    forged = 0
    for event, checked in fetched.events:
        before = len(effects)
        protocol.handle(Recovered(giver, event, checked), now, effects)
        for effect in effects[before:]:
            if isinstance(effect, (Append, Validate)):
                good[event.topic] = good.get(event.topic, 0) + 1
            elif isinstance(effect, RejectMessage):  # by the protocol, not by ourselves
                forged += effect.received_from == giver
    return good, forged


class CheckFetched(Computation, frozen=True):
    """Check events that a partner gave."""

    events: tuple[tuple[Topic, SentEvent], ...]
    check: Check

    def work_out(self) -> Checked:
        """Check each."""
        check = self.check
        found = []
        for topic, sent in self.events:
            event = Event(topic, sent.data, sent.author, sent.id, proof=sent.proof)
            found.append((event, check(event)))
        return Checked(tuple(found))
