"""What we publish, between the application's wish and the log's word that it is safe.

No peer hears of an event of ours that a crash could take back: its sequence number would be given
again, and its receipt would be a lie. So an own event is appended behind a barrier, waits here, and
is spread when it is stored. The runtime lets only so many publications wait, so this is bounded.
"""

from typing import Generic, TypeVar

import msgspec

from rumormill.core.effects import Append, Effects, Published
from rumormill.core.event import Event
from rumormill.core.inputs import NotStored, Stored
from rumormill.core.trace import FailPublish

MessageT = TypeVar("MessageT")


class Waiting(msgspec.Struct, Generic[MessageT], frozen=True, gc=False):
    """One own event, the protocol's message for it, and the number of its `Publish`."""

    number: int
    event: Event
    message: MessageT
    delivered: bool
    """Whether our own application gets it."""


class Unsaid(Generic[MessageT]):
    """Own messages that wait for the log, by their barriers."""

    __slots__ = ("_last", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Waiting[MessageT]] = {}
        self._last = 0

    def append(
        self,
        number: int,
        event: Event,
        message: MessageT,
        deliver: bool,
        seqno: int,
        effects: Effects,
    ) -> None:
        """Have an event stored; `stored` gives its message back."""
        self._last += 1
        self._waiting[self._last] = Waiting(number, event, message, deliver)
        effects.append(Append(event, deliver, self._last, None, seqno, new=True))

    def stored(self, event: Stored) -> list[Waiting[MessageT]]:
        """What can be said now."""
        return [self._waiting.pop(each) for each in event.barriers]  # type: ignore[call-overload]

    def not_stored(self, event: NotStored, effects: Effects) -> None:
        """Answer for what is never said."""
        for each in event.barriers:
            lost: Waiting[MessageT] = self._waiting.pop(each)  # type: ignore[call-overload]
            effects.append(FailPublish(lost.event.topic, event.reason))
            effects.append(Published(lost.number, None, error=event.reason))
