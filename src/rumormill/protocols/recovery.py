"""What becomes of an event that was missing and fetched, in every protocol that takes such.

It is judged as one that arrives is: the protocol checks the author, the application's validator
says its word. Then it is appended and delivered, and goes no further, because whoever lacks it asks
for it as well. One that our own rules refuse is remembered, so that it is not asked for again, and
nobody is to blame for it: who gave it has rules of its own.
"""

from collections.abc import Callable

import msgspec

from rumormill.core import trace
from rumormill.core.effects import Append, Disregard, Effects, Validate
from rumormill.core.event import Event
from rumormill.core.history import Key, stamp_of
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.inputs import Verdict

SYNC = "sync"
REFUSED = "refused by our own rules"


class Unkept(msgspec.Struct, frozen=True):
    """What is heard (`NotStored`) of a fetched event of a topic for which there was no room."""

    topic: Topic


class Recovery:
    """Fetched events, those included whose validation takes a while."""

    __slots__ = ("_most", "_own", "_pending", "_validator")

    def __init__(
        self, own: PeerId, validator: Callable[[Event, PeerId], Verdict] | None, most: int
    ) -> None:
        self._own = own
        self._validator = validator
        self._most = most
        self._pending: dict[MessageId, tuple[PeerId, Event]] = {}

    def take(self, peer: PeerId, event: Event, refusal: object, effects: Effects) -> bool:
        """Judge an event, of which the protocol says why it is not what it seems, if so; return
        whether it is accepted, and not refused or yet to be judged."""
        if refusal is not None:
            effects.append(trace.RejectMessage(event.id, peer, str(refusal), event.topic))
            return False
        event = msgspec.structs.replace(event, via=SYNC)
        verdict = Verdict.ACCEPT if self._validator is None else self._validator(event, peer)
        if verdict is not Verdict.DEFER:
            self._settle(peer, event, verdict, effects)
        elif len(self._pending) < self._most and event.id not in self._pending:
            self._pending[event.id] = (peer, event)
            effects.append(Validate(event, peer))
        return verdict is Verdict.ACCEPT

    def on_validated(self, event_id: MessageId, verdict: Verdict, effects: Effects) -> bool:
        """Take a verdict that was awaited; false if it is on something else."""
        waiting = self._pending.pop(event_id, None)
        if waiting is not None:
            self._settle(*waiting, verdict, effects)
        return waiting is not None

    def _settle(self, peer: PeerId, event: Event, verdict: Verdict, effects: Effects) -> None:
        if verdict is Verdict.ACCEPT:
            effects.append(trace.DeliverMessage(event.id, event.topic, peer, SYNC))
            effects.append(Append(event, deliver=True, if_lost=Unkept(event.topic)))
        else:
            effects.append(trace.RejectMessage(event.id, self._own, REFUSED, event.topic))
            effects.append(Disregard(event.topic, Key(stamp_of(event), event.id)))
